package mutators

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

var deps = sync.OnceValue(func() policy.Deps {
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		panic(err)
	}
	return policy.Deps{Env: env, Types: openapi.New(openapi.Builtin())}
})

// decode reads a mutator of a kind from its name and its spec.
func decode(t testing.TB, kind, name, spec string) *legacy.Mutator {
	t.Helper()
	version := "v1"
	if kind == "AssignImage" {
		version = "v1alpha1"
	}
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf("{apiVersion: mutations.gatekeeper.sh/%s, kind: %s, metadata: {name: %q}, spec: %s}", version, kind, name, spec)
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	m, err := legacy.Decode(u)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return m
}

const pods = `applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]`

func assign(t testing.TB, name, location, value string) *legacy.Mutator {
	return decode(t, "Assign", name, fmt.Sprintf(`{%s, location: %q, parameters: {assign: {value: %s}}}`, pods, location, value))
}

func label(t testing.TB, name, key string) *legacy.Mutator {
	return decode(t, "AssignMetadata", name, fmt.Sprintf(`{location: 'metadata.labels."%s"', parameters: {assign: {value: v}}}`, key))
}

func build(b *Builder, ms []*legacy.Mutator) *Result {
	return b.Build(ms, nil, deps().Types, Options{})
}

// A thousand Assigns of twenty shapes are twenty programs, and a second build
// compiles nothing but what is new.
func TestShapesAreShared(t *testing.T) {
	hammer.Alone(t)
	var ms []*legacy.Mutator
	for i := range 1000 {
		ms = append(ms, assign(t, fmt.Sprint("a", i), fmt.Sprintf("spec.f%d", i%20), fmt.Sprintf(`{"n": %d}`, i)))
	}
	b := NewBuilder(deps())
	r := build(b, ms)
	if r.Shapes != 20 || b.compiled != 20 || r.Set.Len() != 1000 {
		t.Fatalf("%d shapes, %d compiled, %d members; want 20, 20, 1000", r.Shapes, b.compiled, r.Set.Len())
	}
	build(b, append(ms, assign(t, "new", "spec.f20", `"x"`)))
	if b.compiled != 21 {
		t.Errorf("%d compiled after one more shape, want 21", b.compiled)
	}
	build(b, ms[:1])
	if got := build(b, ms); got.Shapes != 20 || b.compiled != 40 {
		t.Errorf("%d shapes, %d compiled after the others were forgotten; want 20, 40", got.Shapes, b.compiled)
	}
}

// A mutator runs on the requests of its source.
func TestSources(t *testing.T) {
	var ms []*legacy.Mutator
	for _, source := range []string{"", "All", "Original", "Generated"} {
		ms = append(ms, decode(t, "AssignMetadata", "from-"+strings.ToLower(source), fmt.Sprintf(
			`{location: "metadata.labels.from-%s", match: {source: %q}, parameters: {assign: {value: v}}}`, strings.ToLower(source), source)))
	}
	e := engine.New(engine.Options{})
	e.Publish(engine.Mutators(build(NewBuilder(deps()), ms).Set, api.Enforce))
	for source, want := range map[policy.Source]map[string]string{
		policy.Original:  {"from-": "v", "from-all": "v", "from-original": "v"},
		policy.Generated: {"from-": "v", "from-all": "v", "from-generated": "v"},
	} {
		pod := smallPod()
		pod.SetLabels(nil)
		d := e.Admit(t.Context(), &policy.Request{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Operation: admissionv1.Create, Namespace: "shop", Object: pod, Source: source})
		if diff := cmp.Diff(want, d.Object.GetLabels()); diff != "" || d.Status != nil {
			t.Errorf("%s: status %v, labels (-want +got):\n%s", source, d.Status, diff)
		}
	}
}

