package expansion

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
)

// Validator judges objects that a workload will create.
type Validator interface {
	// Validate returns what is wrong with o, which was admitted. It must return soon
	// after ctx ends, and neither modify nor retain o.
	Validate(ctx context.Context, o *Object) []Finding
}

// Finding is one reason why an object would be refused, or would only be stored with
// a warning.
type Finding struct {
	Message string // in the words of the server
	// Action says what the rule does about it.
	Action Action
	// Advice says that it denies nothing, whatever a template says: what decides of a real
	// object may find something else.
	Advice bool
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

// Outcome returns what a Finding about o means for the workload. A template with an
// enforcementAction puts it in the place of the rule's own action (Gatekeeper spec
// §10.1); one that Gatekeeper does not know means as little as dryrun.
func (o *Object) Outcome(f Finding) Action {
	action := Action(o.Template.EnforcementAction)
	switch action {
	case "":
		action = f.Action
	case Deny, Warn:
	default:
		return DryRun
	}
	if f.Advice && action == Deny {
		return Warn
	}
	return action
}

// Denied reports whether a Finding means that the workload is to be denied.
func (o *Object) Denied() bool {
	for _, f := range o.Findings {
		if o.Outcome(f) == Deny {
			return true
		}
	}
	return false
}

// Server returns a Validator that judges as the validation of a server does.
func Server(set *validating.Set) Validator { return server{set} }

type server struct{ set *validating.Set }

var actions = map[admissionregistrationv1.ValidationAction]Action{
	admissionregistrationv1.Deny: Deny, admissionregistrationv1.Warn: Warn, admissionregistrationv1.Audit: DryRun,
}

// Validate implements Validator. That there is no verdict is a Finding that denies
// nothing.
func (s server) Validate(ctx context.Context, o *Object) []Finding {
	v, err := s.set.Judge(ctx, o.Request, o.Decision.Object)
	if err != nil {
		return []Finding{{Message: "validation could not judge it: " + err.Error(), Action: Warn, Advice: true}}
	}
	out := make([]Finding, 0, len(v.Findings))
	for _, f := range v.Findings {
		out = append(out, Finding{Message: f.String(), Action: actions[f.Action], Advice: f.Source == validating.Server})
	}
	return out
}
