package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/openapi"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func podKeys(t *testing.T) Keys {
	t.Helper()
	kind, err := openapi.New(openapi.Builtin()).Kind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if err != nil {
		t.Fatal(err)
	}
	return SchemaKeys(kind)
}

func TestDiff(t *testing.T) {
	const before = `
metadata: {name: p, labels: {a: "1", b: "2"}, finalizers: [x]}
spec:
  priority: 5
  containers:
  - {name: app, image: nginx, args: [a], ports: [{containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: UDP, name: dns}]}
  - {name: old, image: gone}
  - {name: log, image: fluent}
  tolerations: [{key: a, operator: Exists}, {operator: Exists}]
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
`
	const after = `
metadata: {name: p, labels: {a: "1", app.kubernetes.io/name: web}, finalizers: [x, z], annotations: {num: "5", t: hello world}}
spec:
  containers:
  - {name: log, image: fluent}
  - {name: app, image: mirror/nginx, args: [a, b], ports: [{containerPort: 80, protocol: TCP, name: http}, {containerPort: 80, protocol: UDP, name: dns}]}
  - {name: new, image: "a: b", command: ["sh", "-c", "x\ny"]}
  tolerations: [{key: b, operator: Exists}, {operator: Exists}]
  initContainers: [{name: i, image: init}]
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
`
	const want = `Pod p
+ metadata.annotations.num: "5"
+ metadata.annotations.t: hello world
~ metadata.finalizers: ["x"] → ["x","z"]
+ metadata.labels[app.kubernetes.io/name]: web
- metadata.labels.b: "2"
- spec.containers[name=old]:
-     image: gone
-     name: old
~ spec.containers[name=app].args: ["a"] → ["a","b"]
~ spec.containers[name=app].image: nginx → mirror/nginx
+ spec.containers[name=app].ports[containerPort=80,protocol=TCP].name: http
+ spec.containers[name=new]:
+     command:
+     - sh
+     - -c
+     - |-
+       x
+       y
+     image: 'a: b'
+     name: new
~ spec.containers: order [name=app, name=log] → [name=log, name=app]
+ spec.initContainers[name=i]:
+     image: init
+     name: i
- spec.priority: 5
~ spec.tolerations[0].key: a → b
~ spec.topologySpreadConstraints[topologyKey=zone].maxSkew: 1 → 2
`
	var b strings.Builder
	changes := Diff(object(t, before), object(t, after), podKeys(t))
	if err := WriteDiff(&b, "Pod p", changes, false); err != nil {
		t.Fatal(err)
	}
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}

	// Colour only adds escape sequences.
	var c strings.Builder
	if err := WriteDiff(&c, "Pod p", changes, true); err != nil {
		t.Fatal(err)
	}
	plain := c.String()
	for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"} {
		if !strings.Contains(plain, code) {
			t.Errorf("no %q", code)
		}
		plain = strings.ReplaceAll(plain, code, "")
	}
	if plain != want {
		t.Errorf("without colour it is\n%s", plain)
	}
}

// Lists without keys.
func TestDiffOfLists(t *testing.T) {
	for _, tt := range []struct{ name, before, after, want string }{
		{"one appended", "l: [{a: 1}]", "l: [{a: 1}, {b: [x]}]", "+ l[1]:\n+     b:\n+     - x\n"},
		{"one before", "l: [{a: 1}]", "l: [{b: 1}, {a: 1}]", "+ l[0]:\n+     b: 1\n"},
		{"two of equals", "l: [{a: 1}]", "l: [{a: 1}, {a: 1}, {a: 1}]", "+ l[1]:\n+     a: 1\n+ l[2]:\n+     a: 1\n"},
		{"one gone", "l: [{a: 1}, {b: 1}, {c: 1}]", "l: [{a: 1}, {c: 1}]", "- l[1]:\n-     b: 1\n"},
		{"one changed", "l: [{a: 1}, {b: 1}]", "l: [{a: 1}, {b: 2}]", "~ l[1].b: 1 → 2\n"},
		{"one changed and one more", "l: [{a: 1}]", "l: [{a: 2}, {b: 1}]", `~ l: [{"a":1}] → [{"a":2},{"b":1}]` + "\n"},
		{"all new", "x: {y: 1}", "x: {y: 1, l: [{a: 1}]}", "+ x.l:\n+     - a: 1\n"},
		{"scalars", "l: [a, b]", "l: [a]", `~ l: ["a","b"] → ["a"]` + "\n"},
		{"empty", "l: [a]", "l: []", `~ l: ["a"] → []` + "\n"},
	} {
		var b strings.Builder
		if err := WriteDiff(&b, "X", Diff(object(t, tt.before), object(t, tt.after), nil), false); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimPrefix(b.String(), "X\n"); got != tt.want {
			t.Errorf("%s:\n%swant:\n%s", tt.name, got, tt.want)
		}
	}
}

