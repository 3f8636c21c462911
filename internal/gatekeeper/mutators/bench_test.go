package mutators

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/policy"
)

// smallPod is some 2 KB, and as much again in managed fields.
func smallPod() *unstructured.Unstructured {
	container := func(name string) any {
		return map[string]any{"name": name, "image": "registry.example/" + name + ":1", "imagePullPolicy": "IfNotPresent",
			"env": []any{map[string]any{"name": "A", "value": "1"}, map[string]any{"name": "B", "value": "2"}}, "resources": map[string]any{}}
	}
	fields := map[string]any{}
	for i := range 40 {
		fields[fmt.Sprint("f:field", i)] = map[string]any{}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "p", "namespace": "shop", "labels": map[string]any{"app": "web", "tier": "front"},
			"managedFields": []any{map[string]any{"manager": "kubectl", "fieldsV1": fields}}},
		"spec": map[string]any{"containers": []any{container("a"), container("b"), container("c")}, "restartPolicy": "Always"},
	}}
}

// Mutators that all change the object or, -wanted, have done so before, and
// mutators of which none is about it.
func BenchmarkAdmit(b *testing.B) {
	for _, k := range []struct {
		name    string
		counts  []int
		mutator func(i int) *legacy.Mutator
		steps   func(n int) int
	}{
		{"label", []int{1, 10, 100}, func(i int) *legacy.Mutator { return label(b, fmt.Sprint("l", i), fmt.Sprint("l", i)) }, func(n int) int { return n }},
		{"glob", []int{1, 10, 100}, func(i int) *legacy.Mutator {
			return assign(b, fmt.Sprint("g", i), fmt.Sprintf("spec.containers[name: *].f%d", i), `"x"`)
		}, func(n int) int { return n }},
		{"other-kind", []int{1, 10_000}, func(i int) *legacy.Mutator {
			return decode(b, "Assign", fmt.Sprint("o", i), `{applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment]}], location: spec.x, parameters: {assign: {value: x}}}`)
		}, func(int) int { return 0 }},
		{"other-namespace", []int{1, 100}, func(i int) *legacy.Mutator {
			return decode(b, "AssignMetadata", fmt.Sprint("o", i), fmt.Sprintf(`{match: {namespaces: [other-%d]}, location: metadata.labels.x, parameters: {assign: {value: x}}}`, i))
		}, func(int) int { return 0 }},
	} {
		for _, n := range k.counts {
			run := func(b *testing.B, wanted bool) {
				var ms []*legacy.Mutator
				for i := range n {
					ms = append(ms, k.mutator(i))
				}
				e := engine.New(engine.Options{})
				e.Publish(engine.Mutators(build(NewBuilder(deps()), ms).Set, api.Enforce))
				pod := smallPod()
				admit := func() *engine.Decision {
					return e.Admit(b.Context(), &policy.Request{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
						Operation: admissionv1.Create, Namespace: "shop", Object: pod})
				}
				d := admit()
				if d.Status != nil || len(d.Steps) != k.steps(n) {
					b.Fatalf("%+v %+v", d, d.Status)
				}
				if wanted {
					if pod = d.Object; admit().Changed {
						b.Fatal("what was changed is changed again")
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					admit()
				}
			}
			b.Run(fmt.Sprint(k.name, "/", n), func(b *testing.B) { run(b, false) })
			b.Run(fmt.Sprint(k.name, "-wanted/", n), func(b *testing.B) { run(b, true) })
		}
	}
}

// Another build of a thousand mutators, of which none is new.
func BenchmarkBuild(b *testing.B) {
	for _, k := range []struct {
		name    string
		mutator func(i int) *legacy.Mutator
	}{
		{"label", func(i int) *legacy.Mutator { return label(b, fmt.Sprint("l", i), fmt.Sprint("l", i%20)) }},
		{"field", func(i int) *legacy.Mutator {
			return assign(b, fmt.Sprint("f", i), fmt.Sprintf("spec.f%d", i%20), `"x"`)
		}},
		{"glob", func(i int) *legacy.Mutator {
			return assign(b, fmt.Sprint("g", i), fmt.Sprintf("spec.containers[name: *].f%d", i%20), `"x"`)
		}},
		{"many-kinds", func(i int) *legacy.Mutator {
			return decode(b, "Assign", fmt.Sprint("k", i), fmt.Sprintf(`{applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}, {groups: [apps], versions: [v1], kinds: [Deployment, K%d]}], `+
				`match: {kinds: [{apiGroups: ["*"], kinds: [Deployment]}]}, location: "spec.template.spec.containers[name: *].f%d", parameters: {assign: {value: x}}}`, i, i%20))
		}},
	} {
		b.Run(k.name, func(b *testing.B) {
			ms := make([]*legacy.Mutator, 1000)
			for i := range ms {
				ms[i] = k.mutator(i)
			}
			builder := NewBuilder(deps())
			build(builder, ms)
			b.ReportAllocs()
			for b.Loop() {
				build(builder, ms)
			}
		})
	}
}
