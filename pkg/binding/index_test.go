package binding

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

var (
	pods         = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	podKind      = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	configMap    = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	clusterParam = schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "Setting"}
)

type policyOption func(*admissionregistrationv1.MutatingAdmissionPolicy)

func newPolicy(name string, m *admissionregistrationv1.MatchResources, opts ...policyOption) *policy.Policy {
	obj := &admissionregistrationv1.MutatingAdmissionPolicy{}
	obj.Name = name
	obj.Spec.MatchConstraints = m
	for _, o := range opts {
		o(obj)
	}
	// What a policy does is not looked at here, so it need not be compiled.
	return policy.Broken(obj, nil)
}

func withParams(gvk schema.GroupVersionKind) policyOption {
	return func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
		p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}
	}
}

type bindingOption func(*admissionregistrationv1.MutatingAdmissionPolicyBinding)

func newBinding(t testing.TB, name, policyName string, opts ...bindingOption) *Binding {
	t.Helper()
	obj := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
	obj.Name, obj.Spec.PolicyName = name, policyName
	for _, o := range opts {
		o(obj)
	}
	b, err := Compile(obj)
	if err != nil {
		t.Fatalf("Compile(%q) error = %v", name, err)
	}
	return b
}

func in(m *admissionregistrationv1.MatchResources) bindingOption {
	return func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) { b.Spec.MatchResources = m }
}

func ref(r admissionregistrationv1.ParamRef) bindingOption {
	return func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) { b.Spec.ParamRef = &r }
}

// resources is a defaulted MatchResources.
func resources(rules ...admissionregistrationv1.NamedRuleWithOperations) *admissionregistrationv1.MatchResources {
	equivalent := admissionregistrationv1.Equivalent
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{},
		ObjectSelector:    &metav1.LabelSelector{},
		MatchPolicy:       &equivalent,
		ResourceRules:     rules,
	}
}

func inNamespace(m *admissionregistrationv1.MatchResources, key, value string) *admissionregistrationv1.MatchResources {
	m.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	return m
}

// resourceRule "apps/v1 deployments CREATE,UPDATE" with the defaulted scope.
func newRule(s string, names ...string) admissionregistrationv1.NamedRuleWithOperations {
	f := strings.Fields(s)
	gv, err := schema.ParseGroupVersion(f[0])
	if err != nil {
		panic(err)
	}
	scope := admissionregistrationv1.AllScopes
	r := admissionregistrationv1.NamedRuleWithOperations{ResourceNames: names}
	r.APIGroups, r.APIVersions, r.Resources, r.Scope = []string{gv.Group}, []string{gv.Version}, strings.Split(f[1], ","), &scope
	r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
	if len(f) > 2 {
		r.Operations = nil
		for _, op := range strings.Split(f[2], ",") {
			r.Operations = append(r.Operations, admissionregistrationv1.OperationType(op))
		}
	}
	return r
}

func object(namespace, name string, lbls ...string) *unstructured.Unstructured {
	meta := map[string]any{"name": name}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	if len(lbls) > 0 {
		set := map[string]any{}
		for i := 0; i < len(lbls); i += 2 {
			set[lbls[i]] = lbls[i+1]
		}
		meta["labels"] = set
	}
	return &unstructured.Unstructured{Object: map[string]any{"metadata": meta}}
}

func createPod(namespace, name string, lbls ...string) *policy.Request {
	return &policy.Request{
		Kind: podKind, Resource: pods, RequestKind: podKind, RequestResource: pods,
		Name: name, Namespace: namespace, Operation: admissionv1.Create, Object: object(namespace, name, lbls...),
	}
}

// namespaces has one Namespace per entry; the value holds extra labels.
type namespaces map[string][]string

func (n namespaces) Namespace(_ context.Context, name string) (*unstructured.Unstructured, error) {
	extra, ok := n[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
	}
	return object("", name, append([]string{namespaceNameLabel, name}, extra...)...), nil
}

type brokenNamespaces struct{}

func (brokenNamespaces) Namespace(context.Context, string) (*unstructured.Unstructured, error) {
	return nil, errors.New("connection refused")
}

// params knows ConfigMaps in namespaces and Settings without, all from one list.
type params []*unstructured.Unstructured

