package explain

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Reason says why a policy, a binding or another member of a stage did nothing with a
// request.
type Reason struct {
	Stage string `json:"stage"`
	// Policy is the name of the policy or of another member. Binding is empty if the
	// policy itself is not met.
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
	// Field is the path of the criterion in the policy or the binding; empty if Text names the
	// criterion.
	Field string `json:"field,omitempty"`
	Text  string `json:"text"`
	// Near says that the author may have expected a match: the policy is about requests like
	// this one, or its rule has a mistake.
	Near bool `json:"near"`
	// Excepted says that policy and binding match, but a PolicyException excludes the request.
	// Exception is its namespace/name.
	Excepted  bool   `json:"excepted,omitempty"`
	Exception string `json:"exception,omitempty"`
	// Generated says that the policy is about the Pods that the object will create.
	Generated bool `json:"generated,omitempty"`
}

// ExceptedBy returns a Reason for each policy and binding that did not run on a request because
// of a PolicyException, as WhyNot does. It only reads d, and evaluates no criteria.
func ExceptedBy(d *engine.Decision) (out []Reason) {
	for i := range d.LeftOut {
		o := &d.LeftOut[i]
		if o.Exception == nil {
			continue
		}
		r := Reason{Stage: o.Stage, Policy: o.Policy, Binding: o.Binding}
		r.except(o.Exception)
		if !slices.Contains(out, r) { // both rounds say so
			out = append(out, r)
		}
	}
	return out
}

// except makes r the reason that the exception x excludes the request.
func (r *Reason) except(x *binding.Exception) {
	r.Text, r.Excepted, r.Exception, r.Near = "not applied: "+x.String(), true, x.Name(), true
}

// String returns the reason on one line.
func (r Reason) String() string {
	who := r.Policy
	if r.Binding != "" {
		who += " › " + r.Binding
	}
	if r.Field != "" {
		return who + ": " + r.Field + " " + r.Text
	}
	return who + ": " + r.Text
}

// Line returns String with "not met: " before it, unless the reason is an exception.
func (r Reason) Line() string {
	if r.Excepted {
		return r.String()
	}
	return "not met: " + r.String()
}

// Explainer explains the decisions of one Engine. It is safe for concurrent use.
type Explainer struct {
	engine *engine.Engine
	types  *openapi.Types

	served   func() []openapi.Resource
	mistakes sync.Map // *NamedRuleWithOperations → what is wrong with its resources
}

// New returns an Explainer for the decisions of e about objects of the kinds in types.
func New(e *engine.Engine, types *openapi.Types) *Explainer {
	return &Explainer{engine: e, types: types, served: sync.OnceValue(types.Resources)}
}

// WhyNot yields the reasons of all policies, bindings and other members of stages that did
// nothing with a request and left no Step, in the order in which they would have run. d is the
// Engine's decision for the request. A policy that does not match costs some microseconds.
func (e *Explainer) WhyNot(ctx context.Context, req *policy.Request, d *engine.Decision) iter.Seq[Reason] {
	return func(yield func(Reason) bool) {
		w := whyNot{Explainer: e, req: req, resource: req.RequestResource, subresource: req.RequestSubResource}
		if w.resource.Empty() {
			w.resource, w.subresource = req.Resource, req.SubResource
		}
		for m := range e.engine.Misses(ctx, req, d) {
			r := Reason{Policy: m.Member, Text: m.Reason, Near: strings.HasPrefix(m.Reason, "spec.match.") && !strings.HasPrefix(m.Reason, "spec.match.kinds")}
			switch {
			case m.Policy != nil:
				r = w.of(&m.Miss)
				r.Policy = cmp.Or(m.Member, r.Policy)
			case m.Exception != nil:
				r.except(m.Exception)
			}
			if r.Stage = m.Stage.Name; r.Stage != engine.PolicyStage {
				r.Binding = "" // such as Kubewarden's, which people do not write
			}
			if !yield(r) {
				return
			}
		}
	}
}

// whyNot turns the binding.Miss values of one request into Reasons.
type whyNot struct {
	*Explainer
	req         *policy.Request
	resource    schema.GroupVersionResource
	subresource string
}

