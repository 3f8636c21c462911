package cel

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

func (a *Activation) memo(i int) *memo {
	if len(a.memos) == 0 {
		n := len(a.scope.variables)
		if cap(a.memos) < n {
			a.memos = make([]memo, n)
		}
		a.memos = a.memos[:n]
	}
	return &a.memos[i]
}

// pay adds the cost of a variable to the expression under way if it is the first to
// touch it.
func (a *Activation) pay(i int, cost int64) {
	m := a.memo(i)
	if m.paid {
		return
	}
	m.paid, m.cost = true, cost
	a.touched = append(a.touched, i)
	a.spent = add(a.spent, cost)
}

// variable returns the value of a variable for cel-go, which may be an error.
func (a *Activation) variable(i int) ref.Val {
	m := a.memo(i)
	def := &a.scope.variables[i]
	switch {
	case m.val != nil:
	case a.quickly(i) && within(m.plain):
		m.val = def.program.quick.toVal(m.plain)
	default:
		v, cost, err := def.program.run(a)
		a.pay(i, cost)
		if a.stop != nil {
			a.stop = fmt.Errorf("composited variable %q fails to evaluate: %w", def.name, err)
			panic(halt{a.stop})
		}
		if err != nil {
			v = types.NewErr("composited variable %q fails to evaluate: %v", def.name, err)
		}
		m.val = v
	}
	return m.val
}

// plain returns the value of a variable for a quick evaluation.
func (a *Activation) plain(i int) (any, bool) {
	m := a.memo(i)
	if !m.isPlain && m.val != nil && !m.slow {
		left := maxUnfolded
		m.plain, m.isPlain = fromVal(m.val, &left)
		m.slow = !m.isPlain
	}
	if !a.quickly(i) {
		return nil, false
	}
	return m.plain, true
}

// quickly sees to it that the plain value of a variable is known.
func (a *Activation) quickly(i int) bool {
	m := a.memo(i)
	if m.isPlain || m.slow {
		return m.isPlain
	}
	q := &a.scope.variables[i].program.quick
	f := q.begin(a)
	if f == nil {
		return false
	}
	v, ok := q.value(f)
	if !f.end(ok) {
		m.slow = true
		return false
	}
	a.pay(i, f.price())
	m.plain, m.isPlain = v, true
	return true
}

// mark is a state of the variables to which they can be set back.
type mark struct {
	touched int
	spent   int64
}

func (a *Activation) mark() mark { return mark{len(a.touched), a.spent} }

// reset forgets the variables that were touched since: whether cel-go touches the
// same ones is its own affair.
func (a *Activation) reset(to mark) {
	for _, i := range a.touched[to.touched:] {
		a.memos[i] = memo{slow: a.memos[i].slow}
	}
	a.touched = a.touched[:to.touched]
	a.spent = to.spent
}

// add adds costs without overflow.
func add(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<63 - 1
}

// maxUnfolded bounds the parts of a value that are converted between the two kinds of
// evaluation. A conversion makes a part anew at each place where it is used.
const maxUnfolded = 1 << 14

// within reports whether a value can be converted.
func within(v any) bool {
	left := maxUnfolded
	return unfolds(v, &left)
}

func unfolds(v any, left *int) bool {
	*left--
	switch v := v.(type) {
	case madeList:
		for _, e := range v {
			if *left < 0 || !unfolds(e, left) {
				return false
			}
		}
	case madeMap:
		for _, e := range v {
			if *left < 0 || !unfolds(e, left) {
				return false
			}
		}
	}
	return *left >= 0
}

// toVal makes a value of cel-go.
func (q *quick) toVal(v any) ref.Val {
	switch v := v.(type) {
	case madeList:
		out := make([]ref.Val, len(v))
		for i, e := range v {
			out[i] = q.toVal(e)
		}
		return types.NewRefValList(q.adapter, out)
	case madeMap:
		out := make(map[ref.Val]ref.Val, len(v))
		for k, e := range v {
			out[types.String(k)] = q.toVal(e)
		}
		return types.NewRefValMap(q.adapter, out)
	}
	return q.adapter.NativeToValue(v)
}

// fromVal is the way back for what has one and is not of more than left parts.
func fromVal(v ref.Val, left *int) (any, bool) {
	if *left--; *left < 0 {
		return nil, false
	}
	switch v := v.(type) {
	case types.String:
		return string(v), true
	case types.Bool:
		return bool(v), true
	case types.Int:
		return int64(v), true
	case types.Double:
		return float64(v), true
	case types.Null:
		return nil, true
	}
	switch v.Type() {
	case types.ListType, types.MapType:
	default:
		return nil, false
	}
	if t := reflect.TypeOf(v); t != plainList && t != plainMap {
		return nil, false // it would be put together
	}
	switch v := v.Value().(type) {
	case map[string]any:
		return v, v != nil
	case []any:
		return v, v != nil
	case []string:
		return madeList(anyList(v)), true
	case []ref.Val:
		out := make(madeList, len(v))
		for i, e := range v {
			var ok bool
			if out[i], ok = fromVal(e, left); !ok {
				return nil, false
			}
		}
		return out, true
	case map[ref.Val]ref.Val:
		out := make(madeMap, len(v))
		for k, e := range v {
			key, ok := k.(types.String)
			if !ok {
				return nil, false
			}
			if out[string(key)], ok = fromVal(e, left); !ok {
				return nil, false
			}
		}
		return out, true
	}
	return nil, false
}
