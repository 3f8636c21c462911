package cel

import (
	"math/rand/v2"
	"reflect"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// cel-go counts the cost of a call after it has returned, and some calls cost little however
// long they take. So calls whose time or memory depends on their operands are guarded: the
// guard looks at the operands first, counts the work and the memory of the call, and does calls
// that can take long in steps, between which it checks the context.

// guard executes a call, or returns an error value instead.
type guard func(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val

// call replaces a call of a guarded function. It costs what the replaced one costs.
type call struct {
	interpreter.InterpretableCall
	args  []interpreter.InterpretableV2
	impl  *functions.Overload
	guard guard
	// inTurn says that operands are evaluated in order, that those after a failed one are not
	// evaluated, and that the call costs nothing then.
	inTurn bool
	// regex is the pattern of a call of matches, find or findAll if it is constant.
	regex *pattern
}

// guarded replaces the calls of guarded functions. It must come before decorators that observe
// values or costs.
func guarded(dispatcher interpreter.Dispatcher) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		was, ok := i.(interpreter.InterpretableCall)
		if !ok {
			return i, nil
		}
		g := guards[was.Function()]
		if g == nil {
			return i, nil
		}
		c := &call{InterpretableCall: was, args: was.Args(), guard: g}
		if id := was.OverloadID(); id != "" {
			c.impl, _ = dispatcher.FindOverload(id)
		}
		if c.impl == nil {
			c.impl, _ = dispatcher.FindOverload(was.Function())
		}
		err := c.compileRegex()
		// cel-go makes a call with a constant pattern one with any number of operands.
		c.inTurn = reflect.TypeOf(was) == variadic || c.regex != nil
		return c, err
	}
}

// variadic is cel-go's type of calls with any number of operands. The types for one and for two
// operands evaluate all of them before they look for errors.
var variadic = reflect.TypeOf(interpreter.NewCall(0, "", "", nil, nil))

// Exec follows cel-go's calls of one, two and any number of operands.
func (c *call) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := make([]ref.Val, len(c.args))
	var failed ref.Val
	for i, arg := range c.args {
		args[i] = arg.Exec(frame)
		if failed == nil && types.IsUnknownOrError(args[i]) {
			if failed = args[i]; c.inTurn {
				return failed
			}
		}
	}
	if failed != nil {
		return failed
	}
	return types.LabelErrNode(c.ID(), c.guard(frame, c, args))
}

// Eval implements interpreter.Interpretable.
func (c *call) Eval(vars interpreter.Activation) ref.Val { return c.Exec(interpreter.AsFrame(vars)) }

// lightText is the length up to which the work on a string is not counted.
const lightText = 512

// plain executes the call as cel-go does.
func (c *call) plain(args []ref.Val) ref.Val {
	impl := c.impl
	if impl != nil && (impl.OperandTrait == 0 || args[0].Type().HasTrait(impl.OperandTrait)) {
		switch {
		case len(args) == 1 && impl.Unary != nil:
			return impl.Unary(args[0])
		case len(args) == 2 && impl.Binary != nil:
			return impl.Binary(args[0], args[1])
		case impl.Function != nil:
			return impl.Function(args...)
		}
	}
	if args[0].Type().HasTrait(traits.ReceiverType) {
		return args[0].(traits.Receiver).Receive(c.Function(), c.OverloadID(), args[1:])
	}
	if len(args) > 2 {
		return types.NewErr("no such overload: %s %d", c.Function(), c.ID())
	}
	return types.NewErr("no such overload: %s", c.Function())
}

// ticking makes the loops of a program count their iterations. It wraps the condition of a
// loop, which is evaluated once per iteration and is used by the loop only. So it comes after
// the options of the planner.
func ticking(checked *ast.AST) interpreter.InterpretableDecoratorV2 {
	bytes := map[int64]int64{} // bytes that an iteration adds to the result, by the ID of the loop's condition
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.ComprehensionKind {
			return
		}
		c := e.AsComprehension()
		gathers := c.AccuInit().Kind() == ast.ListKind || c.AccuInit().Kind() == ast.MapKind
		bytes[c.LoopCondition().ID()] = int64(index(gathers)) * 2 * slotBytes
	}))
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		if n, ok := bytes[i.ID()]; ok {
			return &tick{i, n}, nil
		}
		return i, nil
	}
}

// tick is the condition of a loop, and counts its iterations.
type tick struct {
	interpreter.InterpretableV2
	bytes int64
}

// ticks is how many iterations a counted one stands for: an iteration is counted with a
// probability of 1/ticks, since finding the Activation takes longer than many iterations.
// Memory is counted exactly, or the same request would be refused on one replica and allowed on
// another.
const ticks = 32

// turns counts iterations of a loop. cel-go's cost tracker keeps the values that it has seen
// and searches them at each iteration, so an iteration after 100,000 others takes 100 µs.
func (a *Activation) turns(n int64) {
	if a == nil {
		return
	}
	a.turned += n
	a.chargeWork(n * (4 + a.turned/64))
}

func (t *tick) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	counted := rand.Uint32()%ticks == 0
	if t.bytes > 0 || counted {
		a := activationOf(frame)
		if t.bytes > 0 {
			a.use(t.bytes)
		}
		if counted {
			a.turns(ticks)
		}
	}
	return t.InterpretableV2.Exec(frame)
}

func (t *tick) Eval(vars interpreter.Activation) ref.Val { return t.Exec(interpreter.AsFrame(vars)) }

// bigLiteral is the number of parts from which on the memory of a literal is counted. Its CEL
// cost does not depend on their number.
const bigLiteral = 16

// making makes big literals count their memory. Like ticking it comes after the
// options of the planner.
func making(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if c, ok := i.(interpreter.InterpretableConstructor); ok && len(c.InitVals()) >= bigLiteral {
		return &literal{i, int64(len(c.InitVals()))}, nil
	}
	return i, nil
}

// literal is a literal list, map or object of many parts.
type literal struct {
	interpreter.InterpretableV2
	parts int64
}

func (l *literal) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	a := activationOf(frame)
	a.use(l.parts * 2 * slotBytes)
	a.chargeWork(l.parts)
	return l.InterpretableV2.Exec(frame)
}

func (l *literal) Eval(vars interpreter.Activation) ref.Val {
	return l.Exec(interpreter.AsFrame(vars))
}
