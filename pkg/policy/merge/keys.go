package merge

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mapd-project/mapd/pkg/openapi/smd"
)

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
	// deepKey is the encoded form of a key that is not a scalar.
	deepKey string
)

// keyer derives the identities of one list's elements.
type keyer struct {
	list *smd.List
	// two are the defaults of the first two keys, more those of the others; nil if there is no
	// default.
	two  [2]any
	more []any
	err  error // why an absent key cannot be defaulted
}

// absent returns the value of the i-th key for an element that lacks it, nil if it has no
// default.
func (k *keyer) absent(i int) any {
	switch {
	case i < len(k.two):
		return k.two[i]
	case k.more == nil:
		return nil
	}
	return k.more[i-len(k.two)]
}

func newKeyer(s *smd.Schema, t *smd.List) keyer {
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

// of returns the identity of item, or an error if it has none.
func (k *keyer) of(item any) (itemKey, error) {
	if k.list.ElementRelationship != smd.Associative {
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

// scalarKey returns a value for v that == can compare.
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

// integral returns f, converted to an integer if it has no fraction: 1.0 and 1 are the same
// key.
func integral(f float64) any {
	if f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return int64(f)
	}
	return f
}

// encodeKey encodes v so that different values have different strings. The library treats all
// values that are not JSON data, such as CEL optionals, as equal (structured-merge-diff
// value/value.go: CompareUsing).
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

// element returns the path element of item in the library's notation.
func (k *keyer) element(item any) string {
	if len(k.list.Keys) == 0 {
		v := smd.NewValueInterface(item)
		return smd.PathElement{Value: &v}.String()
	}
	fields, _ := item.(map[string]any)
	var list smd.FieldList
	for i, name := range k.list.Keys {
		v, found := fields[name]
		if !found {
			v = k.absent(i)
			found = v != nil
		}
		if found {
			list = append(list, smd.Field{Name: name, Value: smd.NewValueInterface(v)})
		}
	}
	list.Sort()
	return smd.PathElement{Key: &list}.String()
}
