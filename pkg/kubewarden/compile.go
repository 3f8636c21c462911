package kubewarden

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Loader loads the modules of policies. It must be safe for concurrent use.
type Loader interface {
	// Load returns the mutation that runs the module of a policy, after the module has accepted
	// the policy's settings. It may take long, but ends soon after ctx. The mutation reads
	// objects of other kinds from objects, if the policy is context-aware.
	Load(ctx context.Context, p *Policy, deps policy.Deps, objects binding.Params) (policy.Mutator, error)
}

// Check returns the errors in the matchConditions of a policy, which Decode does not check.
func (p *Policy) Check(env policy.Deps) api.Faults {
	return policy.ValidateMatchConditions(p.object.Spec.MatchConditions, env.Env)
}

// Compile returns the policy in the form that an engine runs, with module as its mutation.
func (p *Policy) Compile(deps policy.Deps, module policy.Mutator) (*policy.Policy, error) {
	return policy.Compile(p.object, deps, module)
}

// Broken returns the policy without its module: its failurePolicy decides about requests that
// match it.
func (p *Policy) Broken(err error) *policy.Policy { return policy.Broken(p.object, err) }

// ModuleFault is the fault of a policy whose module cannot be loaded, or refuses the
// policy's settings.
func ModuleFault(err error) *api.Fault {
	return &api.Fault{Phase: api.Compiling, Path: "spec.module", Err: err}
}

// Indexes returns one Index for the policies that may change objects, and one for those that
// may not, which run after all others.
func Indexes(policies []*Policy, compiled []*policy.Policy, src binding.Sources) (mutating, validators *binding.Index, err error) {
	var lists [2][]*policy.Policy
	var bindings [2][]*binding.Binding
	src.Deletions = true
	refs := make(map[string]string, len(policies))
	for _, p := range policies {
		refs[p.ID()] = p.Kind() + "/" + p.Name
	}
	src.Excepted = func(id string) string { return refs[id] }
	for i, p := range policies {
		b, err := binding.Compile(&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: p.ID()},
			Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: p.ID()},
		})
		if err != nil {
			return nil, nil, fmt.Errorf("policy %q: %w", p.ID(), err)
		}
		at := 1
		if p.Mutating {
			at = 0
		}
		lists[at], bindings[at] = append(lists[at], compiled[i]), append(bindings[at], b)
	}
	if mutating, err = binding.NewIndex(lists[0], bindings[0], src); err == nil {
		validators, err = binding.NewIndex(lists[1], bindings[1], src)
	}
	return mutating, validators, err
}
