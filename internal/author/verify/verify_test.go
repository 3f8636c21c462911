package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// documents are the objects of a stream.
func documents(t testing.TB, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for d, err := range manifest.ReadStream("test", strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Object != nil {
			out = append(out, d.Object)
		}
	}
	return out
}

func mutators(t testing.TB, text string) []*legacy.Mutator {
	t.Helper()
	var out []*legacy.Mutator
	for _, u := range documents(t, text) {
		m, err := legacy.Decode(u)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// unit is a policy and its binding, written by hand, for mutators.
func unit(t testing.TB, text string, verdict translate.Verdict, ms ...*legacy.Mutator) translate.Unit {
	t.Helper()
	docs := documents(t, text)
	p, err := policy.Decode(docs[0])
	if err != nil {
		t.Fatal(err)
	}
	b, err := binding.Decode(docs[1])
	if err != nil {
		t.Fatal(err)
	}
	u := translate.Unit{Name: p.Name, Mutators: ms, Policy: p, Binding: b}
	for _, m := range ms {
		u.Verdicts = append(u.Verdicts, translate.MutatorVerdict{ID: m.ID(), Verdict: verdict})
	}
	return u
}

const alwaysPull = `
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: always-pull}
spec:
  applyTo:
  - {groups: [""], versions: [v1], kinds: [Pod]}
  match:
    excludedNamespaces: [kube-*]
  location: "spec.containers[name: *].imagePullPolicy"
  parameters:
    assign: {value: Always}
`

// nativePull is alwaysPull with places for faults.
func nativePull(operation, path, value, excluded string) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: always-pull}
spec:
  matchConstraints:
    matchPolicy: Exact
    namespaceSelector:
      matchExpressions:
      - {key: admission.gatekeeper.sh/ignore, operator: DoesNotExist}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
  matchConditions:
  - name: excluded
    expression: '!request.namespace.startsWith(%q)'
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: |-
        has(object.spec.containers)
          ? object.spec.containers.transformList(i, c,
              JSONPatch{op: %q, path: "/spec/containers/" + string(i) + %q, value: %q})
          : []
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: always-pull}
spec: {policyName: always-pull}
`, excluded, operation, path, value)
}

var faithful = nativePull("add", "/imagePullPolicy", "Always", "kube-")

func types() *openapi.Types { return openapi.New(openapi.Builtin()) }

// compared runs n generated objects.
func compared(t *testing.T, ms []*legacy.Mutator, units []translate.Unit, n int) []Comparison {
	t.Helper()
	v := New(ms, units, Options{})
	v.CheckGenerated(t.Context(), DefaultSeed, n)
	return v.Comparisons()
}

func TestFaithful(t *testing.T) {
	ms := mutators(t, alwaysPull)
	for _, c := range compared(t, ms, []translate.Unit{unit(t, faithful, translate.Exact, ms[0])}, 400) {
		if c.First != nil || c.Invalid != "" {
			t.Errorf("%s: %+v\n%s", c.Name, c, c.First.text())
		}
		if c.Objects+c.NotAllowed != 400 || c.Changed < 100 {
			t.Errorf("%s: %d compared, %d of them changed, %d not allowed, of 400", c.Name, c.Objects, c.Changed, c.NotAllowed)
		}
	}
}

// text is for failures of tests.
func (d *Disagreement) text() string {
	if d == nil {
		return ""
	}
	return fmt.Sprintf("%s %s of\n%s\nGatekeeper: %s\n%s\nnative: %s\n%s", d.Origin, d.Operation, manifest.Encode(d.Object),
		d.Reference.Refused, manifest.Encode(d.Reference.Object), d.Native.Refused, manifest.Encode(d.Native.Object))
}

// What verify is for: a translation that is wrong, even in one thing, is found, and
// shown with nothing but what shows it.
func TestPlantedFaults(t *testing.T) {
	hammer.Alone(t)
	pod := func(containers ...any) map[string]any {
		// As a server holds it: with what the Go type always has.
		return map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "any", "namespace": "any"},
			"spec": map[string]any{"containers": containers}, "status": map[string]any{},
		}
	}
	nothing := pod() // fails, unless the namespace is excluded
	nothing["spec"] = map[string]any{"containers": nil}
	container := map[string]any{"name": "", "resources": map[string]any{}}
	tests := map[string]struct {
		native string
		object map[string]any // apart from names
	}{
		"another value":                     {nativePull("add", "/imagePullPolicy", "Never", "kube-"), pod(container)},
		"test for add":                      {nativePull("test", "/imagePullPolicy", "Always", "kube-"), pod(container)},
		"another field":                     {nativePull("add", "/image", "Always", "kube-"), pod(container)},
		"an exclusion too wide":             {nativePull("add", "/imagePullPolicy", "Always", "k"), pod(container)},
		"an exclusion too narrow":           {nativePull("add", "/imagePullPolicy", "Always", "kube-s"), nothing},
		"updates are left out":              {strings.Replace(faithful, "operations: [CREATE, UPDATE]", "operations: [CREATE]", 1), pod(container)},
		"creations are left out":            {strings.Replace(faithful, "operations: [CREATE, UPDATE]", "operations: [UPDATE]", 1), pod(container)},
		"init containers":                   {strings.ReplaceAll(strings.ReplaceAll(faithful, "object.spec.containers", "object.spec.initContainers"), "/spec/containers/", "/spec/initContainers/"), pod(container)},
		"only the first container":          {strings.Replace(faithful, "JSONPatch{", "i > 0 ? JSONPatch{op: \"test\", path: \"/kind\", value: \"Pod\"} : JSONPatch{", 1), pod(container, container)},
		"namespaces that ask to be ignored": {strings.Replace(faithful, "key: admission.gatekeeper.sh/ignore, operator: DoesNotExist", "key: x, operator: DoesNotExist", 1), pod(container)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ms := mutators(t, alwaysPull)
			c := compared(t, ms, []translate.Unit{unit(t, tt.native, translate.Exact, ms[0])}, 500)[0]
			if c.First == nil || !c.Unexpected() {
				t.Fatalf("not found in %d objects", c.Objects)
			}
			got := (&unstructured.Unstructured{Object: c.First.Object}).DeepCopy()
			got.SetName("any")
			got.SetNamespace("any")
			if d := cmp.Diff(tt.object, got.Object); d != "" {
				t.Errorf("not minimal, -want +got:\n%s", d)
			}
			if (&request{}).same(c.First.Reference, c.First.Native) {
				t.Errorf("both sides make the same of it:\n%s", c.First.text())
			}
		})
	}
}

// A policy that no server would take is a difference, not an agreement.
func TestInvalidPolicy(t *testing.T) {
	ms := mutators(t, alwaysPull)
	u := unit(t, strings.Replace(faithful, "transformList(i, c,", "transformList(i c,", 1), translate.Exact, ms[0])
	c := compared(t, ms, []translate.Unit{u}, 10)[0]
	if c.Objects != 0 || !strings.Contains(c.Invalid, `policy "always-pull"`) || !c.Unexpected() {
		t.Errorf("got %+v", c)
	}
}

// A disagreement of a mutator that is known to differ is expected, and does not
// hide those of the others.
func TestKnown(t *testing.T) {
	ms := mutators(t, alwaysPull+"---"+strings.Replace(alwaysPull, "always-pull", "b", 1)+"---"+strings.Replace(alwaysPull, "always-pull", "c", 1))
	named := func(name, text string) string { return strings.ReplaceAll(text, "name: always-pull", "name: "+name) }
	wrong := strings.ReplaceAll(named("b", nativePull("add", "/image", "Always", "kube-")), "policyName: always-pull", "policyName: b")
	third := strings.ReplaceAll(named("c", faithful), "policyName: always-pull", "policyName: c")
	units := []translate.Unit{
		unit(t, faithful, translate.Exact, ms[0]),
		unit(t, wrong, translate.Differs, ms[1]),
		unit(t, third, translate.Exact, ms[2]),
	}
	want := []struct {
		name           string
		known, differs bool
	}{
		{"Assign/always-pull", false, false},
		{"Assign/b", true, true},
		{"Assign/c", false, false},
		{"all 3 policies together", true, true},
		{"the 2 policies that are exact together", false, false},
	}
	got := compared(t, ms, units, 60)
	if len(got) != len(want) {
		t.Fatalf("got %d comparisons, want %d", len(got), len(want))
	}
	for i, c := range got {
		if c.Name != want[i].name || c.Known != want[i].known || (c.First != nil) != want[i].differs || c.Unexpected() {
			t.Errorf("got %+v, want %+v", c, want[i])
		}
	}
}

// What a built-in kind does not allow never reaches a policy.
func TestNotAllowed(t *testing.T) {
	ms := mutators(t, alwaysPull)
	v := New(ms, []translate.Unit{unit(t, faithful, translate.Exact, ms[0])}, Options{})
	for _, text := range []string{
		`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: "none"}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {unheard: of}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: a, labels: [none]}}`,
	} {
		v.Check(t.Context(), Object{Object: documents(t, text)[0].Object})
	}
	if c := v.Comparisons()[0]; c.NotAllowed != 3 || c.Objects != 0 {
		t.Errorf("got %+v", c)
	}
}

// An object without an operation is created and updated.
func TestBothOperations(t *testing.T) {
	ms := mutators(t, alwaysPull)
	v := New(ms, []translate.Unit{unit(t, strings.Replace(faithful, "operations: [CREATE, UPDATE]", "operations: [CREATE]", 1), translate.Exact, ms[0])}, Options{})
	v.Check(t.Context(), Object{Object: documents(t, `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}`)[0].Object, Origin: "here"})
	c := v.Comparisons()[0]
	if c.Objects != 1 || c.First == nil || c.First.Operation != "UPDATE" || c.First.Origin != "here" {
		t.Errorf("got %+v", c)
	}
}

// A ConfigMap with another value than the recorded one is found out, with who asked.
func TestRecorded(t *testing.T) {
	ms := mutators(t, `
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: who}
spec:
  match: {kinds: [{apiGroups: [""], kinds: [Pod]}]}
  location: metadata.labels.who
  parameters:
    assign:
      externalData: {provider: people, dataSource: Username, failurePolicy: Ignore}
