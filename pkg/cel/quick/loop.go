package quick

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// comprehension reads what macros are short for: map, filter and transformList gather
// what they yield in a list; all and exists ask a question of each element; optMap
// binds a name. Others decline.
func (r *reader) comprehension(c ast.ComprehensionExpr, d dest) part {
	result := isName(c.Result(), c.AccuVar())
	switch {
	case result && isEmptyList(c.AccuInit()) && isTrue(c.LoopCondition()):
		return r.gathered(c, d)
	case result && c.AccuInit().Kind() == ast.LiteralKind && !c.HasIterVar2():
		return r.converted(r.quantifier(c), d)
	case isEmptyList(c.IterRange()) && !c.HasIterVar2():
		return r.bound(c, d)
	}
	return nil
}

// loopVariable has a slot of its own: what computes it may run inside the loops that
// read it, and has loops too.
type loopVariable struct {
	name string
	read part // nil for the variable of what is gathered, which no expression may read
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

// slot returns a new slot for a variable of a loop.
func (r *reader) slot() int {
	r.slots++
	return r.slots - 1
}

// declare makes a variable of a loop known and returns its slot.
func (r *reader) declare(name string) int {
	slot := r.slot()
	r.loops = append(r.loops, loopVariable{name, func(f *frame) (any, bool) { return f.loops[slot], true }})
	return slot
}

// loop is a comprehension that looks at each element of a list or key of a map.
type loop struct {
	over         part
	index, value int  // slots; index is -1 if there is none
	test         part // nil: all elements are kept
	// turnCost and keptCost are for each turn and each element that is kept.
	turnCost, keptCost int64
}

// within calls f while the variables of a loop are known.
func (r *reader) within(c ast.ComprehensionExpr, l *loop, f func()) {
	known := len(r.loops)
	defer func() { r.loops = r.loops[:known] }()
	r.loops = append(r.loops, loopVariable{name: c.AccuVar()})
	l.index, l.value = -1, r.declare(c.IterVar())
	if c.HasIterVar2() {
		l.index, l.value = l.value, r.declare(c.IterVar2())
	}
	f()
}

// turn makes v the value of the loop's variable and reports whether it is kept.
func (l *loop) turn(f *frame, i int, v any) (keep, ok bool) {
	if l.index >= 0 {
		f.loops[l.index] = int64(i)
	}
	f.loops[l.value] = v
	f.Cost += l.turnCost
	if !f.turn() {
		return false, false
	}
	if l.test != nil {
		if keep, ok := truth(l.test, f); !ok || !keep {
			return false, ok
		}
	}
	f.Cost += l.keptCost
	return true, true
}

// gathered reads a loop that adds a list of one to what it has gathered, for each
// element that passes a test if there is one.
func (r *reader) gathered(c ast.ComprehensionExpr, d dest) part {
	step := c.LoopStep()
	var filter ast.Expr
	if r.calls(step, operators.Conditional) {
		args := operandsOf(step)
		if !isName(args[2], c.AccuVar()) {
			return nil
		}
		filter, step = args[0], args[1]
	}
	if !r.calls(step, operators.Add) {
		return nil
	}
	args := operandsOf(step)
	if !isName(args[0], c.AccuVar()) || args[1].Kind() != ast.ListKind || args[1].AsList().Size() != 1 || len(args[1].AsList().OptionalIndices()) > 0 {
		return nil
	}
	l := &loop{over: r.value(c.IterRange())}
	if l.over == nil {
		return nil
	}
	// What was gathered, the sum, and the list of one.
	l.keptCost = 1 + 1 + 10
	var yield part
	r.within(c, l, func() {
		if r.constant(args[1]) {
			l.keptCost -= 10
		}
		if filter != nil {
			if l.test = r.value(filter); l.test == nil {
				return
			}
		}
		yield = r.read(args[1].AsList().Elements()[0], d.item(), true)
	})
	if yield == nil {
		return nil
	}
	writes, finish := d.kind == toOperations, r.newList(d)
	of := func(f *frame) (any, bool) {
		over, ok := l.over(f)
		list, isList := listOf(over)
		if !ok || !isList {
			return nil, false
		}
		f.Cost++ // the result's name
		var out []any
		for i, v := range list {
			keep, ok := l.turn(f, i, v)
			if ok && !keep {
				continue
			}
			if ok {
				v, ok = yield(f)
			}
			if !ok {
				return nil, false
			}
			if writes {
				continue
			}
			if out == nil {
				if !f.make(SlotBytes * (len(list) - i)) {
					return nil, false
				}
				out = make([]any, 0, len(list)-i)
			}
			out = append(out, v)
		}
		if writes {
			return nil, true
		}
		return finish(out), true
	}
	if writes {
		return of
	}
	return r.finished(of, d)
}

// quantifier reads all and exists. Where a turn declines another might decide, but
// cel-go knows that.
func (r *reader) quantifier(c ast.ComprehensionExpr) part {
	init, isBool := c.AccuInit().AsLiteral().(types.Bool)
	ending := init == types.False
	function, condition := operators.LogicalOr, int64(3)
	if !ending {
		function, condition = operators.LogicalAnd, 2
	}
	step := c.LoopStep()
	if !isBool || !r.calls(step, function) || !isName(operandsOf(step)[0], c.AccuVar()) || !r.calls(c.LoopCondition(), operators.NotStrictlyFalse) {
		return nil
	}
	until := operandsOf(c.LoopCondition())[0]
	if ending {
		if !r.calls(until, operators.LogicalNot) {
			return nil
		}
		until = operandsOf(until)[0]
	}
	if !isName(until, c.AccuVar()) {
		return nil
	}
	// The condition, and the name of what was found so far.
	l := &loop{over: r.value(c.IterRange()), turnCost: condition + 1}
	if l.over == nil {
		return nil
	}
	var test part
	r.within(c, l, func() { test = r.value(operandsOf(step)[1]) })
	if test == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		over, ok := l.over(f)
		if !ok {
			return nil, false
		}
		f.Cost++ // the result's name
		decided := false
		// ask asks about one element, with so many after it, and reports whether the
		// loop ends.
		ask := func(v any, after int) bool {
			if _, ok = l.turn(f, 0, v); !ok {
				return true
			}
			var b bool
			if b, ok = truth(test, f); !ok || b != ending {
				return !ok
			}
			decided = true
			if after > 0 {
				f.Cost += condition // of the next turn, which ends the loop
			}
			return true
		}
		if m, isMap := mapOf(over); isMap {
			left := len(m)
			for k := range m {
				left--
				if ask(k, left) {
					break
				}
			}
		} else if list, isList := listOf(over); isList {
			for i, v := range list {
				if ask(v, len(list)-1-i) {
					break
				}
			}
		} else {
			return nil, false
		}
		return decided == ending, ok
	}
}

// unbound is the value of a variable that was not read yet.
type unbound struct{}

// bound reads what optMap is short for: a loop over nothing whose result is about what
// it would gather into. That is computed when it is first read. It declines empty lists
// and maps, of which cel-go makes some that grow when they are added to.
func (r *reader) bound(c ast.ComprehensionExpr, d dest) part {
	init := r.value(c.AccuInit())
	if init == nil {
		return nil
	}
	slot, known := r.slot(), len(r.loops)
	r.loops = append(r.loops, loopVariable{c.AccuVar(), func(f *frame) (any, bool) {
		v := f.loops[slot]
		if _, waits := v.(unbound); !waits {
			return v, true
		}
		v, ok := init(f)
		f.loops[slot] = v
		list, isList := listOf(v)
		m, isMap := mapOf(v)
		return v, ok && !(isList && len(list) == 0 || isMap && len(m) == 0)
	}})
	body := r.read(c.Result(), d, true)
	r.loops = r.loops[:known]
	if body == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		f.loops[slot] = unbound{}
		return body(f)
	}
}
