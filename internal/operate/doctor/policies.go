package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/api"
)

const (
	policiesCheck = "policies"
	paramsCheck   = "params"
)

// policies checks the status of each policy and binding, and whether they refer
// to each other.
func (x *examination) policies() {
	o := &x.own
	if !o.served {
		return // another check has reported that
	}
	before := len(x.lines)
	if o.policiesErr != nil {
		x.unseen(policiesCheck, "list", api.PolicyResource+"."+api.OwnGroup, o.policiesErr)
	}
	if o.bindingsErr != nil {
		x.unseen(policiesCheck, "list", api.BindingResource+"."+api.OwnGroup, o.bindingsErr)
	}
	var states []state
	for _, p := range o.policies {
		states = append(states, stateOf("policy", p.object, p.err))
	}
	for _, b := range o.bindings {
		if !o.dangling(b) { // dangling bindings get a line of their own
			states = append(states, stateOf("binding", b.object, b.err))
		}
	}
	x.lines = append(x.lines, notReady(states)...)
	x.existing()

	if o.policiesErr == nil && o.bindingsErr == nil {
		var unbound, dangling []string
		for _, p := range o.policies {
			if !p.bound {
				unbound = append(unbound, p.object.GetName())
			}
		}
		for _, b := range o.bindings {
			if o.dangling(b) {
				dangling = append(dangling, fmt.Sprintf("%s (policy %s)", b.object.GetName(), b.binding.Spec.PolicyName))
			}
		}
		if len(unbound) > 0 {
			x.say(Warning, policiesCheck, "without a binding, so without effect: "+shortList(unbound), "write a MutatingAdmissionPolicyBinding, or delete them")
		}
		if len(dangling) > 0 {
			x.say(Warning, policiesCheck, "bindings whose policy does not exist: "+shortList(dangling), "create the policies, or delete the bindings")
		}
	}
	switch {
	case len(x.lines) > before:
	case len(o.policies)+len(o.bindings) == 0:
		x.say(OK, policiesCheck, "none yet", "")
	default:
		x.say(OK, policiesCheck, fmt.Sprintf("%s and %s, all ready", words.Count(len(o.policies), "policy", "policies"), words.Count(len(o.bindings), "binding", "bindings")), "")
	}
}

// existing reports bindings with mapd.dev/existing that need the user's attention.
func (x *examination) existing() {
	for _, b := range x.own.bindings {
		value, ok := b.object.GetAnnotations()[api.ExistingAnnotation]
		if !ok {
			continue
		}
		check, found := "binding "+b.object.GetName(), false
		conditions, _, _ := unstructured.NestedSlice(b.object.Object, "status", "conditions")
		for _, c := range conditions {
			c, _ := c.(map[string]any)
			if c["type"] != "ExistingInLine" {
				continue
			}
			found = true
			message, _ := c["message"].(string)
			switch c["reason"] {
			case "NotAllowed":
				x.say(Bad, check, "objects that exist are not written: "+message, "docs/operate/existing.md has the rights")
			case "NotAudited":
				x.say(Warning, check, message, "start mapd serve with --audit-interval, such as 6h")
			case "ChangedBack":
				x.say(Warning, check, "objects that exist are not written any more: "+message, "see who else sets the field")
			}
		}
		if !found {
			x.say(Warning, check, fmt.Sprintf("%s is %q, and no audit has looked at objects that exist", api.ExistingAnnotation, value), "mapd serve needs --audit-interval; the first audit takes a while")
		}
	}
}

// state is the status that mapd has written for a policy or a binding.
type state struct {
	what, name string
	ready      answer // unknown: mapd has not written a condition for this generation
	why        string
	warnings   []string // about a policy or binding that is ready
}

func stateOf(what string, obj *unstructured.Unstructured, undecodable error) state {
	s := state{what: what, name: obj.GetName(), ready: unknown}
	if undecodable != nil {
		s.ready, s.why = no, undecodable.Error()
		return s
	}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		seen, _ := c["observedGeneration"].(int64)
		if c["type"] != "Ready" || seen < obj.GetGeneration() {
			continue
		}
		switch c["status"] {
		case "True":
			s.ready = yes
		case "False":
			s.ready = no
		}
		s.why, _ = c["message"].(string)
		if s.why == "" {
			s.why, _ = c["reason"].(string)
		}
	}
	found, _, _ := unstructured.NestedSlice(obj.Object, "status", "typeChecking", "expressionWarnings")
	for _, w := range found {
		w, _ := w.(map[string]any)
		field, _ := w["fieldRef"].(string)
		text, _ := w["warning"].(string)
		s.warnings = append(s.warnings, field+": "+text)
	}
	return s
}

