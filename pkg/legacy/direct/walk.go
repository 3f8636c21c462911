package direct

import (
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// walker follows a location through an object (Gatekeeper spec §2.5). It changes objects in
// place and replaces lists by changed copies. The difference is visible if one value is in two
// places: a field that is set in one appears in the other, an element that is appended does
// not.
type walker struct {
	m   *legacy.Mutator
	set setter
	// copies says that objects are replaced by changed copies too.
	copies bool
	charge func(bytes int) error // may be nil
}

// walk applies a mutator to obj, in place unless it copies.
func walk(m *legacy.Mutator, obj map[string]any, c Context, copies bool) (next map[string]any, touched bool, err error) {
	if len(m.Location) == 0 {
		return nil, false, errors.New("attempting to mutate an empty target location")
	}
	w := walker{m: m, set: setterOf(m, &unstructured.Unstructured{Object: obj}, c), copies: copies, charge: c.Charge}
	v, touched, err := w.step(obj, 0)
	if err != nil || !touched {
		return nil, false, err
	}
	return v.(map[string]any), true, nil
}

// makes charges for a list or an object with that many values.
func (w *walker) makes(values int) error {
	if w.charge == nil {
		return nil
	}
	return w.charge(100 + 50*values)
}

// step applies the location from a depth on to v. The caller uses next only if touched is set,
// so a walk that a path test has stopped leaves no new parents in the object.
func (w *walker) step(v any, depth int) (next any, touched bool, err error) {
	node := w.m.Location[depth]
	if !node.List {
		obj, ok := v.(map[string]any)
		if !ok {
			return nil, false, mismatch("object", v, node)
		}
		return w.field(obj, depth)
	}
	list, ok := v.([]any)
	if !ok {
		return nil, false, mismatch("List", v, node)
	}
	if err := w.makes(len(list)); err != nil {
		return nil, false, err
	}
	list = append(make([]any, 0, len(list)+1), list...)
	switch {
	case w.last(depth):
		return w.element(list, depth)
	case node.Glob:
		touched, err = w.all(list, depth)
		return list, touched, err
	default:
		return w.keyed(list, depth)
	}
}

// field steps into a member of an object.
func (w *walker) field(obj map[string]any, depth int) (next any, touched bool, err error) {
	name := w.m.Location[depth].Name
	child, exists := obj[name] // exists is true for null
	if !w.allows(depth, exists) {
		return nil, false, nil
	}
	if w.last(depth) {
		if obj, err = w.own(obj); err != nil {
			return nil, false, err
		}
		return obj, true, w.set.field(obj, name)
	}
	if !exists {
		child = map[string]any{}
		if w.m.Location[depth+1].List {
			child = []any{}
		}
	}
	after, touched, err := w.step(child, depth+1)
	if err != nil || !touched {
		return nil, false, err
	}
	if obj, err = w.own(obj); err != nil {
		return nil, false, err
	}
	obj[name] = after
	return obj, true, nil
}

// own returns an object that may be changed.
func (w *walker) own(obj map[string]any) (map[string]any, error) {
	if !w.copies {
		return obj, nil
	}
	if err := w.makes(len(obj)); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(obj)+1)
	maps.Copy(out, obj)
	return out, nil
}

// all steps into every element of a list, of any type. With MustNotExist, a glob never applies.
func (w *walker) all(list []any, depth int) (bool, error) {
	if !w.allows(depth, true) {
		return false, nil
	}
	touched := false
	for i, elem := range list {
		next, t, err := w.step(elem, depth+1)
		if err != nil {
			return false, err
		}
		if t {
			list[i], touched = next, true
		}
	}
	return touched, nil
}

// keyed steps into all elements that have the key, or into a new one.
func (w *walker) keyed(list []any, depth int) (any, bool, error) {
	node := w.m.Location[depth]
	found, touched := false, false
	for i, elem := range list {
		obj, ok := elem.(map[string]any)
		if !ok || !selects(node, obj) {
			continue
		}
		if !w.allows(depth, true) {
			return nil, false, nil
		}
		next, t, err := w.step(obj, depth+1)
		if err != nil {
			return nil, false, err
		}
		if found = true; t {
			list[i], touched = next, true
		}
	}
	if found {
		return list, touched, nil
	}
	if !w.allows(depth, false) {
		return nil, false, nil
	}
	elem, touched, err := w.step(map[string]any{node.Name: node.Value}, depth+1)
	return append(list, elem), touched, err
}

// element handles a location that ends in a list selector, which only an Assign has: it
// replaces the first element that has the key. The elements before it have to be objects.
func (w *walker) element(list []any, depth int) (any, bool, error) {
	node := w.m.Location[depth]
	value := w.set.(assign).value
	for i, elem := range list {
		obj, ok := elem.(map[string]any)
		if !ok {
			// The typo is Gatekeeper's.
			return nil, false, fmt.Errorf("cast error, unable to case %T to map[string]interface{}", elem)
		}
		if selects(node, obj) {
			list[i] = value
			return list, w.allows(depth, true), nil
		}
	}
	return append(list, value), w.allows(depth, false), nil
}

// last reports whether the location ends at a depth.
func (w *walker) last(depth int) bool { return depth == len(w.m.Location)-1 }

// allows applies the path test of a depth. A test with neither of the two
// conditions never holds, whether the node exists or not (Gatekeeper spec
// §3.6).
func (w *walker) allows(depth int, exists bool) bool {
	test, ok := w.m.Test(depth)
	if w.m.Kind == legacy.AssignMetadata && w.last(depth) {
		test, ok = legacy.MustNotExist, true // it only adds (Gatekeeper spec §4)
	}
	if exists {
		return !ok || test == legacy.MustExist
	}
	return !ok || test == legacy.MustNotExist
}

// selects reports whether an element has a selector's key. The comparison includes the type: 80
// is neither "80" nor 80.0 (Gatekeeper spec §2.4).
func selects(node legacy.Node, elem map[string]any) bool {
	value, ok := elem[node.Name]
	return ok && value == node.Value
}

func mismatch(want string, got any, node legacy.Node) error {
	return fmt.Errorf("mismatch between path entry (type: %s) and received object (type: %T). Path: %s", want, got, legacy.Path{node}.Canonical())
}
