package cases

import (
	"regexp"
	"strings"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// APIVersion and Kind are those of a suite.
const (
	APIVersion = "test.mapd.dev/v1alpha1"
	Kind       = "Suite"
)

// Field is a field of a suite or a case, which people read in the order of a list.
type Field struct {
	Name  string
	Value any
}

func (f Field) text() []byte { return manifest.Encode(map[string]any{f.Name: f.Value}) }

// Write returns the text of a suite: a comment, its fields and its cases.
func Write(comment string, suite []Field, cases [][]Field) []byte {
	text := []byte(comment)
	for _, f := range append([]Field{{"apiVersion", APIVersion}, {"kind", Kind}}, suite...) {
		text = append(text, f.text()...)
	}
	text = append(text, "cases:\n"...)
	for _, c := range cases {
		for i, f := range c {
			for j, line := range strings.SplitAfter(strings.TrimSuffix(string(f.text()), "\n"), "\n") {
				start := "  "
				if i+j == 0 {
					start = "- "
				}
				text = append(text, start+line...)
			}
			text = append(text, '\n')
		}
	}
	return text
}

// From returns an expectation for a result, in the same form as e if that is possible.
func From(r *mapd.Result, e *Expect) map[string]any {
	switch {
	case r.Denied():
		message := r.Decision.Status.Message
		if uid := string(r.Request.Admission.UID); uid != "" && strings.Contains(message, uid) {
			// Gatekeeper's messages contain the UID of the request, which differs next time.
			return map[string]any{"denied": map[string]any{"matches": strings.ReplaceAll(regexp.QuoteMeta(message), regexp.QuoteMeta(uid), ".*")}}
		}
		return map[string]any{"denied": map[string]any{"message": message}}
	case !r.Changed():
		return map[string]any{"unchanged": true}
	case e != nil && e.Object != nil:
		return map[string]any{"object": r.Object()}
	case e != nil && e.Patch != nil:
		ops := []any{}
		for _, op := range r.Patch() {
			m := map[string]any{"op": op.Op, "path": op.Path}
			if op.Op != "remove" {
				m["value"] = op.Value
			}
			ops = append(ops, m)
		}
		return map[string]any{"patch": ops}
	}
	fields := map[string]any{}
	for _, c := range r.Diff() {
		if c.Moved {
			return map[string]any{"object": r.Object()}
		}
		fields[c.Path] = c.After
	}
	probe := &Judge{Expect: &Expect{Fields: map[string]Value{}}}
	for path, v := range fields {
		probe.Fields[path] = v
	}
	if probe.Of(r, nil) != nil {
		return map[string]any{"object": r.Object()} // paths that do not lead there
	}
	return map[string]any{"fields": fields}
}
