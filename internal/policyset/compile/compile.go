// Package compile answers one question: what becomes of a policy or a binding as
// it is written?
//
// Files, clusters, migrations, the validating webhook and tests take the same
// steps: the text is decoded, what it says is validated, and its expressions are
// compiled. Only how strict validation is depends on who asks. The first step that
// finds something wrong is the last one.
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
	// New is for what is to be created: all that a server then checks.
	New Rules = iota
	// Stored is for what is stored, whoever let it pass: only its form has to be
	// valid, and a binding need not even be that.
	Stored
	// Unchecked does not validate.
	Unchecked
)

// Policy is what becomes of a policy. Object is nil if it cannot be decoded, and
// Program is nil if Err is not. Err is the decoder's error or [api.Faults]; either
// way [api.FaultsOf] has the faults.
type Policy struct {
	Object  *admissionregistrationv1.MutatingAdmissionPolicy
	Program *policy.Policy
	Err     error
}

// NewPolicy decodes, validates and compiles a policy. Compiling ends with ctx.
func NewPolicy(ctx context.Context, text []byte, rules Rules, deps policy.Deps) Policy {
	p := CheckPolicy(ctx, text, nil, rules, deps.Env)
	if p.Err == nil {
		deps.Env = language(text, deps.Env).Within(ctx)
		p.Program, p.Err = policy.Compile(p.Object, deps)
	}
	return p
}

// CheckPolicy is NewPolicy without the last step. old, if it is not nil, is the
// policy in whose place this one comes.
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

// language returns the language of a policy that was decoded: a server could not run
// one of its own group that asks for external data.
func language(text []byte, env *cel.Env) *cel.Env {
	var head struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(text, &head); err != nil || !strings.HasPrefix(head.APIVersion, api.OwnGroup+"/") {
		return env
	}
	return env.Asking()
}

// Binding is what becomes of a binding, as for a Policy. Older are the defaults
// that only an older version of the API fills in, see [binding.DecodeNoting].
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
