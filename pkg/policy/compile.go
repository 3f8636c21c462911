package policy

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
)

// Policy is one compiled policy. It is immutable and safe for concurrent use.
type Policy struct {
	object         *admissionregistrationv1.MutatingAdmissionPolicy
	rollout        api.Rollout
	err            error
	conditionScope *cel.Scope
	conditions     []condition
	mutations      []Mutation
	covered        []Covered
}

// Covered is an expression of a policy and the counts of its evaluations.
type Covered struct {
	// Path is the field path of the expression, such as spec.variables[0].expression.
	Path, Expression string
	Coverage         *cel.Coverage
}

// Covered returns the expressions in the order of the policy if it was compiled with
// cel.Options.Observe, else nothing.
func (p *Policy) Covered() []Covered { return p.covered }

// cover adds an expression to those that Covered returns; name is its name in a Trace.
func (p *Policy) cover(part api.Part, i int, member, name, expression string, c *cel.Coverage) {
	if c != nil {
		c.Name = name
		p.covered = append(p.covered, Covered{field.NewPath("spec", string(part)).Index(i).Child(member).String(), expression, c})
	}
}

// Compile compiles all expressions of a policy as a server compiles a stored one. The policy
// should have passed Validate. An error is [api.Faults], in the order of the fields. The
// expressions of the policy share its bounds only if deps.Env comes from [cel.Env.Within].
//
// Mutators in extra run after the policy's own mutations.
func Compile(obj *admissionregistrationv1.MutatingAdmissionPolicy, deps Deps, extra ...Mutator) (*Policy, error) {
	return compile(obj, deps, false, extra)
}

// CompileLenient is Compile for a policy that leaves objects as they are: numbers in JSON
// patches keep the type that the expression gave them, and results are not checked against the
// schema of the kind, so unknown fields are kept. Gatekeeper mutates in this way, and a server
// decodes its patches leniently (Gatekeeper spec §9.4). There is no cost budget: only its
// context ends an evaluation.
func CompileLenient(obj *admissionregistrationv1.MutatingAdmissionPolicy, deps Deps) (*Policy, error) {
	return compile(obj, deps, true, nil)
}

func compile(obj *admissionregistrationv1.MutatingAdmissionPolicy, deps Deps, lenient bool, extra []Mutator) (*Policy, error) {
	p := &Policy{object: obj}
	p.rollout, _ = api.RolloutFor(api.PolicyKind, obj.Annotations)
	var faults api.Faults
	fail := func(part api.Part, i int, member, expression string, err error) {
		path := field.NewPath("spec", string(part)).Index(i)
		if member != "" {
			path = path.Child(member)
		}
		f := api.NewFault(api.Compiling, path, expression, err)
		f.Part, f.Index = part, i
		faults = append(faults, f)
	}
	vars := cel.Vars{Unmetered: lenient}
	if kind := obj.Spec.ParamKind; kind != nil {
		vars.Params, vars.SecretParams = true, kind.APIVersion == "v1" && kind.Kind == "Secret"
	}

	if len(obj.Spec.MatchConditions) > 0 {
		// Conditions cannot use variables: the API rejects them (spec §4.2).
		p.conditionScope = deps.Env.Scope(vars)
		defer p.conditionScope.Done()
		p.conditions = make([]condition, 0, len(obj.Spec.MatchConditions))
		for i, c := range obj.Spec.MatchConditions {
			program, err := p.conditionScope.Compile(c.Expression, cel.Bool)
			if err != nil {
				fail(api.MatchConditions, i, "expression", c.Expression, err)
				continue
			}
			p.conditions = append(p.conditions, condition{name: c.Name, program: program})
			p.cover(api.MatchConditions, i, "expression", "condition "+c.Name, c.Expression, program.Coverage())
		}
	}

	vars.Variables = true
	scope := deps.Env.Scope(vars)
	defer scope.Done()
	for i, v := range obj.Spec.Variables {
		if err := scope.Define(v.Name, v.Expression); err != nil {
			fail(api.Variables, i, "expression", v.Expression, err)
		}
		p.cover(api.Variables, i, "expression", "variables."+v.Name, v.Expression, scope.Coverage(v.Name))
	}
	p.mutations = make([]Mutation, 0, len(obj.Spec.Mutations)+len(extra))
	for i, m := range obj.Spec.Mutations {
		var mutator Mutator
		switch {
		case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			program, err := scope.Compile(m.ApplyConfiguration.Expression, cel.Object)
			if err != nil {
				fail(api.Mutations, i, "applyConfiguration.expression", m.ApplyConfiguration.Expression, err)
				continue
			}
			p.cover(api.Mutations, i, "applyConfiguration.expression", fmt.Sprintf("mutations[%d]", i), m.ApplyConfiguration.Expression, program.Coverage())
			mutator = &applyMutator{expr: expression{scope, program}, types: deps.Types, lenient: lenient}
		case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			want := cel.JSONPatch
			if lenient {
				want = cel.TypedPatch
			}
			program, err := scope.Compile(m.JSONPatch.Expression, want)
			if err != nil {
				fail(api.Mutations, i, "jsonPatch.expression", m.JSONPatch.Expression, err)
				continue
			}
			p.cover(api.Mutations, i, "jsonPatch.expression", fmt.Sprintf("mutations[%d]", i), m.JSONPatch.Expression, program.Coverage())
			mutator = &jsonPatchMutator{expr: expression{scope, program}, types: deps.Types, lenient: lenient}
		default:
			fail(api.Mutations, i, "", "", fmt.Errorf("no patch of type %q", m.PatchType))
			continue
		}
		p.mutations = append(p.mutations, Mutation{Type: m.PatchType, Mutator: mutator})
	}
	for _, m := range extra {
		p.mutations = append(p.mutations, Mutation{Mutator: m})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return p, nil
}

// Broken returns a policy that cannot run because of err. It is selected like other policies,
// so that its failurePolicy decides about the requests that it matches.
func Broken(obj *admissionregistrationv1.MutatingAdmissionPolicy, err error) *Policy {
	p := &Policy{object: obj, err: err}
	p.rollout, _ = api.RolloutFor(api.PolicyKind, obj.Annotations)
	return p
}

// With returns a policy with the conditions of p, and with mutators instead of its mutations.
func (p *Policy) With(mutators ...Mutator) *Policy {
	out := *p
	out.mutations = make([]Mutation, len(mutators))
	for i, m := range mutators {
		out.mutations[i].Mutator = m
	}
	return &out
}

// Name returns the policy's name.
func (p *Policy) Name() string { return p.object.Name }

// Object returns the policy that was compiled. It must not be modified.
func (p *Policy) Object() *admissionregistrationv1.MutatingAdmissionPolicy { return p.object }

// Rollout returns what the policy's annotations say.
func (p *Policy) Rollout() api.Rollout { return p.rollout }

// Tripped returns p in the form in which it runs when its breaker has tripped.
func (p *Policy) Tripped() *Policy {
	tripped := *p
	tripped.rollout.Tripped = true
	return &tripped
}

// Err returns why the policy cannot run; nil if it can.
func (p *Policy) Err() error { return p.err }

// Errs returns the errors that are joined in Err.
func (p *Policy) Errs() []error { return leaves(p.err) }

// leaves returns the errors that errors.Join has joined.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, leaves(e)...)
	}
	return out
}

// Mutations returns the policy's mutations, in order.
func (p *Policy) Mutations() []Mutation { return p.mutations }
