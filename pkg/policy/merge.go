package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/mapd-project/mapd/pkg/tree"
)

// This file merges an apply configuration into a live object with the results
// of structured-merge-diff's typed.Merge, list order included, but walks only
// what the patch names. typed.Merge rebuilds the whole object; its result for
// what one side alone holds is that side, so both sides' untouched subtrees
// can be shared instead. The differential test holds the two together.

// merger merges values of one schema.
type merger struct {
	schema *smdschema.Schema
}

// merge returns live with patch merged into it, and live itself (in the sense
// of tree.Same) if that changes no value. Both sides exist; either may be
// null. Both must conform to the type.
func (m merger) merge(live, patch any, tr smdschema.TypeRef) (any, error) {
	atom, ok := m.schema.Resolve(tr)
	if !ok {
		return nil, noType(tr)
	}
	// The patch's own form decides (typed/merge.go: mergingWalker.merge): the
	// form of the live value would only be walked for errors, which a valid
	// live value does not have. Null has no form and takes the first that the
	// type allows, in the order map, scalar, list.
	atom = deduce(atom, patch)
	switch {
	case atom.Map != nil:
		return m.mergeMap(live, patch, atom.Map)
	case atom.Scalar != nil:
		return leaf(live, patch), nil
	case atom.List != nil:
		return m.mergeList(live, patch, atom.List)
	}
	return nil, invalidAtom(tr)
}

func (m merger) mergeMap(live, patch any, t *smdschema.Map) (any, error) {
	// What is not a map counts as an empty one: null, and the other forms of a
	// type that allows several.
	l, _ := live.(map[string]any)
	p, _ := patch.(map[string]any)
	if t.ElementRelationship == smdschema.Atomic || len(l) == 0 && len(p) == 0 {
		return leaf(live, patch), nil
	}
	if len(p) == 0 {
		return live, nil
	}
	if len(l) == 0 {
		return patch, nil
	}
	var out map[string]any
	for key, pv := range p {
		lv, found := l[key]
		next := pv
		if found {
			ft := t.ElementType
			if f, ok := t.FindField(key); ok {
				ft = f.Type
			}
			var err error
			if next, err = m.merge(lv, pv, ft); err != nil {
				return nil, prefixed(err, "."+key)
			}
			if tree.Same(lv, next) {
				continue
			}
		}
		if out == nil {
			out = maps.Clone(l)
		}
		out[key] = next
	}
	if out == nil {
		return live, nil
	}
	return out, nil
}

func (m merger) mergeList(live, patch any, t *smdschema.List) (any, error) {
	l, _ := live.([]any)
	p, _ := patch.([]any)
	if t.ElementRelationship == smdschema.Atomic || len(l) == 0 && len(p) == 0 {
		return leaf(live, patch), nil
	}
	if len(p) == 0 {
		return live, nil
	}
	if len(l) == 0 {
		return patch, nil
	}
	return m.mergeAssociative(l, p, t)
}

// named is one element that the patch names, and what the live list has for it.
type named struct {
	key    itemKey
	live   int // index of the first live element of that key, -1: none
	copies int // live elements of that key
	merged bool
}

