package quick

import (
	"math"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// reader compiles a checked expression to parts. Its methods return nil for unsupported
// expressions.
type reader struct {
	Options
	checked   *ast.AST
	functions map[string]*function
	loops     []loopVariable // the innermost last
	slots     int
	// forms says that lists and maps that the expression makes become a List or a Map.
	forms bool
}

// dest is the destination of a value, which determines its conversion.
type dest struct {
	kind destKind
	// path is the type that a literal of an Object must have there.
	path string
}

type destKind uint8

const (
	// toData leaves the value as it is.
	toData destKind = iota
	// toOperations writes the operations of a patch. The value is an operation, a list
	// of operations, or a list of such lists that is about to be flattened.
	toOperations
	// wholeObject, toField and toItem are an Object, the value of one of its fields,
	// and an element of a literal list or map there.
	wholeObject
	toField
	toItem
)

var (
	data       = dest{}
	operations = dest{kind: toOperations}
)

// item returns the dest of an element of a list or map that is made for d.
func (d dest) item() dest {
	switch d.kind {
	case toField:
		d.kind = toItem
	case toItem:
		return data
	}
	return d
}

// converted returns a part that converts a value for its dest.
func (r *reader) converted(of part, d dest) part {
	if of == nil || d.kind == toData {
		return of
	}
	var convert func(any) (any, bool)
	switch d.kind {
	case toField:
		convert = field
	case toItem:
		convert = item
	default:
		return nil
	}
	weigh := r.Weigh // closures do not keep the reader
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		if _, empty := v.(none); empty || !ok {
			return v, ok
		}
		if !f.weigh(v, weigh) {
			return nil, false
		}
		return convert(v)
	}
}

// read reads an expression whose value goes to d. observed is true for an attribute unless it
// is an operand of ?: or a key: there cel-go counts only its steps.
func (r *reader) read(e ast.Expr, d dest, observed bool) part {
	if r.isOptional(e) {
		return nil
	}
	if t := r.checked.GetType(e.ID()); e.Kind() == ast.IdentKind && t.Kind() == types.TypeKind && r.constant(e) {
		return r.converted(typeOf(t), d)
	}
	if a, is := r.attribute(e); is {
		return r.converted(a.value(observed), d)
	}
	switch e.Kind() {
	case ast.LiteralKind:
		return r.converted(literalValue(e), d)
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return r.converted(r.has(e.AsSelect()), d)
		}
	case ast.StructKind:
		return r.literal(e.AsStruct(), d)
	case ast.ListKind:
		return r.list(e, d)
	case ast.MapKind:
		return r.mapping(e, d)
	case ast.ComprehensionKind:
		return r.comprehension(e.AsComprehension(), d)
	case ast.CallKind:
		fn, c := r.call(e, d)
		switch {
		case fn == nil:
		case fn.flows:
			return fn.read(r, c)
		case d.kind == toOperations:
		default:
			return r.converted(r.once(e, r.plain(fn, c)), d)
		}
	}
	return nil
}

// value reads an expression whose value is data: nil, bool, string, int64, float64, lists and
// maps of them, and any other value that an object holds by mistake, which is not inspected.
func (r *reader) value(e ast.Expr) part { return r.read(e, data, true) }

// values reads all of several expressions.
func (r *reader) values(list []ast.Expr) []part {
	out := make([]part, len(list))
	for i, e := range list {
		if out[i] = r.value(e); out[i] == nil {
			return nil
		}
	}
	return out
}

// call is a call of a function in the table.
type call struct {
	e    ast.Expr
	args []ast.Expr // the operand before the dot included
	// dest is the destination of the value or, if optional is set, of the optional's content.
	dest     dest
	optional bool
}

// call returns the function of a call, nil for all other expressions and for calls with an
// overload that the table lacks. The checker's overloads decide and not the form of the call:
// with operands of other types, it calls other overloads, or none.
func (r *reader) call(e ast.Expr, d dest) (*function, call) {
	if e.Kind() != ast.CallKind {
		return nil, call{}
	}
	fn := r.functions[e.AsCall().FunctionName()]
	ref := r.checked.ReferenceMap()[e.ID()]
	if fn == nil || ref == nil || fn.sure && len(ref.OverloadIDs) != 1 || fn.unmetered && r.Metered ||
		!slices.ContainsFunc(ref.OverloadIDs, func(id string) bool { return slices.Contains(fn.overloads, id) }) {
		return nil, call{}
	}
	return fn, call{e: e, args: operandsOf(e), dest: d}
}

