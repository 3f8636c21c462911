package quick

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// comprehension reads the expansions of macros: map, filter and transformList collect values in
// a list; all and exists test each element; optMap binds a name. It declines all others.
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

// loopVariable is a variable of a loop. It has a slot of its own, since the part that computes
// it may run inside the loops that read it, and may have loops too.
type loopVariable struct {
	name string
	read part // nil for the accumulator, which no expression may read
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

// loop is a comprehension over the elements of a list or the keys of a map.
type loop struct {
	over         part
	index, value int  // slots; index is -1 if there is none
	test         part // nil: all elements are kept
	// turnCost is the cost of each iteration, keptCost that of each element that is kept.
	turnCost, keptCost int64
}

// within calls f while the variables of a loop are declared.
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

// turn sets the loop's variable to v and reports whether the element is kept.
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

// gathered reads a loop that appends one value to its accumulator for each element, or for each
// that passes a test.
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
	// The accumulator, the sum, and the list of one element.
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

// quantifier reads all and exists. If an iteration declines, a later one might decide, but that
// is left to cel-go.
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
	// The condition, and the name of the accumulator.
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
		// ask tests one element, which is followed by after others, and reports whether the
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
				f.Cost += condition // of the next iteration, which ends the loop
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

// unbound is the value of a variable that was not computed yet.
type unbound struct{}

// bound reads the expansion of optMap: a loop over an empty range whose result reads the
// accumulator. The accumulator is computed when it is first read. bound declines empty lists
// and maps, since cel-go makes some that grow when they are added to.
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
