package engine_test

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
	"github.com/mapd-project/mapd/test/subject"
)

var mutations = []struct{ name, expression string }{
	{"label/jsonpatch", `[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: "v"}]`},
	{"label/apply", `Object{metadata: Object.metadata{labels: {"l%d": "v"}}}`},
	{"name/jsonpatch", `[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: object.metadata.name}]`},
	{"containers/apply", `Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, terminationMessagePath: "/%d"})}}`},
}

// podEngine has n policies that each do a mutation of their own to Pods.
func podEngine(t testing.TB, expression string, n int) *engine.Engine {
	t.Helper()
	var policies []*policy.Policy
	var bindings []*binding.Binding
	fail, equivalent := admissionregistrationv1.Fail, admissionregistrationv1.Equivalent
	for i := range n {
		name, text := fmt.Sprintf("p%03d", i), fmt.Sprintf(expression, i)
		mutation := admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: text}}
		if text[0] == '[' {
			mutation = admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: text}}
		}
		p, err := policy.Compile(&admissionregistrationv1.MutatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				FailurePolicy: &fail, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
				MatchConstraints: &admissionregistrationv1.MatchResources{
					MatchPolicy: &equivalent, NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{"CREATE"},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
					}}},
				},
				Mutations: []admissionregistrationv1.Mutation{mutation},
			},
		}, policy.Deps{Env: subject.Env, Types: subject.Builtin})
		if err != nil {
			t.Fatal(err)
		}
		b, err := binding.Compile(&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
		})
		if err != nil {
			t.Fatal(err)
		}
		policies, bindings = append(policies, p), append(bindings, b)
	}
	ix, err := binding.NewIndex(policies, bindings, binding.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(engine.Options{})
	e.Publish(engine.Policies(ix))
	return e
}

// podRequest creates a Pod; it has no namespace, so that none is looked up.
func podRequest(containers int) *policy.Request {
	var list []any
	for i := range containers {
		list = append(list, map[string]any{"name": fmt.Sprint("c", i), "image": "i", "resources": map[string]any{}, "imagePullPolicy": "Always"})
	}
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	return &policy.Request{
		Kind: pod, RequestKind: pod, Resource: pods, RequestResource: pods, Operation: admissionv1.Create,
		Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": "p", "labels": map[string]any{"app": "p", "team": "t"}},
			"spec":     map[string]any{"containers": list},
			"status":   map[string]any{},
		}},
	}
}

// What the first policy copies the others write to, so ten cost less than ten
// times one, and none costs more on a bigger object.
func TestAllocationsOfLabels(t *testing.T) {
	allocs := func(t *testing.T, expression string, policies, containers int) float64 {
		e, req := podEngine(t, expression, policies), podRequest(containers)
		if d := e.Admit(t.Context(), req); d.Status != nil || !d.Changed || len(d.Steps) != policies {
			t.Fatalf("Admit = %+v", d)
		}
		return hammer.Allocs(t, func() { e.Admit(t.Context(), req) })
	}
	for i, limit := range []float64{15, 17, 20} {
		t.Run(mutations[i].name, func(t *testing.T) {
			one, ten := allocs(t, mutations[i].expression, 1, 3), allocs(t, mutations[i].expression, 10, 3)
			if one > limit {
				t.Errorf("%v allocations for one label, want at most %v", one, limit)
			}
			if ten >= 5*one {
				t.Errorf("%v allocations for ten labels, %v for one", ten, one)
			}
			if big := allocs(t, mutations[i].expression, 1, 20); big != one {
				t.Errorf("%v allocations on a small Pod, %v on a big one", one, big)
			}
		})
	}
}

func BenchmarkPolicies(b *testing.B) {
	for _, m := range mutations {
		for _, n := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("%s/%d", m.name, n), func(b *testing.B) {
				e, req := podEngine(b, m.expression, n), podRequest(3)
				if d := e.Admit(b.Context(), req); d.Status != nil || !d.Changed {
					b.Fatalf("Admit = %+v", d)
				}
				b.ReportAllocs()
				for b.Loop() {
					e.Admit(b.Context(), req)
				}
			})
		}
	}
}
