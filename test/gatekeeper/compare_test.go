package gatekeeper

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/test/cases"
)

// compare holds mapd against Gatekeeper on a case; the Namespace is made up if
// the case has none, since a webhook would not let the request pass.
func compare(t *testing.T, c *Comparison, s *Set, r Request) {
	t.Helper()
	if r.Namespace != "" && r.NamespaceObject == nil {
		r.NamespaceObject = map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": r.Namespace, "labels": map[string]any{"kubernetes.io/metadata.name": r.Namespace}}}
	}
	differences, err := c.Request(t.Context(), s, r)
	if err != nil {
		t.Fatal(err)
	}
	more, err := c.Policies(t.Context(), s, r, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range append(differences, more...) {
		t.Error(d)
	}
}

func take(t *testing.T, c *Comparison, us []*unstructured.Unstructured, providers Providers) *Set {
	t.Helper()
	s, differences, err := c.Take(us, providers)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences {
		t.Error(d)
	}
	return s
}

// What was recorded of Gatekeeper, mapd does.
func TestRecordedCases(t *testing.T) {
	comparison := NewComparison()
	requests := 0
	for _, name := range recordings {
		all, err := recorded(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			compared := c.Request.Object != nil && c.Request.Operation != "" && c.Request.Source == "Original"
			if compared {
				requests++
			}
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				s := take(t, comparison, c.Mutators, c.providers)
				if r := c.Request; compared {
					r.Annotate = false
					compare(t, comparison, s, r)
				}
			})
		}
	}
	t.Log(comparison)
	if requests < 10 {
		t.Errorf("%d of the recordings have a request that is compared", requests)
	}
}

// Every mutator of the corpus, alone, does to every object what it does in
// Gatekeeper; and so do all of them together.
func TestCorpus(t *testing.T) {
	comparison := NewComparison()
	all, err := corpus(func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	var together []*unstructured.Unstructured
	run := func(name string, us []*unstructured.Unstructured) {
		t.Run(name, func(t *testing.T) {
			s := take(t, comparison, us, everyProvider())
			for object, tree := range all {
				if strings.HasPrefix(object, "input-") {
					for _, operation := range []string{"CREATE", "UPDATE"} {
						compare(t, comparison, s, Request{Object: tree, Namespace: "default", Operation: operation, Source: "Original", Username: "alice"})
					}
				}
			}
		})
	}
	ids := map[string]bool{}
	inputs := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		u := &unstructured.Unstructured{Object: all[name]}
		if strings.HasPrefix(name, "input-") {
			inputs++
			continue
		}
		if id := u.GetKind() + "/" + u.GetName(); !ids[id] {
			ids[id], together = true, append(together, u)
		}
		run(name, []*unstructured.Unstructured{u})
	}
	run("together", together)
	t.Log(comparison)
	if inputs == 0 || len(together) == 0 {
		t.Errorf("%d objects and %d mutators", inputs, len(together))
	}
}

// The case files want what Gatekeeper does, or say which row of docs/reference/compat.md is
// why not.
func TestCases(t *testing.T) {
	comparison := NewComparison()
	for _, c := range cases.All(t) {
		if len(c.Mutators) == 0 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if why := c.Skip["gatekeeper"]; why != "" {
				t.Skip(why)
			}
			s := take(t, comparison, c.Mutators, recordedProviders(c.External))
			r := requestOf(c)
			compare(t, comparison, s, r)
			got, err := s.Gatekeeper.Mutate(t.Context(), r)
			if c.Compat != "" {
				got, _, err = s.Gatekeeper.MutateAs(t.Context(), r)
			}
			if err != nil {
				t.Fatal(err)
			}
			got = stored(r, got)
			want := Result{Passes: got.Passes}
			if c.WantPasses != nil {
				want.Passes = *c.WantPasses
			}
			if c.WantObject != nil {
				want.Object = c.WantObject.Object
			} else {
				want.Error = strings.TrimPrefix(c.WantError, "500: ")
			}
			if d := diff(want, got); d != "" {
				t.Errorf("(-want +Gatekeeper):\n%s", d)
			}
		})
	}
	t.Log(comparison)
}

func requestOf(c cases.Case) Request {
	r := Request{Object: c.Request.Object.Object, Namespace: c.Request.Namespace, Operation: c.Request.Operation, Source: "Original", Username: c.Request.User.Username}
	if c.Request.Generated { // outside of a request
		r.Source, r.Operation = "Generated", ""
	}
	if isNamespace(c.Request.Object) {
		r.Namespace = ""
	}
	for _, n := range c.Namespaces {
		if n.GetName() == r.Namespace {
			r.NamespaceObject = n.Object
		}
	}
	return r
}
