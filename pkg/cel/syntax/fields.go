package syntax

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Field is one field that an expression of type Object sets: an entry of a
// literal such as Object.spec{replicas: 1}.
type Field struct {
	// Path are the names on the way to the field, as in the name of the literal's type:
	// ["spec", "replicas"]. It has no steps for items of lists and values of maps, as names of
	// types have none (spec §6.3).
	Path []string
	// Place is the way from the root of the result to the field, including items and map
	// values. Its Named steps are Path, unless the literal has the wrong type.
	Place []Step
	// Line and Column are those of the field's name in the expression, 1-based;
	// columns count code points.
	Line, Column int
	// Conditional says that a condition, a loop or an optional decides whether the field is
	// set, or whether its Value has that form.
	Conditional bool
	// Value are forms that the value may have. There may be others.
	Value Forms
	// Items are forms of literals directly in the list or map that is the
	// value. Such literals are not converted any deeper (spec §7.2).
	Items Forms
	// Misnamed are the type names of literals at this place that are not Object and the path:
	// evaluating them is an error. They are sorted.
	Misnamed []string
}

// Step is one step of a Place.
type Step struct {
	Kind StepKind
	// Name is the name of a Named field; for a Value, the key if it is a literal.
	Name string
}

// StepKind is the kind of a Step.
type StepKind int

const (
	// Named goes into a field of an object literal.
	Named StepKind = iota
	// Item goes into an item of a list.
	Item
	// Value goes into a value of a map.
	Value
)

// Forms is a set of forms of values.
type Forms uint16

// The forms that can be known without evaluating.
const (
	// FormString to FormNull are literals.
	FormString Forms = 1 << iota
	FormInt
	FormUint
	FormDouble
	FormBool
	FormBytes
	FormNull
	// FormList and FormMap are for any expression of such a type; among Items, for literals
	// only.
	FormList
	FormMap
	// FormObject is a literal of a type Object.….
	FormObject
)

// Fields lists the fields that may be part of the result of a checked expression of type
// Object, by position. It follows literals through conditions, lists, maps, loops and optionals
// to the place in the result. A literal that is only compared or measured sets nothing. A
// literal that passes through another function is not found. Variables contain no such literals
// (spec §5).
func Fields(checked *ast.AST, expression string) []Field {
	f := finder{
		checked: checked,
		names:   map[int64]loopVar{},
		seen:    map[visit]bool{},
		found:   map[found]*Field{},
		left:    maxVisits,
	}
	f.bind(checked.Expr(), nil)
	f.follow(checked.Expr(), flow{place: &place{}, exact: true, tight: true})
	return f.fields([]rune(expression))
}

// maxVisits bounds the work, since one literal can occur at very many places of the result.
// Expressions that people write need some dozens.
const maxVisits = 20_000

// finder follows values through a checked expression.
type finder struct {
	checked *ast.AST
	// names maps identifiers to the loop variables that they refer to.
	names map[int64]loopVar
	seen  map[visit]bool
	found map[found]*Field
	left  int
}

// loopVar is a variable of a loop.
type loopVar struct {
	loop ast.Expr
	role byte
}

// Roles of loop variables. A role of an item also says which part of a container a value was
// taken from (flow.unwrap).
const (
	item   = '1' // items of a list (or keys of a map)
	second = '2' // values of a list or map, in a loop over two variables
	result = 'r' // the accumulator of the loop
)

// flow is the destination of a value.
type flow struct {
	place *place
	// field is the field that the value belongs to, nil for the root; depth is the number of
	// lists and maps between the field and the value.
	field *Field
	depth int
	// unwrap are the loops that take the value's items instead of the value itself, the last
	// one first.
	unwrap string
	// optional says that the value is an optional, and its content goes to the destination.
	optional    bool
	conditional bool
	// exact says that the names of types are checked from the root up to here (see
	// checkTypeNames in package cel).
	exact bool
	// tight says that list and map literals are converted one level deep only (see nativeField
	// in package cel).
	tight bool
}

// place is a Place as a tree, so that equal places have the same pointer.
type place struct {
	parent   *place
	step     Step
	children map[Step]*place
	// path is the name of the type that a literal here must have, without the prefix "Object".
	path string
}

func (p *place) child(s Step) *place {
	c := p.children[s]
	if c == nil {
		c = &place{parent: p, step: s, path: p.path}
		if s.Kind == Named {
			c.path += "." + s.Name
		}
		if p.children == nil {
			p.children = map[Step]*place{}
		}
		p.children[s] = c
	}
	return c
}

func (p *place) steps() []Step {
	var out []Step
	for ; p.parent != nil; p = p.parent {
		out = append(out, p.step)
	}
	slices.Reverse(out)
	return out
}

type visit struct {
	id int64
	flow
}

type found struct {
	entry int64
	place *place
}

