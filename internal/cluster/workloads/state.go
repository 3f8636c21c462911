package workloads

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// State describes what is used to expand workloads.
type State struct {
	// Rules match the workloads that are expanded.
	Rules []admissionregistrationv1.RuleWithOperations
	// Templates are Gatekeeper's expansion templates, by name.
	Templates []TemplateState
	// Problems describe other objects that have no effect on what workloads create, or cannot be
	// run, and kinds that cannot be read.
	Problems []string
}

// TemplateState is one expansion template and its state.
type TemplateState struct {
	// Object has the template's apiVersion, kind, name, uid and generation. It must not
	// be modified.
	Object *unstructured.Unstructured
	// Err is the reason why the template has no effect, nil if it has one. Cycle: the template is
	// part of a cycle; otherwise it is not valid.
	Err   error
	Cycle bool
}

// stateOf returns the states of the objects that were read.
func (w *Feature) stateOf(expands *expand.Set) *State {
	s := &State{Rules: w.rulesOf(expands), Problems: w.problems()}
	for _, t := range w.read.templates {
		state := TemplateState{Object: t.Object, Err: t.Err}
		if circle := expands.Circle(t.Value); circle != nil {
			state.Err, state.Cycle = expand.CycleError(circle), true
		}
		s.Templates = append(s.Templates, state)
	}
	return s
}

// problems returns the problems of all objects except templates.
func (w *Feature) problems() []string {
	out := w.all.Problems()
	add := func(err error, object *unstructured.Unstructured) {
		if err != nil {
			out = append(out, fmt.Sprintf("%s %s has no effect: %v", object.GetKind(), object.GetName(), err))
		}
	}
	for _, p := range w.read.policies {
		add(p.Err, p.Object)
	}
	for _, b := range w.read.bindings {
		add(b.Err, b.Object)
	}
	return append(out, w.natives.Problems()...)
}

// Entries implements feature.State.
func (s *State) Entries(validating bool, base admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
	if entry := newEntry(s.Rules, base); entry != nil && validating {
		return []admissionregistrationv1.MutatingWebhook{*entry}
	}
	return nil
}

// EntryName is the name of the webhook's entry for workloads.
const EntryName = "expand.mapd.dev"

// newEntry returns the validating entry for the workloads that rules match, or nil without rules.
//
// The entry is skipped if mapd cannot be reached, because it only gives early warnings; admission
// of the created objects does not depend on it. It excludes workloads that a controller has
// created from another one, such as the ReplicaSets of a Deployment, because the author of the
// Deployment has been warned already.
func newEntry(rules []admissionregistrationv1.RuleWithOperations, base admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhook {
	w := webhookconfig.RulesEntry(base, EntryName, webhook.ExpandPath, rules)
	if w == nil {
		return nil
	}
	w.FailurePolicy = new(admissionregistrationv1.Ignore)
	w.MatchPolicy = new(admissionregistrationv1.Equivalent)
	w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{
		Name:       "not-controlled",
		Expression: "!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(r, has(r.controller) && r.controller)",
	})
	return w
}

// ListingName is the ConfigMap in mapd's namespace with the states of Gatekeeper's expansion
// templates, and with other objects that have no effect on what workloads create. mapd does not
// write the templates' status, because Gatekeeper may be running and writes it.
const ListingName = "mapd-expansion"

// States of an expansion template in the ConfigMap.
const (
	running = "running"
	cycle   = "cycle"   // templates that generate each other's workloads
	refused = "refused" // it is not valid
)

// Listing implements feature.State.
func (s *State) Listing() *feature.Listing {
	l := &feature.Listing{
		Name: ListingName, Key: "templates", About: "expansion templates", One: "template", Many: "templates", Action: "Check",
		States: []string{running, cycle, refused}, Problems: s.Problems,
	}
	for _, t := range s.Templates {
		o := feature.Line{ID: t.Object.GetName(), State: running, Object: t.Object}
		switch {
		case t.Cycle:
			o.State, o.Text = cycle, t.Err.Error()
		case t.Err != nil:
			o.State, o.Text = refused, legacy.Reason(t.Err)
		}
		if t.Err != nil {
			o.Reason = "TemplateDisabled"
		}
		l.Lines = append(l.Lines, o)
	}
	return l
}
