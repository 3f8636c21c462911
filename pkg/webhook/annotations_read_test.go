package webhook

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/engine"
)

func TestParseAnnotation(t *testing.T) {
	tests := map[string]struct {
		value string
		want  []Acted
		more  int
		err   string
	}{
		"a policy":    {value: "team-labels/all: /metadata/labels/team", want: []Acted{{Name: Word{Text: "team-labels/all"}, Fields: []Word{{Text: "/metadata/labels/team"}}}}},
		"only names":  {value: "a/b; Assign/c", want: []Acted{{Name: Word{Text: "a/b"}}, {Name: Word{Text: "Assign/c"}}}},
		"left out":    {value: "a/b: /x…, and 5 more; and 2 more", want: []Acted{{Name: Word{Text: "a/b"}, Fields: []Word{{Text: "/x", Cut: true}}, More: 5}}, more: 2},
		"quoted":      {value: `a/b: "/data/x, y; z", "/data/…"…`, want: []Acted{{Name: Word{Text: "a/b"}, Fields: []Word{{Text: "/data/x, y; z"}, {Text: "/data/…", Cut: true}}}}},
		"named and":   {value: "and: /x; and", want: []Acted{{Name: Word{Text: "and"}, Fields: []Word{{Text: "/x"}}}, {Name: Word{Text: "and"}}}},
		"empty":       {value: "", err: "audit annotation: byte 0: empty"},
		"not ours":    {value: "a b", want: []Acted{{Name: Word{Text: "a"}}}, err: "audit annotation: byte 1: want a separator"},
		"no end":      {value: `a: "/x`, want: []Acted{{Name: Word{Text: "a"}}}, err: "audit annotation: byte 3: a quoted word has no end"},
		"no string":   {value: `a: "\x"`, want: []Acted{{Name: Word{Text: "a"}}}, err: "audit annotation: byte 3: a quoted word is not a JSON string"},
		"no field":    {value: "a: ", want: []Acted{{Name: Word{Text: "a"}}}, err: "audit annotation: byte 3: want a name or a path"},
		"more behind": {value: "a; and 2 more; b", want: []Acted{{Name: Word{Text: "a"}}}, more: 2, err: "audit annotation: byte 13: want the end"},
		"too many":    {value: strings.Repeat("a; ", maxActed+5), err: "audit annotation: byte 30004: more than 10000 names and fields"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, more, err := ParseAnnotation(tt.value)
			if msg := errString(err); msg != tt.err {
				t.Errorf("error %q, want %q", msg, tt.err)
			}
			if tt.want == nil {
				got = nil // of too many
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || more != tt.more {
				t.Errorf("-want +got %s, %d more, want %d", diff, more, tt.more)
			}
		})
	}
}

// TestDocumentedAnnotations holds the schema in docs/operate/blame.md to the code: its keys, its
// bounds, and what it says has fields.
func TestDocumentedAnnotations(t *testing.T) {
	text, err := os.ReadFile("../../docs/operate/blame.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(text), "\n## The audit annotations\n")
	var keys []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(page, -1) {
		keys = append(keys, row[1])
	}
	changed := engine.Step{Policy: "changes", Binding: "b", Outcome: engine.Changed,
		Before: &unstructured.Unstructured{Object: map[string]any{}}, After: &unstructured.Unstructured{Object: map[string]any{"x": "s3cr3t"}}}
	failed := engine.Step{Policy: "fails", Binding: "b", Outcome: engine.Failed, Err: errors.New("s3cr3t")}
	ignored := failed
	ignored.Ignored = true
	steps := actsOf([]engine.Step{changed, failed, ignored}, true)
	var written []string
	for _, a := range steps.annotations(&steps) {
		written = append(written, a.key)
		acted, _, err := ParseAnnotation(a.value)
		if err != nil || len(acted) != 1 || strings.Contains(a.value, "s3cr3t") {
			t.Errorf("%s: %q, %v", a.key, a.value, err)
			continue
		}
		_, without, _ := strings.Cut(page, "There are none in ")
		without, _, _ = strings.Cut(without, ".")
		if fields := len(acted[0].Fields) > 0; fields == strings.Contains(without, "`"+a.key+"`") {
			t.Errorf("%s: fields %t, and the page says there are none in %s", a.key, fields, without)
		}
	}
	slices.Sort(keys)
	slices.Sort(written)
	if !slices.Equal(keys, written) {
		t.Errorf("the page has %q, the code %q", keys, written)
	}
	for _, want := range []string{fmt.Sprintf("at %d bytes of a pointer, and %d of a name", maxPath, maxName), fmt.Sprintf("a value has at most %d KiB", maxAnnotation>>10)} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// FuzzAnnotation writes annotations and reads them again: nothing that is not marked as
// cut or left out may be lost or changed. It also reads the names as an annotation.
func FuzzAnnotation(f *testing.F) {
	f.Add("a", "b", "/x", "/y", uint8(3))
	f.Add("Assign/x", "", "/data/a, b; c: d", "/data/\"…", uint8(200))
	f.Add("and 3 more", "and", "", "/…", uint8(1))
	f.Add(strings.Repeat("p", 600), "\x00", strings.Repeat("/é", 200), "\\", uint8(2))
	f.Fuzz(func(t *testing.T, policy, binding, one, two string, n uint8) {
		readAny(t, one)
		for _, s := range []string{policy, binding, one, two} {
			if !utf8.ValidString(s) {
				return // no text of a JSON object
			}
		}
		random := rand.New(rand.NewPCG(uint64(n), 1))
		var in actors
		for i := range int(n) + 1 {
			a := actor{actorName: actorName{policy, binding}}
			if i > 0 {
				a.policy += strings.Repeat("x", i)
			}
			for range random.IntN(1 + int(n)) {
				a.paths = append(a.paths, []string{one, two, one + two, two + one, one + "/" + strings.Repeat("z", random.IntN(40))}[random.IntN(5)])
			}
			in.list = append(in.list, a)
		}
		text := in.String()
		got, more, err := ParseAnnotation(text)
		if err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		if len(text) > maxAnnotation {
			t.Errorf("%d bytes", len(text))
		}
		if len(got)+more != len(in.list) || len(got) == 0 {
			t.Fatalf("%d actors and %d more of %d: %q", len(got), more, len(in.list), text)
		}
		for i, a := range got {
			want := in.list[i] // sorted by String
			same(t, a.Name, want.actorName.String())
			if len(a.Fields)+a.More != len(want.paths) {
				t.Fatalf("%d fields and %d more of %d: %q", len(a.Fields), a.More, len(want.paths), text)
			}
			for j, field := range a.Fields {
				same(t, field, want.paths[j])
			}
		}
	})
}

// readAny reads any text, and checks that nothing is made up.
func readAny(t *testing.T, text string) {
	acted, _, _ := ParseAnnotation(text)
	size := 0
	for _, a := range acted {
		size += len(a.Name.Text)
		for _, f := range a.Fields {
			size += len(f.Text)
		}
	}
	if size > 3*len(text) { // a byte that is no character becomes one of three bytes
		t.Errorf("%d bytes of words from %q", size, text)
	}
}

func same(t *testing.T, got Word, want string) {
	t.Helper()
	if got.Cut && strings.HasPrefix(want, got.Text) && len(got.Text) < len(want) || !got.Cut && got.Text == want {
		return
	}
	t.Errorf("read %+v, written %q", got, want)
}
