package webhook

import (
	"slices"
	"strings"
)

// tally collects something about each actor of some steps, once for each actor and in the order
// of their first steps.
type tally[T interface{ name() actorName }] struct {
	list     []T
	last     int               // index in list that find returned last
	unsorted bool              // list is not sorted by name
	at       map[actorName]int // index in list by name; used if list is long and not sorted
}

// manyActors is up to how many names are compared one by one.
const manyActors = 16

// find returns the index of an actor in list. If the actor is new, that is the length of list,
// and the caller has to append it. The steps of one actor are consecutive, those of policies
// are sorted by name, and the second round has the order of the first. So it is nearly always
// the last index or the next one, or the actor is new and greater than all.
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

// search is find without trying the last and the next index.
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
