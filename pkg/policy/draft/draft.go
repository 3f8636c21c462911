package draft

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Draft is one object between its mutations.
//
// An object that Object returned is valid only until the next mutation, unless Keep was called
// in between. A Draft must not be used by two goroutines at once, and must not be copied after
// its first use. The zero Draft must be Reset before use.
type Draft struct {
	object *unstructured.Unstructured
	turns  [2]unstructured.Unstructured // see Commit

	// Edit holds the object's content. Top and the mutation that writes move its cursor.
	Edit    tree.Edit
	written bool // since Begin

	// paths is all[from:], the pointers that the last mutation changed. text and ends are those
	// of the present mutation, which become one string.
	paths, all []string
	from       int
	text       []byte
	ends       []int

	// Recent is where the last JSON patch left the Edit's cursor.
	Recent Recent

	// SettledAs is the kind whose form the object has when a mutation begins. It is empty if
	// the whole object has to be settled again, since it was converted from another version
	// whose defaults differ (spec §2.3; k8s.io/apiserver …/mutating/dispatcher.go: dispatchOne
	// fills in defaults after every mutation).
	SettledAs schema.GroupVersionKind
	// Valid is the custom kind to which the object is known to conform, or nil.
	Valid *openapi.Kind
	// Textual says that the object may have nil lists, which become null when the object is
	// encoded, so that a JSON patch has to search all of it for them.
	Textual bool
}

// Recent is a container that was written to, and its position in the schema.
type Recent struct {
	Way     string        // the pointer to it, followed by a slash; empty: none
	Kind    *openapi.Kind // of Spot; nil: there is no Spot
	Spot    openapi.Spot
	InList  bool // the container is an element of a list
	Through bool // an element of a list is on the way to it
}

// Reset starts again with obj, which is never modified, and allocates memory for about as many
// changes.
func (d *Draft) Reset(obj *unstructured.Unstructured, changes int) {
	*d = Draft{object: obj, Edit: d.Edit, text: d.text[:0], ends: d.ends[:0]}
	d.Edit.Reset(content(obj))
	if changes > 0 {
		d.all = make([]string, 0, changes)
	}
}

// content returns the tree of an object, nil if there is no object.
func content(obj *unstructured.Unstructured) any {
	if obj == nil {
		return nil
	}
	return obj.Object
}

// Object returns the present object.
func (d *Draft) Object() *unstructured.Unstructured { return d.object }

// Keep returns the present object, and no later mutation modifies it.
func (d *Draft) Keep() *unstructured.Unstructured {
	d.Edit.Keep()
	if d.object == &d.turns[0] || d.object == &d.turns[1] {
		d.object = &unstructured.Unstructured{Object: d.object.Object}
	}
	return d.object
}

// Replace makes after the object, and ends the present mutation. after is not modified. If the
// object equals after, it stays.
func (d *Draft) Replace(after *unstructured.Unstructured) {
	if tree.Equal(content(d.object), content(after)) {
		d.Undo()
		return
	}
	d.paths = tree.Changed(content(d.object), content(after))
	d.object, d.Recent, d.Valid = after, Recent{}, nil
	d.Edit.Reset(after.Object)
	d.end()
}

// Changed returns the JSON pointers of what the last mutation wrote; none if it
// changed nothing.
func (d *Draft) Changed() []string { return d.paths }

// Begin begins a mutation. Undo reverts its writes.
func (d *Draft) Begin() {
	d.paths, d.from, d.written = nil, len(d.all), false
	d.text, d.ends = d.text[:0], d.ends[:0]
	d.Edit.Begin()
}

// Top moves the Edit's cursor to the root.
func (d *Draft) Top() {
	d.Recent = Recent{}
	d.Edit.Top()
}

// Undo reverts the writes since Begin, also after a panic in the middle of a mutation.
func (d *Draft) Undo() {
	d.Recent = Recent{}
	d.Edit.Undo()
	clear(d.all[d.from:])
	d.all, d.paths, d.written = d.all[:d.from], nil, false
}

