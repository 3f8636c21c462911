package direct

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

// outcome is the result of the passes over an object.
type outcome struct {
	obj    map[string]any
	passes int
	err    string
	runs   int // how often a mutator was asked
}

// passes runs mutators until nothing changes. In the first pass each of them
// runs, later only those that wakes names for a change since they last ran.
//
// It is the loop of mapd's engine, which differs from Gatekeeper's in two things
// besides: places never share a value, and nothing is created to be pruned.
func passes(ms []*legacy.Mutator, off map[string]legacy.Conflict, obj map[string]any, wakes func(a, b *legacy.Mutator) bool) outcome {
	c := Context{Operation: "CREATE", Source: "Original"}
	awake := make([]bool, len(ms))
	for i := range awake {
		awake[i] = true
	}
	runs := 0
	for pass := 1; pass <= len(ms)+1; pass++ {
		before := obj
		for i, m := range ms {
			if _, ok := off[m.ID()]; ok || !awake[i] {
				continue
			}
			runs++
			awake[i] = false
			ok, err := Matches(m, obj, c)
			next := obj
			if err == nil && ok {
				next, _, err = Apply(pruneWhatIs(m), obj, c)
			}
			if err != nil {
				return outcome{obj, pass, err.Error(), runs}
			}
			if tree.Equal(obj, next) {
				continue
			}
			obj = next
			for j, other := range ms {
				awake[j] = awake[j] || wakes(m, other)
			}
		}
		if tree.Equal(before, obj) {
			return outcome{obj, pass, "", runs}
		}
	}
	return outcome{obj, len(ms) + 1, "not converging", runs}
}

// pruneWhatIs is the mutator, but if it prunes, only where there is something.
func pruneWhatIs(m *legacy.Mutator) *legacy.Mutator {
	if m.Set == nil || !m.Set.Prune {
		return m
	}
	last := len(m.Location) - 1
	test, ok := m.Test(last)
	if !ok {
		test = legacy.MustExist
	} else if test == legacy.MustNotExist {
		test = "never"
	}
	existing := *m
	existing.Tests = append(slices.DeleteFunc(slices.Clone(m.Tests), func(t legacy.PathTest) bool { return t.Depth == last }),
		legacy.PathTest{Depth: last, Condition: test})
	return &existing
}

// describeAll is for a person who wants to see why.
func describeAll(t *testing.T, ms []*legacy.Mutator, obj map[string]any) string {
	var b strings.Builder
	for _, m := range ms {
		fmt.Fprintf(&b, "%s %s tests %v", m.ID(), m.Location, m.Tests)
		switch {
		case m.From != nil:
			fmt.Fprintf(&b, " = %v", m.From.Value)
		case m.Set != nil:
			fmt.Fprintf(&b, " %+v", *m.Set)
		case m.Image != nil:
			fmt.Fprintf(&b, " %+v", *m.Image)
		}
		fmt.Fprintf(&b, " match %+v applyTo %v\n", m.Match, m.ApplyTo)
	}
	for _, x := range ms {
		for _, y := range ms {
			if legacy.Affects(x, y) {
				fmt.Fprintf(&b, "%s affects %s\n", x.ID(), y.ID())
			}
		}
	}
	return b.String() + text(t, obj)
}

// Running again only those that Affects names gives what running all does. This
// is what the engine's passes rely on.
func TestAffectsWakesAllThatMatters(t *testing.T) {
	hammer.Alone(t)
	var all, woken int
	for seed := range uint64(50_000) {
		want, got := checkWakes(t, seed)
		all, woken = all+want.runs, woken+got.runs
	}
	if woken >= all*9/10 {
		t.Errorf("of %d runs, %d remain: nothing is spared", all, woken)
	}
}

// A location that leads into the key of an element, which is never missing: the
// mutator stops at its test, until what the other one writes is of a type that
// makes it fail before it gets there.
func TestAffectsWhoStopsAtAKey(t *testing.T) {
	stops := assignTo("a.a[b: v].a[a: 1].a[a: v]", map[string]any{"a": "v"}, mustNot(5))
	writes := named("b", assignTo("a", []any{}, mustNot(0)))
	if !legacy.Affects(writes, stops) {
		t.Errorf("Affects(%s, %s) = false", writes.Location, stops.Location)
	}
}

func FuzzAffects(f *testing.F) {
	f.Add(uint64(50_001))
	f.Fuzz(func(t *testing.T, seed uint64) {
		checkWakes(t, seed)
	})
}

// checkWakes compares passes of all mutators with passes of those that were woken,
// and returns both; before it reports a difference it looks for a smaller set of
// mutators that still makes one.
func checkWakes(t *testing.T, seed uint64) (want, got outcome) {
	t.Helper()
	everybody := func(_, _ *legacy.Mutator) bool { return true }
	d := dice{rand.New(rand.NewPCG(seed, 0))}
	ms := d.mutators()
	obj := d.object(ms)
	differ := func(ms []*legacy.Mutator) bool {
		off := legacy.Conflicts(ms)
		want, got = passes(ms, off, obj, everybody), passes(ms, off, obj, legacy.Affects)
		return want.err != got.err || want.passes != got.passes || !tree.Equal(want.obj, got.obj)
	}
	if !differ(ms) {
		return want, got
	}
	for i := 0; i < len(ms); {
		if fewer := slices.Delete(slices.Clone(ms), i, i+1); differ(fewer) {
			ms, i = fewer, 0
			continue
		}
		i++
	}
	differ(ms)
	t.Errorf("seed %d: all: %d passes, %s, %q\nwoken: %d passes, %s, %q\nof\n%s",
		seed, want.passes, text(t, want.obj), want.err, got.passes, text(t, got.obj), got.err, describeAll(t, ms, obj))
	return want, got
}
