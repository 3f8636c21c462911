package direct

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// ifLabelled is a match that asks for a label that label adds.
func ifLabelled(name string) legacy.Match {
	return legacy.Match{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{name: "x"}}}
}

func TestSystem(t *testing.T) {
	sidecar := map[string]any{"name": "side"}
	tests := map[string]struct {
		mutators []*legacy.Mutator
		off      string
		in, want string // what is in a Pod's spec; no want: nothing changes
		labels   string // what becomes of no labels
		passes   int
		touched  [][]string
		err      string
	}{
		"no mutators": {in: `{}`},
		"all is as wanted": {
			mutators: []*legacy.Mutator{assignTo("spec.v", "x")},
			in:       `{"v":"x"}`,
		},
		"one change": {
			mutators: []*legacy.Mutator{assignTo("spec.v", "x")},
			in:       `{}`,
			want:     `{"v":"x"}`,
			passes:   2,
			touched:  [][]string{{"Assign/a"}},
		},
		"the last name wins among Assigns": {
			mutators: []*legacy.Mutator{named("a-b", assignTo("spec.v", "2")), named("ab", assignTo("spec.v", "4")), named("B", assignTo("spec.v", "0")), named("a", assignTo("spec.v", "1")), named("a.b", assignTo("spec.v", "3"))},
			in:       `{}`,
			want:     `{"v":"4"}`,
			passes:   2,
			touched:  [][]string{{"Assign/B", "Assign/a", "Assign/a-b", "Assign/a.b", "Assign/ab"}},
		},
		"kinds have an order": {
			mutators: []*legacy.Mutator{named("a", imageAt("spec.v", legacy.Image{Tag: ":1"})), named("z", assignTo("spec.v", "z"))},
			in:       `{}`,
			want:     `{"v":"z:1"}`,
			passes:   2,
			touched:  [][]string{{"Assign/z", "AssignImage/a"}},
		},
		"two that cancel out": {
			mutators: []*legacy.Mutator{assignTo("spec.v", "x"), named("b", assignTo("spec.v", "y"))},
			in:       `{"v":"y"}`,
		},
		"from integer to float": {
			mutators: []*legacy.Mutator{assignTo("spec.v", 5.0)},
			in:       `{"v":5}`,
			want:     `{"v":5}`,
			passes:   2,
			touched:  [][]string{{"Assign/a"}},
		},
		"what a later one adds is found by the next pass, if it stays": {
			mutators: []*legacy.Mutator{assignTo("spec.c[name: *].p", "x"), named("b", assignTo("spec.c[name: side]", sidecar, mustNot(2)))},
			in:       `{"c":[]}`,
			want:     `{"c":[{"name":"side","p":"x"}]}`,
			passes:   3,
			touched:  [][]string{{"Assign/b"}, {"Assign/a"}},
		},
		"what a later one replaces each time is as it leaves it": {
			mutators: []*legacy.Mutator{assignTo("spec.c[name: *].p", "x"), named("b", assignTo("spec.c[name: side]", sidecar))},
			in:       `{"c":[]}`,
			want:     `{"c":[{"name":"side"}]}`,
			passes:   2,
			touched:  [][]string{{"Assign/b"}},
		},
		"a chain against the order takes all passes": {
			mutators: []*legacy.Mutator{label("a", ifLabelled("b")), label("b", ifLabelled("c")), label("c", legacy.Match{})},
			in:       `{}`,
			want:     `{}`,
			labels:   `{"a":"x","b":"x","c":"x"}`,
			passes:   4,
			touched:  [][]string{{"AssignMetadata/c"}, {"AssignMetadata/b"}, {"AssignMetadata/a"}},
		},
		"one that is off does not run": {
			mutators: []*legacy.Mutator{assignTo("spec.v", "x")},
			off:      "Assign/a",
			in:       `{}`,
		},
		"what one application wrote to two places is one": {
			mutators: []*legacy.Mutator{assignTo("spec.c[name: *].sc", map[string]any{"k": "v"}), named("b", assignTo("spec.c[name: y].sc.extra", "e"))},
			in:       `{"c":[{"name":"x"},{"name":"y"}]}`,
			want:     `{"c":[{"name":"x","sc":{"extra":"e","k":"v"}},{"name":"y","sc":{"extra":"e","k":"v"}}]}`,
			passes:   2,
			touched:  [][]string{{"Assign/a", "Assign/b"}},
		},
		"but its lists are not": {
			mutators: []*legacy.Mutator{assignTo("spec.c[name: *].l", []any{}), named("b", assignTo("spec.c[name: y].l[k: v].z", "e"))},
			in:       `{"c":[{"name":"x"},{"name":"y"}]}`,
			want:     `{"c":[{"l":[],"name":"x"},{"l":[{"k":"v","z":"e"}],"name":"y"}]}`,
			passes:   2,
			touched:  [][]string{{"Assign/a", "Assign/b"}},
		},
		"what was written as null is a list within the request": {
			mutators: []*legacy.Mutator{setOf("spec.l", legacy.SetValues{}), named("b", setOf("spec.l", legacy.SetValues{Values: []any{"x"}}))},
			in:       `{}`,
			want:     `{"l":["x"]}`,
			passes:   2,
			touched:  [][]string{{"ModifySet/a", "ModifySet/b"}},
		},
		"an image that is divided differently each time": {
			mutators: []*legacy.Mutator{imageAt("spec.v", legacy.Image{Path: "n.w"})},
			in:       `{"v":"foo@bar/baz"}`,
			passes:   2,
			touched:  [][]string{{"AssignImage/a"}, {"AssignImage/a"}},
			err:      "mutation not converging: mutation u not converging for  Pod  p",
		},
		"what is off adds a pass": {
			mutators: []*legacy.Mutator{imageAt("spec.v", legacy.Image{Path: "n.w"}), assignTo("spec.v", "x")},
			off:      "Assign/a",
			in:       `{"v":"foo@bar/baz"}`,
			want:     `{"v":"n.w@bar/n.w"}`,
			passes:   3,
			touched:  [][]string{{"AssignImage/a"}, {"AssignImage/a"}},
		},
		"an error in a later pass": {
			mutators: []*legacy.Mutator{assignTo("spec.v.w", "x", must(1)), named("b", assignTo("spec.v", "y"))},
			in:       `{}`,
			passes:   2,
			touched:  [][]string{{"Assign/b"}},
			err:      "mutation u for mutator Assign.mutations.gatekeeper.sh /a failed for  Pod  p: mismatch between path entry (type: object) and received object (type: string). Path: w",
		},
		"a changed kind is no longer matched": {
			mutators: []*legacy.Mutator{assignTo("kind", "Job"), named("b", assignTo("spec.v", "y"))},
			in:       `{}`,
			want:     `{}`,
			passes:   2,
			touched:  [][]string{{"Assign/a"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := func() map[string]any {
				return object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":`+tt.in+`}`)
			}
			in := pod()
			s := System{Mutators: tt.mutators, Off: map[string]bool{tt.off: true}}
			got, err := s.Mutate(in, Context{Operation: "CREATE", UID: "u"})
			if errString(err) != tt.err {
				t.Fatalf("error = %q, want %q", errString(err), tt.err)
			}
			if !tree.Equal(in, pod()) {
				t.Errorf("the input became %s", text(t, in))
			}
			if got.Mutated != (tt.want != "") {
				t.Errorf("Mutated = %v", got.Mutated)
			}
			if !got.Mutated {
				tt.want = tt.in
			}
			if s := text(t, got.Object["spec"].(map[string]any)); s != tt.want {
				t.Errorf("spec = %s, want %s", s, tt.want)
			}
			if labels, _ := got.Object["metadata"].(map[string]any)["labels"].(map[string]any); tt.labels != "" && text(t, labels) != tt.labels {
				t.Errorf("labels = %s, want %s", text(t, labels), tt.labels)
			}
			if got.Passes != tt.passes {
				t.Errorf("Passes = %d, want %d", got.Passes, tt.passes)
			}
			if diff := cmp.Diff(tt.touched, got.Touched); diff != "" {
				t.Errorf("Touched (-want +got):\n%s", diff)
			}
		})
	}
}
