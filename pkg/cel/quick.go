package cel

import (
	"context"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// quick is a second way to run a program that counts no costs: on plain data,
// without CEL values for what is looked at in between. A part of the language is
// known to it, and of that only what has no error: where it is not sure it gives
// up, and cel-go evaluates from the beginning. So it decides nothing that cel-go
// would decide otherwise, and no error is its own.
type quick struct {
	condition boolOf
	patch     patchOf
	// loops is how many variables of loops there are at once.
	loops int
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
	loops []any // values of variables
	ops   []PatchOp
	text  []byte
	ctx   context.Context
	turns int
}

// turnsBetween is how many turns of loops are made until the context is asked.
const turnsBetween = 1024

// turn counts one turn of a loop and reports whether to go on.
func (f *frame) turn() bool {
	f.turns++
	return f.turns%turnsBetween != 0 || f.ctx.Err() == nil
}

// begin makes a's frame ready.
func (q *quick) begin(ctx context.Context, a *Activation) *frame {
	if a.frame == nil {
		a.frame = &frame{}
	}
	f := a.frame
	f.in, f.act, f.ctx, f.turns = a.in, a, ctx, 0
	clear(f.ops)
	f.ops = f.ops[:0]
	if len(f.loops) < q.loops {
		f.loops = make([]any, q.loops)
	}
	return f
}

func (q *quick) bool(ctx context.Context, a *Activation) (value, ok bool) {
	if q.condition == nil || ctx.Err() != nil {
		return false, false
	}
	return q.condition(q.begin(ctx, a))
}

// operations returns a patch that is good until the activation's next evaluation.
func (q *quick) operations(ctx context.Context, a *Activation) ([]PatchOp, bool) {
	if q.patch == nil || ctx.Err() != nil {
		return nil, false
	}
	f := q.begin(ctx, a)
	ok := q.patch(f)
	return f.ops, ok
}

// reader finds a quick way through a checked expression. Its methods return nil
// for what they do not know.
type reader struct {
	checked *ast.AST
	loops   []string // the names of variables of loops, the innermost last
	deepest int
}

func newQuick(checked *ast.AST, want Want) quick {
	r := &reader{checked: checked}
	var q quick
	switch want {
	case Bool:
		q.condition = r.boolean(checked.Expr())
	case TypedPatch:
		q.patch = r.patch(checked.Expr())
	}
	q.loops = r.deepest
	return q
}

// variable returns the slot of a variable of a loop, -1 for other names.
func (r *reader) variable(name string) int {
	for i, v := range slices.Backward(r.loops) {
		if v == name {
			return i
		}
	}
	return -1
}

// is reports whether e is a call of a function with that many operands, the one
// before the dot included.
func is(e ast.Expr, function string, operands int) bool {
	return e.Kind() == ast.CallKind && e.AsCall().FunctionName() == function && len(operandsOf(e)) == operands
}

func operandsOf(e ast.Expr) []ast.Expr {
	c := e.AsCall()
	if c.IsMemberFunction() {
		return append([]ast.Expr{c.Target()}, c.Args()...)
	}
	return c.Args()
}

// loop is a comprehension that makes something of each element of a list.
type loop struct {
	over          valueOf
	index, value  int // slots, -1 if there is none
	filter, yield ast.Expr
	// keys says that the keys of a map will do as well: their order is any.
	keys bool
}

// loop understands what map, filter and transformList are short for, which
// gather, and calls inside while the loop's variables are known.
func (r *reader) loop(e ast.Expr, inside func(l *loop) bool) *loop {
	c := e.AsComprehension()
	if c.AccuInit().Kind() != ast.ListKind || c.AccuInit().AsList().Size() > 0 || !isTrue(c.LoopCondition()) || !isName(c.Result(), c.AccuVar()) {
		return nil
	}
	l := &loop{over: r.value(c.IterRange())}
	step := c.LoopStep()
	if is(step, "_?_:_", 3) {
		args := step.AsCall().Args()
		if !isName(args[2], c.AccuVar()) {
			return nil
		}
		l.filter, step = args[0], args[1]
	}
	if l.over == nil || !is(step, "_+_", 2) {
		return nil
	}
	args := step.AsCall().Args()
	if !isName(args[0], c.AccuVar()) || args[1].Kind() != ast.ListKind || args[1].AsList().Size() != 1 || len(args[1].AsList().OptionalIndices()) > 0 {
		return nil
	}
	l.yield = args[1].AsList().Elements()[0]
	if !r.within(c, l, func() bool { return inside(l) }) {
		return nil
	}
	return l
}

// within runs f while the variables of a loop are known.
func (r *reader) within(c ast.ComprehensionExpr, l *loop, f func() bool) bool {
	known := len(r.loops)
	defer func() { r.loops = r.loops[:known] }()
	// What it gathers must not be taken for anything else.
	r.loops = append(r.loops, c.AccuVar(), c.IterVar())
	l.index, l.value = -1, known+1
	if c.HasIterVar2() {
		r.loops = append(r.loops, c.IterVar2())
		l.index, l.value = known+1, known+2
	}
	r.deepest = max(r.deepest, len(r.loops))
	return f()
}

// each runs body for each element. It gives up where body does, and over what
// has none.
func (l *loop) each(f *frame, body func(f *frame) (more, ok bool)) bool {
	over, ok := l.over(f)
	if !ok {
		return false
	}
	turn := func(v any) (more, ok bool) {
		f.loops[l.value] = v
		if !f.turn() {
			return false, false
		}
		return body(f)
	}
	switch over := over.(type) {
	case []any:
		for i, v := range over {
			if l.index >= 0 {
				f.loops[l.index] = int64(i)
			}
			if more, ok := turn(v); !ok || !more {
				return ok
			}
		}
		return true
	case map[string]any:
		if !l.keys {
			return false
		}
		for k := range over {
			if more, ok := turn(k); !ok || !more {
				return ok
			}
		}
		return true
	}
	return false
}

func isTrue(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == types.True
}

func isName(e ast.Expr, name string) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == name
}
