package webhook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestGroups(t *testing.T) {
	want := []string{
		"/mutate/fail/never fail.never.mapd.dev",
		"/mutate/ignore/never ignore.never.mapd.dev",
		"/mutate/fail/ifneeded fail.ifneeded.mapd.dev",
		"/mutate/ignore/ifneeded ignore.ifneeded.mapd.dev",
	}
	var got []string
	for _, g := range Groups() {
		got = append(got, g.Path()+" "+g.Name())
		obj := &admissionregistrationv1.MutatingAdmissionPolicy{}
		obj.Spec.FailurePolicy, obj.Spec.ReinvocationPolicy = &g.FailurePolicy, g.ReinvocationPolicy
		if of := GroupOf(obj); of != g {
			t.Errorf("GroupOf a policy of %v = %v", g, of)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	bad := &admissionregistrationv1.MutatingAdmissionPolicy{}
	if g := GroupOf(bad); g != Groups()[0] {
		t.Errorf("GroupOf a policy that says nothing = %v, want Fail and Never", g)
	}
	bad.Spec.FailurePolicy, bad.Spec.ReinvocationPolicy = new(admissionregistrationv1.FailurePolicyType("Maybe")), "Often"
	if g := GroupOf(bad); g != Groups()[0] {
		t.Errorf("GroupOf a policy of unknown values = %v, want Fail and Never", g)
	}
}

// Names and paths are read as they are written.
func TestIDs(t *testing.T) {
	for _, g := range Groups() {
		for _, id := range []ID{{Group: g}, {g, "0123abcd"}} {
			if got, ok := ParseName(id.Name()); !ok || got != id {
				t.Errorf("name %q is %v", id.Name(), got)
			}
			if got, ok := parsePath(id.Path()); !ok || got != id {
				t.Errorf("path %q is %v", id.Path(), got)
			}
		}
	}
	for _, bad := range []string{"", "mapd.dev", "legacy.mapd.dev", "x.fail.never.mapd.dev", "0123abcg.fail.never.mapd.dev", "0123abcdfail.never.mapd.dev"} {
		if id, ok := ParseName(bad); ok {
			t.Errorf("name %q is %v", bad, id)
		}
	}
}
