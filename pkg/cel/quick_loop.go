package cel

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// loop is a comprehension that looks at each element of a list.
type loop struct {
	over          valueOf
	index, value  int // slots, -1 if there is none
	filter, yield ast.Expr
	test          boolOf // the filter
	// turnCost and keptCost are for each turn and each element that is kept.
	turnCost, keptCost int64
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
	if r.is(step, "_?_:_", 3) {
		args := step.AsCall().Args()
		if !isName(args[2], c.AccuVar()) {
			return nil
		}
		l.filter, step = args[0], args[1]
	}
	if l.over == nil || !r.is(step, "_+_", 2) {
		return nil
	}
	args := step.AsCall().Args()
	if !isName(args[0], c.AccuVar()) || args[1].Kind() != ast.ListKind || args[1].AsList().Size() != 1 || len(args[1].AsList().OptionalIndices()) > 0 {
		return nil
	}
	l.yield = args[1].AsList().Elements()[0]
	// What was gathered, the sum, and the list of one.
	l.keptCost = 1 + 1 + r.price(args[1], 10)
	ok := r.within(c, l, func() bool {
		if l.filter != nil {
			if l.test = r.boolean(l.filter); l.test == nil {
				return false
			}
		}
		return inside(l)
	})
	if !ok {
		return nil
	}
	return l
}

// within runs f while the variables of a loop are known.
func (r *reader) within(c ast.ComprehensionExpr, l *loop, f func() bool) bool {
	known := len(r.loops)
	defer func() { r.loops = r.loops[:known] }()
	// What it gathers is nothing that an expression may read.
	r.loops = append(r.loops, loopVariable{name: c.AccuVar(), hidden: true})
	l.index, l.value = -1, r.declare(c.IterVar(), nil)
	if c.HasIterVar2() {
		l.index, l.value = l.value, r.declare(c.IterVar2(), nil)
	}
	return f()
}

// turn makes v the value of the loop's variable and reports whether it is kept.
func (l *loop) turn(f *frame, i int, v any) (keep, ok bool) {
	if l.index >= 0 {
		f.loops[l.index] = int64(i)
	}
	f.loops[l.value] = v
	f.cost += l.turnCost
	if !f.turn() {
		return false, false
	}
	if l.test != nil {
		if keep, ok := l.test(f); !ok || !keep {
			return false, ok
		}
	}
	f.cost += l.keptCost
	return true, true
}

// elements returns what the loop goes over if it is a list.
func (l *loop) elements(f *frame) ([]any, bool) {
	over, ok := l.over(f)
	if !ok {
		return nil, false
	}
	list, ok := listOf(over)
	f.cost++ // the result's name
	return list, ok
}

// gathered reads map, filter and transformList and makes a list of what yield
// returns.
func (r *reader) gathered(e ast.Expr, read func(ast.Expr) valueOf) func(f *frame) ([]any, bool) {
	var yield valueOf
	l := r.loop(e, func(l *loop) bool {
		yield = read(l.yield)
		return yield != nil
	})
	if l == nil {
		return nil
	}
	return func(f *frame) ([]any, bool) {
		list, ok := l.elements(f)
		if !ok {
			return nil, false
		}
		var out []any
		for i, v := range list {
			keep, ok := l.turn(f, i, v)
			if !ok {
				return nil, false
			}
			if !keep {
				continue
			}
			if v, ok = yield(f); !ok {
				return nil, false
			}
			if out == nil {
				if !f.make(slotBytes * (len(list) - i)) {
					return nil, false
				}
				out = make([]any, 0, len(list)-i)
			}
			out = append(out, v)
		}
		return out, true
	}
}

// quantifier reads all and exists. What a turn gives up on another may decide,
// but cel-go knows that.
func (r *reader) quantifier(e ast.Expr) boolOf {
	c := e.AsComprehension()
	if c.HasIterVar2() || !isName(c.Result(), c.AccuVar()) || c.AccuInit().Kind() != ast.LiteralKind {
		return nil
	}
	init, isBool := c.AccuInit().AsLiteral().(types.Bool)
	ending := init == types.False
	function, condition := "_||_", int64(3)
	if !ending {
		function, condition = "_&&_", 2
	}
	step := c.LoopStep()
	if !isBool || !r.is(step, function, 2) || !isName(step.AsCall().Args()[0], c.AccuVar()) || !r.is(c.LoopCondition(), "@not_strictly_false", 1) {
		return nil
	}
	until := c.LoopCondition().AsCall().Args()[0]
	if ending {
		if !r.is(until, "!_", 1) {
			return nil
		}
		until = until.AsCall().Args()[0]
	}
	if !isName(until, c.AccuVar()) {
		return nil
	}
	// The condition, and the name of what was found so far.
	l := &loop{over: r.value(c.IterRange()), turnCost: condition + 1}
	if l.over == nil {
		return nil
	}
	var test boolOf
	r.within(c, l, func() bool {
		test = r.boolean(step.AsCall().Args()[1])
		return true
	})
	if test == nil {
		return nil
	}
	// one returns whether v decides.
	one := func(f *frame, v any) (decided, ok bool) {
		if _, ok := l.turn(f, 0, v); !ok {
			return false, false
		}
		b, ok := test(f)
		return b == ending, ok
	}
	return func(f *frame) (bool, bool) {
		over, ok := l.over(f)
		if !ok {
			return false, false
		}
		f.cost++ // the result's name
		left := 0
		decided := false
		if m, isMap := mapOf(over); isMap {
			left = len(m)
			for k := range m {
				left--
				if decided, ok = one(f, k); !ok || decided {
					break
				}
			}
		} else {
			list, isList := listOf(over)
			if !isList {
				return false, false
			}
			left = len(list)
			for _, v := range list {
				left--
				if decided, ok = one(f, v); !ok || decided {
					break
				}
			}
		}
		if decided && left > 0 {
			f.cost += condition // of the next turn, which ends the loop
		}
		return decided == ending, ok
	}
}

// unbound is the value of a variable that was not read yet.
type unbound struct{}

// isEmpty tells lists and maps of which cel-go makes some that grow when they are
// added to, if they are what a loop begins with.
func isEmpty(v any) bool {
	list, isList := listOf(v)
	m, isMap := mapOf(v)
	return isList && len(list) == 0 || isMap && len(m) == 0
}

// binding reads what optMap is short for: a loop over nothing whose
// result, which read reads, is about what it would gather into.
func (r *reader) binding(e ast.Expr, read func(ast.Expr) valueOf) valueOf {
	c := e.AsComprehension()
	if c.IterRange().Kind() != ast.ListKind || c.IterRange().AsList().Size() > 0 || c.HasIterVar2() {
		return nil
	}
	init := r.value(c.AccuInit())
	if init == nil {
		return nil
	}
	known := len(r.loops)
	slot := r.declare(c.AccuVar(), init)
	body := read(c.Result())
	r.loops = r.loops[:known]
	if body == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		f.loops[slot] = unbound{}
		return body(f)
	}
}
