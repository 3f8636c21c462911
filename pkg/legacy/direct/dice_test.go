package direct

import (
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// dice make mutators and objects over a few names, so that they meet.
type dice struct{ *rand.Rand }

func oneOf[T any](d dice, values ...T) T { return values[d.IntN(len(values))] }

func (d dice) mutators() []*legacy.Mutator {
	ms := make([]*legacy.Mutator, 2+d.IntN(5))
	var near legacy.Path
	for i := range ms {
		ms[i] = d.mutator(near)
		ms[i].Name = string(rune('a' + i))
		near = ms[i].Location
	}
	slices.SortFunc(ms, legacy.Compare)
	return ms
}

func (d dice) mutator(near legacy.Path) *legacy.Mutator {
	m := &legacy.Mutator{Match: d.match()}
	if d.IntN(6) == 0 {
		m.Kind = legacy.AssignMetadata
		m.Location = path("metadata." + oneOf(d, "labels", "labels", "annotations") + "." + d.name())
		m.From = &legacy.Source{Value: oneOf[any](d, "v", "w")}
		return m
	}
	m.ApplyTo = []legacy.ApplyTo{{Groups: []string{""}, Versions: []string{"v1"}, Kinds: oneOf(d, []string{"Pod"}, []string{"Pod", "Namespace"}, []string{"Namespace"})}}
	m.Location = d.location(near)
	last := m.Location[len(m.Location)-1]
	switch kind := d.IntN(6); {
	case last.List:
		m.Kind = legacy.Assign
		element := map[string]any{last.Name: last.Value}
		if d.IntN(2) == 0 {
			element[oneOf(d, "a", "b")] = d.value(2)
			element[last.Name] = last.Value
		}
		m.From = &legacy.Source{Value: element}
	case kind < 3:
		m.Kind = legacy.Assign
		m.From = &legacy.Source{Value: d.constant()}
		if shared := len(m.Location); shared < len(near) && d.IntN(2) == 0 {
			m.From.Value = d.lay(nil, near[shared:])
		}
		if d.IntN(8) == 0 {
			m.Location = path("kind")
			m.From.Value = oneOf[any](d, "Pod", "Namespace", "Job")
		}
	case kind < 5:
		m.Kind = legacy.ModifySet
		m.Set = &legacy.SetValues{Prune: d.IntN(3) == 0, Values: []any{}}
		for range 1 + d.IntN(2) {
			m.Set.Values = append(m.Set.Values, d.value(2))
		}
	default:
		m.Kind = legacy.AssignImage
		m.Image = oneOf(d, &legacy.Image{Domain: "n.w"}, &legacy.Image{Path: "n.w"}, &legacy.Image{Path: "x/y"}, &legacy.Image{Tag: ":x"})
	}
	for depth := range m.Location {
		if d.IntN(4) == 0 {
			m.Tests = append(m.Tests, legacy.PathTest{Depth: depth, Condition: oneOf(d, legacy.MustExist, legacy.MustExist, legacy.MustNotExist, "Maybe")})
		}
	}
	return m
}

func (d dice) match() legacy.Match {
	var match legacy.Match
	if d.IntN(3) == 0 {
		match.LabelSelector = d.selector()
	}
	if d.IntN(10) == 0 {
		match.NamespaceSelector = d.selector()
	}
	if d.IntN(10) == 0 {
		match.Scope = oneOf(d, "Cluster", "Namespaced")
	}
	if d.IntN(10) == 0 {
		match.Kinds = []legacy.MatchKinds{{Kinds: []string{oneOf(d, "Pod", "Namespace")}}}
	}
	return match
}

func (d dice) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key:      d.name(),
		Operator: oneOf(d, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist),
	}}}
}

func (d dice) name() string { return oneOf(d, "a", "b") }

// location goes a part of the way with another one.
func (d dice) location(near legacy.Path) legacy.Path {
	for {
		p := slices.Clone(near[:d.IntN(len(near)+1)])
		for range d.IntN(3) {
			p = append(p, legacy.Node{Name: d.name()})
			if d.IntN(2) == 0 {
				p = append(p, d.list())
			}
		}
		if len(p) == 0 || len(p) > 7 || p[0].Name == "metadata" {
			continue
		}
		last := p[len(p)-1]
		if last.List && (last.Glob || last.Value == int64(1)) ||
			!last.List && len(p) > 1 && p[len(p)-2].List && p[len(p)-2].Name == last.Name {
			continue // refused by Gatekeeper
		}
		return p
	}
}

func (d dice) list() legacy.Node {
	node := legacy.Node{List: true, Name: oneOf(d, "k", "k", "a", "b"), Value: oneOf[any](d, "v", "w", int64(1))}
	if d.IntN(3) == 0 {
		node.Glob, node.Value = true, nil
	}
	return node
}

// constant is a value with floats for numbers, as an Assign has it.
func (d dice) constant() any {
	switch d.IntN(8) {
	case 0:
		return 1.0
	case 1:
		return map[string]any{}
	case 2:
		return map[string]any{d.name(): "v"}
	case 3:
		return map[string]any{d.name(): map[string]any{}}
	case 4:
		return []any{}
	case 5:
		return []any{map[string]any{"k": oneOf(d, "v", "w")}}
	default:
		return oneOf(d, "v", "w")
	}
}

func (d dice) value(depth int) any {
	switch n := d.IntN(12); {
	case n < 4 && depth > 0:
		obj := map[string]any{}
		for range d.IntN(3) {
			obj[d.name()] = d.value(depth - 1)
		}
		if d.IntN(2) == 0 {
			obj["k"] = oneOf[any](d, "v", "w", int64(1))
		}
		return obj
	case n < 8 && depth > 0:
		list := []any{}
		for range d.IntN(3) {
			list = append(list, d.value(depth-1))
		}
		return list
	case n == 8:
		return oneOf[any](d, nil, int64(1), 1.0, 1.0)
	default:
		return oneOf[any](d, "v", "w", "x@y/z")
	}
}

// object is one in which some of the mutators find what they ask for.
func (d dice) object(ms []*legacy.Mutator) map[string]any {
	meta := map[string]any{"name": "p"}
	if d.IntN(2) == 0 {
		meta["labels"] = map[string]any{d.name(): "v"}
	}
	obj := map[string]any{"apiVersion": "v1", "kind": oneOf(d, "Pod", "Pod", "Namespace"), "metadata": meta}
	for _, name := range []string{"a", "b"} {
		if d.IntN(8) == 0 {
			obj[name] = d.value(4)
		}
	}
	for _, m := range ms {
		if m.Kind != legacy.AssignMetadata && d.IntN(3) > 0 {
			d.lay(obj, m.Location[:d.IntN(len(m.Location)+1)])
		}
	}
	return obj
}

// lay returns v with something at the end of a location, if v is of the right
// type for it.
func (d dice) lay(v any, p legacy.Path) any {
	if len(p) == 0 {
		if v == nil {
			return d.value(1)
		}
		return v
	}
	node := p[0]
	if node.List {
		list, ok := v.([]any)
		if !ok && v != nil {
			return v
		}
		elem := map[string]any{}
		if !node.Glob && d.IntN(4) > 0 {
			elem[node.Name] = oneOf(d, node.Value, "w")
		}
		return append(list, d.lay(elem, p[1:]))
	}
	obj, ok := v.(map[string]any)
	if !ok {
		if v != nil {
			return v
		}
		obj = map[string]any{}
	}
	obj[node.Name] = d.lay(obj[node.Name], p[1:])
	return obj
}
