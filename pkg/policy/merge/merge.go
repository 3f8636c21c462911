package merge

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/openapi/smd"
	"github.com/mapd-project/mapd/pkg/policy/draft"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Apply merges a checked apply configuration into the object of a draft, and settles the values
// that it writes. After an error the object is unchanged.
func Apply(d *draft.Draft, kind *openapi.Kind, patch map[string]any) error {
	if err := conforms(d, kind); err != nil {
		return err
	}
	if d.SettledAs == kind.GroupVersionKind() && (kind.Builtin() || !changesAsText(patch)) && inPlace(d, kind, patch) {
		return nil
	}
	return byCopying(d, kind, patch)
}

// ByCopying is Apply, but it copies the containers that it writes to and settles the whole
// object.
func ByCopying(d *draft.Draft, kind *openapi.Kind, patch map[string]any) error {
	if err := conforms(d, kind); err != nil {
		return err
	}
	return byCopying(d, kind, patch)
}

func byCopying(d *draft.Draft, kind *openapi.Kind, patch map[string]any) error {
	if err := whole(d, kind, patch); err != nil {
		return err
	}
	before := d.Object()
	if err := d.Settle(kind, openapi.FromApply); err != nil {
		return err
	}
	if !kind.Builtin() {
		d.Valid = kind
		d.Textual = d.Textual || d.Object() != before && changesAsText(patch)
	}
	return nil
}

// Lenient merges a checked apply configuration into the object of a draft, and does not settle
// the result. After an error the object is unchanged.
func Lenient(d *draft.Draft, kind *openapi.Kind, patch map[string]any) error {
	if err := conforms(d, kind); err != nil {
		return err
	}
	if err := whole(d, kind, patch); err != nil {
		return err
	}
	d.Replace(&unstructured.Unstructured{Object: d.Edit.Root().(map[string]any)})
	return nil
}

// conforms validates the object against the schema, as upstream does. Built-in objects have
// been through their Go types, so they are valid. An object of a custom kind is validated once,
// unless it is itself the result of an apply.
func conforms(d *draft.Draft, kind *openapi.Kind) error {
	if kind.Builtin() || d.Valid == kind {
		return nil
	}
	if err := kind.Validate(d.Object().Object); err != nil {
		return invalidObject(err)
	}
	d.Valid = kind
	return nil
}

func invalidObject(err error) error {
	return fmt.Errorf("error applying patch: failed to convert original object to typed object: %w", err)
}

// inPlace merges, and settles each value that it writes. It reports false, and changes nothing,
// if the result or an error might differ from those of whole followed by settling the object.
func inPlace(d *draft.Draft, kind *openapi.Kind, patch map[string]any) bool {
	spot, ok := kind.Spot(d.Object().Object, openapi.FromApply)
	if !ok {
		return false
	}
	d.Top()
	d.Begin()
	s, ref := kind.Schema()
	m := merger{draft: d, schema: s, sure: true}
	if err := m.root(d.Object().Object, patch, ref, spot); err != nil {
		d.Undo()
		return false
	}
	if d.Commit(); !kind.Builtin() {
		d.Valid = kind
	}
	return true
}

// whole merges with the results of structured-merge-diff's typed.Merge. The draft copies the
// containers that it writes to. An error undoes the merge.
func whole(d *draft.Draft, kind *openapi.Kind, patch map[string]any) error {
	d.Edit.Keep()
	d.Top()
	d.Begin()
	s, ref := kind.Schema()
	m := merger{draft: d, schema: s}
	if err := m.root(d.Object().Object, patch, ref, openapi.Spot{}); err != nil {
		d.Undo()
		// The patch is valid, so the error is about the object.
		if invalid := kind.Validate(d.Object().Object); invalid != nil {
			return invalidObject(invalid)
		}
		return fmt.Errorf("error applying patch: failed to merge patch: %w", err)
	}
	return nil
}

// errUnsure ends a merge in place whose outcome is not certain.
var errUnsure = errors.New("unsure")

