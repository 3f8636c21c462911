package manifest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ReadAll finds what Read finds, in the same order, and a packed document still
// knows what it says and where.
func TestReadAll(t *testing.T) {
	dir := t.TempDir()
	var files []string
	add := func(name, text string) {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "---\n# number %d\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d, namespace: a}\ndata:\n  k: v%d\n", i, i, i)
		if i%50 == 49 {
			many.WriteString("---\nkind: [\n")
		}
	}
	add("many.yaml", many.String())
	files = append(files, filepath.Join(dir, "missing.yaml"))
	add("json.json", `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}{"kind": 1}`)
	add("list.yaml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {generateName: p}}\n- 7\n- {apiVersion: v1, kind: Pod}\n")
	add("lists.yaml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMapList\n  items:\n  - metadata: {name: one}\n    data: {j: 1, k: 2}\n  - metadata: {name: two}\n"+
		"    data:\n      k: 3\n- {apiVersion: v1, kind: ConfigMap, data: {k: 4}, metadata: {name: three}}\n- 8\n")
	add("lists.json", `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "j"},
		"data": {"k": "v"}}, {"apiVersion": "v1", "kind": "ConfigMap"}]}`)
	add("comment.yaml", "# nothing\n")
	files = append(files, Stdin)
	const stdin = "apiVersion: v1\nkind: Pod\nmetadata: {name: last}\n"

	describe := func(d *Document) string {
		if d.Object == nil {
			return d.Where()
		}
		text, err := d.JSONText()
		if err != nil {
			t.Fatal(err)
		}
		at := d.ErrorAt("data.k", errors.New("here"))
		return fmt.Sprint(d.Where(), d.Name(), d.Object.GroupVersionKind(), string(text), at, at.Source)
	}
	var want, got []string
	for d, err := range Read(Inputs(files, strings.NewReader(stdin))) {
		if err != nil {
			want = append(want, err.Error())
			continue
		}
		want = append(want, describe(d))
	}
	for _, each := range []func(*Document){func(*Document) {}, (*Document).Pack} {
		docs, errs := ReadAll(Inputs(files, strings.NewReader(stdin)), each)
		got = nil
		for _, d := range docs {
			got = append(got, describe(d))
		}
		var wantDocs, wantErrs []string
		for _, w := range want {
			if len(wantErrs) < len(errs) && w == errs[len(wantErrs)].Error() {
				wantErrs = append(wantErrs, w)
				continue
			}
			wantDocs = append(wantDocs, w)
		}
		if len(wantErrs) != len(errs) {
			t.Errorf("errors %q, want those of %q", errs, want)
		}
		if diff := cmp.Diff(wantDocs, got); diff != "" {
			t.Errorf("documents (-Read +ReadAll):\n%s", diff)
		}
	}
}

