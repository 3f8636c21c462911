package draft

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Undo takes back a mutation that was left in the middle, and nothing that an earlier
// one did.
func TestUndo(t *testing.T) {
	given := map[string]any{"data": map[string]any{"a": "x"}}
	var d Draft
	d.Reset(&unstructured.Unstructured{Object: given}, 4)
	write := func(key, value string) {
		d.Top()
		data := d.Edit.Root().(map[string]any)["data"].(map[string]any)
		d.Edit.Down(tree.Token{Key: "data"}, data)
		old, found := data[key]
		d.Write(nil, tree.Token{Key: key}, old, found, value, "")
	}
	check := func(when, want string, paths ...string) {
		t.Helper()
		if diff := cmp.Diff(map[string]any{"data": map[string]any{"a": want}}, d.Object().Object); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if diff := cmp.Diff(paths, d.Changed()); diff != "" {
			t.Errorf("%s, changed (-want +got):\n%s", when, diff)
		}
	}
	d.Begin()
	write("a", "y")
	d.Undo()
	check("after the first was undone", "x")
	d.Begin()
	write("a", "y")
	d.Commit()
	committed := d.Object()
	paths := d.Changed()
	check("after the second", "y", "/data/a")
	d.Undo()
	if check("after Undo between mutations", "y"); d.Object() != committed || paths[0] != "/data/a" {
		t.Error("Undo between mutations did something")
	}
	func() {
		defer func() { _ = recover() }()
		d.Begin()
		write("a", "z")
		write("b", "z")
		panic("no ink")
	}()
	d.Undo()
	check("after a panic", "y")
	d.Begin()
	write("a", "y")
	d.Commit()
	if check("after the same again", "y"); d.Object() != committed {
		t.Error("the same again made another object")
	}
	if diff := cmp.Diff(map[string]any{"data": map[string]any{"a": "x"}}, given); diff != "" {
		t.Errorf("the given object was modified:\n%s", diff)
	}
}
