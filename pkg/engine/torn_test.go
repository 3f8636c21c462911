package engine

import (
	"context"
	"net/http"
	"reflect"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

// tears is a mutation that panics while it writes to the draft.
var tears mutator = func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
	writing := reflect.ValueOf(in.Draft).Elem().FieldByName("writing")
	*(*bool)(unsafe.Pointer(writing.UnsafeAddr())) = true
	panic("no ink")
}

// No failurePolicy goes on with an object that is half written, and the next
// request has nothing to do with it.
func TestTornDraft(t *testing.T) {
	torn := newPolicy(t, "b", run1(tears), ignore)
	torn.Mutations()[0].Type = admissionregistrationv1.PatchTypeJSONPatch
	src := binding.Sources{Namespaces: namespaces{"t1"}}
	e := New(Options{})
	e.Publish(Policies(index(t, src, newPolicy(t, "a", run1(write("a"))), torn, newPolicy(t, "c", run1(write("c"))))))
	req := request()
	given := req.Object.DeepCopy()
	d := e.Admit(t.Context(), req)
	if d.Status == nil || d.Status.Code != http.StatusInternalServerError || d.Changed || d.Object != req.Object {
		t.Errorf("Admit = %+v, %+v", d, d.Status)
	}
	want := []string{"1 a/b-a 0 changed", `1 b/b-b 0 failed: Internal error occurred: panic in policy "b": a string`}
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
