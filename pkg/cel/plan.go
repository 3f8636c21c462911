package cel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// planner makes executable plans from checked expressions. It does what cel-go's Env.Program
// does with the same options, except that all plans share the table of functions: Env.Program
// builds a table of several hundred entries for each program, which keeps 30 KiB even for
// `true`.
type planner struct {
	interpreter interpreter.Interpreter
	attributes  interpreter.AttributeFactory
	options     []interpreter.PlannerOption
}

func newPlanner(env *celgo.Env) (*planner, error) {
	tracker, err := costTracker(env)
	if err != nil {
		return nil, err
	}
	dispatcher := interpreter.NewDispatcher()
	for _, fn := range env.Functions() {
		bindings, err := fn.Bindings()
		if err != nil {
			return nil, err
		}
		if err := dispatcher.Add(bindings...); err != nil {
			return nil, err
		}
	}
	provider, adapter := env.CELTypeProvider(), env.CELTypeAdapter()
	attributes := interpreter.NewAttributeFactory(env.Container, adapter, provider)
	return &planner{
		interpreter: interpreter.NewInterpreter(dispatcher, env.Container, provider, adapter, attributes),
		attributes:  attributes,
		// In the order of cel-go's newProgram: decorators of libraries, then
		// interrupts, folding, and the observer last. Guarded calls compile constant
		// regular expressions themselves.
		options: []interpreter.PlannerOption{
			interpreter.CustomDecoratorV2(shortCircuitOptional),
			interpreter.CustomDecoratorV2(guarded(dispatcher)),
			interpreter.InterruptableEval(),
			interpreter.Optimize(),
			interpreter.CostObserver(interpreter.CostTrackerFactory(tracker.Clone)),
		},
	}, nil
}

// costTracker returns the cost tracker that programs of env use. The environment does not
// expose its options, and libraries keep theirs private, so it is taken from a running program:
// an outer evaluation passes its frame to an inner program, which stores its tracker there, and
// at the end the outer observer reports the tracker that it finds in the frame.
func costTracker(env *celgo.Env) (*interpreter.CostTracker, error) {
	expr, issues := env.Compile("true")
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	program, err := env.Program(expr)
	if err != nil {
		return nil, err
	}
	provider, adapter := env.CELTypeProvider(), env.CELTypeAdapter()
	root, err := interpreter.NewInterpreter(interpreter.NewDispatcher(), env.Container, provider, adapter,
		interpreter.NewAttributeFactory(env.Container, adapter, provider),
	).NewInterpretable(expr.NativeRep(),
		interpreter.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			return &lender{InterpretableV2: i, program: program}, nil
		}),
		interpreter.CostObserver(interpreter.CostTrackerFactory(func() (*interpreter.CostTracker, error) {
			return interpreter.NewCostTracker(nil)
		})),
	)
	if err != nil {
		return nil, err
	}
	outer, ok := root.(*interpreter.ObservableInterpretable)
	if !ok {
		return nil, fmt.Errorf("program is not observable: %T", root)
	}
	var tracker *interpreter.CostTracker
	outer.ObserveEval(interpreter.EmptyActivation(), func(state any) {
		tracker, _ = state.(*interpreter.CostTracker)
	})
	if tracker == nil || tracker.Limit == nil || *tracker.Limit != celconfig.PerCallLimit {
		return nil, errors.New("programs of the environment have no cost limit")
	}
	return tracker, nil
}

// lender runs a whole program in the frame of another one.
type lender struct {
	interpreter.InterpretableV2
	program celgo.Program
}

func (l *lender) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	out, _, err := l.program.Eval(frame)
	if err != nil {
		return types.WrapErr(err)
	}
	return out
}

func (l *lender) Eval(vars interpreter.Activation) ref.Val {
	return l.Exec(interpreter.AsFrame(vars))
}

// plan is an executable expression. It is safe for concurrent use.
type plan struct {
	root interpreter.InterpretableV2
	// metered is root if its costs are counted, else nil.
	metered *interpreter.ObservableInterpretable
	// loops says whether the expression has a loop, which can be interrupted.
	loops bool
}

// plan returns the plan for an expression. coverage may be nil.
func (p *planner) plan(checked *ast.AST, loops, metered bool, coverage *Coverage) (plan, error) {
	options := p.options
	if !metered {
		options = options[:len(options)-1]
	}
	options = append(slices.Clip(options), interpreter.CustomDecoratorV2(making))
	if loops {
		options = append(options, interpreter.CustomDecoratorV2(ticking(checked)))
	}
	if coverage != nil {
		options = append(options, interpreter.CustomDecoratorV2(coverage.observing(p.attributes)))
	}
	root, err := p.interpreter.NewInterpretable(checked, options...)
	if err != nil {
		return plan{}, err
	}
	// With a cost observer among the options it is always observable.
	observable, _ := root.(*interpreter.ObservableInterpretable)
	return plan{root: root, metered: observable, loops: loops}, nil
}

