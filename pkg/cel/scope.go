package cel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// Vars says which of the names that depend on a policy are declared. object, oldObject,
// request, namespaceObject and authorizer are always declared.
type Vars struct {
	// Params declares params: the policy has a paramKind.
	Params bool
	// SecretParams says that the paramKind is Secret, since a Trace hides values of Secrets.
	// Parameters of built-in kinds have no apiVersion and kind that would say so.
	SecretParams bool
	// Variables declares variables: true for mutations and the variables
	// themselves, false for match conditions (spec §4.2).
	Variables bool
	Mode      Mode
	// Unmetered turns off cost counting, which takes a third of the time: evaluations cost 0,
	// and only their context ends them.
	Unmetered bool
}

// Scope is the set of names that the expressions of one policy may use. Define and Compile must
// not run while another goroutine uses the scope; after them it is safe for concurrent use.
type Scope struct {
	env       *languages
	asks      bool // see Env.Asking
	vars      Vars
	variables []variable
	byName    map[string]int
	// declared is a hash of all names that expressions may use.
	declared sum
	// compiling is nil once Done was called.
	compiling *compiling
}

// variable is one entry of spec.variables.
type variable struct {
	name string
	// declared is the type that later expressions see.
	declared *types.Type
	program  *Program
	// depth is the longest chain of variables that use each other, ending here.
	depth int
}

// maxVariableDepth bounds the recursion of variables that use variables. cel-go needs some
// kilobytes of stack for each.
const maxVariableDepth = 1000

// Scope returns a scope without variables.
func (e *Env) Scope(v Vars) *Scope {
	c := e.compiling
	if c == nil {
		c = alone()
	}
	// Conditions have no externalData: an API server may evaluate copies of them.
	asks := e.asks && v.Variables
	declared := sum{}.with(byte(v.Mode), fmt.Sprint(v.Params, v.Variables, v.Unmetered, asks))
	return &Scope{env: e.languages, asks: asks, vars: v, declared: declared, compiling: c}
}

// Done ends the use of Define and Compile, and frees what only they need.
func (s *Scope) Done() { s.compiling = nil }

// Define adds variables.<name>. Later expressions may use it. The type of expr
// may be anything; patch types are not available in it (spec §5). The error is
// a *CompileError if the expression is at fault.
func (s *Scope) Define(name, expr string) error {
	if !s.vars.Variables {
		return errNoVariables
	}
	if _, ok := s.byName[name]; ok {
		// The in-tree plugin uses the last definition. An error surprises nobody.
		return fmt.Errorf("variable %q is defined twice", name)
	}
	p, declared, err := s.compile(expr, anything)
	if err != nil {
		return err
	}
	depth := 1
	for _, i := range p.uses {
		depth = max(depth, s.variables[i].depth+1)
	}
	if depth > maxVariableDepth {
		return fmt.Errorf("variable %q is more than %d variables deep", name, maxVariableDepth)
	}
	if s.byName == nil {
		s.byName = map[string]int{}
	}
	s.byName[name] = len(s.variables)
	s.variables = append(s.variables, variable{
		name:     name,
		declared: declared,
		program:  p,
		depth:    depth,
	})
	s.declared = s.declared.with(byte(anything), name, expr)
	return nil
}

// Want is the type that an expression must have exactly: an expression of type dyn does not
// compile (spec §1.4).
type Want uint8

const (
	// Bool is for match conditions. Patch types are not available.
	Bool Want = iota
	// Object is for applyConfiguration.
	Object
	// JSONPatch is a list of JSONPatch, for jsonPatch.
	JSONPatch
	// TypedPatch is JSONPatch whose values keep their types: 5.0 stays a double and an integer
	// beyond 2^53 stays an integer. It is for several mutations of an object that is not
	// encoded and decoded in between.
	TypedPatch

	// anything is for variables.
	anything
)

var wanted = [...]*types.Type{
	Bool:       types.BoolType,
	Object:     types.NewObjectType("Object"),
	JSONPatch:  patchList,
	TypedPatch: patchList,
}

var patchList = types.NewListType(types.NewObjectType("JSONPatch"))

// Compile compiles an expression with the variables that are defined so far. The error is a
// *CompileError unless the environment itself is at fault. Scopes that declare the same names
// share one program for the same text.
func (s *Scope) Compile(expr string, want Want) (*Program, error) {
	p, _, err := s.compile(expr, want)
	return p, err
}

// compile returns a program and, for a variable, its type for later expressions.
func (s *Scope) compile(expr string, want Want) (*Program, *types.Type, error) {
	if s.compiling.ctx.Err() != nil {
		return nil, nil, syntax.Interrupted(s.compiling.ctx)
	}
	of := s.declared.with(byte(want), expr)
	if p, declared := s.env.shared.get(of); p != nil {
		if exceeded := s.compiling.used.add(p.weight.weight()); exceeded != "" {
			return nil, nil, syntax.NewError(expr, exceeded)
		}
		return p, declared, nil
	}
	p, declared, err := s.compileAnew(expr, want)
	if ce := (*CompileError)(nil); errors.As(err, &ce) {
		s.compiling.fit(ce)
	}
	if err != nil {
		return nil, nil, err
	}
	if s.env.observes {
		return p, declared, nil // programs that are observed are not shared
	}
	p, declared = s.env.shared.put(of, p, declared)
	return p, declared, nil
}

