package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/operate/replicas"
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

// A row counts the requests of one mode: those of earlier modes are apart, and those that a
// share leaves out are counted.
func TestRolloutStatusOfModes(t *testing.T) {
	counted := func(policy, binding, mode string, c history.Counts) history.Counted {
		return history.Counted{Pair: history.Pair{Policy: policy, Binding: binding}, Mode: mode, Counts: c}
	}
	last := counted("team", "pilot", "enforce", history.Counts{Seen: 2, Changed: 2, LeftOut: 7})
	last.Last = &history.Example{Kind: "Pod", Namespace: "shop", Name: "web", Fields: []string{"/metadata/labels/example.com~1team", "/spec/containers/0/image"}}
	answers := []replicas.Answer[history.CountsAnswer]{
		{Value: history.CountsAnswer{Counts: []history.Counted{
			counted("team", "pilot", "shadow", history.Counts{Seen: 30, Would: 20}), last, counted("Assign/a", "", "shadow", history.Counts{Seen: 1, Would: 1}),
		}}},
		{Value: history.CountsAnswer{Counts: []history.Counted{
			counted("team", "pilot", "shadow", history.Counts{Seen: 20, Would: 10}), counted("team", "pilot", "enforce", history.Counts{Seen: 1, Changed: 1, LeftOut: 3}),
			counted("none", "tenth", "enforce", history.Counts{LeftOut: 30}), counted("old", "old", "", history.Counts{Seen: 4}),
		}}},
	}
	bindings := []rolloutBinding{
		{Pair: history.Pair{Policy: "team", Binding: "pilot"}, Mode: "enforce", Percent: "10"}, {Pair: history.Pair{Policy: "none", Binding: "tenth"}, Mode: "enforce", Percent: "10"},
		{Pair: history.Pair{Policy: "old", Binding: "old"}, Mode: "warn", Percent: "100"},
	}
	var text strings.Builder
	out := rolloutStatusOutput{Bindings: withCounts(bindings, answers, "")}
	if err := out.table(&text); err != nil {
		t.Fatal(err)
	}
	want := `POLICY    BINDING  MODE              PERCENT  LEFT-OUT  SEEN  WOULD  CHANGED  FAILED  LAST
Assign/a  -        shadow            -        0         1     1      0        0       -
none      tenth    enforce           10       30        0     0      0        0       -
old       old      warn              100      0         0     0      0        0       -
old       old      - (earlier)       -        0         4     0      0        0       -
team      pilot    enforce           10       10        3     0      3        0       Pod shop/web: metadata.labels[example.com/team] and 1 more
team      pilot    shadow (earlier)  -        0         50    30     0        0       -
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	json, err := marshal(out.Bindings[3], "")
	if err != nil {
		t.Fatal(err)
	}
	const machine = `{"policy":"team","binding":"pilot","mode":"enforce","percent":"10","seen":3,"changed":3,"leftOut":10,` +
		`"last":{"time":"0001-01-01T00:00:00Z","kind":"Pod","namespace":"shop","name":"web","fields":["/metadata/labels/example.com~1team","/spec/containers/0/image"]},` +
		`"earlier":[{"mode":"shadow","seen":50,"would":30}]}`
	if diff := cmp.Diff(machine, strings.TrimSpace(string(json))); diff != "" {
		t.Errorf("json (-want +got):\n%s", diff)
	}
	// Only who has exceptions sees a column more.
	excepted := rolloutStatusOutput{Bindings: []rolloutBinding{{Pair: history.Pair{Policy: "team", Binding: "pilot"}, Mode: "enforce", Percent: "100", Counts: history.Counts{Seen: 3, Excepted: 4}}}}
	text.Reset()
	if err := excepted.table(&text); err != nil {
		t.Fatal(err)
	}
	const wide = `POLICY  BINDING  MODE     PERCENT  LEFT-OUT  EXCEPTED  SEEN  WOULD  CHANGED  FAILED  LAST
team    pilot    enforce  100      0         4         3     0      0        0       -
`
	if diff := cmp.Diff(wide, text.String()); diff != "" {
		t.Errorf("table with exceptions (-want +got):\n%s", diff)
	}
	if one := withCounts(nil, answers, "Assign/a"); len(one) != 1 || one[0].Mode != "shadow" {
		t.Errorf("of one policy: %+v", one)
	}
}