func (w *whyNot) of(m *binding.Miss) Reason {
	r := Reason{Policy: m.Policy.Name(), Near: true}
	match, at := m.Policy.Object().Spec.MatchConstraints, "spec.matchConstraints"
	if m.Binding != nil {
		r.Binding = m.Binding.Name()
		match, at = m.Binding.Object().Spec.MatchResources, "spec.matchResources"
	}
	rules := func() *admissionregistrationv1.NamedRuleWithOperations { return &match.ResourceRules[m.Rule] }
	in := func(member string) string { return fmt.Sprintf("%s.resourceRules[%d].%s", at, m.Rule, member) }
	switch m.Criterion {
	case binding.Bound:
		r.Text = "no binding names it"
	case binding.Admissible:
		r.Text, r.Near = fmt.Sprintf("no policy sees %s of %s", w.req.Operation, w.resource.GroupResource()), false
	case binding.Group, binding.Version, binding.Resource:
		w.resources(&r, rules(), m, in)
	case binding.Operation:
		r.Field, r.Text = in("operations"), fmt.Sprintf("%s; the request is %s", list(rules().Operations), w.req.Operation)
	case binding.Scope:
		r.Field, r.Text = in("scope"), fmt.Sprintf("%s; the request is about a %s", *rules().Scope, map[bool]string{true: "namespaced object", false: "cluster-scoped object"}[w.req.Namespace != "" && w.resource.Resource != "namespaces"])
	case binding.Name:
		r.Field, r.Text = in("resourceNames"), fmt.Sprintf("%s; the request has %s", list(rules().ResourceNames), named(w.req.Name))
	case binding.Excluded:
		r.Field, r.Text = fmt.Sprintf("%s.excludeResourceRules[%d]", at, m.Rule), fmt.Sprintf("excludes %s", w.address())
	case binding.NamespaceLabels:
		want, got := lookup.Unmet(m.Selector, m.Labels)
		r.Field, r.Text = at+".namespaceSelector", fmt.Sprintf("%s; Namespace %s has %s", want, w.req.Namespace, got)
	case binding.ObjectLabels:
		want, got := lookup.Unmet(m.Selector, m.Labels)
		if want == "" {
			want, got = m.Selector.String(), "no metadata" // the options of a CONNECT
		}
		r.Field, r.Text = at+".objectSelector", fmt.Sprintf("%s; the object has %s", want, got)
	case binding.Share:
		key := binding.ShareKey(w.req)
		r.Field = fmt.Sprintf("metadata.annotations[%s]", api.PercentAnnotation)
		r.Text = fmt.Sprintf("%v; %s is in shares of at least %v", m.Binding.Rollout().Share, key, api.LeastShare(binding.ShareHash(key)))
	case binding.Excepted:
		r.except(m.Exception)
	case binding.Param:
		r.Field, r.Text = "spec.paramRef", w.param(m)
	default:
		r.Text, r.Near = "it has no rule for "+w.address(), false
	}
	return r
}

// resources explains a rule that is about other resources.
func (w *whyNot) resources(r *Reason, rule *admissionregistrationv1.NamedRuleWithOperations, m *binding.Miss, in func(string) string) {
	mistake, ok := w.mistakes.Load(rule)
	if !ok {
		mistake = w.mistake(rule)
		w.mistakes.Store(rule, mistake)
	}
	if mistake != "" {
		r.Field, r.Text = in("resources"), list(rule.Resources)+" "+mistake.(string)
		return
	}
	switch m.Criterion {
	case binding.Version:
		r.Field, r.Text = in("apiVersions"), fmt.Sprintf("%s; the request is for %s", list(rule.APIVersions), w.resource.Version)
	case binding.Group:
		r.Field, r.Text, r.Near = in("apiGroups"), fmt.Sprintf("%s; the request is for %s", list(rule.APIGroups), w.address()), false
	default:
		r.Field, r.Text, r.Near = in("resources"), fmt.Sprintf("%s; the request is for %s", list(rule.Resources), w.address()), false
	}
	if slices.Contains(rule.Resources, "pods") && slices.Contains(rule.APIGroups, "") && workloads[w.resource.GroupResource().String()] {
		r.Near, r.Generated = true, true
		r.Text += ", whose Pods are requests of their own"
	}
}

