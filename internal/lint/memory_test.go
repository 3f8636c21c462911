package lint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/mapd-project/mapd/test/hammer"
)

// corpus are the files of all cases, and those of the examples.
func corpus(t *testing.T) (texts [][]byte) {
	t.Helper()
	cases, _ := filepath.Glob("testdata/*.txtar")
	for _, name := range cases {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if strings.HasPrefix(f.Name, "quiet") || strings.HasPrefix(f.Name, "fires") {
				texts = append(texts, f.Data)
			}
		}
	}
	examples, _ := filepath.Glob("../../examples/*/*.yaml")
	for _, name := range examples {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	if len(texts) < 100 {
		t.Fatalf("%d files", len(texts))
	}
	return append(texts, []byte(definition), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: n, labels: {team: a}}\n"))
}

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}
`

// printed returns all of a result as text.
func printed(r *Result, err error) string {
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	fmt.Fprintln(&b, r.Policies, r.Bindings, r.Mutators, r.Kyverno, r.More, r.Unread)
	for _, list := range [][]Finding{r.Findings, r.Suppressed} {
		for _, f := range list {
			fmt.Fprintln(&b, f.Render(), f.Document, f.Object, f.Field, f.Fixable, f.NotFixed, f.Reason, f.Written, f.Near)
		}
	}
	return b.String()
}

// picky is a proof of some fixes, and always of the same.
func picky(_ context.Context, before, _ map[string]any) error {
	if text := fmt.Sprint(before); len(text)%3 == 0 {
		return errors.New("not proved")
	}
	return nil
}

// A Memory finds what Run finds, whatever is edited, added and taken away between two runs. Files
// are those of all cases, so that all rules find something, and most names meet.
func TestMemoryIsRun(t *testing.T) {
	texts := corpus(t)
	for seed := range uint64(hammer.Count(6)) {
		rnd := rand.New(rand.NewPCG(seed, 26))
		pick := func() []byte { return texts[rnd.IntN(len(texts))] }
		minors := Options{Oldest: 36 + rnd.IntN(2), Newest: NewestMinor, Prove: picky}
		var files []Source
		for i := range 12 {
			files = append(files, Source{fmt.Sprintf("f%02d.yaml", i), pick()})
		}
		var m Memory
		for step := range 25 {
			i := rnd.IntN(len(files))
			text := files[i].Data
			switch rnd.IntN(10) {
			case 0:
				files[i].Data = pick()
			case 1:
				files[i].Data = []byte(definition) // on which all depends
			case 2:
				files = append(files, Source{fmt.Sprintf("g%02d.yaml", step), pick()})
			case 3:
				if len(files) > 1 {
					files = append(files[:i:i], files[i+1:]...)
				}
			case 4:
				files[i].Data = append(append(bytes.Clone(text), "\n---\n"...), pick()...)
			case 5:
				files[i].Data = append([]byte("# moved\n"), text...)
			case 6: // a cancelled run between two
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := m.Run(ctx, files, minors); err == nil {
					t.Fatal("a run without time ends well")
				}
				continue
			default: // a line less, a line twice, a character less
				if lines := bytes.SplitAfter(text, []byte("\n")); len(lines) > 2 {
					at := rnd.IntN(len(lines))
					switch rnd.IntN(3) {
					case 0:
						lines = append(lines[:at:at], lines[at+1:]...)
					case 1:
						lines = append(lines[:at:at], append([][]byte{lines[at], lines[at]}, lines[at+1:]...)...)
					default:
						line := bytes.Clone(lines[at])
						if len(line) > 1 {
							cut := rnd.IntN(len(line) - 1)
							lines[at] = append(line[:cut:cut], line[cut+1:]...)
						}
					}
					files[i].Data = bytes.Join(lines, nil)
				}
			}
			want := printed(Run(t.Context(), files, minors))
			if diff := cmp.Diff(want, printed(m.Run(t.Context(), files, minors))); diff != "" {
				t.Fatalf("seed %d, step %d: -Run +Memory\n%s", seed, step, diff)
			}
		}
	}
}

// A rule runs again on what has changed and on what depends on that, and on nothing else.
func TestMemoryLooksAtChanges(t *testing.T) {
	const head = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: %s}\n" +
		"spec:\n  matchConstraints:\n    resourceRules:\n    - {apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}\n" +
		"  reinvocationPolicy: Never\n  mutations:\n  - patchType: ApplyConfiguration\n    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {\"a\": \"%s\"}}}'}\n"
	const bound = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: %s}\nspec: {policyName: %s}\n"
	file := func(name, format string, args ...any) Source { return Source{name, fmt.Appendf(nil, format, args...)} }
	files := []Source{file("a", head, "a", "1"), file("b", head, "b", "1"), file("bound", bound, "a", "a"), file("z", "a: b")}
	opts := Options{Oldest: NewestMinor, Newest: NewestMinor}
	var m Memory
	looked := func(change Source) (names string) {
		t.Helper()
		before := map[string]*subject{}
		for d, k := range m.known.policies {
			before[d.File] = k.subject
		}
		for i := range files {
			if files[i].Name == change.Name {
				files[i] = change
			}
		}
		if _, err := m.Run(t.Context(), files, opts); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			for d, k := range m.known.policies {
				if d.File == name && before[name] != k.subject {
					names += name
				}
			}
		}
		return names
	}
	for _, tt := range []struct {
		change Source
		want   string
	}{
		{file("z", "a: c"), "ab"}, // the first time
		{file("z", "a: d"), ""},
		{file("a", head, "a", "2"), "a"},
		{file("bound", bound, "x", "a"), "a"},
		{file("bound", bound, "x", "b"), "ab"},
		{file("z", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"), ""},
		{file("z", definition), "ab"},
	} {
		if got := looked(tt.change); got != tt.want {
			t.Errorf("after a change of %s to %.60q looked at %q, want %q", tt.change.Name, tt.change.Data, got, tt.want)
		}
	}
}
