//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	mapdpolicy "github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/e2e/cluster"
	"github.com/mapd-project/mapd/test/subject"
)

// ours is the minor of servers/go.mod, which TestTwins runs.
const ours = "1.37"

var updateVersions = flag.Bool("update", false, "TestVersions writes the column of its minor into docs/reference/versions.md")

// TestVersions holds mapd, with the language of --kubernetes, to a server of that minor
// that runs the in-tree plugin: every case that the server can run ends on it as in
// mapd, or has an entry in the minor's column of docs/reference/versions.md. The policies are
// written in the newest version of the API that the server has.
//
// `make e2e-versions` runs it for each minor; MAPD_E2E_KUBERNETES names the release.
func TestVersions(t *testing.T) {
	release := os.Getenv("MAPD_E2E_KUBERNETES")
	if release == "" {
		t.Skip("MAPD_E2E_KUBERNETES names no release; of the one in servers/go.mod, TestTwins says more")
	}
	only, err := regexp.Compile(*onlyCases)
	if err != nil {
		t.Fatal(err)
	}
	minor, err := minorOf(release)
	if err != nil {
		t.Fatal(err)
	}
	env, err := cel.NewEnv(cel.Options{Version: minor})
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(strings.TrimPrefix(minor, "1."))
	if err != nil {
		t.Fatal(err)
	}
	plans, _ := planOf(t, number, only)
	v := &versions{env: env, minor: minor, cases: map[string]*cases.Case{}, found: map[string]string{}}
	for _, p := range plans {
		v.cases[p.c.Name] = p.c
	}
	t.Run("lanes", func(t *testing.T) {
		lanes := max(1, min(*laneCount, len(plans)))
		var all []part
		for i := range lanes {
			var mine []*plan
			for j := i; j < len(plans); j += lanes {
				mine = append(mine, plans[j])
			}
			all = append(all, part{fmt.Sprint(i), func(t *testing.T) { v.lane(t, minor, mine) }})
		}
		together(t, all)
	})
	t.Logf("kubernetes %s: %d cases ran, %d refused by both, %d differ", release, v.ran, v.refused, len(v.found))
	if !t.Failed() && *onlyCases == "" {
		v.check(t, minor)
	}
}

// minorOf returns the minor of a release, 1.34 of 1.34.9.
func minorOf(release string) (string, error) {
	parts := strings.Split(release, ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("MAPD_E2E_KUBERNETES=%s: want a release such as 1.34.9", release)
	}
	return parts[0] + "." + parts[1], nil
}

// versioned returns a server of a minor with the in-tree plugin on. Up to 1.35 the API
// has to be asked for.
func versioned(t *testing.T, minor string) *twin {
	t.Helper()
	w := &twin{name: minor, native: true, group: api.NativeGroup, version: "v1"}
	switch minor {
	case "1.32", "1.33":
		w.version = "v1alpha1"
	case "1.34", "1.35":
		w.version = "v1beta1"
	}
	options := cluster.Options{Native: true}
	if w.version != "v1" {
		options.Flags = []string{"--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=" + api.NativeGroup + "/" + w.version + "=true"}
	}
	w.cluster = cluster.Start(t, options)
	w.connect(t)
	body, err := w.expect(t.Context(), http.MethodGet, "/version", nil, http.StatusOK)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%v.%v", lookup(body.Body, "major"), lookup(body.Body, "minor")); got != minor {
		t.Fatalf("the server is of Kubernetes %s, not %s", got, minor)
	}
	return w
}

// versions collects what a server of one minor does with the cases.
type versions struct {
	env   *cel.Env
	minor string
	cases map[string]*cases.Case

	mu           sync.Mutex
	ran, refused int
	found        map[string]string // case → how it differs
}

func (v *versions) lane(t *testing.T, minor string, plans []*plan) {
	w := versioned(t, minor)
	if err := w.prepare(t.Context(), plans); err != nil {
		t.Fatal(err)
	}
	for _, p := range plans {
		how, refused, err := v.compare(t.Context(), w, p)
		if err != nil {
			t.Fatalf("%s: %v", p.c.Name, err)
		}
		v.mu.Lock()
		v.ran++
		if refused {
			v.refused++
		}
		if how != "" {
			v.found[p.c.Name] = how
		}
		v.mu.Unlock()
	}
}

