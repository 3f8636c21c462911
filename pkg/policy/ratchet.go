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

// ValidateUpdate returns all errors for which a server rejects obj as the new version of old
// (spec §1.4; k8s.io/kubernetes pkg/apis/admissionregistration/validation:
// ValidateMutatingAdmissionPolicyUpdate). Both must have their defaults.
//
// All of obj is checked, as by Validate, but the rules are less strict for what old had
// already, because a newer server may have accepted it. Match conditions are not checked if
// neither they nor paramKind changed. Single conditions of old, and expressions that old had in
// an applyConfiguration, may use everything that the server can run. Variables and jsonPatch
// expressions have no such exception, as on the server (spec T40). Names that are reserved for
// manifest files are accepted, since a name does not change.
func ValidateUpdate(obj, old *admissionregistrationv1.MutatingAdmissionPolicy, env *cel.Env) api.Faults {
	errs := api.FormFaults(api.ValidateMeta(&obj.ObjectMeta)...)
	return append(errs, validateSpec(&obj.Spec, env, newRatchet(&obj.Spec, &old.Spec, env), field.NewPath("spec"))...)
}

// ratchet is what an update may keep although it could not be created. A nil ratchet has
// nothing.
type ratchet struct {
	// conditionsAlike says that the match conditions have the same meaning as before.
	conditionsAlike bool
	// conditions and applied are the old expressions.
	conditions, applied sets.Set[string]
	// conditionScope and mutationScope compile as a server compiles stored expressions.
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

// define declares a variable for the kept expressions, too. It cannot fail, since a stored
// expression may use everything that a new one may.
func (r *ratchet) define(name, expression string) {
	if r != nil {
		_ = r.mutationScope.Define(name, expression)
	}
}

// conditionScope returns the scope for compiling a match condition. The server looks up the
// trimmed expression among the untrimmed old ones.
func (c *compiler) conditionScope(expression string) *cel.Scope {
	if c.kept != nil && c.kept.conditions.Has(strings.TrimSpace(expression)) {
		return c.kept.conditionScope
	}
	return c.conditions
}

// mutationScope returns the scope for compiling an expression of a mutation. For both patch
// types, the server looks up the expression among the old ones of applyConfiguration.
func (c *compiler) mutationScope(expression string) *cel.Scope {
	if c.kept != nil && c.kept.applied.Has(expression) {
		return c.kept.mutationScope
	}
	return c.mutations
}
