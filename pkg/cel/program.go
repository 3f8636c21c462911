package cel

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/mapd-project/mapd/pkg/cel/quick"
)

// Program is one compiled expression. It is safe for concurrent use.
//
// A program that reads nothing (see [Program.Reads]) is evaluated only once;
// its cost is still charged for every use.
type Program struct {
	expr  string
	scope *Scope
	plan  plan
	// quick is tried first; nil if package quick does not support the expression.
	quick *quick.Program
	want  Want
	reads Reads
	// weight is the weight of the expression when it was compiled.
	weight keptWeight
	// uses are the variables that the expression names.
	uses []int
	// constant is the outcome of a program that reads nothing.
	constant atomic.Pointer[outcome]
	// coverage is nil without Options.Observe.
	coverage *Coverage
}

// outcome is the result of one evaluation.
type outcome struct {
	// result is a bool, map[string]any or []PatchOp; for variables a ref.Val.
	result any
	err    error
	// cost does not include the variables that were touched.
	cost    int64
	touched []touch
	size    int64 // see Activation.ResultSize
}

// touch is a variable that an evaluation was the first to read, and its cost.
type touch struct {
	variable int
	cost     int64
}

// Reads returns the names that the expression can read, transitively through
// variables.
func (p *Program) Reads() Reads { return p.reads }

// Bool evaluates a program that was compiled for Bool. The error is ErrBudget,
// or starts with "expression '…' resulted in error: ".
func (p *Program) Bool(ctx context.Context, a *Activation) (bool, error) {
	a.begin(ctx)
	if r := p.quickly(a); r != nil {
		err := a.charge(r.Cost)
		b, _ := r.Value.(bool)
		return b && err == nil, err
	}
	result, err := p.evaluate(a)
	b, _ := result.(bool)
	return b, err
}

// Object evaluates a program that was compiled for Object and returns the
// patch as nested maps and lists. Scalars are what k8s.io/apiserver's
// ObjectVal makes of them, so there can be Go values that JSON does not have
// (spec §7.2). The result may be shared, with the input and with other
// callers: it must not be modified.
func (p *Program) Object(ctx context.Context, a *Activation) (map[string]any, error) {
	a.begin(ctx)
	if r := p.quickly(a); r != nil {
		if err := a.charge(r.Cost); err != nil {
			return nil, err
		}
		return r.Value.(map[string]any), nil
	}
	result, err := p.evaluate(a)
	m, _ := result.(map[string]any)
	return m, err
}

// JSONPatch evaluates a program that was compiled for JSONPatch or TypedPatch. Values are
// plain JSON data (spec §8.2). The result may be shared, with the input and
// with other callers: it must not be modified. It is good until the next evaluation
// with a, or until a is bound again.
func (p *Program) JSONPatch(ctx context.Context, a *Activation) ([]PatchOp, error) {
	a.begin(ctx)
	if r := p.quickly(a); r != nil {
		if err := a.charge(r.Cost); err != nil {
			return nil, err
		}
		return r.Ops, nil
	}
	result, err := p.evaluate(a)
	ops, _ := result.([]PatchOp)
	return ops, err
}

// evaluate evaluates p with cel-go.
func (p *Program) evaluate(a *Activation) (any, error) {
	o := p.constant.Load()
	switch {
	case o != nil:
		a.touchAll(o)
	case p.reads == 0 && p.coverage == nil:
		// Evaluate in a separate Activation, to record all variables that the program reads,
		// even those that were read in a before. Memory and turns are those of a.
		own := a.scope.Bind(&Input{Memory: a.account, Turn: a.turn}, nil)
		own.begin(a.ctx)
		o = p.outcome(own)
		o.size = own.size
		for _, i := range own.touched {
			o.touched = append(o.touched, touch{i, own.memos[i].cost})
		}
		switch bounded := errors.Is(own.stop, errMemory) || errors.Is(own.stop, errList); {
		case bounded: // a limit of this evaluation, so the outcome is not cached
		case own.stop != nil:
			a.stop = own.stop // a limit of the request, or the end of its context
		case a.ctx.Err() == nil:
			p.constant.Store(o)
		}
		a.touchAll(o)
	default:
		o = p.outcome(a)
	}
	if o.size != 0 {
		a.size = o.size
	}
	if err := a.charge(o.cost); err != nil {
		return nil, err
	}
	return o.result, o.err
}