var shortNames = map[string]string{"policy": "map", "binding": "mapb"}

// notReady returns a line for each policy and binding that does not work or has a warning, up to
// ten, one for the others, and one for those without a status.
func notReady(states []state) []Line {
	const most = 10
	var lines []Line
	var more, unseen []string
	for _, s := range states {
		switch {
		case s.ready == yes && len(s.warnings) > 0 && len(lines) < most:
			fact := s.warnings[0]
			if n := len(s.warnings) - 1; n > 0 {
				fact += fmt.Sprintf(" (and %s)", words.Count(n, "more warning", "more warnings"))
			}
			lines = append(lines, Line{Warning, s.what + " " + s.name, fact, "kubectl describe " + shortNames[s.what] + "/" + s.name})
		case s.ready == yes:
		case s.ready == unknown && s.why == "":
			unseen = append(unseen, s.what+" "+s.name)
		case len(lines) == most:
			more = append(more, s.what+" "+s.name)
		default:
			mark := Bad
			if s.ready == unknown {
				mark = Warning
			}
			lines = append(lines, Line{mark, s.what + " " + s.name, "not ready: " + s.why, "kubectl describe " + shortNames[s.what] + "/" + s.name})
		}
	}
	if len(more) > 0 {
		lines = append(lines, Line{Bad, policiesCheck, "not ready either: " + shortList(more), "kubectl get map,mapb"})
	}
	if len(unseen) > 0 {
		lines = append(lines, Line{Warning, policiesCheck, "mapd has not looked at their present form: " + shortList(unseen), "see whether a replica holds the lease, and its log"})
	}
	return lines
}

// parameters checks whether the parameters that bindings name exist.
func (x *examination) parameters(ctx context.Context) {
	o := &x.own
	if !o.served || !o.complete() {
		return
	}
	kinds := map[schema.GroupVersion][]kind{}
	found := 0
	before := len(x.lines)
	missing := map[string][]string{} // permission → bindings
	unserved := map[string]bool{}
	for _, b := range o.bindings {
		if b.err != nil || b.binding.Spec.ParamRef == nil {
			continue
		}
		p := o.policy(b.binding.Spec.PolicyName)
		if p == nil || p.err != nil || p.policy.Spec.ParamKind == nil {
			continue
		}
		pk := p.policy.Spec.ParamKind
		gv, err := schema.ParseGroupVersion(pk.APIVersion)
		if err != nil {
			continue // the policy is not ready
		}
		if _, known := kinds[gv]; !known {
			if kinds[gv], err = x.resources(ctx, gv); err != nil {
				x.unseen(paramsCheck, "get", "/apis/"+gv.String(), err)
			}
		}
		i := slices.IndexFunc(kinds[gv], func(k kind) bool { return k.kind == pk.Kind })
		if i < 0 {
			name := p.object.GetName()
			if !unserved[name] && err == nil && stateOf("policy", p.object, nil).ready != no {
				unserved[name] = true
				x.say(Bad, paramsCheck, fmt.Sprintf("paramKind %s %s of policy %s is not served", pk.APIVersion, pk.Kind, name), "create its CustomResourceDefinition")
			}
			continue
		}
		k, ref := kinds[gv][i], b.binding.Spec.ParamRef
		what, verb, err := x.param(ctx, gv.WithResource(k.resource), k.namespaced, ref)
		switch {
		case apierrors.IsForbidden(err):
			permission := verb + " " + schema.GroupResource{Group: gv.Group, Resource: k.resource}.String()
			if ref.Namespace != "" {
				permission += " in " + ref.Namespace
			}
			missing[permission] = append(missing[permission], b.object.GetName())
		case err != nil:
			x.unseen(paramsCheck, verb, fmt.Sprintf("params of binding %s", b.object.GetName()), err)
		case what != "":
			mark, effect := Warning, "so it has no effect"
			if a := ref.ParameterNotFoundAction; a != nil && *a == admissionregistrationv1.DenyAction {
				effect = "and it skips what its policy would be applied to"
				if f := p.policy.Spec.FailurePolicy; f == nil || *f == admissionregistrationv1.Fail {
					mark, effect = Bad, "and it refuses what its policy would be applied to"
				}
			}
			x.say(mark, paramsCheck, fmt.Sprintf("binding %s: there is no %s, %s", b.object.GetName(), what, effect), "create it, or set parameterNotFoundAction")
		case verb != "":
			found++
		}
	}
	for _, permission := range slices.Sorted(maps.Keys(missing)) {
		x.say(Unknown, paramsCheck, "not known whether the params exist of bindings "+shortList(missing[permission]), "needs: "+permission)
	}
	if found > 0 && len(x.lines) == before {
		x.say(OK, paramsCheck, fmt.Sprintf("those of %s exist", words.Count(found, "binding", "bindings")), "")
	}
}

