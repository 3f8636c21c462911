package cel

import (
	"math"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// quick is a second way to run a program: on plain data, without CEL values for
// what is looked at in between. A part of the language is known to it, and of that
// only what has no error: where it is not sure it gives up, and cel-go evaluates
// from the beginning. So it decides nothing that cel-go would decide otherwise, and
// no error is its own. It counts what cel-go counts (see cost.go).
type quick struct {
	// One of them is set if the program is known.
	condition boolOf
	patch     patchOf
	value     valueOf // an Object or a variable
	// loops is how many variables of loops there are.
	loops   int
	limit   int64
	adapter types.Adapter
}

// Parts of an expression. The last result is false if the part gave up.
type (
	valueOf    func(f *frame) (any, bool)
	boolOf     func(f *frame) (value, ok bool)
	optionalOf func(f *frame) (value any, has, ok bool)
	patchOf    func(f *frame) bool // puts its operations into the frame
)

// frame is what an evaluation works with. Its lists are used again and again.
type frame struct {
	in    *Input
	act   *Activation
	loops []any // values of variables of loops
	ops   []PatchOp
	text  []byte
	// left is what may be done until the context is asked, in units of work, and made
	// how many bytes were made.
	left, made int
	// scale is what is left of a result's weight.
	scale scale
	// copied is how many elements of lists were copied to put lists together.
	copied int
	// cost is what cel-go would have counted so far, without variables.
	cost, limit int64
	start       mark
	next        *frame // among those that are free
}

// maxMade is how many bytes an evaluation makes at most. cel-go counts more exactly.
const maxMade = 4 << 20

// maxCopied is how many elements an evaluation copies at most to put lists together.
// cel-go does not copy them: a list that is put together with itself again and again
// costs it next to nothing.
const maxCopied = 4096

// turn counts one turn of a loop and reports whether to go on.
func (f *frame) turn() bool {
	f.left--
	return f.left >= 0 || f.rest()
}

// read counts the work of going through a text and reports whether to go on.
func (f *frame) read(bytes int) bool {
	f.left -= bytes / workBytes
	return f.left >= 0 || f.rest()
}

// rest asks whether to go on.
func (f *frame) rest() bool {
	a := f.act
	if a == nil {
		return true // a constant is made
	}
	a.work += int64(YieldEvery - f.left)
	f.left = YieldEvery
	if err := a.yield(); err != nil {
		a.stop = err
		return false
	}
	return f.cost <= f.limit
}

// make counts bytes before they are allocated and reports whether they may be.
func (f *frame) make(bytes int) bool {
	f.made += bytes
	return f.made <= maxMade
}

// weigh reports whether there is room for a value in the result.
func (f *frame) weigh(v any) bool {
	switch v.(type) {
	case map[string]any, []any, madeMap, madeList:
		before := f.scale.left
		return f.scale.data(v) && f.read(int(before-f.scale.left))
	}
	return true
}

// known reports whether there is a quick way.
func (q *quick) known() bool { return q.condition != nil || q.patch != nil || q.value != nil }

// begin takes a frame for an evaluation with a, nil if there is no use in it.
func (q *quick) begin(a *Activation) *frame {
	if !q.known() || a.stop != nil || a.ctx.Err() != nil {
		return nil
	}
	f := a.frames
	if f == nil {
		f = &frame{}
	} else {
		a.frames = f.next
	}
	f.in, f.act, f.start, f.left, f.made, f.scale.left, f.copied, f.cost, f.limit = a.in, a, a.mark(), YieldEvery, 0, MaxResult, 0, 0, q.limit
	clear(f.ops)
	f.ops = f.ops[:0]
	if len(f.loops) < q.loops {
		f.loops = make([]any, q.loops)
	}
	return f
}

// end gives the frame back; what is in it stays until it is taken again. It reports
// whether the evaluation counts: above the limit cel-go stops with an error. If not,
// nothing of it is left behind.
func (f *frame) end(ok bool) bool {
	a := f.act
	f.next, a.frames = a.frames, f
	if a.stop == nil && f.made >= chargeStep {
		a.stop = a.count(int64(f.made))
	}
	if ok && f.cost <= f.limit && a.stop == nil {
		return true
	}
	a.reset(f.start)
	return false
}

// price is what the evaluation cost if costs are counted.
func (f *frame) price() int64 {
	if f.limit == math.MaxInt64 {
		return 0
	}
	return f.cost
}

// reader finds a quick way through a checked expression. Its methods return nil
// for what they do not know.
type reader struct {
	checked *ast.AST
	scope   *Scope
	loops   []loopVariable // the innermost last
	slots   int
	metered bool
	// forms is whether it matters which lists and maps are made by the expression.
	forms bool
	// leaf converts what values of patches have beside JSON data.
	leaf func(any) (any, bool)
}

func newQuick(s *Scope, checked *ast.AST, adapter types.Adapter, want Want) quick {
	r := &reader{checked: checked, scope: s, metered: !s.vars.Unmetered, forms: want == anything}
	r.forms = r.forms || r.makesObjects(checked.Expr())
	q := quick{limit: math.MaxInt64, adapter: adapter}
	if r.metered {
		q.limit = celconfig.PerCallLimit
	}
	switch want {
	case Bool:
		q.condition = r.boolean(checked.Expr())
	case JSONPatch:
		r.leaf = dataLeaf
		q.patch = r.patch(checked.Expr())
	case TypedPatch:
		r.leaf = typedLeaf
		q.patch = r.patch(checked.Expr())
	case Object:
		q.value = r.object(checked.Expr())
	case anything:
		q.value = r.value(checked.Expr())
	}
	q.loops = r.slots
	return q
}

// makesObjects reports whether there is a literal of an Object. A patch may have some
// among its values.
func (r *reader) makesObjects(root ast.Expr) (found bool) {
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) { found = found || r.makesObject(e) }))
	return found
}