// mergeAssociative merges two non-empty lists whose elements have identities.
// Elements of the patch keep the patch's order, elements of the live list
// alone keep their place relative to their neighbours. Copies of a live
// element that the patch names collapse into the patch's element alone, since
// the library cannot say which of them it would merge with
// (typed/merge.go: visitListItems, indexListPathElements).
func (m merger) mergeAssociative(live, patch []any, t *smdschema.List) (any, error) {
	keys := newKeyer(m.schema, t)
	names := make([]named, len(patch))
	for i, item := range patch {
		key, err := keys.of(item)
		if err != nil {
			return nil, typed.ValidationErrors{{ErrorMessage: fmt.Sprintf("element %d: %v", i, err)}}
		}
		names[i] = named{key: key, live: -1}
	}
	find := finder(names)
	// at[i] is the patch's element that live[i] meets, -1: none.
	at := make([]int, len(live))
	for i, item := range live {
		key, err := keys.of(item)
		if err != nil {
			return nil, typed.ValidationErrors{{ErrorMessage: fmt.Sprintf("element %d: %v", i, err)}}
		}
		n := find(key)
		at[i] = n
		if n < 0 {
			continue
		}
		if names[n].copies++; names[n].live < 0 {
			names[n].live = i
		}
	}

	// next is the first element both lists have that is not merged yet, in the
	// patch's order; len(names) if there is none.
	advance := func(from int) int {
		for from < len(names) && names[from].copies == 0 {
			from++
		}
		return from
	}
	next := advance(0)

	out := make([]any, 0, max(len(live), len(patch)))
	same := true
	take := func(n int) error {
		item := patch[n]
		e := &names[n]
		e.merged = true
		if e.copies == 1 {
			var err error
			if item, err = m.merge(live[e.live], item, t.ElementType); err != nil {
				return err
			}
		}
		same = same && len(out) < len(live) && tree.Same(live[len(out)], item)
		out = append(out, item)
		return nil
	}
	for i, n := 0, 0; i < len(live) || n < len(patch); {
		if i < len(live) && n < len(patch) {
			if at[i] == n {
				if err := take(n); err != nil {
					return nil, err
				}
				next = advance(n + 1)
				i++
				n++
				continue
			}
			if at[i] >= 0 && next < len(names) && next != at[i] {
				// Its turn comes later, or was earlier: the patch decides.
				i++
				continue
			}
		}
		if i < len(live) {
			if at[i] < 0 {
				same = same && len(out) < len(live) && tree.Same(live[len(out)], live[i])
				out = append(out, live[i])
				i++
				continue
			}
			if names[at[i]].merged {
				i++
			}
		}
		if n < len(patch) {
			if err := take(n); err != nil {
				return nil, err
			}
			n++
		}
	}
	if same && len(out) == len(live) {
		return live, nil
	}
	return out, nil
}

// finder returns a lookup from a key to the index in names, -1 if absent.
func finder(names []named) func(itemKey) int {
	if len(names) <= 8 {
		return func(key itemKey) int {
			for i := range names {
				if names[i].key == key {
					return i
				}
			}
			return -1
		}
	}
	index := make(map[itemKey]int, len(names))
	for i := range names {
		index[names[i].key] = i
	}
	return func(key itemKey) int {
		if i, ok := index[key]; ok {
			return i
		}
		return -1
	}
}

// leaf is the merge of two values that are not merged by parts: the patch's,
// or the live one if they are equal.
func leaf(live, patch any) any {
	if tree.Equal(live, patch) {
		return live
	}
	return patch
}

