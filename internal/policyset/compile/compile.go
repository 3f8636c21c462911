// Package compile answers one question: what is the result of decoding, validating and compiling
// a policy or a binding?
//
// Files, clusters, migrations, the validating webhook and tests use the same steps; only how
// strict validation is depends on the caller (Rules). The first step that finds an error is the
// last one. Start reading at NewPolicy.
package compile

import (
	"context"
	"encoding/json"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Rules say how strict validation is.
type Rules int

const (
	// New is for a policy to be created: all checks of an API server.
	New Rules = iota
	// Stored is for a stored policy, which may have been stored without validation: only its form
	// has to be valid, and a binding may even be invalid.
	Stored
	// Unchecked skips validation.
	Unchecked
)

// Policy is the result for a policy. Object is nil if it cannot be decoded, and Program is nil if
// Err is not nil. Err is the decoder's error or [api.Faults]; [api.FaultsOf] returns the faults
// of both.
type Policy struct {
	Object  *admissionregistrationv1.MutatingAdmissionPolicy
	Program *policy.Policy
	Err     error
}

// NewPolicy decodes, validates and compiles a policy. It stops compiling when ctx is done.
func NewPolicy(ctx context.Context, text []byte, rules Rules, deps policy.Deps) Policy {
	p := CheckPolicy(ctx, text, nil, rules, deps.Env)
	if p.Err == nil {
		deps.Env = language(text, deps.Env).Within(ctx)
		p.Program, p.Err = policy.Compile(p.Object, deps)
	}
	return p
}

// CheckPolicy is NewPolicy without compiling. old, if not nil, is the policy that this one
// replaces.
func CheckPolicy(ctx context.Context, text []byte, old *admissionregistrationv1.MutatingAdmissionPolicy, rules Rules, env *cel.Env) (p Policy) {
	if p.Object, p.Err = policy.DecodeJSON(text); p.Err != nil {
		return p
	}
	env = language(text, env)
	var faults api.Faults
	switch {
	case rules == Stored:
		faults = policy.ValidateStored(p.Object)
	case rules == New && old != nil:
		faults = policy.ValidateUpdate(p.Object, old, env.Within(ctx))
	case rules == New:
		faults = policy.Validate(p.Object, env.Within(ctx))
	}
	if rules != Unchecked {
		_, unread := api.RolloutFor(api.PolicyKind, p.Object.Annotations)
		faults = append(unread, faults...)
	}
	if len(faults) > 0 {
		p.Err = faults
	}
	return p
}

// language returns the CEL environment for a decoded policy. Policies of mapd's own group may use
// functions for external data, which an API server does not have.
func language(text []byte, env *cel.Env) *cel.Env {
	var head struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(text, &head); err != nil || !strings.HasPrefix(head.APIVersion, api.OwnGroup+"/") {
		return env
	}
	return env.Asking()
}

// Binding is the result for a binding, like Policy. Older names the defaults that only an older
// version of the API fills in, see [binding.DecodeNoting].
type Binding struct {
	Object  *admissionregistrationv1.MutatingAdmissionPolicyBinding
	Program *binding.Binding
	Older   []string
	Err     error
}

// NewBinding decodes, validates and compiles a binding. Under Stored, one that is
// not valid has a Program besides the Err if it can.
func NewBinding(text []byte, rules Rules) (b Binding) {
	if b.Object, b.Older, b.Err = binding.DecodeNoting(text); b.Err != nil {
		return b
	}
	var faults api.Faults
	if rules != Unchecked {
		_, faults = api.RolloutFor(api.BindingKind, b.Object.Annotations)
		faults = append(faults, binding.Validate(b.Object)...)
	}
	if len(faults) == 0 || rules == Stored {
		if b.Program, b.Err = binding.Compile(b.Object); b.Err != nil {
			b.Err = api.Faults{{Phase: api.Compiling, Err: b.Err}}
		}
	}
	if b.Err == nil && len(faults) > 0 {
		b.Err = faults
	}
	return b
}