func (s *Scope) compileAnew(expr string, want Want) (_ *Program, _ *types.Type, err error) {
	defer func() {
		// cel-go's validators of literals panic for an entry ?x of unknown type.
		if r := recover(); r != nil {
			failure := syntax.NewError(expr, fmt.Sprintf("internal error: %v", r))
			failure.Internal = true
			err = failure
		}
	}()
	giveBack, err := acquireNodes(s.compiling.ctx, expr)
	if err != nil {
		return nil, nil, err
	}
	defer giveBack()
	lang, checked, needs, err := s.check(expr, want)
	if err != nil {
		return nil, nil, err
	}
	// The program may be shared, and must not depend on what s defines later.
	scope := *s
	scope.compiling = nil
	p := &Program{expr: expr, want: want, scope: &scope, weight: needs.kept()}
	loops := p.survey(checked.Expr(), s)
	if s.env.observes {
		p.coverage = newCoverage(checked, expr, want)
	}
	p.plan, err = lang.planner.plan(checked, loops, !s.vars.Unmetered, p.coverage)
	if err != nil {
		failure := syntax.NewError(expr, "program instantiation failed: "+err.Error())
		failure.Internal = true
		return nil, nil, failure
	}
	if !s.env.celGo && (p.reads != 0 || want == anything) {
		p.quick = s.quick(checked, want)
	}
	if want != anything {
		return p, nil, nil
	}
	return p, fieldType(checked.GetType(checked.Expr().ID())), nil
}

// check parses an expression, checks it against the bounds and infers its types.
func (s *Scope) check(expr string, want Want) (lang *language, checked *ast.AST, needs weight, err error) {
	lang, err = s.env.language(s.vars.Mode, want == Object || want == JSONPatch || want == TypedPatch, s.asks)
	if err != nil {
		return nil, nil, needs, err
	}
	ctx := s.compiling.ctx
	parsed, err := parse(ctx, lang.env, expr)
	if err != nil {
		return nil, nil, needs, err
	}
	needs, err = weigh(ctx, lang, s.variables, parsed.NativeRep().Expr())
	if err != nil {
		return nil, nil, needs, boundError(expr, parsed.Source(), err)
	}
	if exceeded := s.compiling.used.add(needs); exceeded != "" {
		return nil, nil, needs, syntax.NewError(expr, exceeded)
	}
	checkers := lang.checkers[index(s.vars.Params)][index(s.vars.Variables)]
	checked, issues, err := checkers.check(ctx, expr, parsed, s.variables)
	if err != nil {
		return nil, nil, needs, err
	}
	if issues.Err() != nil {
		failure := issuesError(expr, issues)
		failure.Undefined = s.undefined(parsed.NativeRep().Expr())
		return nil, nil, needs, failure
	}
	if want != anything {
		got := checked.GetType(checked.Expr().ID())
		if !got.IsExactType(wanted[want]) {
			return nil, nil, needs, syntax.NewError(expr, fmt.Sprintf("must evaluate to %v but got %v", wanted[want], got))
		}
	}
	return lang, checked, needs, nil
}

// undefined returns the variables that an expression reads without a definition.
func (s *Scope) undefined(root ast.Expr) (names []string) {
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if name, ok := variableName(e); ok && !slices.Contains(names, name) {
			if _, defined := s.byName[name]; !defined {
				names = append(names, name)
			}
		}
	}))
	return names
}

// variableName returns x of the expression variables.x, false for any other.
func variableName(e ast.Expr) (name string, ok bool) {
	if e.Kind() != ast.SelectKind {
		return "", false
	}
	op := e.AsSelect().Operand()
	return e.AsSelect().FieldName(), op.Kind() == ast.IdentKind && syntax.IdentName(op) == variablesName
}

// Reads is a set of the names that an expression can read, itself or through
// variables. It may contain too much, never too little.
type Reads uint8

// The names that can be read.
const (
	ReadsObject Reads = 1 << iota
	ReadsOldObject
	ReadsRequest
	ReadsParams
	ReadsNamespace
	ReadsAuthorizer
	// ReadsOutside stands for the data that externalData returns.
	ReadsOutside
)

var readsOf = map[string]Reads{
	objectName:    ReadsObject,
	oldObjectName: ReadsOldObject,
	requestName:   ReadsRequest,
	paramsName:    ReadsParams,
	namespaceName: ReadsNamespace,
	authzName:     ReadsAuthorizer,
	resourceName:  ReadsAuthorizer,
}

// survey records what a checked expression reads and which variables it names, and reports
// whether it contains a comprehension.
func (p *Program) survey(root ast.Expr, s *Scope) (loops bool) {
	seen := map[int]bool{}
	use := func(i int) {
		if !seen[i] {
			seen[i] = true
			p.uses = append(p.uses, i)
			p.reads |= s.variables[i].program.reads
		}
	}
	// selected counts occurrences of variables.x, named those of variables. If they differ, the
	// expression uses the whole record and may read any variable.
	selected, named := 0, 0
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			loops = true
		case ast.CallKind:
			if e.AsCall().FunctionName() == externalDataName {
				p.reads |= ReadsOutside
			}
		case ast.SelectKind:
			if name, ok := variableName(e); ok {
				if i, ok := s.byName[name]; ok {
					selected++
					use(i)
				}
			}
		case ast.IdentKind:
			// A loop variable of the same name is counted too: the result may contain too much.
			name := syntax.IdentName(e)
			p.reads |= readsOf[name]
			if name == variablesName {
				named++
			}
		}
	}))
	if named != selected {
		for i := range s.variables {
			use(i)
		}
	}
	return loops
}