func operandsOf(e ast.Expr) []ast.Expr {
	c := e.AsCall()
	if c.IsMemberFunction() {
		return append([]ast.Expr{c.Target()}, c.Args()...)
	}
	return c.Args()
}

// calls reports whether e is a call of a function in the table.
func (r *reader) calls(e ast.Expr, function string) bool {
	fn, _ := r.call(e, data)
	return fn != nil && e.AsCall().FunctionName() == function
}

// overload returns the overload that a call is bound to at compile time, "" if that happens at
// run time. Costs that depend on sizes are defined for overloads.
func (r *reader) overload(e ast.Expr) string {
	if ref := r.checked.ReferenceMap()[e.ID()]; ref != nil && len(ref.OverloadIDs) == 1 {
		return ref.OverloadIDs[0]
	}
	return ""
}

// plain reads a call whose value is data.
func (r *reader) plain(fn *function, c call) part {
	switch {
	case fn.apply != nil:
		return fn.strict(r.values(c.args))
	case fn.read != nil:
		return fn.read(r, c)
	case fn.text != nil:
		return fn.text(r, c).value()
	}
	return nil
}

// strict evaluates all operands as data, and applies the function.
func (fn *function) strict(operands []part) part {
	apply, cost := fn.apply, fn.cost
	switch len(operands) {
	case 1:
		of := operands[0]
		return func(f *frame) (any, bool) {
			x, ok := of(f)
			if !ok {
				return nil, false
			}
			f.Cost += cost
			return apply(f, x, none{}, none{})
		}
	case 2, 3:
		first, second, third := operands[0], operands[1], part(nil)
		if len(operands) == 3 {
			third = operands[2]
		}
		return func(f *frame) (any, bool) {
			x, ok := first(f)
			if !ok {
				return nil, false
			}
			y, ok := second(f)
			if !ok {
				return nil, false
			}
			var z any = none{}
			if third != nil {
				if z, ok = third(f); !ok {
					return nil, false
				}
			}
			f.Cost += cost
			return apply(f, x, y, z)
		}
	}
	return nil
}

// once returns a constant part if e is constant: it is computed now, and costs nothing later.
func (r *reader) once(e ast.Expr, of part) part {
	if of == nil || !r.constant(e) {
		return of
	}
	v, ok := of(&frame{limit: math.MaxInt64, weight: MaxResult})
	if !ok {
		return nil
	}
	return constant(v)
}

// constant reports whether cel-go's optimizer treats e as a constant: literals, names of types,
// lists and maps of constants, conversions of a constant, and x in [].
func (r *reader) constant(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return true
	case ast.IdentKind:
		ref := r.checked.ReferenceMap()[e.ID()]
		return r.variable(e.AsIdent()) == nil && (ref != nil && ref.Value != nil || r.checked.GetType(e.ID()).Kind() == types.TypeKind)
	case ast.ListKind:
		for _, e := range e.AsList().Elements() {
			if !r.constant(e) {
				return false
			}
		}
		return true
	case ast.MapKind:
		for _, e := range e.AsMap().Entries() {
			if entry := e.AsMapEntry(); !r.constant(entry.Key()) || !r.constant(entry.Value()) {
				return false
			}
		}
		return true
	case ast.CallKind:
		if args := operandsOf(e); len(args) == 1 && overloads.IsTypeConversionFunction(e.AsCall().FunctionName()) {
			return r.constant(args[0])
		}
		return r.inNothing(e)
	}
	return false
}

// inNothing reports whether e is `x in []`, which is false without evaluating x.
func (r *reader) inNothing(e ast.Expr) bool {
	return r.calls(e, operators.In) && r.overload(e) == overloads.InList && isEmptyList(operandsOf(e)[1])
}

func isEmptyList(e ast.Expr) bool { return e.Kind() == ast.ListKind && e.AsList().Size() == 0 }

func constant(v any) part { return func(*frame) (any, bool) { return v, true } }

func literalValue(e ast.Expr) part {
	switch l := e.AsLiteral().(type) {
	case types.String:
		return constant(string(l))
	case types.Int:
		return constant(int64(l))
	case types.Double:
		return constant(float64(l))
	case types.Bool:
		return constant(bool(l))
	case types.Null:
		return constant(nil)
	}
	return nil
}

// typeOf reads the name of a type that data can have.
func typeOf(t *types.Type) part {
	if p := t.Parameters(); len(p) == 1 {
		switch name := p[0].TypeName(); name {
		case "null_type", "bool", "string", "int", "double", "map", "list", "type":
			return constant(typ(name))
		}
	}
	return nil
}