func TestStates(t *testing.T) {
	ms := []*legacy.Mutator{
		label(t, "ok", "a"),
		assign(t, "list", "spec.x[n:a].q", "1"),
		assign(t, "object", "spec.x.y.z", "1"),
		decode(t, "Assign", "external", `{`+pods+`, location: spec.image, parameters: {assign: {externalData: {provider: p, failurePolicy: Fail, dataSource: ValueAtLocation}}}}`),
		decode(t, "AssignMetadata", "generated", `{location: metadata.labels.g, match: {source: Generated, kinds: [{apiGroups: [apps], kinds: [Deployment]}]}, parameters: {assign: {value: v}}}`),
	}
	r := build(NewBuilder(deps()), ms)
	var got []string
	for _, s := range r.States {
		got = append(got, s.Mutator.ID()+" "+s.Kind()+" "+s.Reason)
	}
	conflict := "the following mutators have conflicting schemas: [Assign.mutations.gatekeeper.sh /list,Assign.mutations.gatekeeper.sh /object]"
	want := []string{
		"Assign/external not-run it needs external data, and no Provider can be asked here",
		"Assign/list conflict " + conflict,
		"Assign/object conflict " + conflict,
		"AssignMetadata/generated not-run match.source is Generated: it runs on what expansion generates, and on no request",
		"AssignMetadata/ok running ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r.Set.Len() != 2 {
		t.Errorf("%d members, want ok and generated", r.Set.Len())
	}
	ms = append(ms, decode(t, "AssignImage", "tag", `{`+pods+`, location: spec.image, parameters: {assignTag: ":v2"}}`))
	r = NewBuilder(deps()).Build(ms, nil, deps().Types, Options{External: true})
	if s := r.States[0]; s.Kind() != Running || r.Set.Len() != 4 {
		t.Errorf("%s is %s, with %d members", s.Mutator.ID(), s.Kind(), r.Set.Len())
	}
	note := legacy.Note{Field: "spec.location", Message: "Assign/external asks a Provider for the value here: objects that both match are refused"}
	if s := r.States[3]; !slices.Contains(s.Notes, note) {
		t.Errorf("notes of %s: %v", s.Mutator.ID(), s.Notes)
	}
	for _, rule := range r.Rules {
		if slices.Contains(rule.Resources, "deployments") {
			t.Errorf("a rule for generated objects only: %v", rule)
		}
	}
}

// Of two with one name, the later one counts.
func TestLaterCounts(t *testing.T) {
	r := build(NewBuilder(deps()), []*legacy.Mutator{label(t, "a", "x"), label(t, "a", "y")})
	if len(r.States) != 1 || r.States[0].Mutator.Location[2].Name != "y" {
		t.Errorf("States = %+v", r.States)
	}
}

func TestRules(t *testing.T) {
	ms := []*legacy.Mutator{
		assign(t, "a", "spec.a", "1"), assign(t, "b", "spec.b", "1"),
		decode(t, "Assign", "c", `{applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment], operations: [CREATE]}], location: spec.c, parameters: {assign: {value: 1}}}`),
		decode(t, "Assign", "d", `{applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment], operations: [UPDATE]}], location: spec.d, parameters: {assign: {value: 1}}}`),
	}
	var got []string
	for _, r := range build(NewBuilder(deps()), ms).Rules {
		got = append(got, fmt.Sprint(r.Operations, r.APIGroups, r.APIVersions, r.Resources))
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{"[CREATE UPDATE] [apps] [v1] [deployments", "[CREATE UPDATE] [] [v1] [pods"} {
		if !strings.Contains(text, want) {
			t.Errorf("rules lack %s:\n%s", want, text)
		}
	}
	if sorted := slices.Clone(got); len(got) != len(slices.Compact(sorted)) {
		t.Errorf("a rule is there twice:\n%s", text)
	}
}

// random makes a valid mutator whose location is likely to meet others.
func random(t testing.TB, rnd *rand.Rand, i int) *legacy.Mutator {
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	match := ""
	if rnd.IntN(2) == 0 {
		match = "match: {" + pick(
			fmt.Sprintf(`%s: {matchLabels: {%s: v}}`, pick("labelSelector", "namespaceSelector"), pick("x", "y")),
			fmt.Sprintf(`%s: {matchExpressions: [{key: %q, operator: %s}]}`, pick("labelSelector", "namespaceSelector"), pick("x", "y"),
				pick("In, values: [v, w]", `In, values: [""]`, "NotIn, values: [v]", "Exists", "DoesNotExist")),
			fmt.Sprintf(`%s: [%s]`, pick("namespaces", "excludedNamespaces"), pick("shop", "other", `"sh*"`, `"*"`, `other, "*op"`)),
			"scope: "+pick("Cluster", "Namespaced"),
		) + "}, "
	}
	name := fmt.Sprint("m", i)
	if rnd.IntN(4) == 0 {
		return decode(t, "AssignMetadata", name, fmt.Sprintf(`{%slocation: metadata.%s.%s, parameters: {assign: {value: v}}}`, match, pick("labels", "annotations"), pick("x", "y", "z")))
	}
	steps := []string{"spec"}
	if rnd.IntN(12) == 0 {
		steps[0] = pick("kind", "status")
	}
	for range rnd.IntN(4) {
		steps = append(steps, pick("a", "b", "k"))
		if rnd.IntN(3) == 0 {
			steps[len(steps)-1] += "[" + pick("k", "a") + ": " + pick("*", "v", "w") + "]"
		}
	}
	parents := slices.Clone(steps)
	last := pick("end", "k2", "a", "b")
	location := strings.Join(append(steps, last), ".")
	tests := ""
	if rnd.IntN(3) == 0 {
		tests = fmt.Sprintf(`, pathTests: [{subPath: %q, condition: %s}]`, strings.Join(parents[:1+rnd.IntN(len(parents))], "."), pick("MustExist", "MustNotExist"))
	}
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf("{apiVersion: mutations.gatekeeper.sh/v1, kind: Assign, metadata: {name: %s}, spec: {%s%s, location: %q, parameters: {assign: {value: v}%s}}}",
		name, match, strings.Replace(pods, "Pod", pick("Pod", "Pod", "Namespace"), 1), location, tests)
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	m, err := legacy.Decode(u)
	if err != nil {
		return random(t, rnd, i) // a combination that Gatekeeper refuses
	}
	return m
}

// Whom wakes does not ask about is not affected.
func TestWakesRandomly(t *testing.T) {
	hammer.Alone(t)
	for seed := range uint64(hammer.Count(80)) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var ms []*legacy.Mutator
		for i := range 25 {
			ms = append(ms, random(t, rnd, i))
		}
		got := wakes(ms)
		for i, a := range ms {
			for j, b := range ms {
				if legacy.Affects(a, b) && !slices.Contains(got[i], j) {
					t.Fatalf("seed %d: %s does not wake %s, tests %v", seed, a.Location, b.Location, b.Tests)
				}
			}
		}
	}
}

