// Package lookup answers one question: which of many items, each with conditions
// on labels, may apply to a request?
//
// An item states its Needs: the labels that a request must have, each with one of some values.
// A Table files an item under the rarest of them, so that Find reads only the few items that
// are filed under a label of the request. An item that Find returns may apply, and the caller
// has to test whether it does; an item that it does not return cannot apply.
package lookup

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Place says where a label is read from.
type Place uint8

const (
	Namespace Place = iota // the labels of the request's namespace
	Object                 // the labels of the object, or of the old one
	Name                   // names of any kind, as values of keys that the caller chooses
	places
)

// Need is a label without which an item cannot apply.
type Need struct {
	Place Place
	Key   string
	// Values are the allowed values of the label; nil allows any.
	Values []string
}

// Needs appends the labels that a selector requires to needs. NotIn and DoesNotExist require no
// label, nor does a nil selector, which selects everything.
func Needs(needs []Need, place Place, s labels.Selector) []Need {
	if s == nil {
		return needs
	}
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			needs = append(needs, Need{place, r.Key(), r.ValuesUnsorted()})
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			needs = append(needs, Need{place, r.Key(), nil})
		}
	}
	return needs
}

// Unmet returns the first requirement of a selector that labels do not satisfy, and what
// they have for its key, as texts: "env=prod" and "env=dev", or "no label env". Both are
// empty if the selector matches.
func Unmet(s labels.Selector, set Labels) (want, got string) {
	if s == nil {
		return "", ""
	}
	requirements, selectable := s.Requirements()
	if !selectable {
		return "nothing", "anything"
	}
	for i := range requirements {
		r := &requirements[i]
		if r.Matches(set) {
			continue
		}
		if value, ok := set.Lookup(r.Key()); ok {
			return r.String(), r.Key() + "=" + value
		}
		return r.String(), "no label " + r.Key()
	}
	return "", ""
}

// Table finds items. It is immutable and safe for concurrent use.
type Table[T any] struct {
	// Always holds the items that need nothing.
	Always []T
	items  []T
	filed  []node
	at     [places]map[string]*key // by name
	keys   [places][]string        // the names of those of at
}

// key holds the heads of the lists of items that need one key.
type key struct {
	any    int32            // in any value
	values map[string]int32 // in this value
}

// node is a part of a list, as indices; 0 is the end.
type node struct{ item, next int32 }

// term is one value that satisfies a Need.
type term struct {
	place      Place
	key, value string
	any        bool
}

func (n *Need) terms(each func(term)) {
	if n.Values == nil {
		each(term{n.Place, n.Key, "", true})
	}
	for _, v := range n.Values {
		each(term{n.Place, n.Key, v, false})
	}
}

// New returns a Table of items; needs appends what one needs. An item may be found
// more than once if one key has more than one value for it, as the labels of an
// object and of the old one do.
func New[T any](items []T, needs func([]Need, T) []Need) *Table[T] {
	t := &Table[T]{items: items, filed: make([]node, 1, len(items)+1)}
	var all []Need
	from := make([]int, len(items)+1) // where the items' needs begin in the list of all needs
	choice := false
	for i, item := range items {
		all = needs(all, item)
		from[i+1] = len(all)
		choice = choice || from[i+1]-from[i] > 1
	}
	count := map[term]int{}
	if choice {
		for i := range all {
			all[i].terms(func(t term) { count[t]++ })
		}
	}
	for i, item := range items {
		own := all[from[i]:from[i+1]]
		if len(own) == 0 {
			t.Always = append(t.Always, item)
			continue
		}
		best, least := 0, 0
		for j := range own {
			if len(own) == 1 {
				break
			}
			most := 0 // items that a request with this label may find
			own[j].terms(func(t term) { most = max(most, count[t]) })
			if j == 0 || most < least || most == least && own[best].Values == nil {
				best, least = j, most
			}
		}
		t.file(&own[best], int32(i))
	}
	return t
}

func (t *Table[T]) file(n *Need, item int32) {
	k := t.at[n.Place][n.Key]
	if k == nil {
		if t.at[n.Place] == nil {
			t.at[n.Place] = map[string]*key{}
		}
		k = &key{}
		t.at[n.Place][n.Key] = k
		t.keys[n.Place] = append(t.keys[n.Place], n.Key)
	}
	add := func(head int32) int32 {
		// A selector may list a value twice; file the item once.
		if head > 0 && t.filed[head].item == item {
			return head
		}
		t.filed = append(t.filed, node{item, head})
		return int32(len(t.filed) - 1)
	}
	if n.Values == nil {
		k.any = add(k.any)
		return
	}
	if k.values == nil {
		k.values = map[string]int32{}
	}
	for _, v := range n.Values {
		k.values[v] = add(k.values[v])
	}
}

// Uses reports whether the labels at a place matter.
func (t *Table[T]) Uses(place Place) bool { return len(t.keys[place]) > 0 }

// Find appends to found the items that need a label which set has, and returns it.
func (t *Table[T]) Find(found []T, place Place, set Labels) []T {
	if len(t.keys[place]) > len(set) {
		for name := range set {
			if value, ok := set.Lookup(name); ok {
				found = t.FindOne(found, place, name, value)
			}
		}
		return found
	}
	for _, name := range t.keys[place] {
		if value, ok := set.Lookup(name); ok {
			found = t.FindOne(found, place, name, value)
		}
	}
	return found
}

// FindOne is Find for one label.
func (t *Table[T]) FindOne(found []T, place Place, name, value string) []T {
	k := t.at[place][name]
	if k == nil {
		return found
	}
	for _, n := range [...]int32{k.any, k.values[value]} {
		for ; n > 0; n = t.filed[n].next {
			found = append(found, t.items[t.filed[n].item])
		}
	}
	return found
}

// Labels are the labels of an object as its tree has them. They implement
// labels.Labels.
type Labels map[string]any

// Has implements labels.Labels.
func (l Labels) Has(label string) bool { _, ok := l.Lookup(label); return ok }

// Get implements labels.Labels.
func (l Labels) Get(label string) string { v, _ := l.Lookup(label); return v }

// Lookup implements labels.Labels. A null label is an empty one, which is what it
// becomes in the server's types; a value of another type is no label.
func (l Labels) Lookup(label string) (string, bool) {
	v, ok := l[label]
	if !ok {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case nil:
		return "", true
	default:
		return "", false
	}
}