// param returns a description of what a paramRef refers to, if that does not exist, and the verb
// that was used to look. If a paramRef of a namespaced kind has no namespace, the parameters are
// those in the request's namespace, which is not known here: verb is "" then.
func (x *examination) param(ctx context.Context, gvr schema.GroupVersionResource, namespaced bool, ref *admissionregistrationv1.ParamRef) (what, verb string, err error) {
	var client dynamic.ResourceInterface = x.Dynamic.Resource(gvr)
	in := ""
	if namespaced {
		if ref.Namespace == "" {
			return "", "", nil
		}
		client = x.Dynamic.Resource(gvr).Namespace(ref.Namespace)
		in = ref.Namespace + "/"
	}
	if ref.Name != "" {
		_, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return gvr.Resource + " " + in + ref.Name, "get", nil
		}
		return "", "get", err
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	if err != nil {
		return "", "list", err
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: selector.String(), Limit: 1})
	if err != nil || len(list.Items) > 0 {
		return "", "list", err
	}
	return gvr.Resource + " " + in + "* with " + selector.String(), "list", nil
}

// duplicatedPolicies reports native policies with the names of policies in
// mapd's group: a server that runs native policies applies both.
func (x *examination) duplicatedPolicies(ctx context.Context) {
	const check = "native policies"
	if x.version == "" || !x.own.complete() {
		return
	}
	names, bound, err := x.nativeNames(ctx)
	if err != nil {
		x.unseen(check, "list", api.PolicyResource+" and "+api.BindingResource+"."+api.NativeGroup, err)
		return
	}
	if x.executes == no {
		if len(names) > 0 {
			x.say(Warning, check, "these have no effect here: "+shortList(names), "write "+api.OwnGroup+"/v1 as their apiVersion")
		}
		return
	}
	var twice []string
	for _, name := range names {
		if p := x.own.policy(name); p != nil && p.bound && bound[name] {
			twice = append(twice, name)
		}
	}
	if len(twice) == 0 {
		return
	}
	mark, fact := Bad, "applied by the server and by mapd: "
	if x.executes == unknown {
		mark, fact = Warning, "if the server runs them, applied by it and by mapd: "
	}
	x.say(mark, check, fact+shortList(twice), "delete one of the two, or its binding")
}

// isKept reports whether mapd writes a policy for Gatekeeper's mutators, and counts these policies
// in x.live.
func (x *examination) isKept(p *unstructured.Unstructured) bool {
	if p.GetLabels()[nativepolicies.LiveLabel] == "" {
		return false
	}
	if o := nativepolicies.ReadObject(p, nil); o.Ours && len(o.Owners) > 0 {
		x.live++
	}
	return true
}

func (x *examination) nativeNames(ctx context.Context) (names []string, bound map[string]bool, err error) {
	list, err := x.Dynamic.Resource(resource(api.NativeGroup, x.version, api.PolicyResource)).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		p := &list.Items[i]
		// A policy that mapd writes may be in both groups for a moment.
		if !x.isKept(p) {
			names = append(names, p.GetName())
		}
	}
	if list, err = x.Dynamic.Resource(resource(api.NativeGroup, x.version, api.BindingResource)).List(ctx, metav1.ListOptions{}); err != nil {
		return nil, nil, err
	}
	bound = map[string]bool{}
	for _, b := range list.Items {
		name, _, _ := unstructured.NestedString(b.Object, "spec", "policyName")
		bound[name] = true
	}
	return names, bound, nil
}
