package binding

import (
	"fmt"
	"math/rand"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/client-go/kubernetes/fake"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// upstreamCriteria is what the server's policy matcher makes of a MatchResources.
type upstreamCriteria struct {
	*admissionregistrationv1.MatchResources
}

func (c upstreamCriteria) GetParsedNamespaceSelector() (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(c.NamespaceSelector)
}

func (c upstreamCriteria) GetParsedObjectSelector() (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(c.ObjectSelector)
}

func (c upstreamCriteria) GetMatchResources() admissionregistrationv1.MatchResources {
	return *c.MatchResources
}

// The server's own matcher, asked about random rules and requests, gives the
// same answers, matched versions and error texts.
func TestMatchesAsUpstream(t *testing.T) {
	hammer.Alone(t)
	rnd := rand.New(rand.NewSource(7))
	pick := func(s ...string) string { return s[rnd.Intn(len(s))] }
	some := func(s ...string) []string {
		var out []string
		for range 1 + rnd.Intn(2) {
			out = append(out, pick(s...))
		}
		return out
	}
	selector := func(key string, values ...string) *metav1.LabelSelector {
		switch rnd.Intn(7) {
		case 0:
			return &metav1.LabelSelector{MatchLabels: map[string]string{key: pick(values...)}}
		case 1:
			return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOperator(pick("In", "NotIn")), Values: some(values...)}}}
		case 2:
			return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOperator(pick("Exists", "DoesNotExist", "Near"))}}}
		}
		return &metav1.LabelSelector{}
	}
	ruleList := func(n int) []admissionregistrationv1.NamedRuleWithOperations {
		var out []admissionregistrationv1.NamedRuleWithOperations
		for range n {
			var r admissionregistrationv1.NamedRuleWithOperations
			for _, op := range some("CREATE", "UPDATE", "CONNECT", "*") {
				r.Operations = append(r.Operations, admissionregistrationv1.OperationType(op))
			}
			r.APIGroups, r.APIVersions = some("", "ex.io", "*"), some("v1", "v2", "*")
			r.Resources = some("pods", "widgets", "namespaces", "*", "*/*", "pods/*", "*/status", "widgets/status")
			if rnd.Intn(2) == 0 {
				s := admissionregistrationv1.ScopeType(pick("*", "Cluster", "Namespaced"))
				r.Scope = &s
			}
			if rnd.Intn(3) == 0 {
				r.ResourceNames = some("x", "y")
			}
			out = append(out, r)
		}
		return out
	}

	registry := runtime.NewEquivalentResourceRegistry()
	for _, v := range []string{"v1", "v2", "v3"} {
		for _, sub := range []string{"", "status"} {
			gvr := schema.GroupVersionResource{Group: "ex.io", Version: v, Resource: "widgets"}
			registry.RegisterKindFor(gvr, sub, schema.GroupVersionKind{Group: "ex.io", Version: v, Kind: "Widget"})
		}
	}
	equivalents := func(gvr schema.GroupVersionResource) []Equivalent {
		var out []Equivalent
		for _, r := range registry.EquivalentResourcesFor(gvr, "") {
			out = append(out, Equivalent{r, registry.KindFor(r, "")})
		}
		return out
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	known := namespaces{"t1": {"env", "prod"}, "t2": {"env", "dev"}, "t3": nil}
	for name, extra := range known {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{namespaceNameLabel: name}}}
		if len(extra) > 0 {
			ns.Labels[extra[0]] = extra[1]
		}
		if err := indexer.Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	upstream := matching.NewMatcher(listersv1.NewNamespaceLister(indexer), fake.NewClientset())
	interfaces := &admission.RuntimeObjectInterfaces{EquivalentResourceMapper: registry}

	matched, failed := 0, 0
	for round := range 20_000 {
		m := resources(ruleList(rnd.Intn(4))...)
		m.ExcludeResourceRules = ruleList(max(0, rnd.Intn(6)-4))
		m.NamespaceSelector = selector(pick("env", namespaceNameLabel), "prod", "t1", "t2")
		m.ObjectSelector = selector("app", "a", "b")
		switch rnd.Intn(4) {
		case 0:
			m.MatchPolicy = nil
		case 1:
			exact := admissionregistrationv1.Exact
			m.MatchPolicy = &exact
		}
		gvr := schema.GroupVersionResource{Group: pick("", "ex.io"), Version: pick("v1", "v2"), Resource: pick("pods", "widgets", "widgets", "namespaces")}
		gvk := gvr.GroupVersion().WithKind(map[string]string{"pods": "Pod", "widgets": "Widget", "namespaces": "Namespace"}[gvr.Resource])
		req := &policy.Request{
			Resource: gvr, Kind: gvk, SubResource: pick("", "", "status"), Name: pick("x", "y", "z", ""), Namespace: pick("t1", "t2", "t3", "gone", ""),
			Operation: admissionv1.Operation(pick("CREATE", "UPDATE", "CONNECT")), Object: object("", "x", "app", pick("a", "b", "c"), "env", pick("prod", "dev")),
		}
		var old runtime.Object
		if req.Operation == admissionv1.Update {
			req.OldObject = object("", "x", "app", pick("a", "b", "c"))
			old = req.OldObject
		}
		if rnd.Intn(5) == 0 {
			req.Object = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
		}
		attrs := admission.NewAttributesRecord(req.Object, old, gvk, req.Namespace, req.Name, gvr, req.SubResource, admission.Operation(req.Operation), nil, false, nil)

		ok, resource, kind, err := upstream.Matches(attrs, interfaces, upstreamCriteria{m})
		want := fmt.Sprint(ok, resource, kind, errString(err))

		k := keyOf(req)
		target := target{ctx: t.Context(), ix: &Index{src: Sources{Namespaces: known}}, req: req, resource: k.resource, object: req.Object}
		var gotOK bool
		var gotErr error
		var h hit
		match := matcherOf(m)
		var missed Criterion
		h, missed, gotErr = match.test(&target, match.rules.judge(&k, equivalents(gvr)))
		gotOK = gotErr == nil && missed == Satisfied
		resource, kind = schema.GroupVersionResource{}, schema.GroupVersionKind{}
		if gotOK {
			resource, kind = target.resolve(h)
			matched++
		}
		if gotErr != nil {
			failed++
		}
		if got := fmt.Sprint(gotOK, resource, kind, errString(gotErr)); got != want {
			t.Fatalf("round %d: %s %s %q in %q, rules %+v:\n got %s\nwant %s", round, req.Operation, gvr, req.Name, req.Namespace, m, got, want)
		}
	}
	if matched < 1000 || failed < 100 {
		t.Errorf("%d matches and %d errors are too few to prove anything", matched, failed)
	}
}
