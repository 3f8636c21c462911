package main

import (
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/fakeapi"
)

// A trip of an earlier version of a policy, or of a policy that has no breaker any more,
// stays in the status until a replica takes it out, and has no effect meanwhile.
func TestModeOfTripped(t *testing.T) {
	limits := map[string]any{api.BreakerAnnotation: "errors=5%"}
	spec := map[string]any{"failurePolicy": "Ignore"}
	s := new(fakeapi.Server)
	for name, p := range map[string]struct {
		annotations map[string]any
		digest      string
	}{
		"tripped": {limits, breaker.Digest(limits, spec)},
		"edited":  {limits, breaker.Digest(limits, map[string]any{})},
		"removed": {map[string]any{}, breaker.Digest(limits, spec)},
	} {
		trip := breaker.Trip{Digest: p.digest, Time: time.Now()}
		s.Put(api.OwnPolicies, "", name, map[string]any{
			"metadata": map[string]any{"name": name, "annotations": p.annotations}, "spec": spec, "status": map[string]any{"breaker": trip.Object()},
		})
		s.Put(api.OwnBindings, "", name, map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"policyName": name}})
	}
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	all, err := bindingsOf(t.Context(), client, "")
	if err != nil || len(all) != 3 {
		t.Fatalf("bindings %+v, %v", all, err)
	}
	want := map[string]string{"tripped": "shadow", "edited": "enforce", "removed": "enforce"}
	for _, b := range all {
		if b.Mode != want[b.Policy] {
			t.Errorf("%s has the mode %s, want %s", b.Policy, b.Mode, want[b.Policy])
		}
	}
}