// loopVars are those in scope, the innermost first.
type loopVars struct {
	outer *loopVars
	name  string
	to    loopVar
}

// bind records which loop variable each identifier refers to.
func (f *finder) bind(e ast.Expr, vars *loopVars) {
	switch e.Kind() {
	case ast.IdentKind:
		for v := vars; v != nil; v = v.outer {
			if v.name == e.AsIdent() {
				f.names[e.ID()] = v.to
				return
			}
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		f.bind(c.IterRange(), vars)
		f.bind(c.AccuInit(), vars)
		vars = &loopVars{vars, c.AccuVar(), loopVar{e, result}}
		f.bind(c.Result(), vars)
		role := byte(item)
		if c.HasIterVar2() {
			vars = &loopVars{vars, c.IterVar2(), loopVar{e, second}}
			// The first one is an index or a key.
			role = 0
		}
		vars = &loopVars{vars, c.IterVar(), loopVar{e, role}}
		f.bind(c.LoopCondition(), vars)
		f.bind(c.LoopStep(), vars)
	default:
		for _, p := range Parts(e) {
			f.bind(p.Expr, vars)
		}
	}
}

// follow records that the value of e goes to w.
func (f *finder) follow(e ast.Expr, w flow) {
	v := visit{e.ID(), w}
	if f.left == 0 || f.seen[v] {
		return
	}
	f.left--
	f.seen[v] = true
	if w.unwrap == "" && !w.optional {
		switch f.checked.GetType(e.ID()).Kind() {
		case types.ListKind:
			w.note(FormList, false)
		case types.MapKind:
			w.note(FormMap, false)
		}
	}
	switch e.Kind() {
	case ast.IdentKind:
		f.followName(e, w)
	case ast.LiteralKind:
		w.note(literalForm(e), true)
	case ast.ListKind:
		f.followList(e.AsList(), w)
	case ast.MapKind:
		f.followMap(e.AsMap(), w)
	case ast.StructKind:
		f.followStruct(e.AsStruct(), w)
	case ast.CallKind:
		f.followCall(e, w)
	case ast.ComprehensionKind:
		f.follow(e.AsComprehension().Result(), w)
	}
}

// note adds a form to the known forms of the field. Static types say nothing about items: lists
// that are not literals are converted completely.
func (w flow) note(form Forms, literal bool) {
	if w.field == nil || form == 0 || w.unwrap != "" || w.optional {
		return
	}
	into := &w.field.Value
	switch {
	case w.depth == 1 && literal && w.tight:
		into = &w.field.Items
	case w.depth > 0:
		return
	}
	if *into&form == 0 {
		*into |= form
		w.field.Conditional = w.field.Conditional || w.conditional && w.depth == 0
	}
}

func literalForm(e ast.Expr) Forms {
	switch e.AsLiteral().(type) {
	case types.String:
		return FormString
	case types.Int:
		return FormInt
	case types.Uint:
		return FormUint
	case types.Double:
		return FormDouble
	case types.Bool:
		return FormBool
	case types.Bytes:
		return FormBytes
	case types.Null:
		return FormNull
	}
	return 0
}

// into returns the flow of an item of a list or map that goes to w.
func (w flow) into(s Step, optional bool) flow {
	w.place = w.place.child(s)
	w.depth++
	w.optional = optional
	w.conditional = w.conditional || optional
	return w
}

// taken returns the flow of an item that a loop takes out of a container.
func (w flow) taken(optional bool) flow {
	w.unwrap = w.unwrap[:len(w.unwrap)-1]
	// The steps for an optional are done after it is taken out.
	if optional {
		w.conditional = true
		w.optional = true
	}
	return w
}

func (f *finder) followList(list ast.ListExpr, w flow) {
	if w.optional && w.unwrap == "" {
		return
	}
	w.note(FormList, true)
	for i, e := range list.Elements() {
		if w.unwrap != "" {
			f.follow(e, w.taken(list.IsOptional(int32(i))))
		} else {
			f.follow(e, w.into(Step{Kind: Item}, list.IsOptional(int32(i))))
		}
	}
}

func (f *finder) followMap(m ast.MapExpr, w flow) {
	if w.optional && w.unwrap == "" || strings.HasSuffix(w.unwrap, string(rune(item))) {
		return
	}
	w.note(FormMap, true)
	for _, entry := range m.Entries() {
		entry := entry.AsMapEntry()
		if w.unwrap != "" {
			f.follow(entry.Value(), w.taken(entry.IsOptional()))
			continue
		}
		key := ""
		if entry.Key().Kind() == ast.LiteralKind {
			if s, ok := entry.Key().AsLiteral().(types.String); ok {
				key = string(s)
			}
		}
		f.follow(entry.Value(), w.into(Step{Value, key}, entry.IsOptional()))
	}
}

func (f *finder) followStruct(s ast.StructExpr, w flow) {
	rest, ok := strings.CutPrefix(s.TypeName(), "Object")
	if !ok || rest != "" && rest[0] != '.' || w.unwrap != "" || w.optional {
		return
	}
	w.note(FormObject, true)
	if w.exact && w.field != nil && rest != w.place.path && !slices.Contains(w.field.Misnamed, s.TypeName()) {
		w.field.Misnamed = append(w.field.Misnamed, s.TypeName())
	}
	var path []string
	if rest != "" {
		path = strings.Split(rest[1:], ".")
	}
	entries := s.Fields()
	for i, entry := range entries {
		field := entry.AsStructField()
		if slices.ContainsFunc(entries[i+1:], func(later ast.EntryExpr) bool {
			l := later.AsStructField()
			return l.Name() == field.Name() && !l.IsOptional()
		}) {
			// Of two entries with one name the last one counts.
			continue
		}
		next := flow{
			place:       w.place.child(Step{Named, field.Name()}),
			optional:    field.IsOptional(),
			conditional: w.conditional || field.IsOptional(),
			exact:       w.exact,
			tight:       true,
		}
		at := found{entry.ID(), next.place}
		known := f.found[at]
		if known == nil {
			known = &Field{
				Path:        append(slices.Clone(path), field.Name()),
				Place:       next.place.steps(),
				Conditional: next.conditional,
			}
			f.found[at] = known
		}
		next.field = known
		f.follow(field.Value(), next)
	}
}

func (f *finder) followCall(e ast.Expr, w flow) {
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case operators.Conditional:
		w.conditional = true
		f.follow(args[1], w)
		f.follow(args[2], w)
	case "dyn":
		f.follow(args[0], w)
	case operators.Add:
		if f.checked.GetType(e.ID()).Kind() != types.ListKind {
			return
		}
		if f.names[args[0].ID()].role != result {
			// In a concatenation, types are not checked, and items are converted.
			w.exact, w.tight = false, false
		}
		f.follow(args[0], w)
		f.follow(args[1], w)
	case "cel.@mapInsert":
		f.follow(args[0], w)
		switch {
		case len(args) == 2:
			f.follow(args[1], w)
		case w.unwrap == "":
			f.follow(args[2], w.into(Step{Kind: Value}, false))
		case strings.HasSuffix(w.unwrap, string(rune(second))):
			f.follow(args[2], w.taken(false))
		}
	case "optional.of", "optional.ofNonZeroValue":
		if w.unwrap != "" {
			return
		}
		w.exact = w.exact && w.optional
		w.optional = false
		w.conditional = w.conditional || call.FunctionName() != "optional.of"
		f.follow(args[0], w)
	case "or", "orValue":
		if w.unwrap != "" || !call.IsMemberFunction() {
			return
		}
		w.conditional = true
		f.follow(args[0], w)
		w.optional = true
		f.follow(call.Target(), w)
	}
}

