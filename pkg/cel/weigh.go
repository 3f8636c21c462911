package cel

import (
	"context"
	"math"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"

	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// A weigher estimates the work of checking and planning a parsed expression, in time
// proportional to its nodes. cel-go's checker cannot be interrupted, and its work is not
// linear: each call copies a table of all type variables that calls before it have bound, and
// the checker writes out the names of types, which double with every {x: x}. So the weigher
// follows the checker, with forms in the place of types. A form knows the length of a type's
// name without writing it out.
type weigher struct {
	ctx    context.Context
	lang   *language
	fields []variable // of "variables"

	weight
	// bound counts the type variables that may be bound so far.
	bound int64
}

// form is what the weigher knows of a type.
type form struct {
	kind   types.Kind
	name   string // of an opaque type or struct; of a type parameter
	params []*form
	// size is the number of nodes of the type as a tree. spell is the sum of size over all
	// subtrees, the work of writing the type out. substitute is the sum of spell over all
	// subtrees, the work of substituting its parameters.
	size, spell, substitute int64
}

// newForm returns a form. Sizes above all bounds are cut to the largest one.
func newForm(kind types.Kind, name string, params ...*form) *form {
	f := &form{kind: kind, name: name, params: params, size: 1}
	for _, p := range params {
		f.size += p.size
		f.spell += p.spell
		f.substitute += p.substitute
	}
	const most = math.MaxInt64 / 1024
	f.size = min(f.size, most)
	f.spell = min(f.spell+f.size, most)
	f.substitute = min(f.substitute+f.spell, most)
	return f
}

var (
	dynForm  = newForm(types.DynKind, "")
	intForm  = newForm(types.IntKind, "")
	boolForm = newForm(types.BoolKind, "")
	literals = map[types.Kind]*form{
		types.BoolKind: boolForm, types.IntKind: intForm,
		types.BytesKind: newForm(types.BytesKind, ""), types.DoubleKind: newForm(types.DoubleKind, ""),
		types.StringKind: newForm(types.StringKind, ""), types.UintKind: newForm(types.UintKind, ""),
		types.NullTypeKind: newForm(types.NullTypeKind, ""),
	}
)

// formOf returns the form of a declared type.
func formOf(t *types.Type) *form {
	if f := literals[t.Kind()]; f != nil {
		return f
	}
	switch t.Kind() {
	case types.ListKind, types.MapKind, types.OpaqueKind, types.TypeKind:
		params := make([]*form, len(t.Parameters()))
		for i, p := range t.Parameters() {
			params[i] = formOf(p)
		}
		return newForm(t.Kind(), t.TypeName(), params...)
	case types.AnyKind, types.DynKind, types.ErrorKind:
		return dynForm
	}
	return newForm(t.Kind(), t.TypeName())
}

// overload is one way to call a function.
type overload struct {
	member bool
	args   []*form
	result *form
}

func overloadsOf(functions map[string]*decls.FunctionDecl) map[string][]overload {
	out := make(map[string][]overload, len(functions))
	for name, fn := range functions {
		for _, o := range fn.OverloadDecls() {
			one := overload{member: o.IsMemberFunction(), result: formOf(o.ResultType())}
			for _, t := range o.ArgTypes() {
				one.args = append(one.args, formOf(t))
			}
			out[name] = append(out[name], one)
		}
	}
	return out
}

// The cost, in steps, of a node, of an overload of a function, and of an argument.
const (
	nodeSteps     = 10
	overloadSteps = 10
)

// weigh returns the weight of a parsed expression. It stops when ctx ends.
func weigh(ctx context.Context, lang *language, fields []variable, root ast.Expr) (_ weight, err error) {
	defer syntax.Stopped(&err)
	w := &weigher{ctx: ctx, lang: lang, fields: fields}
	w.form(root, nil)
	return w.weight, nil
}

// local is a variable that a comprehension binds.
type local struct {
	name  string
	form  *form
	outer *local
}

func (w *weigher) spend(steps int64) { w.steps = min(w.steps+steps, math.MaxInt64/2) }

// form returns the form of an expression's type, and counts its nodes and steps.
func (w *weigher) form(e ast.Expr, scope *local) *form {
	if w.nodes++; w.nodes%1024 == 0 {
		syntax.Interrupt(w.ctx)
		if w.nodes > 4*maxNodes {
			// The expression exceeds the bound, and a subtree that occurs in several places
			// adds more.
			syntax.Stop(placed{common.NoLocation, nodesText})
		}
	}
	f := w.formOf(e, scope)
	// At the end the checker substitutes type parameters in the type of each node.
	w.spend(nodeSteps + f.substitute/2)
	return f
}

func (w *weigher) formOf(e ast.Expr, scope *local) *form {
	switch e.Kind() {
	case ast.LiteralKind:
		if t, ok := e.AsLiteral().Type().(*types.Type); ok {
			return formOf(t)
		}
	case ast.IdentKind:
		return w.ident(e.AsIdent(), scope)
	case ast.SelectKind:
		s := e.AsSelect()
		operand := w.form(s.Operand(), scope)
		switch {
		case s.IsTestOnly():
			return boolForm
		case s.Operand().Kind() == ast.IdentKind && syntax.IdentName(s.Operand()) == variablesName:
			return w.variable(s.FieldName())
		case operand.kind == types.MapKind:
			return operand.params[1]
		case operand.kind == types.StructKind:
			if t, ok := w.lang.env.CELTypeProvider().FindStructFieldType(operand.name, s.FieldName()); ok {
				return formOf(t.Type)
			}
		}
	case ast.CallKind:
		return w.call(e, scope)
	case ast.ListKind:
		var elem *form
		for _, e := range e.AsList().Elements() {
			elem = w.join(elem, w.form(e, scope))
		}
		if elem == nil {
			w.bound++
			elem = dynForm
		}
		return newForm(types.ListKind, "list", elem)
	case ast.MapKind:
		var key, value *form
		for _, e := range e.AsMap().Entries() {
			key = w.join(key, w.form(e.AsMapEntry().Key(), scope))
			value = w.join(value, w.form(e.AsMapEntry().Value(), scope))
		}
		if key == nil {
			w.bound += 2
			key, value = dynForm, dynForm
		}
		return newForm(types.MapKind, "map", key, value)
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			w.assign(w.form(f.AsStructField().Value(), scope))
		}
		return newForm(types.StructKind, e.AsStruct().TypeName())
	case ast.ComprehensionKind:
		return w.comprehension(e.AsComprehension(), scope)
	}
	return dynForm
}

