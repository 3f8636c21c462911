package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/cel"
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

// The cases about minors that are newer have their results with the language of that minor.
func TestNewerCases(t *testing.T) {
	newer := 0
	for minor := cases.Current + 1; slices.Contains(cel.Minors(), fmt.Sprintf("1.%d", minor)); minor++ {
		env, err := cel.NewEnv(cel.Options{Version: fmt.Sprintf("1.%d", minor)})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases.Of(t, minor) {
			if c.Oldest <= cases.Current {
				continue // one of TestCases; test/next knows of differences
			}
			newer++
			t.Run(c.Name, func(t *testing.T) {
				if reason := c.Skip["engine"]; reason != "" {
					t.Skip(reason)
				}
				d, err := subject.RunAs(t.Context(), &c, env)
				if err != nil {
					t.Fatal(err)
				}
				if diff := c.Diff(subject.Outcome(d)); diff != "" {
					t.Errorf("%s\n%s\nsteps:\n%s", c.Story, diff, subject.Steps(d))
				}
			})
		}
	}
	if newer == 0 {
		t.Error("there are none")
	}
}

func deepCopy(u *unstructured.Unstructured) *unstructured.Unstructured {
	if u == nil {
		return nil
	}
	return u.DeepCopy()
}