// Ten thousand mutators are put together in little time and memory, be they all
// alike, all different or all in each other's way.
func TestManyMutators(t *testing.T) {
	const n = 10_000
	for name, location := range map[string]func(i int) string{
		"different": func(i int) string { return fmt.Sprintf("spec.f%d", i) },
		"alike":     func(int) string { return "spec.image" },
		"globs":     func(i int) string { return fmt.Sprintf("spec.containers[name: *].f%d", i) },
		"elements":  func(i int) string { return fmt.Sprintf("spec.containers[name: c%d].image", i) },
	} {
		t.Run(name, func(t *testing.T) {
			ms := make([]*legacy.Mutator, n)
			for i := range ms {
				path, err := legacy.ParsePath(location(i))
				if err != nil {
					t.Fatal(err)
				}
				ms[i] = &legacy.Mutator{Kind: legacy.Assign, Name: fmt.Sprint(i), Location: path, From: &legacy.Source{Value: "v"},
					ApplyTo: []legacy.ApplyTo{{Groups: []string{""}, Versions: []string{"v1"}, Kinds: []string{"Pod"}}}}
			}
			kept := map[*int]int{} // lists by their first element
			for _, w := range wakes(ms) {
				if len(w) > 0 {
					kept[&w[0]] = len(w)
				}
			}
			total := 0
			for _, k := range kept {
				total += k
			}
			if total > manyWakes*n {
				t.Errorf("%d indices are kept", total)
			}
		})
	}
}

// What runs does what the mutators say, and refuses in Gatekeeper's words.
func TestRun(t *testing.T) {
	ms := []*legacy.Mutator{label(t, "owner", "owner"), assign(t, "user", "spec.securityContext.runAsUser", "1000")}
	e := engine.New(engine.Options{})
	e.Publish(engine.Mutators(build(NewBuilder(deps()), ms).Set, api.Enforce))
	admit := func(spec map[string]any) *engine.Decision {
		return e.Admit(t.Context(), &policy.Request{
			UID: "u", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Operation: admissionv1.Create, Namespace: "shop",
			Object: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p", "namespace": "shop"}, "spec": spec,
			}},
		})
	}
	d := admit(map[string]any{})
	if d.Status != nil || d.Rounds(engine.MutatorStage) != 2 {
		t.Fatalf("Admit = %+v, %+v", d, d.Status)
	}
	if diff := cmp.Diff(map[string]any{"securityContext": map[string]any{"runAsUser": int64(1000)}}, d.Object.Object["spec"]); diff != "" {
		t.Error(diff)
	}
	d = admit(map[string]any{"securityContext": "none"})
	want := "mutation u for mutator Assign.mutations.gatekeeper.sh /user failed for  Pod shop p: " +
		"mismatch between path entry (type: object) and received object (type: string). Path: runAsUser"
	if d.Status == nil || d.Status.Message != want || d.Status.Code != 500 {
		t.Errorf("Admit = %+v, want %s", d.Status, want)
	}
}
