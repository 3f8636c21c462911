package quick

import (
	"math"
	"regexp"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// Host supplies a quick evaluation with variables, and limits its work.
type Host interface {
	// Root returns the value of a root variable: a map[string]any, or nil.
	Root(Root) any
	// Variable returns the value of a variable of the policy, false if it is not plain data.
	// The host counts the cost.
	Variable(i int) (any, bool)
	// Work counts units of work and reports whether to continue. It is called at least once for
	// each YieldEvery units.
	Work(units int64) bool
}

// Root is a root variable of expressions.
type Root uint8

// The arguments of Host.Root.
const (
	Object Root = iota
	OldObject
	Request
	Params
	Namespace
)

// Options say how to compile one expression.
type Options struct {
	// Metered counts costs as cel-go does. An evaluation that costs more than
	// PerCallLimit is declined.
	Metered bool
	// Variable says that the expression defines a variable. Expressions that read it have to
	// distinguish data from lists and maps that the expression made.
	Variable bool
	// Roots are the names of root variables.
	Roots map[string]Root
	// Variables is the name of the record of the policy's variables, and Defined returns the
	// index of one, false if Host.Variable does not support it.
	Variables string
	Defined   func(name string) (int, bool)
	// Data converts the leaves of an operation's value other than null, bools and strings.
	Data func(any) (any, bool)
	// Fields is Data for the fields of an Object in the value of an operation.
	Fields func(any) (any, bool)
	// Pattern compiles a regular expression and returns its number of instructions; nil if no
	// evaluation may use it.
	Pattern func(text string) (*regexp.Regexp, int64)
	// Weigh subtracts the size of a value from left, and reports whether there was enough.
	Weigh func(v any, left int64) (int64, bool)
}

// Op is one operation of a JSON Patch.
type Op struct {
	Op, Path string
	// From is empty if it was not given or was given as "".
	From  string
	Value any
	// HasValue distinguishes a value of null from no value.
	HasValue bool
}

// The limits of a quick evaluation, in addition to those that both evaluators have.
const (
	// maxMade bounds the bytes that an evaluation allocates. Above it the evaluation declines,
	// since cel-go counts more exactly.
	maxMade = 4 << 20
	// maxCopied bounds the elements that an evaluation copies to concatenate lists. cel-go does
	// not copy them: concatenating a list with itself again and again costs it next to nothing.
	maxCopied = 4096
)

// The bounds that both evaluators have.
const (
	// YieldEvery is how much work an evaluation does between two calls of Host.Work.
	YieldEvery = 1024
	// WorkBytes is how many bytes of a string count as a unit of work.
	WorkBytes = 64
	// SlotBytes is the size of a list element without the value that it points to.
	SlotBytes = 16
	// MatchAtOnce bounds the product of a regular expression's instructions and a string's
	// bytes up to which the string is matched without interruption, which takes some 50 ms at
	// worst.
	MatchAtOnce = 1 << 22
	// MaxResult is how much the result of an evaluation may weigh, in bytes of JSON.
	MaxResult = 3 << 20
)

// Program is an expression that this package evaluates. It is safe for concurrent
// use.
type Program struct {
	root  part
	slots int
	limit int64
}

// Compile returns a program for a checked expression, nil if the expression contains something
// unsupported. The expression's type determines the result: a list of JSONPatch, an Object, or
// data.
func Compile(checked *ast.AST, o Options) *Program {
	root := checked.Expr()
	r := &reader{Options: o, checked: checked, functions: functions}
	r.forms = o.Variable || r.makesObjects(root)
	to := data
	switch t := checked.GetType(root.ID()); {
	case t.IsExactType(patchType):
		to = operations
	case isObject(t):
		to = dest{kind: wholeObject, path: t.TypeName()}
	}
	p := &Program{root: r.read(root, to, true), slots: r.slots, limit: math.MaxInt64}
	if p.root == nil {
		return nil
	}
	if o.Metered {
		p.limit = celconfig.PerCallLimit
	}
	return p
}

var patchType = types.NewListType(types.NewObjectType(mutation.JSONPatchTypeName))

// isObject reports whether values of a type are those of Object or Object.<fields>.
func isObject(t *types.Type) bool {
	resolved, _ := (&mutation.DynamicTypeResolver{}).Resolve(t.TypeName())
	_, ok := resolved.(*dynamic.ObjectType)
	return ok
}

// Result is the result of an evaluation. It is valid until the next evaluation with the same
// Frames.
type Result struct {
	// Value is the result as data, a map[string]any for an Object, nil for a patch.
	Value any
	// Ops are the operations of a patch.
	Ops []Op
	// Cost is the cost that cel-go would count, without the variables of the policy.
	Cost int64
	// Made is how many bytes were allocated.
	Made int
}

// Frames holds the frames that evaluations reuse. The zero value is ready; it must not be used
// by two goroutines at once.
type Frames struct{ free *frame }

// Run evaluates p. It returns false if it declines: then cel-go has to evaluate the expression
// from the beginning, and the host has to discard what it counted meanwhile, except for the
// bytes that were allocated.
func (p *Program) Run(h Host, frames *Frames) (*Result, bool) {
	f := frames.free
	if f == nil {
		f = &frame{}
	} else {
		frames.free = f.next
	}
	f.host, f.left, f.weight, f.copied = h, YieldEvery, MaxResult, 0
	f.limit, f.metered = p.limit, p.limit != math.MaxInt64
	clear(f.Ops)
	f.Result = Result{Ops: f.Ops[:0]}
	if len(f.loops) < p.slots {
		f.loops = make([]any, p.slots)
	}
	v, ok := p.root(f)
	f.Value = v
	f.next, frames.free = frames.free, f
	ok = ok && f.Cost <= f.limit
	if !f.metered {
		f.Cost = 0
	}
	return &f.Result, ok
}

// part evaluates a part of an expression. It returns false to decline. Parts that
// write operations add them to the frame and return nil.
type part func(f *frame) (any, bool)

// none is the value of an empty optional, and of an operand that was not given.
type none struct{}

// frame is the state of an evaluation. Its lists are reused.
type frame struct {
	Result
	host  Host
	loops []any // values of variables of loops
	text  []byte
	// left is how many units of work remain until the next call of Host.Work.
	left int
	// weight is how many bytes of JSON the result may still have.
	weight int64
	// copied is how many elements were copied to concatenate lists.
	copied  int
	limit   int64 // of Cost
	metered bool
	next    *frame // in a Frames
}

// turn counts an iteration of a loop and reports whether to continue.
func (f *frame) turn() bool {
	f.left--
	return f.left >= 0 || f.rest()
}

// read counts the work of reading a string and reports whether to continue.
func (f *frame) read(bytes int) bool {
	f.left -= bytes / WorkBytes
	return f.left >= 0 || f.rest()
}

// rest calls Host.Work and reports whether to continue.
func (f *frame) rest() bool {
	if f.host == nil {
		return true // there is no host while a constant is computed
	}
	work := int64(YieldEvery - f.left)
	f.left = YieldEvery
	return f.host.Work(work) && f.Cost <= f.limit
}

// make counts bytes before they are allocated and reports whether they may be.
func (f *frame) make(bytes int) bool {
	f.Made += bytes
	return f.Made <= maxMade
}

// weigh reports whether a value fits into the result.
func (f *frame) weigh(v any, weigh func(any, int64) (int64, bool)) bool {
	switch v.(type) {
	case map[string]any, []any, Map, List:
		before := f.weight
		var ok bool
		f.weight, ok = weigh(v, before)
		return ok && f.read(int(before-f.weight))
	}
	return true
}
