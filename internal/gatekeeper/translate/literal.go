package translate

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// literal writes a JSON value, which may contain an expr in the place of a string. All values of
// a CEL map literal have one type. Where they differ, literal writes a literal of an Object type,
// if that is possible, to avoid a dyn() around each value. place is the schema of the value and
// typ the name of its type; nil and "" if they are not known.
func (w *plainWalk) literal(v any, place *openapi.Place, typ string) expr {
	plain := mapLiteral(v)
	if !strings.Contains(plain.Type, "dyn") || place == nil {
		return plain
	}
	if obj, ok := objectLiteral(v, *place, typ); ok {
		return obj
	}
	return plain
}

// mapLiteral writes a value with maps and lists.
func mapLiteral(v any) expr { return celgen.JSON(v) }

// objectLiteral writes a value as a literal of an Object type, false if it cannot
// be one: such literals hold no null, no list of objects that older servers could
// digest, and no list or map within another (Kubernetes spec §8.2).
func objectLiteral(v any, place openapi.Place, typ string) (expr, bool) {
	obj, ok := v.(map[string]any)
	if !ok {
		e, is := v.(expr)
		return e, is && e.Type == typ
	}
	var members []entry
	for _, k := range fieldOrder(obj) {
		at, ok := place.Field(k)
		if !ok || !place.Declares(k) || !isIdentifier(k) {
			return expr{}, false
		}
		value, ok := objectLiteral(obj[k], at, typ+"."+k)
		if !ok {
			if !isFlat(obj[k]) {
				return expr{}, false
			}
			value = mapLiteral(obj[k])
		}
		members = append(members, entry{Name: k, Value: value})
	}
	return message(typ, members...), true
}

var scalarTypes = []string{"bool", "int", "double", "string"}

// isFlat reports whether a value is a scalar, or a list or map of one type of
// scalars.
func isFlat(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case expr:
		inner := strings.TrimPrefix(strings.TrimPrefix(v.Type, "list("), "map(")
		return slices.Contains(scalarTypes, strings.TrimSuffix(inner, ")"))
	case []any:
		return scalars(slices.Values(v)) && !strings.Contains(mapLiteral(v).Type, "dyn")
	case map[string]any:
		return scalars(maps.Values(v)) && !strings.Contains(mapLiteral(v).Type, "dyn")
	}
	return true
}

func scalars(values iter.Seq[any]) bool {
	for v := range values {
		switch v := v.(type) {
		case []any, map[string]any, nil:
			return false
		case expr:
			if !slices.Contains(scalarTypes, v.Type) {
				return false
			}
		}
	}
	return true
}

// fieldOrder returns the keys of an object as people write them.
func fieldOrder(m map[string]any) []string { return celgen.FieldOrder(m) }

// where returns the schema of the parent of the location's node d and the name of its Object
// type; false if they are not known.
func (w *plainWalk) where(d int) (openapi.Place, string, bool) {
	if len(w.known.roots) == 0 {
		return openapi.Place{}, "", false
	}
	at, typ := w.known.roots[0], "Object"
	for _, n := range w.path[:d] {
		var ok bool
		if n.List {
			at, ok = at.Element()
		} else {
			ok = at.Declares(n.Name) && isIdentifier(n.Name)
			if ok {
				at, ok = at.Field(n.Name)
			}
			typ += "." + n.Name
		}
		if !ok {
			return openapi.Place{}, "", false
		}
	}
	return at, typ, true
}
