package verify

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

// library are the mutators of Gatekeeper's library and documentation that come to
// act on requests.
func library(t *testing.T) []*legacy.Mutator {
	t.Helper()
	var out []*legacy.Mutator
	for _, prefix := range []string{"lib", "doc", "e2e", "demo"} {
		files, err := filepath.Glob("../../../test/gatekeeper/testdata/corpus/" + prefix + "-*.yaml")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", prefix, len(files), err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range mutators(t, string(data)) {
				if m.Name != "conflict" { // of a field that no Service can have
					out = append(out, m)
				}
			}
		}
	}
	return out
}

// The situations that generated objects are to be in, by what a mutator has.
const (
	parentMissing = "a parent is missing"
	aNull         = "a null on the way, or there"
	emptyOnWay    = "an empty list or object on the way"
	noElement     = "no element of that key"
	twoOfAKey     = "two elements of that key"
	twiceInSet    = "a value twice in the set"
	otherType     = "another type on the way, or there"
	valueMissing  = "no value there"
	valueThere    = "a value there"
	anUpdate      = "an update of something else"
	inDefault     = "in the namespace default"
	elsewhere     = "in another namespace, or in none"
	isChanged     = "changed by Gatekeeper"
	leftAlone     = "left alone by Gatekeeper"
)

// situations are those that generated objects can be in for a mutator.
func situations(m *legacy.Mutator) []string {
	all := []string{valueMissing, valueThere, anUpdate, isChanged, leftAlone, inDefault, elsewhere}
	if depth := len(m.Location); depth > 1 && m.Location[0].Name != "metadata" || depth > 2 {
		all = append(all, aNull)
	}
	if len(m.Location) > 2 && m.Location[0].Name != "metadata" {
		all = append(all, parentMissing, emptyOnWay)
	}
	for _, n := range m.Location {
		if n.List {
			all = append(all, twoOfAKey)
			if !n.Glob {
				all = append(all, noElement)
			}
		}
	}
	if m.Set != nil {
		all = append(all, twiceInSet)
	}
	return all
}

// Of every mutator that people use, the objects that are made for it go every way
// that its location can go, and often enough that chance is not at work.
func TestGenerateForTheLibrary(t *testing.T) {
	hammer.Alone(t)
	const n, enough = 300, 3
	total := map[string]int{}
	ms := library(t)
	for _, m := range ms {
		seen := map[string]int{}
		side := newMutatorSide([]*legacy.Mutator{m}, []*legacy.Mutator{m}, nil, nil)
		for _, o := range Generate([]*legacy.Mutator{m}, types(), DefaultSeed, n) {
			s := survey{seen: map[string]bool{}}
			s.walk(o.Object, m, 0)
			r := requests(types(), o)[0]
			if r == nil {
				// Such an object counts for what its kind does not allow, and no more.
				if s.seen[otherType] {
					seen[otherType]++
				}
				continue
			}
			got := side.run(t.Context(), r)
			s.is(isChanged, got.Refused == "" && !equalJSON(got.Object, r.object))
			s.is(leftAlone, got.Refused == "" && equalJSON(got.Object, r.object))
			s.is(anUpdate, o.Operation == update && !equalJSON(o.Old, o.Object))
			s.is(inDefault, r.namespaceName() == "default")
			s.is(elsewhere, r.namespaceName() != "default")
			for what := range s.seen {
				seen[what]++
			}
		}
		for _, what := range situations(m) {
			if seen[what] < enough {
				t.Errorf("%s: %s: %d of %d objects", m.ID(), what, seen[what], n)
			}
		}
		for what, k := range seen {
			total[what] += k
		}
	}
	// Built-in kinds allow little of it: enough for all together.
	if total[otherType] < enough {
		t.Errorf("%s: %d objects", otherType, total[otherType])
	}
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(total)) {
		lines = append(lines, fmt.Sprintf("%6d %s", total[what], what))
	}
	t.Logf("%d objects each for %d mutators:\n%s", n, len(ms), strings.Join(lines, "\n"))
}

// survey is what is found on the way of a location.
type survey struct{ seen map[string]bool }

func (s survey) is(what string, is bool) {
	if is {
		s.seen[what] = true
	}
}

func (s survey) walk(v any, m *legacy.Mutator, depth int) {
	last := depth == len(m.Location)
	s.is(aNull, v == nil)
	if last {
		s.is(valueThere, v != nil)
		set, _ := v.([]any)
		for i, e := range set {
			s.is(twiceInSet, slices.ContainsFunc(set[:i], func(o any) bool { return tree.Equal(o, e) }))
		}
		return
	}
	n := m.Location[depth]
	switch v := v.(type) {
	case map[string]any:
		s.is(otherType, n.List)
		s.is(emptyOnWay, len(v) == 0)
		child, there := v[n.Name]
		switch {
		case n.List:
		case there:
			s.walk(child, m, depth+1)
		case depth+1 == len(m.Location):
			s.is(valueMissing, true)
		default:
			s.is(parentMissing, true)
		}
	case []any:
		s.is(otherType, !n.List)
		s.is(emptyOnWay, len(v) == 0)
		s.elements(v, m, depth)
	default:
		s.is(otherType, v != nil)
	}
}

func (s survey) elements(l []any, m *legacy.Mutator, depth int) {
	n := m.Location[depth]
	keys := map[any]int{}
	for _, e := range l {
		o, ok := e.(map[string]any)
		s.is(otherType, !ok)
		if key, there := o[n.Name].(string); there {
			keys[key]++
		}
		if ok && (n.Glob || o[n.Name] == n.Value) {
			s.walk(o, m, depth+1)
		}
	}
	for key, times := range keys {
		s.is(twoOfAKey, times > 1 && (n.Glob || key == n.Value))
	}
	if !n.Glob && keys[fmt.Sprint(n.Value)] == 0 {
		s.is(noElement, true)
		s.is(valueMissing, depth == len(m.Location)-1)
	}
}