// deduce narrows a type that allows several forms to the one that v has
// (typed/helpers.go: deduceAtom).
func deduce(atom smdschema.Atom, v any) smdschema.Atom {
	switch v := v.(type) {
	case nil:
	case map[string]any, map[any]any:
		if atom.Map != nil {
			return smdschema.Atom{Map: atom.Map}
		}
	case []any:
		if atom.List != nil {
			return smdschema.Atom{List: atom.List}
		}
	default:
		if atom.Scalar != nil && isScalar(v) {
			return smdschema.Atom{Scalar: atom.Scalar}
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

// isNumber says what structured-merge-diff takes for one; uint64 it does not.
func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64, int, int8, int16, int32, uint, uint8, uint16, uint32, float32:
		return true
	}
	return false
}

// itemKey is the identity of a list element: of a set, the value; of a list
// map, its key fields. Equal keys are equal in the sense of
// fieldpath.PathElement.Equals: an integer equals a float of the same value,
// and a field that is absent without a default differs from any value.
type itemKey struct {
	a, b any
	more string
}

type (
	absentKey struct{}
	// deepKey stands for a key that is not a scalar.
	deepKey string
)

// keyer derives the identities of one list's elements.
type keyer struct {
	list *smdschema.List
	// two are the defaults of the first two keys, more those of the others; nil:
	// none.
	two  [2]any
	more []any
	err  error // why an absent key cannot be defaulted
}

// absent is what the key of that index is where it is not given, nil: nothing.
func (k *keyer) absent(i int) any {
	switch {
	case i < len(k.two):
		return k.two[i]
	case k.more == nil:
		return nil
	}
	return k.more[i-len(k.two)]
}

func newKeyer(s *smdschema.Schema, t *smdschema.List) keyer {
	k := keyer{list: t}
	atom, ok := s.Resolve(t.ElementType)
	switch {
	case !ok:
		k.err = fmt.Errorf("invalid elementType for list")
		return k
	case atom.Map == nil:
		k.err = fmt.Errorf("associative list may not have non-map types")
		return k
	}
	for i, name := range t.Keys {
		f, ok := atom.Map.FindField(name)
		if !ok || f.Default == nil {
			continue
		}
		if i < len(k.two) {
			k.two[i] = f.Default
			continue
		}
		if k.more == nil {
			k.more = make([]any, len(t.Keys)-len(k.two))
		}
		k.more[i-len(k.two)] = f.Default
	}
	return k
}

// of is the identity of item, or why it has none.
func (k *keyer) of(item any) (itemKey, error) {
	if k.list.ElementRelationship != smdschema.Associative {
		return itemKey{}, fmt.Errorf("invalid indexing of non-associative list")
	}
	if len(k.list.Keys) == 0 {
		switch item.(type) {
		case nil:
			return itemKey{}, fmt.Errorf("associative list without keys has an element that's an explicit null")
		case map[string]any, map[any]any:
			return itemKey{}, fmt.Errorf("associative list without keys has an element that's a map type")
		case []any:
			return itemKey{}, fmt.Errorf("not supported: associative list with lists as elements")
		}
		return itemKey{a: scalarKey(item)}, nil
	}
	if item == nil {
		return itemKey{}, fmt.Errorf("associative list with keys may not have a null element")
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return itemKey{}, fmt.Errorf("associative list with keys may not have non-map elements")
	}
	key := itemKey{a: absentKey{}, b: absentKey{}}
	keyed := false
	for i, name := range k.list.Keys {
		v, found := fields[name]
		if !found {
			if k.err != nil {
				return itemKey{}, fmt.Errorf("couldn't find default value for %v: %v", name, k.err)
			}
			v = k.absent(i)
			found = v != nil
		}
		if !found {
			if i >= 2 {
				key.more += "\x00-"
			}
			continue
		}
		keyed = true
		switch i {
		case 0:
			key.a = scalarKey(v)
		case 1:
			key.b = scalarKey(v)
		default:
			key.more += "\x00=" + encodeKey(v)
		}
	}
	if !keyed {
		return itemKey{}, fmt.Errorf("associative list with keys has an element that omits all key fields %q (and doesn't have default values for any key fields)", k.list.Keys)
	}
	return key, nil
}

// scalarKey maps v to a value that == can compare.
func scalarKey(v any) any {
	switch v := v.(type) {
	case nil, string, bool, int64:
		return v
	case float64:
		return integral(v)
	case float32:
		return integral(float64(v))
	case int:
		return int64(v)
	case int8:
		return int64(v)
	case int16:
		return int64(v)
	case int32:
		return int64(v)
	case uint:
		return int64(v)
	case uint8:
		return int64(v)
	case uint16:
		return int64(v)
	case uint32:
		return int64(v)
	}
	return deepKey(encodeKey(v))
}

// integral is f, as an integer if it is one: 1.0 and 1 are one key.
func integral(f float64) any {
	if f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return int64(f)
	}
	return f
}

// encodeKey writes v so that different values give different strings. What is
// not JSON data, such as a CEL optional, is all one value to the library
// (structured-merge-diff value/value.go: CompareUsing).
func encodeKey(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var b strings.Builder
		b.WriteByte('{')
		for _, k := range slices.Sorted(maps.Keys(v)) {
			b.WriteString(strconv.Quote(k) + ":" + encodeKey(v[k]) + ",")
		}
		b.WriteByte('}')
		return b.String()
	case []any:
		var b strings.Builder
		b.WriteByte('[')
		for _, e := range v {
			b.WriteString(encodeKey(e) + ",")
		}
		b.WriteByte(']')
		return b.String()
	case nil:
		return "null"
	case string:
		return strconv.Quote(v)
	}
	if isScalar(v) {
		return fmt.Sprint(scalarKey(v))
	}
	return "?"
}