`)
	o := Options{Answers: people{"alice": "a", "bob": "b"}, Keys: map[string][]string{"people": {"alice", "bob"}}}
	units := translate.Native(ms, translate.Options{Params: true, Recorded: translate.Recorded{"people": {"alice": "a", "bob": "b"}}})
	v := New(ms, units, o)
	v.CheckGenerated(t.Context(), DefaultSeed, 100)
	if c := v.Comparisons()[0]; c.Unexpected() || c.Changed < 10 {
		t.Errorf("got %+v", c)
	}
	units[0].Params.Object["data"].(map[string]any)["bob"] = "c"
	v = New(ms, units, o)
	v.CheckGenerated(t.Context(), DefaultSeed, 100)
	if c := v.Comparisons()[0]; !c.Unexpected() || c.First.User != "bob" {
		t.Errorf("got %+v", c)
	}
}

// people answer for users.
type people map[string]string

func (p people) Resolve(_ context.Context, questions []engine.Question, _ bool) []engine.Answer {
	out := make([]engine.Answer, len(questions))
	for i, q := range questions {
		if name, ok := p[q.Key]; ok {
			out[i].Value = name
		} else {
			out[i].Err = errors.New("nobody")
		}
	}
	return out
}

// What a webhook adds and the kind does not know is dropped without a word; a
// policy is refused.
func TestUnknownField(t *testing.T) {
	ms := mutators(t, `
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: unheard}
spec:
  applyTo:
  - {groups: [""], versions: [v1], kinds: [Pod]}
  location: spec.unheard
  parameters:
    assign: {value: of}
