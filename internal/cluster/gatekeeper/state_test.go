package gatekeeper

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
)

func mutator(kind, name string) MutatorState {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "mutations.gatekeeper.sh/v1", "kind": kind}}
	u.SetName(name)
	return MutatorState{Object: u}
}

func changed(m MutatorState, change func(*MutatorState)) MutatorState {
	change(&m)
	return m
}

func TestListing(t *testing.T) {
	conflict := legacy.Conflict{Members: []string{"Assign.mutations.gatekeeper.sh /c", "Assign.mutations.gatekeeper.sh /d"}}
	s := &State{
		Problems: []string{"Config gatekeeper-system/config is not valid:\n no"},
		Mutators: []MutatorState{
			changed(mutator("Assign", "a"), func(m *MutatorState) { m.Running = true }),
			changed(mutator("Assign", "b"), func(m *MutatorState) {
				m.Running, m.Err = true, &legacy.Error{Mutator: "Assign/b", Field: "spec.location", Err: errors.New("\n  bad  ")}
			}),
			changed(mutator("Assign", "c"), func(m *MutatorState) { m.Conflict = &conflict }),
			changed(mutator("Assign", "d"), func(m *MutatorState) { m.Running, m.Conflict = true, &conflict }),
			changed(mutator("AssignImage", "long.name"), func(m *MutatorState) {
				m.Err = &legacy.Error{Mutator: "AssignImage/long.name", Field: "spec.location", Err: errors.New("no")}
			}),
			changed(mutator("ModifySet", "x"), func(m *MutatorState) { m.Reason = "external data is not supported yet" }),
			changed(mutator("ModifySet", "y"), func(m *MutatorState) {
				m.Running, m.Notes = true, []legacy.Note{{Field: "spec.match", Message: "odd"}, {Field: "spec", Message: "too"}}
			}),
		},
	}
	list := s.Listing()
	want := map[string]string{
		"mode":     "on",
		"summary":  "7 mutators: 3 running, 1 outdated, 1 conflict, 1 off, 1 refused",
		"problems": "Config gatekeeper-system/config is not valid: no\n",
		"mutators": "Assign/a               running\n" +
			"Assign/b               outdated  the version before goes on to run: spec.location: bad\n" +
			"Assign/c               conflict  the following mutators have conflicting schemas: [Assign.mutations.gatekeeper.sh /c,Assign.mutations.gatekeeper.sh /d]\n" +
			"Assign/d               running\n" +
			"AssignImage/long.name  refused   spec.location: no\n" +
			"ModifySet/x            off       external data is not supported yet\n" +
			"ModifySet/y            running   spec.match: odd; spec: too\n",
		"report.json": `{"mode":"on","mutators":[{"id":"Assign/a","state":"running"},` +
			`{"id":"Assign/b","state":"outdated","text":"the version before goes on to run: spec.location: bad"},` +
			`{"id":"Assign/c","state":"conflict","text":"the following mutators have conflicting schemas: [Assign.mutations.gatekeeper.sh /c,Assign.mutations.gatekeeper.sh /d]"},` +
			`{"id":"Assign/d","state":"running"},{"id":"AssignImage/long.name","state":"refused","text":"spec.location: no"},` +
			`{"id":"ModifySet/x","state":"off","text":"external data is not supported yet"},` +
			`{"id":"ModifySet/y","state":"running","text":"spec.match: odd; spec: too"}],` +
			`"problems":["Config gatekeeper-system/config is not valid: no"]}`,
	}
	if diff := cmp.Diff(want, list.Data()); diff != "" {
		t.Errorf("data (- want):\n%s", diff)
	}
	var bad []string
	for _, l := range ReadMutators(list.Data()).Lines {
		if Bad(l) {
			bad = append(bad, l.ID)
		}
	}
	if diff := cmp.Diff([]string{"Assign/b", "Assign/c", "AssignImage/long.name", "ModifySet/x"}, bad); diff != "" {
		t.Errorf("what does not do what it says (- want):\n%s", diff)
	}
	if got := (&State{Mode: api.Shadow}).Listing().Data(); !cmp.Equal(got, map[string]string{"mode": "shadow", "summary": "0 mutators", "mutators": "", "report.json": `{"mode":"shadow"}`}) {
		t.Errorf("no mutators in shadow: %v", got)
	}
}
