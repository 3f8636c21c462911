package report

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/engine"
)

// Summary says what happened to one object: a line with the verdict, and one
// for every step worth a line.
func Summary(name string, d *engine.Decision, keys func(*unstructured.Unstructured) Keys) string {
	var lines []string
	var met, changed actors
	for _, s := range d.Steps {
		met.add(s)
		if s.Outcome == engine.Changed {
			changed.add(s)
		}
		if line := step(s, keys); line != "" {
			lines = append(lines, "  "+line+"\n")
		}
	}
	verdict := "no policy matched"
	switch {
	case d.Status != nil:
		verdict = "denied"
	case d.Changed:
		verdict = "changed by " + changed.String()
	case len(met.policies)+len(met.mutators) > 0:
		verdict = "unchanged; " + met.String() + " matched"
	}
	return Line(name) + ": " + verdict + "\n" + strings.Join(lines, "")
}

// actors has the names of policies and of Gatekeeper's mutators.
type actors struct{ policies, mutators map[string]bool }

func (a *actors) add(s engine.Step) {
	set := &a.policies
	if s.Pass > 0 {
		set = &a.mutators
	}
	if *set == nil {
		*set = map[string]bool{}
	}
	(*set)[s.Policy] = true
}

func (a *actors) String() string {
	policies, mutators := count(len(a.policies), "policy", "policies"), count(len(a.mutators), "mutator", "mutators")
	switch {
	case len(a.mutators) == 0:
		return policies
	case len(a.policies) == 0:
		return mutators
	}
	return policies + " and " + mutators
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// step describes one step, or returns "" for a second round or pass that
// changed nothing.
func step(s engine.Step, keys func(*unstructured.Unstructured) Keys) string {
	if (s.Round > 1 || s.Pass > 1) && (s.Outcome == engine.Unchanged || s.Outcome == engine.Skipped) {
		return ""
	}
	where := []string{s.Policy}
	if s.Binding != "" && s.Pass == 0 {
		where = append(where, s.Binding)
	}
	if s.Param != "" && s.Pass == 0 {
		where = append(where, s.Param)
	}
	text := Line(strings.Join(where, " › "))
	if s.Mutation >= 0 && s.Pass == 0 {
		text += fmt.Sprintf(" › mutations[%d] %s", s.Mutation, s.Type)
	}
	if s.Round > 1 {
		text += fmt.Sprintf(" (round %d)", s.Round)
	}
	if s.Pass > 1 {
		text += fmt.Sprintf(" (pass %d)", s.Pass)
	}
	switch s.Outcome {
	case engine.Changed:
		if s.Before == nil || s.After == nil {
			return text + ": " + strings.Join(s.Paths(), ", ")
		}
		var fields []string
		var k Keys
		if keys != nil {
			k = keys(s.After)
		}
		for _, c := range Diff(s.Before.Object, s.After.Object, k) {
			fields = append(fields, c.Path)
		}
		return text + ": " + strings.Join(fields, ", ")
	case engine.Unchanged:
		return text + ": no change"
	case engine.Skipped:
		return text + ": skipped: " + s.Reason
	}
	if s.Ignored {
		return text + ": error, ignored (failurePolicy): " + s.Err.Error()
	}
	return text + ": error: " + s.Err.Error()
}
