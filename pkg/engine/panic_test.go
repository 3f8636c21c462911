package engine

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// tears is a mutation that panics after a first write to the draft.
var tears mutator = func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
	in.Draft.Begin()
	in.Draft.Top()
	in.Draft.Edit.Set(tree.Token{Key: "half"}, "written")
	panic("no ink")
}

// What a mutation wrote before it panicked is undone, and its failurePolicy decides
// about the request. The next one has nothing to do with it.
func TestPanicWhileWriting(t *testing.T) {
	torn := newPolicy(t, "b", run1(tears), ignore)
	torn.Mutations()[0].Type = admissionregistrationv1.PatchTypeJSONPatch
	src := binding.Sources{Namespaces: namespaces{"t1"}}
	e := New(Options{})
	e.Publish(Policies(index(t, src, newPolicy(t, "a", run1(write("a"))), torn, newPolicy(t, "c", run1(write("c"))))))
	req := request()
	given := req.Object.DeepCopy()
	d := e.Admit(t.Context(), req)
	if d.Status != nil || data(d.Object, "log") != "ac" || d.Object.Object["half"] != nil {
		t.Errorf("Admit = %+v, %+v", d, d.Status)
	}
	want := []string{"1 a/b-a 0 changed", `1 b/b-b 0 failed: panic in policy "b": a string (ignored)`, "1 c/b-c 0 changed"}
	if diff := cmp.Diff(want, record(d.Steps)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(given, req.Object); diff != "" {
		t.Errorf("the request's object was modified:\n%s", diff)
	}

	e.Publish(Policies(index(t, src, newPolicy(t, "a", run1(write("a"))))))
	for range 10 { // on the same room, perhaps
		if d := e.Admit(t.Context(), request()); d.Status != nil || data(d.Object, "log") != "a" {
			t.Errorf("Admit = %+v, %+v", d, d.Status)
		}
	}
}
