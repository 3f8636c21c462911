//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// mostSkipped is how many cases are left out. It may fall; who raises it says in
// cannotRun why.
const mostSkipped = 10

// cannotRun says why a case cannot be a request to a server; "" if it can.
func cannotRun(c *cases.Case) string {
	r := &c.Request
	switch {
	case c.Skip["e2e"] != "":
		return c.Skip["e2e"]
	case r.Operation == "DELETE":
		return "policies never see DELETE"
	case r.Operation == "CONNECT" && (r.SubResource != "exec" || r.Object == nil):
		return "a connection to a Pod needs a kubelet"
	case r.Operation != "CONNECT" && r.Object == nil:
		return "the request has no object, which only a test can send"
	case r.RequestKind != r.Kind || r.RequestResource != r.Resource || r.RequestSubResource != r.SubResource:
		return "the case says what a server has converted the request from, without a kind that it would convert"
	case r.SubResource == "" && (r.Name != r.Object.GetName() || r.Resource.Resource != "namespaces" && r.Namespace != r.Object.GetNamespace()):
		return "the request names another object than it holds, which a server does not let through"
	case r.SubResource == "" && len(c.CRDs) == 0 && !scheme.Scheme.Recognizes(r.Kind):
		return "no server serves the kind"
	}
	return ""
}

// differing are the cases whose difference has a row in docs/reference/compat.md, beside
// those that name a row themselves.
var differing = []struct {
	cases, row string
	// sometimes: Kubernetes answers by the order of a Go map.
	sometimes bool
}{
	{cases: "apply/atomic-several", row: "stable-text", sometimes: true},
	{cases: "cel/type-name-two-errors", row: "stable-text", sometimes: true},
	{cases: "kinds/custom-scale", row: "custom-scale"},
	{cases: "matching/equivalent-builtin", row: "cross-version"},
	{cases: "matching/equivalent-builtin-ignore", row: "cross-version"},
	{cases: "matching/webhook-configurations", row: "g12-admission-kinds"},
	{cases: "params/unknown-kind-unselected", row: "policy-errors-unsent"},
	{cases: "order/match-in-second-pass", row: "group-selectors"},
	{cases: "order/never-and-if-needed", row: "group-order", sometimes: true},
	// Go begins to walk a small map anywhere, but keeps the order of its slots, so
	// that one of several orders may never come.
	{cases: "order/per-param", row: "stable-order", sometimes: true},
}

// leastAsWanted is how many cases end natively as the case file wants. It shows
// that the twins are not alike because nothing happens on either. The others are
// refused by validation that only a server has, or have a row in
// docs/reference/compat.md.
const leastAsWanted = 450

// asWanted says whether a native server did what a case wants.
func asWanted(p *plan, got *outcome) bool {
	c := p.c
	if c.WantError != "" {
		first, _, _ := strings.Cut(c.WantError, "\n")
		said := fmt.Sprintf("%d %v: %s", got.Answer.Code, lookup(got.Answer.Body, "reason"), message(got.Answer.Body))
		said, _, _ = strings.Cut(said, "\n")
		return first == p.rewriter.undo(said)
	}
	want := c.WantObject
	if want == nil || got.Answer.Code >= 300 {
		return got.Answer.Code < 300
	}
	body, err := json.Marshal(got.Answer.Body)
	if err != nil {
		return false
	}
	var tree any
	d := json.NewDecoder(strings.NewReader(p.rewriter.undo(string(body))))
	d.UseNumber()
	if d.Decode(&tree) != nil {
		return false
	}
	// What else is in metadata and status is the server's.
	for key, v := range want.Object {
		switch key {
		case "status":
			continue
		case "metadata":
			for _, key := range []string{"labels", "annotations", "finalizers"} {
				if !holds(lookup(tree, "metadata", key), lookup(v, key)) {
					return false
				}
			}
		default:
			if !holds(lookup(tree, key), v) {
				return false
			}
		}
	}
	return true
}

// holds says whether got has all that want has.
func holds(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		m, _ := got.(map[string]any)
		for key, v := range want {
			if !holds(m[key], v) {
				return false
			}
		}
		return true
	case []any:
		list, _ := got.([]any)
		return slices.EqualFunc(list, want, holds)
	case nil:
		return true
	}
	return fmt.Sprint(got) == fmt.Sprint(want) || want == "" && got == nil
}

type differences struct {
	text string // docs/reference/compat.md

	mu   sync.Mutex
	seen map[string]string // case → row
	used map[int]bool      // index into differing
}

func newDifferences(t *testing.T) *differences {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cluster.Root(t), "docs/reference/compat.md"))
	if err != nil {
		t.Fatal(err)
	}
	return &differences{text: string(text), seen: map[string]string{}, used: map[int]bool{}}
}