func (p params) Kind(gvk schema.GroupVersionKind) (bool, error) {
	switch gvk {
	case configMap:
		return true, nil
	case clusterParam:
		return false, nil
	}
	return false, errors.New("no such kind")
}

func (p params) Get(_ context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	if name == "boom" {
		return nil, errors.New("connection refused")
	}
	for _, u := range p {
		if u.GetNamespace() == namespace && u.GetName() == name {
			return u, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: gvk.Kind}, name)
}

func (p params) List(_ context.Context, _ schema.GroupVersionKind, namespace string, sel labels.Selector) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, u := range p {
		if u.GetNamespace() == namespace && sel.Matches(labels.Set(u.GetLabels())) {
			out = append(out, u)
		}
	}
	return out, nil
}

// describe writes an invocation as "policy/binding param" or with its error.
func describe(invs []Invocation) []string {
	var out []string
	for _, inv := range invs {
		s := inv.Policy.Name() + "/" + inv.Binding
		if inv.Params != nil {
			s += " " + inv.Params.GetNamespace() + "/" + inv.Params.GetName()
		}
		if inv.Err != nil {
			s += " error: " + inv.Err.Error()
			if inv.PolicyError {
				s += " (policy)"
			}
		}
		out = append(out, s)
	}
	return out
}

func mustIndex(t testing.TB, policies []*policy.Policy, bindings []*Binding, src Sources) *Index {
	t.Helper()
	ix, err := NewIndex(policies, bindings, src)
	if err != nil {
		t.Fatalf("NewIndex() error = %v", err)
	}
	return ix
}

func TestSelectOrder(t *testing.T) {
	sel := ref(admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}})
	m := func() *admissionregistrationv1.MatchResources { return resources(newRule("v1 pods")) }
	ix := mustIndex(t,
		[]*policy.Policy{newPolicy("z", m()), newPolicy("b", m(), withParams(configMap)), newPolicy("a", m()), newPolicy("unbound", m())},
		[]*Binding{
			newBinding(t, "z1", "z"), newBinding(t, "b2", "b", sel), newBinding(t, "b1", "b", sel), newBinding(t, "a9", "a"),
			newBinding(t, "a10", "a", in(inNamespace(resources(), namespaceNameLabel, "t1"))), newBinding(t, "dangling", "nobody"),
		},
		Sources{Namespaces: namespaces{"t1": nil}, Params: params{object("t1", "q"), object("t2", "a"), object("t1", "p")}})
	want := []string{"a/a10", "a/a9", "b/b1 t1/p", "b/b1 t1/q", "b/b2 t1/p", "b/b2 t1/q", "z/z1"}
	if diff := cmp.Diff(want, describe(ix.Select(t.Context(), createPod("t1", "x")))); diff != "" {
		t.Errorf("Select() (-want +got):\n%s", diff)
	}
	if got := len(ix.Policies()); got != 4 {
		t.Errorf("len(Policies()) = %d, want 4", got)
	}
	if got := len(ix.Bindings()); got != 6 {
		t.Errorf("len(Bindings()) = %d, want 6", got)
	}
}

func TestNewIndexErrors(t *testing.T) {
	p, b := newPolicy("p", resources()), newBinding(t, "b", "p")
	_, err := NewIndex([]*policy.Policy{p, p}, nil, Sources{})
	if want := `policy "p" is given twice`; err == nil || err.Error() != want {
		t.Errorf("NewIndex(two policies p) error = %v, want %s", err, want)
	}
	_, err = NewIndex(nil, []*Binding{b, b}, Sources{})
	if want := `binding "b" is given twice`; err == nil || err.Error() != want {
		t.Errorf("NewIndex(two bindings b) error = %v, want %s", err, want)
	}
}

func TestCompileErrors(t *testing.T) {
	tests := map[string]struct {
		name, policy, err string
	}{
		"no name":   {policy: "p", err: "binding without a name"},
		"no policy": {name: "b", err: `binding "b": spec.policyName is empty`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
			obj.Name, obj.Spec.PolicyName = tt.name, tt.policy
			if _, err := Compile(obj); err == nil || err.Error() != tt.err {
				t.Errorf("Compile() error = %v, want %s", err, tt.err)
			}
		})
	}
	if _, err := Compile(nil); err == nil {
		t.Error("Compile(nil) error = nil")
	}
}

