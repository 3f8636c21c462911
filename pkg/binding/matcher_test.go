package binding

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/policy"
)

// Spec §2.2.
func TestRule(t *testing.T) {
	scoped := func(s admissionregistrationv1.ScopeType, rule string) admissionregistrationv1.NamedRuleWithOperations {
		r := newRule(rule)
		r.Scope = &s
		return r
	}
	noScope := newRule("v1 pods")
	noScope.Scope = nil
	tests := map[string]struct {
		rule      admissionregistrationv1.NamedRuleWithOperations
		resource  string // default pods
		sub       string
		group     string
		version   string
		operation admissionv1.Operation
		name      string
		cluster   bool
		want      bool
	}{
		"exact":                         {rule: newRule("v1 pods"), want: true},
		"no scope is every scope":       {rule: noScope, want: true},
		"other operation":               {rule: newRule("v1 pods UPDATE")},
		"any operation":                 {rule: newRule("v1 pods *"), operation: admissionv1.Connect, want: true},
		"any operation has no deletion": {rule: newRule("v1 pods *"), operation: admissionv1.Delete},
		"a rule for deletions":          {rule: newRule("v1 pods DELETE"), operation: admissionv1.Delete},
		"other group":                   {rule: newRule("apps/v1 pods")},
		"any group":                     {rule: newRule("*/v1 pods"), group: "ex.io", want: true},
		"other version":                 {rule: newRule("v2 pods")},
		"any version":                   {rule: newRule("/* pods"), version: "v7", want: true},
		"main resource does not cover its status": {rule: newRule("v1 pods"), sub: "status"},
		"subresource": {rule: newRule("v1 pods/status"), sub: "status", want: true},
		"subresource does not cover the main one": {rule: newRule("v1 pods/status")},
		"star covers main resources":              {rule: newRule("v1 *"), want: true},
		"star covers no subresource":              {rule: newRule("v1 *"), sub: "status"},
		"star/scale":                              {rule: newRule("v1 */scale"), sub: "scale", want: true},
		"star/scale is not star":                  {rule: newRule("v1 */scale")},
		"star/star covers all":                    {rule: newRule("v1 */*"), sub: "exec", want: true},
		"star/star covers main resources":         {rule: newRule("v1 */*"), want: true},
		"pods/star covers pods":                   {rule: newRule("v1 pods/*"), want: true},
		"pods/star covers subresources":           {rule: newRule("v1 pods/*"), sub: "log", want: true},
		"second of several":                       {rule: newRule("v1 services,pods"), want: true},
		"namespaced scope":                        {rule: scoped("Namespaced", "v1 pods"), want: true},
		"namespaced scope, cluster request":       {rule: scoped("Namespaced", "v1 *"), cluster: true},
		"cluster scope":                           {rule: scoped("Cluster", "v1 *"), cluster: true, want: true},
		"cluster scope, namespaced request":       {rule: scoped("Cluster", "v1 *")},
		"namespaces are not namespaced":           {rule: scoped("Namespaced", "v1 *"), resource: "namespaces"},
		"namespaces are cluster-scoped":           {rule: scoped("Cluster", "v1 *"), resource: "namespaces", want: true},
		"other namespaces are not":                {rule: scoped("Cluster", "*/v1 *"), resource: "namespaces", group: "ex.io"},
		"unknown scope":                           {rule: scoped("Galaxy", "v1 *")},
		"name":                                    {rule: newRule("v1 pods", "a", "b"), name: "b", want: true},
		"other name":                              {rule: newRule("v1 pods", "a"), name: "b"},
		"generateName has no name yet":            {rule: newRule("v1 pods", "a"), name: ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ix := mustIndex(t, []*policy.Policy{newPolicy("p", resources(tt.rule))}, []*Binding{newBinding(t, "b", "p")}, Sources{})
			req := createPod("t1", tt.name)
			req.Resource.Group, req.SubResource = tt.group, tt.sub
			if tt.resource != "" {
				req.Resource.Resource = tt.resource
			}
			if tt.version != "" {
				req.Resource.Version = tt.version
			}
			if tt.operation != "" {
				req.Operation = tt.operation
			}
			if tt.cluster {
				req.Namespace = ""
			}
			req.RequestResource, req.RequestSubResource = req.Resource, req.SubResource
			if got := len(ix.Select(t.Context(), req)) == 1; got != tt.want {
				t.Errorf("matches = %v, want %v", got, tt.want)
			}
		})
	}
}

