package nativepolicies

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
)

// store is what is stored if these units are, changed by f.
func store(t *testing.T, units []Unit, f func(u *unstructured.Unstructured)) map[Key]*Object {
	t.Helper()
	out := map[Key]*Object{}
	for i := range units {
		for _, p := range []Part{units[i].Policy, units[i].Binding} {
			u := p.Object.DeepCopy()
			u.SetUID("u")
			u.SetResourceVersion("1")
			if f != nil {
				f(u)
			}
			text, err := json.Marshal(u.Object)
			if err != nil {
				t.Fatal(err)
			}
			o := ReadObject(u, text)
			out[o.Key] = o
		}
	}
	return out
}

func TestPlan(t *testing.T) {
	a, b := assign(t, "a", "spec.nodeName", "n"), assign(t, "b", "spec.nodeName", "m")
	alone := Want([]Mutator{a}, Options{}).Units
	edited := Want([]Mutator{assign(t, "a", "spec.nodeName", "other")}, Options{}).Units
	shared := Want([]Mutator{a, b}, Options{}).Units
	set := func(fields ...string) func(u *unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(u.Object, fields[len(fields)-1], fields[:len(fields)-1]...); err != nil {
				t.Fatal(err)
			}
		}
	}
	onlyPolicies := func(f func(u *unstructured.Unstructured)) func(u *unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			if u.GetKind() == api.PolicyKind {
				f(u)
			}
		}
	}
	moved := Places{"Assign/a": {Unit: "assign-a", Out: true}}
	tests := map[string]struct {
		units   []Unit
		stored  map[Key]*Object
		places  Places
		want    []string
		foreign string
	}{
		"nothing is there": {units: alone, want: []string{"apply policy assign-a", "apply binding assign-a"}},
		"all is there":     {units: alone, stored: store(t, alone, nil), places: moved},
		"defaults of the server are no change": {units: alone, places: moved,
			stored: store(t, alone, onlyPolicies(set("spec", "matchConstraints", "matchPolicy", "Exact")))},
		"an edit":            {units: edited, stored: store(t, alone, nil), places: moved, want: []string{"apply policy assign-a"}},
		"changed by others":  {units: alone, stored: store(t, alone, onlyPolicies(set("spec", "failurePolicy", "Ignore"))), places: moved, want: []string{"apply policy assign-a"}},
		"a label taken away": {units: alone, stored: store(t, alone, set("metadata", "labels", "mapd.dev/from-name", "x")), places: moved, want: []string{"apply policy assign-a", "apply binding assign-a"}},
		"more labels":        {units: alone, stored: store(t, alone, set("metadata", "labels", "team", "x")), places: moved},
		"made anew under the same name": {units: alone, places: moved, want: []string{"apply policy assign-a", "apply binding assign-a"},
			stored: store(t, alone, func(u *unstructured.Unstructured) {
				refs := u.GetOwnerReferences()
				refs[0].UID = "before"
				u.SetOwnerReferences(refs)
			})},
		"somebody else's": {units: alone, stored: store(t, alone, set("metadata", "labels", LiveLabel, "")),
			foreign: "there is a policy and a binding assign-a of admissionregistration.k8s.io without the labels of mapd, which leaves it alone; delete or rename it"},
		"going":                  {units: alone, stored: store(t, alone, set("metadata", "deletionTimestamp", "2026-01-01T00:00:00Z"))},
		"the mutator is deleted": {stored: store(t, alone, nil), places: Places{}, want: []string{"delete binding assign-a", "delete policy assign-a"}},
		"back, not yet called":   {stored: store(t, alone, nil), places: Places{"Assign/a": {}}},
		"back, and called":       {stored: store(t, alone, nil), places: Places{"Assign/a": {Known: true}}, want: []string{"delete binding assign-a", "delete policy assign-a"}},
		"two join, the one before stays": {units: shared, stored: store(t, alone, nil), places: Places{"Assign/a": {Unit: "assign-a-and-assign-b", Out: true}, "Assign/b": {Unit: "assign-a-and-assign-b"}},
			want: []string{"apply policy assign-a-and-assign-b", "apply binding assign-a-and-assign-b"}},
		"two have joined, the one before goes": {units: shared, stored: both(store(t, alone, nil), store(t, shared, nil)),
			places: Places{"Assign/a": {Unit: "assign-a-and-assign-b", Out: true, Settled: []string{api.NativeGroup}}},
			want:   []string{"delete binding assign-a", "delete policy assign-a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var placed []Placed
			for _, u := range tt.units {
				placed = append(placed, Placed{u, api.NativeGroup})
			}
			got := Plan(placed, tt.stored, tt.places)
			var list []string
			for _, a := range got.List {
				list = append(list, strings.TrimSuffix(a.String(), "."+api.NativeGroup))
			}
			if d := cmp.Diff(tt.want, list); d != "" {
				t.Errorf("actions (-want):\n%s", d)
			}
			if d := cmp.Diff(tt.foreign, got.Foreign["assign-a"]); d != "" {
				t.Errorf("foreign (-want):\n%s", d)
			}
		})
	}
}

func both(a, b map[Key]*Object) map[Key]*Object {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// The policies of mutators that cannot be seen stay, those of mutators that are gone
// do not.
func TestHidden(t *testing.T) {
	units := Want([]Mutator{assign(t, "a", "spec.nodeName", "n")}, Options{}).Units
	stored := store(t, units, nil)
	for _, back := range []bool{false, true} {
		for kind, want := range map[string]int{"Assign": 0, "ModifySet": 2} {
			var tracker Tracker
			at := time.Unix(0, 0)
			var places Places
			for range 3 { // long after the first look
				places, _ = tracker.Settle(&Wanted{}, Sight{Objects: stored, Called: back, Hidden: []string{kind}}, at)
				at = at.Add(time.Minute)
			}
			if list := Plan(nil, stored, places).List; len(list) != want {
				t.Errorf("%s cannot be seen: %v", kind, list)
			}
		}
	}
}
