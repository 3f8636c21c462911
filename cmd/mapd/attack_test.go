package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mapd-project/mapd/test/attack"
	"github.com/mapd-project/mapd/test/hammer"
	testload "github.com/mapd-project/mapd/test/load"
)

const addsLabels = `
apiVersion: v1
kind: Namespace
metadata: {name: default}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: labels}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*"]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/metadata/labels", value: {"seen": "yes"}}]'}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: labels}
spec: {policyName: labels}
`

// reasons are the bounds that an evaluation meets. The memory of all reviews is none of
// them: that is answered 429.
var reasons = []string{
	"actual cost limit exceeded",
	"the values of one evaluation take more than 64 MiB of memory",
	"quantities of more than 1000 characters or with an exponent beyond",
	"which is more than an API server takes",
	"the object would take more than 7 MiB of JSON",
	"the accumulated size increase of copy",
}

// TestAttacks attacks one mapd serve that believes it has little memory, one attack
// after the other, each for a moment. Its memory stays near what it may have, and
// others are served. The same attacks at full size are make attack.
func TestAttacks(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("what a process holds is known from /proc")
	}
	const (
		limit = 160 << 20 // of Go, in a container of 200 MiB
		bound = 320 << 20 // program pages included, which are more in a test; unbounded, one attack takes more than a GiB
		each  = 300 * time.Millisecond
	)
	dir := t.TempDir()
	policies := filepath.Join(dir, "policies.yaml")
	worst, err := attack.Policies()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(policies, append([]byte(addsLabels), worst...), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "mapd", "serve", "--policies", policies, "--listen", "127.0.0.1:0", "--log-level", "error")
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=167772160", "GOGC=100", "TMPDIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	target := attack.Target{Path: "/mutate", Roots: x509.NewCertPool()}
	lines := bufio.NewScanner(out)
	for target.Addr == "" && lines.Scan() {
		if file, ok := strings.CutPrefix(lines.Text(), "mapd serve: CA bundle in "); ok {
			ca, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			target.Roots.AppendCertsFromPEM(ca)
		}
		if url, ok := strings.CutPrefix(lines.Text(), "mapd serve: listening on https://"); ok {
			target.Addr, _, _ = strings.Cut(url, "/")
		}
	}
	if target.Addr == "" {
		t.Fatal("mapd serve did not listen")
	}

	ctx, stop := context.WithCancel(t.Context())
	bystander := &attack.Bystander{Target: target, Patience: deadline, Body: attack.Usual(), From: "127.0.0.2", Fresh: true}
	var others sync.WaitGroup
	others.Go(func() { bystander.Run(ctx) })
	// check looks at what came of an attack.
	check := func(name string, o *attack.Outcome, served int64) {
		t.Helper()
		for code := range o.Codes() {
			switch code {
			case 200, 400, 408, 413, 415, 429, 431, 504:
			default:
				t.Errorf("%s: answers %s", name, o)
			}
		}
		for message := range o.Denied() {
			if !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(message, r) }) {
				t.Errorf("%s: denied for no bound: %.1000s", name, message)
			}
		}
		// Each attack has an end; a review that waits through it is served then.
		for bystander.Served() == served && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		usage, err := testload.ReadUsage(cmd.Process.Pid)
		if err != nil {
			t.Fatalf("%s: the process is gone: %v", name, err)
		}
		t.Logf("%-28s peak %3d MiB, answers %s", name, usage.Peak>>20, o)
		if usage.Peak > bound && !hammer.Race {
			t.Fatalf("%s: the process took %d MiB, want at most %d", name, usage.Peak>>20, bound>>20)
		}
	}
	for _, a := range attack.Requests {
		served := bystander.Served()
		attacking, end := context.WithTimeout(ctx, each)
		outcome, err := a.Run(attacking, target, min(a.Connections, 32))
		end()
		if err != nil {
			t.Fatalf("%s: %v", a.Name, err)
		}
		check(a.Name, outcome, served)
	}
	// Attacks by evaluation take turns whoever sends them, so all of them go on at once.
	// Some of them meet a bound, sooner or later.
	for denied := 0; denied == 0; {
		served := bystander.Served()
		outcomes := make([]*attack.Outcome, len(attack.Evaluations))
		attacking, end := context.WithTimeout(ctx, 8*each)
		var attackers errgroup.Group
		for i, a := range attack.Evaluations {
			attackers.Go(func() (err error) {
				outcomes[i], err = a.Run(attacking, target, 1)
				return err
			})
		}
		err = attackers.Wait()
		end()
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range attack.Evaluations {
			check(a.Name, outcomes[i], served)
			denied += len(outcomes[i].Denied())
		}
	}
	stop()
	others.Wait()
	for _, err := range bystander.Lost {
		t.Errorf("a bystander's review was lost: %v", err)
	}
}
