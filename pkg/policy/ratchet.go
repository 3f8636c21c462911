package policy

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
)

// ValidateUpdate returns everything for which a server refuses to put obj in
// the place of old (spec §1.4; k8s.io/kubernetes
// pkg/apis/admissionregistration/validation:
// ValidateMutatingAdmissionPolicyUpdate). Both have their defaults.
//
// All of obj is checked, as by Validate, but what old had already is given more
// room, because a server may have been newer when it was accepted: match
// conditions are not looked at if neither they nor paramKind changed; single
// ones that were there, and expressions that were there as those of an
// applyConfiguration, may use all that the server can run. Variables and
// jsonPatch expressions are not given that room; that is how the server does it
// (spec T40). The reserved names of manifest files are not refused either: a
// name does not change.
func ValidateUpdate(obj, old *admissionregistrationv1.MutatingAdmissionPolicy, env *cel.Env) api.Faults {
	errs := api.FormFaults(api.ValidateMeta(&obj.ObjectMeta)...)
	return append(errs, validateSpec(&obj.Spec, env, newRatchet(&obj.Spec, &old.Spec, env), field.NewPath("spec"))...)
}

// ratchet is what an update may keep although nobody could create it. A nil one
// keeps nothing.
type ratchet struct {
	// conditionsAlike says that the match conditions mean what they meant.
	conditionsAlike bool
	// conditions and applied are the old expressions.
	conditions, applied sets.Set[string]
	// conditionScope and mutationScope compile as a server compiles what is
	// stored.
	conditionScope, mutationScope *cel.Scope
}

func newRatchet(spec, old *admissionregistrationv1.MutatingAdmissionPolicySpec, env *cel.Env) *ratchet {
	r := &ratchet{
		conditionsAlike: equality.Semantic.DeepEqual(spec.ParamKind, old.ParamKind) &&
			equality.Semantic.DeepEqual(spec.MatchConditions, old.MatchConditions),
		conditions:     sets.New[string](),
		applied:        sets.New[string](),
		conditionScope: env.Scope(cel.Vars{Params: spec.ParamKind != nil}),
		mutationScope:  env.Scope(cel.Vars{Params: spec.ParamKind != nil, Variables: true}),
	}
	for _, c := range old.MatchConditions {
		r.conditions.Insert(c.Expression)
	}
	for _, m := range old.Mutations {
		if m.ApplyConfiguration != nil {
			r.applied.Insert(m.ApplyConfiguration.Expression)
		}
	}
	return r
}

// define declares a variable to the expressions that are kept, too. What a new
// expression may say a stored one may, so it cannot fail.
func (r *ratchet) define(name, expression string) {
	if r != nil {
		_ = r.mutationScope.Define(name, expression)
	}
}

// conditionScope is where a match condition is compiled. The server looks for
// the trimmed expression among the old ones as they were written.
func (c *compiler) conditionScope(expression string) *cel.Scope {
	if c.kept != nil && c.kept.conditions.Has(strings.TrimSpace(expression)) {
		return c.kept.conditionScope
	}
	return c.conditions
}

// mutationScope is where an expression of a mutation is compiled. The server
// looks for those of both patch types among the old ones of applyConfiguration.
func (c *compiler) mutationScope(expression string) *cel.Scope {
	if c.kept != nil && c.kept.applied.Has(expression) {
		return c.kept.mutationScope
	}
	return c.mutations
}
