package openapi

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/mapd-project/mapd/pkg/quantity"
)

// A shape describes how values of one Go type look in a tree. It is made by
// reflection, once for each type, so that settling an object needs none. The
// schemas of custom kinds are shapes as well (see newFree).
type shape struct {
	form form
	name string // of the Go type, for errors

	elem     *shape             // pointer
	items    *member            // list, free: any element
	fields   map[string]*member // structure, free
	others   *member            // dict, free: what fields does not name
	required int                // how many fields are always there
	min, max int64              // integer

	// zero is the value that replaces null: the encoded zero value of the type, or the default
	// of a custom kind that does not allow null.
	zero any

	quantity bool // of a special form: resource.Quantity

	// canonical returns a value as the type's own (un)marshaler encodes it; false if it fails
	// or cannot tell.
	canonical func(v any) (any, bool)
}

type form int

const (
	opaque    form = iota // only the round trip knows
	text                  // string
	truth                 // bool
	integer               // any integer type
	number                // float64
	bytes                 // []byte
	pointer               // to elem
	list                  // slice
	dict                  // map with string keys
	structure             // struct
	special               // has its own (un)marshaler
	raw                   // Go type that holds any JSON
	free                  // part of a custom kind: any JSON
)

// A member describes the value at one name of a map or struct (including the fields of embedded
// structs) or at any index of a list.
type member struct {
	shape  *shape
	always bool // present even with an empty value
	fill   any  // the value if it is always present and missing in the tree
	omit   omission
}

// member returns the member of that name, nil if there cannot be one.
func (sh *shape) member(name string) *member {
	if m := sh.fields[name]; m != nil {
		return m
	}
	return sh.others
}

// target returns the shape behind pointers.
func (sh *shape) target() *shape {
	for sh.form == pointer {
		sh = sh.elem
	}
	return sh
}

// omission is the condition under which a field is left out.
type omission int

const (
	never    omission = iota
	ifEmpty           // omitempty: false, 0, "", no elements
	ifNull            // omitempty on a pointer, judged by what was decoded
	ifZero            // omitzero, where zero looks like null
	unsurely          // omitzero on a type whose zero value this code cannot recognize
)

// A shapeSet holds the shapes of Go types.
type shapeSet struct {
	mu sync.Mutex
	m  map[reflect.Type]*shape
}

func (s *shapeSet) of(t reflect.Type) *shape {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.build(t)
}

var (
	marshaler       = reflect.TypeFor[json.Marshaler]()
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// specials are frequent types with their own (un)marshalers. Others are handled by reflection.
var specials = map[reflect.Type]func(any) (any, bool){
	reflect.TypeFor[resource.Quantity](): canonicalQuantity,
	reflect.TypeFor[metav1.Time]():       canonicalTime,
	reflect.TypeFor[metav1.MicroTime]():  canonicalMicroTime,
	reflect.TypeFor[intstr.IntOrString](): func(v any) (any, bool) {
		switch v := v.(type) {
		case string:
			return v, true
		case int64:
			return v, v >= math.MinInt32 && v <= math.MaxInt32
		}
		return nil, false
	},
}

var raws = map[reflect.Type]bool{
	reflect.TypeFor[runtime.RawExtension](): true,
	reflect.TypeFor[metav1.FieldsV1]():      true,
	reflect.TypeFor[apiextensionsv1.JSON](): true,
}

func (s *shapeSet) build(t reflect.Type) *shape {
	if sh := s.m[t]; sh != nil {
		return sh
	}
	sh := &shape{name: t.String()}
	s.m[t] = sh // before its parts: types may contain themselves

	pt := reflect.PointerTo(t)
	switch {
	case t.Kind() == reflect.Pointer:
		sh.form, sh.elem = pointer, s.build(t.Elem())
		return sh
	case raws[t]:
		sh.form = raw
		return sh
	case pt.Implements(marshaler) && pt.Implements(unmarshaler):
		sh.form, sh.canonical, sh.zero = special, specials[t], zeroOf(t)
		sh.quantity = t == reflect.TypeFor[resource.Quantity]()
		if sh.canonical == nil {
			sh.canonical = canonicalOf(t)
		}
		return sh
	case pt.Implements(marshaler), pt.Implements(unmarshaler), pt.Implements(textUnmarshaler):
		return sh // opaque
	}

	switch t.Kind() {
	case reflect.String:
		sh.form, sh.zero = text, ""
	case reflect.Bool:
		sh.form, sh.zero = truth, false
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		sh.form, sh.zero = integer, int64(0)
		sh.max = math.MaxInt64 >> (64 - t.Bits())
		sh.min = -sh.max - 1
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		sh.form, sh.zero = integer, int64(0)
		sh.max = 1<<t.Bits() - 1
	case reflect.Float64:
		sh.form, sh.zero = number, float64(0)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			sh.form = bytes
		} else {
			sh.form, sh.items = list, &member{shape: s.build(t.Elem())}
		}
	case reflect.Map:
		if t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(textUnmarshaler) {
			sh.form, sh.others = dict, &member{shape: s.build(t.Elem())}
		}
	case reflect.Struct:
		sh.fields = map[string]*member{}
		sh.form = structure
		if !s.addFields(sh, t) {
			sh.form = opaque
		}
		zero := map[string]any{}
		for name, f := range sh.fields {
			if f.always = f.omit == never; f.always {
				sh.required++
				f.fill = f.shape.zero
				zero[name] = f.fill
			}
		}
		sh.zero = zero
	}
	return sh
}

