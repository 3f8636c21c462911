package direct

import (
	"testing"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// cast is what FuzzMutate chooses from. None of it writes an object or a list to
// several places: such places are one within a request only, so that a second
// request may find something to do.
func cast() []*legacy.Mutator {
	never := legacy.PathTest{Depth: 1, Condition: "Maybe"}
	ms := []*legacy.Mutator{
		assignTo("spec.a", "v"),
		assignTo("spec.a", 5.0, mustNot(1)),
		assignTo("spec.a.b", map[string]any{"k": "v"}),
		assignTo("spec.a.b.c", "v", must(1)),
		assignTo("spec.l", []any{map[string]any{"k": "v"}, "s"}, mustNot(1)),
		assignTo("spec.l[k: v].a", 1.0),
		assignTo("spec.l[k: 80].a", "v", must(2)),
		assignTo("spec.l[k: *].a", "w"),
		assignTo("spec.l[k: *].m[k: w].b", "v", mustNot(4)),
		assignTo("spec.l[k: v]", map[string]any{"k": "v", "a": []any{}}),
		assignTo("spec.l[k: w]", map[string]any{"k": "w"}, mustNot(2)),
		assignTo("spec.never", "v", never),
		assignTo("kind", "Job"),
		from(assignTo("spec.name", nil), legacy.Source{Metadata: "name"}),
		setOf("spec.l", legacy.SetValues{Values: []any{"s", int64(1), 1.0, nil, "s"}}),
		setOf("spec.l[k: v].m", legacy.SetValues{Prune: true, Values: []any{"s", 1.0}}),
		setOf("spec.a.c", legacy.SetValues{}),
		imageAt("spec.a", legacy.Image{Domain: "my.reg"}),
		imageAt("spec.l[k: *].a", legacy.Image{Tag: ":v1"}),
		imageAt("spec.a", legacy.Image{Path: "n.w"}),
		label("a", ifLabelled("b")),
		label("b", ifLabelled("c")),
		label("c", legacy.Match{Name: "p*"}),
	}
	for i, m := range ms {
		if m.Kind != legacy.AssignMetadata {
			m.Name = string(rune('a' + i))
		}
	}
	return ms
}

// FuzzMutate runs some of the cast on some Pod: it ends, the input stays as it
// was, and what came to rest stays at rest.
func FuzzMutate(f *testing.F) {
	for i, spec := range []string{
		`{}`, `null`, `{"a":null,"l":null}`, `{"a":{"b":{"c":1}}}`, `{"a":"foo@bar/baz"}`, `{"a":["v"]}`,
		`{"l":[]}`, `{"l":[{"k":"v","m":["s",1]},{"k":80},{"k":80.5},"s",null]}`, `{"l":[{"k":"v"},{"k":"v","a":1}]}`,
	} {
		f.Add(spec, uint32(1)<<i)
		f.Add(spec, ^uint32(0))
		f.Add(spec, uint32(0x5a5a5a5a))
	}
	f.Fuzz(func(t *testing.T, spec string, chosen uint32) {
		const head = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":`
		in, err := tree.Decode([]byte(head + spec + `}`))
		if err != nil {
			t.Skip()
		}
		before, _ := tree.Decode([]byte(head + spec + `}`))
		var s System
		for i, m := range cast() {
			if chosen>>i&1 == 1 {
				s.Mutators = append(s.Mutators, m)
			}
		}
		c := Context{Operation: "CREATE", Source: "Original"}
		got, err := s.Mutate(in, c)
		if !tree.Equal(in, before) {
			t.Fatalf("the input %s became %s", text(t, before), text(t, in))
		}
		if err != nil {
			if got.Mutated || !tree.Same(got.Object, in) {
				t.Errorf("%v, and yet %+v", err, got)
			}
			return
		}
		again, err := s.Mutate(got.Object, c)
		if err != nil || again.Mutated {
			t.Errorf("%s came to rest at %s, and then at %s, %v", text(t, in), text(t, got.Object), text(t, again.Object), err)
		}
	})
}
