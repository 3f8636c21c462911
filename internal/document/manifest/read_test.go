package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/tree"
)

// read returns what a stream holds, one line per document or error.
func read(t *testing.T, text string) []string {
	t.Helper()
	var got []string
	for d, err := range ReadStream("in.yaml", strings.NewReader(text)) {
		switch {
		case err != nil:
			got = append(got, "error: "+err.Error())
		case d.Object == nil:
			got = append(got, fmt.Sprintf("%d:%d comments", d.Index, d.Line))
		default:
			b, err := json.Marshal(d.Object.Object)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d:%d %s", d.Index, d.Line, b))
		}
	}
	return got
}

const cm = "apiVersion: v1\nkind: ConfigMap\n"

func TestRead(t *testing.T) {
	const pre = `{"apiVersion":"v1","kind":"ConfigMap"`
	tests := []struct {
		name, in string
		want     []string
	}{
		{"empty", "", nil},
		{"blank", "\n \n", nil},
		{"one", cm, []string{"1:1 " + pre + "}"}},
		{"no newline at the end", cm + "a: 1", []string{"1:1 " + pre[:1] + `"a":1,` + pre[1:] + "}"}},
		{"two, with comments and markers", "# head\n---\n" + cm + "---\n# only this\n---\n" + cm + "...\n", []string{
			"1:1 comments", "2:3 " + pre + "}", "3:6 comments", "4:8 " + pre + "}",
		}},
		{"an empty document counts", cm + "---\n---\n" + cm, []string{"1:1 " + pre + "}", "3:5 " + pre + "}"}},
		{"marker with text", "--- # why\n" + cm + "--- {apiVersion: v1, kind: A}\n", []string{
			"1:2 " + pre + "}", `2:4 {"apiVersion":"v1","kind":"A"}`,
		}},
		{"directive", "%YAML 1.1\n---\n" + cm, []string{"1:3 " + pre + "}"}},
		{"CRLF and BOM", "\ufeff" + strings.ReplaceAll(cm+"---\n"+cm, "\n", "\r\n"), []string{"1:1 " + pre + "}", "2:4 " + pre + "}"}},
		{"--- in a block scalar", cm + "a: |\n  x\n  ---\n  y\n", []string{`1:1 {"a":"x\n---\ny\n",` + pre[1:] + "}"}},
		{"YAML 1.1 words and numbers", cm + `a: [yes, "yes", Off, 0777, 1_000, 5.0, 0.50, 1e3, 99999999999999999999, 0x1F, ~, 2001-01-01, 12:30, y]` + "\n", []string{
			`1:1 {"a":[true,"yes",false,511,1000,5,0.5,1000,100000000000000000000,31,null,"2001-01-01","12:30",true],` + pre[1:] + "}",
		}},
		{"keys that are no strings", cm + "a: {1: x, true: why, 0.5: z}\n", []string{`1:1 {"a":{"0.5":"z","1":"x","true":"why"},` + pre[1:] + "}"}},
		{"anchors and merge keys", cm + "a: &a {x: 1}\nb: *a\nc: {<<: *a, z: 2}\n", []string{`1:1 {"a":{"x":1},"apiVersion":"v1","b":{"x":1},"c":{"x":1,"z":2},"kind":"ConfigMap"}`}},
		{"JSON stream", `{"apiVersion":"v1","kind":"A","s":"}{","f":5.0}{"apiVersion":"v1","kind":"B"}` + "\n\n{\n \"apiVersion\":\"v1\",\n \"kind\":\"C\"}\n", []string{
			`1:1 {"apiVersion":"v1","f":5,"kind":"A","s":"}{"}`, `2:1 {"apiVersion":"v1","kind":"B"}`, `3:3 {"apiVersion":"v1","kind":"C"}`,
		}},
		{"YAML in braces", "{apiVersion: v1, kind: A, s: 'a}'}\n---\n" + cm, []string{`1:1 {"apiVersion":"v1","kind":"A","s":"a}"}`, "2:3 " + pre + "}"}},
		{"lists", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: A\n- apiVersion: v1\n  kind: PodList\n  items:\n  - metadata: {name: x}\n", []string{
			`1:4 {"apiVersion":"v1","kind":"A"}`, `1:9 {"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}`,
		}},

		{"a bad one among good ones", cm + "---\na: [1\nb: 2\n---\n" + cm, []string{
			"1:1 " + pre + "}", "error: in.yaml: document 2, line 5: did not find expected ',' or ']'", "3:7 " + pre + "}",
		}},
		{"duplicate key", cm + "metadata:\n  name: a\n  name: b\n", []string{`error: in.yaml: document 1, line 5, column 3: key "name" already set in map`}},
		{"duplicate key in JSON", `{"apiVersion":"v1","kind":"A","kind":"B"}`, []string{`error: in.yaml: document 1, line 1: duplicate field "kind"`}},
		{"tab", cm + "a:\n\tb: 1\n", []string{"error: in.yaml: document 1, line 4: found character that cannot start any token"}},
		{"not an object", "- 1\n", []string{"error: in.yaml: document 1, line 1: the document is not an object with apiVersion and kind"}},
		{"no kind", "apiVersion: v1\n", []string{"error: in.yaml: document 1, line 1: Object 'Kind' is missing"}},
		{"kind of the wrong type", "apiVersion: v1\nkind: 5\n", []string{"error: in.yaml: document 1, line 2, column 7: kind must be a string, not 5"}},
		{"name of the wrong type", cm + "metadata: {name: 5}\n", []string{"error: in.yaml: document 1, line 3, column 18: metadata.name must be a string, not 5"}},
		{"not a number for JSON", cm + "a: .nan\n", []string{"error: in.yaml: document 1, line 3, column 4: json: unsupported value: NaN"}},
		{"null key", cm + "~: 1\n", []string{"error: in.yaml: document 1, line 3, column 1: a key must not be null"}},
		{"unknown anchor", cm + "a: *b\n", []string{"error: in.yaml: document 1, line 3: unknown anchor 'b' referenced"}},
		{"anchor in itself", cm + "a: &a [*a]\n", []string{"error: in.yaml: document 1, line 3, column 8: anchor 'a' value contains itself"}},
		{"two values", "{\"a\":1} x\n", []string{"error: in.yaml: document 1, line 1: Object 'Kind' is missing", "error: in.yaml: document 2, line 1: the document is not an object with apiVersion and kind"}},
		{"UTF-16", "\xff\xfea\x00", []string{"error: in.yaml: document 1, line 1: the text is UTF-16, not UTF-8"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, read(t, tt.in)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestReadRefusesWhatWouldNotFit(t *testing.T) {
	t.Run("aliases", func(t *testing.T) {
		var b strings.Builder
		b.WriteString(cm + "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
		for i := 1; i < 12; i++ {
			fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
		}
		got := strings.Join(read(t, b.String()), "\n")
		if !strings.Contains(got, "expand to more than 3 MiB") {
			t.Errorf("got %.200s", got)
		}
	})
	t.Run("size", func(t *testing.T) {
		text := cm + "---\n" + cm + "a: " + strings.Repeat("x", 2000) + "\nb: 1\n---\n" + cm
		var got []string
		readStream("in", strings.NewReader(text), limits{document: 1000, documents: 1000}, func(d *Document, err error) bool {
			if err != nil {
				got = append(got, err.Error())
			} else {
				got = append(got, d.Where())
			}
			return true
		})
		want := []string{"in: document 1, line 1", "in: document 2, line 4: " + errTooBig.Error(), "in: document 3, line 9"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
	t.Run("depth", func(t *testing.T) {
		got := strings.Join(read(t, cm+"a: "+strings.Repeat("[", 20_000)), "\n")
		if !strings.Contains(got, "error:") {
			t.Errorf("got %.200s", got)
		}
	})
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", 300_000)
	got := read(t, cm+"a: "+long+"\n---\n"+cm)
	if len(got) != 2 || !strings.Contains(got[0], long) {
		t.Errorf("got %d documents", len(got))
	}
}

// A stream is never held: reading a document has to be possible before the next
// one has been written.
func TestReadStreams(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		fmt.Fprint(w, cm+"---\n")
	}()
	for d, err := range ReadStream("pipe", r) {
		if err != nil || d.Object == nil {
			t.Fatalf("got %v, %v", d, err)
		}
		break
	}
}

func TestRawIsWhatStoodThere(t *testing.T) {
	const in = "# licence\n---\na: 1 # one\napiVersion: v1\nkind: A\n\n---\napiVersion: v1   \nkind: B\n"
	var out bytes.Buffer
	for d, err := range ReadStream("in", strings.NewReader(in)) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Explicit {
			out.WriteString("---\n")
		}
		out.Write(d.Raw)
	}
	if out.String() != in {
		t.Errorf("got %q, want %q", out.String(), in)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.yml", "c.json", "d.txt", "sub/e.yaml", ".git/f.yaml"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rel := func(files []string, _ Skipped, err error) []string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range files {
			files[i] = strings.TrimPrefix(f, dir+"/")
		}
		return files
	}
	if diff := cmp.Diff([]string{"a.yml", "b.yaml", "c.json", "d.txt"}, rel(Files([]string{dir, filepath.Join(dir, "d.txt")}, false))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a.yml", "b.yaml", "c.json", "sub/e.yaml"}, rel(Files([]string{dir}, true))); diff != "" {
		t.Error(diff)
	}
	if _, _, err := Files([]string{filepath.Join(dir, "nope")}, false); err == nil {
		t.Error("a missing file is no error")
	}
	if _, _, err := Files([]string{t.TempDir()}, false); err == nil {
		t.Error("an empty directory is no error")
	}
}

// TestFilesForeign has what stands beside manifests in directories.
func TestFilesForeign(t *testing.T) {
	dir := t.TempDir()
	const pod = "apiVersion: v1\nkind: Pod\n"
	for name, text := range map[string]string{
		"a/kustomization.yaml":         "resources: [pod.yaml]\n",
		"a/pod.yaml":                   pod,
		"a/patch.yaml":                 "- op: remove\n  path: /a\n",
		"a/schema.json":                `{"$schema": "x", "type": "object"}`,
		"a/pod.json":                   `{"apiVersion": "v1", "kind": "Pod"}`,
		"a/one.yaml":                   "a: 1\n---\n" + pod,
		"a/mapd-test.yaml":             "apiVersion: test.mapd.dev/v1\nkind: Suite\n",
		"a/template.yaml":              pod + "metadata:\n  name: {{ .Name }}\n",
		"a/quoted.yaml":                pod + "metadata:\n  annotations: {a: '{{ .Name }}'}\n",
		"a/unversioned.yaml":           "kind: Pod\n",
		"a/unkind.yaml":                "apiVersion: v1\nmetadata: {name: a}\n",
		"a/broken.yaml":                "a: [\n",
		"a/empty.yaml":                 "# nothing\n",
		"chart/Chart.yaml":             "apiVersion: v2\nname: c\n",
		"chart/values.yaml":            "kind: Deployment\n",
		"chart/values-prod.yaml":       "a: 1\n",
		"chart/values.schema.json":     `{"$schema": "x"}`,
		"chart/templates/a.yaml":       pod + "metadata: {name: '{{ .Name }}'}\n",
		"chart/templates/sub/b.yaml":   pod + "{{- if x }}\n{{- end }}\n",
		"chart/templates/literal.yaml": pod,
		"chart/crds/crd.yaml":          pod,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, skipped, err := Files([]string{dir, filepath.Join(dir, "a/patch.yaml")}, true)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		files[i] = strings.TrimPrefix(f, dir+"/")
	}
	want := []string{
		"a/broken.yaml", "a/empty.yaml", "a/one.yaml", "a/pod.json", "a/pod.yaml", "a/quoted.yaml", "a/unkind.yaml", "a/unversioned.yaml",
		"chart/crds/crd.yaml", "chart/templates/literal.yaml", "a/patch.yaml", // which is named
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Skipped{Kustomization: 1, HelmChart: 1, HelmValues: 2, HelmTemplate: 3, JSONSchema: 2, OtherFile: 1, "Suite": 1}, skipped); diff != "" {
		t.Error(diff)
	}
}

func TestPositions(t *testing.T) {
	const in = `# comment
apiVersion: v1
kind: P
spec:
  plain: a +
    b.c
  literal: |
    let x = 1;

      object.foo
  folded: >-
    one two
    three
  single: 'it''s object.x'
  double: "a\n\"q\" \u0041 bad"
  tagged: !!str  what
  blank: "\n\t b + c\n"
  list:
  - name: x
    expr: "é + object"
`
	var d *Document
	for got, err := range ReadStream("p.yaml", strings.NewReader("a: 1\napiVersion: v1\nkind: A\n---\n"+in)) {
		if err != nil {
			t.Fatal(err)
		}
		d = got
	}
	char := func(pos Pos) string {
		lines := strings.Split("a: 1\napiVersion: v1\nkind: A\n---\n"+in, "\n")
		r := []rune(lines[pos.Line-1])
		return string(r[pos.Column-1:])
	}
	for _, tt := range []struct {
		path         string
		line, column int
		want         string
	}{
		{"spec.blank", 1, 5, "c\\n\""},
		{"spec.plain", 1, 5, "b.c"},
		{"spec.plain", 1, 3, "+"},
		{"spec.literal", 3, 3, "object.foo"},
		{"spec.literal", 1, 9, "1;"},
		{"spec.folded", 1, 9, "three"},
		{"spec.single", 1, 6, "object.x'"},
		{"spec.double", 2, 7, `bad"`},
		{"spec.double", 2, 5, `\u0041 bad"`},
		{"spec.tagged", 1, 1, "what"},
		{"spec.list[0].expr", 1, 5, `object"`},
	} {
		value, _ := lookup(d.root(), tt.path)
		text := value.Value
		if tt.path == "spec.blank" {
			text = strings.TrimSpace(text) // as some expressions are compiled
		}
		if got := char(d.PosIn(tt.path, text, tt.line, tt.column)); got != tt.want {
			t.Errorf("PosIn(%s, %d, %d) is at %q, want %q", tt.path, tt.line, tt.column, got, tt.want)
		}
	}
	for path, want := range map[string]string{
		"spec":               "spec:",
		"spec.list[0].name":  "x",
		"spec.nope.at[3].x":  "spec:",
		"spec.list[7]":       "list:",
		"metadata.labels[a]": "# comment",
	} {
		pos := d.LineOf(path)
		if path == "metadata.labels[a]" {
			if pos.Line != d.Line {
				t.Errorf("LineOf(%s) = %v", path, pos)
			}
			continue
		}
		if got := char(pos); got != want {
			t.Errorf("LineOf(%s) is at %q, want %q", path, got, want)
		}
	}
	err := d.ErrorIn("spec.list[0].expr", "é + object", 1, 5, fmt.Errorf("undeclared reference"))
	want := "p.yaml: document 2, line 24, column 16: undeclared reference\n      expr: \"é + object\"\n                 ^"
	if got := err.Render(); got != want {
		t.Errorf("Render:\n%s\nwant:\n%s", got, want)
	}
}

func FuzzReader(f *testing.F) {
	for _, s := range []string{
		cm, cm + "---\n" + cm, `{"apiVersion":"v1","kind":"A","x":[1,2.5,null,"\ud83d\ude00"]}`, "--- |\n a\n...\n%YAML 1.2\n---\n" + cm,
		cm + "a: &x [yes, 'no', \"\\x00\", 0o7, 1e400, 1.0]\nb: *x\nc: {<<: {d: e}}\n", cm + "s: |\n\n   x\n  y\n", cm + "? [a]\n: b\n", cm + "a: !!binary gIGC\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for d, err := range ReadStream("fuzz", strings.NewReader(text)) {
			if err != nil || d.Object == nil {
				continue
			}
			d.LineOf("metadata.name")
			d.PosIn("kind", d.Object.GetKind(), 1, 1)
			out := Encode(d.Object.Object)
			n := 0
			for back, err := range ReadStream("again", bytes.NewReader(out)) {
				if n++; err != nil {
					if strings.HasSuffix(d.Object.GetKind(), "List") {
						return // an item may lack what a document must have
					}
					t.Fatalf("%q is written as %q, which reads as %v", text, out, err)
				}
				if strings.HasSuffix(d.Object.GetKind(), "List") {
					return
				}
				if !tree.Equal(back.Object.Object, integral(d.Object.Object)) {
					t.Fatalf("%q is written as %q, which is another tree", text, out)
				}
			}
			if n != 1 {
				t.Fatalf("%q is written as %q: %d documents", text, out, n)
			}
		}
	})
}

// The line of an error is not shown if it may be data of a Secret, which need not be
// YAML or JSON any more.
func TestErrorsDoNotQuoteSecrets(t *testing.T) {
	const broken = "\ndata: {a: hush, a: b}\n"
	for text, shown := range map[string]bool{
		"apiVersion: v1\nkind: ConfigMap" + broken:                                              true,
		"apiVersion: v1\nkind: SecretStore" + broken:                                            true,
		"apiVersion: v1\nkind: Secret" + broken:                                                 false,
		"apiVersion: v1\n\"kind\": 'Secret'  # x" + broken:                                      false,
		"apiVersion: v1\nkind:\n  Secret" + broken:                                              false,
		"apiVersion: v1" + broken + "kind: Secret\n":                                            false,
		"apiVersion: v1\nkind: List\nitems:\n- kind: Secret\n  data: {a: hush, a: b}\n":         false,
		"apiVersion: v1\nkind: SecretList\nitems:\n- data: {a: hush, a: b}\n":                   false,
		"{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"data\": {\"a\": \"hush\", \"a\": 1}}": false,
	} {
		failed := false
		for _, err := range ReadStream("f", strings.NewReader(text)) {
			var at *PositionError
			if errors.As(err, &at) {
				failed = true
				if quoted := strings.Contains(at.Render(), "hush"); quoted != shown {
					t.Errorf("%s\nis shown as\n%s", text, at.Render())
				}
			}
		}
		if !failed {
			t.Errorf("%s\nhas no error", text)
		}
	}
	for d, err := range ReadStream("f", strings.NewReader("apiVersion: v1\nkind: Secret\ndata: {a: hush}\n")) {
		if err != nil {
			t.Fatal(err)
		}
		if text := d.ErrorAt("data.a", errors.New("no")).Render(); strings.Contains(text, "hush") {
			t.Error(text)
		}
	}
}
