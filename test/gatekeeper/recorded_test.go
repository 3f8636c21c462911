package gatekeeper

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var recordings = []string{"assign", "assignimage", "assignmetadata", "corpus", "match", "modifyset", "system"}

// The harness gives what was recorded: it is Gatekeeper.
func TestRecorded(t *testing.T) {
	n := 0
	for _, name := range recordings {
		all, err := recorded(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			n++
			t.Run(name+"/"+c.Name, func(t *testing.T) { testRecorded(t, c) })
		}
	}
	t.Logf("%d recorded cases", n)
}

func testRecorded(t *testing.T, c recordedCase) {
	g := New(c.Mutators)
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
	if d := cmp.Diff(plain(t, c.result), plain(t, got)); d != "" {
		t.Errorf("(-recorded +harness):\n%s", d)
	}
}

// plain is v after a way through JSON, where 1 and 1.0 are the same.
func plain(t testing.TB, v any) any {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
