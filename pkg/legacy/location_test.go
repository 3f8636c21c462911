package legacy

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func field(name string) Node           { return Node{Name: name} }
func keyed(key string, value any) Node { return Node{List: true, Name: key, Value: value} }
func glob(key string) Node             { return Node{List: true, Name: key, Glob: true} }

var pathTests = []struct {
	name, in  string
	want      Path
	str       string
	canonical string // if it differs
}{
	{"empty", "", nil, "", ""},
	{"white space alone", " \t\r\n", nil, "", ""},
	{"fields", "spec.replicas", Path{field("spec"), field("replicas")}, "spec.replicas", ""},
	{"white space is skipped", " spec . containers\n[ name :\tfoo ] . image ",
		Path{field("spec"), field("containers"), keyed("name", "foo"), field("image")}, "spec.containers[name: foo].image", ""},
	{"glob", "c[name:*].image", Path{field("c"), glob("name"), field("image")}, "c[name: *].image", ""},
	{"a quoted asterisk is no glob", `c[name: "*"].image`, Path{field("c"), keyed("name", "*"), field("image")}, `c[name: "*"].image`, ""},
	{"both quotes, where none are needed", `"c"["name":'foo']`, Path{field("c"), keyed("name", "foo")}, "c[name: foo]", ""},
	{"integer", "p[port: 8080]", Path{field("p"), keyed("port", int64(8080))}, "p[port: 8080]", ""},
	{"quoted integer is a string", "p[port: '8080']", Path{field("p"), keyed("port", "8080")}, `p[port: "8080"]`, ""},
	{"leading zeros", "p[port: 0123]", Path{field("p"), keyed("port", int64(123))}, "p[port: 123]", ""},
	{"the largest integer", "p[n: 9223372036854775807]", Path{field("p"), keyed("n", int64(math.MaxInt64))}, "p[n: 9223372036854775807]", ""},
	{"signed and boolean are strings", "a[n: -1].b[n: true]",
		Path{field("a"), keyed("n", "-1"), field("b"), keyed("n", "true")}, "a[n: -1].b[n: true]", ""},
	{"bare words", "-a._b.c-1", Path{field("-a"), field("_b"), field("c-1")}, "-a._b.c-1", ""},
	{"dots and slashes in quotes", `metadata.annotations."example.com/owner"`,
		Path{field("metadata"), field("annotations"), field("example.com/owner")}, `metadata.annotations."example.com/owner"`, ""},
	{"a slash, which Gatekeeper prints bare", `m."a/b"`, Path{field("m"), field("a/b")}, `m."a/b"`, "m.a/b"},
	{"a letter beyond ASCII likewise", `m."é"`, Path{field("m"), field("é")}, `m."é"`, "m.é"},
	{"a carriage return likewise", "m.\"\r\"", Path{field("m"), field("\r")}, "m.\"\r\"", "m.\r"},
	{"empty words", `""["": ""]`, Path{field(""), keyed("", "")}, `""["": ""]`, ""},
	{"a digit first", `m."1a"`, Path{field("m"), field("1a")}, `m."1a"`, ""},
	{"escapes stand for what follows", `"a\\b"."\n\"'".'\''`, Path{field(`a\b`), field(`n"'`), field("'")}, `"a\\b"."n\"'"."'"`, ""},
	{"a newline in quotes", "\"a\nb\"", Path{field("a\nb")}, "\"a\nb\"", ""},
	{"what is not UTF-8", "\"\xff\"", Path{field("\ufffd")}, "\"\ufffd\"", "\ufffd"},
}

func TestParsePath(t *testing.T) {
	for _, tt := range pathTests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParsePath(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ParsePath(%q) (-want +got):\n%s", tt.in, diff)
			}
			if got.String() != tt.str {
				t.Errorf("String() = %q, want %q", got.String(), tt.str)
			}
			want := tt.canonical
			if want == "" {
				want = tt.str
			}
			if got.Canonical() != want {
				t.Errorf("Canonical() = %q, want %q", got.Canonical(), want)
			}
		})
	}
}

