package tree

import (
	"slices"
	"testing"
)

func TestParsePointer(t *testing.T) {
	tests := map[string]struct {
		in   string
		want []string
		err  string
	}{
		"whole document":          {in: "", want: nil},
		"the field without name":  {in: "/", want: []string{""}},
		"slash in a name":         {in: "/labels/a~1b", want: []string{"labels", "a/b"}},
		"tilde before a one":      {in: "/~01", want: []string{"~1"}},
		"empty name in between":   {in: "/a//b", want: []string{"a", "", "b"}},
		"text beyond ASCII":       {in: "/ä~0ö", want: []string{"ä~ö"}},
		"no leading slash":        {in: "spec", err: `pointer "spec": must be empty or start with "/"`},
		"a tilde at the end":      {in: "/a~", err: `pointer "/a~": token "a~": "~" must be followed by 0 or 1`},
		"a tilde before a letter": {in: "/b/~a", err: `pointer "/b/~a": token "~a": "~" must be followed by 0 or 1`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePointer(tt.in)
			if msg := errString(err); msg != tt.err {
				t.Fatalf("ParsePointer(%q) error = %q, want %q", tt.in, msg, tt.err)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("ParsePointer(%q) = %q, want %q", tt.in, got, tt.want)
			}
			if back := Pointer(got...); err == nil && back != tt.in {
				t.Errorf("Pointer(%q) = %q, want %q", got, back, tt.in)
			}
		})
	}
}

func FuzzPointer(f *testing.F) {
	f.Add("labels", "a/b~c")
	f.Add("", "~1")
	f.Add("/", "~~")
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := ParsePointer(Pointer(a, b))
		if err != nil || !slices.Equal(got, []string{a, b}) {
			t.Errorf("ParsePointer(Pointer(%q, %q)) = %q, %v", a, b, got, err)
		}
		if tokens, err := ParsePointer(a); err == nil && Pointer(tokens...) != a {
			t.Errorf("Pointer(ParsePointer(%q)...) = %q", a, Pointer(tokens...))
		}
	})
}
