package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/subject"
)

// Every case of the corpus has the result, the rounds and, where it lists them,
// the steps that it wants.
func TestCases(t *testing.T) {
	for _, c := range cases.All(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if reason := c.Skip["engine"]; reason != "" {
				t.Skip(reason)
			}
			e, err := subject.New(&c)
			if err != nil {
				t.Fatal(err)
			}
			req := subject.Request(&c.Request)
			given := deepCopy(req.Object)
			d := e.Admit(t.Context(), req)
			if diff := c.Diff(subject.Outcome(d)); diff != "" {
				t.Errorf("%s\n%s\nsteps:\n%s", c.Story, diff, formatSteps(d))
			}
			if c.WantSteps != "" {
				if diff := cmp.Diff(c.WantSteps, formatSteps(d)); diff != "" {
					t.Errorf("steps (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(given, req.Object); diff != "" {
				t.Errorf("the request's object was modified:\n%s", diff)
			}
		})
	}
}

func deepCopy(u *unstructured.Unstructured) *unstructured.Unstructured {
	if u == nil {
		return nil
	}
	return u.DeepCopy()
}

// formatSteps writes the record of what happened, a line for each step, in
// columns that do not depend on other lines.
func formatSteps(d *engine.Decision) string {
	var b strings.Builder
	for _, s := range d.Steps {
		fmt.Fprintf(&b, "%s %d  %s", d.Stage(s.Stage).Stage.Round, s.Round, s.Policy)
		if s.Binding != "" {
			fmt.Fprintf(&b, "  binding %s", s.Binding)
		}
		if s.Param != "" {
			fmt.Fprintf(&b, "  param %s", s.Param)
		}
		if s.Mutation >= 0 {
			fmt.Fprintf(&b, "  mutation %d", s.Mutation)
		}
		fmt.Fprintf(&b, "  %s", s.Outcome)
		if s.Ignored {
			b.WriteString(" (ignored)")
		}
		if s.Reason != "" {
			fmt.Fprintf(&b, "  %s", s.Reason)
		}
		if s.Err != nil {
			fmt.Fprintf(&b, "  %s", s.Err)
		}
		if paths := s.Paths(); len(paths) > 0 {
			fmt.Fprintf(&b, "  %s", strings.Join(paths, " "))
		}
		b.WriteByte('\n')
	}
	return strings.TrimSpace(b.String())
}
