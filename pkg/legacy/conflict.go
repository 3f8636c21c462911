package legacy

import (
	"encoding/binary"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Conflict is a contradiction between mutators about the shape of objects.
type Conflict struct {
	Members []string // in the form of Mutator.String, sorted
}

// Error returns the text of Gatekeeper's status.
func (c Conflict) Error() string {
	return "the following mutators have conflicting schemas: [" + strings.Join(c.Members, ",") + "]"
}

// Conflicts returns, by ID, the mutators that do not run because others contradict them about
// the shape of an object. The location of an Assign, AssignImage or ModifySet says which fields
// are objects and which are lists. Mutators that contradict each other for one kind and
// operation do not run for any (Gatekeeper spec §8.4).
//
// The result depends on the mutators alone. In Gatekeeper it can also depend on their history:
// a mutator that was in a conflict stays off as long as its location ends where others are in
// conflict.
func Conflicts(ms []*Mutator) map[string]Conflict {
	off, _ := conflicts(ms)
	return off
}

// Reported returns, by ID, the mutators that Gatekeeper's status shows as conflicting although
// they run: Assigns whose location ends where others contradict each other.
func Reported(ms []*Mutator) map[string]Conflict {
	_, reported := conflicts(ms)
	return reported
}

func conflicts(ms []*Mutator) (off, reported map[string]Conflict) {
	seen := make([][]*clash, len(ms))
	isOff := make([]bool, len(ms))
	for _, members := range sameBindings(ms) {
		root := &shapeNode{}
		for _, i := range members {
			root.add(i, ms[i], 0)
		}
		for _, i := range members {
			root.collect(ms[i], 0, func(c *clash) {
				seen[i] = append(seen[i], c)
				for _, member := range c.members {
					isOff[member] = true
				}
			})
		}
	}
	off, reported = map[string]Conflict{}, map[string]Conflict{}
	joiner := joiner{ms: ms, ids: map[*clash]uint64{}, memo: map[string]Conflict{}}
	for i, m := range ms {
		if len(seen[i]) == 0 {
			continue
		}
		c := joiner.join(seen[i])
		if isOff[i] {
			off[m.ID()] = c
		} else {
			reported[m.ID()] = c
		}
	}
	return off, reported
}

// binding is a kind and an operation. All mutators of one binding must agree.
type binding struct {
	gvk schema.GroupVersionKind
	op  operations
}

// sameBindings returns, for every kind and operation, the indices of the mutators that apply to
// it. Equal results are returned once, since they give the same conflicts. Usually a mutator
// applies to many kinds, together with many others.
func sameBindings(ms []*Mutator) [][]int {
	byBinding := map[binding][]int{}
	for i, m := range ms {
		for _, a := range m.ApplyTo {
			for b := range a.bindings {
				if l := byBinding[b]; len(l) == 0 || l[len(l)-1] != i {
					byBinding[b] = append(l, i)
				}
			}
		}
	}
	known := map[string]bool{}
	var all [][]int
	for _, members := range byBinding {
		var key []byte
		for _, i := range members {
			key = binary.AppendUvarint(key, uint64(i))
		}
		if len(members) > 1 && !known[string(key)] {
			known[string(key)] = true
			all = append(all, members)
		}
	}
	return all
}

func (a ApplyTo) bindings(yield func(binding) bool) {
	ops := a.operations()
	for _, g := range a.Groups {
		for _, v := range a.Versions {
			for _, k := range a.Kinds {
				for _, op := range []operations{create, update} {
					gvk := schema.GroupVersionKind{Group: g, Version: v, Kind: k}
					if ops&op != 0 && !yield(binding{gvk, op}) {
						return
					}
				}
			}
		}
	}
}

// shape is what a location says about the value of one of its nodes.
type shape int

const (
	shapeUnknown shape = iota // an Assign ends here, with whatever it assigns
	shapeObject
	shapeList
	shapeSet    // a ModifySet ends here
	shapeString // an AssignImage ends here
	shapes
)

// shapeNode is a position in the objects of one kind, with one of the shapes that mutators
// expect there. Its children are labelled with field names or, in a list, with key fields; the
// values of keys do not matter.
type shapeNode struct {
	through []int // mutators whose location goes through here
	ends    []int // mutators whose location ends here and that allow no others below
	labels  map[string]*shapeLabel
}

// shapeLabel is a position, with a node for each shape that mutators expect there.
type shapeLabel struct {
	nodes  [shapes]*shapeNode
	judged bool
	clash  *clash // nil if all agree
}

func (n *shapeNode) add(i int, m *Mutator, depth int) {
	n.through = append(n.through, i)
	if depth == len(m.Location) {
		if m.Kind == AssignImage || m.Kind == Assign && m.From.External != nil {
			n.ends = append(n.ends, i)
		}
		return
	}
	if n.labels == nil {
		n.labels = map[string]*shapeLabel{}
	}
	label := n.labels[m.Location[depth].Name]
	if label == nil {
		label = &shapeLabel{}
		n.labels[m.Location[depth].Name] = label
	}
	s := m.shapeAt(depth)
	if label.nodes[s] == nil {
		label.nodes[s] = &shapeNode{}
	}
	label.nodes[s].add(i, m, depth+1)
}

// collect calls found with the clashes along a mutator's location.
func (n *shapeNode) collect(m *Mutator, depth int, found func(*clash)) {
	if depth == len(m.Location) {
		return
	}
	label := n.labels[m.Location[depth].Name]
	if c := label.findClash(); c != nil {
		found(c)
	}
	label.nodes[m.shapeAt(depth)].collect(m, depth+1, found)
}

// shapeAt returns the shape that the mutator expects at a node of its location.
func (m *Mutator) shapeAt(depth int) shape {
	switch {
	case depth+1 < len(m.Location) && m.Location[depth+1].List:
		return shapeList
	case depth+1 < len(m.Location):
		return shapeObject
	case m.Kind == ModifySet:
		return shapeSet
	case m.Kind == AssignImage:
		return shapeString
	default:
		return shapeUnknown
	}
}

// findClash returns the mutators that contradict each other at a label, and caches them.
func (l *shapeLabel) findClash() *clash {
	if l.judged {
		return l.clash
	}
	l.judged = true
	members := append(l.differing(), l.extending()...)
	if len(members) > 0 {
		slices.Sort(members)
		l.clash = &clash{slices.Compact(members)}
	}
	return l.clash
}

// differing returns the mutators that expect different shapes here, or one list
// with different key fields.
func (l *shapeLabel) differing() []int {
	known := 0
	for _, n := range l.nodes[shapeUnknown+1:] {
		if n != nil {
			known++
		}
	}
	var members []int
	for s, n := range l.nodes {
		if n == nil || shape(s) == shapeUnknown {
			continue
		}
		if known > 1 || shape(s) == shapeList && len(n.labels) > 1 {
			members = append(members, n.through...)
		}
	}
	return members
}

// extending returns the mutators whose location ends here and that allow no others below,
// together with those that go on; none if there are none of the former.
func (l *shapeLabel) extending() []int {
	var ends, deeper []int
	for _, n := range l.nodes {
		if n == nil {
			continue
		}
		ends = append(ends, n.ends...)
		for _, label := range n.labels {
			for _, child := range label.nodes {
				if child != nil {
					deeper = append(deeper, child.through...)
				}
			}
		}
	}
	if len(ends) == 0 || len(deeper) == 0 {
		return nil
	}
	return append(ends, deeper...)
}

// clash has the mutators that contradict each other at one label, by index and sorted.
type clash struct{ members []int }

// joiner makes conflicts of the clashes along a mutator's location. It caches them, since many
// mutators share the same clashes.
type joiner struct {
	ms   []*Mutator
	ids  map[*clash]uint64
	memo map[string]Conflict
}

func (j *joiner) join(cs []*clash) Conflict {
	var key []byte
	for _, c := range cs {
		if _, ok := j.ids[c]; !ok {
			j.ids[c] = uint64(len(j.ids))
		}
		key = binary.AppendUvarint(key, j.ids[c])
	}
	c, ok := j.memo[string(key)]
	if !ok {
		c = Conflict{Members: j.names(cs)}
		j.memo[string(key)] = c
	}
	return c
}

func (j *joiner) names(cs []*clash) []string {
	var names []string
	for _, c := range cs {
		for _, i := range c.members {
			names = append(names, j.ms[i].String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
