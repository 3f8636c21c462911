package webhook

import (
	"slices"
	"strings"
)

// tally lists what some steps say of each actor, once and in the order of their first
// steps.
type tally[T interface{ name() actorName }] struct {
	list     []T
	last     int               // index in list of what find returned last
	unsorted bool              // list is not in the order of names
	at       map[actorName]int // index in list, if there are many and it is unsorted
}

// manyActors is how many names are compared one by one at most.
const manyActors = 16

// find returns the index in list of an actor, which is the list's length if the
// actor is new: then the caller has to append it. The steps of one actor follow each
// other, those of policies are in the order of names, and the second round has the
// order of the first, so the last or the next one is nearly always the right one, or
// a new one is greater than all.
func (t *tally[T]) find(name actorName) int {
	for i := t.last; i < len(t.list) && i < t.last+2; i++ {
		if t.list[i].name() == name {
			t.last = i
			return i
		}
	}
	t.last = t.search(name)
	return t.last
}

// search is find without a guess.
func (t *tally[T]) search(name actorName) int {
	if !t.unsorted {
		if n := len(t.list); n == 0 || t.list[n-1].name().compare(name) < 0 {
			return n
		}
		i, ok := slices.BinarySearchFunc(t.list, name, func(e T, name actorName) int { return e.name().compare(name) })
		if ok {
			return i
		}
		t.unsorted = true
	}
	if len(t.list) < manyActors {
		if i := slices.IndexFunc(t.list, func(e T) bool { return e.name() == name }); i >= 0 {
			return i
		}
		return len(t.list)
	}
	for i := len(t.at); i < len(t.list); i++ {
		if t.at == nil {
			t.at = make(map[actorName]int, 4*manyActors)
		}
		t.at[t.list[i].name()] = i
	}
	if i, ok := t.at[name]; ok {
		return i
	}
	return len(t.list)
}

func (n actorName) compare(m actorName) int {
	if c := strings.Compare(n.policy, m.policy); c != 0 {
		return c
	}
	return strings.Compare(n.binding, m.binding)
}
