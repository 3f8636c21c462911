package syntax

import (
	"errors"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"

	"github.com/mapd-project/mapd/pkg/api"
)

// Relocation rewrites an expression about an object to one about another object that contains
// the former: an expression about a Pod becomes one about the template of a Deployment.
type Relocation struct {
	// Path is the path of the part in the new object: "spec", "template".
	Path []string
	// Old says that oldObject may have the part. Without it oldObject is null.
	Old bool
	// Field returns how to rewrite a field of the variable object, oldObject or request, or of
	// a type "Object", given the literal part of its path. path is empty where the variable is
	// used as a whole. An error says why the expression cannot be relocated.
	Field func(variable string, path []string) (Moved, error)
	// Pointer is called with the JSON pointer of a JSONPatch. If whole is false, a computed
	// part follows. It is not called for a pointer that begins with a computed part.
	Pointer func(pointer string, whole bool) error
}

// Moved says how to rewrite a field. The zero value means the same field of the part.
type Moved struct {
	// Stays says that the new expression reads the field of the new object itself.
	Stays bool
	// Value, if it is not nil, is the string with which to replace the field, which always has
	// that value.
	Value *string
}

// Relocate returns the rewritten expression. expression must be valid. If configures is set,
// the value of the expression is an Object, and that of the new one is an Object for the new
// object. The result is printed from the new syntax tree, so comments and line breaks are lost.
// An error is a *Error with the positions of everything that cannot be relocated.
func (r *Relocation) Relocate(expression string, configures bool) (string, error) {
	parsed, err := parseWritten(expression)
	if err != nil {
		return "", err
	}
	w := relocating{Relocation: r, info: parsed.SourceInfo(), make: ast.NewExprFactory()}
	out := w.walk(parsed.Expr(), nil)
	if configures {
		out = w.wrap(out)
	}
	if len(w.issues) > 0 {
		texts := make([]string, len(w.issues))
		for i, issue := range w.issues {
			texts[i] = issue.Message
		}
		return "", &Error{Expr: expression, Issues: w.issues, Text: strings.Join(texts, "; ")}
	}
	text, err := parser.Unparse(out, ast.NewSourceInfo(nil))
	if err != nil {
		return "", NewError(expression, err.Error())
	}
	return text, nil
}

// relocating is one call of Relocate.
type relocating struct {
	*Relocation
	info   *ast.SourceInfo
	make   ast.ExprFactory
	last   int64 // identifier of a new node
	issues []api.Issue
}

// Names of variables that refer to the object, and of the types of mutations.
const (
	objectName    = "object"
	oldObjectName = "oldObject"
	requestName   = "request"
	authzName     = "authorizer"
	objectLiteral = "Object"
	patchLiteral  = "JSONPatch"
)

func (w *relocating) id() int64 {
	w.last--
	return w.last
}

func (w *relocating) refuse(at ast.Expr, err error) {
	where := w.info.GetStartLocation(at.ID())
	w.issues = append(w.issues, api.Issue{Line: max(where.Line(), 1), Column: where.Column() + 1, Message: err.Error()})
}

// walk returns the rewritten form of e. bound are the variables that enclosing macros bind.
func (w *relocating) walk(e ast.Expr, bound []string) ast.Expr {
	if root, path, ok := chain(e); ok {
		return w.field(e, root, path, bound)
	}
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		w.checkOperand(s.Operand())
		return w.make.NewSelect(e.ID(), w.walk(s.Operand(), bound), s.FieldName())
	case ast.CallKind:
		return w.call(e, bound)
	case ast.ListKind:
		l := e.AsList()
		return w.make.NewList(e.ID(), w.all(l.Elements(), bound), l.OptionalIndices())
	case ast.MapKind:
		var entries []ast.EntryExpr
		for _, entry := range e.AsMap().Entries() {
			m := entry.AsMapEntry()
			entries = append(entries, w.make.NewMapEntry(entry.ID(), w.walk(m.Key(), bound), w.walk(m.Value(), bound), m.IsOptional()))
		}
		return w.make.NewMap(e.ID(), entries)
	case ast.StructKind:
		return w.literal(e, bound)
	}
	return e
}

func (w *relocating) all(list []ast.Expr, bound []string) []ast.Expr {
	out := make([]ast.Expr, len(list))
	for i, e := range list {
		out[i] = w.walk(e, bound)
	}
	return out
}

// field returns the rewritten form of a chain.
func (w *relocating) field(e, root ast.Expr, path, bound []string) ast.Expr {
	// Macros do not hide a name that begins with a dot.
	name, global := strings.CutPrefix(root.AsIdent(), ".")
	if !global && slices.Contains(bound, name) {
		return e
	}
	switch name {
	case objectName, requestName, authzName, objectLiteral:
	case oldObjectName:
		if !w.Old {
			return w.rooted(e, w.null())
		}
	default:
		return e
	}
	moved, err := w.Field(name, path)
	switch {
	case err != nil:
		w.refuse(root, err)
		return e
	case moved.Value != nil:
		return w.make.NewLiteral(w.id(), types.String(*moved.Value))
	case moved.Stays:
		return e
	}
	if global && slices.Contains(bound, name) {
		name = "." + name
	}
	to := w.make.NewIdent(w.id(), name)
	for _, step := range w.Path {
		to = w.make.NewSelect(w.id(), to, step)
	}
	return w.rooted(e, to)
}

// rooted returns a chain with another root.
func (w *relocating) rooted(e, root ast.Expr) ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		return w.make.NewSelect(e.ID(), w.rooted(s.Operand(), root), s.FieldName())
	case ast.CallKind:
		c := e.AsCall()
		return w.make.NewCall(e.ID(), c.FunctionName(), w.rooted(c.Args()[0], root), c.Args()[1])
	}
	return root
}

