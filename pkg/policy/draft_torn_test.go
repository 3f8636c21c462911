package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/cel"
)

// A draft knows that it was left while it was written, in each of the ways to
// write; nothing else leaves that behind.
func TestDraftTorn(t *testing.T) {
	deps := testDeps(t)
	in := newInput(object(t, configMap))
	kind, err := deps.Types.Kind(in.Kind)
	if err != nil {
		t.Fatal(err)
	}
	add := func(path string) []cel.PatchOp {
		return []cel.PatchOp{{Op: "add", Path: path, Value: "v", HasValue: true}}
	}
	ways := map[string]func(d *Draft){
		"apply": func(d *Draft) { _, _ = d.apply(add("/data/b")) },
		"patch": func(d *Draft) { d.patch(kind, add("/data/b")) },
		"merge": func(d *Draft) { d.merge(kind, map[string]any{"data": map[string]any{"b": "v"}}) },
		"again": func(d *Draft) {
			whole := whileWriting
			whileWriting = nil
			d.patch(kind, add("/data/b"))
			whileWriting = whole
			if d.recent.m == nil || !d.again(kind, &add("/data/c")[0]) {
				t.Error("the second member of a map is not written again")
			}
		},
	}
	defer func() { whileWriting = nil }()
	for name, write := range ways {
		d := &Draft{}
		d.Reset(in.Object, 1)
		whileWriting = nil
		if write(d); d.Torn() {
			t.Errorf("%s: torn without a panic", name)
		}
		if d.Object() == in.Object {
			t.Errorf("%s wrote nothing", name)
		}
		d.Reset(in.Object, 1)
		whileWriting = func() { panic("torn") }
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			write(d)
		}()
		if !d.Torn() {
			t.Errorf("%s: not torn", name)
		}
		if d.Reset(in.Object, 1); d.Torn() {
			t.Errorf("%s: torn after Reset", name)
		}
	}
	if diff := cmp.Diff(&unstructured.Unstructured{Object: object(t, configMap)}, in.Object); diff != "" {
		t.Error(diff)
	}
}
