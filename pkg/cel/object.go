package cel

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/mapd-project/mapd/pkg/cel/quick"
)

// patchTypes resolves the types JSONPatch, Object and Object.<fields>. It is k8s.io/apiserver's
// resolver with another value for Object that gives access to single fields. Upstream's value
// only returns all fields as Go data, so that checking the names of nested types converts a
// value once for each level above it.
type patchTypes struct {
	mutation.DynamicTypeResolver
}

func (r *patchTypes) Resolve(name string) (common.ResolvedType, bool) {
	t, ok := r.DynamicTypeResolver.Resolve(name)
	if object, isObject := t.(*dynamic.ObjectType); isObject {
		return objectType{object}, ok
	}
	return t, ok
}

type objectType struct {
	*dynamic.ObjectType
}

func (t objectType) Val(fields map[string]ref.Val) ref.Val {
	return &objectVal{typ: t.Type(), fields: fields}
}

// objectVal is the value of a literal such as Object.spec{replicas: 1}. It
// behaves as dynamic.ObjectVal does.
type objectVal struct {
	typ    *types.Type
	fields map[string]ref.Val
}

var _ traits.Zeroer = (*objectVal)(nil)

// Type returns the named type.
func (v *objectVal) Type() ref.Type { return v.typ }

// IsZeroValue implements traits.Zeroer.
func (v *objectVal) IsZeroValue() bool { return len(v.fields) == 0 }

// Value returns the object as map[string]any, or an error value.
func (v *objectVal) Value() any {
	m, err := v.native()
	if err != nil {
		return types.WrapErr(err)
	}
	return m
}

// native converts all fields. Of several errors it returns the one of the
// first field by name.
func (v *objectVal) native() (map[string]any, error) {
	m := make(map[string]any, len(v.fields))
	var failed string
	var failure error
	for name, field := range v.fields {
		value, err := nativeField(field)
		if err != nil && (failure == nil || name < failed) {
			failed, failure = name, err
		}
		m[name] = value
	}
	if failure != nil {
		return nil, fmt.Errorf("fail to convert field %q: %w", failed, failure)
	}
	return m, nil
}

func (v *objectVal) ConvertToNative(t reflect.Type) (any, error) {
	m, err := v.native()
	if err != nil {
		return nil, err
	}
	switch t {
	case reflect.TypeFor[map[string]any]():
		return m, nil
	case reflect.TypeFor[*structpb.Struct]():
		return structpb.NewStruct(m)
	case reflect.TypeFor[*structpb.Value]():
		return structpb.NewValue(m)
	}
	return nil, fmt.Errorf("unable to convert to %v", t)
}

func (v *objectVal) ConvertToType(t ref.Type) ref.Val {
	switch {
	case t.TypeName() == v.typ.TypeName():
		return v
	case t == types.TypeType:
		return types.NewTypeTypeWithParam(v.typ)
	}
	return types.NewErr("unsupported conversion into %v", t)
}

func (v *objectVal) Equal(other ref.Val) ref.Val {
	o, ok := other.(*objectVal)
	return types.Bool(ok && v.typ.TypeName() == o.typ.TypeName() && reflect.DeepEqual(v.fields, o.fields))
}

// nativeField converts the value of a field (spec §7.2). Elements of list and
// map literals are converted one level deep only; all other lists and maps,
// JSON data among them, are converted wholly.
func nativeField(v ref.Val) (any, error) {
	native := v.Value()
	switch native := native.(type) {
	case []ref.Val:
		// Upstream's empty list is nil too.
		var list []any
		for _, e := range native {
			list = append(list, e.Value())
		}
		return list, nil
	case map[ref.Val]ref.Val:
		m := make(map[string]any, len(native))
		var failure error
		for k, e := range native {
			key, err := nativeKey(k)
			failure = first(failure, err)
			m[key] = e.Value()
		}
		if failure != nil {
			return nil, failure
		}
		return m, nil
	case map[string]any:
		// Either JSON data or an object literal; the latter is not a Mapper.
		if _, ok := v.(traits.Mapper); !ok || quick.Shareable(native) {
			return native, nil
		}
	case []any:
		if len(native) > 0 && quick.Shareable(native) {
			return native, nil
		}
	}
	switch v := v.(type) {
	case traits.Lister:
		var list []any
		for it := v.Iterator(); it.HasNext() == types.True; {
			e, err := nativeField(it.Next())
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		return list, nil
	case traits.Mapper:
		m := map[string]any{}
		var failure error
		for it := v.Iterator(); it.HasNext() == types.True; {
			k := it.Next()
			key, err := nativeKey(k)
			if err == nil {
				m[key], err = nativeField(v.Get(k))
			}
			failure = first(failure, err)
		}
		if failure != nil {
			return nil, failure
		}
		return m, nil
	}
	return native, nil
}

// first returns the one of two errors whose text sorts first: maps have no order, and the same
// input should give the same error.
func first(a, b error) error {
	if a == nil || b != nil && b.Error() < a.Error() {
		return b
	}
	return a
}

func nativeKey(k ref.Val) (string, error) {
	if key, ok := k.Value().(string); ok {
		return key, nil
	}
	return "", fmt.Errorf("map key %q is of type %T, not string", k, k)
}

// checkTypeNames reports the struct literals that are not named after the
// fields that lead to them from the root (spec §6.3). It looks into struct,
// list and map literals only, as upstream does; lines are sorted.
func checkTypeNames(root *objectVal) error {
	var lines []string
	var check func(v ref.Val, path string)
	check = func(v ref.Val, path string) {
		if object, ok := v.(*objectVal); ok {
			if name := object.typ.TypeName(); name != path {
				lines = append(lines, fmt.Sprintf(
					"unexpected type name %q, expected %q, which matches field name path from root Object type", name, path))
			}
			for name, field := range object.fields {
				if nested(field) {
					check(field, path+"."+name)
				}
			}
			return
		}
		switch elems := v.Value().(type) {
		case []ref.Val:
			for _, e := range elems {
				check(e, path)
			}
		case map[ref.Val]ref.Val:
			for _, e := range elems {
				check(e, path)
			}
		}
	}
	check(root, root.typ.TypeName())
	if lines == nil {
		return nil
	}
	slices.Sort(lines)
	return errors.New("type mismatch: " + strings.Join(lines, "\n"))
}

// nested reports whether a value can contain struct literals. It saves building a path for
// every string.
func nested(v ref.Val) bool {
	switch v.(type) {
	case types.String, types.Int, types.Bool, types.Double:
		return false
	}
	return true
}
