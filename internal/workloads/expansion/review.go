package expansion

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Reviewer answers reviews of workloads by evaluating the objects that they create. It is a
// webhook.Validator.
type Reviewer struct {
	// Expander returns the present Expander, nil while nothing has been read.
	Expander func() *Expander
	// Expanded is called with the number of objects of each review; nil ignores it.
	Expanded func(objects int)
}

// Bounds of one review, within those of the request.
const (
	// reviewTime leaves most of the time that a server waits to the network.
	reviewTime    = 2 * time.Second
	reviewObjects = 20
	reviewBytes   = 4 << 20
	// maxWarnings bounds the warnings of a review; an API server passes on at most 4096 bytes.
	maxWarnings = 20
)

// ReviewLimits are the Limits of an Expander for reviews.
var ReviewLimits = expand.Limits{Objects: reviewObjects, Bytes: reviewBytes}

// Validate returns the reason why a workload is denied, nil if it is allowed, and warnings about
// the objects that it creates: denials, changes and violations. Only one of Gatekeeper's
// templates can deny a workload, never a built-in one.
func (r *Reviewer) Validate(ctx context.Context, req *policy.Request) (*metav1.Status, []string) {
	x := r.Expander()
	if x == nil || req.Object == nil || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return nil, nil
	}
	bounded, cancel := context.WithTimeoutCause(ctx, reviewTime, fmt.Errorf("expanding takes longer than %s", reviewTime))
	defer cancel()
	objects, err := x.Evaluate(bounded, req, req.Object)
	if r.Expanded != nil {
		r.Expanded(len(objects))
	}
	if err != nil {
		return nil, []string{"mapd: unable to expand object: " + err.Error()}
	}
	var a answer
	for _, o := range objects {
		a.add(o)
	}
	return a.status(), a.warnings
}

// answer collects the results of objects for their workload.
type answer struct {
	denials, warnings []string
}

func (a *answer) add(o *Object) {
	say := func(action Action, message string) {
		text := about(o) + message
		if o.Template.BuiltIn && action == Deny {
			action = Warn
		}
		switch {
		case action == Deny:
			a.denials = append(a.denials, text)
		case action == Warn && len(a.warnings) < maxWarnings:
			a.warnings = append(a.warnings, text)
		}
	}
	switch {
	case o.Err != nil:
		say(o.outcome(Deny, false), o.Err.Error())
		return
	case o.Decision.Status != nil:
		say(o.outcome(Deny, o.advisory), o.Decision.Status.Message)
		return
	}
	for _, v := range o.Violations {
		say(o.Outcome(v), v.String())
	}
	if names := changedBy(o); len(names) > 0 && o.Template.EnforcementAction != string(DryRun) && len(a.warnings) < maxWarnings {
		a.warnings = append(a.warnings, about(o)+"changed by "+strings.Join(names, ", "))
	}
}

// about returns the beginning of a message about an object, with Gatekeeper's text if one of its
// templates made the object (Gatekeeper spec §10.5).
func about(o *Object) string {
	prefix := "mapd: "
	if !o.Template.BuiltIn {
		prefix = "[Implied by " + o.Template.Name + "] "
	}
	return prefix + manifest.Name(o.Made) + ": "
}

// changedBy returns the names of the policies that changed an object, in their order.
func changedBy(o *Object) []string {
	if !o.Decision.Changed {
		return nil
	}
	var names []string
	seen := map[string]bool{}
	for _, s := range o.Decision.Steps {
		if len(s.Paths()) > 0 && !seen[s.Policy] {
			seen[s.Policy] = true
			names = append(names, s.Policy)
		}
	}
	return names
}

// maxDenial bounds the text of a denial.
const maxDenial = 4096

func (a *answer) status() *metav1.Status {
	if len(a.denials) == 0 {
		return nil
	}
	message := words.Cut(strings.Join(a.denials, "\n"), maxDenial)
	return &metav1.Status{Status: metav1.StatusFailure, Message: message, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden}
}