func (w *weigher) ident(name string, scope *local) *form {
	for ; scope != nil; scope = scope.outer {
		if scope.name == name {
			return scope.form
		}
	}
	if f := w.lang.names[strings.TrimPrefix(name, ".")]; f != nil {
		return f
	}
	return dynForm
}

func (w *weigher) variable(name string) *form {
	for i := range w.fields {
		if w.fields[i].name == name {
			return formOf(w.fields[i].declared)
		}
	}
	return dynForm
}

// assign counts a comparison of types, for which the checker copies its table of type
// variables.
func (w *weigher) assign(fs ...*form) {
	steps := w.bound + 1
	for _, f := range fs {
		steps += f.size
	}
	w.spend(steps)
}

// join returns the type of a list's elements, from the type of the elements before and that of
// the next one.
func (w *weigher) join(before, next *form) *form {
	if before == nil {
		return next
	}
	w.assign(before, next)
	larger := before
	if next.size > before.size {
		larger = next
	}
	if larger.kind != types.DynKind && (before.kind == types.DynKind || next.kind == types.DynKind) {
		// The elements have different types.
		return &form{kind: types.DynKind, size: larger.size, spell: larger.spell, substitute: larger.substitute}
	}
	return larger
}

func (w *weigher) comprehension(c ast.ComprehensionExpr, scope *local) *form {
	over := w.form(c.IterRange(), scope)
	accu := &local{c.AccuVar(), w.form(c.AccuInit(), scope), scope}
	key, value := dynForm, dynForm
	switch {
	case over.kind == types.ListKind && c.HasIterVar2():
		key, value = intForm, over.params[0]
	case over.kind == types.ListKind:
		key = over.params[0]
	case over.kind == types.MapKind:
		key, value = over.params[0], over.params[1]
	}
	inner := &local{c.IterVar(), key, accu}
	if c.HasIterVar2() {
		inner = &local{c.IterVar2(), value, inner}
	}
	w.form(c.LoopCondition(), inner)
	step := w.form(c.LoopStep(), inner)
	w.assign(boolForm)
	w.assign(accu.form, step)
	if accu.form.kind != types.DynKind && step.size > accu.form.size {
		// The type variable of [] or {} is bound now.
		accu.form = step
	}
	return w.form(c.Result(), accu)
}

