package words_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mapd-project/mapd/internal/words"
)

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 policies", 1: "1 policy", 2: "2 policies"} {
		if got := words.Count(n, "policy", "policies"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestSome(t *testing.T) {
	for _, tt := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"a"}, "a"},
		{[]string{"a", "b"}, "a, b"},
		{[]string{"a", "b", "c", "d"}, "a, b and 2 more"},
	} {
		if got := words.Some(tt.names, 2); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.names, got, tt.want)
		}
	}
}

func FuzzCut(f *testing.F) {
	for _, s := range []string{"", "abc", "abcd", "äöü", "a\xffbcd", "日本"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		if most < 0 {
			return
		}
		got := words.Cut(s, most)
		if len(s) <= most {
			if got != s {
				t.Errorf("%q: %q", s, got)
			}
			return
		}
		head, cut := strings.CutSuffix(got, "…")
		if !cut || len(head) > most || !utf8.ValidString(got) {
			t.Errorf("%q, at most %d bytes: %q", s, most, got)
		}
	})
}
