package policy

import (
	"strconv"

	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
)

// node is one place that a merge writes to, or that is above one.
type node struct {
	key   string // under which it stands in a map
	index int    // or a list, the length of which it has if it is appended
	value any    // what is written if there is no child
	// child is the first node below and next the next one of the same parent, as
	// numbers from 1; 0: none.
	child, next int
}

// merge merges a checked apply configuration into the object and settles what it
// wrote, as merger and openapi's Settle do; false if it did nothing because it is
// not sure. The object must have been settled and conform to the kind.
func (d *Draft) merge(kind *openapi.Kind, patch map[string]any) bool {
	d.begin()
	root, ok := kind.Spot(d.object.Object, openapi.FromApply)
	if !ok {
		return false
	}
	s, tr := kind.Schema()
	atom, ok := s.Resolve(tr)
	if !ok || atom.Map == nil || atom.Map.ElementRelationship == smdschema.Atomic {
		return false
	}
	d.way, d.text, d.ends = d.way[:0], d.text[:0], d.ends[:0]
	g := grafting{draft: d, schema: s}
	first, ok := g.mapping(d.object.Object, patch, atom.Map, root, false)
	if ok && first != 0 {
		if len(d.own) > 0 {
			for i := range d.nodes {
				d.disown(d.nodes[i].value)
			}
		}
		d.startWriting()
		d.advance(d.graft(d.object.Object, first).(map[string]any))
		d.changedAll()
		d.doneWriting()
	}
	clear(d.nodes)
	d.nodes = d.nodes[:0]
	return ok
}

// written notes a path that a merge is going to write to, and changedAll tells
// all of them: together they are one allocation.
func (d *Draft) written(path string) { d.end(append(d.text, path...)) }

func (d *Draft) end(text []byte) { d.text, d.ends = text, append(d.ends, len(text)) }

func (d *Draft) changedAll() {
	text, from := string(d.text), 0
	for _, to := range d.ends {
		d.changed(text[from:to])
		from = to
	}
}

// graft does what the nodes from first on say to a container, and returns it or
// what stands in its place.
func (d *Draft) graft(container any, first int) any {
	switch c := container.(type) {
	case map[string]any:
		c = d.mapping(c)
		for id := first; id != 0; {
			n := &d.nodes[id-1]
			if n.child == 0 {
				c[n.key] = n.value
			} else if before := c[n.key]; true {
				if after := d.graft(before, n.child); !tree.Same(before, after) {
					c[n.key] = after
				}
			}
			id = n.next
		}
		return c
	case []any:
		c = d.list(c)
		for id := first; id != 0; {
			n := &d.nodes[id-1]
			switch {
			case n.child != 0:
				c[n.index] = d.graft(c[n.index], n.child)
			case n.index == len(c):
				c = d.append(c, n.value)
			default:
				c[n.index] = n.value
			}
			id = n.next
		}
		return boxed(container, c)
	}
	return container
}

// grafting makes the nodes of a merge.
type grafting struct {
	draft  *Draft
	schema *smdschema.Schema
}

// chain links nodes in the order in which they are added.
type chain struct{ first, last int }

func (g *grafting) add(c *chain, n node) {
	g.draft.nodes = append(g.draft.nodes, n)
	id := len(g.draft.nodes)
	if c.first == 0 {
		c.first = id
	} else {
		g.draft.nodes[c.last-1].next = id
	}
	c.last = id
}

// mapping plans the merge of two maps, the live one of which may be an element
// of a list.
func (g *grafting) mapping(live, patch map[string]any, t *smdschema.Map, spot openapi.Spot, element bool) (first int, ok bool) {
	var c chain
	for key, pv := range patch {
		at := spot
		if key == "" || !at.Field(key) {
			return 0, false // there are no paths to what is below an empty name
		}
		d := g.draft
		n := len(d.way)
		d.way = tree.AppendToken(d.way, key)
		lv, found := live[key]
		var next node
		wanted := true
		if found {
			ft := t.ElementType
			if f, ok := t.FindField(key); ok {
				ft = f.Type
			}
			next, wanted, ok = g.value(lv, pv, ft, at)
		} else {
			next, wanted, ok = g.write(nil, false, pv, at)
		}
		d.way = d.way[:n]
		// An element whose identity changes is another one to a comparison.
		if !ok || wanted && element && tree.Identifies(key) {
			return 0, false
		}
		if wanted {
			next.key = key
			g.add(&c, next)
		}
	}
	return c.first, true
}