// row is the row of docs/reference/compat.md that the table above has for a case.
func (d *differences) row(c *cases.Case) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, e := range differing {
		if matches(e.cases, c.Name) {
			d.used[i] = true
			return e.row
		}
	}
	return ""
}

// explain notes that a difference has a row.
func (d *differences) explain(c *cases.Case, row string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[c.Name] = row
}

// check fails the test of a case whose difference nothing explains.
func (d *differences) check(t *testing.T, c *cases.Case, diff string) {
	t.Helper()
	if diff == "" {
		return
	}
	row := d.row(c)
	if row == "" {
		row = c.Compat
	}
	switch {
	case row == "":
		t.Errorf("the twins differ (-native +mapd), and no row of docs/reference/compat.md says so:\n%s", diff)
	case !strings.Contains(d.text, "\n| `"+row+"` |"):
		t.Errorf("docs/reference/compat.md has no row %q", row)
	default:
		d.explain(c, row)
		t.Logf("differs by row %s (-native +mapd):\n%s", row, diff)
	}
}

// checkStale fails if an entry of differing explains nothing any more.
func (d *differences) checkStale(t *testing.T) {
	t.Helper()
	for i, e := range differing {
		if !e.sometimes && !d.used[i] {
			t.Errorf("differing: %s (%s): the twins do not differ any more", e.cases, e.row)
		}
	}
}

func (d *differences) count() int { return len(d.seen) }

func matches(pattern, name string) bool {
	ok, err := filepath.Match(pattern, name)
	return ok && err == nil
}

// TestLeftOut needs no server.
func TestLeftOut(t *testing.T) {
	_, skipped := planAll(t, regexp.MustCompile(""))
	reasons := map[string][]string{}
	for name, why := range skipped {
		reasons[why] = append(reasons[why], name)
	}
	for why, names := range reasons {
		slices.Sort(names)
		t.Logf("%d left out: %s: %s", len(names), why, strings.Join(names, " "))
	}
	if len(skipped) > mostSkipped {
		t.Errorf("%d cases are left out, %d were before", len(skipped), mostSkipped)
	}
}

// madeUp is a text that a server invents, and what stands for it.
type madeUp struct{ text, stands string }

func uid(body any) madeUp {
	s, _ := lookup(body, "metadata", "uid").(string)
	return madeUp{s, "UID"}
}

var denied = regexp.MustCompile(`admission webhook "[a-z.]+" denied the request: `)

// normal takes away what differs between any two servers.
func (w *twin) normal(a answer, known []madeUp) answer {
	if name, ok := lookup(a.Body, "metadata", "name").(string); ok && lookup(a.Body, "metadata", "generateName") != nil {
		known = append(slices.Clone(known), madeUp{name, "GENERATED"})
	}
	text := func(s string) string {
		s = denied.ReplaceAllString(s, "")
		s = strings.ReplaceAll(s, "admissionregistration.mapd.dev", "admissionregistration.k8s.io")
		// The protobuf library writes either, by a hash of the program.
		s = strings.ReplaceAll(s, "proto:\u00a0", "proto: ")
		for _, k := range known {
			if k.text != "" {
				s = strings.ReplaceAll(s, k.text, k.stands)
			}
		}
		return s
	}
	var value func(v any) any
	value = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			out := make(map[string]any, len(v))
			for key, x := range v {
				if key != "lastTransitionTime" {
					out[key] = value(x)
				}
			}
			return out
		case []any:
			out := make([]any, len(v))
			for i, x := range v {
				out[i] = value(x)
			}
			return out
		case string:
			return text(v)
		}
		return v
	}
	a.Body = value(a.Body)
	for i, s := range a.Warnings {
		a.Warnings[i] = text(s)
	}
	if meta, ok := lookup(a.Body, "metadata").(map[string]any); ok {
		for _, key := range []string{"uid", "resourceVersion", "creationTimestamp"} {
			delete(meta, key)
		}
		if fields, ok := meta["managedFields"].([]any); ok {
			for _, f := range fields {
				if f, ok := f.(map[string]any); ok {
					delete(f, "time")
				}
			}
		}
	}
	switch lookup(a.Body, "kind") {
	case "Service":
		if spec, ok := lookup(a.Body, "spec").(map[string]any); ok {
			delete(spec, "clusterIP")
			delete(spec, "clusterIPs")
		}
	case "TokenRequest":
		if status, ok := lookup(a.Body, "status").(map[string]any); ok {
			delete(status, "token")
			delete(status, "expirationTimestamp")
		}
	}
	return a
}