`)
	r := newMutatorSide(ms, ms, nil, nil)
	req := requests(types(), Object{Operation: create, Object: documents(t, `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}`)[0].Object})[0]
	if got := r.run(t.Context(), req); got.Refused != "" || !equalJSON(got.Object, req.object) {
		t.Errorf("got %+v", got)
	}
}

func TestSecretsAreConcealed(t *testing.T) {
	d := &Disagreement{
		Object: documents(t, `
apiVersion: v1
kind: Secret
metadata: {name: a, annotations: {kubectl.kubernetes.io/last-applied-configuration: top secret}}
data: {a: aHVzaA==, b: c2ho}
stringData: {c: hush}`)[0].Object,
		Reference: Result{Refused: "because it says hush"},
		Native:    Result{Object: documents(t, `{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: aHVzaA==, b: bmV3}}`)[0].Object},
	}
	conceal(d)
	text := d.text()
	for _, word := range []string{"hush", "aHVzaA", "c2ho", "bmV3", "top secret"} {
		if strings.Contains(text, word) {
			t.Errorf("%s is told:\n%s", word, text)
		}
	}
	a, _, _ := unstructured.NestedStringMap(d.Object, "data")
	b, _, _ := unstructured.NestedStringMap(d.Native.Object, "data")
	if a["a"] != b["a"] || a["b"] == b["b"] {
		t.Errorf("equal values are told apart, or different ones are not: %v, %v", a, b)
	}
}

// Of a difference that depends on what a Secret holds, the Secret is shown without.
func TestSecretIsShownWithoutContents(t *testing.T) {
	ms := mutators(t, `
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: owner}
spec:
  match: {kinds: [{apiGroups: [""], kinds: [Secret]}]}
  location: metadata.labels.owner
  parameters: {assign: {value: shop}}
