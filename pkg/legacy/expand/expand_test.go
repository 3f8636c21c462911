package expand_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
)

// template expands kinds of v1 by spec.x.
func template(name, generates string, kinds ...string) *legacy.Template {
	return &legacy.Template{
		Name: name, ApplyTo: []legacy.ApplyTo{{Groups: []string{""}, Versions: []string{"v1"}, Kinds: kinds}},
		Source: "spec.x", Generates: schema.GroupVersionKind{Version: "v1", Kind: generates},
	}
}

func object(kind string, x any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "o"}, "spec": map[string]any{"x": x},
	}}
}

// nested is what kinds that are expanded n times need.
func nested(n int) map[string]any {
	x := map[string]any{}
	for range n {
		x = map[string]any{"spec": map[string]any{"x": x}}
	}
	return x
}

func names(templates []*legacy.Template) (out []string) {
	for _, t := range templates {
		out = append(out, t.Name)
	}
	return out
}

func TestCycles(t *testing.T) {
	s := expand.New([]*legacy.Template{
		template("b", "C", "B"), template("a", "B", "A"), template("c", "A", "C"), // a circle
		template("into", "A", "D"), template("out", "E", "B"), // touch it
		template("named-twice", "Y", "X", "X"),
		template("g", "F", "G"), template("f", "G", "F"), // another circle
	})
	if got := s.Circles(); len(got) != 2 || !slices.Equal(names(got[0]), []string{"a", "b", "c"}) || !slices.Equal(names(got[1]), []string{"f", "g"}) {
		t.Errorf("circles: %v", got)
	} else if err := expand.CycleError(got[0]); err.Error() != expand.ErrCycle+": a, b, c" {
		t.Errorf("error %v", err)
	}
	var many []*legacy.Template
	for i := range 12 {
		many = append(many, template(fmt.Sprintf("t%02d", i), fmt.Sprintf("K%d", (i+1)%12), fmt.Sprintf("K%d", i)))
	}
	if got := expand.CycleError(expand.New(many).Circles()[0]).Error(); !strings.HasSuffix(got, ": t00, t01, t02, t03, t04, t05, t06, t07, t08, t09 and 2 more") {
		t.Errorf("of many: %s", got)
	}
	for kind, want := range map[string][]string{"A": nil, "B": {"out"}, "C": nil, "D": {"into"}, "X": {"named-twice"}} {
		if got := names(s.For(schema.GroupVersionKind{Version: "v1", Kind: kind})); !slices.Equal(got, want) {
			t.Errorf("%s is expanded by %v, want %v", kind, got, want)
		}
	}
}

func TestBuiltIn(t *testing.T) {
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	own := &legacy.Template{Name: "own", ApplyTo: []legacy.ApplyTo{{Groups: []string{"apps"}, Versions: []string{"v1"}, Kinds: []string{"Deployment"}}},
		Source: "spec.template", Generates: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}}
	s := expand.New([]*legacy.Template{own})
	if got := names(s.For(deployment)); !slices.Equal(got, []string{"own"}) {
		t.Errorf("Deployments are expanded by %v", got)
	}
	if got := names(s.For(own.Generates)); !slices.Equal(got, []string{"built-in ReplicaSet"}) {
		t.Errorf("ReplicaSets are expanded by %v", got)
	}
	// Pods that create Deployments do so, and these are not expanded.
	reverse := template("reverse", "Deployment", "Pod")
	reverse.Generates = deployment
	s = expand.New([]*legacy.Template{reverse})
	if len(s.Circles()) != 0 || len(s.For(deployment)) != 0 || len(s.For(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})) != 1 {
		t.Errorf("a template that closes a circle with a built-in one: %v, %v", s.Circles(), names(s.For(deployment)))
	}
	// A ReplicationController without a template creates nothing.
	rc := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ReplicationController"}}
	if made, err := s.Expand(rc, expand.Options{}); err != nil || len(made) != 0 {
		t.Errorf("%d objects, error %v", len(made), err)
	}
}

func TestLimits(t *testing.T) {
	var wide []*legacy.Template // A → 9 × B → 9 × C …
	for level := range 4 {
		for n := range 9 {
			wide = append(wide, template(fmt.Sprintf("t%d-%d", level, n), string(rune('B'+level)), string(rune('A'+level))))
		}
	}
	var deep []*legacy.Template
	for level := range 30 {
		deep = append(deep, template(fmt.Sprintf("t%d", level), fmt.Sprintf("K%d", level+1), fmt.Sprintf("K%d", level)))
	}
	for name, c := range map[string]struct {
		templates []*legacy.Template
		object    *unstructured.Unstructured
		limits    expand.Limits
		want      string
	}{
		"number":   {wide, object("A", nested(4)), expand.Limits{}, "D o-b-c-d expands into more than 100 objects"},
		"bytes":    {wide, object("A", map[string]any{"x": strings.Repeat("x", 2<<20)}), expand.Limits{}, "what A o expands into has more than 16777216 bytes"},
		"own":      {wide, object("A", nested(1)), expand.Limits{Objects: 8}, "A o expands into more than 8 objects"},
		"depth":    {deep, object("K0", nested(30)), expand.Limits{}, "maximum recursion depth of 30 reached"},
		"no depth": {deep, object("K2", nested(28)), expand.Limits{}, ""},
		"text":     {wide, object("A", []any{strings.Repeat("é", 1<<20)}), expand.Limits{}, "could not extract source field from unstructured: .spec.x accessor error: [é"},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := expand.New(c.templates).Expand(c.object, expand.Options{Limits: c.limits})
			switch {
			case c.want == "" && (err != nil || len(made) != 28):
				t.Errorf("%d objects, error %v", len(made), err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want) || len(err.Error()) > 5000):
				t.Errorf("error %.200v, want %s", err, c.want)
			}
		})
	}
}

// The object that is expanded is not modified, whatever is done to the new ones.
func TestSharesNothing(t *testing.T) {
	o := object("A", map[string]any{"metadata": map[string]any{"name": "x", "ownerReferences": []any{map[string]any{"kind": "K"}}}})
	before := o.DeepCopy()
	namespace := "elsewhere"
	made, err := expand.New([]*legacy.Template{template("t", "B", "A")}).Expand(o, expand.Options{Namespace: &namespace})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(o) != fmt.Sprint(before) {
		t.Errorf("modified: %v", o)
	}
	if got := made[0].Made; got.GetName() != "o-b" || got.GetNamespace() != "elsewhere" || len(got.GetOwnerReferences()) != 2 {
		t.Errorf("made %v", got)
	}
}