// Lists of policies are understood item by item, in YAML and in JSON, with what the whole List has;
// others are not.
func TestPackItems(t *testing.T) {
	const item = "{apiVersion: v1, kind: A, metadata: {name: %s}, data: {k: v}}"
	object := func(name string) string { return fmt.Sprintf(item, name) }
	for name, tt := range map[string]struct {
		text  string
		items int // understood one by one
	}{
		"block":            {"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: A\n  metadata: {name: a}\n  data:\n    k: |\n      - x\n\n      # y\n\n# of b\n- apiVersion: v1\n  kind: A\n  metadata:\n    name: b\n  data:\n    k: |+\n      z\n\n", 2},
		"indented":         {"# head\nitems:\n  # first\n  - " + object("a") + "\n  -\n    apiVersion: v1\n    kind: A\n    metadata: {name: b}\n  - # c\n    " + object("c") + "\nkind: List\napiVersion: v1\n# end\n", 3},
		"carriage returns": {"kind: List\r\napiVersion: v1\r\nitems:\r\n- apiVersion: v1\r\n  kind: A\r\n  metadata: {name: a}\r\n", 1},
		"typed":            {"kind: AList\napiVersion: v1\nitems:\n- " + object("a") + "\n", 1},
		"json":             {"\n{\"items\": [ {\"apiVersion\": \"v1\", \"kind\": \"A\",\n\"metadata\": {\"name\": \"a\"}}\n,\n{\"apiVersion\": \"v1\", \"kind\": \"A\", \"metadata\": {\"name\": \"{\"},\n\"data\": {\"k\": 1.0}}], \"kind\": \"List\", \"apiVersion\": \"v1\", \"metadata\": {}}", 2},

		"no items":              {"kind: List\napiVersion: v1\nitems: []\n", 0},
		"null":                  {"kind: List\napiVersion: v1\nitems:\n", 0},
		"flow":                  {"kind: List\napiVersion: v1\nitems: [" + object("a") + "]\n", 0},
		"braces":                {"{kind: List, apiVersion: v1,\nitems:\n[" + object("a") + "]}\n", 0},
		"no kind":               {"kind: AList\napiVersion: v1\nitems:\n- metadata: {name: a}\n", 0},
		"a List in it":          {"kind: List\napiVersion: v1\nitems:\n- kind: List\n  apiVersion: v1\n  items:\n  - " + object("a") + "\n", 0},
		"no List":               {"kind: A\napiVersion: v1\nitems:\n- " + object("a") + "\n", 0},
		"an alias":              {"kind: List\napiVersion: v1\nitems:\n- &a " + object("a") + "\n- *a\n", 0},
		"an alias in an item":   {"kind: List\napiVersion: v1\nitems:\n- {apiVersion: &v v1, kind: A, metadata: {name: a}, data: {k: *v}}\n", 0},
		"wrong later":           {"kind: List\napiVersion: v1\nitems:\n- " + object("a") + "\n- {kind: [\n", 0},
		"a key twice":           {"kind: List\napiVersion: v1\nitems:\n- " + object("a") + "\n- {kind: A, kind: A, apiVersion: v1}\n", 0},
		"items twice":           {"kind: List\napiVersion: v1\nitems:\n- " + object("a") + "\n\"items\": []\n", 0},
		"a quoted item":         {"kind: List\napiVersion: v1\nitems:\n- {apiVersion: v1, kind: A, metadata: {name: \"x\n- y\"}}\n", 0},
		"a quoted List":         {"kind: List\napiVersion: v1\na: \"\nitems:\n- \"\nitems:\n- " + object("a") + "\n", 0},
		"nothing":               {"kind: List\napiVersion: v1\nitems:\n- " + object("a") + "\n-\n", 0},
		"a number":              {"kind: List\napiVersion: v1\nitems:\n- " + object("a") + "\n- 7\n", 0},
		"an odd indentation":    {"kind: List\napiVersion: v1\nitems:\n  - " + object("a") + "\n - " + object("b") + "\n", 0},
		"no apiVersion":         {"kind: List\nitems:\n- " + object("a") + "\n", 0},
		"json with a key twice": {`{"kind": "List", "apiVersion": "v1", "items": [{"apiVersion": "v1", "kind": "A", "kind": "A"}]}`, 0},
		"json with items twice": {`{"kind": "List", "apiVersion": "v1", "items": [{"apiVersion": "v1", "kind": "A"}], "items": []}`, 0},
		"json with a number":    {`{"kind": "List", "apiVersion": "v1", "items": [7, {"apiVersion": "v1", "kind": "A"}]}`, 0},
		"json with null":        {`{"kind": "List", "apiVersion": "v1", "items": [{"apiVersion": "v1", "kind": "A"}, null, {}]}`, 0},
		"json of one":           {`{"kind": "A", "apiVersion": "v1", "items": {}}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if n := sameItems(t, tt.text); n != tt.items {
				t.Errorf("%d items were understood one by one, want %d", n, tt.items)
			}
		})
	}
	// What is not packed needs the List around it.
	docs, errs := ReadAll([]Input{textInput("kind: List\napiVersion: v1\nitems:\n- " + object("a") + "\n- " + object("b") + "\n")}, func(d *Document) {
		if d.Name() == "A a" {
			d.Pack()
		}
	})
	if len(errs) > 0 || len(docs) != 2 || docs[0].packed == nil || docs[1].parent == nil {
		t.Errorf("%v, %v", docs, errs)
	}
}

func textInput(text string) Input {
	return Input{Name: "f", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// sameItems fails if reading Lists item by item gives something else than reading them whole, and
// returns how many items it has read so.
func sameItems(t *testing.T, text string) (n int) {
	t.Helper()
	for whole := range cut(textInput(text)) {
		if whole.err != nil {
			continue
		}
		parts := *whole
		if !parts.packItems((*Document).Pack) {
			if len(parts.docs) > 0 {
				t.Error("a List that is read whole has left items")
			}
			continue
		}
		whole.understand((*Document).Pack)
		if len(whole.errs) > 0 || len(whole.docs) != len(parts.docs) {
			t.Fatalf("%d items, whole %d: %v", len(parts.docs), len(whole.docs), whole.errs)
		}
		n += len(parts.docs)
		describe := func(d *Document) string {
			at := d.ErrorAt("metadata.name", errors.New("here"))
			return fmt.Sprint(d.Where(), d.Name(), string(d.packed), d.Explicit, d.JSON, at, at.Source)
		}
		for i, d := range parts.docs {
			if got, want := describe(d), describe(whole.docs[i]); got != want {
				t.Errorf("item %d:\n%s, want\n%s", i, got, want)
			}
		}
	}
	return n
}

func FuzzPackItems(f *testing.F) {
	for _, text := range []string{
		"kind: List\napiVersion: v1\nitems:\n- {apiVersion: v1, kind: A, metadata: {name: a}}\n-\n  apiVersion: v1\n  kind: A\n  data: |\n    - x\n",
		"items:\n  - apiVersion: v1\n    kind: A\n    k: \"a\n  - b\"\n# c\nkind: List\napiVersion: v1\n",
		`{"items": [{"apiVersion": "v1", "kind": "A", "k": 1}, {"kind": "B", "apiVersion": "v1"}], "kind": "List", "apiVersion": "v1"}`,
		"kind: List\napiVersion: v1\nitems:\n- &a {apiVersion: v1, kind: A}\n- *a\n- >-\n  x\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { sameItems(t, text) })
}