// What an index by namespace must not change: spec §2.5, trap T46.
func TestSelectByNamespace(t *testing.T) {
	name := namespaceNameLabel
	pin := func(ns string) bindingOption { return in(inNamespace(resources(), name, ns)) }
	rule := newRule("v1 pods")
	clusterRule := newRule("v1 nodes")
	unknown := schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "Nope"}
	inList := resources(rule)
	inList.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: name, Operator: metav1.LabelSelectorOpIn, Values: []string{"t2", "t1"}}}}
	pinAndMore := inNamespace(resources(), name, "t1")
	pinAndMore.NamespaceSelector.MatchLabels["env"] = "prod"

	tests := map[string]struct {
		policies []*policy.Policy
		bindings []*Binding
		src      Namespaces
		req      *policy.Request
		want     []string
	}{
		"only this namespace's bindings, in order": {
			policies: []*policy.Policy{newPolicy("p", resources(rule))},
			bindings: []*Binding{newBinding(t, "c", "p", pin("t1")), newBinding(t, "b", "p"), newBinding(t, "a", "p", pin("t1")), newBinding(t, "d", "p", pin("t2"))},
			req:      createPod("t1", "x"), want: []string{"p/a", "p/b", "p/c"},
		},
		"policies of this namespace between others": {
			policies: []*policy.Policy{newPolicy("a", resources(rule)), newPolicy("b", inNamespace(resources(rule), name, "t1")), newPolicy("c", resources(rule)), newPolicy("d", inNamespace(resources(rule), name, "t2")), newPolicy("e", inList)},
			bindings: []*Binding{newBinding(t, "a", "a"), newBinding(t, "b", "b"), newBinding(t, "c", "c", pin("t1")), newBinding(t, "d", "d"), newBinding(t, "e", "e")},
			req:      createPod("t1", "x"), want: []string{"a/a", "b/b", "c/c", "e/e"},
		},
		"a pin among other terms is a necessary condition": {
			policies: []*policy.Policy{newPolicy("p", resources(rule))},
			bindings: []*Binding{newBinding(t, "a", "p", in(pinAndMore))},
			req:      createPod("t1", "x"), want: nil,
		},
		"cluster-scoped requests ignore every namespaceSelector": {
			policies: []*policy.Policy{newPolicy("p", inNamespace(resources(clusterRule), name, "t2"))},
			bindings: []*Binding{newBinding(t, "a", "p", pin("t1"))},
			req: &policy.Request{Operation: admissionv1.Create, Name: "n", Object: object("", "n"),
				Resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Kind: schema.GroupVersionKind{Version: "v1", Kind: "Node"}},
			want: []string{"p/a"},
		},
		"a Namespace is selected by its own new labels": {
			policies: []*policy.Policy{newPolicy("p", resources(newRule("v1 namespaces")))},
			bindings: []*Binding{newBinding(t, "a", "p", pin("t1")), newBinding(t, "b", "p", pin("t2"))},
			src:      brokenNamespaces{},
			req: &policy.Request{Operation: admissionv1.Create, Name: "t1", Namespace: "t1", Object: object("", "t1", name, "t1"),
				Resource: namespacesResource, Kind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}},
			want: []string{"p/a"},
		},
		"an unknown paramKind is reported where no binding selects": {
			policies: []*policy.Policy{newPolicy("p", resources(rule), withParams(unknown)), newPolicy("q", resources(rule), withParams(configMap)), newPolicy("r", resources(newRule("v1 nodes")), withParams(unknown))},
			bindings: []*Binding{newBinding(t, "a", "p", pin("t2")), newBinding(t, "b", "q", pin("t2")), newBinding(t, "c", "r")},
			req:      createPod("t1", "x"),
			want:     []string{"p/ error: failed to find resource referenced by paramKind: 'ex.io/v1, Kind=Nope' (policy)"},
		},
		"and once where one does": {
			policies: []*policy.Policy{newPolicy("p", resources(rule), withParams(unknown))},
			bindings: []*Binding{newBinding(t, "a", "p", pin("t1")), newBinding(t, "b", "p", pin("t1"))},
			req:      createPod("t1", "x"),
			want:     []string{"p/ error: failed to find resource referenced by paramKind: 'ex.io/v1, Kind=Nope' (policy)"},
		},
		"a missing namespace is every selecting policy's error": {
			policies: []*policy.Policy{newPolicy("p", inNamespace(resources(rule), name, "t1")), newPolicy("q", resources(rule))},
			bindings: []*Binding{newBinding(t, "a", "p"), newBinding(t, "b", "q", pin("t1")), newBinding(t, "c", "q")},
			src:      namespaces{}, req: createPod("t1", "x"),
			want: []string{`p/ error: namespaces "t1" not found (policy)`, `q/b error: namespaces "t1" not found`, "q/c"},
		},
		"any other lookup error is an internal one": {
			policies: []*policy.Policy{newPolicy("p", inNamespace(resources(rule), name, "t1"))},
			bindings: []*Binding{newBinding(t, "a", "p")},
			src:      brokenNamespaces{}, req: createPod("t1", "x"),
			want: []string{`p/ error: Internal error occurred: connection refused (policy)`},
		},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			src := tt.src
			if src == nil {
				src = namespaces{"t1": nil, "t2": nil}
			}
			ix := mustIndex(t, tt.policies, tt.bindings, Sources{Namespaces: src, Params: params{}})
			for range 2 { // the second time from memory
				if diff := cmp.Diff(tt.want, describe(ix.Select(t.Context(), tt.req))); diff != "" {
					t.Errorf("Select() (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestExcluded(t *testing.T) {
	ix := mustIndex(t, []*policy.Policy{newPolicy("p", resources(newRule("*/* */* *")))}, []*Binding{newBinding(t, "b", "p")}, Sources{})
	tests := map[string]struct {
		group, resource string
		operation       admissionv1.Operation
		want            bool
	}{
		"token reviews":                  {group: "authentication.k8s.io", resource: "tokenreviews"},
		"self subject reviews":           {group: "authentication.k8s.io", resource: "selfsubjectreviews"},
		"subject access reviews":         {group: "authorization.k8s.io", resource: "subjectaccessreviews"},
		"local subject access reviews":   {group: "authorization.k8s.io", resource: "localsubjectaccessreviews"},
		"self subject access reviews":    {group: "authorization.k8s.io", resource: "selfsubjectaccessreviews"},
		"self subject rules reviews":     {group: "authorization.k8s.io", resource: "selfsubjectrulesreviews"},
		"mutating policies":              {group: "admissionregistration.k8s.io", resource: "mutatingadmissionpolicies"},
		"mutating policy bindings":       {group: "admissionregistration.k8s.io", resource: "mutatingadmissionpolicybindings"},
		"validating policies":            {group: "admissionregistration.k8s.io", resource: "validatingadmissionpolicies"},
		"validating policy bindings":     {group: "admissionregistration.k8s.io", resource: "validatingadmissionpolicybindings"},
		"our own policies":               {group: "admissionregistration.mapd.dev", resource: "mutatingadmissionpolicies"},
		"webhook configurations are not": {group: "admissionregistration.k8s.io", resource: "mutatingwebhookconfigurations", want: true},
		"a namesake elsewhere is not":    {group: "ex.io", resource: "tokenreviews", want: true},
		"deletions":                      {resource: "pods", operation: admissionv1.Delete},
		"connects are not":               {resource: "pods", operation: admissionv1.Connect, want: true},
		"updates are not":                {resource: "pods", operation: admissionv1.Update, want: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			op := tt.operation
			if op == "" {
				op = admissionv1.Create
			}
			req := &policy.Request{Operation: op, Name: "x", Resource: schema.GroupVersionResource{Group: tt.group, Version: "v1", Resource: tt.resource}}
			if got := len(ix.Select(t.Context(), req)) > 0; got != tt.want {
				t.Errorf("selected = %v, want %v", got, tt.want)
			}
		})
	}
}

// fill makes n policies with one binding each that a Pod in t1 does not meet.
func fill(t testing.TB, n int, how string) ([]*policy.Policy, []*Binding) {
	policies, bindings := make([]*policy.Policy, n), make([]*Binding, n)
	for i := range n {
		name := fmt.Sprintf("p%05d", i)
		tenant := fmt.Sprintf("tenant-%05d", i)
		switch how {
		case "other resource":
			policies[i], bindings[i] = newPolicy(name, resources(newRule("apps/v1 deployments"))), newBinding(t, name, name)
		case "policies of other namespaces":
			policies[i], bindings[i] = newPolicy(name, inNamespace(resources(newRule("v1 pods")), namespaceNameLabel, tenant)), newBinding(t, name, name)
		case "bindings of other namespaces":
			policies[i], bindings[i] = newPolicy(name, resources(newRule("v1 pods"))), newBinding(t, name, name, in(inNamespace(resources(), namespaceNameLabel, tenant)))
		case "other operation":
			policies[i], bindings[i] = newPolicy(name, resources(newRule("v1 pods UPDATE"))), newBinding(t, name, name)
		}
	}
	return policies, bindings
}

// cached returns the same Namespace every time, as an informer does.
type cached struct{ ns *unstructured.Unstructured }

func (c cached) Namespace(context.Context, string) (*unstructured.Unstructured, error) {
	return c.ns, nil
}

// A policy that cannot match costs a request nothing (decisions: index).
func TestMissAllocatesNothing(t *testing.T) {
	hammer.Alone(t)
	src := Sources{Namespaces: cached{object("", "t1", namespaceNameLabel, "t1")}}
	req := createPod("t1", "x")
	for _, how := range []string{"other resource", "policies of other namespaces", "bindings of other namespaces", "other operation"} {
		for _, n := range []int{0, 10_000} {
			t.Run(fmt.Sprintf("%s/%d", how, n), func(t *testing.T) {
				policies, bindings := fill(t, n, how)
				ix := mustIndex(t, policies, bindings, src)
				ctx := t.Context()
				if got := ix.Select(ctx, req); got != nil {
					t.Fatalf("Select() = %v, want nil", describe(got))
				}
				if n := hammer.Allocs(t, func() { ix.Select(ctx, req) }); n != 0 {
					t.Errorf("Select() makes %v allocations, want 0", n)
				}
			})
		}
	}
}

// Shapes of a cluster whose tenants have a namespace and a binding each.
var tenantShapes = []string{"a policy each", "one policy", "a policy each, bound to all"}

// tenants makes n bindings, the binding of tenant-i for that namespace and another.
func tenants(t testing.TB, n int, shape string) (policies []*policy.Policy, bindings []*Binding) {
	own := func(m *admissionregistrationv1.MatchResources, i int) *admissionregistrationv1.MatchResources {
		m.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: namespaceNameLabel, Operator: metav1.LabelSelectorOpIn,
			Values: []string{fmt.Sprintf("tenant-%05d", i), fmt.Sprintf("other-%05d", i)},
		}}}
		return m
	}
	pods := func() *admissionregistrationv1.MatchResources { return resources(newRule("v1 pods")) }
	for i := range n {
		name := fmt.Sprintf("p%05d", i)
		switch shape {
		case "a policy each":
			policies, bindings = append(policies, newPolicy(name, pods())), append(bindings, newBinding(t, name, name, in(own(resources(), i))))
		case "a policy each, bound to all":
			policies, bindings = append(policies, newPolicy(name, own(pods(), i))), append(bindings, newBinding(t, name, name))
		default:
			if i == 0 {
				policies = append(policies, newPolicy("p", pods()))
			}
			bindings = append(bindings, newBinding(t, name, "p", in(own(resources(), i))))
		}
	}
	return policies, bindings
}

