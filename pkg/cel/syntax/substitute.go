package syntax

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
)

// Occurrence is a place where an expression reads a variable.
type Occurrence struct {
	// Path are the literal names of the fields that are selected from the variable: data, team
	// for params.data["team"].size().
	Path []string
	// from and to are the position of the variable's name, in code points.
	from, to int
}

// Occurrences returns where an expression reads a variable, in the order of the text. It does
// not check whether the variable exists.
func Occurrences(expression, variable string) ([]Occurrence, error) {
	parsed, err := parseWritten(expression)
	if err != nil {
		return nil, err
	}
	f := &reading{variable: variable, text: []rune(expression), info: parsed.SourceInfo()}
	f.visit(parsed.Expr(), nil)
	if f.err != nil {
		return nil, NewError(expression, f.err.Error())
	}
	slices.SortFunc(f.reads, func(a, b Occurrence) int { return cmp.Compare(a.from, b.from) })
	return f.reads, nil
}

// Substitute returns an expression in which by replaces each use of a variable. Everything else
// stays as written, including comments. by must be an expression that needs no parentheses,
// such as a call or a selection, without operators at its top level. It is an error if a macro
// of the expression binds a variable that by reads.
func Substitute(expression, variable, by string) (string, error) {
	reads, err := Occurrences(expression, variable)
	if err != nil || len(reads) == 0 {
		return expression, err
	}
	free, err := identifiers(by)
	if err != nil {
		return "", err
	}
	parsed, err := parseWritten(expression)
	if err != nil {
		return "", err
	}
	if name := definedAmong(parsed.Expr(), free); name != "" {
		return "", NewError(expression, fmt.Sprintf("a macro has a variable %s, which would hide the one that stands for %s; rename it", name, variable))
	}
	text := []rune(expression)
	var out strings.Builder
	at := 0
	for _, r := range reads {
		out.WriteString(string(text[at:r.from]))
		out.WriteString(by)
		at = r.to
	}
	out.WriteString(string(text[at:]))
	return out.String(), nil
}

// reading is one call of Occurrences.
type reading struct {
	variable string
	text     []rune
	info     *ast.SourceInfo
	reads    []Occurrence
	err      error
}

// visit finds the reads in e. bound are the variables that enclosing macros bind.
func (f *reading) visit(e ast.Expr, bound []string) {
	if root, path, ok := chain(e); ok {
		f.add(root, path, bound)
		return
	}
	eachChild(e, bound, f.visit)
}

func (f *reading) add(root ast.Expr, path, bound []string) {
	name, global := strings.CutPrefix(root.AsIdent(), ".")
	if name != f.variable || !global && slices.Contains(bound, name) {
		return
	}
	where, ok := f.info.GetOffsetRange(root.ID())
	from := int(where.Start)
	to := from + len([]rune(name))
	if !ok || global || to > len(f.text) || string(f.text[from:to]) != name {
		f.err = cmp.Or(f.err, fmt.Errorf("%s is read as %s, which cannot be replaced", f.variable, root.AsIdent()))
		return
	}
	f.reads = append(f.reads, Occurrence{path, from, to})
}

// identifiers returns the variables that an expression reads.
func identifiers(expression string) (out []string, err error) {
	parsed, err := parseWritten(expression)
	if err != nil {
		return nil, err
	}
	ast.PostOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind {
			out = append(out, e.AsIdent())
		}
	}))
	return out, nil
}

// definedAmong returns a variable among names that a macro in e binds, or "".
func definedAmong(e ast.Expr, names []string) (found string) {
	var visit func(ast.Expr, []string)
	visit = func(e ast.Expr, _ []string) {
		if e.Kind() == ast.CallKind {
			c := e.AsCall()
			defines, _ := scopesOf(c, nil)
			for _, a := range c.Args()[:defines] {
				if slices.Contains(names, a.AsIdent()) {
					found = a.AsIdent()
				}
			}
		}
		eachChild(e, nil, visit)
	}
	visit(e, nil)
	return found
}
