package cel

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"

	"github.com/mapd-project/mapd/pkg/api"
)

// Relocation says how an expression about an object becomes an expression about
// another object, of which the former is a part: one about a Pod becomes one about the
// template of a Deployment.
type Relocation struct {
	// Path leads from the new object to the part: "spec", "template".
	Path []string
	// Field says what becomes of a field of the variable object or request, or of a type
	// "Object", as far as its path is written out. An error says why the expression
	// cannot be relocated. path is empty where the variable is used as a whole.
	Field func(variable string, path []string) (Moved, error)
	// Pointer is called with the JSON pointer of a JSONPatch. If it is not whole, more
	// follows that is computed. A pointer that begins with something computed is not
	// looked at.
	Pointer func(pointer string, whole bool) error
}

// Moved says what becomes of a field. The zero value is the same field of the part.
type Moved struct {
	// Stays says that the field is that of the new object itself.
	Stays bool
	// Value, if it is not nil, is the only value that the field has: a string.
	Value *string
}

// Relocate returns what becomes of an expression, which must be valid. If configures is
// set, the value of the expression is an Object, of which the new one has the new
// object's type. The expression is parsed, and the result printed from its new syntax
// tree, so comments and line breaks are lost. An error is a *CompileError with the
// places of all that cannot be relocated.
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
		return "", &CompileError{Expr: expression, Issues: w.issues, text: strings.Join(texts, "; ")}
	}
	text, err := parser.Unparse(out, ast.NewSourceInfo(nil))
	if err != nil {
		return "", wholeError(expression, err.Error())
	}
	return text, nil
}

// Strings returns the string literals of an expression, each once, in their order.
func Strings(expression string) ([]string, error) {
	parsed, err := parseWritten(expression)
	if err != nil {
		return nil, err
	}
	var out []string
	ast.PostOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.LiteralKind {
			return
		}
		if s, ok := e.AsLiteral().(types.String); ok && !slices.Contains(out, string(s)) {
			out = append(out, string(s))
		}
	}))
	return out, nil
}

// parseWritten parses an expression without expanding macros, so that the tree is what
// is written.
func parseWritten(expression string) (*ast.AST, error) {
	return parseWrittenWithin(context.Background(), expression)
}

// parseWrittenWithin is parseWritten, ended by ctx.
func parseWrittenWithin(ctx context.Context, expression string) (_ *ast.AST, err error) {
	text, err := common.NewTextSourceWithLimit(expression, maxText)
	if err != nil {
		return nil, wholeError(expression, err.Error())
	}
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true), parser.EnableIdentEscapeSyntax(true))
	if err != nil {
		return nil, err
	}
	defer stopped(&err)
	parsed, errs := p.Parse(stoppable(ctx, text))
	if all := errs.GetErrors(); len(all) > 0 {
		failure := &CompileError{Expr: expression, text: all[0].Message}
		for _, e := range all {
			failure.Issues = append(failure.Issues, api.Issue{Line: max(e.Location.Line(), 1), Column: e.Location.Column() + 1, Message: e.Message})
		}
		return nil, failure
	}
	return parsed, nil
}

// relocating is one call of Relocate.
type relocating struct {
	*Relocation
	info   *ast.SourceInfo
	make   ast.ExprFactory
	last   int64 // identifier of a new node
	issues []api.Issue
}

// Names of the types that mutations are made of.
const (
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

// walk returns what becomes of e. bound are the variables that macros around it define.
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

// chain returns the identifier at the root of fields that are selected by names, and
// these names.
func chain(e ast.Expr) (root ast.Expr, path []string, ok bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return e, nil, true
	case ast.SelectKind:
		s := e.AsSelect()
		root, path, ok = chain(s.Operand())
		return root, append(path, s.FieldName()), ok
	case ast.CallKind:
		operand, name, named := selected(e)
		if !named {
			return nil, nil, false
		}
		root, path, ok = chain(operand)
		return root, append(path, name), ok
	}
	return nil, nil, false
}

// selected returns the operand and the field of a["x"], a[?"x"] and a.?x.
func selected(e ast.Expr) (operand ast.Expr, name string, ok bool) {
	c := e.AsCall()
	switch c.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		name, ok = text(c.Args()[1])
		return c.Args()[0], name, ok
	}
	return nil, "", false
}

func text(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// field returns what becomes of a chain.
func (w *relocating) field(e, root ast.Expr, path, bound []string) ast.Expr {
	// Macros do not hide a name that begins with a dot.
	name, global := strings.CutPrefix(root.AsIdent(), ".")
	if !global && slices.Contains(bound, name) {
		return e
	}
	switch name {
	case objectName, requestName, authzName, objectLiteral:
	case oldObjectName: // what is created has none
		return w.rooted(e, w.null())
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

// null returns a null of which fields can be asked for, in vain.
func (w *relocating) null() ast.Expr {
	return w.make.NewCall(w.id(), "dyn", w.make.NewLiteral(w.id(), types.NullValue))
}

// call returns what becomes of a call, or of an operator or a macro.
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

// checkOperand refuses what parser.Unparse prints without the parentheses that it needs.
func (w *relocating) checkOperand(e ast.Expr) {
	if e.Kind() != ast.CallKind {
		return
	}
	switch e.AsCall().FunctionName() {
	case operators.Negate, operators.LogicalNot:
		w.refuse(e, errors.New("a negation that is the operand of something else cannot be printed; move it into a variable"))
	}
}

// compared returns what becomes of a comparison of object or oldObject with null.
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
			return w.make.NewLiteral(w.id(), types.Bool(equal)), true
		}
	}
	return nil, false
}

// binders returns how many of a macro's first arguments are names of variables, and the
// index of the first argument after them in which these are defined.
func binders(c ast.CallExpr) (defines, from int) {
	n := len(c.Args())
	switch c.FunctionName() {
	case "all", "exists", "exists_one", "existsOne":
		defines = n - 1
	case "map":
		defines = min(n-1, 1)
	case "filter", "optMap", "optFlatMap", "sortBy":
		defines = 1
	case "transformList", "transformMap", "transformMapEntry":
		defines = 2
	case "bind":
		if t := c.Target(); n == 3 && t.Kind() == ast.IdentKind && t.AsIdent() == "cel" && c.Args()[0].Kind() == ast.IdentKind {
			return 1, 2
		}
	}
	if defines >= n {
		return 0, 0
	}
	for _, a := range c.Args()[:max(defines, 0)] {
		if a.Kind() != ast.IdentKind {
			return 0, 0 // no macro
		}
	}
	return max(defines, 0), defines
}

// literal returns what becomes of an Object or a JSONPatch.
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

// pointer returns what becomes of a JSON pointer, or of its beginning if it is not
// whole.
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
	// Wherever it leads, it leads there from the part.
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
