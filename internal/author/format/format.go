// Package format answers one question: how are policies laid out in a file that people maintain?
//
// Form is the layout of policies that mapd writes itself. Source formats the expressions of other
// policies in the same way, and leaves the rest of a file unchanged, byte by byte.
package format

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// Source returns a file in which the expressions of MutatingAdmissionPolicies and
// ValidatingAdmissionPolicies, also within Lists, are formatted. If it returns errors, the file
// is unchanged. Each error is about a document that cannot be read or an expression that cannot
// be parsed.
func Source(ctx context.Context, name string, data []byte) ([]byte, []error) {
	var failed []error
	out, errs := Form.Respell(name, data, func(d *manifest.Document) map[string]string {
		texts := map[string]string{}
		collect(d.Object.Object, "", 0, func(path, text string) {
			formatted, err := syntax.Format(ctx, text)
			if err != nil {
				failed = append(failed, located(d, path, text, err))
				return
			}
			texts[path] = formatted
		})
		return texts
	})
	if failed = append(failed, errs...); len(failed) > 0 {
		return data, failed
	}
	return out, nil
}

// located returns an error at the place of the file that it is about.
func located(d *manifest.Document, path, text string, err error) error {
	line, column := 1, 1
	if ce := (*cel.CompileError)(nil); errors.As(err, &ce) && len(ce.Issues) > 0 {
		line, column = ce.Issues[0].Line, ce.Issues[0].Column
		err = errors.New(ce.Issues[0].Message)
	}
	return d.ErrorIn(path, text, line, column, &Error{fmt.Errorf("%s: %s: %w", d.Name(), path, err)})
}

// Error says that an expression cannot be formatted.
type Error struct{ err error }

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// maxLists bounds how deep Lists may be nested.
const maxLists = 8

// collect calls yield with the path and the text of each expression of an object.
func collect(object map[string]any, prefix string, depth int, yield func(path, text string)) {
	if items, ok := object["items"].([]any); ok && depth < maxLists {
		for i, item := range items {
			if item, ok := item.(map[string]any); ok {
				collect(manifest.Typed(item, object), fmt.Sprintf("%sitems[%d].", prefix, i), depth+1, yield)
			}
		}
		return
	}
	for _, field := range expressions(object) {
		list, _ := at(object, "spec", field.list).([]any)
		for i, entry := range list {
			for _, names := range field.names {
				path := fmt.Sprintf("%sspec.%s[%d]", prefix, field.list, i)
				for _, name := range names {
					path += "." + name
				}
				if text, ok := at(entry, names...).(string); ok && text != "" {
					yield(path, text)
				}
			}
		}
	}
}

// field is a list of a policy's spec, whose elements have expressions.
type field struct {
	list  string
	names [][]string
}

var (
	simple    = [][]string{{"expression"}}
	both      = []field{{"matchConditions", simple}, {"variables", simple}}
	mutating  = append(both[:2:2], field{"mutations", [][]string{{"applyConfiguration", "expression"}, {"jsonPatch", "expression"}}})
	validates = append(both[:2:2], field{"validations", [][]string{{"expression"}, {"messageExpression"}}}, field{"auditAnnotations", [][]string{{"valueExpression"}}})
)

// expressions returns the fields of an object that have expressions, nil if it is no policy. An
// item of a List may omit its kind.
func expressions(object map[string]any) []field {
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	group, _, _ := strings.Cut(version, "/")
	switch {
	case !api.IsAdmission(group):
		return nil
	case kind == api.PolicyKind:
		return mutating
	case kind == "ValidatingAdmissionPolicy":
		return validates
	}
	return nil
}

func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}