func (a *Activation) touchAll(o *outcome) {
	for _, t := range o.touched {
		a.pay(t.variable, t.cost)
	}
}

// begin prepares for the evaluation of one expression.
func (a *Activation) begin(ctx context.Context) {
	a.ctx = ctx
	a.spent = 0
	if a.stop != nil && errors.Is(a.stop, interpreter.InterruptError{}) {
		a.stop = nil // the new context may have time left
	}
}

// charge follows k8s.io/apiserver …/plugin/cel/activation.go: Evaluate. The
// variables are charged before the expression and both before its error is
// looked at, so that a costly error is an exceeded budget.
func (a *Activation) charge(cost int64) error {
	if err := a.budget.charge(a.spent); err != nil {
		return err
	}
	return a.budget.charge(cost)
}

// outcome runs the program and converts its value.
func (p *Program) outcome(a *Activation) *outcome {
	val, cost, err := p.execute(a)
	o := &outcome{cost: cost}
	if err != nil {
		o.err = fmt.Errorf("expression '%s' resulted in error: %w", p.expr, err)
		return o
	}
	if p.want != Bool && p.want != anything && !a.weighs(val) {
		o.err = p.tooLarge()
		if a.stop != nil {
			o.err = a.halted()
		}
		return o
	}
	switch p.want {
	case Bool:
		// In-tree a condition holds unless its value is false.
		o.result = val != types.False
	case Object:
		o.result, o.err = toObject(val)
	case JSONPatch:
		o.result, o.err = toPatch(val, toJSON)
	case TypedPatch:
		o.result, o.err = toPatch(val, toTyped)
	case anything:
		o.result = val
	}
	return o
}

// run evaluates the program of a variable.
func (p *Program) run(a *Activation) (ref.Val, int64, error) {
	if o := p.constant.Load(); o != nil {
		return o.result.(ref.Val), o.cost, nil
	}
	val, cost, err := p.execute(a)
	if err == nil && p.reads == 0 && p.coverage == nil && len(p.uses) == 0 && immutable(val) {
		p.constant.Store(&outcome{result: val, cost: cost})
	}
	return val, cost, err
}

// immutable reports whether goroutines may share a value. Lists and maps of
// cel-go compute parts of themselves when asked.
func immutable(v ref.Val) bool {
	switch v.(type) {
	case types.Bool, types.Int, types.Uint, types.Double, types.String, types.Null, types.Duration, types.Timestamp:
		return true
	}
	return false
}

// toObject converts the value of an ApplyConfiguration expression (spec §6.3,
// §7.2; k8s.io/apiserver …/mutating/patch/smd.go).
func toObject(val ref.Val) (map[string]any, error) {
	object, ok := val.(*objectVal)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", val.Type())
	}
	if err := checkTypeNames(object); err != nil {
		return nil, err
	}
	m, err := object.native()
	if err != nil {
		// The text names upstream's Go type and hides the reason.
		return nil, errors.New("invalid return type: *dynamic.ObjectVal")
	}
	return m, nil
}

// PatchOp is one operation of a JSON Patch.
type PatchOp = quick.Op

// toPatch converts the value of a JSONPatch expression (spec §8.2;
// k8s.io/apiserver …/mutating/patch/json_patch.go); convert makes data of a value.
func toPatch(val ref.Val, convert func(ref.Val) (any, error)) ([]PatchOp, error) {
	list, ok := val.(traits.Lister)
	if !ok {
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	size, _ := list.Size().(types.Int)
	ops := make([]PatchOp, 0, max(size, 0))
	for it := list.Iterator(); it.HasNext() == types.True; {
		elem := it.Next()
		v, ok := elem.(*mutation.JSONPatchVal)
		if !ok {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of %T", elem)
		}
		op := PatchOp{Op: v.Op, Path: v.Path, From: v.From}
		if v.Val != nil {
			if object, ok := v.Val.(*objectVal); ok {
				if err := checkTypeNames(object); err != nil {
					return nil, err
				}
			}
			value, err := convert(v.Val)
			if err != nil {
				return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
			}
			op.Value, op.HasValue = value, true
		}
		ops = append(ops, op)
	}
	return ops, nil
}
