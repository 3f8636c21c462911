package report

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/explain"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Detail says how much a Summary contains about each step.
type Detail uint8

const (
	// Brief has a line for each step, except those of later rounds that changed nothing.
	Brief Detail = iota
	// Values has below it a line for each expression with its result and the first values
	// that it read.
	Values
	// Everything has all steps, and of each expression the cost and a line for each value.
	Everything
)

// Summary describes what happened to one object: a line with the outcome, and the steps. The
// values that expressions read are known only if the policies are observed.
func Summary(name string, d *engine.Decision, keys func(*unstructured.Unstructured) Keys, detail Detail) string {
	var lines []string
	var met, changed actors
	for i := range d.Steps {
		s := &d.Steps[i]
		stage := d.Stage(s.Stage).Stage
		met.add(stage, s.Policy)
		if s.Outcome == engine.Changed {
			changed.add(stage, s.Policy)
		}
		if line := step(s, stage.Round, keys, detail); line != "" {
			lines = append(lines, "  "+line+"\n")
			if detail == Everything || s.Outcome != engine.Skipped {
				lines = append(lines, traceText(s.ConditionTrace, detail), traceText(s.Trace, detail))
			}
		}
	}
	beside := 0
	for i := range d.Stages {
		for j := range d.Stages[i].Shadows {
			shadow := &d.Stages[i].Shadows[j]
			beside++
			lines = append(lines, shadowLines(shadow, d.Stages[i].Stage.Round, keys, detail)...)
		}
	}
	outcome := "no policy matched"
	switch {
	case d.Status != nil:
		outcome = "denied"
	case d.Changed:
		outcome = "changed by " + changed.String()
	case len(met.stages) > 0:
		outcome = "unchanged; " + met.String() + " matched"
	case beside > 0:
		outcome = "unchanged; no policy that is enforced matched"
	}
	for _, s := range d.Asked() {
		s.Time = 0 // so that the same input has the same summary
		lines = append(lines, "  provider "+Line(s.String())+"\n")
	}
	return Printable(Line(name) + ": " + outcome + "\n" + strings.Join(lines, ""))
}

// shadowLines describe what a policy that is not enforced would have done.
func shadowLines(s *engine.Shadow, round string, keys func(*unstructured.Unstructured) Keys, detail Detail) (lines []string) {
	for i := range s.Steps {
		lines = append(lines, "  "+s.Mode.String()+": "+step(&s.Steps[i], round, keys, detail)+"\n",
			traceText(s.Steps[i].ConditionTrace, detail), traceText(s.Steps[i].Trace, detail))
	}
	if s.Status != nil {
		who := []string{s.Policy}
		if s.Binding != "" {
			who = append(who, s.Binding)
		}
		lines = append(lines, "  "+s.Mode.String()+": "+Line(strings.Join(who, " › ")+" would refuse this: "+s.Status.Message)+"\n")
	}
	return lines
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
		parts[i] = words.Count(len(a.names[i]), s.Member, s.Name)
	}
	return strings.Join(parts, " and ")
}

// step describes one step. It returns "" for a step of a later round that changed nothing.
func step(s *engine.Step, round string, keys func(*unstructured.Unstructured) Keys, detail Detail) string {
	if detail < Everything && s.Round > 1 && (s.Outcome == engine.Unchanged || s.Outcome == engine.Skipped) {
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
			return text + ": " + strings.Join(fieldsOf(s.Paths()), ", ")
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
		text += ": skipped: " + s.Reason
		if unmet := explain.Unmet(s); unmet != "" && detail < Everything {
			text += ": " + Line(unmet)
		}
		return text
	}
	if s.Ignored {
		return text + ": error, ignored (failurePolicy): " + cause(s.Err.Error())
	}
	return text + ": error: " + cause(s.Err.Error())
}

// fieldsOf returns JSON pointers as people read fields.
func fieldsOf(pointers []string) []string {
	out := make([]string, len(pointers))
	for i, p := range pointers {
		out[i] = Line(tree.Field(p))
	}
	return out
}

// The text around a failed expression in errors of an API server.
const (
	beforeExpression = "expression '"
	behindExpression = "' resulted in error: "
	// mostOfExpression is how many characters of an expression a message shows.
	mostOfExpression = 60
)

// cause returns the text of a step's error on one line, without the expression, since the
// step says which one it is.
func cause(text string) string {
	if rest, ok := strings.CutPrefix(text, beforeExpression); ok {
		if _, why, ok := strings.Cut(rest, behindExpression); ok {
			text = why
		}
	}
	return Line(text)
}

// Excerpts returns a message of an API server with each expression that failed on one line
// and cut.
func Excerpts(text string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, beforeExpression)
		expression, behind, found := strings.Cut(rest, behindExpression)
		if !ok || !found {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(before + beforeExpression + words.Cut(strings.Join(strings.Fields(expression), " "), mostOfExpression) + behindExpression)
		text = behind
	}
}

// traceText returns the lines of what a step evaluated.
func traceText(t *policy.Trace, detail Detail) string {
	if t == nil || detail == Brief {
		return ""
	}
	var b strings.Builder
	line := func(indent, text string) { b.WriteString(indent + Line(text) + "\n") }
	for i := range t.Evaluations {
		e := &t.Evaluations[i]
		if detail == Values {
			text := e.Name + " = " + explain.Short(e.Result)
			if reads := explain.OneLine(e); reads != "" {
				text += "; " + reads
			}
			line("    ", text)
			continue
		}
		line("    ", fmt.Sprintf("%s = %s (cost %d)", e.Name, e.Result, e.Cost))
		for i := range e.Reads {
			line("      ", explain.ReadText(&e.Reads[i], cel.Excerpt.String))
		}
		if e.LeftOut > 0 {
			line("      ", fmt.Sprintf("and %d more that were not kept", e.LeftOut))
		}
	}
	if t.LeftOut > 0 {
		line("    ", fmt.Sprintf("%s not kept: there are too many", words.Count(t.LeftOut, "evaluation was", "evaluations were")))
	}
	return b.String()
}
