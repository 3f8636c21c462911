// Command run attacks mapd serve on a loopback port with all attacks of package attack, each with
// a new process of mapd. It prints the memory and the end of the process, the answers that the
// attackers got, and how bystanders were served. It needs /proc.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/servingcert"
	"github.com/mapd-project/mapd/test/attack"
	"github.com/mapd-project/mapd/test/load"
)

func main() {
	var (
		mapd     = flag.String("mapd", "bin/mapd", "the program to attack")
		policies = flag.String("policies", "100,10000", "how many policies it has, one run for each number")
		only     = flag.String("run", "", "attacks whose names match this regular expression; all if empty")
		during   = flag.Duration("during", 10*time.Second, "how long each attack lasts")
		limit    = flag.Int64("limit", 512, "MiB that RSS must stay below; the process believes that this is its memory")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := run(ctx, *mapd, *policies, *only, *during, *limit<<20)
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, mapd, counts, only string, during time.Duration, limit int64) (ok bool, err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "attack")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cert, key, roots, err := certificate(dir)
	if err != nil {
		return false, err
	}
	ok = true
	fmt.Println("| policies | attack | RSS before | peak | bystanders p50 | p99 | reviews | lost | attackers |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for count := range strings.SplitSeq(counts, ",") {
		n, err := strconv.Atoi(count)
		if err != nil {
			return false, err
		}
		policies := filepath.Join(dir, count+".yaml")
		if err := write(policies, n); err != nil {
			return false, err
		}
		for _, a := range append([]attack.Attack{{Name: "none"}}, attack.All...) {
			if !match.MatchString(a.Name) {
				continue
			}
			args := []string{"serve", "--policies", policies, "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--log-level", "error"}
			peak, err := one(ctx, exec.CommandContext(ctx, mapd, args...), limit, a, n, during, roots)
			if err != nil {
				return false, fmt.Errorf("%d policies, %s: %w", n, a.Name, err)
			}
			ok = ok && peak < limit
		}
	}
	return ok, nil
}

// one attacks one process.
func one(ctx context.Context, cmd *exec.Cmd, limit int64, a attack.Attack, policies int, during time.Duration, roots *x509.CertPool) (peak int64, err error) {
	// The value that automemlimit would set in a container with this memory limit.
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", limit/5*4))
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Cancel() // it may have ended
		_ = cmd.Wait()   // it was killed
	}()
	t := attack.Target{Path: "/mutate", Roots: roots}
	lines := bufio.NewScanner(out)
	for t.Addr == "" && lines.Scan() {
		if _, at, found := strings.Cut(lines.Text(), "listening on https://"); found {
			t.Addr, _, _ = strings.Cut(at, "/")
		}
	}
	if t.Addr == "" {
		return 0, errors.New("mapd ended before it listened")
	}
	before, err := load.ReadUsage(cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	bystanders := []*attack.Bystander{
		{Target: t, Patience: 5 * time.Second, Body: attack.Usual()},
		{Target: t, Patience: 5 * time.Second, Body: attack.Usual(), Fresh: true, From: "127.0.0.2"},
		{Target: t, Patience: 5 * time.Second, Body: attack.Usual(), Fresh: true},
	}
	var all sync.WaitGroup
	for _, b := range bystanders {
		all.Go(func() { b.Run(ctx) })
	}
	// A short use before the attack opens the connections of the bystanders.
	select {
	case <-ctx.Done():
	case <-time.After(200 * time.Millisecond):
	}
	outcome := &attack.Outcome{}
	if a.Connections > 0 {
		if outcome, err = a.Run(ctx, t, 0); err != nil {
			return 0, err
		}
	}
	all.Wait()
	after, err := load.ReadUsage(cmd.Process.Pid)
	if err != nil {
		fmt.Printf("| %d | %s | %d MiB | the process is gone: %v | | | | | %s |\n", policies, a.Name, before.RSS>>20, err, outcome)
		return limit, nil
	}
	for i, b := range bystanders {
		how := []string{"a kept connection", "new connections from another address", "new connections from the same address"}[i]
		fmt.Printf("| %d | %s; %s | %d MiB | %d MiB | %.1f ms | %.1f ms | %d | %d | %s |\n", policies, a.Name, how, before.RSS>>20, after.Peak>>20,
			ms(b.Quantile(0.5)), ms(b.Quantile(0.99)), len(b.Took), len(b.Lost), outcome)
		if len(b.Lost) > 0 {
			fmt.Fprintln(os.Stderr, "lost:", b.Lost[0])
		}
	}
	for message, n := range outcome.Denied() {
		fmt.Fprintf(os.Stderr, "%s: denied %d times: %.300s\n", a.Name, n, message)
	}
	return after.Peak, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func certificate(dir string) (cert, key string, roots *x509.CertPool, err error) {
	made, ca, err := servingcert.SelfSigned([]string{"localhost"})
	if err != nil {
		return "", "", nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		return "", "", nil, err
	}
	var chain bytes.Buffer
	for _, der := range made.Certificate {
		if err := pem.Encode(&chain, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			return "", "", nil, err
		}
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	return cert, key, roots, errors.Join(os.WriteFile(cert, chain.Bytes(), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// write writes n policies into a file: one that adds a label to every object, those of the attacks
// by evaluation, and others that match no object that is sent.
func write(file string, n int) error {
	var b bytes.Buffer
	add := func(objects ...*unstructured.Unstructured) error {
		for _, o := range objects {
			data, err := json.Marshal(o)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "---\n%s\n", data)
		}
		return nil
	}
	b.WriteString(everything)
	worst, err := attack.Policies()
	if err != nil {
		return err
	}
	b.Write(worst)
	for i := 1; i < n; i++ {
		if err := add(load.OtherPolicy(api.OwnGroup, load.Label, i)...); err != nil {
			return err
		}
	}
	return os.WriteFile(file, b.Bytes(), 0o600)
}

const everything = `
apiVersion: v1
kind: Namespace
metadata: {name: default}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: everything}
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
metadata: {name: everything}
spec: {policyName: everything}
`