func TestDiffOfNothing(t *testing.T) {
	if got := Diff(object(t, "a: [1, {b: c}]"), object(t, "a: [1, {b: c}]"), nil); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestSummary(t *testing.T) {
	u := func(text string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: object(t, text)}
	}
	before, after := u("{kind: Pod, spec: {containers: [{name: a}]}}"), u("{kind: Pod, spec: {containers: [{name: a, image: x}]}}")
	jp, ac := admissionregistrationv1.PatchTypeJSONPatch, admissionregistrationv1.PatchTypeApplyConfiguration
	steps := []engine.Step{
		{Stage: "policies", Round: 1, Policy: "p", Binding: "b", Param: "ns/c", Mutation: 0, Type: jp, Outcome: engine.Changed, Before: before, After: after},
		{Stage: "policies", Round: 1, Policy: "p", Binding: "b", Mutation: 1, Type: ac, Outcome: engine.Unchanged, Before: after, After: after},
		{Stage: "policies", Round: 1, Policy: "q", Binding: "b", Mutation: -1, Outcome: engine.Skipped, Reason: "because"},
		{Stage: "policies", Round: 1, Policy: "r", Mutation: -1, Outcome: engine.Failed, Err: errors.New("bad"), Ignored: true},
		{Stage: "policies", Round: 2, Policy: "p", Binding: "b", Mutation: 1, Type: ac, Outcome: engine.Unchanged, Before: after, After: after},
		{Stage: "policies", Round: 2, Policy: "s", Binding: "b", Mutation: 0, Type: jp, Outcome: engine.Failed, Err: errors.New("worse")},
	}
	const lines = `
  p › b › ns/c › mutations[0] JSONPatch: spec.containers[name=a].image
  p › b › mutations[1] ApplyConfiguration: no change
  q › b: skipped: because
  r: error, ignored (failurePolicy): bad
  s › b › mutations[0] JSONPatch (round 2): error: worse
`
	policies := engine.Policies(nil)
	for want, d := range map[string]*engine.Decision{
		"Pod a: changed by 1 policy" + lines:                              {Changed: true, Steps: steps},
		"Pod a: denied" + lines:                                           {Status: &metav1.Status{}, Steps: steps},
		"Pod a: no policy matched\n":                                      {},
		"Pod a: unchanged; 1 policy matched\n  q › b: skipped: because\n": {Steps: steps[2:3]},
	} {
		d.Stages = []engine.Record{{Stage: &policies, Steps: d.Steps}}
		if got := Summary("Pod a", d, nil, Brief); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// No value of a Secret is shown, wherever in it kubectl has left it.
func TestHideSecrets(t *testing.T) {
	const value = "aHVudGVyMg=="
	applied := map[string]any{"kubectl.kubernetes.io/last-applied-configuration": `{"data":{"a":"` + value + `"}}`}
	with := func(annotations, data map[string]any) map[string]any {
		metadata := map[string]any{"name": "web"}
		if annotations != nil {
			metadata["annotations"] = annotations
		}
		return map[string]any{"metadata": metadata, "data": data}
	}
	other := map[string]any{"team": "shop"}
	both := map[string]any{"team": "shop", "kubectl.kubernetes.io/last-applied-configuration": value}
	for name, tt := range map[string]struct {
		before, after map[string]any
		want          string
	}{
		"a value":                   {with(nil, map[string]any{"a": value}), with(nil, map[string]any{"a": "eA=="}), "data.a"},
		"a key that is none":        {with(nil, map[string]any{"": value}), with(nil, map[string]any{}), "***"},
		"the annotation is removed": {with(both, nil), with(other, nil), "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration] ***"},
		"with all annotations":      {with(applied, nil), with(nil, nil), "***"},
		"with all metadata":         {with(both, nil), map[string]any{"data": map[string]any(nil)}, "shop"},
		"another annotation":        {with(nil, nil), with(other, nil), "shop"},
	} {
		var got strings.Builder
		for _, c := range Hide("", "Secret", Diff(tt.before, tt.after, nil)) {
			fmt.Fprintln(&got, c.Path, c.Before, c.After)
		}
		if strings.Contains(got.String(), value) || !strings.Contains(got.String(), tt.want) {
			t.Errorf("%s:\n%s", name, got.String())
		}
	}
}
