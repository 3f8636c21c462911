package binding

import (
	"context"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// scan is what Select gives, from asking each policy and each binding by itself.
func scan(t testing.TB, ix *Index, req *policy.Request, object *unstructured.Unstructured) (out []Invocation) {
	k := keyOf(req)
	if !admissible(&k, ix.src.Deletions) {
		return nil
	}
	var equivalents []Equivalent
	if ix.src.Equivalents != nil {
		equivalents = ix.src.Equivalents(k.resource)
	}
	target := target{ctx: t.Context(), ix: ix, req: req, resource: k.resource, object: object}
	test := func(m *matcher) (hit, bool, error) {
		h, failed, err := m.test(&target, m.rules.judge(&k, equivalents))
		return h, err == nil && failed == Satisfied, err
	}
	for _, e := range ix.entries {
		inv := Invocation{Policy: e.policy, HasParams: e.params.given}
		h, ok, err := test(matcherOf(e.policy.Object().Spec.MatchConstraints))
		if err != nil {
			inv.Err, inv.PolicyError = err, true
			out = append(out, inv)
			continue
		}
		if !ok {
			continue
		}
		inv.Resource, inv.Kind = target.resolve(h)
		g := newGroup(groupKey{params: e.params})
		namespaced, err := target.paramScope(g)
		if err != nil {
			inv.Err, inv.PolicyError = err, true
			out = append(out, inv)
			continue
		}
		for _, b := range e.bindings {
			inv := inv
			inv.Binding = b.Name()
			if m := b.Object().Spec.MatchResources; m != nil {
				if _, ok, inv.Err = test(matcherOf(m)); !ok && inv.Err == nil {
					continue
				}
			}
			if inv.Err != nil || !inv.HasParams || b.params.ParamRef == nil {
				out = append(out, inv)
				continue
			}
			params, err := b.params.collect(t.Context(), ix.src.Params, g.gvk, namespaced, req.Namespace)
			if err != nil {
				inv.Err = err
				out = append(out, inv)
			}
			for _, inv.Params = range params {
				out = append(out, inv)
			}
		}
	}
	return out
}

func selectObject(t testing.TB, ix *Index, req *policy.Request, object *unstructured.Unstructured) []Invocation {
	var s Selection
	ix.SelectInto(&s, t.Context(), req, object)
	return s.Invocations
}

// dice make policies, bindings and requests that have much to do with each other.
type dice struct{ *rand.Rand }

func (d dice) pick(s ...string) string { return s[d.Intn(len(s))] }
func (d dice) one(in int) bool         { return d.Intn(in) == 0 }

func (d dice) requirement() metav1.LabelSelectorRequirement {
	r := metav1.LabelSelectorRequirement{Key: d.pick(namespaceNameLabel, "env", "app"), Operator: metav1.LabelSelectorOperator(d.pick("In", "In", "NotIn", "Exists", "DoesNotExist"))}
	if strings.HasSuffix(string(r.Operator), "In") {
		for range 1 + d.Intn(2) {
			r.Values = append(r.Values, d.pick("t1", "t2", "prod", "a", ""))
		}
	}
	if d.one(40) {
		r.Operator = "Near"
	}
	return r
}

func (d dice) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for range max(0, d.Intn(4)-1) {
		s.MatchExpressions = append(s.MatchExpressions, d.requirement())
	}
	if d.one(4) {
		s.MatchLabels = map[string]string{d.pick(namespaceNameLabel, "env", "app"): d.pick("t1", "t2", "prod", "a")}
	}
	return s
}

func (d dice) rules() (out []admissionregistrationv1.NamedRuleWithOperations) {
	for range d.Intn(3) {
		var names []string
		for range max(0, d.Intn(4)-1) {
			names = append(names, d.pick("x", "y", "t1"))
		}
		gv := d.pick("v1", "v1", "ex.io/v2", "ex.io/v9")
		out = append(out, newRule(gv+" "+d.pick("pods", "pods,namespaces", "nodes", "widgets", "*")+" "+d.pick("CREATE", "CREATE,UPDATE", "*"), names...))
	}
	return out
}

func (d dice) match() *admissionregistrationv1.MatchResources {
	if d.one(60) {
		return &admissionregistrationv1.MatchResources{}
	}
	m := resources(d.rules()...)
	m.NamespaceSelector, m.ObjectSelector = d.selector(), d.selector()
	if d.one(4) {
		m.ExcludeResourceRules = d.rules()
	}
	if d.one(4) {
		exact := admissionregistrationv1.Exact
		m.MatchPolicy = &exact
	}
	return m
}

