package openapi

import (
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	structuralobjectmeta "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	structuralpruning "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/tree"
)

// settleCustom is Settle for a kind without Go type: after a JSON Patch, it converts scalars as
// encoding and decoding does; then it fills in defaults for missing fields
// (k8s.io/apiextensions-apiserver pkg/apiserver/customresource_handler.go:
// unstructuredDefaulter).
func (k *Kind) settleCustom(before, after map[string]any, from Decoding) (map[string]any, error) {
	if before != nil && tree.Same(before, after) {
		return before, nil
	}
	root := k.root()
	apiVersion, kind := k.gvk.ToAPIVersionAndKind()
	if after["apiVersion"] != apiVersion || after["kind"] != kind {
		root = anything.others
		if from == FromJSONPatch {
			if err := checkKind(after); err != nil {
				return nil, err
			}
		}
	}
	w := settler{from: from}
	return w.members(root.shape, before, after), nil
}

// anything is the shape of custom data without defaults.
var anything = func() *shape {
	sh := &shape{form: free}
	sh.items = &member{shape: sh}
	sh.others = sh.items
	return sh
}()

// newFree returns the member for values of a structural schema. Settling needs only the
// defaults of a schema, so schemas without defaults at or below a field share the shape
// anything.
func newFree(s *structuralschema.Structural) *member {
	if s == nil {
		return anything.others
	}
	sh := &shape{form: free, fields: map[string]*member{}, others: anything.others, items: newFree(s.Items)}
	plain := sh.items == anything.items
	for name, p := range s.Properties {
		m := newFree(&p)
		sh.fields[name] = m
		if m.always {
			sh.required++
		}
		plain = plain && m == anything.others
	}
	if s.AdditionalProperties != nil {
		sh.others = newFree(s.AdditionalProperties.Structural)
		plain = plain && sh.others == anything.others
	}
	if plain {
		sh = anything
	}
	if s.Default.Object == nil {
		if plain {
			return anything.others
		}
		return &member{shape: sh}
	}
	w := settler{from: FromApply}
	m := &member{shape: sh, always: true, fill: w.value(sh, nil, s.Default.Object)}
	if !s.Nullable {
		own := *sh
		own.zero = m.fill
		m.shape = &own
	}
	return m
}

// Normalize returns a whole object as a server would hold it after decoding it strictly. It is
// for objects from files, which nothing has validated. A built-in kind goes through its Go
// type; for a custom one, Normalize checks metadata, rejects unknown fields and fills in
// defaults (k8s.io/apiextensions-apiserver pkg/apiserver/customresource_handler.go:
// schemaCoercingDecoder). The text of an error is the decoder's: strict decoding error: unknown
// field "spec.x".
//
// obj is not modified; the result shares unchanged parts with it.
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
	w := settler{from: FromApply}
	return w.members(k.custom.root.shape, nil, share(nil, obj, fresh).(map[string]any)), nil
}

// coerce changes an untyped object as decoding into a Go type would.
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
	return api.UnknownFields(unknown)
}
