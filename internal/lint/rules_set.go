package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// apiVersion finds API versions that servers of the given releases do not serve, or not by
// default (spec §1.1).
func apiVersion(p *pass) {
	check := func(d *manifest.Document) {
		gv := d.Object.GroupVersionKind().GroupVersion()
		since, known := map[string]int{"v1alpha1": 0, "v1beta1": 34, "v1": 36}[gv.Version]
		switch oldest, newest := p.set.opts.Oldest, p.set.opts.Newest; {
		case gv.Group != api.NativeGroup || !known:
		case oldest < since:
			p.field(d, "apiVersion", "%s is served from Kubernetes 1.%d on, and 1.%d is among the servers", gv, since, oldest)
		case gv.Version != "v1" && newest >= 36:
			f := p.field(d, "apiVersion", "from Kubernetes 1.36 on a server has %s only on request; write %s/v1", gv, gv.Group)
			f.Severity, f.Written, f.Near = Warning, gv.String(), gv.Group+"/v1"
		}
	}
	for _, s := range p.set.policies {
		check(s.doc)
	}
	for _, b := range p.set.bindings {
		check(b.doc)
	}
}

// nativeRollout finds mapd's annotations on native policies and bindings and on Gatekeeper's
// mutators. Nobody reads them there, so the policy or mutator affects more requests than its
// author means.
func nativeRollout(p *pass) {
	check := func(d *manifest.Document, text string, args ...any) {
		for _, key := range api.RestrictingAnnotations(d.Object.GetAnnotations()) {
			p.field(d, "metadata.annotations", text, append([]any{key}, args...)...)
		}
	}
	const native = "a server does not read %s: it enforces the policy, on all objects; only mapd does, best in the group %s"
	for _, s := range p.set.policies {
		if s.doc.Object.GroupVersionKind().Group == api.NativeGroup {
			check(s.doc, native, api.OwnGroup)
		}
	}
	for _, b := range p.set.bindings {
		if b.doc.Object.GroupVersionKind().Group == api.NativeGroup {
			check(b.doc, native, api.OwnGroup)
			if _, ok := b.doc.Object.GetAnnotations()[api.ExistingAnnotation]; ok {
				p.field(b.doc, "metadata.annotations", "a server does not read %s: objects that exist stay as they are; only mapd does, in the group %s", api.ExistingAnnotation, api.OwnGroup)
			}
		}
	}
	for _, d := range p.set.mutators {
		check(d, "nobody reads %s of a mutator: it changes objects all the same; all mutators together can be in shadow, with mapd serve --legacy shadow")
	}
}

