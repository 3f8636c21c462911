package policy

import admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

// Policy is one compiled policy. It is immutable.
type Policy struct {
	object    *admissionregistrationv1.MutatingAdmissionPolicy
	err       error
	mutations []Mutation
}

// ExpressionError says which expression of a policy is at fault.
type ExpressionError struct {
	// Field is the expression's place, such as spec.mutations[0].jsonPatch.expression.
	Field string
	Err   error
}

func (e *ExpressionError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *ExpressionError) Unwrap() error { return e.Err }

// Compile compiles every expression of a valid policy.
func Compile(obj *admissionregistrationv1.MutatingAdmissionPolicy, deps Deps, extra ...Mutator) (*Policy, error) {
	return &Policy{object: obj}, nil
}

// Broken is a policy that fails with err whenever a request meets it.
func Broken(obj *admissionregistrationv1.MutatingAdmissionPolicy, err error) *Policy {
	return &Policy{object: obj, err: err}
}

// Name is the policy's name.
func (p *Policy) Name() string { return p.object.Name }

// Object is the policy as it was compiled; it must not be modified.
func (p *Policy) Object() *admissionregistrationv1.MutatingAdmissionPolicy { return p.object }

// Err is why the policy cannot run, or nil.
func (p *Policy) Err() error { return p.err }

// Mutations are the policy's mutations in declared order.
func (p *Policy) Mutations() []Mutation { return p.mutations }
