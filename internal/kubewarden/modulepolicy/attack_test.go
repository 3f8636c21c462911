package modulepolicy_test

import (
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/test/guest"
)

// A module is a stranger's program: whatever it answers, the request ends with an error
// of its policy or of its memory, and the next one is as before.
func TestAttacks(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)
	wide := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","annotations":{` + strings.TrimSuffix(strings.Repeat(`"a":"",`, 50_000), ",") + `}}}`
	tests := map[string]struct {
		answers guest.Answers
		want    string // part of the error, or of the status
	}{
		"nested without end":        {guest.Answers{Validate: `{"accepted":true,"mutated_object":` + deep + `}`}, "invalid response from policy"},
		"half a million nodes":      {guest.Answers{Validate: `{"accepted":true,"mutated_object":{"apiVersion":"v1","kind":"Pod","spec":{"x":[` + strings.Repeat("0,", 500_000) + `0]}}}`}, "mutated_object: "},
		"a kind of its own":         {guest.Answers{Validate: `{"accepted":true,"mutated_object":{"apiVersion":"v1","kind":7}}`}, "another kind"},
		"fields given twice":        {guest.Answers{Validate: `{"accepted":true,"mutated_object":` + wide + `}`}, ""},
		"numbers beyond all bounds": {guest.Answers{Validate: `{"accepted":true,"mutated_object":{"apiVersion":"v1","kind":"Pod","spec":{"priority":1e400}}}`}, "invalid response from policy"},
		"an integer that overflows": {guest.Answers{Validate: `{"accepted":true,"mutated_object":{"apiVersion":"v1","kind":"Pod","spec":{"priority":5000000000}}}`}, "priority"},
		"a long message":            {guest.Answers{Validate: `{"accepted":false,"message":"` + strings.Repeat("x", 200_000) + `"}`}, "xxx…"},
		"an endless loop":           {guest.Answers{Spin: true}, "exceeded the allowed execution time"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e, errs := load(t, tt.answers, nil)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			for range 2 {
				req := request(t)
				budget := memory.New(1 << 30)
				req.Memory = budget.Open()
				d := e.Admit(t.Context(), req)
				req.Memory.Close()
				if tt.want == "" {
					continue
				}
				if d.Status == nil || !strings.Contains(d.Status.Message, tt.want) || d.Changed {
					t.Fatalf("status %.300v, want %s", d.Status, tt.want)
				}
				if len(d.Status.Message) > 8<<10 {
					t.Errorf("the client gets %d bytes", len(d.Status.Message))
				}
			}
		})
	}
}

// The memory of a module and what its answer becomes count as the request's.
func TestMemoryIsCharged(t *testing.T) {
	e, errs := load(t, guest.Answers{Validate: `{"accepted":true,"message":"` + strings.Repeat("x", 100_000) + `"}`}, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	req := request(t)
	req.Memory = memory.New(2 << 20).Open()
	defer req.Memory.Close()
	if d := e.Admit(t.Context(), req); d.Status == nil || d.Status.Code != 413 && d.Status.Code != 429 {
		t.Errorf("status %v", d.Status)
	}
}
