package verify

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// perturber walks the location of a mutator through an object and decides at
// random, at every step, what the object has there. It modifies the object.
type perturber struct {
	*generator
	m *legacy.Mutator
}

// last reports whether the location ends at depth.
func (b perturber) last(depth int) bool { return depth == len(b.m.Location)-1 }

// field changes, or keeps, the member of parent that the node at depth names.
func (b perturber) field(parent map[string]any, depth int) {
	if depth >= len(b.m.Location) {
		return
	}
	name := b.m.Location[depth].Name
	switch {
	case depth == 0 && (name == "apiVersion" || name == "kind"):
		return // what it is
	case depth == 0 && name == "metadata":
		b.field(parent[name].(map[string]any), 1)
		return
	case b.last(depth):
		b.leaf(parent, name)
		return
	}
	list := b.m.Location[depth+1].List
	switch p := b.IntN(100); {
	case p < 10:
		delete(parent, name)
	case p < 16:
		parent[name] = empty(list)
	case p < 19:
		parent[name] = nil
	case p < 22:
		parent[name] = pick[any](b.generator, "s", int64(3), true, empty(!list))
	case list:
		l, _ := parent[name].([]any)
		parent[name] = b.elements(l, depth+1)
	default:
		m, ok := parent[name].(map[string]any)
		if !ok {
			m = map[string]any{}
			parent[name] = m
		}
		b.field(m, depth+1)
	}
}

func empty(list bool) any {
	if list {
		return []any{}
	}
	return map[string]any{}
}

// elements changes the elements of the list that the selector at depth selects
// from.
func (b perturber) elements(l []any, depth int) []any {
	n := b.m.Location[depth]
	l = slices.Clone(l)
	for range b.IntN(3) {
		l = slices.Insert(l, b.IntN(len(l)+1), b.element(n))
	}
	for i, e := range l {
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		if !n.Glob && b.chance(20) {
			m[n.Name] = n.Value // perhaps not the only one
		}
		switch {
		case b.last(depth):
			if b.chance(40) {
				l[i] = b.value()
			}
		case b.m.Asks() || b.chance(80):
			b.field(m, depth+1)
		}
	}
	return l
}

// element returns a new element for a list.
func (b perturber) element(n legacy.Node) any {
	switch p := b.IntN(100); {
	case p < 4:
		return pick[any](b.generator, "s", int64(3), nil)
	case p < 14:
		return map[string]any{} // no key
	case p < 20:
		return map[string]any{n.Name: retyped(n.Value)}
	case p < 60 && !n.Glob:
		return map[string]any{n.Name: n.Value}
	}
	if _, ok := n.Value.(int64); ok {
		return map[string]any{n.Name: int64(b.IntN(3) + 1)}
	}
	return map[string]any{n.Name: pick(b.generator, "other", "third", "fourth", "app", "")}
}

// retyped returns a key of another type that prints the same.
func retyped(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v) + 0.5
	case string:
		return int64(len(v))
	}
	return true
}

// leaf changes, or keeps, the value at the end of the location.
func (b perturber) leaf(parent map[string]any, name string) {
	if b.m.Asks() && b.chance(85) { // most keys are known, or all objects would be refused
		parent[name] = b.key(b.m)
		return
	}
	switch p := b.IntN(100); {
	case p < 30:
		delete(parent, name)
	case p < 40:
		// as the plain object has it
	case p < 43:
		parent[name] = nil
	case p < 47:
		parent[name] = pick[any](b.generator, "s", int64(3), true, []any{}, map[string]any{})
	case p < 52:
		parent[name] = zero(b.value())
	default:
		parent[name] = b.value()
	}
}

// images are references that an AssignImage takes apart, and values that it
// cannot.
var images = []any{
	"", "nginx", "nginx:1.27", "shop/app:v1", "registry.example.com/shop/app:v1", "localhost:5000/app",
	"localhost/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "localhost:5000",
	"repo:tag@sha256:abc", "a.b", "/x", "foo@bar/baz", "UPPER/case", "a/b/c/d",
}

// value returns a value for the end of the location: the one that the mutator
// writes there, or a similar one.
func (b perturber) value() any {
	switch {
	case b.m.Image != nil:
		return pick(b.generator, images...)
	case b.m.Set != nil:
		return b.set(b.m.Set.Values)
	case b.m.Asks():
		return b.key(b.m)
	case b.m.From.Value == nil:
		return pick[any](b.generator, "", "web", "default", "other")
	}
	if b.chance(40) {
		return copied(b.m.From.Value)
	}
	return b.varied(b.m.From.Value)
}

// set returns a list of some of the values, of similar ones, and of some twice.
func (b perturber) set(values []any) []any {
	out := []any{}
	for _, v := range values {
		for range b.IntN(3) {
			out = append(out, copied(v))
		}
		if b.chance(25) {
			out = append(out, b.varied(v))
		}
	}
	if len(values) == 0 || b.chance(20) {
		out = append(out, "other")
	}
	b.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func copied(v any) any { return runtime.DeepCopyJSONValue(v) }

// varied returns another value of v's type.
func (b perturber) varied(v any) any {
	switch v := v.(type) {
	case string:
		return pick(b.generator, v+"x", "other")
	case float64:
		return v + 1
	case int64:
		return v + 1
	case bool:
		return !v
	case []any:
		if len(v) == 0 {
			return []any{"other"}
		}
		l := copied(v).([]any)
		i := b.IntN(len(l))
		if b.chance(50) {
			return slices.Delete(l, i, i+1)
		}
		l[i] = b.varied(l[i])
		return l
	case map[string]any:
		m := maps.Clone(copied(v).(map[string]any))
		if keys := slices.Sorted(maps.Keys(m)); len(keys) > 0 {
			if k := pick(b.generator, keys...); b.chance(50) {
				m[k] = b.varied(m[k])
			} else {
				delete(m, k)
			}
		}
		return m
	}
	return "other"
}

// zero returns the empty value of v's type.
func zero(v any) any {
	switch v.(type) {
	case string:
		return ""
	case float64, int64:
		return int64(0)
	case bool:
		return false
	case []any:
		return []any{}
	}
	return map[string]any{}
}