// Spec §2.3.
func TestMatchPolicy(t *testing.T) {
	hpa := func(v string) (schema.GroupVersionResource, schema.GroupVersionKind) {
		return schema.GroupVersionResource{Group: "autoscaling", Version: v, Resource: "horizontalpodautoscalers"},
			schema.GroupVersionKind{Group: "autoscaling", Version: v, Kind: "HorizontalPodAutoscaler"}
	}
	coreEvents, coreEvent := schema.GroupVersionResource{Version: "v1", Resource: "events"}, schema.GroupVersionKind{Version: "v1", Kind: "Event"}
	newEvents, newEvent := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}, schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}
	equivalents := func(gvr schema.GroupVersionResource) []Equivalent {
		switch {
		case gvr.Resource == "horizontalpodautoscalers":
			var out []Equivalent
			for _, v := range []string{"v1", "v2", "v3"} {
				r, k := hpa(v)
				if v == "v3" {
					k = schema.GroupVersionKind{}
				}
				out = append(out, Equivalent{r, k})
			}
			return out
		case gvr == newEvents:
			return []Equivalent{{coreEvents, coreEvent}, {newEvents, newEvent}}
		}
		return nil
	}
	exact := func(m *admissionregistrationv1.MatchResources) *admissionregistrationv1.MatchResources {
		e := admissionregistrationv1.Exact
		m.MatchPolicy = &e
		return m
	}
	unset := resources(newRule("autoscaling/v1 horizontalpodautoscalers"))
	unset.MatchPolicy = nil
	excluding := resources(newRule("autoscaling/v2 horizontalpodautoscalers"))
	excluding.ExcludeResourceRules = []admissionregistrationv1.NamedRuleWithOperations{newRule("autoscaling/v1 horizontalpodautoscalers")}
	rv1, kv1 := hpa("v1")
	rv2, kv2 := hpa("v2")
	scale := schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}

	tests := map[string]struct {
		match    *admissionregistrationv1.MatchResources
		resource schema.GroupVersionResource
		kind     schema.GroupVersionKind
		sub      string
		// hand is what the server converted the object to, if it did.
		handResource schema.GroupVersionResource
		handKind     schema.GroupVersionKind
		name         string

		wantResource schema.GroupVersionResource
		wantKind     schema.GroupVersionKind
		none         bool
		err          string
	}{
		"direct":                  {match: resources(newRule("autoscaling/v2 horizontalpodautoscalers")), resource: rv2, kind: kv2, wantResource: rv2, wantKind: kv2},
		"other version":           {match: resources(newRule("autoscaling/v1 horizontalpodautoscalers")), resource: rv2, kind: kv2, wantResource: rv1, wantKind: kv1},
		"exact":                   {match: exact(resources(newRule("autoscaling/v1 horizontalpodautoscalers"))), resource: rv2, kind: kv2, none: true},
		"unset is exact":          {match: unset, resource: rv2, kind: kv2, none: true},
		"direct before other":     {match: resources(newRule("autoscaling/v1 horizontalpodautoscalers"), newRule("autoscaling/v2 horizontalpodautoscalers")), resource: rv2, kind: kv2, wantResource: rv2, wantKind: kv2},
		"name decides which rule": {match: resources(newRule("autoscaling/v2 horizontalpodautoscalers", "a"), newRule("autoscaling/v1 horizontalpodautoscalers")), resource: rv2, kind: kv2, name: "b", wantResource: rv1, wantKind: kv1},
		"exclusion is equivalent": {match: excluding, resource: rv2, kind: kv2, none: true},
		"unknown kind":            {match: resources(newRule("autoscaling/v3 horizontalpodautoscalers")), resource: rv2, kind: kv2, err: "unable to convert to autoscaling/v3, Resource=horizontalpodautoscalers: unknown kind"},
		"cohabiting group":        {match: resources(newRule("v1 events")), resource: newEvents, kind: newEvent, wantResource: coreEvents, wantKind: coreEvent},
		"a Scale stays a Scale":   {match: resources(newRule("autoscaling/v1 */scale")), resource: rv2, kind: scale, sub: "scale", wantResource: rv1, wantKind: scale},
		"a status is converted":   {match: resources(newRule("autoscaling/v1 */status")), resource: rv2, kind: kv2, sub: "status", wantResource: rv1, wantKind: kv1},
		"the client's version counts, not the one in hand": {
			match: exact(resources(newRule("autoscaling/v2 horizontalpodautoscalers"))), resource: rv2, kind: kv2, handResource: rv1, handKind: kv1, wantResource: rv2, wantKind: kv2,
		},
		"the version in hand does not match exactly": {
			match: exact(resources(newRule("autoscaling/v1 horizontalpodautoscalers"))), resource: rv2, kind: kv2, handResource: rv1, handKind: kv1, none: true,
		},
		"the version in hand matches as an equivalent": {
			match: resources(newRule("autoscaling/v1 horizontalpodautoscalers")), resource: rv2, kind: kv2, handResource: rv1, handKind: kv1, wantResource: rv1, wantKind: kv1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ix := mustIndex(t, []*policy.Policy{newPolicy("p", tt.match)}, []*Binding{newBinding(t, "b", "p")}, Sources{Equivalents: equivalents})
			req := &policy.Request{
				Operation: admissionv1.Create, Namespace: "t1", Name: tt.name, Resource: tt.resource, Kind: tt.kind, SubResource: tt.sub,
				RequestResource: tt.resource, RequestKind: tt.kind, RequestSubResource: tt.sub,
			}
			if !tt.handResource.Empty() {
				req.Resource, req.Kind = tt.handResource, tt.handKind
			}
			got := ix.Select(t.Context(), req)
			if tt.none {
				if len(got) != 0 {
					t.Errorf("Select() = %v, want none", describe(got))
				}
				return
			}
			if len(got) != 1 {
				t.Fatalf("Select() = %v, want one invocation", describe(got))
			}
			if msg := errString(got[0].Err); msg != tt.err {
				t.Fatalf("Select() error = %q, want %q", msg, tt.err)
			}
			if got[0].Resource != tt.wantResource || got[0].Kind != tt.wantKind {
				t.Errorf("Select() = %v, %v, want %v, %v", got[0].Resource, got[0].Kind, tt.wantResource, tt.wantKind)
			}
		})
	}
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Spec §2.1, §2.4 and §2.8.
func TestSelectors(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	const badText = `Internal error occurred: "Near" is not a valid label selector operator`
	match := func(edit func(m *admissionregistrationv1.MatchResources)) *admissionregistrationv1.MatchResources {
		m := resources(newRule("v1 pods *"))
		edit(m)
		return m
	}
	selectObject := func(s *metav1.LabelSelector) *admissionregistrationv1.MatchResources {
		return match(func(m *admissionregistrationv1.MatchResources) { m.ObjectSelector = s })
	}
	update := createPod("t1", "x")
	update.Operation, update.OldObject = admissionv1.Update, object("t1", "x", "tier", "web")
	connect := createPod("t1", "x")
	connect.Operation, connect.Object = admissionv1.Connect, &unstructured.Unstructured{Object: map[string]any{"kind": "PodExecOptions"}}
	none := createPod("t1", "x")
	none.Object = nil
	missing := createPod("gone", "x")
	clusterScoped := createPod("", "x")

	tests := map[string]struct {
		policy  *admissionregistrationv1.MatchResources
		binding *admissionregistrationv1.MatchResources
		req     *policy.Request
		want    []string
	}{
		"object has the label":       {policy: selectObject(web), req: createPod("t1", "x", "tier", "web"), want: []string{"p/b"}},
		"object has another value":   {policy: selectObject(web), req: createPod("t1", "x", "tier", "db")},
		"only the old object has it": {policy: selectObject(web), req: update, want: []string{"p/b"}},
		"no metadata":                {policy: selectObject(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpDoesNotExist}}}), req: connect},
		"no labels":                  {policy: selectObject(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpDoesNotExist}}}), req: createPod("t1", "x"), want: []string{"p/b"}},
		"no object":                  {policy: selectObject(web), req: none},
		"no object, empty selector":  {policy: selectObject(&metav1.LabelSelector{}), req: none, want: []string{"p/b"}},
		"bad object selector":        {policy: selectObject(bad), req: createPod("t1", "x"), want: []string{"p/ error: " + badText + " (policy)"}},
		"bad selector, other resource": {policy: match(func(m *admissionregistrationv1.MatchResources) {
			m.ObjectSelector, m.ResourceRules[0].Resources = bad, []string{"nodes"}
		}), req: createPod("t1", "x")},
		"bad namespace selector, clean no of other": {policy: match(func(m *admissionregistrationv1.MatchResources) { m.NamespaceSelector, m.ObjectSelector = bad, web }), req: createPod("t1", "x")},
		"both bad: the namespace's is told": {policy: match(func(m *admissionregistrationv1.MatchResources) {
			m.NamespaceSelector, m.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, bad
		}), req: missing,
			want: []string{`p/ error: namespaces "gone" not found (policy)`}},
		"bad namespace selector, cluster-scoped": {policy: match(func(m *admissionregistrationv1.MatchResources) { m.NamespaceSelector = bad }), req: clusterScoped, want: []string{"p/b"}},
		"excluded although bad": {policy: match(func(m *admissionregistrationv1.MatchResources) {
			m.ObjectSelector = bad
			m.ExcludeResourceRules = []admissionregistrationv1.NamedRuleWithOperations{newRule("v1 pods", "x")}
		}), req: createPod("t1", "x")},
		"missing namespace, excluded by name": {policy: match(func(m *admissionregistrationv1.MatchResources) {
			m.NamespaceSelector = web
			m.ExcludeResourceRules = []admissionregistrationv1.NamedRuleWithOperations{newRule("v1 pods", "x")}
		}), req: missing},
		"missing namespace, not asked for":  {policy: resources(newRule("v1 pods *")), req: missing, want: []string{"p/b"}},
		"no match constraints":              {req: createPod("t1", "x"), want: []string{"p/ error: policy contained no match constraints, a required field (policy)"}},
		"no namespace selector":             {policy: match(func(m *admissionregistrationv1.MatchResources) { m.NamespaceSelector = nil }), req: createPod("t1", "x"), want: []string{"p/ error: a nil namespace selector was passed, please ensure selectors are initialized properly (policy)"}},
		"no object selector":                {policy: match(func(m *admissionregistrationv1.MatchResources) { m.ObjectSelector = nil }), req: createPod("t1", "x"), want: []string{"p/ error: a nil object selector was passed, please ensure selectors are initialized properly (policy)"}},
		"binding: bad selector":             {policy: resources(newRule("v1 pods *")), binding: selectObject(bad), req: createPod("t1", "x"), want: []string{"p/b error: " + badText}},
		"binding: other resource":           {policy: resources(newRule("v1 pods *")), binding: resources(newRule("v1 nodes *")), req: createPod("t1", "x")},
		"binding: no rules, namespace prod": {policy: resources(newRule("v1 pods *")), binding: inNamespace(resources(), "env", "prod"), req: createPod("t1", "x"), want: []string{"p/b"}},
		"binding: no rules, namespace dev":  {policy: resources(newRule("v1 pods *")), binding: inNamespace(resources(), "env", "dev"), req: createPod("t1", "x")},
		"example: legacy is excluded by name": {policy: match(func(m *admissionregistrationv1.MatchResources) {
			m.ExcludeResourceRules = []admissionregistrationv1.NamedRuleWithOperations{newRule("v1 pods", "legacy")}
		}), req: createPod("t1", "legacy")},
		"example: a generated name is not": {policy: match(func(m *admissionregistrationv1.MatchResources) {
			m.ExcludeResourceRules = []admissionregistrationv1.NamedRuleWithOperations{newRule("v1 pods", "legacy")}
		}), req: createPod("t1", ""), want: []string{"p/b"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var opts []bindingOption
			if tt.binding != nil {
				opts = append(opts, in(tt.binding))
			}
			ix := mustIndex(t, []*policy.Policy{newPolicy("p", tt.policy)}, []*Binding{newBinding(t, "b", "p", opts...)},
				Sources{Namespaces: namespaces{"t1": {"env", "prod"}}})
			if diff := cmp.Diff(tt.want, describe(ix.Select(t.Context(), tt.req))); diff != "" {
				t.Errorf("Select() (-want +got):\n%s", diff)
			}
		})
	}
}

// Spec §9.2: the second round's selectors see the first round's result.
func TestSelectObject(t *testing.T) {
	m := resources(newRule("v1 pods"))
	m.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	ix := mustIndex(t, []*policy.Policy{newPolicy("p", m)}, []*Binding{newBinding(t, "b", "p")}, Sources{})
	req := createPod("t1", "x")
	if got := ix.Select(t.Context(), req); got != nil {
		t.Errorf("Select() = %v, want nil", describe(got))
	}
	got := describe(selectObject(t, ix, req, object("t1", "x", "tier", "web")))
	if !slices.Equal(got, []string{"p/b"}) {
		t.Errorf("SelectObject() = %v, want [p/b]", got)
	}
}