// Write writes a value to a child of the container at the Edit's cursor, in the form that
// settling gives it at spot; if spot is nil, as it is. old is the present value, if found. path
// is the pointer to the child, if the caller has it. Write reports false, and writes nothing,
// if it cannot decide how settling the whole object would change the value. If parts of the
// object are in several values, release these values before the first write.
func (d *Draft) Write(spot *openapi.Spot, t tree.Token, old any, found bool, value any, path string) bool {
	if spot != nil {
		var ok bool
		if value, ok = spot.Settle(old, value); !ok {
			return false
		}
	}
	if found && tree.Equal(old, value) {
		return true
	}
	switch {
	case spot != nil && IsContainer(old) && IsContainer(value):
		if path == "" {
			path = string(d.Edit.AppendPath(nil, t))
		}
		for _, p := range tree.ChangedBelow(path, old, value) {
			d.note(p)
		}
	case path != "":
		d.all = append(d.all, path)
	default:
		d.text = d.Edit.AppendPath(d.text, t)
		d.ends = append(d.ends, len(d.text))
	}
	d.written = true
	if IsContainer(value) {
		d.Edit.Release(value) // it may be a part of the object already
	}
	switch at := d.Edit.At().(type) {
	case map[string]any:
		d.Edit.SetMember(t, old, found, value)
	case []any:
		if t.Index == len(at) {
			d.Edit.Insert(t.Index, value)
		} else {
			d.Edit.Set(t, value)
		}
	}
	return true
}

// Remove removes a child of the container at the Edit's cursor; path is the pointer
// to it.
func (d *Draft) Remove(t tree.Token, path string) {
	d.all = append(d.all, path)
	d.written = true
	d.Edit.Delete(t)
}

func (d *Draft) note(path string) {
	d.text = append(d.text, path...)
	d.ends = append(d.ends, len(d.text))
}

// Writes returns how many changes since Begin Write has recorded for callers that passed no
// path.
func (d *Draft) Writes() int { return len(d.ends) }

// Commit ends a mutation that wrote settled values. The Draft alternates between two objects,
// so the one returned before the last Commit becomes invalid.
func (d *Draft) Commit() {
	if !d.written {
		return
	}
	text, from := string(d.text), 0
	for _, to := range d.ends {
		d.all = append(d.all, text[from:to])
		from = to
	}
	d.paths = d.all[d.from:len(d.all):len(d.all)]
	next := &d.turns[0]
	if d.object == next {
		next = &d.turns[1]
	}
	next.Object = d.Edit.Root().(map[string]any)
	d.object, d.Valid = next, nil
	d.end()
}

// end makes the writes final: Undo does not revert them.
func (d *Draft) end() {
	d.from, d.written = len(d.all), false
	d.Edit.Begin()
}

// Settle ends a mutation that copied the object and wrote values without settling them: it
// settles the whole object. An error undoes the mutation.
func (d *Draft) Settle(kind *openapi.Kind, from openapi.Decoding) error {
	before, after := d.object.Object, d.Edit.Root().(map[string]any)
	base := before
	if d.SettledAs.Empty() {
		base = nil
	}
	if tree.Same(before, after) && (base != nil || kind.Builtin()) {
		return nil
	}
	after, err := kind.Settle(base, after, from)
	if err != nil {
		d.Undo()
		return err
	}
	d.Replace(&unstructured.Unstructured{Object: after})
	return nil
}

// AllNamed reports whether all elements of a list have different names, by which every
// comparison of versions of the list identifies them.
func AllNamed(list []any) bool {
	if len(list) > maxNamed {
		return false
	}
	for i, v := range list {
		name, ok := nameOf(v)
		if !ok {
			return false
		}
		if slices.ContainsFunc(list[:i], func(other any) bool { n, _ := nameOf(other); return n == name }) {
			return false
		}
	}
	return true
}

// maxNamed bounds how many names are compared with each other.
const maxNamed = 64

func nameOf(v any) (string, bool) {
	m, _ := v.(map[string]any)
	name, ok := m["name"].(string)
	return name, ok
}

// IsContainer reports whether v is a map or a list.
func IsContainer(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}
