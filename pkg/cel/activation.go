package cel

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/mapd-project/mapd/pkg/cel/quick"
	"github.com/mapd-project/mapd/pkg/memory"
)

// RequestAttributes are the attributes that authorizer.requestResource checks.
type RequestAttributes = library.Resource

// Input is what an evaluation can read. Maps are plain JSON data; they are
// read in place and must not be modified as long as a result of the evaluation
// is in use, since results share parts of them. An absent optional field is an
// absent key (spec §6.1).
type Input struct {
	// A nil map is null.
	Object, OldObject, Params, Namespace map[string]any
	// Request returns the value of request. It is called at most once per
	// Activation, and only if an expression reads it.
	Request func() map[string]any
	// User and Authorizer make up authorizer. Without an Authorizer the name
	// compiles and fails at run time, as in-tree.
	User       user.Info
	Authorizer authorizer.UnconditionalAuthorizer
	// Attributes make up authorizer.requestResource, which fails without them.
	Attributes RequestAttributes
	// Outside answers calls of externalData, which fail without it.
	Outside Outside
	// Memory is charged for what evaluations allocate; nil means no limit.
	Memory *memory.Account
	// Turn, if not nil, is called after every YieldEvery units of work.
	Turn Turn
}

// Activation holds the values of one evaluation. A variable is computed when
// it is first touched and then kept, also if it fails. Use a fresh one for
// each mutation; all match conditions of an invocation share one. It must not
// be used by two goroutines at once.
type Activation struct {
	evaluation

	// memos holds one memo for each variable; it is empty until a variable is read. touched
	// lists the variables whose cost was counted, in order.
	memos   []memo
	touched []int
	frames  quick.Frames
	traced  int // estimated bytes of all Traces, see ForgetTraces
}

// evaluation is the part of an Activation that Bind and Rebind replace; they keep the buffers.
type evaluation struct {
	scope  *Scope
	in     *Input
	budget *Budget

	// ctx and spent belong to the evaluation that runs at present. spent is the cost of the
	// variables that it was the first to read.
	ctx   context.Context
	spent int64

	request    map[string]any
	hasRequest bool
	authorizer ref.Val
	resource   ref.Val
	trace      *Trace // nil unless a program is observed

	gauge
}

// memo holds the value and cost of a variable.
type memo struct {
	// plain is the value for quick evaluations if isPlain is set. val is the value for cel-go
	// if it is not nil.
	plain any
	val   ref.Val
	cost  int64
	// paid says that the cost of the variable was counted; before that there is no value.
	isPlain, paid bool
	// slow says that the quick evaluator cannot evaluate the variable.
	slow bool
}

var _ interpreter.Activation = (*Activation)(nil)

// Bind returns the values for programs that were compiled in s. Evaluations
// are charged to b; nil means no budget.
func (s *Scope) Bind(in *Input, b *Budget) *Activation {
	return &Activation{evaluation: s.evaluation(in, b)}
}

func (s *Scope) evaluation(in *Input, b *Budget) evaluation {
	return evaluation{scope: s, in: in, budget: b, gauge: gauge{account: in.Memory, turn: in.Turn}}
}

// Rebind does what s.Bind(in, b) does, in a, and reuses a's buffers. It invalidates
// patches that were evaluated with a before.
func (s *Scope) Rebind(a *Activation, in *Input, b *Budget) *Activation {
	clear(a.memos)
	a.evaluation, a.memos, a.touched = s.evaluation(in, b), a.memos[:0], a.touched[:0]
	return a
}

// ResolveName implements interpreter.Activation.
func (a *Activation) ResolveName(name string) (any, bool) {
	if root, ok := roots[name]; ok {
		return a.Root(root), true
	}
	switch name {
	case authzName:
		if a.in.Authorizer == nil {
			return nil, false
		}
		if a.authorizer == nil {
			a.authorizer = library.NewAuthorizerVal(a.in.User, a.in.Authorizer)
		}
		return a.authorizer, true
	case resourceName:
		if a.in.Authorizer == nil || a.in.Attributes == nil {
			return nil, false
		}
		if a.resource == nil {
			a.resource = library.NewResourceAuthorizerVal(a.in.User, a.in.Authorizer, a.in.Attributes)
		}
		return a.resource, true
	case variablesName:
		return &variablesVal{activation: a}, true
	case meterName:
		return a, true
	default:
		return nil, false
	}
}

// Parent implements interpreter.Activation: there is none.
func (a *Activation) Parent() interpreter.Activation { return nil }

func orNull(m map[string]any) any {
	if m == nil {
		return nil
	}
	return m
}

// variablesVal is the value of the name variables: a record whose fields are computed when an
// expression reads them. It behaves as k8s.io/apiserver's pkg/cel/lazy does, except that its
// fields have an order.
type variablesVal struct {
	activation *Activation
}

var _ traits.Mapper = (*variablesVal)(nil)

var variablesTypeValue = types.NewObjectType(variablesType.TypeName(),
	traits.IndexerType|traits.FieldTesterType|traits.IterableType)

func (v *variablesVal) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), true
	}
	field := string(name)
	if strings.Contains(field, "__") {
		// In-tree, names go through the escaping of typed schemas.
		if field, ok = apiservercel.Unescape(field); !ok {
			return nil, false
		}
	}
	i, ok := v.activation.scope.byName[field]
	if !ok {
		return nil, false
	}
	return v.activation.variable(i), true
}

func (v *variablesVal) Get(key ref.Val) ref.Val {
	if val, ok := v.Find(key); ok {
		return val
	}
	return types.ValOrErr(key, "no such key: %v", key)
}

func (v *variablesVal) Contains(key ref.Val) ref.Val {
	val, ok := v.Find(key)
	if val != nil && types.IsUnknownOrError(val) {
		return val
	}
	return types.Bool(ok)
}

func (v *variablesVal) Size() ref.Val { return types.Int(len(v.activation.scope.variables)) }

// Iterator goes over the names, in the order of their definition.
func (v *variablesVal) Iterator() traits.Iterator {
	names := make([]string, len(v.activation.scope.variables))
	for i := range names {
		names[i] = v.activation.scope.variables[i].name
	}
	return &variablesIterator{Iterator: types.NewStringList(types.DefaultTypeAdapter, names).Iterator(), vals: v}
}

// variablesIterator yields values, not keys, because the one in-tree does.
type variablesIterator struct {
	traits.Iterator
	vals *variablesVal
}

func (it *variablesIterator) Next() ref.Val { return it.vals.Get(it.Iterator.Next()) }

func (v *variablesVal) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("disallowed conversion from %q to %q", variablesTypeValue.TypeName(), t.Name())
}

func (v *variablesVal) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case variablesTypeValue:
		return v
	case types.TypeType:
		return variablesTypeValue
	}
	return types.NewErr("disallowed conversion from %q to %q", variablesTypeValue.TypeName(), t.TypeName())
}

func (v *variablesVal) Equal(other ref.Val) ref.Val {
	o, ok := other.(*variablesVal)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Bool(v.activation == o.activation)
}

func (v *variablesVal) Type() ref.Type { return variablesTypeValue }

func (v *variablesVal) Value() any { return types.NoSuchOverloadErr() }
