package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
	"github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// namedNamespaces are Namespaces without labels of any name.
type namedNamespaces struct{}

func (namedNamespaces) Namespace(_ context.Context, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	u.SetName(name)
	return u, nil
}

// newTestWorkloads are those of a server that has all kinds, which nobody reads.
func newTestWorkloads(t testing.TB) *workloads {
	t.Helper()
	deps := testDeps(t)
	sources := validating.Sources{Types: deps.Types, Sources: binding.Sources{Namespaces: namedNamespaces{}}}
	w := newWorkloads(nil, sources, deps, engine.Options{}, slog.New(slog.DiscardHandler), func() {})
	w.templates.SetServed(true)
	w.natives.policies.SetServed(true)
	w.natives.bindings.SetServed(true)
	return w
}

// testTemplate expands kinds of example.com by spec.
func testTemplate(t testing.TB, name, from, to string, generation int64) *unstructured.Unstructured {
	t.Helper()
	u := parse(t, fmt.Sprintf(`
apiVersion: expansion.gatekeeper.sh/v1beta1
kind: ExpansionTemplate
metadata: {name: %s}
spec:
  applyTo: [{groups: [example.com], versions: [v1], kinds: [%s]}]
  templateSource: spec
  generatedGVK: {group: example.com, version: v1, kind: %s}
`, name, from, to))
	u.SetUID(types.UID(name))
	u.SetGeneration(generation)
	return u
}

const testValidation = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: images, generation: 1, uid: u}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations:
  - {expression: 'EXPRESSION', message: labels are missing}
`

const testValidationBinding = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: images, generation: 1, uid: u}
spec: {policyName: images, validationActions: [Deny]}
`

// templateStates are templates in few words.
func templateStates(s *ExpansionState) []string {
	out := []string{}
	for _, t := range s.Templates {
		text := t.Object.GetName() + ": running"
		if t.Err != nil {
			text = fmt.Sprintf("%s: cycle %t, %v", t.Object.GetName(), t.Cycle, t.Err)
		}
		out = append(out, text)
	}
	return out
}

func TestWorkloadsUpdate(t *testing.T) {
	w := newTestWorkloads(t)
	if w.update(false) || w.ready() == nil || w.current.Load() != nil {
		t.Fatal("there is something before anything has been read")
	}
	put(t, w.templates, testTemplate(t, "b", "B", "C", 1), testTemplate(t, "a", "A", "B", 1))
	put(t, w.policies)
	put(t, w.bindings)
	put(t, w.natives.policies)
	if w.update(false) {
		t.Fatal("there is something before the bindings of native policies have been read")
	}
	put(t, w.natives.bindings)
	want := func(what string, news bool, states, problems []string) {
		t.Helper()
		if got := w.update(false); got != news || w.ready() != nil {
			t.Fatalf("%s: news %t, ready: %v", what, got, w.ready())
		}
		if diff := cmp.Diff(states, templateStates(w.state)); diff != "" {
			t.Errorf("%s: templates (- want):\n%s", what, diff)
		}
		if diff := cmp.Diff(problems, w.state.Problems); diff != "" {
			t.Errorf("%s: problems (- want):\n%s", what, diff)
		}
	}
	fine := []string{"a: running", "b: running"}
	want("two templates", true, fine, nil)
	if n := len(w.state.Rules); n != 7 {
		t.Errorf("%d rules, want those of the built-in kinds, as nobody serves example.com", n)
	}
	before := w.current.Load()
	want("nothing new", false, fine, nil)
	if !w.update(true) || w.current.Load() == before {
		t.Error("other kinds are no news")
	}

	// A circle, in both of its templates, and one that is not valid.
	wrong := testTemplate(t, "wrong", "X", "X", 1)
	put(t, w.templates, testTemplate(t, "b", "B", "A", 2), testTemplate(t, "a", "A", "B", 1), wrong)
	circle := []string{
		"a: cycle true, template forms expansion cycle: a, b", "b: cycle true, template forms expansion cycle: a, b",
		"wrong: cycle false, ExpansionTemplate/wrong: spec.generatedGVK: ExpansionTemplate wrong generates GVK example.com/v1, Kind=X, but also applies to that same GVK",
	}
	want("a circle", true, circle, nil)
	if w.current.Load().Expands(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "A"}) {
		t.Error("a circle is expanded")
	}
	put(t, w.templates, testTemplate(t, "b", "B", "C", 3), testTemplate(t, "a", "A", "B", 1))
	want("no circle", true, fine, nil)

	// Objects of other kinds that have no effect.
	put(t, w.policies, parse(t, "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: odd}, spec: {validations: none}}"))
	w.update(false)
	if p := w.state.Problems; len(p) != 1 || !strings.HasPrefix(p[0], "ValidatingAdmissionPolicy odd has no effect: ") {
		t.Errorf("problems %q", p)
	}
	put(t, w.policies)
	want("none", true, fine, nil)
	w.natives.policies.Note(apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingadmissionpolicies"}, "", errors.New("no")))
	want("a kind that cannot be read", true, fine, []string{
		`MutatingAdmissionPolicy.admissionregistration.k8s.io cannot be read: mutatingadmissionpolicies is forbidden: no`,
	})
}