// merger merges into the object of a draft, at the cursor of its Edit. It walks only the parts
// that the patch names. typed.Merge rebuilds the whole object, and keeps parts that only one
// side has, so these can be shared instead. A differential test compares the two.
type merger struct {
	draft  *draft.Draft
	schema *smd.Schema
	// sure allows only changes that settling one value and settling the whole object treat in
	// the same way, and that a comparison of the object before and after finds at the same
	// path.
	sure bool
	// released says that the rest of the patch may be written although it shares parts with the
	// object.
	released bool
}

// release calls Edit.Release, once and before the first write, since containers of the patch
// may become part of the object. A part with only one value needs no release.
func (m *merger) release(part any, values int) {
	if m.sure && !m.released && values > 1 {
		m.draft.Edit.Release(part)
		m.released = true
	}
}

// root merges a patch into the whole object. Both sides must conform to the type.
func (m *merger) root(live, patch any, tr smd.TypeRef, spot openapi.Spot) error {
	atom, ok := m.schema.Resolve(tr)
	if !ok {
		return noType(tr)
	}
	l, _ := live.(map[string]any)
	p, _ := patch.(map[string]any)
	switch atom = deduce(atom, patch); {
	case atom.Map == nil && atom.Scalar == nil && atom.List == nil:
		return invalidAtom(tr)
	case atom.Map != nil && atom.Map.ElementRelationship != smd.Atomic && len(l) > 0:
		return m.members(l, p, atom.Map, spot, false)
	case m.sure:
		return errUnsure
	case !tree.Equal(live, patch):
		m.draft.Edit.SetRoot(patch)
	}
	return nil
}

// members merges two maps, of which live is at the cursor. element says that live is an element
// of a list.
func (m *merger) members(live, patch map[string]any, t *smd.Map, spot openapi.Spot, element bool) error {
	m.release(patch, len(patch))
	for key, pv := range patch {
		at := spot
		// A tree path cannot lead below an empty name. A comparison takes an element whose
		// identity changes for another one.
		if m.sure && (key == "" || !at.Field(key)) {
			return errUnsure
		}
		token := tree.Token{Key: key}
		lv, found := live[key]
		before := m.draft.Writes()
		if !found {
			if !m.write(token, nil, false, pv, &at) {
				return errUnsure
			}
		} else {
			ft := t.ElementType
			if f, ok := t.FindField(key); ok {
				ft = f.Type
			}
			if err := m.child(token, lv, pv, ft, at); err != nil {
				return prefixed(err, "."+key)
			}
		}
		if m.sure && element && tree.Identifies(key) && m.draft.Writes() > before {
			return errUnsure
		}
	}
	return nil
}

// write writes a value to a child of the container at the cursor. It reports false if
// Draft.Write does.
func (m *merger) write(t tree.Token, live any, found bool, patch any, spot *openapi.Spot) bool {
	if !m.sure {
		spot = nil
	}
	return m.draft.Write(spot, t, live, found, patch, "")
}

// child merges a value into a child of the container at the cursor. Both sides exist;
// either may be null. Both must conform to the type.
func (m *merger) child(token tree.Token, live, patch any, tr smd.TypeRef, spot openapi.Spot) error {
	atom, ok := m.schema.Resolve(tr)
	switch {
	case m.sure && (patch == nil || !ok):
		return errUnsure
	case !ok:
		return noType(tr)
	}
	// The patch's own form decides (typed/merge.go: mergingWalker.merge): the
	// form of the live value would only be walked for errors, which a valid
	// live value does not have. Null has no form and takes the first that the
	// type allows, in the order map, scalar, list.
	//
	// What is not a map or list counts as an empty one: null, and the other forms
	// of a type that allows several.
	switch atom = deduce(atom, patch); {
	case atom.Map != nil:
		l, _ := live.(map[string]any)
		p, _ := patch.(map[string]any)
		atomic := atom.Map.ElementRelationship == smd.Atomic
		switch {
		case m.sure && (l == nil || p == nil || atomic):
			return errUnsure
		case len(p) == 0 && !atomic && (m.sure || len(l) > 0):
			return nil
		case atomic || len(p) == 0:
		case len(l) > 0:
			m.draft.Edit.Down(token, live)
			err := m.members(l, p, atom.Map, spot, false)
			m.draft.Edit.Up()
			return err
		}
	case atom.Scalar != nil:
	case atom.List != nil:
		l, _ := live.([]any)
		p, _ := patch.([]any)
		atomic := atom.List.ElementRelationship == smd.Atomic
		switch {
		case m.sure && (l == nil || p == nil || atom.List.ElementRelationship != smd.Associative):
			return errUnsure
		case len(p) == 0 && !atomic && (m.sure || len(l) > 0):
			return nil
		case atomic || len(p) == 0:
		case len(l) > 0:
			return m.list(token, live, p, atom.List, spot)
		}
	default:
		return invalidAtom(tr)
	}
	if !m.write(token, live, true, patch, &spot) {
		return errUnsure
	}
	return nil
}