func (w *weigher) call(e ast.Expr, scope *local) *form {
	call := e.AsCall()
	candidates := w.lang.overloads[call.FunctionName()]
	var args []*form
	member := call.IsMemberFunction()
	if member {
		name, nodes := qualifiedName(call.Target())
		if qualified := w.lang.overloads[name+"."+call.FunctionName()]; qualified != nil {
			candidates, member = qualified, false
			w.nodes += nodes
		} else {
			args = append(args, w.form(call.Target(), scope))
		}
	}
	for _, arg := range call.Args() {
		args = append(args, w.form(arg, scope))
	}
	w.pattern(call)

	var size int64
	for _, arg := range args {
		size += arg.size
	}
	var result *form
	for i := range candidates {
		o := &candidates[i]
		if o.member != member {
			continue
		}
		w.spend(overloadSteps + w.bound)
		var values binding
		if !values.fit(o.args, args) {
			continue
		}
		w.bound += values.noted()
		r := values.value(o.result)
		w.spend(size + r.substitute/2)
		switch {
		case result == nil:
			result = r
		case result.kind != r.kind || result.size != r.size:
			result = dynForm
		}
	}
	if result == nil {
		return dynForm
	}
	return result
}

// qualifiedName returns a chain of names, as in optional.of, and the number of its nodes; ""
// for another expression.
func qualifiedName(e ast.Expr) (name string, nodes int64) {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent(), 1
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			if operand, nodes := qualifiedName(s.Operand()); operand != "" {
				return operand + "." + s.FieldName(), nodes + 1
			}
		}
	}
	return "", 0
}

// binding has the values of an overload's type parameters.
type binding struct {
	names  [4]string
	values [4]*form
}

// fit reports whether arguments may have the declared types, and records the values of type
// parameters.
func (b *binding) fit(declared, args []*form) bool {
	if len(declared) != len(args) {
		return false
	}
	for i, d := range declared {
		if !b.fitOne(d, args[i]) {
			return false
		}
	}
	return true
}

func (b *binding) fitOne(declared, arg *form) bool {
	switch {
	case declared.kind == types.TypeParamKind:
		b.note(declared.name, arg)
		return true
	case declared.kind == types.DynKind || arg.kind == types.DynKind || arg.kind == types.NullTypeKind || arg.kind == types.TypeParamKind:
		return true
	case declared.kind != arg.kind || declared.kind == types.OpaqueKind && declared.name != arg.name:
		return false
	}
	return len(declared.params) != len(arg.params) || b.fit(declared.params, arg.params)
}

// note records a value of a type parameter, and keeps the largest.
func (b *binding) note(name string, value *form) {
	for i := range b.names {
		switch b.names[i] {
		case name:
			if value.size > b.values[i].size {
				b.values[i] = value
			}
			return
		case "":
			b.names[i], b.values[i] = name, value
			return
		}
	}
}

// noted counts the parameters that have a value.
func (b *binding) noted() (n int64) {
	for _, name := range b.names {
		if name != "" {
			n++
		}
	}
	return n
}

// value returns a declared type with the values of its parameters.
func (b *binding) value(declared *form) *form {
	if declared.kind == types.TypeParamKind {
		for i := range b.names {
			if b.names[i] == declared.name {
				return b.values[i]
			}
		}
		return dynForm
	}
	if len(declared.params) == 0 {
		return declared
	}
	params := make([]*form, len(declared.params))
	for i, p := range declared.params {
		params[i] = b.value(p)
	}
	return newForm(declared.kind, declared.name, params...)
}

// pattern counts the instructions of a regular expression literal.
func (w *weigher) pattern(call ast.CallExpr) {
	var literal ast.Expr
	switch args := call.Args(); call.FunctionName() {
	case "matches", "find", "findAll":
		switch {
		case call.IsMemberFunction() && len(args) > 0:
			literal = args[0]
		case len(args) > 1:
			literal = args[1]
		}
	}
	if literal == nil || literal.Kind() != ast.LiteralKind {
		return
	}
	if s, ok := literal.AsLiteral().(types.String); ok {
		w.instructions = min(w.instructions+instructions(string(s)), math.MaxInt64/2)
	}
}
