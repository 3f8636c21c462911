package legacy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// at is a mutator of a kind at a location, with a value that does.
func at(t testing.TB, kind Kind, name, location, more string) *Mutator {
	t.Helper()
	spec := "location: " + fmt.Sprintf("%q", location) + "\n"
	switch kind {
	case Assign:
		spec += "parameters: {assign: {value: {name: a, k: v}}}\n"
	case AssignMetadata:
		spec += "parameters: {assign: {value: x}}\n"
	case AssignImage:
		spec += "parameters: {assignTag: ':x'}\n"
	case ModifySet:
		spec += "parameters: {values: {fromList: [x]}}\n"
	}
	if kind != AssignMetadata && !strings.Contains(more, "applyTo") {
		spec += pods + "\n"
	}
	return mustDecode(t, kind, name, spec+more)
}

// external is an Assign of external data.
func external(t testing.TB, name, location string) *Mutator {
	return mustDecode(t, Assign, name, pods+"\nlocation: "+fmt.Sprintf("%q", location)+"\nparameters: {assign: {externalData: {provider: p}}}")
}

func TestConflicts(t *testing.T) {
	const (
		creating = "applyTo: [{groups: [''], versions: [v1], kinds: [Pod], operations: [CREATE]}]"
		updating = "applyTo: [{groups: [''], versions: [v1], kinds: [Pod], operations: [UPDATE]}]"
		others   = "applyTo: [{groups: ['', apps], versions: [v1], kinds: [Service, Deployment]}]"
		many     = "applyTo: [{groups: [apps, ''], versions: [v2, v1], kinds: [Pod, Deployment]}]"
	)
	tests := []struct {
		name          string
		ms            []*Mutator
		off, reported string // who: members
	}{
		{"a list and an object", []*Mutator{at(t, Assign, "a", "spec.c[name: a].image", ""), at(t, Assign, "b", "spec.c.image", "")},
			"Assign/a: a b; Assign/b: a b", ""},
		{"two key fields", []*Mutator{at(t, Assign, "a", "spec.c[name: a].image", ""), at(t, Assign, "b", "spec.c[image: b].name", "")},
			"Assign/a: a b; Assign/b: a b", ""},
		{"a list and a set", []*Mutator{at(t, Assign, "a", "spec.c[name: a]", ""), at(t, ModifySet, "b", "spec.c", "")},
			"Assign/a: a b; ModifySet/b: a b", ""},
		{"a string and a set", []*Mutator{at(t, AssignImage, "a", "spec.c[name: *].image", ""), at(t, ModifySet, "b", "spec.c[name: x].image", "")},
			"AssignImage/a: a b; ModifySet/b: a b", ""},
		{"deeper than an image", []*Mutator{at(t, AssignImage, "a", "spec.c[name: *].image", ""), at(t, Assign, "b", "spec.c[name: *].image.x", "")},
			"Assign/b: b a; AssignImage/a: b a", ""},
		{"deeper than external data", []*Mutator{external(t, "a", "spec.x"), at(t, Assign, "b", "spec.x.y", ""), at(t, Assign, "c", "spec.x", "")},
			"Assign/a: a b; Assign/b: a b", "Assign/c: a b"},
		{"external data twice", []*Mutator{external(t, "a", "spec.x"), external(t, "b", "spec.x"), at(t, AssignImage, "c", "spec.x", "")}, "", ""},
		{"keys do not count", []*Mutator{at(t, Assign, "a", "spec.c[name: *].image", ""), at(t, Assign, "b", "spec.c[name: a].image", "")}, "", ""},
		{"an Assign may end anywhere", []*Mutator{at(t, Assign, "a", "spec.x", ""), at(t, Assign, "b", "spec.x.y", ""), at(t, Assign, "c", "spec", "")}, "", ""},
		{"other operations", []*Mutator{at(t, Assign, "a", "spec.c[name: a].image", creating), at(t, Assign, "b", "spec.c.image", updating)}, "", ""},
		{"other kinds", []*Mutator{at(t, Assign, "a", "spec.c[name: a].image", ""), at(t, Assign, "b", "spec.c.image", others)}, "", ""},
		{"off for all kinds", []*Mutator{at(t, Assign, "a", "spec.c[name: a].image", creating), at(t, Assign, "b", "spec.c.image", many)},
			"Assign/a: a b; Assign/b: a b", ""},
		{"not transitive", []*Mutator{
			at(t, Assign, "a", "spec.x.y", ""), at(t, Assign, "b", "spec.x[k: v].y", many), at(t, Assign, "c", "spec.x.y", "applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment]}]"),
			at(t, Assign, "d", "spec.x.y", others), at(t, Assign, "e", "spec.z", ""),
		}, "Assign/a: a b; Assign/b: a b c d; Assign/c: b c d; Assign/d: b c d", ""},
		{"one that ends there is reported and runs", []*Mutator{at(t, Assign, "a", "spec.x.y.z", ""), at(t, Assign, "b", "spec.x[k: v].y", ""), at(t, Assign, "c", "spec.x", "")},
			"Assign/a: a b; Assign/b: a b", "Assign/c: a b"},
		{"labels take no part", []*Mutator{at(t, AssignMetadata, "a", "metadata.labels.x", ""), at(t, AssignMetadata, "b", "metadata.labels.x", "")}, "", ""},
		{"alone", []*Mutator{at(t, Assign, "a", "spec.c[name: a].image", "")}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.off, brief(Conflicts(tt.ms))); diff != "" {
				t.Errorf("Conflicts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.reported, brief(Reported(tt.ms))); diff != "" {
				t.Errorf("Reported (-want +got):\n%s", diff)
			}
		})
	}
}

func brief(conflicts map[string]Conflict) string {
	var all []string
	for _, id := range slices.Sorted(maps.Keys(conflicts)) {
		var names []string
		for _, m := range conflicts[id].Members {
			_, name, _ := strings.Cut(m, "/")
			names = append(names, name)
		}
		all = append(all, id+": "+strings.Join(names, " "))
	}
	return strings.Join(all, "; ")
}

func TestConflictError(t *testing.T) {
	cs := Conflicts([]*Mutator{at(t, ModifySet, "b", "spec.c", ""), at(t, Assign, "a", "spec.c[name: a]", "")})
	want := "the following mutators have conflicting schemas: [Assign.mutations.gatekeeper.sh /a,ModifySet.mutations.gatekeeper.sh /b]"
	if got := cs["Assign/a"].Error(); got != want {
		t.Errorf("Error() = %s\nwant %s", got, want)
	}
}

func BenchmarkConflicts(b *testing.B) {
	const kinds = "applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment, DaemonSet, StatefulSet, ReplicaSet]}, {groups: [''], versions: [v1], kinds: [Pod, ReplicationController]}]"
	for _, bb := range []struct{ name, location string }{
		{"none", "spec.containers[name: *].f%d"},
		{"all", "spec.containers[k%d: *].f"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			ms := make([]*Mutator, 1000)
			for i := range ms {
				ms[i] = at(b, Assign, fmt.Sprintf("m%d", i), fmt.Sprintf(bb.location, i), kinds)
			}
			b.ReportAllocs()
			for b.Loop() {
				Conflicts(ms)
			}
		})
	}
}