// What a Deployment creates meets the API server's own policies, then mapd's, then
// validation, as a Pod does.
func TestNativePoliciesOfWorkloads(t *testing.T) {
	w := newTestWorkloads(t)
	const pods = "resources: [pods]"
	native := func(name, value, version string) *unstructured.Unstructured {
		u := testPolicy(t, name, value, "resources: [configmaps]", pods)
		u.SetAPIVersion("admissionregistration.k8s.io/" + version)
		u.SetResourceVersion(value)
		return u
	}
	nativeBinding := func(name string) *unstructured.Unstructured {
		u := testBinding(t, name, name)
		u.SetAPIVersion("admissionregistration.k8s.io/v1")
		return u
	}
	put(t, w.templates)
	put(t, w.policies, parse(t, strings.Replace(testValidation, "EXPRESSION", `has(object.metadata.labels) && object.metadata.labels.both == "2"`, 1)))
	put(t, w.bindings, parse(t, testValidationBinding))
	put(t, w.natives.policies, native("both", "1", "v1"), native("old", "1", "v1beta1"), native("unbound", "1", "v1"))
	put(t, w.natives.bindings, nativeBinding("both"), nativeBinding("old"))
	own := compiler{deps: testDeps(t)}
	deployment := parse(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {selector: {}, template: {spec: {containers: [{name: a, image: b}]}}}}`)
	req, err := policy.NewRequest(w.types, admissionv1.Create, deployment)
	if err != nil {
		t.Fatal(err)
	}
	warned := func() string {
		t.Helper()
		w.update(false)
		w.publish(own.catalogue, w.sources.Sources, nil, nil)
		r := expansion.Reviewer{Expander: w.current.Load}
		status, warnings := r.Validate(t.Context(), req)
		if status != nil {
			t.Errorf("denied: %v", status.Message)
		}
		return strings.Join(warnings, "; ")
	}
	const denied = "mapd: Pod shop/web-pod: ValidatingAdmissionPolicy 'images' with binding 'images' denied request: labels are missing"
	if got, want := warned(), denied+"; mapd: Pod shop/web-pod: changed by both, old"; got != want {
		t.Errorf("warnings %s\nwant %s", got, want)
	}
	// The policy of mapd's group has the name of the other one, and comes after it.
	own.update(byName(testPolicy(t, "both", "2", "resources: [configmaps]", pods)), byName(testBinding(t, "both", "both")))
	if got, want := warned(), "mapd: Pod shop/web-pod: changed by both, old"; got != want {
		t.Errorf("warnings %s\nwant %s", got, want)
	}
	// One that is gone has no effect, and one that does not compile has that of its
	// failurePolicy.
	own = compiler{deps: testDeps(t)}
	broken := native("both", "3", "v1")
	if err := unstructured.SetNestedSlice(broken.Object, []any{map[string]any{"name": "x", "expression": "nothing"}}, "spec", "variables"); err != nil {
		t.Fatal(err)
	}
	put(t, w.natives.policies, broken)
	if got := warned(); !strings.HasPrefix(got, "mapd: Pod shop/web-pod: ") || !strings.Contains(got, "undeclared reference to 'nothing'") {
		t.Errorf("warnings %s", got)
	}
	if got := strings.Join(w.state.Problems, "; "); !strings.HasPrefix(got, "MutatingAdmissionPolicy both cannot run here: ") {
		t.Errorf("problems %s", got)
	}
	// No template makes a denial of it: the API server may be able to run the policy.
	denies := testTemplate(t, "pods", "None", "Pod", 1)
	for field, value := range map[string]any{
		"applyTo":        []any{map[string]any{"groups": []any{"apps"}, "versions": []any{"v1"}, "kinds": []any{"Deployment"}}},
		"templateSource": "spec.template", "enforcementAction": "deny", "generatedGVK": map[string]any{"version": "v1", "kind": "Pod"},
	} {
		denies.Object["spec"].(map[string]any)[field] = value
	}
	put(t, w.templates, denies)
	if got := warned(); !strings.HasPrefix(got, "[Implied by pods] Pod shop/web-pod: ") || !strings.Contains(got, "undeclared reference to 'nothing'") {
		t.Errorf("warnings %s", got)
	}
	put(t, w.templates)
	put(t, w.natives.policies)
	if got := warned(); got != denied {
		t.Errorf("warnings %s\nwant %s", got, denied)
	}
}

// The parameters of native policies are read when a binding names some.
func TestParametersOfWorkloads(t *testing.T) {
	w := newTestWorkloads(t)
	p := testPolicy(t, "p", "1")
	if err := unstructured.SetNestedField(p.Object, map[string]any{"apiVersion": "example.com/v1", "kind": "Values"}, "spec", "paramKind"); err != nil {
		t.Fatal(err)
	}
	put(t, w.natives.policies, p)
	put(t, w.natives.bindings, testBinding(t, "p", "p"))
	w.natives.update()
	if got := w.paramKinds(); len(got) != 0 {
		t.Errorf("without parameters: %v", got)
	}
	b := testBinding(t, "p", "p")
	b.SetResourceVersion("2")
	if err := unstructured.SetNestedField(b.Object, map[string]any{"name": "values", "parameterNotFoundAction": "Deny"}, "spec", "paramRef"); err != nil {
		t.Fatal(err)
	}
	put(t, w.natives.bindings, b)
	w.natives.update()
	if got := w.paramKinds(); len(got) != 1 || got[0].Kind != "Values" {
		t.Errorf("kinds %v", got)
	}
}
