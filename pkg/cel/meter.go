package cel

import (
	"context"
	"fmt"

	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/mapd-project/mapd/pkg/cel/quick"
	"github.com/mapd-project/mapd/pkg/memory"
)

// Turn decides when an evaluation that takes long goes on.
type Turn interface {
	// Yield is called after every YieldEvery units of work. It may block; its error
	// ends the evaluation.
	Yield(ctx context.Context) error
}

// The bounds of one evaluation beyond its cost. In-tree has none of them.
const (
	// MaxMemory bounds the bytes that the values of one evaluation, variables
	// included, take as they are made, whether they are still in use or not.
	MaxMemory = 64 << 20
	// MaxResult bounds the JSON text of a result, with everything that it shares
	// written out. It is the most that an API server reads of a request
	// (k8s.io/apiserver …/server/config.go: MaxRequestBodyBytes) and that the copies
	// of one JSON Patch may add there (JSONPatchMaxCopyBytes).
	MaxResult = quick.MaxResult
	// YieldEvery is how much work an evaluation does until it looks at its context
	// and asks its Turn. A unit is a turn of a loop, a node of a value, or 64 bytes
	// of a string.
	YieldEvery = quick.YieldEvery

	// chargeStep is how many bytes an evaluation makes before it charges the account.
	// Usual evaluations make less.
	chargeStep = 16 << 10
	workBytes  = quick.WorkBytes
	slotBytes  = quick.SlotBytes
)

var (
	errMemory = fmt.Errorf("operation cancelled: the values of one evaluation take more than %d MiB of memory", MaxMemory>>20)
	errResult = fmt.Errorf("the result takes more than %d MiB of JSON, which is more than an API server takes", MaxResult>>20)
)

// gauge counts what an Activation uses.
type gauge struct {
	account *memory.Account
	turn    Turn
	// made are the bytes of values so far; charged is how much of them the account knows.
	made, charged int64
	work          int64
	// unpaid is the cost of work that was refused because it costs too much.
	unpaid int64
	// turned are the turns of loops so far.
	turned int64
	// size is the weight of the last result.
	size int64
	// quick counts evaluations that needed no cel-go.
	quick int
	// stop is why evaluations with the Activation have ended. It does not go away.
	stop error
}

// halt unwinds an evaluation that must not go on. It is a panic, as the cost limit of
// cel-go is, since an expression can handle errors: `e || true` is true.
type halt struct{ err error }

// use counts bytes that are about to be allocated, and ends the evaluation if they are
// too many.
func (a *Activation) use(bytes int64) {
	if a == nil {
		return
	}
	if err := a.count(bytes); err != nil {
		a.halt(err)
	}
}

// count is like use, but returns an error.
func (a *Activation) count(bytes int64) error {
	if a.made = add(a.made, bytes); a.made > MaxMemory {
		return errMemory
	}
	if more := a.made - a.charged; more >= chargeStep {
		a.charged = a.made
		return a.account.Charge(more)
	}
	return nil
}

// chargeWork counts units of work, and ends the evaluation if its time is over.
func (a *Activation) chargeWork(units int64) {
	if a == nil {
		return
	}
	if a.work = add(a.work, units); a.work >= YieldEvery {
		if err := a.yield(); err != nil {
			a.halt(err)
		}
	}
}

// read counts the work of going through bytes once.
func (a *Activation) read(bytes int) { a.chargeWork(int64(bytes / workBytes)) }

// yield looks at the context and lets others work, once for each YieldEvery units.
func (a *Activation) yield() error {
	if a.ctx == nil {
		a.work = 0
		return nil
	}
	for ; a.work >= YieldEvery; a.work -= YieldEvery {
		if err := a.interrupted(); err != nil {
			return err
		}
		if a.turn == nil {
			a.work %= YieldEvery
			return nil
		}
		if err := a.turn.Yield(a.ctx); err != nil {
			return err
		}
	}
	return nil
}

func (a *Activation) interrupted() error {
	if a.ctx.Err() == nil {
		return nil
	}
	return interpreter.InterruptError{} // plan.run adds the cause
}

// halt ends the evaluation, and every later one with the same Activation.
func (a *Activation) halt(err error) {
	if a.stop == nil {
		a.stop = err
	}
	panic(halt{a.stop})
}

// exceed ends the evaluation as cel-go does when it counts a cost above the limit,
// but before the work is done that costs that much.
func (a *Activation) exceed(cost uint64) {
	if a != nil {
		a.unpaid = add(a.unpaid, int64(min(cost, 1<<62)))
	}
	panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "operation cancelled: actual cost limit exceeded"})
}

// limit ends the evaluation if a cost that is about to be counted is above the limit.
func (a *Activation) limit(cost uint64) {
	if cost > celconfig.PerCallLimit {
		a.exceed(cost)
	}
}

// meterName is a name that no expression can contain. An Activation resolves it to
// itself.
const meterName = "\x00meter"

// activationOf returns the Activation that a frame evaluates with; nil while a
// program is being planned.
func activationOf(frame *interpreter.ExecutionFrame) *Activation {
	v, _ := frame.ResolveName(meterName)
	a, _ := v.(*Activation)
	return a
}

// tooLarge is the error for an expression whose result is above MaxResult.
func (p *Program) tooLarge() error { return fmt.Errorf("expression '%s': %w", p.expr, errResult) }
