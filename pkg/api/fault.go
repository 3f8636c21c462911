package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Fault is one error in an object as it is written. Its text is that of the server; all
// information in the text is in the fields as well.
type Fault struct {
	Phase Phase
	// Path is the wrong field as field.Path prints it. It is empty if the error is about the
	// object as a whole, or if the field is not known.
	Path string
	// Part and Index say which expression of a policy the fault is in: for spec.variables[2],
	// Part is Variables and Index is 2.
	Part  Part
	Index int

	// Expression is the expression that does not compile, and Issues are the errors in it with
	// their positions. Undefined are the variables that it reads and that are not defined,
	// perhaps because they do not compile themselves.
	Expression string
	Issues     []Issue
	Undefined  []string

	// Form is the error of validation; nil unless Phase is Validating.
	Form *field.Error
	// Undeclared says that the field at Path is unknown or occurs twice, so that the error is
	// at its name and not at its value.
	Undeclared bool

	// Err is the cause.
	Err error
}

// Phase is the step that finds a Fault.
type Phase int

// The phases, in their order.
const (
	Decoding Phase = iota
	Validating
	Compiling
)

// Part is a list in the spec of a policy whose elements have expressions.
type Part string

// The parts with expressions.
const (
	MatchConditions Part = "matchConditions"
	Variables       Part = "variables"
	Mutations       Part = "mutations"
)

// Issue is one thing that is wrong with an expression.
type Issue struct {
	// Line and Column are 1-based; columns count code points. A fault of the
	// expression as a whole is at 1, 1.
	Line, Column int
	Message      string
}

// Render returns the issue, below it the line of text that it is in, and a caret under the
// column.
func (i Issue) Render(text string) string {
	message := fmt.Sprintf("%d:%d: %s", i.Line, i.Column, i.Message)
	lines := strings.Split(text, "\n")
	if i.Line > len(lines) {
		return message
	}
	line := lines[i.Line-1]
	var pad strings.Builder
	column := 1
	for _, r := range line {
		if column == i.Column {
			break
		}
		// A tab moves the caret as far as it moves the text.
		if r != '\t' {
			r = ' '
		}
		pad.WriteRune(r)
		column++
	}
	return message + "\n | " + line + "\n | " + pad.String() + "^"
}

// A LocatedError is an error with positions in an expression.
type LocatedError interface {
	error
	// Locate returns the issues with their positions, and the variables that the expression
	// reads and that are not defined.
	Locate() (issues []Issue, undefined []string)
}

// NewFault returns the Fault of an expression that does not compile because of
// err.
func NewFault(phase Phase, path *field.Path, expression string, err error) *Fault {
	f := &Fault{Phase: phase, Path: path.String(), Expression: expression, Err: err}
	var located LocatedError
	if errors.As(err, &located) {
		f.Issues, f.Undefined = located.Locate()
	}
	return f
}

// Error returns the text that a server would return.
func (f *Fault) Error() string {
	switch {
	case f.Form != nil:
		return f.Form.Error()
	case f.Phase == Compiling && f.Path != "":
		return f.Path + ": " + f.Err.Error()
	}
	return f.Err.Error()
}

func (f *Fault) Unwrap() error { return f.Err }

// Faults are all errors in an object, in the order of its fields.
type Faults []*Fault

// FormFault returns the Fault for a validation error.
func FormFault(e *field.Error) *Fault {
	return &Fault{Phase: Validating, Path: e.Field, Form: e, Err: e}
}

// FormFaults returns a FormFault for each error.
func FormFaults(errs ...*field.Error) Faults {
	var out Faults
	for _, e := range errs {
		out = append(out, FormFault(e))
	}
	return out
}

// Of sets Part and Index of all faults and returns them.
func (fs Faults) Of(part Part, index int) Faults {
	for _, f := range fs {
		f.Part, f.Index = part, index
	}
	return fs
}

// Error returns one line for each fault.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults one by one.
func (fs Faults) Unwrap() []error {
	out := make([]error, len(fs))
	for i, f := range fs {
		out[i] = f
	}
	return out
}

// ToAggregate returns the faults as one error on one line, nil if there are none.
func (fs Faults) ToAggregate() error { return utilerrors.NewAggregate(fs.Unwrap()) }

// Form returns the validation errors among the faults.
func (fs Faults) Form() field.ErrorList {
	var out field.ErrorList
	for _, f := range fs {
		if f.Form != nil {
			out = append(out, f.Form)
		}
	}
	return out
}

// FaultsOf returns the faults in an error of decoding, validation or compilation. Another error
// becomes one Fault. A decoding error that names several fields becomes one Fault for each.
func FaultsOf(err error) Faults {
	if err == nil {
		return nil
	}
	var all Faults
	if errors.As(err, &all) {
		return all
	}
	var several utilerrors.Aggregate
	if errors.As(err, &several) {
		for _, e := range several.Errors() {
			all = append(all, FaultsOf(e)...)
		}
		return all
	}
	var one *Fault
	if errors.As(err, &one) {
		return Faults{one}
	}
	if strict := undeclared(err); len(strict) > 0 {
		for _, e := range strict {
			f := &Fault{Err: runtime.NewStrictDecodingError([]error{e})}
			f.Path, f.Undeclared = fieldOf(e)
			all = append(all, f)
		}
		return all
	}
	f := &Fault{Err: err}
	var typed *json.UnmarshalTypeError
	var form *field.Error
	switch {
	case errors.As(err, &typed):
		f.Path = typed.Field // without indexes
	case errors.As(err, &form):
		f.Path = form.Field
	}
	return Faults{f}
}

// undeclared returns the errors about fields that strict decoding rejects.
func undeclared(err error) []error {
	for ; err != nil; err = errors.Unwrap(err) {
		if strict, ok := runtime.AsStrictDecodingError(err); ok {
			return strict.Errors()
		}
	}
	return nil
}

// fieldOf returns the field that is unknown or occurs twice.
func fieldOf(err error) (path string, ok bool) {
	var f interface{ FieldPath() string }
	if errors.As(err, &f) {
		return f.FieldPath(), true
	}
	return "", false
}

// UnknownFieldError is the error for an unknown field, with the text of the decoder.
type UnknownFieldError string

func (e UnknownFieldError) Error() string { return fmt.Sprintf("unknown field %q", string(e)) }

// FieldPath returns the path of the field.
func (e UnknownFieldError) FieldPath() string { return string(e) }

// UnknownFields returns the error of strict decoding for unknown fields.
func UnknownFields(paths []string) error {
	errs := make([]error, len(paths))
	for i, path := range paths {
		errs[i] = UnknownFieldError(path)
	}
	return runtime.NewStrictDecodingError(errs)
}
