package expansion

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
)

// Validator checks objects that a workload will create.
type Validator interface {
	// Validate returns the violations of o, which was admitted. It must return soon after ctx
	// ends, and must neither modify nor retain o.
	Validate(ctx context.Context, o *Object) []validating.Violation
}

// Action says what a violated rule does, in Gatekeeper's terms.
type Action string

// The actions, the strictest first.
const (
	Deny   Action = "deny"
	Warn   Action = "warn"
	DryRun Action = "dryrun"
)

var actions = map[admissionregistrationv1.ValidationAction]Action{
	admissionregistrationv1.Deny: Deny, admissionregistrationv1.Warn: Warn, admissionregistrationv1.Audit: DryRun,
}

// Outcome returns the Action of a Violation of o for the workload. Violations of the server
// itself never deny a workload, whatever a template says, because the real object may be
// different.
func (o *Object) Outcome(v validating.Violation) Action {
	return o.outcome(actions[v.Action], v.Source == validating.Server)
}

// outcome returns the Action for the workload, given the rule's own action. The enforcementAction
// of a template replaces it (Gatekeeper spec §10.1); an unknown one counts as dryrun. Advice
// never denies.
func (o *Object) outcome(own Action, advice bool) Action {
	action := Action(o.Template.EnforcementAction)
	switch action {
	case "":
		action = own
	case Deny, Warn:
	default:
		return DryRun
	}
	if advice && action == Deny {
		return Warn
	}
	return action
}

// Denied reports whether a Violation of o denies the workload.
func (o *Object) Denied() bool {
	return slices.ContainsFunc(o.Violations, func(v validating.Violation) bool { return o.Outcome(v) == Deny })
}

// Server returns a Validator that checks objects as an API server's validation does.
func Server(set *validating.Set) Validator { return server{set} }

type server struct{ set *validating.Set }

// Validate implements Validator. If the object could not be checked, that is a Violation that
// does not deny the workload.
func (s server) Validate(ctx context.Context, o *Object) []validating.Violation {
	result, err := s.set.Judge(ctx, o.Request, o.Decision.Object)
	if err != nil {
		return []validating.Violation{{Source: validating.Server, Action: admissionregistrationv1.Warn, Message: "validation could not judge it: " + err.Error()}}
	}
	return result.Violations
}