// list merges two non-empty lists whose elements have identities; the live one is a
// child of the container at the cursor.
//
// Elements of the patch keep the patch's order, elements of the live list alone keep
// their place relative to their neighbours. Copies of a live element that the patch
// names collapse into the patch's element alone, since the library cannot say which
// of them it would merge with (typed/merge.go: visitListItems, indexListPathElements).
func (m *merger) list(token tree.Token, list any, patch []any, t *smd.List, spot openapi.Spot) error {
	live := list.([]any)
	if m.sure && !spot.Element() {
		return errUnsure
	}
	m.release(patch, len(patch))
	keys := newKeyer(m.schema, t)
	var room [8]named
	names := room[:0]
	if len(patch) > len(room) {
		names = make([]named, 0, len(patch))
	}
	for i, item := range patch {
		key, err := keys.of(item)
		if err != nil {
			return noKey(i, err)
		}
		names = append(names, named{key: key, live: -1})
	}
	index := nameIndex{names: names}
	next, inOrder := 0, true
	for i, item := range live {
		key, err := keys.of(item)
		if err != nil {
			return noKey(i, err)
		}
		n := next
		if n == len(names) || names[n].key != key {
			if n = index.find(key); n < 0 {
				continue
			}
		}
		if inOrder = inOrder && n == next; inOrder {
			next++
		} else if m.sure {
			return errUnsure
		}
		if names[n].copies++; names[n].live < 0 {
			names[n].live = i
		}
	}
	edit := &m.draft.Edit
	edit.Down(token, list)
	changed := 0
	for n, e := range names {
		if e.copies != 1 {
			continue
		}
		writes := m.draft.Writes()
		if err := m.element(e.live, live[e.live], patch[n], t, spot); err != nil {
			return err
		}
		if m.draft.Writes() > writes {
			changed++
		}
	}
	if inOrder {
		// The live list keeps its order and what is new follows.
		for n := next; n < len(patch); n++ {
			if !m.write(tree.Token{Index: len(live) + n - next}, nil, false, patch[n], &spot) {
				return errUnsure
			}
		}
		edit.Up()
		// If several elements change, a comparison identifies them only by their names.
		if m.sure && (changed > 1 || changed > 0 && next < len(patch)) &&
			!(len(t.Keys) == 1 && t.Keys[0] == "name" && draft.AllNamed(live)) {
			return errUnsure
		}
		return nil
	}
	merged := edit.At().([]any)
	edit.Up()
	// at[i] is the index of the patch's element with the key of live[i], -1: none.
	at := make([]int, len(live))
	for i, item := range live {
		key, err := keys.of(item)
		if err != nil {
			return noKey(i, err)
		}
		at[i] = index.find(key)
	}
	if out := ordered(merged, patch, names, at); !slices.EqualFunc(out, merged, tree.Same) {
		edit.Set(token, out)
	}
	return nil
}

// element merges a value into an element of the list at the cursor.
func (m *merger) element(i int, live, patch any, t *smd.List, spot openapi.Spot) error {
	token := tree.Token{Index: i}
	if !m.sure {
		return m.child(token, live, patch, t.ElementType, spot)
	}
	l, ok := live.(map[string]any)
	p, ok2 := patch.(map[string]any)
	if !ok || !ok2 {
		if !tree.Equal(live, patch) {
			return errUnsure
		}
		return nil
	}
	atom, ok := m.schema.Resolve(t.ElementType)
	if !ok || atom.Map == nil || atom.Map.ElementRelationship == smd.Atomic || len(l) == 0 {
		return errUnsure
	}
	m.draft.Edit.Down(token, live)
	err := m.members(l, p, atom.Map, spot, true)
	m.draft.Edit.Up()
	return err
}

