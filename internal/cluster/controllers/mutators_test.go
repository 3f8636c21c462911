package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

func mutator(kind, name string) store.MutatorState {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "mutations.gatekeeper.sh/v1", "kind": kind}}
	u.SetName(name)
	return store.MutatorState{Object: u}
}

func changed(m store.MutatorState, change func(*store.MutatorState)) store.MutatorState {
	change(&m)
	return m
}

func TestListOf(t *testing.T) {
	conflict := legacy.Conflict{Members: []string{"Assign.mutations.gatekeeper.sh /c", "Assign.mutations.gatekeeper.sh /d"}}
	s := &store.MutatorsState{
		Problems: []string{"Config gatekeeper-system/config is not valid:\n no"},
		Mutators: []store.MutatorState{
			changed(mutator("Assign", "a"), func(m *store.MutatorState) { m.Running = true }),
			changed(mutator("Assign", "b"), func(m *store.MutatorState) {
				m.Running, m.Err = true, &legacy.Error{Mutator: "Assign/b", Field: "spec.location", Err: errors.New("\n  bad  ")}
			}),
			changed(mutator("Assign", "c"), func(m *store.MutatorState) { m.Conflict = &conflict }),
			changed(mutator("Assign", "d"), func(m *store.MutatorState) { m.Running, m.Conflict = true, &conflict }),
			changed(mutator("AssignImage", "long.name"), func(m *store.MutatorState) {
				m.Err = &legacy.Error{Mutator: "AssignImage/long.name", Field: "spec.location", Err: errors.New("no")}
			}),
			changed(mutator("ModifySet", "x"), func(m *store.MutatorState) { m.Reason = "external data is not supported yet" }),
			changed(mutator("ModifySet", "y"), func(m *store.MutatorState) {
				m.Running, m.Notes = true, []legacy.Note{{Field: "spec.match", Message: "odd"}, {Field: "spec", Message: "too"}}
			}),
		},
	}
	list := ListMutators(s, nil)
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
	if diff := cmp.Diff(want, list.data()); diff != "" {
		t.Errorf("data (- want):\n%s", diff)
	}
	if diff := cmp.Diff(list, ReadMutators(list.data())); diff != "" {
		t.Errorf("ReadMutators (- written):\n%s", diff)
	}
	if got := ReadMutators(map[string]string{"mode": "shadow"}); got.Mode != "shadow" {
		t.Errorf("of an older release: mode %q", got.Mode)
	}
	if got := ListMutators(&store.MutatorsState{Mode: api.Shadow}, nil).data(); !cmp.Equal(got, map[string]string{"mode": "shadow", "summary": "0 mutators", "report.json": `{"mode":"shadow"}`}) {
		t.Errorf("no mutators in shadow: %v", got)
	}
}

// An object that is too large would be refused, and nobody would know anything.
func TestListIsBounded(t *testing.T) {
	s := &store.MutatorsState{}
	for i := range 10_000 {
		s.Mutators = append(s.Mutators, changed(mutator("Assign", fmt.Sprint("m", i)), func(m *store.MutatorState) {
			m.Err = errors.New(strings.Repeat("ü", 1000))
		}))
	}
	data := ListMutators(s, nil).data()
	text := data[keyMutators]
	if size := len(text) + len(data[keyReport]); size > maxList+8*maxListLine || !strings.Contains(text, "\nand ") {
		t.Errorf("%d bytes, ending in %q", size, text[len(text)-50:])
	}
	if n := len(ReadMutators(data).Mutators); n != strings.Count(text, "\n")-1 {
		t.Errorf("%d mutators for programs, other than for people", n)
	}
}

// As long as mutators have not been read, their entry stays what it is.
func TestLegacyEntryStays(t *testing.T) {
	w := New(Options{Namespace: "own", Service: "mapd", Mutators: true})
	rules := []admissionregistrationv1.RuleWithOperations{rule("CREATE", "", "pods")}
	var live []entry
	c := &configuration{name: webhookconfig.ConfigurationName, get: func() (metav1.ObjectMeta, []entry, bool) { return metav1.ObjectMeta{}, live, true }}
	for _, step := range []struct {
		name     string
		snapshot *store.Snapshot
		want     []string
	}{
		{"not read, and there is no entry", &store.Snapshot{}, []string{}},
		{"read", &store.Snapshot{Mutators: &store.MutatorsState{Rules: rules}}, []string{"legacy.mapd.dev"}},
		{"not read", &store.Snapshot{}, []string{"legacy.mapd.dev"}},
		{"none runs", &store.Snapshot{Mutators: &store.MutatorsState{}}, []string{}},
	} {
		w.derive([]*configuration{c}, w.askedBy(step.snapshot), []byte("ca"), true)
		if got := names(c.desired); !cmp.Equal(got, step.want) {
			t.Errorf("%s: entries %v, want %v", step.name, got, step.want)
		}
		live = c.desired
	}
}

// The entry for workloads is there with the flag only, and stays while it is unknown what
// is expanded.
func TestExpansionEntry(t *testing.T) {
	rules := []admissionregistrationv1.RuleWithOperations{rule("CREATE", "apps", "deployments")}
	validation := []string{"params.validate.mapd.dev", "validate.mapd.dev"}
	for _, on := range []bool{true, false} {
		w := New(Options{Namespace: "own", Service: "mapd", Exempt: []string{"kube-system"}, Expansion: on})
		var live []entry
		c := &configuration{name: webhookconfig.ValidationName, validating: true, get: func() (metav1.ObjectMeta, []entry, bool) { return metav1.ObjectMeta{}, live, true }}
		with := validation
		if on {
			with = append(validation[:2:2], "expand.mapd.dev")
		}
		for _, step := range []struct {
			name     string
			snapshot *store.Snapshot
			want     []string
		}{
			{"unknown, and there is no entry", &store.Snapshot{}, validation},
			{"known", &store.Snapshot{Expansion: &store.ExpansionState{Rules: rules}}, with},
			{"unknown", &store.Snapshot{}, with},
		} {
			w.derive([]*configuration{c}, w.askedBy(step.snapshot), []byte("ca"), true)
			if got := names(c.desired); !cmp.Equal(got, step.want) {
				t.Errorf("expansion %t: %s: entries %v, want %v", on, step.name, got, step.want)
			}
			live = c.desired
		}
		if e := live[len(live)-1]; on && (*e.FailurePolicy != admissionregistrationv1.Ignore || *e.ClientConfig.Service.Path != webhook.ExpandPath ||
			len(e.NamespaceSelector.MatchExpressions) != 1 || string(e.ClientConfig.CABundle) != "ca") {
			t.Errorf("entry %+v", e)
		}
	}
}
