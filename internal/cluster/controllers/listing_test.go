package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
)

func templateState(name string, err error, cycle bool) store.TemplateState {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "expansion.gatekeeper.sh/v1beta1", "kind": "ExpansionTemplate"}}
	u.SetName(name)
	return store.TemplateState{Object: u, Err: err, Cycle: cycle}
}

// Templates that do nothing are listed with the reason, and with what else is wrong.
func TestExpansionListing(t *testing.T) {
	if _, ok := expansionListing.now(nil); ok {
		t.Error("something to write before anything has been read")
	}
	if _, ok := expansionListing.now(&store.Snapshot{}); ok {
		t.Error("something to write before the templates have been read")
	}
	circle := errors.New(expand.ErrCycle + ": a, long-name")
	now, ok := expansionListing.now(&store.Snapshot{Expansion: &store.ExpansionState{
		Templates: []store.TemplateState{
			templateState("a", circle, true), templateState("apps", nil, false), templateState("long-name", circle, true), templateState("wrong", errors.New("is\nwrong"), false),
		},
		Problems: []string{"ValidatingAdmissionPolicy p has no effect: x"},
	}})
	want := map[string]string{
		"summary": "4 templates: 1 running, 2 cycle, 1 refused",
		"templates": `a          cycle    template forms expansion cycle: a, long-name
apps       running
long-name  cycle    template forms expansion cycle: a, long-name
wrong      refused  is wrong
`,
		"problems": "ValidatingAdmissionPolicy p has no effect: x\n",
	}
	if diff := cmp.Diff(want, expansionListing.data(now)); !ok || diff != "" {
		t.Errorf("data (- want):\n%s", diff)
	}
	var bad []string
	for _, l := range now.lines {
		if l.bad {
			bad = append(bad, l.id)
		}
	}
	if diff := cmp.Diff([]string{"a", "long-name", "wrong"}, bad); diff != "" {
		t.Errorf("events about (- want):\n%s", diff)
	}
}

// A ConfigMap has room for about 1 MiB.
func TestListingIsBounded(t *testing.T) {
	var now listed
	for i := range 20_000 {
		now.lines = append(now.lines, listedObject{id: fmt.Sprint(i), state: templateRefused, text: strings.Repeat("x", 1000)})
		now.problems = append(now.problems, strings.Repeat("é", 1000))
	}
	size := 0
	for _, text := range expansionListing.data(now) {
		size += len(text)
	}
	if size > 1_000_000 {
		t.Errorf("%d bytes", size)
	}
}
