package gatekeeper

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var recordings = []string{"assign", "assignimage", "assignmetadata", "corpus", "external", "match", "modifyset", "system"}

// The harness gives what was recorded: it is Gatekeeper.
func TestRecorded(t *testing.T) {
	n := 0
	for _, name := range recordings {
		all, err := recorded(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			t.Errorf("%s has no cases", name)
		}
		for _, c := range all {
			n++
			t.Run(name+"/"+c.Name, func(t *testing.T) { testRecorded(t, c) })
		}
	}
	t.Logf("%d recorded cases", n)
}

func testRecorded(t *testing.T, c recordedCase) {
	g := New(c.Mutators, c.providers)
	for what, d := range map[string]string{
		"refused":   cmp.Diff(c.refused, g.Refused, cmpopts.EquateEmpty()),
		"conflicts": cmp.Diff(c.conflicts, g.Conflicts, cmpopts.EquateEmpty()),
	} {
		if d != "" {
			t.Errorf("%s (-recorded +harness):\n%s", what, d)
		}
	}
	if c.Request.Object == nil {
		return
	}
	got, err := g.Mutate(t.Context(), c.Request)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(c.result, got); d != "" {
		t.Errorf("(-recorded +harness):\n%s", d)
	}
}
