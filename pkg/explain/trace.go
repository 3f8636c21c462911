package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Traced is a Step with the values that its expressions read and returned, in a form for JSON.
type Traced struct {
	// Mode is empty if the step counts, else that of its policy.
	Mode    string `json:"mode,omitempty"`
	Stage   string `json:"stage"`
	Round   int    `json:"round"`
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
	Param   string `json:"param,omitempty"`
	// Mutation is the index in spec.mutations; nil if the step is about none.
	Mutation *int   `json:"mutation,omitempty"`
	Type     string `json:"type,omitempty"`
	Outcome  string `json:"outcome"`
	Reason   string `json:"reason,omitempty"`
	// Error is why the step failed. Ignored says that a failurePolicy of Ignore hid that error.
	// Error is HiddenError if the step read a value that may be in a Secret.
	Error   string `json:"error,omitempty"`
	Ignored bool   `json:"ignored,omitempty"`
	// Changed has the JSON pointers of the fields that the step changed.
	Changed []string `json:"changed,omitempty"`
	// Cost is that of the step in CEL units, ConditionCost that of the conditions before
	// it.
	Cost          int64         `json:"cost"`
	ConditionCost int64         `json:"conditionCost,omitempty"`
	Conditions    *policy.Trace `json:"conditions,omitempty"`
	Trace         *policy.Trace `json:"trace,omitempty"`
}

// TraceOf returns the steps of a decision, followed by those of policies that are evaluated and
// not enforced.
func TraceOf(d *engine.Decision) []Traced {
	out := traced([]Traced{}, d.Steps, api.Enforce)
	for i := range d.Stages {
		for j := range d.Stages[i].Shadows {
			s := &d.Stages[i].Shadows[j]
			out = traced(out, s.Steps, s.Mode)
		}
	}
	return out
}

func traced(out []Traced, steps []engine.Step, mode api.Mode) []Traced {
	for i := range steps {
		s := &steps[i]
		t := Traced{
			Stage: s.Stage, Round: s.Round, Policy: s.Policy, Binding: s.Binding, Param: s.Param, Type: string(s.Type), Outcome: s.Outcome.String(),
			Reason: s.Reason, Ignored: s.Ignored, Changed: s.Paths(), Cost: s.Cost, ConditionCost: s.ConditionCost, Conditions: s.ConditionTrace, Trace: s.Trace,
		}
		if mode != api.Enforce {
			t.Mode = mode.String()
		}
		if s.Mutation >= 0 {
			t.Mutation = &s.Mutation
		}
		if s.Err != nil {
			t.Error = s.Err.Error()
			if hides(s.Trace) || hides(s.ConditionTrace) {
				t.Error = HiddenError
			}
		}
		out = append(out, t)
	}
	return out
}

// hides reports whether a trace has values that are not shown.
func hides(t *policy.Trace) bool {
	hidden := func(v cel.Excerpt) bool { return v.Form == cel.Hidden }
	return t != nil && slices.ContainsFunc(t.Evaluations, func(e cel.Evaluation) bool {
		return hidden(e.Result) || slices.ContainsFunc(e.Reads, func(r cel.Read) bool { return slices.ContainsFunc(r.Values, hidden) })
	})
}

// HiddenError stands for an error that may quote a Secret.
const HiddenError = "***"

const (
	// fewReads is how many reads stand on one line.
	fewReads = 4
	// shortText is how long a value on such a line is, in characters.
	shortText = 60
)

// Unmet returns, on one line, the values that the false condition of a step read; "" if no
// condition is false, or if the engine does not observe expressions.
func Unmet(s *engine.Step) string {
	if s.ConditionTrace == nil {
		return ""
	}
	for _, e := range s.ConditionTrace.Evaluations {
		if e.Result == (cel.Excerpt{Text: "false"}) {
			return OneLine(&e)
		}
	}
	return ""
}

// OneLine returns the first values that an evaluation read, cut if they are long.
func OneLine(e *cel.Evaluation) string {
	var parts []string
	for i, r := range e.Reads {
		if i == fewReads {
			parts = append(parts, fmt.Sprintf("and %d more", len(e.Reads)+e.LeftOut-i))
			break
		}
		parts = append(parts, ReadText(&r, Short))
	}
	return strings.Join(parts, ", ")
}

// Short returns a value cut to shortText characters, to be one of several on a line.
func Short(v cel.Excerpt) string {
	if r := []rune(v.Text); len(r) > shortText {
		v.Text, v.Cut = string(r[:shortText]), true
	}
	return v.String()
}

// ReadText returns the values of a Read on one line: object.spec.replicas = 3. It says how many
// values are left out of a long list.
func ReadText(r *cel.Read, text func(cel.Excerpt) string) string {
	var values []string
	for i, v := range r.Values {
		if r.LeftOut > 0 && i == len(r.Values)-1 {
			values = append(values, fmt.Sprintf("(%d more)", r.LeftOut))
		}
		values = append(values, text(v))
	}
	return r.Text + " = " + strings.Join(values, ", ")
}
