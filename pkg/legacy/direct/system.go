package direct

import (
	"fmt"
	"slices"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// System is a set of mutators, in any order. Mutators in Off do not run, but count for the
// bound on the number of passes.
type System struct {
	Mutators []*legacy.Mutator
	Off      map[string]bool // by Mutator.ID
}

// Result is the outcome of a mutation.
type Result struct {
	// Object is the input itself if nothing changed, or after an error.
	Object map[string]any
	// Passes counts the passes up to the one that changed nothing or failed. It
	// is 0 if the first one changed nothing.
	Passes int
	// Mutated reports a change, even one from 1 to 1.0.
	Mutated bool
	// Touched lists, for each pass that changed something, the mutators that reached the end of
	// their location, by Mutator.ID and in order. Some of them may have changed nothing.
	Touched [][]string
}

// Mutate runs the mutators in passes, each in order, until a pass changes nothing (Gatekeeper
// spec §8.2). Every error refuses the request. obj is not modified. The result has a Pending
// for each value of external data.
func (s *System) Mutate(obj map[string]any, c Context) (Result, error) {
	mutators := s.Mutators
	if !slices.IsSortedFunc(mutators, legacy.Compare) {
		mutators = slices.SortedFunc(slices.Values(mutators), legacy.Compare)
	}
	result := Result{Object: obj}
	now := deepCopy(obj)
	for pass := 1; pass <= len(mutators)+1; pass++ {
		before := deepCopy(now)
		touched, err := s.pass(mutators, now, c)
		if err != nil {
			result.Passes = pass
			return result, err
		}
		if tree.Equal(before, now) {
			if pass > 1 {
				result.Object, result.Passes, result.Mutated = now, pass, true
			}
			return result, nil
		}
		result.Touched = append(result.Touched, touched)
	}
	result.Passes = len(mutators) + 1
	return result, fmt.Errorf("mutation not converging: mutation %s not converging for %s", c.UID, describe(now))
}

// pass runs each mutator once on obj, in place. Each is matched against the result of those
// before it.
func (s *System) pass(mutators []*legacy.Mutator, obj map[string]any, c Context) (touched []string, err error) {
	for _, m := range mutators {
		if s.Off[m.ID()] {
			continue
		}
		ok, err := Matches(m, obj, c)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if _, ok, err = apply(m, obj, c, false); err != nil {
			return nil, err
		}
		if ok {
			touched = append(touched, m.ID())
		}
	}
	return touched, nil
}
