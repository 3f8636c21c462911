package direct

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// System is a set of mutators, in any order. Those that are Off do not run, but
// count for the bound of passes.
type System struct {
	Mutators []*legacy.Mutator
	Off      map[string]bool // by Mutator.ID
}

// Result is what became of an object.
type Result struct {
	// Object is the input itself if nothing changed, or after an error.
	Object map[string]any
	// Passes counts them up to the one that found nothing more to change, or that
	// failed; it is 0 if already the first changed nothing.
	Passes int
	// Mutated says that something changed, be it from 1 to 1.0.
	Mutated bool
	// Touched lists for each pass that changed something who was at work, by
	// Mutator.ID and in order. Some of them may not have changed anything.
	Touched [][]string
}

// Mutate runs the mutators in passes, each in order, until a pass changes nothing
// (Gatekeeper spec §8.2). Every error refuses the request. obj is not modified.
func (s *System) Mutate(obj map[string]any, c Context) (Result, error) {
	mutators := s.Mutators
	if !slices.IsSortedFunc(mutators, legacy.Compare) {
		mutators = slices.SortedFunc(slices.Values(mutators), legacy.Compare)
	}
	result := Result{Object: obj}
	now := runtime.DeepCopyJSON(obj)
	for pass := 1; pass <= len(mutators)+1; pass++ {
		before := runtime.DeepCopyJSON(now)
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

// pass runs each mutator once on obj, in place. Each is asked whether it matches
// what those before it have made.
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
		if ok, err = apply(m, obj, c); err != nil {
			return nil, err
		}
		if ok {
			touched = append(touched, m.ID())
		}
	}
	return touched, nil
}
