package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

var _ Admitter = (*engine.Engine)(nil)

// BenchmarkHandler answers one review: decode, admit with the real engine,
// diff, verify, encode. The network, TLS and net/http are left out. plain
// decodes and answers without any policy in between.
func BenchmarkHandler(b *testing.B) {
	pods := []struct {
		name            string
		containers, env int
	}{{"small", 3, 3}, {"big", 20, 40}}
	const (
		jsonPatch = `[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: "v"}]`
		apply     = `Object{metadata: Object.metadata{labels: {"l%d": "v"}}}`
	)
	cases := []struct {
		name, expr string
		policies   int
	}{{"plain", "", 0}, {"jsonpatch/1", jsonPatch, 1}, {"jsonpatch/10", jsonPatch, 10}, {"jsonpatch/100", jsonPatch, 100}, {"apply/10", apply, 10}}
	for _, pod := range pods {
		review := podReview(b, pod.containers, pod.env)
		for _, c := range cases {
			b.Run(pod.name+"/"+c.name, func(b *testing.B) {
				h := NewHandler(Options{Admitter: labelEngine(b, c.expr, c.policies)})
				code, body := h.Review(b.Context(), review)
				checkLabels(b, review, code, body, c.policies)
				b.SetBytes(int64(len(review)))
				b.ReportAllocs()
				for b.Loop() {
					h.Review(b.Context(), review)
				}
			})
		}
	}
}

// TestHandlerWithEngine is the benchmark's answer, checked where tests run.
func TestHandlerWithEngine(t *testing.T) {
	review := podReview(t, 3, 3)
	h := NewHandler(Options{Admitter: labelEngine(t, `[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: "v"}]`, 3)})
	code, body := h.Review(t.Context(), review)
	checkLabels(t, review, code, body, 3)
}

func checkLabels(t testing.TB, review []byte, code int, body []byte, policies int) {
	t.Helper()
	var answer struct {
		Response struct {
			Allowed bool
			Patch   []byte
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	if code != http.StatusOK || !answer.Response.Allowed {
		t.Fatalf("answer %d %s", code, body)
	}
	var ops []tree.Op
	if len(answer.Response.Patch) > 0 {
		if err := json.Unmarshal(answer.Response.Patch, &ops); err != nil {
			t.Fatal(err)
		}
	}
	req, err := DecodeReview(review)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tree.Apply(req.Object.Object, ops)
	if err != nil {
		t.Fatal(err)
	}
	want := req.Object.GetLabels()
	for i := range policies {
		want[fmt.Sprintf("l%d", i)] = "v"
	}
	pod := &unstructured.Unstructured{Object: got.(map[string]any)}
	if diff := cmp.Diff(want, pod.GetLabels()); diff != "" {
		t.Fatalf("labels (-want +got):\n%s", diff)
	}
}

type namespaces struct{}

func (namespaces) Namespace(_ context.Context, name string) (*unstructured.Unstructured, error) {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"kubernetes.io/metadata.name": name}},
	}}, nil
}

// labelEngine returns an engine with n policies, each of which sets a label on
// pods.
func labelEngine(t testing.TB, expr string, n int) *engine.Engine {
	t.Helper()
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	deps := policy.Deps{Env: env, Types: openapi.New(openapi.Builtin())}
	fail, equivalent := admissionregistrationv1.Fail, admissionregistrationv1.Equivalent
	var policies []*policy.Policy
	var bindings []*binding.Binding
	for i := range n {
		name := fmt.Sprintf("label-%03d", i)
		mutation := admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: fmt.Sprintf(expr, i)}}
		if expr[0] == 'O' {
			mutation = admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: fmt.Sprintf(expr, i)}}
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
		}, deps)
		if err != nil {
			t.Fatal(err)
		}
		bd, err := binding.Compile(&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
		})
		if err != nil {
			t.Fatal(err)
		}
		policies, bindings = append(policies, p), append(bindings, bd)
	}
	ix, err := binding.NewIndex(policies, bindings, binding.Sources{Namespaces: namespaces{}})
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(engine.Options{})
	e.Publish(engine.Policies(ix))
	return e
}

// podReview is a review that creates a pod, in the form in which a server
// sends it.
func podReview(t testing.TB, containers, env int) []byte {
	t.Helper()
	var list []any
	for i := range containers {
		var vars []any
		for j := range env {
			vars = append(vars, map[string]any{"name": fmt.Sprintf("VARIABLE_%d", j), "value": fmt.Sprintf("some value that is not short, number %d", j)})
		}
		list = append(list, map[string]any{
			"name": fmt.Sprintf("c%d", i), "image": "registry.example.com/team/app:1.2.3", "imagePullPolicy": "IfNotPresent",
			"env": vars, "ports": []any{map[string]any{"containerPort": int64(8080 + i), "protocol": "TCP"}},
			"resources":                map[string]any{"limits": map[string]any{"memory": "128Mi"}, "requests": map[string]any{"cpu": "100m"}},
			"terminationMessagePath":   "/dev/termination-log",
			"terminationMessagePolicy": "File",
		})
	}
	return mustJSON(t, map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": map[string]any{
		"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "name": "web-0", "namespace": "shop", "dryRun": false,
		"kind":            map[string]any{"group": "", "version": "v1", "kind": "Pod"},
		"resource":        map[string]any{"group": "", "version": "v1", "resource": "pods"},
		"requestKind":     map[string]any{"group": "", "version": "v1", "kind": "Pod"},
		"requestResource": map[string]any{"group": "", "version": "v1", "resource": "pods"},
		"userInfo":        map[string]any{"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": []any{"system:authenticated"}},
		"options":         map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
		"object": map[string]any{"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": "web-0", "namespace": "shop", "labels": map[string]any{"app": "web"}},
			"spec":     map[string]any{"containers": list, "restartPolicy": "Always", "serviceAccountName": "default"},
			"status":   map[string]any{}, // a server always sends it
		},
	}})
}
