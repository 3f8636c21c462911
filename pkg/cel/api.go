package cel

import (
	"context"

	"errors"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"
)

type Options struct{ Version string }
type Env struct{}

func NewEnv(opts Options) (*Env, error) { return &Env{}, nil }

type Mode int

const (
	Stored Mode = iota
	New
)

type Vars struct {
	Params, Variables bool
	Mode              Mode
}
type Scope struct{}

func (e *Env) Scope(v Vars) *Scope              { return &Scope{} }
func (s *Scope) Define(name, expr string) error { return nil }

type Want int

const (
	Bool Want = iota
	Object
	JSONPatch
)

type Program struct{}

func (s *Scope) Compile(expr string, want Want) (*Program, error) { return &Program{}, nil }

type Issue struct {
	Line, Column int
	Message      string
}
type CompileError struct {
	Expr   string
	Issues []Issue
	text   string
}

func (e *CompileError) Error() string  { return e.text }
func (e *CompileError) Render() string { return e.text }

type RequestAttributes = library.Resource
type Input struct {
	Object, OldObject, Params, Namespace map[string]any
	Request                              func() map[string]any
	User                                 user.Info
	Authorizer                           authorizer.UnconditionalAuthorizer
	Attributes                           RequestAttributes
}
type Budget struct{ Remaining int64 }

const (
	MutationBudget  = celconfig.RuntimeCELCostBudget
	ConditionBudget = celconfig.RuntimeCELCostBudgetMatchConditions
)

var ErrBudget = errors.New("validation failed due to running out of cost budget, no further validation rules will be run")

type Activation struct{}

func (s *Scope) Bind(in *Input, b *Budget) *Activation                               { return &Activation{} }
func (p *Program) Bool(ctx context.Context, a *Activation) (bool, error)             { return false, nil }
func (p *Program) Object(ctx context.Context, a *Activation) (map[string]any, error) { return nil, nil }
func (p *Program) JSONPatch(ctx context.Context, a *Activation) ([]PatchOp, error)   { return nil, nil }

type PatchOp struct {
	Op, Path, From string
	Value          any
	HasValue       bool
}
type Reads uint

const (
	ReadsObject Reads = 1 << iota
	ReadsOldObject
	ReadsRequest
	ReadsParams
	ReadsNamespace
	ReadsAuthorizer
)

func (p *Program) Reads() Reads { return 0 }

// Quotable reports whether s survives upstream's Go quoting of op, path and from.
func Quotable(s string) bool { return true }
