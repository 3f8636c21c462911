package random

import (
	"fmt"
	"time"

	"github.com/mapd-project/mapd/pkg/openapi/smd"
)

// Maker makes values of a type: mostly valid ones, of a small vocabulary, so that two values
// have names in common.
type Maker struct {
	*Dice
	Schema *smd.Schema
	Patch  bool
	Bad    int // one in so many values is wrong; 0: none
	Left   int // values still to make
}

// Make makes a value of a type.
func (k *Maker) Make(tr smd.TypeRef, depth int) any {
	if k.Left--; k.Left < 0 {
		return nil
	}
	if k.N(25) == 0 {
		return nil
	}
	if k.Bad > 0 && k.N(k.Bad) == 0 {
		return Pick[any](k.Dice, "x", int64(1), true, []any{}, []any{nil}, map[string]any{"zz": int64(1)}, uint64(7), time.Time{}, time.Second, 2.5)
	}
	atom, ok := k.Schema.Resolve(tr)
	if !ok {
		return nil
	}
	var forms []string
	if atom.Map != nil {
		forms = append(forms, "map")
	}
	if atom.List != nil {
		forms = append(forms, "list")
	}
	if atom.Scalar != nil {
		forms = append(forms, "scalar")
	}
	if len(forms) == 0 {
		return nil
	}
	switch Pick(k.Dice, forms...) {
	case "map":
		m := map[string]any{}
		if depth <= 0 {
			return m
		}
		if n := len(atom.Map.Fields); n > 0 {
			for range k.N(min(n, 6) + 1) {
				f := atom.Map.Fields[k.N(n)]
				m[f.Name] = k.Make(f.Type, depth-1)
			}
		}
		if (atom.Map.ElementType != smd.TypeRef{}) {
			for range k.N(4) {
				m[Pick(k.Dice, "a", "b", "c", "d")] = k.Make(atom.Map.ElementType, depth-1)
			}
		}
		return m
	case "list":
		return k.list(atom.List, depth)
	}
	switch *atom.Scalar {
	case smd.String:
		return Pick(k.Dice, "a", "b", "c", "d", "")
	case smd.Boolean:
		return Pick(k.Dice, true, false)
	case smd.Numeric:
		return Pick[any](k.Dice, int64(1), int64(80), int64(81), 80.0, 1.5)
	}
	return Pick[any](k.Dice, "a", "b", int64(1), 1.0, int64(2), true)
}

func (k *Maker) list(t *smd.List, depth int) any {
	list := []any{}
	if depth <= 0 {
		return list
	}
	seen := map[string]bool{}
	for range k.N(6) {
		item := k.Make(t.ElementType, depth-1)
		if t.ElementRelationship == smd.Associative {
			if m, ok := item.(map[string]any); ok {
				for i, name := range t.Keys {
					if k.N(10) > 0 {
						m[name] = k.key(t, name)
					} else if i > 0 {
						delete(m, name)
					}
				}
			}
			key, ok := k.identity(t, item)
			if !ok && k.N(50) > 0 {
				continue
			}
			if ok && seen[key] && (k.Patch && k.N(50) > 0 || k.N(3) > 0) {
				continue
			}
			seen[key] = true
		}
		list = append(list, item)
	}
	return list
}

func (k *Maker) key(t *smd.List, name string) any {
	atom, _ := k.Schema.Resolve(t.ElementType)
	if atom.Map != nil {
		if f, ok := atom.Map.FindField(name); ok {
			if v := k.Make(f.Type, 1); v != nil {
				return v
			}
		}
	}
	return "a"
}

// identity returns the value or keys that identify an element of a list, false if it
// has none.
func (k *Maker) identity(t *smd.List, item any) (string, bool) {
	if len(t.Keys) == 0 {
		switch item.(type) {
		case nil, map[string]any, []any:
			return "", false
		}
		return fmt.Sprint(item), true
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return "", false
	}
	atom, _ := k.Schema.Resolve(t.ElementType)
	key, keyed := "", false
	for _, name := range t.Keys {
		v, found := fields[name]
		if !found && atom.Map != nil {
			if f, ok := atom.Map.FindField(name); ok {
				v, found = f.Default, f.Default != nil
			}
		}
		key += fmt.Sprintf("/%v %v", found, v)
		keyed = keyed || found
	}
	return key, keyed
}