// What a request costs does not grow with the number of other tenants.
func TestTenants(t *testing.T) {
	hammer.Alone(t)
	for _, shape := range tenantShapes {
		t.Run(shape, func(t *testing.T) {
			var cost []float64
			for _, n := range []int{10, 10_000} {
				policies, bindings := tenants(t, n, shape)
				for _, ns := range []string{"tenant-00005", "other-00005"} {
					ix := mustIndex(t, policies, bindings, Sources{Namespaces: cached{object("", ns, namespaceNameLabel, ns)}})
					req := createPod(ns, "x")
					got := ix.Select(t.Context(), req)
					if len(got) != 1 || got[0].Binding != "p00005" {
						t.Fatalf("%s of %d: Select() = %v, want binding p00005 only", ns, n, describe(got))
					}
					if cap(got) > 4 {
						t.Errorf("%s of %d: room for %d invocations", ns, n, cap(got))
					}
					cost = append(cost, hammer.Allocs(t, func() { ix.Select(t.Context(), req) }))
				}
			}
			if slices.Max(cost) > slices.Min(cost)+1 { // a garbage collection empties pools
				t.Errorf("allocations %v, want the same for 10 and 10,000", cost)
			}
		})
	}
}

func BenchmarkTenants(b *testing.B) {
	for _, shape := range tenantShapes {
		for _, n := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(shape, " ", "-"), n), func(b *testing.B) {
				policies, bindings := tenants(b, n, shape)
				ix := mustIndex(b, policies, bindings, Sources{Namespaces: cached{object("", "tenant-00005", namespaceNameLabel, "tenant-00005")}})
				req := createPod("tenant-00005", "x")
				ix.Select(b.Context(), req)
				b.ReportAllocs()
				for b.Loop() {
					ix.Select(b.Context(), req)
				}
			})
		}
	}
}

