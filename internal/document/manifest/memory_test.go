package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A Memory gives what ReadStream gives, and the same documents for what is the same.
func TestMemory(t *testing.T) {
	const a, b = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n", "apiVersion: v1\nkind: B\nmetadata: {name: b}\n"
	var m Memory
	read := func(texts ...Text) []*Document {
		t.Helper()
		docs, errs := m.Read(texts)
		var got, want []string
		for _, d := range docs {
			got = append(got, d.Where()+" "+d.Name())
		}
		for _, err := range errs {
			got = append(got, err.Error())
		}
		var wrong []string
		for _, text := range texts {
			for d, err := range ReadStream(text.Name, strings.NewReader(text.Content)) {
				if err != nil {
					wrong = append(wrong, err.Error())
				} else {
					want = append(want, d.Where()+" "+d.Name())
				}
			}
		}
		if diff := cmp.Diff(append(want, wrong...), got); diff != "" {
			t.Errorf("%v (-ReadStream +Memory):\n%s", texts, diff)
		}
		return docs
	}
	first := read(Text{"x", a + "---\n" + b}, Text{"y", "a: ["}, Text{"y", b})
	second := read(Text{"y", b}, Text{"x", a + "---\n" + b + "# more\n"})
	if first[0] != second[1] || first[1] == second[2] || first[2] != second[0] {
		t.Errorf("which documents are the same: %t, %t, %t", first[0] == second[1], first[1] == second[2], first[2] == second[0])
	}
	if third := read(Text{"x", "\n" + a}); third[0] == second[1] {
		t.Error("a document that stands elsewhere is the same")
	}
	if n := fmt.Sprint(len(m.texts), len(m.pieces)); n != "1 1" {
		t.Errorf("the Memory keeps %s texts and documents", n)
	}
}

func TestLines(t *testing.T) {
	const text = "kind: A # comment\napiVersion: v1\nspec:\n  a: |\n    one\n    # two\n\n  # of list\n  list:\n  - name: x\n    v: [1,\n      2]\n  - name: y\n  - z\n\nlast: {a: 1, b: 2}\n# end\n"
	for d, err := range ReadStream("", strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		find := d.Lines()
		for _, tt := range []struct {
			steps       []string
			first, last int
		}{
			{nil, 1, 17},
			{[]string{"kind"}, 1, 1},
			{[]string{"spec"}, 3, 14},
			{[]string{"spec", "a"}, 4, 6},
			{[]string{"spec", "list"}, 9, 14},
			{[]string{"spec", "list", "0"}, 10, 12},
			{[]string{"spec", "list", "0", "v"}, 11, 12},
			{[]string{"spec", "list", "1", "name"}, 13, 13},
			{[]string{"spec", "list", "2"}, 14, 14},
			{[]string{"last", "b"}, 16, 16},
		} {
			first, last, ok := find(tt.steps)
			if !ok || first != tt.first || last != tt.last {
				t.Errorf("%v: lines %d to %d, %t; want %d to %d", tt.steps, first, last, ok, tt.first, tt.last)
			}
		}
		for _, steps := range [][]string{{"none"}, {"kind", "x"}, {"spec", "list", "3"}, {"spec", "list", "x"}, {"spec", "list", "-1"}} {
			if first, last, ok := find(steps); ok {
				t.Errorf("%v: lines %d to %d", steps, first, last)
			}
		}
	}
}