// workloads are the resources whose objects create Pods.
var workloads = map[string]bool{
	"deployments.apps": true, "replicasets.apps": true, "statefulsets.apps": true, "daemonsets.apps": true,
	"jobs.batch": true, "cronjobs.batch": true, "replicationcontrollers": true,
}

// mistake returns which resource of a rule exists in no API; "" if all exist.
func (e *Explainer) mistake(rule *admissionregistrationv1.NamedRuleWithOperations) string {
	for _, name := range rule.Resources {
		if text := e.unserved(rule, name); text != "" {
			return text
		}
	}
	return ""
}

func (e *Explainer) unserved(rule *admissionregistrationv1.NamedRuleWithOperations, name string) string {
	name, _, _ = strings.Cut(name, "/")
	if name == "*" || name == "" {
		return ""
	}
	var here, elsewhere []string
	var of []string // the group-versions in which the name is served
	known := false  // that the rule's group-versions are known
	for _, s := range e.served() {
		gv := s.GVR.GroupVersion().String()
		if !includes(rule.APIGroups, s.GVR.Group) || !includes(rule.APIVersions, s.GVR.Version) {
			elsewhere = append(elsewhere, s.GVR.Resource)
			if s.GVR.Resource == name {
				of = append(of, gv)
			}
			continue
		}
		if known = true; s.GVR.Resource == name {
			return ""
		}
		if here = append(here, s.GVR.Resource); strings.EqualFold(s.Kind.Kind, name) {
			return fmt.Sprintf("names no resource of %s; did you mean %s?", versions(rule), s.GVR.Resource)
		}
	}
	switch near := lookup.Nearest(name, here); {
	case !known:
		return "" // a definition that was not given
	case len(of) > 0:
		return fmt.Sprintf("names no resource of %s; %s are of %s", versions(rule), name, strings.Join(of, ", "))
	case near != "":
		return fmt.Sprintf("names no resource of %s; did you mean %s?", versions(rule), near)
	}
	if near := lookup.Nearest(name, elsewhere); near != "" {
		return fmt.Sprintf("names no resource of %s; did you mean %s of another group?", versions(rule), near)
	}
	return "names no resource of " + versions(rule)
}

func includes(items []string, s string) bool {
	return slices.Contains(items, "*") || slices.Contains(items, s)
}

// versions returns the group-versions of a rule as text.
func versions(rule *admissionregistrationv1.NamedRuleWithOperations) string {
	var out []string
	for _, g := range rule.APIGroups {
		for _, v := range rule.APIVersions {
			out = append(out, schema.GroupVersion{Group: g, Version: v}.String())
		}
	}
	return strings.Join(out, ", ")
}

// param returns a description of the parameters that a binding selects.
func (w *whyNot) param(m *binding.Miss) string {
	ref, kind := m.Binding.Object().Spec.ParamRef, m.Policy.Object().Spec.ParamKind
	where := ""
	if ns := ref.Namespace; ns != "" {
		where = " in namespace " + ns
	} else if res, ok := w.types.ResourceFor(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)); ok && res.Namespaced {
		where = " in namespace " + w.req.Namespace
	}
	if ref.Name != "" {
		return fmt.Sprintf("finds no %s %s%s, and parameterNotFoundAction is Allow", kind.Kind, ref.Name, where)
	}
	return fmt.Sprintf("selects no %s%s, and parameterNotFoundAction is Allow", kind.Kind, where)
}

// address returns the resource of the request as kubectl writes it: deployments.apps/scale.
func (w *whyNot) address() string {
	text := w.resource.GroupResource().String()
	if w.subresource != "" {
		text += "/" + w.subresource
	}
	return text
}

func named(name string) string {
	if name == "" {
		return "no name"
	}
	return "name " + name
}

// list writes names as YAML does; "" is the core group.
func list[T ~string](items []T) string {
	texts := make([]string, len(items))
	for i, item := range items {
		if texts[i] = string(item); item == "" {
			texts[i] = `""`
		}
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
