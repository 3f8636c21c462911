package engine

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/policy"
)

// labelMember adds a label, as the translation of an AssignMetadata does.
func labelMember(t testing.TB, i int) Member {
	patch := fmt.Sprintf(`!has(object.metadata.labels) ? [JSONPatch{op: "add", path: "/metadata/labels", value: {"l%[1]d": params.spec.parameters.assign.value}}]
		: "l%[1]d" in object.metadata.labels ? [] : [JSONPatch{op: "add", path: "/metadata/labels/l%[1]d", value: params.spec.parameters.assign.value}]`, i)
	return Member{Name: fmt.Sprint("AssignMetadata/l", i), Policy: lenient(t, "l", patch, paramKind("AssignMetadata")), Params: &unstructured.Unstructured{
		Object: map[string]any{"metadata": map[string]any{"name": "l"}, "spec": map[string]any{"parameters": map[string]any{"assign": map[string]any{"value": "v"}}}}}}
}

// globMember sets a field of all containers.
func globMember(t testing.TB, i int) Member {
	patch := fmt.Sprintf(`has(object.spec) && has(object.spec.containers) ? object.spec.containers.map(c, c).transformList(i, c,
		JSONPatch{op: "add", path: "/spec/containers/" + string(i) + "/f%d", value: params.spec.parameters.assign.value}) : []`, i)
	return Member{Name: fmt.Sprint("Assign/g", i), Policy: lenient(t, "g", patch, paramKind("Assign")), Params: &unstructured.Unstructured{
		Object: map[string]any{"metadata": map[string]any{"name": "l"}, "spec": map[string]any{"parameters": map[string]any{"assign": map[string]any{"value": "v"}}}}}}
}

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

func BenchmarkSet(b *testing.B) {
	kinds := []struct {
		name   string
		member func(testing.TB, int) Member
	}{{"label", labelMember}, {"glob", globMember}}
	for _, k := range kinds {
		for _, n := range []int{1, 10, 100} {
			b.Run(fmt.Sprint(k.name, "/", n), func(b *testing.B) {
				var members []Member
				for i := range n {
					members = append(members, k.member(b, i))
				}
				e := New(Options{})
				e.PublishSet(NewSet(SetOptions{Members: members}))
				pod := smallPod()
				admit := func() *Decision {
					return e.Admit(b.Context(), &policy.Request{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
						Operation: admissionv1.Create, Namespace: "shop", Object: pod})
				}
				if d := admit(); d.Status != nil || !d.Changed || len(d.Steps) != n {
					b.Fatalf("%+v %+v", d, d.Status)
				}
				b.ReportAllocs()
				for b.Loop() {
					admit()
				}
			})
		}
	}
}
