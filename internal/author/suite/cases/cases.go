// Package cases answers one question: how does a case of mapd test describe its expected result?
//
// It compares results with expectations, and writes suites that expect given results. It reads no
// files, so that the playground can use it. Start reading at Judge.
package cases

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Types of fields that are written in more than one way.
type (
	// Source is the name of a file, or an object in place.
	Source any
	// Value is any value.
	Value any
	// Denial is true, or a record with the fields of a DenialText.
	Denial any
)

// Expect is what has to come out. One field is set.
type Expect struct {
	Unchanged bool             `json:"unchanged" doc:"The object is admitted as it is."`
	Object    Source           `json:"object" doc:"The whole object, in place or the name of a file with one. Defaults of a server may be left out."`
	Objects   string           `json:"objects" doc:"A file with what becomes of the objects of the case, in their order."`
	Patch     []PatchOp        `json:"patch" doc:"A JSON patch that makes the same of the object; it may be written in another way than mapd would."`
	Fields    map[string]Value `json:"fields" doc:"Some fields of the result, by path, such as spec.containers[name=app].image or metadata.labels[example.com/team]; null for a field that is not there."`
	Denied    Denial           `json:"denied" doc:"The request is refused: true, or what its message has to be."`
}

// PatchOp is one operation of a patch.
type PatchOp struct {
	Op    string `json:"op" need:"y" doc:"add, replace or remove."`
	Path  string `json:"path" need:"y" doc:"A JSON pointer."`
	Value Value  `json:"value" doc:"The new value."`
}

// DenialText says what a denial's message has to be.
type DenialText struct {
	Message  string `json:"message" doc:"The whole message."`
	Contains string `json:"contains" doc:"A part of the message."`
	Matches  string `json:"matches" doc:"A regular expression (RE2) that matches a part of the message."`
}

// Judge compares a result with an expectation.
type Judge struct {
	*Expect
	denied  *DenialText // nil: admitted
	matches *regexp.Regexp
	ops     []tree.Op
}

// NewJudge returns an error that begins with the field at fault.
func NewJudge(e *Expect) (*Judge, error) {
	j := &Judge{Expect: e}
	switch d := e.Denied.(type) {
	case bool:
		j.denied = &DenialText{}
	case DenialText:
		j.denied = &d
	}
	if j.denied != nil && j.denied.Matches != "" {
		var err error
		if j.matches, err = regexp.Compile(j.denied.Matches); err != nil {
			return nil, fmt.Errorf("denied.matches: %w", err)
		}
	}
	for i, op := range e.Patch {
		if !slices.Contains([]string{"add", "replace", "remove"}, op.Op) {
			return nil, fmt.Errorf("patch[%d].op: %q: want add, replace or remove", i, op.Op)
		}
		if _, err := tree.ParsePointer(op.Path); err != nil {
			return nil, fmt.Errorf("patch[%d].path: %w", i, err)
		}
		j.ops = append(j.ops, tree.Op{Op: op.Op, Path: op.Path, Value: op.Value})
	}
	for _, path := range slices.Sorted(maps.Keys(e.Fields)) {
		if _, _, err := report.Lookup(nil, path); err != nil {
			return nil, fmt.Errorf("fields: %w", err)
		}
	}
	return j, nil
}

// Wrong describes how a result differs from the expectation.
type Wrong struct {
	Message string
	Changes []report.Change // from the expectation to the result
}

// Of returns the differences between a result and the expectation, nil if there are none.
func (j *Judge) Of(r *mapd.Result, want map[string]any) *Wrong {
	switch {
	case j.denied != nil && !r.Denied():
		return &Wrong{"it is admitted, and should be denied", AsReport(r.Diff())}
	case j.denied != nil:
		return j.refusal(r)
	case r.Denied():
		return &Wrong{Message: "it is denied: " + report.Excerpts(r.Refusal())}
	case j.Unchanged && r.Changed():
		return &Wrong{"it is changed, and should not be", AsReport(r.Diff())}
	case j.Unchanged:
		return nil
	case j.Fields != nil:
		return j.fields(r)
	case j.Patch != nil:
		v, err := tree.Apply(r.Request.Object(), j.ops)
		if err != nil {
			return &Wrong{Message: "the expected patch does not fit the object: " + err.Error()}
		}
		obj, ok := v.(map[string]any)
		if !ok {
			return &Wrong{Message: "the expected patch makes no object"}
		}
		want = obj
	}
	if r.Object() == nil {
		return &Wrong{Message: "the request has no object"}
	}
	if changes := r.Against(want); len(changes) > 0 {
		return &Wrong{"it is not as expected", AsReport(changes)}
	}
	return nil
}

func (j *Judge) refusal(r *mapd.Result) *Wrong {
	got := r.Decision.Status.Message
	switch d := j.denied; {
	case d.Message != "" && got != d.Message:
		return &Wrong{Message: fmt.Sprintf("it is denied with the message\n  %s\nand should be with\n  %s", got, d.Message)}
	case !strings.Contains(got, d.Contains):
		return &Wrong{Message: fmt.Sprintf("it is denied with the message\n  %s\nwhich should contain\n  %s", got, d.Contains)}
	case j.matches != nil && !j.matches.MatchString(got):
		return &Wrong{Message: fmt.Sprintf("it is denied with the message\n  %s\nwhich should match\n  %s", got, d.Matches)}
	}
	return nil
}

func (j *Judge) fields(r *mapd.Result) *Wrong {
	obj := r.Object()
	var changes []report.Change
	for _, path := range slices.Sorted(maps.Keys(j.Fields)) {
		var want any = j.Fields[path]
		got, _, _ := report.Lookup(map[string]any(obj), path) // the path was tried
		if !tree.Equal(want, got) {
			changes = append(changes, report.Change{Path: path, Before: want, After: got})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return &Wrong{"fields are not as expected", changes}
}

// AsReport returns changes as those of package report.
func AsReport(changes []mapd.Change) []report.Change {
	out := make([]report.Change, len(changes))
	for i, c := range changes {
		out[i] = report.Change(c)
	}
	return out
}
