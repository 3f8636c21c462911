package cel

import (
	"context"
	"strings"
	"sync"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"

	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// checkers is a pool of type checkers for one set of names. A checker knows the variables of
// one policy while it is in use and forgets them afterwards. So ten thousand policies share a
// handful of checkers, where a CEL environment for each policy would cost a quarter of a
// millisecond and 100 KiB.
type checkers struct {
	env        *celgo.Env
	validators []validator
	config     validatorConfig
	pool       sync.Pool
}

// scopedChecker is a checker and the provider through which it sees variables.
type scopedChecker struct {
	checker  *checker.Env
	provider *scopedProvider
}

func newCheckers(env *celgo.Env, params, variables bool) (*checkers, error) {
	// All supported minors compare numbers across types (since 1.28).
	base, err := checker.NewEnv(env.Container, env.CELTypeProvider(), checker.CrossTypeNumericComparisons(true))
	if err != nil {
		return nil, err
	}
	names := env.Variables()
	if params {
		names = append(names, decls.NewVariable(paramsName, types.DynType))
	}
	if variables {
		names = append(names, decls.NewVariable(variablesName, variablesType))
	}
	if err := base.AddIdents(names...); err != nil {
		return nil, err
	}
	for _, fn := range env.Functions() {
		if fn.IsDeclarationDisabled() {
			continue
		}
		if err := base.AddFunctions(fn); err != nil {
			return nil, err
		}
	}
	c := &checkers{
		env:    env,
		config: validatorConfig{celgo.HomogeneousAggregateLiteralExemptFunctions: []string{}},
	}
	for _, v := range env.Validators() {
		c.validators = append(c.validators, validator{ASTValidator: v, word: validatorWords[v.Name()]})
		if v, ok := v.(celgo.ASTValidatorConfigurer); ok {
			if err := v.Configure(c.config); err != nil {
				return nil, err
			}
		}
	}
	lend := func() (*scopedChecker, error) {
		provider := &scopedProvider{Provider: env.CELTypeProvider(), declared: variables}
		chk, err := checker.NewEnv(env.Container, provider,
			checker.ValidatedDeclarations(base), checker.CrossTypeNumericComparisons(true))
		return &scopedChecker{checker: chk, provider: provider}, err
	}
	first, err := lend()
	if err != nil {
		return nil, err
	}
	c.pool.Put(first)
	c.pool.New = func() any {
		// This cannot fail: the call above succeeded with the same arguments.
		sc, err := lend()
		if err != nil {
			panic(err)
		}
		return sc
	}
	return c, nil
}

// check is cel-go's Env.Check with the fields of "variables" passed in. When ctx ends, it stops
// at the next look-up of a name.
func (c *checkers) check(ctx context.Context, expr string, parsed *celgo.Ast, fields []variable) (_ *ast.AST, _ *celgo.Issues, err error) {
	// A checker that was stopped does not go back into the pool.
	defer syntax.Stopped(&err)
	sc := c.pool.Get().(*scopedChecker)
	sc.provider.fields, sc.provider.ctx = fields, ctx
	checked, errs := checker.Check(parsed.NativeRep(), parsed.Source(), sc.checker)
	sc.provider.fields, sc.provider.ctx = nil, nil
	c.pool.Put(sc)

	issues := celgo.NewIssuesWithSourceInfo(errs, parsed.NativeRep().SourceInfo())
	if issues.Err() != nil {
		return nil, issues, nil
	}
	for _, v := range c.validators {
		if !strings.Contains(expr, v.word) {
			continue
		}
		v.Validate(c.env, c.config, checked, issues)
	}
	if issues.Err() != nil {
		return nil, issues, nil
	}
	return checked, nil, nil
}

// validator is a check of literals, with a word that an expression must contain for the check
// to matter: most checks walk the whole expression in search of one function.
type validator struct {
	celgo.ASTValidator
	word string
}

var validatorWords = map[string]string{
	"cel.validator.duration":  "duration",
	"cel.validator.timestamp": "timestamp",
	"cel.validator.matches":   "matches",
}

// scopedProvider adds the type of "variables" to a type provider.
type scopedProvider struct {
	types.Provider
	declared bool
	fields   []variable
	ctx      context.Context
}

func (p *scopedProvider) FindStructType(name string) (*types.Type, bool) {
	syntax.Interrupt(p.ctx)
	if p.declared && name == variablesType.TypeName() {
		return types.NewTypeTypeWithParam(variablesType), true
	}
	return p.Provider.FindStructType(name)
}

func (p *scopedProvider) FindStructFieldType(structType, field string) (*types.FieldType, bool) {
	if p.declared && structType == variablesType.TypeName() {
		for i := range p.fields {
			if p.fields[i].name == field {
				return &types.FieldType{Type: p.fields[i].declared}, true
			}
		}
		return nil, false
	}
	return p.Provider.FindStructFieldType(structType, field)
}

// validatorConfig is the configuration that cel-go passes from one validator to the next.
type validatorConfig map[string]any

func (c validatorConfig) GetOrDefault(name string, value any) any {
	if v, ok := c[name]; ok {
		return v
	}
	return value
}

func (c validatorConfig) Set(name string, value any) error {
	c[name] = value
	return nil
}

// fieldType returns the type that a variable has for the expressions that use
// it: scalars, lists and maps keep their type, everything else becomes dyn
// (spec §5; k8s.io/apiserver …/plugin/cel/composition.go).
func fieldType(t *types.Type) *types.Type {
	switch t {
	case types.AnyType, types.BoolType, types.BytesType, types.DoubleType, types.DurationType, types.IntType,
		types.NullType, types.StringType, types.TimestampType, types.UintType:
		return t
	}
	if t.HasTrait(traits.ContainerType) && t.HasTrait(traits.IndexerType) {
		switch p := t.Parameters(); len(p) {
		case 1:
			return types.NewListType(fieldType(p[0]))
		case 2:
			return types.NewMapType(fieldType(p[0]), fieldType(p[1]))
		}
	}
	return types.DynType
}