// checker validates an apply configuration against a schema and finds the
// atomic places that it names. Its errors are structured-merge-diff's, one for
// one; maps are walked in the order of their keys so that a text is the same
// each time (the library's own order is random).
type checker struct {
	schema *smdschema.Schema
}

// sound reports whether validate and atomics find nothing in v. It looks at all
// of it at once and makes nothing; false means that those have to be asked.
func (c checker) sound(v any, tr smdschema.TypeRef) bool {
	atom, ok := c.schema.Resolve(tr)
	if !ok || v == nil {
		return false
	}
	switch atom = deduce(atom, v); {
	case atom.Map != nil:
		fields, ok := v.(map[string]any)
		if !ok || atom.Map.ElementRelationship == smdschema.Atomic {
			return false
		}
		for key, v := range fields {
			ft := atom.Map.ElementType
			if f, ok := atom.Map.FindField(key); ok {
				ft = f.Type
			} else if isZeroRef(ft) {
				return false
			}
			if !c.sound(v, ft) {
				return false
			}
		}
		return true
	case atom.Scalar != nil:
		return validateScalar(v, *atom.Scalar) == nil
	case atom.List != nil:
		list, ok := v.([]any)
		return ok && c.soundList(list, atom.List)
	}
	return false
}

// soundList leaves long lists to validate: their keys are compared each with each.
func (c checker) soundList(list []any, t *smdschema.List) bool {
	var room [32]itemKey
	if t.ElementRelationship != smdschema.Associative || len(list) > len(room) {
		return false
	}
	keys, seen := newKeyer(c.schema, t), room[:0]
	for _, item := range list {
		key, err := keys.of(item)
		if err != nil || slices.Contains(seen, key) || !c.sound(item, t.ElementType) {
			return false
		}
		seen = append(seen, key)
	}
	return true
}

// validate is typed.TypedValue.Validate without options.
func (c checker) validate(v any, tr smdschema.TypeRef) typed.ValidationErrors {
	atom, ok := c.schema.Resolve(tr)
	if !ok {
		name := "inlined type"
		if tr.NamedType != nil {
			name = *tr.NamedType
		}
		return invalid("schema error: no type found matching: %v", name)
	}
	atom = deduce(atom, v)
	switch {
	case atom.Map != nil:
		return c.validateMap(v, atom.Map)
	case atom.Scalar != nil:
		return validateScalar(v, *atom.Scalar)
	case atom.List != nil:
		return c.validateList(v, atom.List)
	}
	return invalidAtom(tr)
}

func (c checker) validateMap(v any, t *smdschema.Map) (errs typed.ValidationErrors) {
	if v == nil {
		return nil
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return invalid("expected map, got %v", value.NewValueInterface(v))
	}
	one := func(key string, v any) bool {
		ft := t.ElementType
		if f, ok := t.FindField(key); ok {
			ft = f.Type
		} else if isZeroRef(t.ElementType) {
			errs = append(errs, invalid("field not declared in schema").WithPrefix("."+key)...)
			return false
		}
		if sub := c.validate(v, ft); sub != nil {
			errs = append(errs, sub.WithPrefix("."+key)...)
		}
		return true
	}
	if len(fields) == 1 {
		for key, v := range fields {
			one(key, v)
		}
		return errs
	}
	// Unsorted first: an order is only needed to report.
	for key, v := range fields {
		if !one(key, v) || errs != nil {
			errs = nil
			for _, key := range slices.Sorted(maps.Keys(fields)) {
				if !one(key, fields[key]) {
					break
				}
			}
			return errs
		}
	}
	return nil
}

func (c checker) validateList(v any, t *smdschema.List) (errs typed.ValidationErrors) {
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		return invalid("expected list, got %v", value.NewValueInterface(v))
	}
	if t.ElementRelationship != smdschema.Associative {
		for i, item := range list {
			if sub := c.validate(item, t.ElementType); sub != nil {
				errs = append(errs, sub.WithPrefix("["+strconv.Itoa(i)+"]")...)
			}
		}
		return errs
	}
	keys := newKeyer(c.schema, t)
	var seen map[itemKey]bool
	if len(list) > 1 {
		seen = make(map[itemKey]bool, len(list))
	}
	for i, item := range list {
		key, err := keys.of(item)
		if err != nil {
			return append(errs, invalid("element %v: %v", i, err)...)
		}
		if seen[key] {
			errs = append(errs, invalid("duplicate entries for key %v", keys.element(item))...)
		}
		if seen != nil {
			seen[key] = true
		}
		if sub := c.validate(item, t.ElementType); sub != nil {
			errs = append(errs, sub.WithPrefix(keys.element(item))...)
		}
	}
	return errs
}

