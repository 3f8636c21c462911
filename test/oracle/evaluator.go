package oracle

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// CompilePolicy compiles a policy as a server does when it learns of it: one
// composed compiler per policy, stored-expression environments throughout. An
// expression that does not compile is an error of the evaluation, not of this
// function.
//
// The server's own function is not exported (k8s.io/apiserver
// …/policy/mutating/compilation.go); this one makes the same calls.
func CompilePolicy(policy *admissionregistrationv1.MutatingAdmissionPolicy) (mutating.PolicyEvaluator, error) {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return mutating.PolicyEvaluator{}, fmt.Errorf("policy %q: %w", policy.Name, err)
	}
	const stored = environment.StoredExpressions
	declared := plugincel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	for _, v := range policy.Spec.Variables {
		compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declared, stored)
	}
	evaluator := mutating.PolicyEvaluator{CompositedCompiler: compiler}

	if n := len(policy.Spec.MatchConditions); n > 0 {
		conditions := make([]plugincel.ExpressionAccessor, n)
		for i := range policy.Spec.MatchConditions {
			conditions[i] = (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i])
		}
		evaluator.Matcher = matchconditions.NewMatcher(
			compiler.CompileCondition(conditions, declared, stored), policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	}

	declared.HasPatchTypes = true
	for i, m := range policy.Spec.Mutations {
		switch {
		case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			e := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, declared, stored)
			evaluator.Mutators = append(evaluator.Mutators, patch.NewJSONPatcher(e))
		case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			e := compiler.CompileMutatingEvaluator(&patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}, declared, stored)
			evaluator.Mutators = append(evaluator.Mutators, patch.NewApplyConfigurationPatcher(e))
		default:
			return evaluator, fmt.Errorf("policy %q: spec.mutations[%d]: patchType %q without its member", policy.Name, i, m.PatchType)
		}
	}
	return evaluator, nil
}