// named is one element that a patch names, and where the live list has it.
type named struct {
	key    itemKey
	live   int // index of the first live element of that key, -1: none
	copies int // live elements of that key
	taken  bool
}

// ordered returns the elements of two lists in the order of the library. at[i] is the index of
// the patch's element with the key of live[i], -1: none. Elements that both lists have once
// were merged into live before.
func ordered(live, patch []any, names []named, at []int) []any {
	// advance returns the next element that both lists have and that is not taken yet, in the
	// patch's order; len(names) if there is none.
	advance := func(from int) int {
		for from < len(names) && names[from].copies == 0 {
			from++
		}
		return from
	}
	next := advance(0)
	out := make([]any, 0, max(len(live), len(patch)))
	take := func(n int) {
		names[n].taken = true
		if names[n].copies == 1 {
			out = append(out, live[names[n].live])
		} else {
			out = append(out, patch[n])
		}
	}
	for i, n := 0, 0; i < len(live) || n < len(patch); {
		if i < len(live) && n < len(patch) {
			if at[i] == n {
				take(n)
				next = advance(n + 1)
				i++
				n++
				continue
			}
			if at[i] >= 0 && next < len(names) && next != at[i] {
				// The patch decides the position of the element, which is later or was earlier.
				i++
				continue
			}
		}
		if i < len(live) {
			if at[i] < 0 {
				out = append(out, live[i])
				i++
				continue
			}
			if names[at[i]].taken {
				i++
			}
		}
		if n < len(patch) {
			take(n)
			n++
		}
	}
	return out
}

// nameIndex finds elements by their keys.
type nameIndex struct {
	names []named
	byKey map[itemKey]int // made by the first find if there are many elements
}

// find returns the index of the element of a key, -1 if there is none.
func (x *nameIndex) find(key itemKey) int {
	if len(x.names) > 8 {
		if x.byKey == nil {
			x.byKey = make(map[itemKey]int, len(x.names))
			for i := range x.names {
				x.byKey[x.names[i].key] = i
			}
		}
		if i, ok := x.byKey[key]; ok {
			return i
		}
		return -1
	}
	for i := range x.names {
		if x.names[i].key == key {
			return i
		}
	}
	return -1
}

func noKey(i int, err error) error {
	return smd.ValidationErrors{{ErrorMessage: fmt.Sprintf("element %d: %v", i, err)}}
}

// deduce narrows a type that allows several forms to the one that v has
// (typed/helpers.go: deduceAtom).
func deduce(atom smd.Atom, v any) smd.Atom {
	switch v := v.(type) {
	case nil:
	case map[string]any, map[any]any:
		if atom.Map != nil {
			return smd.Atom{Map: atom.Map}
		}
	case []any:
		if atom.List != nil {
			return smd.Atom{List: atom.List}
		}
	default:
		if atom.Scalar != nil && isScalar(v) {
			return smd.Atom{Scalar: atom.Scalar}
		}
	}
	return atom
}

func isScalar(v any) bool {
	switch v.(type) {
	case string, bool:
		return true
	}
	return isNumber(v)
}

// isNumber reports whether structured-merge-diff takes v for a number; uint64 is none.
func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64, int, int8, int16, int32, uint, uint8, uint16, uint32, float32:
		return true
	}
	return false
}

func prefixed(err error, prefix string) error {
	if errs, ok := err.(smd.ValidationErrors); ok {
		return errs.WithPrefix(prefix)
	}
	return err
}

// changesAsText reports whether an apply configuration has a nil list, as upstream's conversion
// makes of an empty one. It becomes null in the JSON text that a later JSON Patch works on.
func changesAsText(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if changesAsText(e) {
				return true
			}
		}
	case []any:
		return v == nil || slices.ContainsFunc(v, changesAsText)
	}
	return false
}
