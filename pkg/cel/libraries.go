package cel

import (
	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// versioned are options of an environment, the first minor that has them (from), and the first
// that does not have them any more (until); until is 0 if all later minors have them.
type versioned struct {
	from, until uint
	env         []celgo.EnvOption
}

// libraries is the table of k8s.io/apiserver/pkg/cel/environment (base.go), in its order. mapd
// does not import that package: it needs feature gates, metrics and Prometheus to find the
// version of a running API server, and builds a second environment with all libraries for each
// one. A test compares the environments.
var libraries = []versioned{
	{env: []celgo.EnvOption{
		celgo.HomogeneousAggregateLiterals(),
		celgo.EagerlyValidateDeclarations(true),
		celgo.DefaultUTCTimeZone(true),
		library.URLs(),
		library.Regex(),
		celgo.CostEstimatorOptions(checker.PresenceTestHasCost(false)),
	}},
	{until: 37, env: []celgo.EnvOption{library.Lists(library.ListsVersion(0))}},
	{from: 27, env: []celgo.EnvOption{library.Authz()}},
	{from: 28, env: []celgo.EnvOption{celgo.CrossTypeNumericComparisons(true), celgo.OptionalTypes(), library.Quantity()}},
	{from: 29, env: []celgo.EnvOption{celgo.ASTValidators(
		celgo.ValidateDurationLiterals(),
		celgo.ValidateTimestampLiterals(),
		celgo.ValidateRegexLiterals(),
		celgo.ValidateHomogeneousAggregateLiterals(),
	)}},
	{from: 29, env: []celgo.EnvOption{ext.Strings(ext.StringsVersion(2))}},
	{from: 29, env: []celgo.EnvOption{ext.Sets()}},
	{from: 30, env: []celgo.EnvOption{library.IP(), library.CIDR()}},
	{from: 38, env: append([]celgo.EnvOption{isMask}, exactQuantities...)},
	{from: 31, env: []celgo.EnvOption{library.Format()}},
	{from: 31, env: []celgo.EnvOption{library.AuthzSelectors()}},
	{from: 32, env: []celgo.EnvOption{ext.TwoVarComprehensions()}},
	{from: 33, env: []celgo.EnvOption{library.SemverLib(library.SemverVersion(1))}},
	{from: 34, env: []celgo.EnvOption{ext.Lists(ext.ListsVersion(3))}},
	{from: 37, env: []celgo.EnvOption{library.Lists(library.ListsVersion(1))}},
}

// isMask is version 1 of the library for networks, which k8s.io/apiserver has from 0.38 on
// (pkg/cel/library/cidr.go).
var isMask = celgo.Function("isMask", celgo.MemberOverload("cidr_is_mask", []*celgo.Type{apiservercel.CIDRType}, celgo.BoolType,
	celgo.UnaryBinding(func(arg ref.Val) ref.Val {
		network, ok := arg.(apiservercel.CIDR)
		if !ok {
			return types.MaybeNoSuchOverloadErr(arg)
		}
		return types.Bool(network.Prefix == network.Prefix.Masked())
	})))

// baseEnv returns a minor's environment for expressions without patch types.
func baseEnv(minor uint) (*celgo.Env, error) {
	base := options{program: []celgo.ProgramOption{
		celgo.EvalOptions(celgo.OptOptimize, celgo.OptTrackCost),
		celgo.CostLimit(celconfig.PerCallLimit),
		celgo.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
		celgo.CostTracking(&library.CostEstimator{}),
	}}
	for _, l := range libraries {
		if minor >= l.from && (l.until == 0 || minor < l.until) {
			base.env = append(base.env, l.env...)
		}
	}
	env, err := celgo.NewEnv(celgo.Lib(base))
	if err != nil {
		return nil, err
	}
	provider := apiservercel.NewDeclTypeProvider(namespaceType, requestType)
	provider.SetRecognizeKeywordAsFieldName(true) // since 1.31
	declared, err := provider.EnvOptions(env.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	return env.Extend(celgo.Lib(options{env: append([]celgo.EnvOption{
		celgo.Variable(objectName, celgo.DynType),
		celgo.Variable(oldObjectName, celgo.DynType),
		celgo.Variable(namespaceName, namespaceType.CelType()),
		celgo.Variable(requestName, requestType.CelType()),
		celgo.Variable(authzName, library.AuthorizerType),
		celgo.Variable(resourceName, library.ResourceCheckType),
	}, declared...)}))
}

// options implements celgo.Library.
type options struct {
	env     []celgo.EnvOption
	program []celgo.ProgramOption
}

func (o options) CompileOptions() []celgo.EnvOption     { return o.env }
func (o options) ProgramOptions() []celgo.ProgramOption { return o.program }
