package manifest

import (
	"errors"
	"fmt"
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