`)
	u := unit(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: owner}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [secrets]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: |-
        Object{metadata: Object.metadata{labels: {"owner": "password" in object.data ? "other" : "shop"}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: owner}
spec: {policyName: owner}
`, translate.Exact, ms...)
	v := New(ms, []translate.Unit{u}, Options{})
	v.Check(t.Context(), Object{Object: documents(t, `
apiVersion: v1
kind: Secret
metadata: {name: a, namespace: default, annotations: {note: keep out}}
data: {password: aHVzaA==, other: c2ho}
`)[0].Object})
	d := v.Comparisons()[0].First
	if d == nil {
		t.Fatalf("no difference is found: %+v", v.Comparisons()[0])
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a", "namespace": "default"},
		"data": map[string]any{"password": "(hidden) 1"},
	}
	if d := cmp.Diff(want, d.Object); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if text := d.text(); strings.Contains(text, "aHVzaA") || strings.Contains(text, "hush") {
		t.Errorf("what the Secret holds is told:\n%s", text)
	}
}

func TestReduce(t *testing.T) {
	in := documents(t, `{a: {b: [1, {c: 2, d: 3}, 4], e: 5}, f: {g: {}}, apiVersion: v1, kind: X, metadata: {name: m, labels: {x: z}}}`)[0].Object
	got := reduce(in, essential, func(m map[string]any) bool {
		a, _ := m["a"].(map[string]any)
		l, _ := a["b"].([]any)
		for _, e := range l {
			if o, ok := e.(map[string]any); ok && o["d"] != nil {
				return true
			}
		}
		return false
	})
	want := map[string]any{"apiVersion": "v1", "kind": "X", "metadata": map[string]any{"name": "m"}, "a": map[string]any{"b": []any{map[string]any{"d": int64(3)}}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// Where a policy takes for granted that keys are unique, objects in which they are
// not are refused in the end: not by a policy that would mend them.
func TestUnique(t *testing.T) {
	path, err := legacy.ParsePath("spec.containers[name: *]")
	if err != nil {
		t.Fatal(err)
	}
	p := &part{unique: []legacy.Path{path}}
	pod := func(names string) map[string]any {
		return documents(t, `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [`+names+`]}}`)[0].Object
	}
	req := &request{}
	twice, once := p.afterValidation(req, Result{Object: pod("{name: a}, {name: b}, {name: a}")}), p.afterValidation(req, Result{Object: pod("{name: a}, {name: b}")})
	if twice.Refused == "" || once.Refused != "" || (&request{}).same(twice, once) {
		t.Errorf("got %+v and %+v", twice, once)
	}
	path, err = legacy.ParsePath("spec.containers[name: *].env[name: *]")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"{env: [{name: x}]}, {env: [{name: x}]}": false,
		"{}, {env: [{name: x}, {name: x}]}":      true,
		"{env: [{}, {}]}":                        true,
		"{env: none}":                            false,
		"none":                                   false,
	} {
		if got := repeats(pod(text), path); got != want {
			t.Errorf("repeats(%s) = %v", text, got)
		}
	}
}

// What is stored in the same way is the same: of a built-in kind, a list that is
// empty and one that is not there. Not so an empty object, and not in kinds of which
// the JSON is stored.
func TestSame(t *testing.T) {
	result := func(text string) Result { return Result{Object: documents(t, text)[0].Object} }
	none := result(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: null}}`)
	emptyList := result(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}`)
	emptyObject := result(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: null, securityContext: {}}}`)
	pod, _ := types().Kind(none.object().GroupVersionKind())
	builtin, custom := &request{kind: pod}, &request{}
	if !builtin.same(none, emptyList) || builtin.same(none, emptyObject) || custom.same(none, emptyList) {
		t.Errorf("got %v, %v, %v", builtin.same(none, emptyList), builtin.same(none, emptyObject), custom.same(none, emptyList))
	}
	if a, b := (Result{Refused: "a"}), (Result{Refused: "b"}); !custom.same(a, b) || custom.same(a, none) {
		t.Error("a refusal is one, for whatever reason")
	}
}

func (r Result) object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: r.Object}
}

// Mutators that share a policy are compared together and, by a policy of its own,
// each alone.
func TestAlone(t *testing.T) {
	ms := mutators(t, alwaysPull+"---"+strings.Replace(alwaysPull, "always-pull", "again", 1))
	shared := unit(t, faithful, translate.Exact, ms...)
	asked := []string{}
	v := New(ms, []translate.Unit{shared}, Options{Alone: func(m *legacy.Mutator) []translate.Unit {
		asked = append(asked, m.ID())
		return []translate.Unit{unit(t, faithful, translate.Exact, m)}
	}})
	v.CheckGenerated(t.Context(), DefaultSeed, 20)
	var names []string
	for _, c := range v.Comparisons() {
		names = append(names, c.Name)
		if c.First != nil || c.Invalid != "" || c.Objects == 0 {
			t.Errorf("got %+v\n%s", c, c.First.text())
		}
	}
	want := []string{"Assign/always-pull", "Assign/again", "always-pull with its 2 mutators"}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if d := cmp.Diff(want[:2], asked); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// What Gatekeeper's Config excludes, the reference leaves alone.
func TestConfig(t *testing.T) {
	ms := mutators(t, alwaysPull)
	pod := documents(t, `{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: team-a}, spec: {containers: [{name: c}]}}`)[0].Object
	for process, differs := range map[string]bool{api.GatekeeperProcess: true, "*": true, "audit": false} {
		c := &legacy.Config{Match: []legacy.ConfigMatch{{ExcludedNamespaces: []string{"team-*"}, Processes: []string{process}}}}
		v := New(ms, []translate.Unit{unit(t, faithful, translate.Exact, ms[0])}, Options{Config: c})
		v.Check(t.Context(), Object{Object: pod})
		if got := v.Comparisons()[0].First != nil; got != differs {
			t.Errorf("process %s: a difference is %v, want %v", process, got, differs)
		}
	}
}

// Where a policy takes for granted that a Pod has a container, one without is refused in
// the end; a list that is not there, and one of a custom kind, is nobody's concern.
func TestFilled(t *testing.T) {
	path, err := legacy.ParsePath("spec.containers")
	if err != nil {
		t.Fatal(err)
	}
	builtin, err := openapi.New(openapi.Builtin()).Kind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if err != nil {
		t.Fatal(err)
	}
	p := &part{filled: []legacy.Path{path}}
	for text, want := range map[string]bool{
		"{containers: []}":          true,
		"{containers: null}":        true,
		"{containers: [{name: a}]}": false,
		"{containers: none}":        false,
		"{}":                        false,
		"none":                      false,
	} {
		obj := documents(t, `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: `+text+`}`)[0].Object
		if got := p.afterValidation(&request{kind: builtin}, Result{Object: obj}); (got.Refused != "") != want {
			t.Errorf("%s: refused %q, want %v", text, got.Refused, want)
		}
		if got := p.afterValidation(&request{}, Result{Object: obj}); got.Refused != "" {
			t.Errorf("%s of an unknown kind: refused %q", text, got.Refused)
		}
	}
}