// null returns an expression for null from which fields can be selected.
func (w *relocating) null() ast.Expr {
	return w.make.NewCall(w.id(), "dyn", w.make.NewLiteral(w.id(), types.NullValue))
}

// call returns the rewritten form of a call, an operator or a macro.
func (w *relocating) call(e ast.Expr, bound []string) ast.Expr {
	c := e.AsCall()
	args := c.Args()
	if same, ok := w.compared(e, bound); ok {
		return same
	}
	if c.FunctionName() == operators.Has && !c.IsMemberFunction() && len(args) == 1 {
		out := w.walk(args[0], bound)
		if out.Kind() == ast.LiteralKind { // a field that every object has
			return w.make.NewLiteral(w.id(), types.True)
		}
		return w.make.NewCall(e.ID(), c.FunctionName(), out)
	}
	switch c.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		w.checkOperand(args[0])
	}
	if !c.IsMemberFunction() {
		return w.make.NewCall(e.ID(), c.FunctionName(), w.all(args, bound)...)
	}
	w.checkOperand(c.Target())
	target := w.walk(c.Target(), bound)
	defines, scopes := scopesOf(c, bound)
	out := slices.Clone(args)
	for i := defines; i < len(args); i++ {
		out[i] = w.walk(args[i], scopes[i])
	}
	return w.make.NewMemberCall(e.ID(), c.FunctionName(), target, out...)
}

// checkOperand reports operands that parser.Unparse prints without the parentheses that they
// need.
func (w *relocating) checkOperand(e ast.Expr) {
	if e.Kind() != ast.CallKind {
		return
	}
	switch e.AsCall().FunctionName() {
	case operators.Negate, operators.LogicalNot:
		w.refuse(e, errors.New("a negation that is the operand of something else cannot be printed; move it into a variable"))
	}
}

// compared returns the rewritten form of a comparison of object or oldObject with null.
func (w *relocating) compared(e ast.Expr, bound []string) (ast.Expr, bool) {
	c := e.AsCall()
	equal := c.FunctionName() == operators.Equals
	if !equal && c.FunctionName() != operators.NotEquals {
		return nil, false
	}
	for i, a := range c.Args() {
		other := c.Args()[1-i]
		if a.Kind() != ast.IdentKind || slices.Contains(bound, a.AsIdent()) || other.Kind() != ast.LiteralKind || other.AsLiteral() != types.NullValue {
			continue
		}
		switch strings.TrimPrefix(a.AsIdent(), ".") {
		case objectName:
			return e, true
		case oldObjectName:
			if w.Old {
				return e, true
			}
			return w.make.NewLiteral(w.id(), types.Bool(equal)), true
		}
	}
	return nil, false
}

// literal returns the rewritten form of an Object or a JSONPatch.
func (w *relocating) literal(e ast.Expr, bound []string) ast.Expr {
	s := e.AsStruct()
	name, path := strings.TrimPrefix(s.TypeName(), "."), []string(nil)
	moves := name == objectLiteral || strings.HasPrefix(name, objectLiteral+".")
	if moves {
		path = strings.Split(name, ".")[1:]
		name = strings.Join(slices.Concat([]string{objectLiteral}, w.Path, path), ".")
	}
	var fields []ast.EntryExpr
	for _, entry := range s.Fields() {
		f := entry.AsStructField()
		if moves {
			if _, err := w.Field(objectLiteral, append(slices.Clone(path), f.Name())); err != nil {
				w.refuse(f.Value(), err)
				continue
			}
		}
		value := f.Value()
		if name == patchLiteral && (f.Name() == "path" || f.Name() == "from") {
			value = w.pointer(value, true, bound)
		} else {
			value = w.walk(value, bound)
		}
		fields = append(fields, w.make.NewStructField(entry.ID(), f.Name(), value, f.IsOptional()))
	}
	return w.make.NewStruct(e.ID(), name, fields)
}

// pointer returns the rewritten form of a JSON pointer, or of its beginning if whole is false.
func (w *relocating) pointer(e ast.Expr, whole bool, bound []string) ast.Expr {
	if s, ok := text(e); ok {
		if err := w.Pointer(s, whole); err != nil {
			w.refuse(e, err)
		}
		return w.make.NewLiteral(w.id(), types.String("/"+strings.Join(w.Path, "/")+s))
	}
	if e.Kind() == ast.CallKind {
		c := e.AsCall()
		switch args := c.Args(); c.FunctionName() {
		case operators.Add:
			return w.make.NewCall(e.ID(), c.FunctionName(), w.pointer(args[0], false, bound), w.walk(args[1], bound))
		case operators.Conditional:
			return w.make.NewCall(e.ID(), c.FunctionName(), w.walk(args[0], bound), w.pointer(args[1], whole, bound), w.pointer(args[2], whole, bound))
		}
	}
	// A computed pointer is relative to the part, so prepend the path of the part.
	return w.make.NewCall(w.id(), operators.Add, w.make.NewLiteral(w.id(), types.String("/"+strings.Join(w.Path, "/"))), w.walk(e, bound))
}

// wrap returns the Object that has the Object e as its part.
func (w *relocating) wrap(e ast.Expr) ast.Expr {
	for i := len(w.Path) - 1; i >= 0; i-- {
		name := strings.Join(append([]string{objectLiteral}, w.Path[:i]...), ".")
		e = w.make.NewStruct(w.id(), name, []ast.EntryExpr{w.make.NewStructField(w.id(), w.Path[i], e, false)})
	}
	return e
}