func (d dice) policy(name string) *policy.Policy {
	m := d.match()
	if d.one(60) {
		m = nil
	}
	switch d.Intn(6) {
	case 0:
		return newPolicy(name, m, withParams(configMap))
	case 1:
		return newPolicy(name, m, withParams(clusterParam))
	case 2:
		return newPolicy(name, m, func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: d.pick("v1", "a/b/c"), Kind: "Nope"}
		})
	}
	return newPolicy(name, m)
}

func (d dice) binding(t testing.TB, name, policyName string) *Binding {
	var opts []bindingOption
	if d.one(2) {
		opts = append(opts, ref(admissionregistrationv1.ParamRef{Name: d.pick("cm", "cm", "gone", "boom")}))
	}
	if !d.one(4) {
		opts = append(opts, in(d.match()))
	}
	return newBinding(t, name, policyName, opts...)
}

// object has labels, or what a client may send in their place.
func (d dice) object(namespace, name string) *unstructured.Unstructured {
	u := object(namespace, name, namespaceNameLabel, d.pick("t1", "t2"), d.pick("env", "app"), d.pick("prod", "a", "b", ""))
	meta := u.Object["metadata"].(map[string]any)
	switch d.Intn(12) {
	case 0:
		return nil
	case 1:
		u.Object["metadata"] = "odd"
	case 2:
		delete(meta, "labels")
	case 3:
		meta["labels"] = map[string]any{"app": nil, "env": int64(1)}
	case 4:
		meta["labels"] = []any{"app"}
	}
	return u
}

func (d dice) request() *policy.Request {
	req := &policy.Request{Operation: admissionv1.Operation(d.pick("CREATE", "CREATE", "UPDATE", "UPDATE", "CONNECT", "DELETE")),
		Name: d.pick("x", "y", "z", ""), Namespace: d.pick("t1", "t1", "t2", "t3", "gone", "")}
	switch d.Intn(5) {
	case 0:
		req.Resource, req.Kind = schema.GroupVersionResource{Group: "ex.io", Version: d.pick("v1", "v2"), Resource: "widgets"}, schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "Widget"}
	case 1:
		req.Resource, req.Kind = namespacesResource, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
		req.Name = d.pick("t1", "t2")
		req.Namespace = req.Name
	default:
		req.Resource, req.Kind = pods, podKind
	}
	req.Object, req.OldObject = d.object(req.Namespace, req.Name), d.object(req.Namespace, req.Name)
	if req.Operation != admissionv1.Update {
		req.OldObject = nil
	}
	return req
}

