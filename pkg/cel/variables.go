package cel

import (
	"fmt"
	"math"
	"math/bits"

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

// pay adds the cost of a variable to the present evaluation if that is the first to read the
// variable.
func (a *Activation) pay(i int, cost int64) {
	m := a.memo(i)
	if m.paid {
		return
	}
	m.paid, m.cost = true, cost
	a.touched = append(a.touched, i)
	a.spent = add(a.spent, cost)
}

// variable returns the value of a variable for cel-go, which may be an error. It does not use
// the value of the quick evaluator: each evaluator computes the variables that it reads, and
// their equal cost is counted once.
func (a *Activation) variable(i int) ref.Val {
	m := a.memo(i)
	if m.val != nil {
		return m.val
	}
	def := &a.scope.variables[i]
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
	return v
}

// Variable implements quick.Host.
func (a *Activation) Variable(i int) (any, bool) {
	m := a.memo(i)
	p := a.scope.variables[i].program
	if m.isPlain || m.slow || !p.mayTry(a) {
		return m.plain, m.isPlain
	}
	r := p.quickly(a)
	if r == nil {
		m.slow = true
		return nil, false
	}
	a.pay(i, r.Cost)
	m.plain, m.isPlain = r.Value, true
	return r.Value, true
}

// add adds costs, which are not negative. It returns math.MaxInt64 on overflow.
func add(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}

// times multiplies costs. It returns math.MaxInt64 on overflow.
func times(a, b int64) int64 {
	if high, low := bits.Mul64(uint64(a), uint64(b)); high == 0 && low <= math.MaxInt64 {
		return int64(low)
	}
	return math.MaxInt64
}