// unknownResource finds resources of built-in groups that no release serves. A rule stands for
// all combinations of its groups, versions and resources, so a name is reported only if none of
// its combinations exists.
func unknownResource(p *pass) {
	var all []openapi.Resource
	var groups map[string]bool
	// Most rules name known resources, and listing all resources takes long.
	load := sync.OnceFunc(func() {
		all, groups = p.set.types.Resources(), maps.Clone(builtinGroups())
		if p.set.served {
			// A cluster of another release may lack a group, and a group whose server does not
			// answer has no resources.
			maps.DeleteFunc(groups, func(g string, _ bool) bool {
				return !slices.ContainsFunc(all, func(r openapi.Resource) bool { return r.GVR.Group == g })
			})
		}
	})
	each := func(d *manifest.Document, path string, rules []admissionregistrationv1.NamedRuleWithOperations) {
		for i, rule := range rules {
			if p.set.has(&rule) {
				continue
			}
			load()
			if slices.Contains(rule.APIGroups, "*") || slices.ContainsFunc(rule.APIGroups, func(g string) bool { return !groups[g] }) {
				for j, g := range rule.APIGroups {
					if g == "core" {
						p.field(d, fmt.Sprintf("%s[%d].apiGroups[%d]", path, i, j), `the group of Pods and Services is written as ""`)
					}
				}
				for j, name := range rule.Resources {
					resource, _, _ := strings.Cut(name, "/")
					if lower := strings.ToLower(resource); lower != resource {
						p.field(d, fmt.Sprintf("%s[%d].resources[%d]", path, i, j), "no resource has capital letters, so %s is none; write the plural of the kind, as kubectl api-resources lists it", resource)
					}
				}
				continue
			}
			for j, name := range rule.Resources {
				resource, sub, hasSub := strings.Cut(name, "/")
				if resource == "*" {
					continue
				}
				at := fmt.Sprintf("%s[%d].resources[%d]", path, i, j)
				var versions, elsewhere, subs []string
				found := false
				for _, r := range all {
					if r.GVR.Resource != resource {
						continue
					}
					if !slices.Contains(rule.APIGroups, r.GVR.Group) {
						elsewhere = append(elsewhere, groupName(r.GVR.Group))
						continue
					}
					if !slices.Contains(rule.APIVersions, "*") && !slices.Contains(rule.APIVersions, r.GVR.Version) {
						versions = append(versions, r.GVR.Version)
						continue
					}
					found = true
					subs = append(subs, r.Subresources...)
				}
				slices.Sort(elsewhere)
				switch {
				case found && (!hasSub || sub == "*" || slices.Contains(subs, sub)):
				case found:
					p.field(d, at, "%s has no subresource %s; it has %s", resource, sub, list(subs))
				case len(versions) > 0:
					p.field(d, at, "%s is not in version %s, but in %s", resource, strings.Join(rule.APIVersions, ", "), list(versions)).Severity = Warning
				case len(elsewhere) > 0:
					p.field(d, at, "%s is not in group %s, but in %s", resource, quoteAll(rule.APIGroups), list(elsewhere))
				default:
					f := p.field(d, at, "group %s has no resource %s", quoteAll(rule.APIGroups), resource)
					if right := spelling(resource, rule.APIGroups, all); right != "" {
						f.Message += fmt.Sprintf("; did you mean %s?", right)
						if hasSub {
							right += "/" + sub
						}
						if d == p.subject.doc { // the policy's own, not a binding's
							f.fix = fixResource(strings.HasPrefix(path, "spec.matchConstraints.exclude"), i, j, right)
						}
					}
				}
			}
		}
	}
	p.eachRules(each)
}

// eachRules calls f for the lists of rules of a policy and of its bindings.
func (p *pass) eachRules(f func(d *manifest.Document, path string, rules []admissionregistrationv1.NamedRuleWithOperations)) {
	m := p.subject.object.Spec.MatchConstraints
	f(p.subject.doc, "spec.matchConstraints.resourceRules", m.ResourceRules)
	f(p.subject.doc, "spec.matchConstraints.excludeResourceRules", m.ExcludeResourceRules)
	for _, b := range p.subject.bindings {
		if m := b.object.Spec.MatchResources; m != nil {
			f(b.doc, "spec.matchResources.resourceRules", m.ResourceRules)
			f(b.doc, "spec.matchResources.excludeResourceRules", m.ExcludeResourceRules)
		}
	}
}

const unreviewedResource = "unreviewed-resource"

// unreviewedResources finds resources in rules for which no request is ever reviewed by policies.
func unreviewedResources(p *pass) {
	groups := builtinGroups()
	// API servers run native policies for webhook configurations, but call no webhook for them.
	unreviewed := func(of, resource string) bool {
		return binding.Unreviewed(of, resource) || group(p.subject.doc) == api.OwnGroup && of == api.NativeGroup &&
			(resource == "mutatingwebhookconfigurations" || resource == "validatingwebhookconfigurations")
	}
	p.eachRules(func(d *manifest.Document, path string, rules []admissionregistrationv1.NamedRuleWithOperations) {
		if strings.HasSuffix(path, ".excludeResourceRules") {
			return // excluding such a resource does no harm
		}
		for i, rule := range rules {
			for j, name := range rule.Resources {
				resource, _, _ := strings.Cut(name, "/")
				at := slices.IndexFunc(rule.APIGroups, func(g string) bool { return unreviewed(g, resource) })
				if at < 0 || slices.ContainsFunc(rule.APIGroups, func(g string) bool { return !groups[g] && !unreviewed(g, resource) }) {
					continue
				}
				who := "servers leave"
				if g := rule.APIGroups[at]; g == api.OwnGroup || g == api.ExceptionGroup {
					who = "mapd leaves"
				}
				p.field(d, fmt.Sprintf("%s[%d].resources[%d]", path, i, j), "no policy sees requests for %s of %s: %s them out, whatever policies match", resource, rule.APIGroups[at], who)
			}
		}
	})
}

// unknownResourceRule is the name of the rule that reports resources that no release serves, or
// that the cluster does not.
const unknownResourceRule = "unknown-resource"