// literalText returns a literal that is a string, "" for any other expression.
func literalText(e ast.Expr) string {
	if e.Kind() != ast.LiteralKind {
		return ""
	}
	s, _ := e.AsLiteral().(types.String)
	return string(s)
}

// truth evaluates a part whose value must be a bool.
func truth(of part, f *frame) (value, ok bool) {
	v, ok := of(f)
	b, isBool := v.(bool)
	return b, ok && isBool
}

// priced adds a cost to that of a part.
func priced(cost int64, of part) part {
	if of == nil || cost == 0 {
		return of
	}
	return func(f *frame) (any, bool) {
		f.Cost += cost
		return of(f)
	}
}

// chosen returns the part for ?:, which costs nothing itself.
func chosen(condition, then, otherwise part) part {
	if condition == nil || then == nil || otherwise == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		switch b, ok := truth(condition, f); {
		case !ok:
			return nil, false
		case b:
			return then(f)
		default:
			return otherwise(f)
		}
	}
}

// inTurn evaluates parts that write operations.
func inTurn(cost int64, list ...part) part {
	if slices.ContainsFunc(list, func(p part) bool { return p == nil }) {
		return nil
	}
	return func(f *frame) (any, bool) {
		f.Cost += cost
		for _, p := range list {
			if _, ok := p(f); !ok {
				return nil, false
			}
		}
		return nil, true
	}
}

// list reads a literal list.
func (r *reader) list(e ast.Expr, d dest) part {
	l := e.AsList()
	if len(l.OptionalIndices()) > 0 {
		return nil
	}
	if d.kind == toOperations {
		list := make([]part, 0, l.Size())
		for _, e := range l.Elements() {
			list = append(list, r.read(e, operations, true))
		}
		if len(list) == 0 {
			return constant(nil)
		}
		return inTurn(10, list...)
	}
	elements := make([]part, 0, l.Size())
	for _, e := range l.Elements() {
		v := r.read(e, d.item(), true)
		if v == nil {
			return nil
		}
		elements = append(elements, v)
	}
	finish := r.newList(d)
	return r.finished(r.once(e, func(f *frame) (any, bool) {
		f.Cost += 10
		if len(elements) == 0 {
			return finish(nil), true
		}
		if !f.make(SlotBytes * len(elements)) {
			return nil, false
		}
		out := make([]any, len(elements))
		for i, of := range elements {
			var ok bool
			if out[i], ok = of(f); !ok {
				return nil, false
			}
		}
		return finish(out), true
	}), d)
}

// newList returns a function that makes a list whose elements were read for d.item().
func (r *reader) newList(d dest) func([]any) any {
	if d.kind == toField {
		return func(list []any) any { return list } // nil if there are no items
	}
	made := r.forms // closures do not keep the reader
	return func(list []any) any {
		if list == nil {
			list = []any{}
		}
		if made {
			return List(list)
		}
		return list
	}
}

// finished converts a value for its dest, unless that is a field, for which its parts were
// converted already.
func (r *reader) finished(of part, d dest) part {
	if d.kind == toField {
		return of
	}
	return r.converted(of, d)
}

// mapping reads a literal map.
func (r *reader) mapping(e ast.Expr, d dest) part {
	type entry struct {
		name    string
		key, of part
	}
	entries := make([]entry, 0, e.AsMap().Size())
	seen := map[string]bool{}
	for _, e := range e.AsMap().Entries() {
		from := e.AsMapEntry()
		to := entry{name: literalText(from.Key()), of: r.read(from.Value(), d.item(), true)}
		if to.name == "" {
			to.key = r.value(from.Key())
		}
		if from.IsOptional() || to.of == nil || to.name == "" && to.key == nil || seen[to.name] {
			return nil
		}
		seen[to.name] = to.name != ""
		entries = append(entries, to)
	}
	made := r.forms && d.kind != toField
	return r.finished(r.once(e, func(f *frame) (any, bool) {
		f.Cost += 30
		if !f.make(4 * SlotBytes * len(entries)) {
			return nil, false
		}
		out := make(map[string]any, len(entries))
		for i := range entries {
			e := &entries[i]
			name := e.name
			if e.key != nil {
				k, ok := e.key(f)
				var isName bool
				if name, isName = k.(string); !ok || !isName {
					return nil, false
				}
			}
			v, ok := e.of(f)
			if !ok {
				return nil, false
			}
			out[name] = v
		}
		if made {
			return Map(out), true
		}
		return out, true
	}), d)
}
