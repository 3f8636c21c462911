package expansion

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
)

// Validator judges objects that a workload will create.
type Validator interface {
	// Validate returns what is wrong with o, which was admitted. It must return soon
	// after ctx ends, and neither modify nor retain o.
	Validate(ctx context.Context, o *Object) []validating.Violation
}

// Action is what a rule does about an object that it does not like, in Gatekeeper's
// words.
type Action string

// The actions, of which each is milder than the one before.
const (
	Deny   Action = "deny"
	Warn   Action = "warn"
	DryRun Action = "dryrun"
)

var actions = map[admissionregistrationv1.ValidationAction]Action{
	admissionregistrationv1.Deny: Deny, admissionregistrationv1.Warn: Warn, admissionregistrationv1.Audit: DryRun,
}

// Outcome returns what a Violation of o means for the workload. What the server itself says
// denies nothing, whatever a template says: what decides of a real object may decide otherwise.
func (o *Object) Outcome(v validating.Violation) Action {
	return o.outcome(actions[v.Action], v.Source == validating.Server)
}

// outcome returns what a rule's own action means for the workload. A template with an
// enforcementAction puts it in the place of that (Gatekeeper spec §10.1); one that Gatekeeper
// does not know means as little as dryrun. Advice denies nothing.
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

// Denied reports whether a Violation means that the workload is to be denied.
func (o *Object) Denied() bool {
	return slices.ContainsFunc(o.Violations, func(v validating.Violation) bool { return o.Outcome(v) == Deny })
}

// Server returns a Validator that judges as the validation of a server does.
func Server(set *validating.Set) Validator { return server{set} }

type server struct{ set *validating.Set }

// Validate implements Validator. That the object could not be judged is a Violation that denies
// nothing.
func (s server) Validate(ctx context.Context, o *Object) []validating.Violation {
	result, err := s.set.Judge(ctx, o.Request, o.Decision.Object)
	if err != nil {
		return []validating.Violation{{Source: validating.Server, Action: admissionregistrationv1.Warn, Message: "validation could not judge it: " + err.Error()}}
	}
	return result.Violations
}
