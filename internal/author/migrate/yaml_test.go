package migrate

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/format"
	"github.com/mapd-project/mapd/internal/document/manifest"
)

// What cannot be written nicely is written plainly, so a mistake in form would
// only be seen by users. All policies of the translation's tests are written nicely.
func TestGoldensArePretty(t *testing.T) {
	files, err := filepath.Glob("../../../internal/gatekeeper/translate/testdata/native/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range strings.Split(string(data), "\n-- want/")[1:] {
			name, text, _ := strings.Cut(section, " --\n")
			text, _, _ = strings.Cut(text, "\n-- ")
			want := strings.TrimSuffix(text[strings.Index(text, "\napiVersion:")+1:], "\n") + "\n"
			got := string(Encode("", read(t, want)))
			if d := cmp.Diff(got, want); d != "" {
				t.Errorf("%s: %s is not as encode writes it (-encode +golden):\n%s", filepath.Base(file), name, d)
			}
		}
	}
}

func read(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for d, err := range manifest.ReadStream("", bytes.NewReader([]byte(text))) {
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		out = append(out, d.Object)
	}
	return out
}

// Whatever a list holds, it reads as the same list.
func TestFlow(t *testing.T) {
	for _, list := range [][]any{
		{}, {""}, {"*"}, {"*/*"}, {"a, b"}, {"it's"}, {`"`}, {"a: b"}, {"#"}, {"[x]", "{y}"}, {"null", "true", "1", "1.0"},
		{nil, true, int64(1), 1.5, 1e300}, {"\n", "\t", "\u2028", "é"}, {"-", "- a", "&a", "!b", "%c", "@d"},
	} {
		text := string(format.Form.Encode(map[string]any{"apiVersion": "v1", "kind": "X", "list": list}))
		if !strings.Contains(text, "\nlist: [") || strings.Count(text, "\n") != 3 {
			t.Errorf("%q is not on one line:\n%s", list, text)
			continue
		}
		if got := read(t, text)[0].Object["list"]; !slices.EqualFunc(list, got.([]any), func(a, b any) bool { return cmp.Equal(a, b) }) {
			t.Errorf("%q is written as %s, which reads as %q", list, text, got)
		}
	}
}