// run evaluates and returns the value and what it cost, which is known even if
// there is an error. It follows cel-go's prog.ContextEval, texts included.
func (p plan) run(ctx context.Context, a *Activation) (out ref.Val, cost int64, err error) {
	if a.stop == nil && ctx.Err() != nil {
		a.stop = interpreter.InterruptError{}
	}
	if a.stop != nil {
		return nil, 0, a.halted()
	}
	outer := a.unpaid
	a.unpaid = 0
	defer func() { a.unpaid = outer }()
	frame, err := interpreter.NewExecutionFrame(a)
	if err != nil {
		return nil, 0, err
	}
	defer frame.Close()
	if p.loops && ctx.Done() != nil {
		// Only comprehensions check the context. Other expressions do without the child context
		// that this makes.
		if err := frame.SetContext(ctx, celconfig.CheckFrequency); err != nil {
			return nil, 0, err
		}
	}
	var tracker *interpreter.CostTracker
	out, err = p.exec(frame, &tracker)
	if tracker != nil {
		cost = add(int64(min(tracker.ActualCost(), math.MaxInt64)), a.unpaid)
	}
	if a.stop != nil {
		return nil, cost, a.halted()
	}
	if err != nil && errors.Is(err, interpreter.InterruptError{}) {
		err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return out, cost, short(upstreamNames(err))
}

// maxErrorText bounds the text of an evaluation error, which can quote values. A request can
// have one error for each policy that it matches.
const maxErrorText = 4 << 10

// short cuts the text of an error that is too long.
func short(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) <= maxErrorText {
		return err
	}
	return fmt.Errorf("%s… (%d bytes in all)", strings.ToValidUTF8(text[:maxErrorText], ""), len(text))
}

// halted returns the error of an evaluation that ended early.
func (a *Activation) halted() error {
	if a.stop == error(interpreter.InterruptError{}) {
		return fmt.Errorf("%w: %w", a.stop, context.Cause(a.ctx))
	}
	return a.stop
}

// goTypes replaces names of Go types in error texts of cel-go by the names that appear in-tree,
// where JSON data that is used as a key is a CEL value.
var goTypes = strings.NewReplacer(
	"*cel.objectVal", "*dynamic.ObjectVal", "*cel.variablesVal", "*lazy.MapValue",
	invalidKey+"map[string]interface {}", invalidKey+"*types.baseMap",
	invalidKey+"[]interface {}", invalidKey+"*types.baseList",
	invalidKey+"<nil>", invalidKey+"types.Null",
)

const invalidKey = "invalid qualifier type: "

// upstreamNames gives an error the text that it has in-tree, where that text contains the Go
// type of a value.
func upstreamNames(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if renamed := goTypes.Replace(text); renamed != text {
		return errors.New(renamed)
	}
	return err
}

func (p plan) exec(frame *interpreter.ExecutionFrame, tracker **interpreter.CostTracker) (out ref.Val, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interpreter.EvalCancelledError:
			err = r
		case halt:
			err = r.err
		default:
			// cel-go recovers here too, so that a fault in a library function
			// is an error of the expression.
			err = fmt.Errorf("internal error: %v", r)
		}
	}()
	if p.metered == nil {
		out = p.root.Exec(frame)
	} else {
		out = p.metered.ObserveExec(frame, func(state any) {
			*tracker, _ = state.(*interpreter.CostTracker)
		})
	}
	if e, ok := out.(*types.Err); ok {
		return out, e
	}
	return out, nil
}

// shortCircuitOptional makes `a.or(b)` and `a.orValue(b)` evaluate b only if a
// is empty. cel-go's optional library does the same with a decorator that it
// does not export; the costs depend on it.
func shortCircuitOptional(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) != 2 {
		return i, nil
	}
	var unwrap bool
	switch call.Function() {
	case "or":
		ok = call.OverloadID() == "" || call.OverloadID() == "optional_or_optional"
	case "orValue":
		ok = call.OverloadID() == "" || call.OverloadID() == "optional_orValue_value"
		unwrap = true
	default:
		ok = false
	}
	if !ok {
		return i, nil
	}
	return &optionalOr{id: call.ID(), first: call.Args()[0], second: call.Args()[1], unwrap: unwrap}, nil
}

// optionalOr is the value of the first operand, or else the second operand.
type optionalOr struct {
	id            int64
	first, second interpreter.InterpretableV2
	unwrap        bool
}

func (o *optionalOr) ID() int64 { return o.id }

func (o *optionalOr) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	switch v := o.first.Exec(frame).(type) {
	case *types.Err, *types.Unknown:
		return v
	case *types.Optional:
		switch {
		case !v.HasValue():
			return o.second.Exec(frame)
		case o.unwrap:
			return v.GetValue()
		default:
			return v
		}
	default:
		return types.NoSuchOverloadErr()
	}
}

func (o *optionalOr) Eval(vars interpreter.Activation) ref.Val {
	return o.Exec(interpreter.AsFrame(vars))
}