// has reports whether each resource that a rule names exists. It returns false if that is hard to
// decide.
func (s *set) has(rule *admissionregistrationv1.NamedRuleWithOperations) bool {
	return !slices.ContainsFunc(rule.Resources, func(name string) bool {
		resource, sub, _ := strings.Cut(name, "/")
		if resource == "*" || sub == "*" {
			return true
		}
		return !slices.ContainsFunc(rule.APIGroups, func(g string) bool {
			return slices.ContainsFunc(rule.APIVersions, func(v string) bool {
				_, ok := s.types.KindFor(schema.GroupVersionResource{Group: g, Version: v, Resource: resource}, sub)
				return ok
			})
		})
	})
}

// builtinGroups are the groups of Kubernetes itself.
var builtinGroups = sync.OnceValue(func() map[string]bool {
	groups := map[string]bool{}
	for _, r := range openapi.New(openapi.Builtin()).Resources() {
		groups[r.GVR.Group] = true
	}
	return groups
})

func groupName(g string) string {
	if g == "" {
		return `""`
	}
	return g
}

func quoteAll(names []string) string {
	var out []string
	for _, n := range names {
		out = append(out, groupName(n))
	}
	return strings.Join(out, ", ")
}

// list returns the names without duplicates, as text.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// spelling returns the resource of the groups for which name is the kind or the singular name.
func spelling(name string, groups []string, all []openapi.Resource) string {
	for _, r := range all {
		if slices.Contains(groups, r.GVR.Group) && (strings.EqualFold(name, r.Kind.Kind) || strings.EqualFold(name, r.GVR.Resource)) {
			return r.GVR.Resource
		}
	}
	return ""
}

func fixResource(exclude bool, rule, resource int, right string) func(map[string]any) bool {
	return func(object map[string]any) bool {
		name := "resourceRules"
		if exclude {
			name = "excludeResourceRules"
		}
		object["spec"] = deepCopy(object["spec"])
		rules, _ := dig(object, "spec", "matchConstraints", name).([]any)
		if rule >= len(rules) {
			return false
		}
		resources, _ := dig(rules[rule], "resources").([]any)
		if resource >= len(resources) {
			return false
		}
		resources[resource] = right
		return true
	}
}

func dig(v any, steps ...string) any {
	for _, s := range steps {
		m, _ := v.(map[string]any)
		v = m[s]
	}
	return v
}

func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = deepCopy(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = deepCopy(e)
		}
		return out
	}
	return v
}

// bindings finds policies and bindings that lack each other.
func bindings(p *pass) {
	if len(p.set.readErrors) > 0 {
		return // the other object may be in a document that cannot be read
	}
	unsure := false
	for _, b := range p.set.bindings {
		unsure = unsure || b.object == nil
		if b.object != nil && b.policy == nil && !slices.ContainsFunc(p.set.policies, func(s *subject) bool {
			return group(s.doc) == group(b.doc) && s.doc.Object.GetName() == b.object.Spec.PolicyName // the policy could not be decoded
		}) {
			p.field(b.doc, "spec.policyName", "there is no policy %s among the files, and a server says nothing if it has none", b.object.Spec.PolicyName)
		}
	}
	for _, s := range p.set.policies {
		if s.object != nil && len(s.bindings) == 0 && !unsure {
			p.field(s.doc, "metadata.name", "no binding among the files names the policy; without one it does nothing").Severity = Info
		}
	}
}

// duplicates finds names that occur twice in a directory. Different directories may be for
// different clusters.
func duplicates(p *pass) {
	first := map[string]*manifest.Document{}
	check := func(d *manifest.Document) {
		key := d.File[:strings.LastIndex(d.File, "/")+1] + "\x00" + group(d) + "/" + d.Name()
		if d.Object.GetName() == "" {
			return
		}
		if before := first[key]; before != nil {
			p.field(d, "metadata.name", "%s stands in %s, too, and a server keeps the one that is applied last", d.Name(), before.Where())
			return
		}
		first[key] = d
	}
	for _, s := range p.set.policies {
		check(s.doc)
	}
	for _, b := range p.set.bindings {
		check(b.doc)
	}
}