// Looking policies up gives what asking each of them gives.
func TestSelectEqualsScan(t *testing.T) {
	hammer.Alone(t)
	d := dice{rand.New(rand.NewSource(1))}
	widgets := func(version, kind string) Equivalent {
		gv := schema.GroupVersion{Group: "ex.io", Version: version}
		return Equivalent{Resource: gv.WithResource("widgets"), Kind: gv.WithKind(kind)}
	}
	src := Sources{
		Namespaces: namespaces{"t1": {"env", "prod"}, "t2": {"app", "a"}, "t3": nil},
		Params:     params{object("t1", "cm"), object("t2", "cm"), object("", "cm")},
		Equivalents: func(r schema.GroupVersionResource) []Equivalent {
			if r.Group != "ex.io" {
				return nil
			}
			out := []Equivalent{widgets("v1", "Widget"), widgets("v2", "Widget")}
			if d.one(3) { // one that nobody knows the kind of
				out = append(out, Equivalent{Resource: schema.GroupVersionResource{Group: "ex.io", Version: "v9", Resource: "widgets"}})
			}
			return out
		},
	}
	var selected, failed, stood int
	for round := range 1500 {
		var policies []*policy.Policy
		var bindings []*Binding
		for i := range 1 + d.Intn(8) {
			name := fmt.Sprintf("p%d", i)
			policies = append(policies, d.policy(name))
			for j := range d.Intn(4) {
				bindings = append(bindings, d.binding(t, fmt.Sprintf("b%d%d", d.Intn(10), 10*i+j), name))
			}
			if d.one(3) { // so that some match alike
				policies[i] = newPolicy(name, policies[d.Intn(i+1)].Object().Spec.MatchConstraints)
			}
		}
		// What equivalents a resource has must not change under an Index.
		known := map[schema.GroupVersionResource][]Equivalent{}
		fixed := src
		fixed.Equivalents = func(r schema.GroupVersionResource) []Equivalent {
			if _, ok := known[r]; !ok {
				known[r] = src.Equivalents(r)
			}
			return known[r]
		}
		ix := mustIndex(t, policies, bindings, fixed)
		for range 10 {
			req := d.request()
			want := scan(t, ix, req, req.Object)
			var s Selection
			ix.SelectInto(&s, t.Context(), req, req.Object)
			describeAll := func(invs []Invocation) []string {
				out := describe(invs)
				for i, inv := range invs {
					out[i] += fmt.Sprint(" ", inv.Kind, inv.Resource, inv.HasParams)
				}
				return out
			}
			if diff := cmp.Diff(describeAll(want), describeAll(s.Invocations)); diff != "" {
				t.Fatalf("round %d: Select(%+v) (-scan +Select):\n%s", round, req, diff)
			}
			// What is not selected is missed, with a reason.
			met := map[string]bool{}
			for _, inv := range s.Invocations {
				if met[inv.Policy.Name()+"/"+inv.Binding] = true; inv.PolicyError {
					met[inv.Policy.Name()] = true
				}
			}
			for m := range ix.Misses(t.Context(), req, req.Object) {
				at := m.Policy.Name()
				if m.Binding != nil {
					at += "/" + m.Binding.Name()
				}
				if met[at] || m.Criterion == Satisfied {
					t.Fatalf("round %d: Misses(%+v): %s is met and missed for %d", round, req, at, m.Criterion)
				}
				met[at] = true
			}
			for _, p := range ix.Policies() {
				for _, b := range ix.Bindings() {
					if at := p.Name(); b.PolicyName() == at && !met[at] && !met[at+"/"+b.Name()] {
						t.Fatalf("round %d: Misses(%+v): %s/%s is neither met nor missed", round, req, at, b.Name())
					}
				}
			}
			for _, inv := range s.Invocations {
				if inv.Err != nil {
					failed++
				} else {
					selected++
				}
			}
			// What a second round may do without selecting again.
			other := req.Object.DeepCopy()
			if d.one(2) {
				other = d.object(req.Namespace, req.Name)
			}
			if !s.Stands(other) {
				continue
			}
			stood++
			if diff := cmp.Diff(describeAll(scan(t, ix, req, other)), describeAll(s.Invocations)); diff != "" {
				t.Fatalf("round %d: Select(%+v) with %v (-scan +standing):\n%s", round, req, other, diff)
			}
		}
	}
	if selected < 1000 || failed < 1000 || stood < 1000 {
		t.Errorf("%d invocations, %d errors and %d standing selections, which say little", selected, failed, stood)
	}
}

// selectors are ways in which n policies can select, with a request in namespace t1
// of an object with app=web that meets none of them: the i-th of few selectors, or
// one of its own.
var selectors = []string{"labels", "in", "not-in", "exists", "does-not-exist"}

func missing(operator string, i int) *metav1.LabelSelector {
	value := fmt.Sprintf("v%d", i)
	r := metav1.LabelSelectorRequirement{Key: "k" + value, Operator: metav1.LabelSelectorOpExists}
	switch operator {
	case "labels":
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": value}}
	case "in":
		r = metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{value, "w" + value}}
	case "not-in":
		r = metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{value, "web"}}
	case "does-not-exist":
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}, {Key: "k" + value, Operator: metav1.LabelSelectorOpDoesNotExist}}}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
}

// selecting makes n policies with a binding each, or n bindings of one policy, that
// use so many selectors at a place.
func selecting(t testing.TB, n, distinct int, operator, who, place string) ([]*policy.Policy, []*Binding) {
	var policies []*policy.Policy
	var bindings []*Binding
	for i := range n {
		name := fmt.Sprintf("p%05d", i)
		m := resources()
		if place == "namespace" {
			m.NamespaceSelector = missing(operator, i%distinct)
		} else {
			m.ObjectSelector = missing(operator, i%distinct)
		}
		switch {
		case who == "policies":
			m.ResourceRules = resources(newRule("v1 pods CREATE,UPDATE")).ResourceRules
			policies, bindings = append(policies, newPolicy(name, m)), append(bindings, newBinding(t, name, name))
		case who == "bindings":
			policies, bindings = append(policies, newPolicy(name, resources(newRule("v1 pods CREATE,UPDATE")))), append(bindings, newBinding(t, name, name, in(m)))
		default:
			if i == 0 {
				policies = append(policies, newPolicy("p", resources(newRule("v1 pods CREATE,UPDATE"))))
			}
			bindings = append(bindings, newBinding(t, name, "p", in(m)))
		}
	}
	return policies, bindings
}

