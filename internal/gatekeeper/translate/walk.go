package translate

import (
	"slices"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// walk translates a location into a choice of operations (Gatekeeper spec §14.3). All operations
// refer to the object before the mutation. They change different fields, and lists grow at their
// ends only, so the order of the operations does not matter, except that parents are created
// before their children.
//
// The program has to refuse what Gatekeeper refuses: a step into a value that is not an object,
// or not a list. Most steps need no test, because an operation below such a value cannot be
// applied. The program tests where it would otherwise do nothing, or take an object for a list.
type walk struct {
	form
	m    *legacy.Mutator
	path legacy.Path
	// used are the names of loop variables so far.
	used []string
	// missing: the end of the location is known to be missing, unless a step to it finds a wrong
	// type.
	missing bool
}

// patch returns the effect of the mutator as a list of JSONPatch operations.
func (f form) patch(m *legacy.Mutator) expr {
	w := &walk{form: f, m: m, path: m.Location, used: []string{"v", "o"}}
	return w.node(0, ident("object"), pointer{}).program()
}

// allowed returns whether the path test at a depth allows the node to exist,
// and to be missing.
func (w *walk) allowed(d int) (found, missing bool) {
	if w.m.Kind == legacy.AssignMetadata && d == len(w.path)-1 {
		return false, true // AssignMetadata adds only
	}
	condition, ok := w.m.Test(d)
	return !ok || condition == legacy.MustExist, !ok || condition == legacy.MustNotExist
}

// node returns the operations on the value e at p, from the path's node d on.
func (w *walk) node(d int, e expr, p pointer) choice {
	switch {
	case !w.path[d].List:
		return w.field(d, e, p)
	case d == len(w.path)-1:
		return w.expect(d, e, "list", "a list", w.element(d, e, p))
	case w.path[d].Glob:
		return w.expect(d, e, "list", "a list", w.glob(d, e, p))
	default:
		return w.expect(d, e, "list", "a list", w.keyed(d, e, p))
	}
}

// expect refuses the object if e has another type than typ, which node d needs; otherwise c
// applies. The object itself, and elements that have a key, need no test.
func (w *walk) expect(d int, e expr, typ, words string, c choice) choice {
	if d == 0 || w.path[d-1].List && !w.path[d-1].Glob {
		return c
	}
	return decide(typeTest(e, typ).opposite(), refusal(w.path[:d], words), c)
}

func (w *walk) field(d int, e expr, p pointer) choice {
	if there, ok := w.blocked(d, e); ok {
		w.missing = true
		return decide(tested(there), choice{}, w.field(d, e, p))
	}
	if c, ok := w.chained(d, e, p); ok {
		return c
	}
	name := w.path[d].Name
	value, at := field(e, name), p.key(name)
	mayFind, mayMiss := w.allowed(d)
	var found, missing choice
	switch last := d == len(w.path)-1; {
	case last && w.missing:
		found = w.create(d, at)
	case last && mayFind:
		found = w.change(value, at)
	case mayFind:
		found = w.node(d+1, value, at)
	}
	if mayMiss {
		missing = w.create(d, at)
	}
	c := decide(hasTest(e, name), found, missing)
	if d == len(w.path)-1 && (w.missing || mayFind && mayMiss && w.replaces()) {
		c = missing // the old value does not matter
	}
	switch {
	case looksLikeIndex(name) || missing.isNone() && found.isNone():
		return w.expect(d, e, "map", "an object", c)
	case missing.isNone():
		// Without a test, a value that is no object would pass, because it
		// lacks the field, too.
		missing = w.expect(d, e, "map", "an object", missing)
		return decide(hasTest(e, name), found, missing)
	}
	return c
}

// chained returns the operations from node d on if the rest of the location has fields only and
// the new value does not depend on the old one: one operation for each missing parent, and one
// for the value. If a parent is not an object, the last operation cannot be applied, so no test
// is needed.
func (w *walk) chained(d int, e expr, p pointer) (choice, bool) {
	last := len(w.path) - 1
	if w.params || !w.replaces() || d == last {
		return choice{}, false
	}
	var parents []expr
	for i := d; i <= last; i++ {
		name := w.path[i].Name
		mayFind, mayMiss := w.allowed(i)
		if w.path[i].List || looksLikeIndex(name) || !mayMiss || !mayFind && !(i == last && w.missing) {
			return choice{}, false
		}
		p = p.key(name)
		if i == last {
			break
		}
		there := has(e, name)
		if i > d {
			there = call(optional(e, name), "hasValue")
		}
		e = optional(e, name)
		parents = append(parents, cond(there, listOf(), listOf(operation("add", p, mapOf()))))
	}
	return operations(operation("add", p, w.value())).after(parents...), true
}

// blocked returns the condition that the end of the location exists, if the location from node d
// on has fields only and only its end has a path test. The program tests that first: it is cheap,
// and often true.
func (w *walk) blocked(d int, e expr) (expr, bool) {
	last := len(w.path) - 1
	if w.missing || d == last || slices.ContainsFunc(w.path[d:], func(n legacy.Node) bool { return n.List }) {
		return expr{}, false
	}
	for i := d; i <= last; i++ {
		if mayFind, mayMiss := w.allowed(i); mayFind == (i == last) || !mayMiss {
			return expr{}, false
		}
		e = optional(e, w.path[i].Name)
	}
	return call(e, "hasValue"), true
}

// create returns the operations for a missing field of node d, at p.
func (w *walk) create(d int, p pointer) choice {
	fresh, outcome := w.fresh(d + 1)
	switch outcome {
	case fails:
		return w.clash(d + 1)
	case nothing:
		return choice{}
	}
	return w.created(operations(operation("add", p, fresh)))
}

// outcome says what a mutator does where a part of its location is missing.
type outcome int

const (
	made    outcome = iota
	nothing         // a glob has no elements to visit, or a path test stops the mutator
	fails           // the location goes below the key of an element that the mutator creates
)

// fresh returns the value that is created for the path from node d on.
func (w *walk) fresh(d int) (expr, outcome) {
	if d == len(w.path) {
		return w.initial()
	}
	if !w.path[d].List {
		m, outcome := w.freshEntry(d)
		return mapOf(m), outcome
	}
	e, outcome := w.freshElement(d)
	return listOf(e), outcome
}

func (w *walk) freshEntry(d int) (entry, outcome) {
	if _, mayMiss := w.allowed(d); !mayMiss {
		return entry{}, nothing
	}
	v, outcome := w.fresh(d + 1)
	return entry{Name: w.path[d].Name, Value: v}, outcome
}

// freshElement returns the element that is created for the list selector at d.
func (w *walk) freshElement(d int) (expr, outcome) {
	n := w.path[d]
	if _, mayMiss := w.allowed(d); !mayMiss || n.Glob {
		return expr{}, nothing
	}
	if d == len(w.path)-1 {
		return w.initial()
	}
	key := entry{Name: n.Name, Value: constant(n.Value)}
	if w.path[d+1].Name == n.Name {
		// The key exists and is a string or a number, so a step into it fails.
		if mayFind, _ := w.allowed(d + 1); !mayFind {
			return expr{}, nothing
		}
		return expr{}, fails
	}
	m, outcome := w.freshEntry(d + 1)
	return mapOf(key, m), outcome
}

// clash refuses every object, because the path from node d on goes below the
// key of an element that it creates.
func (w *walk) clash(d int) choice {
	for ; d < len(w.path)-1; d++ {
		if w.path[d].List && w.path[d+1].Name == w.path[d].Name {
			break
		}
	}
	expected := "an object"
	if d+2 == len(w.path) || w.path[d+2].List {
		expected = "a list"
	}
	return refusal(w.path[:min(d+2, len(w.path))], expected)
}

func (w *walk) glob(d int, e expr, p pointer) choice {
	if mayFind, _ := w.allowed(d); !mayFind {
		return choice{}
	}
	i, x := w.variables(d)
	return each(e, i, x, nil, w.node(d+1, ident(x), p.index(i)))
}

// keyed continues with every element that has the key, or creates one.
func (w *walk) keyed(d int, e expr, p pointer) choice {
	mayFind, mayMiss := w.allowed(d)
	i, x := w.variables(d)
	match := w.match(d, x)
	var found, missing choice
	if mayFind {
		found = each(e, i, x, &match, w.node(d+1, ident(x), p.index(i)))
	}
	if mayMiss {
		missing = w.push(d, p)
	}
	if missing.isNone() {
		return found
	}
	return decide(tested(macro(e, "exists", []string{x}, match)), found, missing)
}

// push appends the element that is created for the list selector at d.
func (w *walk) push(d int, p pointer) choice {
	fresh, outcome := w.freshElement(d)
	switch outcome {
	case fails:
		return w.clash(d)
	case nothing:
		return choice{}
	}
	return w.created(operations(operation("add", p.key("-"), fresh)))
}

// element replaces the first element that has the key of the path's last node,
// or appends one. It refuses an earlier element that is not an object.
func (w *walk) element(d int, e expr, p pointer) choice {
	mayFind, mayMiss := w.allowed(d)
	i, x := w.variables(d)
	var found, missing choice
	if mayFind {
		found = operations(operation("replace", p.index(i), w.value()))
	}
	if mayMiss {
		missing = w.push(d, p)
	}
	object := typeTest(ident(x), "map")
	stop := anyOf(object.fails, w.hasKey(d, x))
	found = decide(object, found, refusal(w.path[:d+1], "an object"))
	first := item(macro(e, "transformList", []string{i, x}, stop, found.list()), constant(int64(0)))
	return decide(tested(macro(e, "exists", []string{x}, stop)), choice{many: &first}, missing)
}

// match returns the condition that the list selector at d selects x. The test whether x is an
// object comes last because it rarely decides. CEL's && ignores an error if the other side is
// false, so elements of other types are skipped.
func (w *walk) match(d int, x string) expr {
	return all(w.hasKey(d, x), equal(fn("type", ident(x)), ident("map")))
}

// hasKey returns the condition that the object x has the key of the list selector at d. CEL takes
// 80 and 80.0 for equal, Gatekeeper does not.
func (w *walk) hasKey(d int, x string) expr {
	n := w.path[d]
	key := optional(ident(x), n.Name)
	switch v := n.Value.(type) {
	case int64:
		number := fn("type", field(ident(x), n.Name))
		return all(equal(key, fn("optional.of", constant(v))), equal(number, ident("int")))
	case string:
		if v != "" {
			return equal(call(key, "orValue", constant("")), constant(v))
		}
	}
	return equal(key, fn("optional.of", constant(n.Value)))
}

// variables names the index and the element of a loop over the list at d: the
// element by the first letter of the list's field.
func (w *walk) variables(d int) (i, x string) {
	var letter string
	if d > 0 && w.path[d-1].Name != "" {
		letter = w.path[d-1].Name[:1]
	}
	return w.named(letter)
}

// indexes are the names of indexes.
var indexes = []string{"i", "j", "k", "l", "m", "n"}

// named names the index and the element of a loop. The element gets letter if
// that can be a name.
func (w *walk) named(letter string) (i, x string) {
	i = w.unused(indexes...)
	if letter < "a" || letter > "z" || slices.Contains(indexes, letter) {
		letter = "x"
	}
	return i, w.unused(letter, "x", "y", "z")
}

func (w *walk) unused(names ...string) string {
	for _, n := range names {
		if !slices.Contains(w.used, n) {
			w.used = append(w.used, n)
			return n
		}
	}
	for n := names[len(names)-1]; ; {
		n += "x"
		if !slices.Contains(w.used, n) {
			w.used = append(w.used, n)
			return n
		}
	}
}