// params finds parameters that a policy can never receive.
func params(p *pass) {
	spec := &p.subject.object.Spec
	used, cautious := false, false
	for _, e := range p.subject.exprs {
		used = used || mentions(e.root, "params")
		e.root.Walk(func(n *syntax.Node) bool {
			if n.Kind == syntax.Call && (n.Name == "_==_" || n.Name == "_!=_") {
				cautious = cautious || slices.ContainsFunc(n.Args, isNull) && slices.ContainsFunc(n.Args, func(a *syntax.Node) bool { return a.Kind == syntax.Ident && a.Name == "params" })
			}
			if (n.Kind == syntax.Select && n.Test || n.Kind == syntax.Call && n.Name == "_?._") && mentions(n, "params") {
				cautious = true
			}
			return true
		})
	}
	if spec.ParamKind != nil && !used {
		p.field(p.subject.doc, "spec.paramKind", "no expression reads params").Severity = Info
	}
	for _, b := range p.subject.bindings {
		ref := b.object.Spec.ParamRef
		switch {
		case spec.ParamKind == nil && ref != nil:
			p.field(b.doc, "spec.paramRef", "policy %s has no paramKind, so that the parameters are ignored", p.subject.object.Name)
		case spec.ParamKind != nil && ref == nil && used && !cautious:
			p.field(b.doc, "spec.policyName", "policy %s reads params, and without a paramRef they are null", p.subject.object.Name)
		case ref != nil && ref.Name != "":
			var names []string
			for _, o := range p.set.others {
				gvk := o.GroupVersionKind()
				if gvk.GroupVersion().String() == spec.ParamKind.APIVersion && gvk.Kind == spec.ParamKind.Kind {
					names = append(names, o.GetName())
				}
			}
			if len(names) > 0 && !slices.Contains(names, ref.Name) {
				p.field(b.doc, "spec.paramRef.name", "no %s of that name is among the files; there are %s", spec.ParamKind.Kind, list(names)).Severity = Info
			}
		}
	}
}

// selectors finds selectors that select nothing.
func selectors(p *pass) {
	m := p.subject.object.Spec.MatchConstraints
	one := func(d *pass, path string, s *metav1.LabelSelector, of *bound, namespaces bool) {
		if s == nil {
			return
		}
		doc := p.subject.doc
		if of != nil {
			doc = of.doc
		}
		if key := contradiction(s); key != "" {
			if namespaces && !p.set.namespaced(m.ResourceRules) && (of == nil || !p.set.namespaced(of.object.Spec.MatchResources.ResourceRules)) {
				d.field(doc, path, "the selector selects no Namespace: nothing can satisfy what it wants of %s; objects without a namespace match all the same", key).Severity = Info
				return
			}
			d.field(doc, path, "the selector selects nothing: nothing can satisfy what it wants of %s", key)
			return
		}
		if !namespaces || len(p.set.namespaces) == 0 {
			return
		}
		sel, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || sel.Empty() {
			return
		}
		for _, n := range p.set.namespaces {
			set := labels.Set{"kubernetes.io/metadata.name": n.GetName()}
			for k, v := range n.GetLabels() {
				set[k] = v
			}
			if sel.Matches(set) {
				return
			}
		}
		d.field(doc, path, "of %s among the files the selector selects none", words.Count(len(p.set.namespaces), "Namespace", "Namespaces")).Severity = Info
	}
	one(p, "spec.matchConstraints.namespaceSelector", m.NamespaceSelector, nil, true)
	one(p, "spec.matchConstraints.objectSelector", m.ObjectSelector, nil, false)
	for _, b := range p.subject.bindings {
		if r := b.object.Spec.MatchResources; r != nil {
			one(p, "spec.matchResources.namespaceSelector", r.NamespaceSelector, b, true)
			one(p, "spec.matchResources.objectSelector", r.ObjectSelector, b, false)
		}
	}
}

// namespaced reports whether rules match only requests in namespaces and requests for Namespaces.
// A namespaceSelector excludes no other requests (spec §2.5).
func (s *set) namespaced(rules []admissionregistrationv1.NamedRuleWithOperations) bool {
	if len(rules) == 0 {
		return false
	}
	all := s.types.Resources()
	for _, r := range rules {
		if r.Scope != nil && *r.Scope == admissionregistrationv1.NamespacedScope {
			continue
		}
		if slices.Contains(r.APIGroups, "*") {
			return false
		}
		for _, name := range r.Resources {
			resource, _, _ := strings.Cut(name, "/")
			known := false
			for _, o := range all {
				if o.GVR.Resource != resource || !slices.Contains(r.APIGroups, o.GVR.Group) {
					continue
				}
				if !o.Namespaced && resource != "namespaces" {
					return false
				}
				known = true
			}
			if !known {
				return false
			}
		}
	}
	return true
}