func TestKeysAreBounded(t *testing.T) {
	ix := mustIndex(t, []*policy.Policy{newPolicy("p", resources(newRule("*/* *")))}, []*Binding{newBinding(t, "b", "p")}, Sources{})
	known := map[key]*candidates{}
	for i := range maxKeys {
		known[key{subresource: fmt.Sprint(i)}] = &candidates{}
	}
	ix.known.Store(&known)
	if got := describe(ix.Select(t.Context(), createPod("t1", "x"))); !slices.Equal(got, []string{"p/b"}) {
		t.Errorf("Select() = %v, want [p/b]", got)
	}
	if got := len(*ix.known.Load()); got != maxKeys {
		t.Errorf("%d keys are remembered, want %d", got, maxKeys)
	}
}

func TestHammerSelect(t *testing.T) {
	ix := mustIndex(t, []*policy.Policy{newPolicy("p", resources(newRule("*/* *")))}, []*Binding{newBinding(t, "b", "p")}, Sources{})
	ctx := t.Context()
	hammer.Run(8, 200, func(_, i int) {
		req := createPod("t1", "x")
		req.RequestResource.Resource = fmt.Sprintf("r%d", i)
		if got := len(ix.Select(ctx, req)); got != 1 {
			t.Errorf("Select() gives %d invocations, want 1", got)
		}
	})
}