// followName follows a loop variable to what it stands for.
func (f *finder) followName(e ast.Expr, w flow) {
	v := f.names[e.ID()]
	if v.loop == nil {
		return
	}
	loop := v.loop.AsComprehension()
	w.conditional = true
	switch v.role {
	case result:
		f.follow(loop.AccuInit(), w)
		f.follow(loop.LoopStep(), w)
	case item, second:
		w.unwrap += string(rune(v.role))
		f.follow(loop.IterRange(), w)
	}
}

// fields returns the fields that were found, sorted, with their positions.
func (f *finder) fields(expr []rune) []Field {
	out := make([]Field, 0, len(f.found))
	for at, field := range f.found {
		offset := 0
		if r, ok := f.checked.SourceInfo().GetOffsetRange(at.entry); ok {
			offset = nameBefore(expr, int(r.Start), field.Path[len(field.Path)-1])
		}
		field.Line, field.Column = 1, offset+1
		for i, r := range expr[:offset] {
			if r == '\n' {
				field.Line++
				field.Column = offset - i
			}
		}
		slices.Sort(field.Misnamed)
		out = append(out, *field)
	}
	slices.SortFunc(out, func(a, b Field) int {
		return cmp.Or(
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			slices.CompareFunc(a.Place, b.Place, func(a, b Step) int {
				return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
			}))
	})
	return out
}

// nameBefore returns the position of a field's name, given the offset of the colon after it,
// which is the position that the parser records. If there is a comment between the two, it
// returns the colon.
func nameBefore(expr []rune, colon int, name string) int {
	if colon > len(expr) {
		return 0
	}
	before := []rune(strings.TrimRightFunc(string(expr[:colon]), unicode.IsSpace))
	for _, written := range []string{name, "`" + name + "`"} {
		if strings.HasSuffix(string(before), written) {
			return len(before) - len([]rune(written))
		}
	}
	return colon
}
