package cel

import (
	"context"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/json"
)

// world is one admission request as a test sees it: in our terms and, by
// attributes and the rest, in those of the in-tree plugin.
type world struct {
	object, old, params, namespace map[string]any
	user                           user.Info
	authz                          authorizer.UnconditionalAuthorizer
}

func tree(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.UnmarshalCaseSensitivePreserveInts([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func testWorld(t testing.TB) *world {
	return &world{
		object: tree(t, `{"apiVersion":"apps/v1","kind":"Deployment",
			"metadata":{"name":"web","namespace":"shop","labels":{"app":"web","tier":"front"},"annotations":{"a.b/c":"1"}},
			"spec":{"replicas":3,"ratio":0.5,"whole":2.0,"big":9007199254740993,"huge":1e21,"nothing":null,"flag":true,"empty":[],"none":{},
				"template":{"spec":{"containers":[
					{"name":"a","image":"reg.io/a:1","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"500m"}}},
					{"name":"b","image":"b:2.0"}]}}}}`),
		params:    tree(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"p","namespace":"shop"},"data":{"team":"blue","max":"5"}}`),
		namespace: tree(t, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","labels":{"env":"prod"},"creationTimestamp":"2026-01-02T03:04:05Z"},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}`),
		user:      &user.DefaultInfo{Name: "ann", Groups: []string{"dev", "ops"}},
		authz: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb() == "get" {
				return authorizer.DecisionAllow, "may get", nil
			}
			return authorizer.DecisionNoOpinion, "no rule", nil
		}),
	}
}

var (
	testGVK = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	testGVR = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

func (w *world) attributes() admission.Attributes {
	var object, old runtime.Object
	if w.object != nil {
		object = &unstructured.Unstructured{Object: w.object}
	}
	if w.old != nil {
		old = &unstructured.Unstructured{Object: w.old}
	}
	return admission.NewAttributesRecord(object, old, testGVK, "shop", "web", testGVR, "", admission.Create, nil, false, w.user)
}

func (w *world) input() *Input {
	return &Input{
		Object: w.object, OldObject: w.old, Params: w.params, Namespace: w.namespace,
		User: w.user, Authorizer: w.authz, Attributes: w.attributes(),
		Request: func() map[string]any {
			return map[string]any{
				"kind":            map[string]any{"group": "apps", "version": "v1", "kind": "Deployment"},
				"resource":        map[string]any{"group": "apps", "version": "v1", "resource": "deployments"},
				"requestKind":     map[string]any{"group": "apps", "version": "v1", "kind": "Deployment"},
				"requestResource": map[string]any{"group": "apps", "version": "v1", "resource": "deployments"},
				"name":            "web", "namespace": "shop", "operation": "CREATE", "dryRun": false,
				"userInfo": map[string]any{"username": "ann", "groups": []any{"dev", "ops"}},
				"options":  map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
			}
		},
	}
}

type definition struct{ name, expr string }

// upstream is the compiler of the in-tree plugin with one expression.
type upstream struct {
	evaluator plugincel.MutatingEvaluator
	composed  *plugincel.CompositedCompiler
}

type accessor struct {
	name, expr string
	result     *celgo.Type
}

func (a *accessor) GetName() string            { return a.name }
func (a *accessor) GetExpression() string      { return a.expr }
func (a *accessor) ReturnTypes() []*celgo.Type { return []*celgo.Type{a.result} }

func newUpstream(t testing.TB, definitions []definition, expr string, want Want, params bool) *upstream {
	t.Helper()
	composed, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 36)))
	if err != nil {
		t.Fatal(err)
	}
	opts := plugincel.OptionalVariableDeclarations{HasParams: params, HasAuthorizer: true}
	for _, d := range definitions {
		composed.CompileAndStoreVariable(&accessor{name: d.name, expr: d.expr, result: celgo.AnyType}, opts, environment.StoredExpressions)
	}
	a := &accessor{expr: expr, result: celgo.AnyType}
	if want != anything {
		a.result = wanted[want]
	}
	opts.HasPatchTypes = want == Object || want == JSONPatch
	return &upstream{composed: composed, evaluator: composed.CompileMutatingEvaluator(a, opts, environment.StoredExpressions)}
}

// eval returns the value, the cost and the error of the expression. An
// exceeded budget is the second error.
func (u *upstream) eval(t testing.TB, ctx context.Context, w *world, budget int64) (ref.Val, int64, error, error) {
	t.Helper()
	attrs, err := admission.NewVersionedAttributes(w.attributes(), testGVK, nil)
	if err != nil {
		t.Fatal(err)
	}
	bindings := plugincel.OptionalVariableBindings{Authorizer: w.authz}
	if w.params != nil {
		bindings.VersionedParams = &unstructured.Unstructured{Object: w.params}
	}
	var namespace *corev1.Namespace
	if w.namespace != nil {
		namespace = &corev1.Namespace{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(w.namespace, namespace); err != nil {
			t.Fatal(err)
		}
	}
	dryRun := false
	request := &admissionv1.AdmissionRequest{
		Kind:            metav1.GroupVersionKind(testGVK),
		Resource:        metav1.GroupVersionResource(testGVR),
		RequestKind:     (*metav1.GroupVersionKind)(&testGVK),
		RequestResource: (*metav1.GroupVersionResource)(&testGVR),
		Name:            "web", Namespace: "shop", Operation: admissionv1.Create, DryRun: &dryRun,
		UserInfo: authenticationv1.UserInfo{Username: "ann", Groups: []string{"dev", "ops"}},
		Options:  runtime.RawExtension{Object: &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"}}},
	}
	result, remaining, err := u.evaluator.ForInput(u.composed.CreateContext(ctx), attrs, request, bindings, namespace, budget)
	if err != nil {
		return nil, 0, nil, err
	}
	return result.EvalResult, budget - remaining, result.Error, nil
}
