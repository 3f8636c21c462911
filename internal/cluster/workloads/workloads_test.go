package workloads

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/policy"
)

// newTestFeature is one of a server that has all kinds, which nobody reads.
func newTestFeature(t testing.TB) *Feature {
	t.Helper()
	w := New()
	w.Start(featuretest.Deps(t))
	w.templates.SetServed(true)
	w.natives.Policies.SetServed(true)
	w.natives.Bindings.SetServed(true)
	return w
}

const marking = `
apiVersion: GROUP/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME, uid: NAME}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - {patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"NAME": "VALUE"}}}'}}
`

// testPolicy labels Pods with its name.
func testPolicy(t testing.TB, group, name, value string) *unstructured.Unstructured {
	t.Helper()
	return featuretest.Parse(t, strings.NewReplacer("GROUP", group, "NAME", name, "VALUE", value).Replace(marking))
}

func testBinding(t testing.TB, group, name string) *unstructured.Unstructured {
	t.Helper()
	return featuretest.Parse(t, fmt.Sprintf("{apiVersion: %s/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: %s, uid: %s}, spec: {policyName: %[2]s}}", group, name, name))
}

// testTemplate expands kinds of example.com by spec.
func testTemplate(t testing.TB, name, from, to string, generation int64) *unstructured.Unstructured {
	t.Helper()
	u := featuretest.Parse(t, fmt.Sprintf(`
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
func templateStates(s *State) []string {
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

func TestUpdate(t *testing.T) {
	w := newTestFeature(t)
	if w.Update(t.Context(), false) || w.Ready() == nil || w.current.Load() != nil {
		t.Fatal("there is something before anything has been read")
	}
	featuretest.Put(t, w.templates, testTemplate(t, "b", "B", "C", 1), testTemplate(t, "a", "A", "B", 1))
	featuretest.Put(t, w.policies)
	featuretest.Put(t, w.bindings)
	featuretest.Put(t, w.natives.Policies)
	if w.Update(t.Context(), false) {
		t.Fatal("there is something before the bindings of native policies have been read")
	}
	featuretest.Put(t, w.natives.Bindings)
	want := func(what string, news bool, states, problems []string) {
		t.Helper()
		if got := w.Update(t.Context(), false); got != news || w.Ready() != nil {
			t.Fatalf("%s: news %t, ready: %v", what, got, w.Ready())
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
	if !w.Update(t.Context(), true) || w.current.Load() == before {
		t.Error("other kinds are no news")
	}

	// A circle, in both of its templates, and one that is not valid.
	wrong := testTemplate(t, "wrong", "X", "X", 1)
	featuretest.Put(t, w.templates, testTemplate(t, "b", "B", "A", 2), testTemplate(t, "a", "A", "B", 1), wrong)
	circle := []string{
		"a: cycle true, template forms expansion cycle: a, b", "b: cycle true, template forms expansion cycle: a, b",
		"wrong: cycle false, ExpansionTemplate/wrong: spec.generatedGVK: ExpansionTemplate wrong generates GVK example.com/v1, Kind=X, but also applies to that same GVK",
	}
	want("a circle", true, circle, nil)
	if w.current.Load().Expands(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "A"}) {
		t.Error("a circle is expanded")
	}
	featuretest.Put(t, w.templates, testTemplate(t, "b", "B", "C", 3), testTemplate(t, "a", "A", "B", 1))
	want("no circle", true, fine, nil)

	// Objects of other kinds that have no effect.
	featuretest.Put(t, w.policies, featuretest.Parse(t, "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: odd}, spec: {validations: none}}"))
	w.Update(t.Context(), false)
	if p := w.state.Problems; len(p) != 1 || !strings.HasPrefix(p[0], "ValidatingAdmissionPolicy odd has no effect: ") {
		t.Errorf("problems %q", p)
	}
	featuretest.Put(t, w.policies)
	want("none", true, fine, nil)
	w.natives.Policies.Note(apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingadmissionpolicies"}, "", errors.New("no")))
	want("a kind that cannot be read", true, fine, []string{
		`MutatingAdmissionPolicy.admissionregistration.k8s.io cannot be read: mutatingadmissionpolicies is forbidden: no`,
	})
}

// stageOf runs a policy of mapd's group, if there is one.
func stageOf(t testing.TB, w *Feature, own *unstructured.Unstructured) engine.Stage {
	t.Helper()
	var policies []*policy.Policy
	var bindings []*binding.Binding
	if own != nil {
		for _, u := range []*unstructured.Unstructured{own, testBinding(t, api.OwnGroup, own.GetName())} {
			text, err := u.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if u == own {
				p := compile.NewPolicy(t.Context(), text, compile.Stored, featuretest.Deps(t).Policy)
				if p.Err != nil {
					t.Fatal(p.Err)
				}
				policies = append(policies, p.Program)
				continue
			}
			b := compile.NewBinding(text, compile.Stored)
			if b.Err != nil {
				t.Fatal(b.Err)
			}
			bindings = append(bindings, b.Program)
		}
	}
	index, err := binding.NewIndex(policies, bindings, w.sources.Sources)
	if err != nil {
		t.Fatal(err)
	}
	return engine.Policies(index)
}

// What a Deployment creates meets the API server's own policies, then mapd's, then
// validation, as a Pod does.
func TestNativePoliciesOfWorkloads(t *testing.T) {
	w := newTestFeature(t)
	native := func(name, value, version string) *unstructured.Unstructured {
		u := testPolicy(t, api.NativeGroup, name, value)
		u.SetAPIVersion(api.NativeGroup + "/" + version)
		u.SetResourceVersion(value)
		return u
	}
	nativeBinding := func(name string) *unstructured.Unstructured { return testBinding(t, api.NativeGroup, name) }
	featuretest.Put(t, w.templates)
	featuretest.Put(t, w.policies, featuretest.Parse(t, strings.Replace(testValidation, "EXPRESSION", `has(object.metadata.labels) && object.metadata.labels.both == "2"`, 1)))
	featuretest.Put(t, w.bindings, featuretest.Parse(t, testValidationBinding))
	featuretest.Put(t, w.natives.Policies, native("both", "1", "v1"), native("old", "1", "v1beta1"), native("unbound", "1", "v1"))
	featuretest.Put(t, w.natives.Bindings, nativeBinding("both"), nativeBinding("old"))
	var own *unstructured.Unstructured // a policy of mapd's group
	deployment := featuretest.Parse(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {selector: {}, template: {spec: {containers: [{name: a, image: b}]}}}}`)
	req, err := policy.NewRequest(w.types, admissionv1.Create, deployment)
	if err != nil {
		t.Fatal(err)
	}
	warned := func() string {
		t.Helper()
		w.Update(t.Context(), false)
		w.Published(stageOf(t, w, own), nil)
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
	own = testPolicy(t, api.OwnGroup, "both", "2")
	if got, want := warned(), "mapd: Pod shop/web-pod: changed by both, old"; got != want {
		t.Errorf("warnings %s\nwant %s", got, want)
	}
	// One that is gone has no effect, and one that does not compile has that of its
	// failurePolicy.
	own = nil
	broken := native("both", "3", "v1")
	if err := unstructured.SetNestedSlice(broken.Object, []any{map[string]any{"name": "x", "expression": "nothing"}}, "spec", "variables"); err != nil {
		t.Fatal(err)
	}
	featuretest.Put(t, w.natives.Policies, broken)
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
	featuretest.Put(t, w.templates, denies)
	if got := warned(); !strings.HasPrefix(got, "[Implied by pods] Pod shop/web-pod: ") || !strings.Contains(got, "undeclared reference to 'nothing'") {
		t.Errorf("warnings %s", got)
	}
	featuretest.Put(t, w.templates)
	featuretest.Put(t, w.natives.Policies)
	if got := warned(); got != denied {
		t.Errorf("warnings %s\nwant %s", got, denied)
	}
}

// The parameters of native policies are read when a binding names some.
func TestParametersOfWorkloads(t *testing.T) {
	w := newTestFeature(t)
	p := testPolicy(t, api.NativeGroup, "p", "1")
	if err := unstructured.SetNestedField(p.Object, map[string]any{"apiVersion": "example.com/v1", "kind": "Values"}, "spec", "paramKind"); err != nil {
		t.Fatal(err)
	}
	featuretest.Put(t, w.natives.Policies, p)
	featuretest.Put(t, w.natives.Bindings, testBinding(t, api.NativeGroup, "p"))
	w.natives.Update()
	if got := w.ParamKinds(); len(got) != 0 {
		t.Errorf("without parameters: %v", got)
	}
	b := testBinding(t, api.NativeGroup, "p")
	b.SetResourceVersion("2")
	if err := unstructured.SetNestedField(b.Object, map[string]any{"name": "values", "parameterNotFoundAction": "Deny"}, "spec", "paramRef"); err != nil {
		t.Fatal(err)
	}
	featuretest.Put(t, w.natives.Bindings, b)
	w.natives.Update()
	if got := w.ParamKinds(); len(got) != 1 || got[0].Kind != "Values" {
		t.Errorf("kinds %v", got)
	}
}

// refusing refuses every object.
type refusing struct{}

func (refusing) Run(context.Context, *engine.Admission) (engine.Result, bool) {
	return engine.Result{Status: &metav1.Status{Message: "not here"}}, true
}

// The objects that workloads create meet what other features run, unless that is only
// observed.
func TestOtherFeatures(t *testing.T) {
	for _, mode := range []api.Mode{api.Enforce, api.Shadow} {
		w := newTestFeature(t)
		req, err := policy.NewRequest(w.types, admissionv1.Create, featuretest.Parse(t, "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}"))
		if err != nil {
			t.Fatal(err)
		}
		w.Published(stageOf(t, w, nil), []engine.Stage{{Name: "toys", Member: "toy", Round: "round", Rounds: "rounds", Mode: mode, Runner: refusing{}}})
		if d := w.engine.Admit(t.Context(), req); (d.Status != nil) != (mode == api.Enforce) {
			t.Errorf("%v: refused %t", mode, d.Status != nil)
		}
	}
}

// Templates that do nothing are listed with the reason, and with what else is wrong.
func TestListing(t *testing.T) {
	named := func(name string, err error, cycle bool) TemplateState {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "expansion.gatekeeper.sh/v1beta1", "kind": "ExpansionTemplate"}}
		u.SetName(name)
		return TemplateState{Object: u, Err: err, Cycle: cycle}
	}
	circle := errors.New(expand.ErrCycle + ": a, long-name")
	l := (&State{
		Templates: []TemplateState{named("a", circle, true), named("apps", nil, false), named("long-name", circle, true), named("wrong", errors.New("is\nwrong"), false)},
		Problems:  []string{"ValidatingAdmissionPolicy p has no effect: x"},
	}).Listing()
	data := l.Data()
	delete(data, feature.KeyReport)
	want := map[string]string{
		"summary": "4 templates: 1 running, 2 cycle, 1 refused",
		"templates": `a          cycle    template forms expansion cycle: a, long-name
apps       running
long-name  cycle    template forms expansion cycle: a, long-name
wrong      refused  is wrong
`,
		"problems": "ValidatingAdmissionPolicy p has no effect: x\n",
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("data (- want):\n%s", diff)
	}
	var bad []string
	for _, l := range l.Lines {
		if l.Reason != "" {
			bad = append(bad, l.ID)
		}
	}
	if diff := cmp.Diff([]string{"a", "long-name", "wrong"}, bad); diff != "" {
		t.Errorf("events about (- want):\n%s", diff)
	}
}
