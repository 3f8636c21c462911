package cel

import (
	"errors"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

// The memory of loops is counted exactly, so that an evaluation near the bound has the same
// outcome each time, on each replica.
func TestMemoryIsExact(t *testing.T) {
	hammer.Alone(t)
	const turns = 700 // some twenty of the random samples that work is counted by
	const expr = `[1, 2, 3, 4, 5, 6, 7].map(a, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(b, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(c, string(a) + string(b) + string(c)).size())).size() == 7`
	s := testScope(t, Vars{}, nil)
	program, err := s.Compile(expr, Bool)
	if err != nil {
		t.Fatal(err)
	}
	run := func(made int64) (int64, error) {
		a := s.Bind(&Input{Object: map[string]any{}}, nil)
		a.begin(t.Context())
		a.made = made
		err := program.outcome(a).err
		return a.made - made, err
	}
	needed, err := run(0)
	if err != nil || needed < turns {
		t.Fatalf("%d bytes, %v", needed, err)
	}
	for range 50 {
		if got, err := run(0); got != needed || err != nil {
			t.Fatalf("%d bytes and %v, and %d before", got, err, needed)
		}
		if _, err := run(MaxMemory - needed); err != nil {
			t.Fatalf("at the bound: %v", err)
		}
		if _, err := run(MaxMemory - needed + 1); !errors.Is(err, errMemory) {
			t.Fatalf("beyond the bound: %v", err)
		}
	}
}