// value plans the merge of two values. wanted is false if it changes nothing.
func (g *grafting) value(live, patch any, tr smdschema.TypeRef, spot openapi.Spot) (n node, wanted, ok bool) {
	if patch == nil {
		return n, false, false
	}
	atom, ok := g.schema.Resolve(tr)
	if !ok {
		return n, false, false
	}
	switch atom = deduce(atom, patch); {
	case atom.Map != nil:
		l, ok := live.(map[string]any)
		p, ok2 := patch.(map[string]any)
		switch {
		case !ok || !ok2 || l == nil || p == nil || atom.Map.ElementRelationship == smdschema.Atomic:
			return n, false, false
		case len(p) == 0:
			return n, false, true
		case len(l) == 0:
			return g.write(live, true, patch, spot)
		}
		n.child, ok = g.mapping(l, p, atom.Map, spot, false)
		return n, n.child != 0, ok
	case atom.Scalar != nil:
		return g.write(live, true, patch, spot)
	case atom.List != nil:
		l, ok := live.([]any)
		p, ok2 := patch.([]any)
		switch {
		case !ok || !ok2 || l == nil || p == nil || atom.List.ElementRelationship != smdschema.Associative:
			return n, false, false
		case len(p) == 0:
			return n, false, true
		case len(l) == 0:
			return g.write(live, true, patch, spot)
		}
		n.child, ok = g.list(l, p, atom.List, spot)
		return n, n.child != 0, ok
	}
	return n, false, false
}

// write plans that a value stands where live does now.
func (g *grafting) write(live any, found bool, patch any, spot openapi.Spot) (n node, wanted, ok bool) {
	v, ok := spot.Settle(live, patch)
	if !ok || found && tree.Equal(live, v) {
		return n, false, ok
	}
	d := g.draft
	if isContainer(live) && isContainer(v) {
		for _, path := range tree.ChangedBelow(string(d.way), live, v) {
			d.written(path)
		}
	} else {
		d.end(append(d.text, d.way...))
	}
	return node{value: v}, true, true
}

// list plans the merge of two lists whose elements have identities, if what the
// patch names is there in the same order, each once, and what is new comes last:
// then the live list keeps its order and the new ones follow.
func (g *grafting) list(live, patch []any, t *smdschema.List, spot openapi.Spot) (first int, ok bool) {
	var room [8]itemKey
	keys, names := newKeyer(g.schema, t), room[:0]
	for _, item := range patch {
		key, err := keys.of(item)
		if err != nil {
			return 0, false
		}
		names = append(names, key)
	}
	if !spot.Element() {
		return 0, false
	}
	var c chain
	next, changed := 0, 0
	for i, item := range live {
		key, err := keys.of(item)
		if err != nil {
			return 0, false
		}
		if next == len(names) || key != names[next] {
			for _, name := range names {
				if key == name {
					return 0, false
				}
			}
			continue
		}
		n, wanted, ok := g.element(i, item, patch[next], t, spot)
		if !ok {
			return 0, false
		}
		if wanted {
			n.index = i
			g.add(&c, n)
			changed++
		}
		next++
	}
	// Of several elements that change, a name tells which is which.
	if fresh := len(patch) - next; (changed > 1 || changed > 0 && fresh > 0) && !(len(t.Keys) == 1 && t.Keys[0] == "name" && allNamed(live)) {
		return 0, false
	}
	for i := next; i < len(patch); i++ {
		d := g.draft
		n := len(d.way)
		at := len(live) + i - next
		d.way = strconv.AppendInt(append(d.way, '/'), int64(at), 10)
		fresh, _, ok := g.write(nil, false, patch[i], spot)
		d.way = d.way[:n]
		if !ok {
			return 0, false
		}
		fresh.index = at
		g.add(&c, fresh)
	}
	return c.first, true
}

// element plans the merge of two elements of lists.
func (g *grafting) element(i int, live, patch any, t *smdschema.List, spot openapi.Spot) (n node, wanted, ok bool) {
	d := g.draft
	length := len(d.way)
	d.way = strconv.AppendInt(append(d.way, '/'), int64(i), 10)
	defer func() { d.way = d.way[:length] }()
	l, ok := live.(map[string]any)
	p, ok2 := patch.(map[string]any)
	if !ok || !ok2 {
		return n, false, tree.Equal(live, patch)
	}
	atom, ok := g.schema.Resolve(t.ElementType)
	if !ok || atom.Map == nil || atom.Map.ElementRelationship == smdschema.Atomic || len(l) == 0 {
		return n, false, false
	}
	n.child, ok = g.mapping(l, p, deduce(atom, patch).Map, spot, true)
	return n, n.child != 0, ok
}
