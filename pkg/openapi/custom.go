package openapi

import (
	"fmt"
	"maps"
	"slices"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	structuralobjectmeta "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	structuralpruning "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/pkg/tree"
)

// settleCustom is Settle for a kind without Go type: the text of a JSON Patch
// is read again, then come the defaults (k8s.io/apiextensions-apiserver
// pkg/apiserver/customresource_handler.go: unstructuredDefaulter).
func (k *Kind) settleCustom(before, after map[string]any, from Decoding) (map[string]any, error) {
	if before != nil && tree.Same(before, after) {
		return before, nil
	}
	apiVersion, kind := k.gvk.ToAPIVersionAndKind()
	known := after["apiVersion"] == apiVersion && after["kind"] == kind
	if !known && from == FromJSONPatch {
		if err := checkKind(after); err != nil {
			return nil, err
		}
	}
	s := customSettler{text: from == FromJSONPatch}
	var d *defaults
	if known && k.custom != nil {
		d = k.custom.defaults
	}
	return s.value(d, before, after).(map[string]any), nil
}

// checkKind lets the decoder look at an object whose kind or apiVersion a
// patch touched, for its words.
func checkKind(obj map[string]any) error {
	data, err := encode(obj)
	if err != nil {
		return err
	}
	_, _, err = goTypes().codec.Decode(data, nil, &unstructured.Unstructured{})
	return err
}

// defaults are the default values of a structural schema, without anything
// else. Nil means that there are none here and below.
type defaults struct {
	value    any // its own default, with the defaults below it applied; nil: none
	nullable bool
	fields   map[string]*defaults
	known    map[string]bool // declared fields, with defaults or not
	others   *defaults       // additionalProperties
	items    *defaults
}

func newDefaults(s *structuralschema.Structural) *defaults {
	if s == nil {
		return nil
	}
	d := &defaults{nullable: s.Nullable, known: map[string]bool{}}
	for name, p := range s.Properties {
		d.known[name] = true
		if f := newDefaults(&p); f != nil {
			if d.fields == nil {
				d.fields = map[string]*defaults{}
			}
			d.fields[name] = f
		}
	}
	if s.AdditionalProperties != nil {
		d.others = newDefaults(s.AdditionalProperties.Structural)
	}
	d.items = newDefaults(s.Items)
	if s.Default.Object == nil && d.fields == nil && d.others == nil && d.items == nil {
		return nil
	}
	if s.Default.Object != nil {
		var w customSettler
		d.value = w.value(d, nil, s.Default.Object)
	}
	return d
}

// replaces says whether the default takes the place of a value that is there:
// of null, where null is not allowed.
func (w *customSettler) replaces(d *defaults, v any) bool {
	return d != nil && (v == nil || w.text && isNull(v)) && !d.nullable && d.value != nil
}

// customSettler walks a changed tree beside the settled one that it came from.
type customSettler struct {
	text bool // it went through text: read scalars anew
}

func (w *customSettler) value(d *defaults, before, after any) any {
	if before != nil && tree.Same(before, after) {
		return before
	}
	if isNull(after) {
		if w.text {
			return nil // of whatever type it is
		}
		return after
	}
	switch v := after.(type) {
	case map[string]any:
		b, _ := before.(map[string]any)
		return w.object(d, b, v)
	case []any:
		b, _ := before.([]any)
		return w.list(d, b, v)
	}
	if w.text {
		return reread(after)
	}
	return after
}

func (w *customSettler) object(d *defaults, before, after map[string]any) map[string]any {
	out, own := after, false
	same := before != nil
	for key, av := range after {
		bv, had := before[key]
		if had && tree.Same(av, bv) {
			continue
		}
		var f *defaults
		if d != nil {
			if f = d.fields[key]; f == nil && !d.known[key] {
				f = d.others
			}
		}
		v := av
		if w.replaces(f, av) {
			v = f.value
			if had && tree.Equal(bv, v) {
				v = bv
			}
		} else {
			v = w.value(f, bv, av)
		}
		if !tree.Same(v, av) {
			if !own {
				out, own = maps.Clone(after), true
			}
			out[key] = v
		}
		same = same && had && tree.Same(v, bv)
	}
	if d != nil {
		for key, f := range d.fields {
			if f.value == nil {
				continue
			}
			if _, ok := out[key]; ok {
				continue
			}
			if !own {
				out, own = maps.Clone(after), true
			}
			out[key] = f.value
			if bv, had := before[key]; had && tree.Equal(bv, f.value) {
				out[key] = bv
			} else {
				same = false
			}
		}
	}
	if same && len(out) == len(before) {
		return before
	}
	return out
}

func (w *customSettler) list(d *defaults, before, after []any) []any {
	var items *defaults
	if d != nil {
		items = d.items
	}
	out, own := after, false
	head, tail := aligned(before, after)
	same := before != nil && len(before) == len(after)
	for i := head; i < len(after)-tail; i++ {
		var bv any
		if len(before) == len(after) {
			bv = before[i]
		}
		v := after[i]
		if w.replaces(items, v) {
			v = items.value
		} else {
			v = w.value(items, bv, v)
		}
		if !tree.Same(v, after[i]) {
			if !own {
				out, own = slices.Clone(after), true
			}
			out[i] = v
		}
		same = same && tree.Same(v, bv)
	}
	if same {
		return before
	}
	return out
}

// Normalize gives a whole object as a server would hold it after decoding it
// strictly: for objects from files, of which nothing is known. A built-in kind
// goes through its Go type; a custom one has its metadata checked, unknown
// fields refused and its defaults filled in (k8s.io/apiextensions-apiserver
// pkg/apiserver/customresource_handler.go: schemaCoercingDecoder). The text of
// an error is the decoder's: strict decoding error: unknown field "spec.x".
//
// obj is not modified; the result shares with it what it can.
func (k *Kind) Normalize(obj map[string]any) (map[string]any, error) {
	if k.goType != nil {
		return k.settleBuiltin(nil, obj, FromJSONPatch)
	}
	if err := checkKind(obj); err != nil {
		return nil, err
	}
	if k.custom == nil {
		return obj, nil
	}
	fresh := runtime.DeepCopyJSON(obj)
	if err := k.custom.coerce(fresh); err != nil {
		return nil, err
	}
	var w customSettler
	return w.value(k.custom.defaults, nil, share(nil, obj, fresh)).(map[string]any), nil
}

// coerce does to an untyped object what decoding into a Go type does to a
// typed one.
func (c *custom) coerce(obj map[string]any) error {
	meta, hasMeta, unknown, err := structuralobjectmeta.GetObjectMetaWithOptions(obj, structuralobjectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return err
	}
	apiVersion, kind := obj["apiVersion"], obj["kind"]
	unknown = append(unknown, structuralpruning.PruneWithOptions(obj, c.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	structuraldefaulting.PruneNonNullableNullsWithoutDefaults(obj, c.structural)
	fieldErr, paths := structuralobjectmeta.CoerceWithOptions(nil, obj, c.structural, false, structuralobjectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if fieldErr != nil {
		return fieldErr
	}
	unknown = append(unknown, paths...)
	obj["apiVersion"], obj["kind"] = apiVersion, kind
	if hasMeta {
		if err := structuralobjectmeta.SetObjectMeta(obj, meta); err != nil {
			return err
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	errs := make([]error, len(unknown))
	for i, path := range unknown {
		errs[i] = fmt.Errorf("unknown field %q", path)
	}
	return runtime.NewStrictDecodingError(errs)
}
