package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/hammer"
	"github.com/mapd-project/mapd/test/subject"
)

// static are texts of errors that an expression and a schema alone can explain.
var static = []string{
	"field not declared in schema", "may not mutate atomic", "expected string", "expected numeric", "expected list",
	"expected map", "non-map elements", "no corresponding type", "type mismatch: unexpected type name",
}

// unseen are the cases with such an error that values explain.
var unseen = map[string]string{
	"apply/value-duration":  "the value of a call",
	"apply/value-timestamp": "the value of a call",
}

// Over the whole corpus: no mutation that a warning is about ever succeeds, and
// what is visible in the expression of a failing one is found.
func TestWarningsOfCases(t *testing.T) {
	hammer.Alone(t)
	found := 0
	for _, c := range cases.All(t) {
		t.Run(c.Name, func(t *testing.T) {
			types := subject.Builtin
			if len(c.CRDs) > 0 {
				crds, err := openapi.CRDs(c.CRDs...)
				if err != nil {
					t.Fatal(err)
				}
				types = openapi.New(crds, openapi.Builtin())
			}
			policies, err := subject.Policies(c.Policies, types)
			if err != nil {
				t.Fatal(err)
			}
			e, err := subject.Traced(&c)
			if err != nil {
				t.Fatal(err)
			}
			d := e.Admit(t.Context(), subject.Request(&c.Request))
			for _, p := range policies {
				warnings := policy.Warnings(p, types)
				for _, s := range d.Steps {
					if s.Policy != p.Name() || s.Type != "ApplyConfiguration" || s.Before == nil {
						continue
					}
					var about []string
					for _, w := range warnings {
						if w.Field == fmt.Sprintf("spec.mutations[%d].applyConfiguration.expression", s.Mutation) &&
							(w.Kind.Empty() || w.Kind == s.Before.GroupVersionKind()) {
							about = append(about, w.Message)
						}
					}
					switch {
					case s.Outcome != engine.Failed && len(about) > 0:
						t.Errorf("the mutation succeeds, and is warned of: %v", about)
					case s.Outcome == engine.Failed && len(about) > 0:
						found++
					case s.Outcome == engine.Failed && unseen[c.Name] == "" && slices.ContainsFunc(static, func(text string) bool {
						return strings.Contains(s.Err.Error(), text)
					}):
						t.Errorf("there is no warning of: %v", s.Err)
					}
				}
			}
		})
	}
	if found < 40 {
		t.Errorf("%d failing mutations are warned of, want 40 at least", found)
	}
}

// A warning for each of these cases, word for word.
func TestWarningTexts(t *testing.T) {
	want := map[string]string{
		"apply/unknown-field":         `1:8: v1 ConfigMap has no field nosuch; leave it out`,
		"apply/atomic-tolerations":    `1:89: spec.template.spec.tolerations of apps/v1 Deployment is atomic, and an ApplyConfiguration cannot set it; use a JSONPatch`,
		"apply/atomic-struct-element": `1:151: spec.template.spec.imagePullSecrets[] of apps/v1 Deployment is atomic, and an ApplyConfiguration cannot set it; use a JSONPatch`,
		"apply/merge-wrong-type":      `1:26: spec.size of example.com/v1 Widget must be a number, not a string`,
		"cel/type-name-item":          `1:26: the value of spec.containers is of type Object.spec.containers.item; name it Object.spec.containers, after the fields that lead to it`,
	}
	got := map[string]string{}
	for _, c := range cases.All(t) {
		if want[c.Name] == "" {
			continue
		}
		types := subject.Builtin
		if len(c.CRDs) > 0 {
			crds, err := openapi.CRDs(c.CRDs...)
			if err != nil {
				t.Fatal(err)
			}
			types = openapi.New(crds, openapi.Builtin())
		}
		policies, err := subject.Policies(c.Policies, types)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range policy.Warnings(policies[0], types) {
			got[c.Name] += fmt.Sprintf("%d:%d: %s", w.Line, w.Column, w.Message)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
