package report

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/engine"
)

// Summary is what happened to one object: a line with the verdict, and one for
// every step worth telling.
func Summary(name string, d *engine.Decision, keys func(*unstructured.Unstructured) Keys) string {
	var lines []string
	met := map[string]bool{}
	changed := map[string]bool{}
	for _, s := range d.Steps {
		met[s.Policy] = true
		if s.Outcome == engine.Changed {
			changed[s.Policy] = true
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
		verdict = "changed by " + count(len(changed), "policy", "policies")
	case len(met) > 0:
		verdict = "unchanged; " + count(len(met), "policy", "policies") + " matched"
	}
	return name + ": " + verdict + "\n" + strings.Join(lines, "")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// step tells what one step did; nothing about a second round that changed
// nothing.
func step(s engine.Step, keys func(*unstructured.Unstructured) Keys) string {
	if s.Round > 1 && (s.Outcome == engine.Unchanged || s.Outcome == engine.Skipped) {
		return ""
	}
	where := []string{s.Policy}
	if s.Binding != "" {
		where = append(where, s.Binding)
	}
	if s.Param != "" {
		where = append(where, s.Param)
	}
	text := strings.Join(where, " › ")
	if s.Mutation >= 0 {
		text += fmt.Sprintf(" › mutations[%d] %s", s.Mutation, s.Type)
	}
	if s.Round > 1 {
		text += fmt.Sprintf(" (round %d)", s.Round)
	}
	switch s.Outcome {
	case engine.Changed:
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
