package direct

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// outcome is what passes over an object come to.
type outcome struct {
	obj    map[string]any
	passes int
	err    string
	runs   int // how often a mutator was asked
}

// passes runs mutators until nothing changes. In the first pass each of them
// runs, later only those that wakes names for a change since they last ran.
//
// It is the loop of mapd's engine, which differs from Gatekeeper's in two things
// besides: places never share a value, and nothing is created to be pruned.
func passes(ms []*legacy.Mutator, off map[string]legacy.Conflict, obj map[string]any, wakes func(a, b *legacy.Mutator) bool) outcome {
	c := Context{Operation: "CREATE", Source: "Original"}
	awake := make([]bool, len(ms))
	for i := range awake {
		awake[i] = true
	}
	runs := 0
	for pass := 1; pass <= len(ms)+1; pass++ {
		before := obj
		for i, m := range ms {
			if _, ok := off[m.ID()]; ok || !awake[i] {
				continue
			}
			runs++
			awake[i] = false
			ok, err := Matches(m, obj, c)
			next := obj
			if err == nil && ok {
				next, _, err = Apply(pruneWhatIs(m), obj, c)
			}
			if err != nil {
				return outcome{obj, pass, err.Error(), runs}
			}
			if tree.Equal(obj, next) {
				continue
			}
			obj = next
			for j, other := range ms {
				awake[j] = awake[j] || wakes(m, other)
			}
		}
		if tree.Equal(before, obj) {
			return outcome{obj, pass, "", runs}
		}
	}
	return outcome{obj, len(ms) + 1, "not converging", runs}
}

// pruneWhatIs is the mutator, but if it prunes, only where there is something.
func pruneWhatIs(m *legacy.Mutator) *legacy.Mutator {
	if m.Set == nil || !m.Set.Prune {
		return m
	}
	last := len(m.Location) - 1
	test, ok := m.Test(last)
	if !ok {
		test = legacy.MustExist
	} else if test == legacy.MustNotExist {
		test = "never"
	}
	existing := *m
	existing.Tests = append(slices.DeleteFunc(slices.Clone(m.Tests), func(t legacy.PathTest) bool { return t.Depth == last }),
		legacy.PathTest{Depth: last, Condition: test})
	return &existing
}

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

// describeAll is for a person who wants to see why.
func describeAll(t *testing.T, ms []*legacy.Mutator, obj map[string]any) string {
	var b strings.Builder
	for _, m := range ms {
		fmt.Fprintf(&b, "%s %s tests %v", m.ID(), m.Location, m.Tests)
		switch {
		case m.From != nil:
			fmt.Fprintf(&b, " = %v", m.From.Value)
		case m.Set != nil:
			fmt.Fprintf(&b, " %+v", *m.Set)
		case m.Image != nil:
			fmt.Fprintf(&b, " %+v", *m.Image)
		}
		fmt.Fprintf(&b, " match %+v applyTo %v\n", m.Match, m.ApplyTo)
	}
	for _, x := range ms {
		for _, y := range ms {
			if legacy.Affects(x, y) {
				fmt.Fprintf(&b, "%s affects %s\n", x.ID(), y.ID())
			}
		}
	}
	return b.String() + text(t, obj)
}

// Running again only those that Affects names gives what running all does. This
// is what the engine's passes rely on.
func TestAffectsWakesAllThatMatters(t *testing.T) {
	always := func(_, _ *legacy.Mutator) bool { return true }
	var all, woken int
	for seed := range uint64(50_000) {
		want, got := checkWakes(t, seed, always)
		all, woken = all+want.runs, woken+got.runs
	}
	if woken >= all*9/10 {
		t.Errorf("of %d runs, %d remain: nothing is spared", all, woken)
	}
}

func FuzzAffects(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) {
		checkWakes(t, seed, func(_, _ *legacy.Mutator) bool { return true })
	})
}

func checkWakes(t *testing.T, seed uint64, always func(a, b *legacy.Mutator) bool) (want, got outcome) {
	d := dice{rand.New(rand.NewPCG(seed, 0))}
	ms := d.mutators()
	obj := d.object(ms)
	differ := func(ms []*legacy.Mutator) bool {
		off := legacy.Conflicts(ms)
		want, got = passes(ms, off, obj, always), passes(ms, off, obj, legacy.Affects)
		return want.err != got.err || want.passes != got.passes || !tree.Equal(want.obj, got.obj)
	}
	if !differ(ms) {
		return want, got
	}
	for i := 0; i < len(ms); {
		if fewer := slices.Delete(slices.Clone(ms), i, i+1); differ(fewer) {
			ms, i = fewer, 0
			continue
		}
		i++
	}
	differ(ms)
	t.Errorf("seed %d: all: %d passes, %s, %q\nwoken: %d passes, %s, %q\nof\n%s",
		seed, want.passes, text(t, want.obj), want.err, got.passes, text(t, got.obj), got.err, describeAll(t, ms, obj))
	return want, got
}
