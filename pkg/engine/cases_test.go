package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/subject"
)

// Every case of the corpus has the result, the rounds and, where it lists them,
// the steps that it wants.
func TestCases(t *testing.T) {
	for i, c := range cases.All(t) {
		if testing.Short() && i%3 > 0 {
			continue // this is with the race detector, and without it all of them run
		}
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
				t.Errorf("%s\n%s\nsteps:\n%s", c.Story, diff, subject.Steps(d))
			}
			if c.WantSteps != "" {
				if diff := cmp.Diff(c.WantSteps, subject.Steps(d)); diff != "" {
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
