package report

import (
	"fmt"
	"slices"
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
		stage := d.Stage(s.Stage).Stage
		met.add(stage, s.Policy)
		if s.Outcome == engine.Changed {
			changed.add(stage, s.Policy)
		}
		if line := step(s, stage.Round, keys); line != "" {
			lines = append(lines, "  "+line+"\n")
		}
	}
	verdict := "no policy matched"
	switch {
	case d.Status != nil:
		verdict = "denied"
	case d.Changed:
		verdict = "changed by " + changed.String()
	case len(met.stages) > 0:
		verdict = "unchanged; " + met.String() + " matched"
	}
	for _, s := range d.Asked() {
		s.Time = 0 // the same input has the same summary
		lines = append(lines, "  provider "+Line(s.String())+"\n")
	}
	return Line(name) + ": " + verdict + "\n" + strings.Join(lines, "")
}

// actors has the names of stages' members, by stage.
type actors struct {
	stages []*engine.Stage
	names  []map[string]bool
}

func (a *actors) add(s *engine.Stage, name string) {
	i := slices.Index(a.stages, s)
	if i < 0 {
		i = len(a.stages)
		a.stages, a.names = append(a.stages, s), append(a.names, map[string]bool{})
	}
	a.names[i][name] = true
}

func (a *actors) String() string {
	parts := make([]string, len(a.stages))
	for i, s := range a.stages {
		parts[i] = count(len(a.names[i]), s.Member, s.Name)
	}
	return strings.Join(parts, " and ")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// step describes one step, or returns "" for one of a later round that changed
// nothing.
func step(s engine.Step, round string, keys func(*unstructured.Unstructured) Keys) string {
	if s.Round > 1 && (s.Outcome == engine.Unchanged || s.Outcome == engine.Skipped) {
		return ""
	}
	where := []string{s.Policy}
	if s.Binding != "" {
		where = append(where, s.Binding)
		if s.Param != "" {
			where = append(where, s.Param)
		}
	}
	text := Line(strings.Join(where, " › "))
	if s.Type != "" {
		text += fmt.Sprintf(" › mutations[%d] %s", s.Mutation, s.Type)
	}
	if s.Round > 1 {
		text += fmt.Sprintf(" (%s %d)", round, s.Round)
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
