package cel

import (
	"context"
	"fmt"

	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/mapd-project/mapd/pkg/cel/quick"
	"github.com/mapd-project/mapd/pkg/memory"
)

// Turn schedules evaluations that take long.
type Turn interface {
	// Yield is called after every YieldEvery units of work. It may block to let other
	// evaluations run; its error ends the evaluation.
	Yield(ctx context.Context) error
}

// The bounds of one evaluation in addition to its cost. In-tree has none of them.
const (
	// MaxMemory bounds the bytes that the values of one evaluation, variables
	// included, take as they are made, whether they are still in use or not.
	MaxMemory = 64 << 20
	// MaxResult bounds the JSON text of a result, in which shared parts count each time they
	// occur. An API server has the same limit for a request (k8s.io/apiserver
	// …/server/config.go: MaxRequestBodyBytes) and for what the copies of one JSON Patch may
	// add to it (JSONPatchMaxCopyBytes).
	MaxResult = quick.MaxResult
	// YieldEvery is the work after which an evaluation checks its context and calls its Turn. A
	// unit is an iteration of a loop, a node of a value, or 64 bytes of a string.
	YieldEvery = quick.YieldEvery

	// chargeStep is how many bytes an evaluation allocates before it charges the
	// memory.Account. Usual evaluations allocate less.
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
	// made are the bytes of values so far; charged is the part of them that the Account was
	// charged.
	made, charged int64
	work          int64
	// unpaid is the cost of work that was refused because it costs too much.
	unpaid int64
	// turned are the iterations of loops so far.
	turned int64
	// size is the estimated JSON size of the last result.
	size int64
	// quick counts evaluations that did not use cel-go.
	quick int
	// stop is the error that ended evaluations with the Activation. All later ones return it,
	// unless it was only the end of their context.
	stop error
}

// halt unwinds an evaluation that must end. It is a panic, as cel-go's cost limit is, since an
// expression can handle errors: `e || true` is true.
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

// chargeWork counts units of work, and ends the evaluation if its context has ended.
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

// read counts the work of reading bytes once.
func (a *Activation) read(bytes int) { a.chargeWork(int64(bytes / workBytes)) }

// yield checks the context and calls the Turn, once for each YieldEvery units of work.
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

// exceed ends the evaluation as cel-go does when the cost is above the limit, but before the
// work is done.
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

// meterName is a name that no expression can contain. An Activation resolves it to itself, so
// that functions find the Activation of an evaluation.
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