// A request asks equal selectors once however many policies and bindings have them,
// and those of which it lacks the labels not at all.
func TestEqualSelectorsAreAskedOnce(t *testing.T) {
	hammer.Alone(t)
	req := createPod("t1", "x", "app", "web")
	req.Operation, req.OldObject = admissionv1.Update, object("t1", "x", "app", "web")
	for _, operator := range selectors {
		for _, who := range []string{"policies", "bindings", "bindings of one policy"} {
			for _, place := range []string{"namespace", "object"} {
				for _, distinct := range []int{1, 10, 1000} {
					t.Run(fmt.Sprintf("%s/%s/%s/%d", operator, who, place, distinct), func(t *testing.T) {
						policies, bindings := selecting(t, 1000, distinct, operator, who, place)
						ix := mustIndex(t, policies, bindings, Sources{Namespaces: cached{object("", "t1", namespaceNameLabel, "t1", "app", "web")}})
						if got := ix.Select(t.Context(), req); got != nil {
							t.Fatalf("Select() = %v, want nil", describe(got))
						}
						groups := 0
						for _, r := range ix.buckets {
							groups += len(r.groups)
						}
						if groups != distinct {
							t.Errorf("%d groups, want %d", groups, distinct)
						}
						k := keyOf(req)
						asked := 0
						for _, table := range ix.candidates(&k).tables {
							asked += len(table.Always)
							asked += len(table.Find(nil, lookup.Namespace, lookup.Labels{namespaceNameLabel: "t1", "app": "web"}))
							asked += len(table.Find(nil, lookup.Object, lookup.Labels{"app": "web"}))
						}
						want := 0
						if operator == "not-in" || operator == "does-not-exist" {
							want = distinct
						}
						if asked != want {
							t.Errorf("%d groups are asked, want %d", asked, want)
						}
						ctx := t.Context()
						if n := hammer.Allocs(t, func() { ix.Select(ctx, req) }); n != 0 {
							t.Errorf("Select() makes %v allocations, want 0", n)
						}
					})
				}
			}
		}
	}
}

func BenchmarkSelectors(b *testing.B) {
	req := createPod("t1", "x", "app", "web")
	for _, operator := range selectors {
		for _, place := range []string{"namespace", "object"} {
			for _, c := range []struct{ n, distinct int }{{1, 1}, {10_000, 1}, {10, 10}, {10_000, 10}} {
				b.Run(fmt.Sprintf("%s/%s/%d-of-%d", operator, place, c.distinct, c.n), func(b *testing.B) {
					policies, bindings := selecting(b, c.n, c.distinct, operator, "policies", place)
					ix := mustIndex(b, policies, bindings, Sources{Namespaces: cached{object("", "t1", namespaceNameLabel, "t1", "app", "web")}})
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
}

// Many lists of rules do not make as many tables.
func TestManyRules(t *testing.T) {
	var policies []*policy.Policy
	var bindings []*Binding
	for i := range 1000 {
		name := fmt.Sprintf("p%04d", i)
		policies = append(policies, newPolicy(name, resources(newRule("v1 pods", name))))
		bindings = append(bindings, newBinding(t, name, name))
	}
	ix := mustIndex(t, policies, bindings, Sources{})
	req := createPod("t1", "p0500")
	if got := describe(ix.Select(t.Context(), req)); len(got) != 1 || got[0] != "p0500/p0500" {
		t.Errorf("Select() = %v, want p0500/p0500 only", got)
	}
	k := keyOf(req)
	c := ix.candidates(&k)
	if len(c.tables) != 1 || len(c.tables[0].Always) != 0 || len(c.tables[0].FindOne(nil, lookup.Name, "", "p0500")) != 1 {
		t.Errorf("%d tables, %d policies are always asked", len(c.tables), len(c.tables[0].Always))
	}
}

// Select returns what a request meets.
func (ix *Index) Select(ctx context.Context, req *policy.Request) []Invocation {
	var s Selection
	ix.SelectInto(&s, ctx, req, req.Object)
	return s.Invocations
}