// addFields adds the fields of a struct; false if some have JSON options that this code does
// not know.
func (s *shapeSet) addFields(sh *shape, t reflect.Type) bool {
	for i := range t.NumField() {
		sf := t.Field(i)
		name, opts, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if sf.Anonymous && name == "" {
			if sf.Type.Kind() != reflect.Struct || !s.addFields(sh, sf.Type) {
				return false
			}
			continue
		}
		if !sf.IsExported() {
			continue
		}
		if name == "" {
			name = sf.Name
		}
		if sh.fields[name] != nil {
			return false
		}
		f := &member{shape: s.build(sf.Type)}
		for opt := range strings.SplitSeq(opts, ",") {
			switch opt {
			case "omitempty":
				switch sf.Type.Kind() {
				case reflect.Struct:
				case reflect.Pointer:
					f.omit = ifNull
				default:
					f.omit = ifEmpty
				}
			case "inline", "":
			case "omitzero":
				if sf.Type == reflect.TypeFor[metav1.Time]() {
					f.omit = ifZero
				} else {
					f.omit = unsurely
				}
			default:
				return false // ",string" and options that this code does not know
			}
		}
		sh.fields[name] = f
	}
	return true
}

// zeroOf returns the encoded zero value of a special type, from the converter. (It is not used
// for every type: the converter is slow at the first use of a type.)
func zeroOf(t reflect.Type) any {
	holder := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "V", Type: t, Tag: `json:"v"`}}))
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(holder.Interface())
	if err != nil {
		return nil
	}
	return u["v"]
}

// canonicalOf returns a general, slow function for a type with its own (un)marshaler.
func canonicalOf(t reflect.Type) func(any) (any, bool) {
	holder := reflect.StructOf([]reflect.StructField{{Name: "V", Type: t, Tag: `json:"v"`}})
	return func(v any) (any, bool) {
		data, err := encode(v)
		if err != nil {
			return nil, false
		}
		h := reflect.New(holder)
		if h.Elem().Field(0).Addr().Interface().(json.Unmarshaler).UnmarshalJSON(data) != nil {
			return nil, false
		}
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(h.Interface())
		return u["v"], err == nil
	}
}

func canonicalQuantity(v any) (any, bool) {
	s, ok := v.(string)
	if ok && !quantity.Bounded(strings.TrimSpace(s)) {
		return nil, false
	}
	if !ok || strings.TrimSpace(s) != s {
		return slowQuantity(v)
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return nil, false
	}
	return q.String(), true
}

var slowQuantity = canonicalOf(reflect.TypeFor[resource.Quantity]())

func canonicalTime(v any) (any, bool) {
	s, ok := v.(string)
	if !ok {
		return nil, false
	}
	var t metav1.Time
	if t.UnmarshalQueryParameter(s) != nil || s == "" || s == "null" {
		return nil, false
	}
	return t.ToUnstructured(), true
}

var canonicalMicroTime = canonicalOf(reflect.TypeFor[metav1.MicroTime]())

// checkNumbers returns an error for a quantity beyond the bounds of package quantity and, in
// the result of a merge, for an integer that does not fit its Go type. Upstream's conversion
// lets such an integer overflow silently (spec T7).
func (t *goType) checkNumbers(tree map[string]any, from Decoding) error {
	if where, what := misfit(t.root.shape, tree, from == FromApply); what != "" {
		return fmt.Errorf("unable to convert unstructured object to %v: %s: %s", t.gvk, where[1:], what)
	}
	return nil
}

// misfit finds the first quantity or integer, in the order of sorted keys, that its type
// cannot hold.
func misfit(sh *shape, v any, integers bool) (where, what string) {
	sh = sh.target()
	switch v := v.(type) {
	case string:
		if sh.quantity && !quantity.Bounded(v) {
			return "", quantity.Err.Error()
		}
	case int64:
		if integers && sh.form == integer && (v < sh.min || v > sh.max) {
			return "", fmt.Sprintf("%d does not fit %s", v, sh.name)
		}
	case float64:
		// The largest int64 has no float64; 2^63 does, and is too large.
		if integers && sh.form == integer && v == math.Trunc(v) && (v < float64(sh.min) || v > float64(sh.max) || v >= 1<<63) {
			return "", fmt.Sprintf("%v does not fit %s", v, sh.name)
		}
	case []any:
		if sh.items == nil {
			break
		}
		for i, e := range v {
			if where, what := misfit(sh.items.shape, e, integers); what != "" {
				return fmt.Sprintf("[%d]%s", i, where), what
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if m := sh.member(key); m != nil {
				if where, what := misfit(m.shape, v[key], integers); what != "" {
					return "." + key + where, what
				}
			}
		}
	}
	return "", ""
}