// makesObject reports whether e is a literal of type Object or Object.<fields>, whose
// value has the fields that are written. Other literals, as those of
// google.protobuf.StringValue, have values of their own.
func (r *reader) makesObject(e ast.Expr) bool {
	return e.Kind() == ast.StructKind && isObject(r.checked.GetType(e.ID()))
}

// loopVariable has a slot of its own: what computes it may run inside the loops that
// read it, and has loops too.
type loopVariable struct {
	name string
	slot int
	init valueOf // computes it when it is first read, if it is not nil
	// hidden is that of a name that stands for what is not known here.
	hidden bool
}

// declare makes a variable of a loop known and returns its slot.
func (r *reader) declare(name string, init valueOf) int {
	r.loops = append(r.loops, loopVariable{name: name, slot: r.slots, init: init})
	r.slots++
	return r.slots - 1
}

// variable returns a variable of a loop, nil for other names.
func (r *reader) variable(name string) *loopVariable {
	for i := range slices.Backward(r.loops) {
		if r.loops[i].name == name {
			return &r.loops[i]
		}
	}
	return nil
}

// is reports whether e is a call of a function with that many operands, the one
// before the dot included, which the checker lets end in an overload that is known
// here. What a call looks like does not decide: if the operands have other types,
// others of its overloads are called, or none.
func (r *reader) is(e ast.Expr, function string, operands int) bool {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != function || len(operandsOf(e)) != operands {
		return false
	}
	ref := r.checked.ReferenceMap()[e.ID()]
	return ref != nil && slices.ContainsFunc(ref.OverloadIDs, func(id string) bool { return knownOverloads[id] })
}

// knownOverloads are the overloads that the quick way implements. Their names are
// unique among all functions.
var knownOverloads = map[string]bool{
	overloads.ToDyn: true, overloads.TypeConvertType: true,
	overloads.Conditional: true, overloads.LogicalAnd: true, overloads.LogicalOr: true, overloads.LogicalNot: true,
	overloads.NotStrictlyFalse: true, overloads.Equals: true, overloads.NotEquals: true,
	overloads.LessInt64: true, overloads.LessEqualsInt64: true, overloads.GreaterInt64: true, overloads.GreaterEqualsInt64: true,
	overloads.AddInt64: true, overloads.AddString: true, overloads.AddList: true, overloads.SubtractInt64: true,
	overloads.InList: true, overloads.InMap: true, overloads.IndexList: true, overloads.IndexMap: true,
	overloads.SizeString: true, overloads.SizeList: true, overloads.SizeMap: true,
	overloads.SizeStringInst: true, overloads.SizeListInst: true, overloads.SizeMapInst: true,
	overloads.StringToString: true, overloads.BoolToString: true, overloads.IntToString: true,
	overloads.ContainsString: true, overloads.StartsWithString: true, overloads.EndsWithString: true,
	overloads.Matches: true, overloads.MatchesString: true,
	// Of cel-go's extensions and of Kubernetes.
	"optional_of": true, "optional_none": true, "optional_value": true, "optional_hasValue": true,
	"optional_or_optional": true, "optional_orValue_value": true, "select_optional_field": true,
	"list_optindex_optional_int": true, "optional_list_optindex_optional_int": true, "optional_list_index_int": true,
	"map_optindex_optional_value": true, "optional_map_optindex_optional_value": true, "optional_map_index_value": true,
	"string_substring_int": true, "string_substring_int_int": true, "list_join": true, "list_join_string": true,
	"list_reverse": true, "list_flatten": true, "string_jsonpatch_escapeKey_string": true,
}

func operandsOf(e ast.Expr) []ast.Expr {
	c := e.AsCall()
	if c.IsMemberFunction() {
		return append([]ast.Expr{c.Target()}, c.Args()...)
	}
	return c.Args()
}

func isTrue(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == types.True
}

func isName(e ast.Expr, name string) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == name
}
