package legacy

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// say is a mutator for one line of a table: its location, and what it is besides.
func say(t testing.TB, kind Kind, name, location, params, more string) *Mutator {
	t.Helper()
	spec := fmt.Sprintf("location: %q\nparameters: {%s}\n%s", location, params, more)
	if kind != AssignMetadata {
		spec += "\n" + pods
	}
	return mustDecode(t, kind, name, spec)
}

func TestAffects(t *testing.T) {
	assign := func(location, tests string) *Mutator {
		params := "assign: {value: {k: v}}"
		if tests != "" {
			params += ", pathTests: [" + tests + "]"
		}
		return say(t, Assign, "a", location, params, "")
	}
	labelled := func(match string) *Mutator {
		return say(t, Assign, "a", "spec.q", "assign: {value: x}", "match: "+match)
	}
	label := say(t, AssignMetadata, "a", "metadata.labels.x", "assign: {value: '1'}", "")
	merge := func(list string) *Mutator {
		return say(t, ModifySet, "a", "spec.s", "values: {fromList: "+list+"}", "")
	}
	prune := say(t, ModifySet, "a", "spec.s", "operation: prune, values: {fromList: [p]}", "")
	image := func(params string) *Mutator { return say(t, AssignImage, "a", "spec.i", params, "") }

	tests := []struct {
		name    string
		a, b    *Mutator
		affects [2]bool // a b, and b a
		commute bool
	}{
		{"two fields", assign("spec.a", ""), assign("spec.b", ""), [2]bool{}, true},
		{"two fields of new parents", assign("spec.p.a", ""), assign("spec.p.b", ""), [2]bool{}, true},
		{"one field", assign("spec.a", ""), assign("spec.a", ""), [2]bool{true, true}, false},
		{"a field and one inside", assign("spec.a", ""), assign("spec.a.b", ""), [2]bool{true, true}, false},
		{"a field of all and of one", assign("spec.l[k: *].a", ""), assign("spec.l[k: v].b", ""), [2]bool{false, true}, false},
		{"fields of all", assign("spec.l[k: *].a", ""), assign("spec.l[k: *].b", ""), [2]bool{}, true},
		{"fields of one element", assign("spec.l[k: v].a", ""), assign("spec.l[k: v].b", ""), [2]bool{}, true},
		{"two elements, which stand in some order", assign("spec.l[k: v].a", ""), assign("spec.l[k: w].a", ""), [2]bool{}, false},
		{"two elements, one of which is not created", assign("spec.l[k: v].a", ""), assign("spec.l[k: w].a", "{subPath: 'spec.l[k: w]', condition: MustExist}"), [2]bool{}, true},
		{"a parent that must exist", assign("spec.p.a", ""), assign("spec.p.b", "{subPath: spec.p, condition: MustExist}"), [2]bool{true, false}, false},
		{"a parent that must not exist", assign("spec.p.a", ""), assign("spec.p.b", "{subPath: spec.p, condition: MustNotExist}"), [2]bool{}, false},
		{"defaults for one field", assign("spec.a", "{subPath: spec.a, condition: MustNotExist}"), assign("spec.a", "{subPath: spec.a, condition: MustNotExist}"), [2]bool{}, false},
		{"a new element", assign("spec.l[k: v]", "{subPath: 'spec.l[k: v]', condition: MustNotExist}"), assign("spec.l[k: *].b", ""), [2]bool{true, false}, false},
		{"a label asked for", label, labelled("{labelSelector: {matchLabels: {x: '1'}}}"), [2]bool{true, false}, false},
		{"a label with another value", label, labelled("{labelSelector: {matchLabels: {x: '2'}}}"), [2]bool{}, false},
		{"a label that must not be there", label, labelled("{labelSelector: {matchExpressions: [{key: x, operator: DoesNotExist}]}}"), [2]bool{}, false},
		{"a label nobody asks for", label, labelled("{labelSelector: {matchLabels: {z: '1'}}}"), [2]bool{}, true},
		{"labels of the namespace", label, labelled("{namespaceSelector: {matchLabels: {x: '1'}}}"), [2]bool{}, true},
		{"labels of a Namespace", label, say(t, AssignMetadata, "b", "metadata.labels.z", "assign: {value: '1'}", "match: {namespaceSelector: {matchLabels: {x: '1'}}}"), [2]bool{true, false}, false},
		{"one label", label, say(t, AssignMetadata, "b", "metadata.labels.x", "assign: {value: '2'}", ""), [2]bool{}, false},
		{"sets merged", merge("[p]"), merge("[q]"), [2]bool{}, false},
		{"merged and pruned", merge("[p, q]"), prune, [2]bool{true, true}, false},
		{"other values pruned", merge("[q]"), prune, [2]bool{}, false},
		{"parts of an image", image("assignTag: ':x'"), image("assignDomain: a.b"), [2]bool{}, false},
		{"one part of an image", image("assignTag: ':x'"), image("assignTag: ':z'"), [2]bool{true, true}, false},
		{"what the object is", assign("kind", ""), assign("spec.a", ""), [2]bool{true, false}, false},
		{"another kind", assign("spec.a", ""), mustDecode(t, Assign, "b", "applyTo: [{groups: [apps], versions: [v1], kinds: [Pod]}]\nlocation: spec.a\nparameters: {assign: {value: 1}}"), [2]bool{}, true},
		{"another operation", mustDecode(t, Assign, "a", "applyTo: [{groups: [''], versions: [v1], kinds: [Pod], operations: [CREATE]}]\nlocation: spec.a\nparameters: {assign: {value: 1}}"),
			mustDecode(t, Assign, "b", "applyTo: [{groups: [''], versions: [v1], kinds: [Pod], operations: [UPDATE]}]\nlocation: spec.a\nparameters: {assign: {value: 1}}"), [2]bool{}, true},
		{"narrowed to other kinds", say(t, AssignMetadata, "a", "metadata.labels.x", "assign: {value: '1'}", "match: {kinds: [{kinds: [Pod]}]}"),
			say(t, AssignMetadata, "b", "metadata.labels.x", "assign: {value: '2'}", "match: {kinds: [{kinds: [Service]}]}"), [2]bool{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := [2]bool{Affects(tt.a, tt.b), Affects(tt.b, tt.a)}; got != tt.affects {
				t.Errorf("Affects = %v, want %v", got, tt.affects)
			}
			if a, b := Commute(tt.a, tt.b), Commute(tt.b, tt.a); a != tt.commute || b != tt.commute {
				t.Errorf("Commute = %v, %v, want %v", a, b, tt.commute)
			}
		})
	}
}