// compare runs a case and says how the server differs from mapd, if it does.
func (v *versions) compare(ctx context.Context, w *twin, p *plan) (how string, refused bool, err error) {
	decision, err := subject.RunAs(ctx, p.c, v.env)
	if err != nil {
		return "", false, err
	}
	c := *p.c
	c.WantObject, c.WantError = decision.Object, ""
	if decision.Status != nil {
		c.WantObject, c.WantError = nil, cases.FormatStatus(decision.Status)
	}
	wanted := *p
	wanted.c = &c
	cause := v.refusal(p.c)
	// One of several orders that a server chooses from is enough.
	tries := 1
	if unordered(p.c) && p.update == "" && p.c.Request.SubResource == "" {
		tries = 20
	}
	for range tries {
		got, err := w.run(ctx, p)
		if err != nil {
			return "", false, err
		}
		switch {
		case len(got.Refused) > 0 && cause != nil:
			return "", true, nil
		case len(got.Refused) > 0:
			return "refuses: " + message(got.Refused[0].Body), false, nil
		case cause != nil:
			return "accepts what mapd refuses: " + cause.Error(), false, nil
		case asWanted(&wanted, got):
			return "", false, nil
		}
		how = fmt.Sprintf("answers %d %s", got.Answer.Code, message(got.Answer.Body))
		w.forget(ctx, p)
	}
	return how, false, nil
}

// refusal is why mapd would not accept the policies of a case from their author.
func (v *versions) refusal(c *cases.Case) error {
	for _, u := range c.Policies {
		obj, err := mapdpolicy.Decode(u)
		if err != nil {
			return err
		}
		if errs := mapdpolicy.Validate(obj, v.env); len(errs) > 0 {
			return errs.ToAggregate()
		}
	}
	for _, u := range c.Bindings {
		obj, err := binding.Decode(u)
		if err != nil {
			return err
		}
		if errs := binding.Validate(obj); len(errs) > 0 {
			return errs.ToAggregate()
		}
	}
	return nil
}

// why is the row of docs/reference/compat.md that explains a difference. On the minor that
// TestTwins runs there is no other reason than what a whole server does with a request
// beside running policies; on others it is to be written by hand, and a test refuses
// what stands for it.
func (v *versions) why(name string) string {
	for _, e := range differing {
		if matches(e.cases, name) {
			return "row `" + e.row + "`"
		}
	}
	if c := v.cases[name]; c != nil && c.Compat != "" {
		return "row `" + c.Compat + "`"
	}
	if v.minor == ours {
		return "what a whole server does beside running policies; `TestTwins` finds no difference"
	}
	return "?"
}

// byChance reports whether a row is about what Kubernetes leaves to the order of Go maps.
func byChance(row *cases.VersionsRow) bool {
	return row != nil && strings.Contains(row.Why, "row `stable-")
}

// check holds what was found against the minor's column of docs/reference/versions.md.
func (v *versions) check(t *testing.T, minor string) {
	t.Helper()
	path := filepath.Join(cluster.Root(t), "docs/reference/versions.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	table, err := cases.ReadVersions(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(v.found)) {
		t.Logf("%s: %s", name, v.found[name])
	}
	if *updateVersions {
		if updated := table.With(minor, v.found, v.why); !bytes.Equal(updated, text) {
			if err := os.WriteFile(path, updated, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	for name := range v.found {
		if !table.Differs(name, minor) && !byChance(table.Rows[name]) {
			t.Errorf("%s differs on %s, and docs/reference/versions.md does not say so: %s", name, minor, v.found[name])
		}
	}
	for name, row := range table.Rows {
		if _, ok := v.found[name]; !ok && table.Differs(name, minor) && !byChance(row) {
			t.Errorf("docs/reference/versions.md says that %s differs on %s; it does not", name, minor)
		}
	}
}