// element is item's path element as the library prints it.
func (k *keyer) element(item any) string {
	if len(k.list.Keys) == 0 {
		v := value.NewValueInterface(item)
		return fieldpath.PathElement{Value: &v}.String()
	}
	fields, _ := item.(map[string]any)
	var list value.FieldList
	for i, name := range k.list.Keys {
		v, found := fields[name]
		if !found {
			v = k.absent(i)
			found = v != nil
		}
		if found {
			list = append(list, value.Field{Name: name, Value: value.NewValueInterface(v)})
		}
	}
	list.Sort()
	return fieldpath.PathElement{Key: &list}.String()
}

// validateScalar is the library's function of that name (typed/validate.go);
// its texts print the value in two ways, both reproduced.
func validateScalar(v any, t smdschema.Scalar) typed.ValidationErrors {
	if v == nil {
		return nil
	}
	switch t {
	case smdschema.Numeric:
		if !isNumber(v) {
			return invalid("expected numeric (int or float), got %T", v)
		}
	case smdschema.String:
		if _, ok := v.(string); !ok {
			return invalid("expected string, got %#v", value.NewValueInterface(v))
		}
	case smdschema.Boolean:
		if _, ok := v.(bool); !ok {
			return invalid("expected boolean, got %v", value.NewValueInterface(v))
		}
	case smdschema.Untyped:
		if !isScalar(v) {
			return invalid("expected any scalar, got %v", value.NewValueInterface(v))
		}
	default:
		return invalid("unexpected scalar type in schema: %v", t)
	}
	return nil
}

// atomics appends the paths of all atomic lists, maps and structs that v
// names, in the sense of k8s.io/apiserver …/mutating/patch/smd.go: findAtomics
// (spec §7.3): presence alone counts, and the values of a map without declared
// fields are not looked at.
func (c checker) atomics(found []string, path []string, v any, tr smdschema.TypeRef) []string {
	atom, ok := c.schema.Resolve(tr)
	if !ok {
		return found
	}
	switch v := v.(type) {
	case map[string]any:
		if atom.Map == nil {
			return found
		}
		if atom.Map.ElementRelationship == smdschema.Atomic {
			found = append(found, strings.Join(path, ""))
		}
		for key, child := range v {
			if f, ok := atom.Map.FindField(key); ok && mayHold(child) {
				found = c.atomics(found, append(path, ".", key), child, f.Type)
			}
		}
	case []any:
		if atom.List == nil {
			return found
		}
		if atom.List.ElementRelationship == smdschema.Atomic {
			found = append(found, strings.Join(path, ""))
		}
		for i, child := range v {
			if mayHold(child) {
				found = c.atomics(found, append(path, "[", strconv.Itoa(i), "]"), child, atom.List.ElementType)
			}
		}
	}
	return found
}

func mayHold(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

func isZeroRef(tr smdschema.TypeRef) bool { return tr == smdschema.TypeRef{} }

func invalid(format string, args ...any) typed.ValidationErrors {
	return typed.ValidationErrors{{ErrorMessage: fmt.Sprintf(format, args...)}}
}

func invalidAtom(tr smdschema.TypeRef) typed.ValidationErrors {
	name := "inlined"
	if tr.NamedType != nil {
		name = "named type: " + *tr.NamedType
	}
	return invalid("schema error: invalid atom: %v", name)
}

func noType(tr smdschema.TypeRef) typed.ValidationErrors {
	name := ""
	if tr.NamedType != nil {
		name = *tr.NamedType
	}
	return invalid("schema error: no type found matching: %v", name)
}

func prefixed(err error, prefix string) error {
	if errs, ok := err.(typed.ValidationErrors); ok {
		return errs.WithPrefix(prefix)
	}
	return err
}