// contradiction returns a key for which no label can satisfy a selector, "" if there is none.
func contradiction(s *metav1.LabelSelector) string {
	all := api.Requirements(s)
	var keys []string
	for _, r := range all {
		keys = append(keys, r.Key)
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		var allowed []string
		limited, present, absent := false, false, false
		only := func(values []string) {
			if !limited {
				allowed, limited = slices.Clone(values), true
			}
			allowed = slices.DeleteFunc(allowed, func(v string) bool { return !slices.Contains(values, v) })
			present = true
		}
		var not []string
		for _, r := range all {
			if r.Key != key {
				continue
			}
			switch r.Operator {
			case metav1.LabelSelectorOpIn:
				only(r.Values)
			case metav1.LabelSelectorOpNotIn:
				not = append(not, r.Values...)
			case metav1.LabelSelectorOpExists:
				present = true
			case metav1.LabelSelectorOpDoesNotExist:
				absent = true
			}
		}
		allowed = slices.DeleteFunc(allowed, func(v string) bool { return slices.Contains(not, v) })
		if limited && len(allowed) == 0 || present && absent {
			return key
		}
	}
	return ""
}

// systemNamespaces finds policies that may fail and whose errors then prevent the creation of
// system Pods.
func systemNamespaces(p *pass) {
	spec := &p.subject.object.Spec
	pods := p.subject.more || slices.Contains(p.subject.kinds, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if spec.FailurePolicy == nil || *spec.FailurePolicy != admissionregistrationv1.Fail || !pods || !p.subject.operations["CREATE"] || len(p.subject.bindings) == 0 {
		return
	}
	for _, e := range p.subject.exprs {
		if e.part == api.MatchConditions {
			return // which Pods these conditions exclude is not known
		}
	}
	if p.subject.more && !slices.ContainsFunc(spec.MatchConstraints.ResourceRules, coversPods) {
		return
	}
	if !selectsSystem(spec.MatchConstraints) {
		return
	}
	why := p.mayFail()
	if why == "" {
		return
	}
	for _, b := range p.subject.bindings {
		if b.object.Spec.MatchResources == nil || selectsSystem(b.object.Spec.MatchResources) {
			p.field(b.doc, "spec.policyName", "policy %s may fail (%s), and with failurePolicy Fail no Pod of kube-system is created then; exclude the namespace with a namespaceSelector",
				p.subject.object.Name, why)
		}
	}
}

// mayFail returns the reason why an evaluation of the policy may fail, as far as other rules have
// found one.
func (p *pass) mayFail() string {
	alone := *p.set
	alone.findings, alone.count = nil, map[*manifest.Document]int{}
	for _, r := range ruleList() {
		switch r.Name {
		case "unguarded-access", "unguarded-key", "missing-parent":
			r.policy(&pass{set: &alone, rule: &r, subject: p.subject})
		}
	}
	for _, e := range p.subject.exprs {
		if mentions(e.root, "authorizer", "authorizer.requestResource") && len(alone.findings) == 0 {
			return "it asks the authorizer"
		}
	}
	if len(alone.findings) == 0 {
		return ""
	}
	return fmt.Sprintf("see %s in line %d", alone.findings[0].Rule, alone.findings[0].Line)
}

func coversPods(r admissionregistrationv1.NamedRuleWithOperations) bool {
	has := func(list []string, v string) bool { return slices.Contains(list, "*") || slices.Contains(list, v) }
	return has(r.APIGroups, "") && has(r.APIVersions, "v1") && (has(r.Resources, "pods") || slices.Contains(r.Resources, "*/*")) && len(r.ResourceNames) == 0
}

// selectsSystem reports whether a match includes ordinary Pods of kube-system.
func selectsSystem(m *admissionregistrationv1.MatchResources) bool {
	if !api.SelectsAll(m.ObjectSelector) {
		return false
	}
	if m.NamespaceSelector == nil {
		return true
	}
	sel, err := metav1.LabelSelectorAsSelector(m.NamespaceSelector)
	return err == nil && sel.Matches(labels.Set{"kubernetes.io/metadata.name": "kube-system"})
}

// kindsOn returns the kinds that the rules match for an operation, without subresources.
func (p *pass) kindsOn(operation admissionregistrationv1.OperationType) (out []schema.GroupVersionKind) {
	m := p.subject.object.Spec.MatchConstraints.DeepCopy()
	var rules []admissionregistrationv1.NamedRuleWithOperations
	for _, r := range m.ResourceRules {
		if !slices.Contains(r.Operations, operation) && !slices.Contains(r.Operations, "*") {
			continue
		}
		r.Resources = slices.DeleteFunc(r.Resources, func(s string) bool { return strings.Contains(s, "/") })
		if len(r.Resources) > 0 {
			rules = append(rules, r)
		}
	}
	m.ResourceRules = rules
	out, _ = policy.Targets(m, p.set.types)
	return out
}

// replicaSets finds policies that change the template of a ReplicaSet. The controller of its
// Deployment then finds no ReplicaSet with the Deployment's template, and creates another one.
func replicaSets(p *pass) {
	kinds := append(p.kindsOn("CREATE"), p.kindsOn("UPDATE")...)
	rs := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	if !slices.Contains(kinds, rs) || slices.Contains(kinds, deployment) {
		return
	}
	for _, c := range p.subject.ofPart(api.MatchConditions) {
		if mentions(c.root, "object", "request") {
			return // conditions may exclude ReplicaSets with an owner, or the controller's user
		}
	}
	for _, e := range p.subject.ofPart(api.Mutations) {
		if mentionsField(e.root, "ownerReferences") {
			continue
		}
		for _, w := range p.subject.writes(e) {
			if len(w.path) >= 3 && w.path[1] == "spec" && w.path[2] == "template" {
				p.node(e, w.node, "a ReplicaSet with another template than its Deployment's is replaced by the controller, without end; change Deployments, or leave out what has an owner")
				return
			}
		}
	}
}

func mentionsField(n *syntax.Node, field string) (found bool) {
	n.Walk(func(n *syntax.Node) bool {
		found = found || n.Kind == syntax.Select && n.Name == field || n.Kind == syntax.Literal && n.Value == field
		return !found
	})
	return found
}

// immutable are fields that an update must not change, and mutable are exceptions below them.
var immutable = map[string]struct{ fields, mutable []string }{
	"apps/v1 Deployment":  {fields: []string{"spec.selector"}},
	"apps/v1 DaemonSet":   {fields: []string{"spec.selector"}},
	"apps/v1 ReplicaSet":  {fields: []string{"spec.selector"}},
	"apps/v1 StatefulSet": {fields: []string{"spec.selector", "spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates"}},
	"batch/v1 Job":        {fields: []string{"spec.selector", "spec.template", "spec.completionMode"}},
	"v1 Pod": {fields: []string{"spec"}, mutable: []string{"spec.containers[].image", "spec.initContainers[].image", "spec.activeDeadlineSeconds",
		"spec.tolerations", "spec.schedulingGates", "spec.containers[].name", "spec.initContainers[].name"}},
	"v1 PersistentVolumeClaim":                        {fields: []string{"spec.accessModes", "spec.storageClassName", "spec.volumeMode", "spec.selector"}},
	"storage.k8s.io/v1 StorageClass":                  {fields: []string{"provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"}},
	"rbac.authorization.k8s.io/v1 RoleBinding":        {fields: []string{"roleRef"}},
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding": {fields: []string{"roleRef"}},
	"v1 Secret": {fields: []string{"type"}},
}

// immutableFields finds mutations of immutable fields on updates.
func immutableFields(p *pass) {
	kinds := p.kindsOn("UPDATE")
	for _, e := range p.subject.exprs {
		if mentionsOperation(e.root) || mentions(e.root, "oldObject") {
			return // the expression may treat updates differently
		}
	}
	for _, e := range p.subject.ofPart(api.Mutations) {
		writes := p.subject.writes(e)
		for _, kind := range kinds {
			known, ok := immutable[kindName(kind)]
			if !ok {
				continue
			}
			for i, w := range writes {
				at := strings.ReplaceAll(strings.Join(w.path[1:], "."), "."+anyElement, "[]")
				if !within(at, known.fields) || within(at, known.mutable) || p.set.presentIn(p.subject, w.path) == refused ||
					!p.subject.spend(len(writes)-i) {
					continue
				}
				if slices.ContainsFunc(writes[i+1:], func(o write) bool {
					return len(o.path) > len(w.path) && slices.Equal(o.path[:len(w.path)], w.path)
				}) {
					continue // the mutation writes the parts below it
				}
				p.node(e, w.node, "an update cannot change %s of %s: objects without this value, made before the policy was, are refused when they are updated; match CREATE only", at, kindName(kind))
				return
			}
		}
	}
}

// within reports whether a field is one of some fields, or below one.
func within(field string, of []string) bool {
	return slices.ContainsFunc(of, func(f string) bool {
		rest, ok := strings.CutPrefix(field, f)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// setting is a constant that a policy always writes to a field of a kind.
type setting struct {
	by    *subject
	in    *expression
	kind  schema.GroupVersionKind
	write write
}

// settings collects the settings of a policy for the rule orderDependent.
func settings(p *pass) {
	s := p.subject
	if len(s.ofPart(api.MatchConditions)) > 0 || s.more {
		return
	}
	for _, e := range s.ofPart(api.Mutations) {
		for _, w := range s.writes(e) {
			if w.conditional || w.value == nil || w.value.Kind != syntax.Literal || slices.Contains(w.path, anyElement) {
				continue
			}
			for _, k := range s.kinds {
				s.settings = append(s.settings, setting{s, e, k, w})
			}
		}
	}
}

// orderDependent finds pairs of policies that set the same field to different values. A server
// runs policies in random order (spec §9.1).
func orderDependent(p *pass) {
	first := map[string]*setting{}
	for _, s := range p.set.policies {
		if len(s.settings) == 0 || narrowed(s) {
			continue
		}
		said := (*syntax.Node)(nil) // one finding is enough for a value
		for i := range s.settings {
			now := &s.settings[i]
			if now.write.value == said {
				continue
			}
			id := group(s.doc) + " " + kindName(now.kind) + " " + now.write.path.key()
			before, ok := first[id]
			if !ok {
				first[id] = now
				continue
			}
			if before.by != s && before.write.value.Value != now.write.value.Value {
				said = now.write.value
				own := &pass{set: p.set, rule: p.rule, subject: s}
				own.node(now.in, said, "policy %s sets %s of %s to %v, and which of the two runs last is random", before.by.object.Name, now.write.path[1:], kindName(now.kind), before.write.value.Value)
			}
		}
	}
}

// narrowed reports whether a policy or one of its bindings has selectors, so that two policies
// may never match the same object.
func narrowed(s *subject) bool {
	has := func(m *admissionregistrationv1.MatchResources) bool {
		if m == nil {
			return false
		}
		if !api.SelectsAll(m.NamespaceSelector) || !api.SelectsAll(m.ObjectSelector) {
			return true
		}
		return slices.ContainsFunc(m.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool { return len(r.ResourceNames) > 0 })
	}
	if has(s.object.Spec.MatchConstraints) || len(s.operations) < 1 {
		return true
	}
	return slices.ContainsFunc(s.bindings, func(b *bound) bool {
		return has(b.object.Spec.MatchResources) || b.object.Spec.MatchResources != nil && len(b.object.Spec.MatchResources.ResourceRules) > 0
	})
}

// constantCondition finds comparisons whose result follows from the policy's rules.
func constantCondition(p *pass) {
	r := resolver{policy: p.subject}
	var kinds []string
	for _, k := range p.subject.kinds {
		kinds = append(kinds, k.Kind)
	}
	operations := slices.Sorted(maps.Keys(p.subject.operations))
	for _, e := range p.subject.exprs {
		if e.part == api.MatchConditions && e.root.Kind == syntax.Literal {
			if v, ok := e.root.Value.(bool); ok {
				if v {
					p.node(e, e.root, "this condition is always true").Severity = Info
				} else {
					p.node(e, e.root, "this condition is always false: the policy does nothing")
				}
			}
		}
		e.root.Walk(func(n *syntax.Node) bool {
			if n.Kind == syntax.Call && n.Name == "_?_:_" && n.Args[0].Kind == syntax.Literal {
				p.node(e, n.Args[0], "this condition is always %v", n.Args[0].Value)
			}
			if n.Kind != syntax.Call || n.Name != "_==_" && n.Name != "_!=_" && n.Name != "@in" {
				return true
			}
			read, against := n.Args[0], n.Args[1]
			if read.Kind == syntax.Literal {
				read, against = against, read
			}
			at := r.path(read, nil)
			values, ok := literalStrings(against)
			if at == nil || !ok || optional(read) || n.Name == "@in" && n.Args[0] != read {
				return true
			}
			var possible []string
			what := ""
			switch at.key() {
			case path{"request", "operation"}.key():
				possible, what = operations, "the rules let in "+strings.Join(operations, ", ")
			case path{"object", "kind"}.key(), path{"request", "kind", "kind"}.key():
				if p.subject.more || len(kinds) == 0 || hasSubresources(p.subject) {
					return true
				}
				possible, what = kinds, "the rules let in "+list(kinds)
			default:
				return true
			}
			some := slices.ContainsFunc(values, func(v string) bool { return slices.Contains(possible, v) })
			every := !slices.ContainsFunc(possible, func(v string) bool { return !slices.Contains(values, v) })
			switch {
			case !some:
				p.node(e, n, "this is always %v: %s", n.Name == "_!=_", what)
			case every && n.Name == "_!=_":
				p.node(e, n, "this is always false: %s", what)
			case every:
				p.node(e, n, "this is always true: %s", what).Severity = Info
			}
			return true
		})
	}
}

func hasSubresources(s *subject) bool {
	return slices.ContainsFunc(s.object.Spec.MatchConstraints.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.ContainsFunc(r.Resources, func(s string) bool { return strings.Contains(s, "/") })
	})
}

// literalStrings returns the string in a literal, or those in a list literal.
func literalStrings(n *syntax.Node) (out []string, ok bool) {
	if n.Kind == syntax.Literal {
		s, ok := n.Value.(string)
		return []string{s}, ok
	}
	if n.Kind != syntax.List || len(n.Args) == 0 {
		return nil, false
	}
	for _, a := range n.Args {
		s, ok := a.Value.(string)
		if a.Kind != syntax.Literal || !ok {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

// cost finds expressions that exceed a cost limit (spec §6.7).
func cost(p *pass) {
	for _, e := range p.subject.exprs {
		sure, most := checks(e.root)
		switch {
		case sure > 2:
			p.node(e, e.root, "%d checks of the authorizer cost more than one expression may; two do not, and variables have limits of their own", sure)
		case most > 2:
			p.node(e, e.root, "up to %d checks of the authorizer cost more than one expression may; two do not, and variables have limits of their own", most).Severity = Warning
		}
		var nest func(n *syntax.Node, depth int) bool
		nest = func(n *syntax.Node, depth int) bool {
			if n.Kind == syntax.Loop && !(len(n.Names) > 1 && n.Names[1] == "#unused") {
				inner := depth
				if mentions(n.Args[0], "object", "oldObject", "params", "variables") {
					inner++
				}
				if inner == 3 {
					p.node(e, n, "three loops in each other over lists of the object: a hundred elements in each reach the limit of cost").Severity = Info
					return true
				}
				for _, a := range n.Args[2:] {
					if nest(a, inner) {
						return true
					}
				}
				return nest(n.Args[0], depth)
			}
			return slices.ContainsFunc(n.Args, func(a *syntax.Node) bool { return nest(a, depth) })
		}
		nest(e.root, 0)
	}
}

// checks returns the least and the largest number of authorizer checks in one evaluation.
func checks(n *syntax.Node) (sure, most int) {
	var least, worst []int
	for _, a := range n.Args {
		s, m := checks(a)
		least, worst = append(least, s), append(worst, m)
	}
	for i := range n.Args {
		switch {
		case n.Kind == syntax.Call && n.Name == "_?_:_" && i > 0:
			if i == 1 {
				sure, most = sure+min(least[1], least[2]), most+max(worst[1], worst[2])
			}
			continue
		case n.Kind == syntax.Call && (n.Name == "_&&_" || n.Name == "_||_") && i > 0, n.Kind == syntax.Loop && i > 1:
		default:
			sure += least[i]
		}
		most += worst[i]
	}
	if n.Kind == syntax.Call && n.Member && n.Name == "check" {
		sure, most = sure+1, most+1
	}
	return sure, most
}