var syntaxTests = []struct {
	name, in     string
	offset       int
	line, column int
	message      string
}{
	{"leading dot", ".spec", 0, 1, 1, `unexpected token: expected field name or eof, got: SEPARATOR: "."`},
	{"empty step", "spec..x", 5, 1, 6, `unexpected token: expected field name or eof, got: SEPARATOR: "."`},
	{"trailing dot", "spec. ", 4, 1, 5, "trailing separators are forbidden"},
	{"selector first", "[a: b]", 0, 1, 1, `unexpected token: expected field name or eof, got: LBRACKET: "["`},
	{"selector after a dot", "a.[b: c]", 2, 1, 3, `unexpected token: expected field name or eof, got: LBRACKET: "["`},
	{"selector after another", "a[b: c][d: e]", 7, 1, 8, `unexpected token: expected '.' or eof, got: LBRACKET: "["`},
	{"no dot after a selector", "a[b: c]d", 7, 1, 8, `unexpected token: expected '.' or eof, got: IDENT: "d"`},
	{"two words", `a"b"`, 1, 1, 2, `unexpected token: expected '.' or eof, got: IDENT: "b"`},
	{"index", "a[0]", 2, 1, 3, `unexpected token: expected keyField in listSpec, got: INT: "0"`},
	{"bare glob", "a[*]", 2, 1, 3, `unexpected token: expected keyField in listSpec, got: GLOB: "*"`},
	{"glob of fields", "a.*", 2, 1, 3, `unexpected token: expected field name or eof, got: GLOB: "*"`},
	{"no colon", "a[b c]", 4, 1, 5, `unexpected token: expected ':' following keyField b, got: IDENT: "c"`},
	{"no value", "a[b:]", 4, 1, 5, `unexpected token: expected key value or glob in listSpec, got: RBRACKET: "]"`},
	{"unclosed", "a[b: c", 6, 1, 7, `unexpected token: expected ']' following listSpec, got: EOF: ""`},
	{"a decimal", "a[b: 1.5]", 6, 1, 7, `unexpected token: expected ']' following listSpec, got: SEPARATOR: "."`},
	{"digits, then letters", "a[b: 1a]", 6, 1, 7, `unexpected token: expected ']' following listSpec, got: IDENT: "a"`},
	{"a digit first", "a.1b", 2, 1, 3, `unexpected token: expected field name or eof, got: INT: "1"`},
	{"JSONPath", "$.spec", 0, 1, 1, `unexpected token: expected field name or eof, got: ERROR: "$"`},
	{"a slash", "labels.a/b", 8, 1, 9, `unexpected token: expected '.' or eof, got: ERROR: "/"`},
	{"beyond ASCII", "\"é\".é", 5, 1, 5, `unexpected token: expected field name or eof, got: ERROR: "é"`},
	{"no-break space", "a\u00a0b", 1, 1, 2, `unexpected token: expected '.' or eof, got: ERROR: "\u00a0"`},
	{"what is not UTF-8", "a\xff", 1, 1, 2, `unexpected token: expected '.' or eof, got: ERROR: "�"`},
	{"open quotes", `a."b`, 2, 1, 3, `unexpected token: expected field name or eof, got: ERROR: "b"`},
	{"open quotes, escaped end", `a."b\`, 2, 1, 3, `unexpected token: expected field name or eof, got: ERROR: "b"`},
	{"overflow", "a[b: 9223372036854775808]", 5, 1, 6,
		"invalid integer: overflow in integer string: 9223372036854775808: parsing key value for key: b"},
	{"overflow that wraps in Gatekeeper", "a[b: 18446744073709551617]", 5, 1, 6,
		"invalid integer: overflow in integer string: 18446744073709551617: parsing key value for key: b"},
	{"second line", "spec.\n  a,b", 9, 2, 4, `unexpected token: expected '.' or eof, got: ERROR: ","`},
}

func TestParsePathErrors(t *testing.T) {
	for _, tt := range syntaxTests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParsePath(tt.in)
			var got *SyntaxError
			if !errors.As(err, &got) {
				t.Fatalf("ParsePath(%q) error = %v, want a SyntaxError", tt.in, err)
			}
			want := &SyntaxError{Location: tt.in, Offset: tt.offset, Line: tt.line, Column: tt.column, Message: tt.message}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("ParsePath(%q) (-want +got):\n%s", tt.in, diff)
			}
		})
	}
}

func TestSyntaxErrorRender(t *testing.T) {
	_, err := ParsePath("spec.\n\t\"é\"..x\n.y")
	want := "2:6: unexpected token: expected field name or eof, got: SEPARATOR: \".\"\n" +
		" | \t\"é\"..x\n" +
		" | \t    ^"
	if got := err.(*SyntaxError).Render(); got != want {
		t.Errorf("Render() =\n%s\nwant\n%s", got, want)
	}
}

func FuzzParsePath(f *testing.F) {
	for _, tt := range pathTests {
		f.Add(tt.in)
	}
	for _, tt := range syntaxTests {
		f.Add(tt.in)
	}
	f.Fuzz(func(t *testing.T, s string) {
		path, err := ParsePath(s)
		if err != nil {
			e := err.(*SyntaxError)
			if e.Offset < 0 || e.Offset > len(s) || e.Line < 1 || e.Column < 1 || e.Render() == "" {
				t.Errorf("ParsePath(%q): %+v", s, e)
			}
			return
		}
		again, err := ParsePath(path.String())
		if err != nil {
			t.Fatalf("ParsePath(%q) of %q: %v", path.String(), s, err)
		}
		if diff := cmp.Diff(path, again); diff != "" {
			t.Errorf("%q, written as %q, is another path:\n%s", s, path.String(), diff)
		}
	})
}

func BenchmarkParsePath(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParsePath(`spec.containers[name: *].env[name: "FOO"].value`); err != nil {
			b.Fatal(err)
		}
	}
}
