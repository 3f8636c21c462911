package openapi

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func TestDifference(t *testing.T) {
	pod, err := New(Builtin()).Kind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if err != nil {
		t.Fatal(err)
	}
	const before = `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: x}}, spec: {containers: [{name: c, image: i}, {name: d, image: j}]}}`
	for name, tt := range map[string]struct {
		kind         *Kind
		after, owned string
		want         string
		exact        bool
	}{
		"an element's field": {
			kind:  pod,
			after: `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: x}}, spec: {containers: [{name: c, image: i}, {name: d, image: k}]}}`,
			want:  `{spec: {containers: [{name: d, image: k}]}}`, exact: true,
		},
		"a label more": {
			kind:  pod,
			after: `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: x, b: z}}, spec: {containers: [{name: c, image: i}, {name: d, image: j}]}}`,
			want:  `{metadata: {labels: {b: z}}}`, exact: true,
		},
		"with fields that were applied before": {
			kind:  pod,
			after: `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: x, b: z}}, spec: {containers: [{name: c, image: i}, {name: d, image: j}]}}`,
			owned: `{"f:metadata": {"f:labels": {"f:a": {}}}}`,
			want:  `{metadata: {labels: {a: x, b: z}}}`, exact: true,
		},
		"a removal": {
			kind:  pod,
			after: `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {b: z}}, spec: {containers: [{name: c, image: i}, {name: d, image: j}]}}`,
			want:  `{metadata: {labels: {b: z}}}`,
		},
		"another order": {
			kind:  pod,
			after: `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: x}}, spec: {containers: [{name: d, image: j}, {name: c, image: i}]}}`,
		},
		"an unknown kind": {
			after: `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: x}}, spec: {containers: [{name: c, image: k}], more: true}}`,
			want:  `{spec: {containers: [{name: c, image: k}], more: true}}`, exact: true,
		},
		"an object that does not fit": {kind: pod, after: `{spec: {containers: 1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			read := func(text string) (o map[string]any) {
				if err := yaml.Unmarshal([]byte(text), &o); err != nil {
					t.Fatal(err)
				}
				return o
			}
			got, exact := tt.kind.Difference(read(before), read(tt.after), []byte(tt.owned))
			if want := read(tt.want); exact != tt.exact || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, exact %t; want %v", got, exact, want)
			}
		})
	}
}