func BenchmarkSelect(b *testing.B) {
	src := Sources{Namespaces: cached{object("", "t1", namespaceNameLabel, "t1")}}
	req := createPod("t1", "x")
	for _, how := range []string{"other resource", "policies of other namespaces", "bindings of other namespaces"} {
		for _, n := range []int{0, 10_000} {
			b.Run(fmt.Sprintf("miss/%s/%d", strings.ReplaceAll(how, " ", "-"), n), func(b *testing.B) {
				policies, bindings := fill(b, n, how)
				ix := mustIndex(b, policies, bindings, src)
				ctx := b.Context()
				ix.Select(ctx, req)
				b.ReportAllocs()
				for b.Loop() {
					ix.Select(ctx, req)
				}
			})
		}
	}
}

// BenchmarkNewIndex is a change among 10,000 policies, or among 10,000 bindings of one, and
// the first request after it, which all other requests of its kind profit from.
func BenchmarkNewIndex(b *testing.B) {
	for _, shape := range []string{"a policy each, bound to all", "one policy"} {
		b.Run(strings.ReplaceAll(shape, " ", "-"), func(b *testing.B) {
			policies, bindings := tenants(b, 10_000, shape)
			src := Sources{Namespaces: cached{object("", "tenant-00005", namespaceNameLabel, "tenant-00005")}}
			first := mustIndex(b, policies, bindings, src) // what is the same later is shared with it
			b.ReportAllocs()
			for b.Loop() {
				mustIndex(b, policies, bindings, src).Select(b.Context(), createPod("tenant-00005", "x"))
			}
			runtime.KeepAlive(first)
		})
	}
}
