package suite

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/report"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
)

// judge holds a result against an expectation.
type judge struct {
	*expect
	denied  *denialText // nil: admitted
	matches *regexp.Regexp
	ops     []tree.Op
}

// newJudge returns an error that begins with the field at fault.
func newJudge(e *expect) (*judge, error) {
	j := &judge{expect: e}
	switch d := e.Denied.(type) {
	case bool:
		j.denied = &denialText{}
	case denialText:
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

// wrong is how a result differs from what was expected.
type wrong struct {
	message string
	changes []report.Change // from the expectation to the result
}

// of returns what is wrong with a result, nil if nothing is.
func (j *judge) of(r *mapd.Result, want map[string]any) *wrong {
	switch {
	case j.denied != nil && !r.Denied():
		return &wrong{"it is admitted, and should be denied", asReport(r.Diff())}
	case j.denied != nil:
		return j.refusal(r)
	case r.Denied():
		return &wrong{message: "it is denied: " + r.Refusal()}
	case j.Unchanged && r.Changed():
		return &wrong{"it is changed, and should not be", asReport(r.Diff())}
	case j.Unchanged:
		return nil
	case j.Fields != nil:
		return j.fields(r)
	case j.Patch != nil:
		v, err := tree.Apply(r.Request.Object(), j.ops)
		if err != nil {
			return &wrong{message: "the expected patch does not fit the object: " + err.Error()}
		}
		obj, ok := v.(map[string]any)
		if !ok {
			return &wrong{message: "the expected patch makes no object"}
		}
		want = obj
	}
	if r.Object() == nil {
		return &wrong{message: "the request has no object"}
	}
	if changes := r.Against(want); len(changes) > 0 {
		return &wrong{"it is not as expected", asReport(changes)}
	}
	return nil
}

func (j *judge) refusal(r *mapd.Result) *wrong {
	got := r.Decision.Status.Message
	switch d := j.denied; {
	case d.Message != "" && got != d.Message:
		return &wrong{message: fmt.Sprintf("it is denied with the message\n  %s\nand should be with\n  %s", got, d.Message)}
	case !strings.Contains(got, d.Contains):
		return &wrong{message: fmt.Sprintf("it is denied with the message\n  %s\nwhich should contain\n  %s", got, d.Contains)}
	case j.matches != nil && !j.matches.MatchString(got):
		return &wrong{message: fmt.Sprintf("it is denied with the message\n  %s\nwhich should match\n  %s", got, d.Matches)}
	}
	return nil
}

func (j *judge) fields(r *mapd.Result) *wrong {
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
	return &wrong{"fields are not as expected", changes}
}

func asReport(changes []mapd.Change) []report.Change {
	out := make([]report.Change, len(changes))
	for i, c := range changes {
		out[i] = report.Change(c)
	}
	return out
}
