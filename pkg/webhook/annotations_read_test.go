package webhook

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
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