func TestIdempotent(t *testing.T) {
	for params, want := range map[string]bool{
		"assignPath: n.w":                                  false,
		"assignPath: nw":                                   false,
		"assignPath: nw/n.w":                               true,
		"assignPath: n.w, assignTag: ':x'":                 true,
		"assignPath: n.w, assignDomain: a.b":               true,
		"assignDomain: a.b":                                true,
		"assignTag: '@x:0123456789abcdef0123456789abcdef'": true,
	} {
		m := say(t, AssignImage, "a", "spec.i", params, "")
		if got := Idempotent(m); got != want || Affects(m, m) == want {
			t.Errorf("%s: Idempotent = %v, Affects itself = %v", params, got, Affects(m, m))
		}
	}
}

func TestRounds(t *testing.T) {
	sidecar := func(name, tests string) *Mutator {
		return say(t, Assign, name, "spec.c[name: side]", "assign: {value: {name: side}}"+tests, "")
	}
	const missing = ", pathTests: [{subPath: 'spec.c[name: side]', condition: MustNotExist}]"
	all := say(t, Assign, "m", "spec.c[name: *].pull", "assign: {value: Always}", "")
	value := func(name, location, value string) *Mutator {
		return say(t, Assign, name, location, "assign: {value: "+value+"}", "")
	}
	label := func(name, key, selector string) *Mutator {
		return say(t, AssignMetadata, name, "metadata.labels."+key, "assign: {value: '1'}", selector)
	}
	tests := []struct {
		name string
		ms   []*Mutator
		want []string
	}{
		{"apart", []*Mutator{value("b", "spec.b", "1"), value("a", "spec.a", "1")}, []string{"a: 1", "b: 1"}},
		{"a sidecar first", []*Mutator{sidecar("a", ""), all}, []string{"a m: 1"}},
		{"a sidecar that is put in once, first", []*Mutator{sidecar("a", missing), all}, []string{"a m: 1"}},
		{"a sidecar last, replaced in each pass", []*Mutator{sidecar("z", ""), all}, []string{"m z: 1"}},
		{"a sidecar last, put in once", []*Mutator{sidecar("z", missing), all}, []string{"m z: 2 Assign/m has to run again after Assign/z"}},
		{"the last wins", []*Mutator{value("a", "spec.v", "1"), value("b", "spec.v", "2"), value("c", "spec.v", "3")}, []string{"a b c: 1"}},
		{"a parent overwritten", []*Mutator{value("a", "spec.x.q", "1"), value("b", "spec.x", "{z: 1}")}, []string{"a b: 1"}},
		{"a parent overwritten with what fails then", []*Mutator{value("a", "spec.x.q", "1"), value("b", "spec.x", "s")}, []string{"a b: 3 Assign/a has to run again after Assign/b"}},
		{"two that fail together, once there is an element", []*Mutator{
			value("a", "spec.c[name: *].y", "{b: s}"), value("b", "spec.c[name: *].y.b.i", "1"), sidecar("z", ""),
		}, []string{"a b z: 3 Assign/b has to run again after Assign/z"}},
		{"a parent and what is in it", []*Mutator{value("a", "spec.x", "{z: 1}"), value("b", "spec.x.q", "1")}, []string{"a b: 1"}},
		{"an image", []*Mutator{value("a", "spec.i", "x"), say(t, AssignImage, "b", "spec.i", "assignTag: ':1'", ""), say(t, AssignImage, "c", "spec.i", "assignTag: ':2'", "")}, []string{"a b c: 1"}},
		{"merge and prune", []*Mutator{say(t, ModifySet, "a", "spec.s", "values: {fromList: [p]}", ""), say(t, ModifySet, "b", "spec.s", "operation: prune, values: {fromList: [p]}", "")}, []string{"a b: 1"}},
		{"prune and merge", []*Mutator{say(t, ModifySet, "b", "spec.s", "values: {fromList: [p]}", ""), say(t, ModifySet, "a", "spec.s", "operation: prune, values: {fromList: [p]}", "")},
			[]string{"a b: 3 ModifySet/a has to run again after ModifySet/b"}},
		{"labels in order", []*Mutator{label("a", "a", ""), label("b", "b", "match: {labelSelector: {matchLabels: {a: '1'}}}")}, []string{"a b: 1"}},
		{"labels the other way round", []*Mutator{label("a", "a", "match: {labelSelector: {matchLabels: {b: '1'}}}"), label("b", "b", "")},
			[]string{"a b: 2 AssignMetadata/a has to run again after AssignMetadata/b"}},
		{"a chain of labels", []*Mutator{
			label("a", "a", "match: {labelSelector: {matchLabels: {b: '1'}}}"), label("b", "b", "match: {labelSelector: {matchLabels: {c: '1'}}}"), label("c", "c", ""),
		}, []string{"a b c: 3 AssignMetadata/a has to run again after AssignMetadata/b"}},
		{"one that does not match any more", []*Mutator{
			value("a", "spec.v", "1"), say(t, Assign, "b", "spec.v", "assign: {value: 2}", "match: {labelSelector: {matchExpressions: [{key: x, operator: DoesNotExist}]}}"), label("c", "x", ""),
		}, []string{"a b c: 3 Assign/a has to run again after Assign/b"}},
		{"an image that is taken for another", []*Mutator{say(t, AssignImage, "a", "spec.i", "assignPath: n.w", "")}, []string{"a: 2 AssignImage/a can take its own result for another image"}},
		{"none", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range Components(tt.ms) {
				s := ""
				for i, m := range c.Members {
					if i > 0 {
						s += " "
					}
					s += m.Name
				}
				s += fmt.Sprintf(": %d", c.Rounds)
				if c.Why != "" {
					s += " " + c.Why
				}
				got = append(got, s)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Components (-want +got):\n%s", diff)
			}
		})
	}
}

func BenchmarkAffects(b *testing.B) {
	x := say(b, Assign, "a", "spec.c[name: *].pull", "assign: {value: x}", "")
	y := say(b, Assign, "b", "spec.c[name: *].args", "assign: {value: x}", "")
	b.ReportAllocs()
	for b.Loop() {
		if Affects(x, y) {
			b.Fatal("affects")
		}
	}
}

func BenchmarkComponents(b *testing.B) {
	ms := make([]*Mutator, 1000)
	for i := range ms {
		ms[i] = at(b, Assign, fmt.Sprintf("m%d", i), fmt.Sprintf("spec.containers[name: *].f%d", i/2), "")
	}
	b.ReportAllocs()
	for b.Loop() {
		if n := len(Components(ms)); n != 500 {
			b.Fatal(n)
		}
	}
}
