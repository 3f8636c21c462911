package merge

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/openapi/smd"
	"github.com/mapd-project/mapd/pkg/policy/draft"
)

// Check validates an apply configuration and returns an error if it has atomic content (spec
// §7.1 steps 3 to 5). It returns the configuration without apiVersion and kind, since the
// object keeps its own, whatever the author wrote.
func Check(kind *openapi.Kind, patch map[string]any) (map[string]any, error) {
	_, hasVersion := patch["apiVersion"]
	_, hasKind := patch["kind"]
	if hasVersion || hasKind {
		patch = maps.Clone(patch)
		delete(patch, "apiVersion")
		delete(patch, "kind")
	}
	s, tr := kind.Schema()
	c := checker{s}
	if c.sound(patch, tr) {
		return patch, representable(kind, patch)
	}
	if errs := c.validate(patch, tr); len(errs) > 0 {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", errs)
	}
	if found := c.atomics(nil, nil, patch, tr); len(found) > 0 {
		// Upstream's order is random; sorted is one of its outcomes.
		slices.Sort(found)
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s", strings.Join(found, ", "))
	}
	return patch, representable(kind, patch)
}

// representable returns an error for numbers in an apply configuration of a custom kind that
// JSON cannot represent. For built-in kinds the Go types do that. In-tree, writing such an
// object is an internal error (row decode-errors of docs/reference/compat.md).
func representable(kind *openapi.Kind, patch map[string]any) error {
	if kind.Builtin() {
		return nil
	}
	place, number := unrepresentable(patch)
	if number == nil {
		return nil
	}
	return fmt.Errorf("%s: json: unsupported value: %v", place, *number)
}

// unrepresentable returns the path of the first number that JSON cannot represent, such as
// .spec.list[2].n, and the number; nil if there is none.
func unrepresentable(v any) (place string, number *float64) {
	switch v := v.(type) {
	case map[string]any:
		var first string
		for key, e := range v {
			if at, n := unrepresentable(e); n != nil && (number == nil || key < first) {
				first, place, number = key, "."+key+at, n
			}
		}
	case []any:
		for i, e := range v {
			if at, n := unrepresentable(e); n != nil {
				return "[" + strconv.Itoa(i) + "]" + at, n
			}
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			number := v
			return "", &number
		}
	}
	return place, number
}

// checker validates an apply configuration against a schema and finds its atomic parts. The
// errors are those of structured-merge-diff; maps are walked in the order of their keys so that
// the text is always the same (the library's own order is random).
type checker struct {
	schema *smd.Schema
}

// sound reports whether validate and atomics are certain to find nothing in v. It does both
// checks in one walk without allocations; false means that validate and atomics have to be
// called.
func (c checker) sound(v any, tr smd.TypeRef) bool {
	atom, ok := c.schema.Resolve(tr)
	if !ok || v == nil {
		return false
	}
	switch atom = deduce(atom, v); {
	case atom.Map != nil:
		fields, ok := v.(map[string]any)
		if !ok || atom.Map.ElementRelationship == smd.Atomic {
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

// soundList leaves long lists to validate, since it compares each key with each other one.
func (c checker) soundList(list []any, t *smd.List) bool {
	var room [32]itemKey
	if t.ElementRelationship != smd.Associative || len(list) > len(room) {
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
func (c checker) validate(v any, tr smd.TypeRef) smd.ValidationErrors {
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

func (c checker) validateMap(v any, t *smd.Map) (errs smd.ValidationErrors) {
	if v == nil {
		return nil
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return invalid("expected map, got %v", smd.NewValueInterface(v))
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
	// Search in random order first: sorting is only needed for reports.
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

func (c checker) validateList(v any, t *smd.List) (errs smd.ValidationErrors) {
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		return invalid("expected list, got %v", smd.NewValueInterface(v))
	}
	if t.ElementRelationship != smd.Associative {
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

// validateScalar is the library's function of that name (typed/validate.go). Its texts print
// the value in two ways, as the library does.
func validateScalar(v any, t smd.Scalar) smd.ValidationErrors {
	if v == nil {
		return nil
	}
	switch t {
	case smd.Numeric:
		if !isNumber(v) {
			return invalid("expected numeric (int or float), got %T", v)
		}
	case smd.String:
		if _, ok := v.(string); !ok {
			return invalid("expected string, got %#v", smd.NewValueInterface(v))
		}
	case smd.Boolean:
		if _, ok := v.(bool); !ok {
			return invalid("expected boolean, got %v", smd.NewValueInterface(v))
		}
	case smd.Untyped:
		if !isScalar(v) {
			return invalid("expected any scalar, got %v", smd.NewValueInterface(v))
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
func (c checker) atomics(found []string, path []string, v any, tr smd.TypeRef) []string {
	atom, ok := c.schema.Resolve(tr)
	if !ok {
		return found
	}
	switch v := v.(type) {
	case map[string]any:
		if atom.Map == nil {
			return found
		}
		if atom.Map.ElementRelationship == smd.Atomic {
			found = append(found, strings.Join(path, ""))
		}
		for key, child := range v {
			if f, ok := atom.Map.FindField(key); ok && draft.IsContainer(child) {
				found = c.atomics(found, append(path, ".", key), child, f.Type)
			}
		}
	case []any:
		if atom.List == nil {
			return found
		}
		if atom.List.ElementRelationship == smd.Atomic {
			found = append(found, strings.Join(path, ""))
		}
		for i, child := range v {
			if draft.IsContainer(child) {
				found = c.atomics(found, append(path, "[", strconv.Itoa(i), "]"), child, atom.List.ElementType)
			}
		}
	}
	return found
}

func isZeroRef(tr smd.TypeRef) bool { return tr == smd.TypeRef{} }

func invalid(format string, args ...any) smd.ValidationErrors {
	return smd.ValidationErrors{{ErrorMessage: fmt.Sprintf(format, args...)}}
}

func invalidAtom(tr smd.TypeRef) smd.ValidationErrors {
	name := "inlined"
	if tr.NamedType != nil {
		name = "named type: " + *tr.NamedType
	}
	return invalid("schema error: invalid atom: %v", name)
}

func noType(tr smd.TypeRef) smd.ValidationErrors {
	name := ""
	if tr.NamedType != nil {
		name = *tr.NamedType
	}
	return invalid("schema error: no type found matching: %v", name)
}
