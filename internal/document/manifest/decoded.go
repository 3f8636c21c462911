package manifest

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mapd-project/mapd/pkg/api"
)

// IssueError is one fault of an expression of a policy.
type IssueError struct {
	Fault *api.Fault
	Issue api.Issue
	name  string // of the policy
}

func (e *IssueError) Error() string {
	// The message does not repeat the expression, because it is in the file.
	return fmt.Sprintf("%s: %s: %s", e.name, e.Fault.Path, e.Issue.Message)
}

func (e *IssueError) Unwrap() error { return e.Fault }

// Excerpt returns the line of the expression with the fault, and a caret below it; it is empty if
// that line is empty.
func (e *IssueError) Excerpt() string {
	lines := strings.Split(written(e.Fault), "\n")
	if e.Issue.Line > len(lines) || strings.TrimSpace(lines[e.Issue.Line-1]) == "" {
		return ""
	}
	return caret(lines[e.Issue.Line-1], e.Issue.Column)
}

// Errors returns the faults of the document's object with their places in the file. Each issue of
// an expression has the place of its own character.
func (d *Document) Errors(faults api.Faults) []error {
	var out []error
	for _, f := range faults {
		issues := issuesOf(f)
		for _, i := range issues {
			out = append(out, d.ErrorIn(f.Path, written(f), i.Line, i.Column, &IssueError{f, i, d.Name()}))
		}
		if len(issues) == 0 {
			out = append(out, d.errorOf("", f, fmt.Errorf("%s: %w", d.Name(), f)))
		}
	}
	return out
}

// ErrorOf returns err at the field that its first fault is about. prefix is the
// path of the object in the document, with a dot behind it, or empty.
func (d *Document) ErrorOf(prefix string, err error) *PositionError {
	return d.errorOf(prefix, api.FaultsOf(err)[0], err)
}

func (d *Document) errorOf(prefix string, f *api.Fault, err error) *PositionError {
	n, err := d.mistyped(prefix, err)
	if n != nil {
		return d.errorAt(Pos{d.first + n.Line - 1, n.Column}, err)
	}
	switch {
	case f.Path == "" && f.Phase == api.Compiling:
		return d.Errorf("%w", err)
	case f.Path == "":
		return d.ErrorAt(strings.TrimSuffix(prefix, "."), err)
	case f.Undeclared:
		return d.ErrorAtKey(prefix+f.Path, err)
	}
	return d.ErrorAt(prefix+f.Path, err)
}

// issuesOf returns the issues of a fault if its value is a string that contains an expression,
// otherwise nil.
func issuesOf(f *api.Fault) []api.Issue {
	switch {
	case f.Phase == api.Compiling:
		return f.Issues
	case f.Part == "" || f.Form == nil || f.Form.Type != field.ErrorTypeInvalid:
		return nil
	case len(f.Issues) > 0:
		return f.Issues
	}
	return []api.Issue{{Line: 1, Column: 1, Message: f.Form.Detail}}
}

// written returns the string to which a fault's issues refer.
func written(f *api.Fault) string {
	if f.Expression == "" && f.Form != nil {
		value, _ := f.Form.BadValue.(string)
		return value
	}
	return f.Expression
}
