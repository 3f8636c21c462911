package suite

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/mapd-project/mapd/internal/author/coverage"
	"github.com/mapd-project/mapd/pkg/cel"
)

// What Generate writes for each example passes, is the same each time, and reaches what it
// says.
func TestGenerate(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/policy.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("no examples: %v", err)
	}
	observing := func(minor string) (*cel.Env, error) { return cel.NewEnv(cel.Options{Version: minor, Observe: true}) }
	env, err := observing("")
	if err != nil {
		t.Fatal(err)
	}
	had, all := 0, 0
	for i, file := range files {
		if testing.Short() && i%5 > 0 {
			continue
		}
		text, loaded, err := Generate(t.Context(), file, env)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if i%5 == 0 {
			if again, _, _ := Generate(t.Context(), file, env); !bytes.Equal(text, again) {
				t.Errorf("%s: two runs differ:\n%s\n%s", file, text, again)
			}
		}
		policy, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for name, data := range map[string][]byte{"policy.yaml": policy, "mapd-test.yaml": text} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r := Run(t.Context(), []string{filepath.Join(dir, "mapd-test.yaml")}, Options{Env: observing})
		if len(r.Errs) > 0 || len(r.Outcomes) == 0 || r.Count(Passed) != len(r.Outcomes) {
			t.Errorf("%s: %v\n%s\n%s", file, r.Errs, r.Text(false, false), text)
		}
		said, seen := counts(*loaded), counts(r.Loaded...)
		if said != seen {
			t.Errorf("%s: %v outcomes while generating, and its cases reach %v\n%s", file, said, seen, text)
		}
		had, all = had+seen[0], all+seen[1]
	}
	t.Logf("%d of %d outcomes", had, all)
	if had*100 < all*88 {
		t.Errorf("the cases reach %d of %d outcomes", had, all)
	}
}

func counts(list ...Loaded) (n [2]int) {
	var r coverage.Report
	for _, l := range list {
		r.Add(l.Policies, l.Documents, l.Counter)
	}
	for _, p := range r.Policies {
		had, all := p.Counts()
		n[0], n[1] = n[0]+had, n[1]+all
	}
	return n
}

func TestGenerateErrors(t *testing.T) {
	env, err := cel.NewEnv(cel.Options{Observe: true})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pod.yaml":   `{apiVersion: v1, kind: Pod, metadata: {name: a}}`,
		"broken":     `{`,
		"bad.yaml":   "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: a}\nspec: {}\n",
		"empty.yaml": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pod.yaml", "broken", "bad.yaml", "empty.yaml", "missing.yaml", "."} {
		if text, _, err := Generate(t.Context(), filepath.Join(dir, name), env); err == nil {
			t.Errorf("%s: no error, and\n%s", name, text)
		}
	}
}
