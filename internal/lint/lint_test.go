package lint

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite what rules are expected to find, and the table of docs/author/lint.md")

// TestRules runs the cases of testdata, one file for each rule: what the rule finds in the
// files fires*.yaml is in want, and in the files quiet*.yaml it finds nothing. In the comment
// of an archive, "kubernetes: 32-36" sets the minors.
// accept is a proof of everything; what is proved is tried in package proof.
func accept(context.Context, map[string]any, map[string]any) error { return nil }

func TestRules(t *testing.T) {
	for _, r := range Rules() {
		t.Run(r.Name, func(t *testing.T) {
			file := filepath.Join("testdata", r.Name+".txtar")
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			opts := Options{Oldest: CurrentMinor, Newest: CurrentMinor, Prove: accept}
			if _, minors, ok := strings.Cut(string(archive.Comment), "kubernetes: "); ok {
				if _, err := fmt.Sscanf(minors, "%d-%d", &opts.Oldest, &opts.Newest); err != nil {
					t.Fatal(err)
				}
			}
			fires, quiet := 0, 0
			for i := range archive.Files {
				f := archive.Files[i]
				isQuiet := strings.HasPrefix(f.Name, "quiet")
				if !isQuiet && !strings.HasPrefix(f.Name, "fires") {
					continue
				}
				found := lines(t, []Source{{f.Name, f.Data}}, opts, r.Name)
				if isQuiet {
					quiet++
					if found != "" {
						t.Errorf("%s is not quiet:\n%s", f.Name, found)
					}
					continue
				}
				fires++
				want := section(archive, "want of "+f.Name)
				if *update {
					want.Data = []byte(found)
				}
				if found == "" {
					t.Errorf("%s: nothing is found", f.Name)
				}
				if diff := cmp.Diff(string(want.Data), found); diff != "" {
					t.Errorf("%s: -want +got\n%s", f.Name, diff)
				}
			}
			if fires == 0 || quiet == 0 {
				t.Errorf("%d files fires*.yaml, %d files quiet*.yaml: want one of each", fires, quiet)
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// section returns a file of an archive, which is added if it is not there.
func section(a *txtar.Archive, name string) *txtar.File {
	i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == name })
	if i < 0 {
		i = len(a.Files)
		a.Files = append(a.Files, txtar.File{Name: name})
	}
	return &a.Files[i]
}

// lines are the findings of one rule. Whatever is in a file, others may find more; but a
// case is not about a policy that no server takes, unless it is the rule's.
func lines(t *testing.T, sources []Source, opts Options, rule string) string {
	t.Helper()
	r, err := Run(t.Context(), sources, opts)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range r.Findings {
		if f.Rule == rule {
			fmt.Fprintf(&b, "%d:%d: %s: %s\n", f.Line, f.Column, f.Severity, f.Message)
			if f.Fixable {
				b.WriteString("  fixable\n")
			}
			if f.NotFixed != "" {
				b.WriteString("  not fixed: " + f.NotFixed + "\n")
			}
		} else if f.Rule == invalidRule {
			t.Errorf("invalid: %s", f.Render())
		}
	}
	return b.String()
}

// TestNothingUntrue holds what is said about documents that cannot be read or decoded: what
// they may be is not missing, and a version that does not exist is not one that servers have.
func TestNothingUntrue(t *testing.T) {
	const good = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: a}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"a": "b"}}}'
`
	const binding = `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: a}
spec: {policyName: a}
`
	for name, text := range map[string]string{
		"a policy that is not decoded":  strings.Replace(good, "failurePolicy", "failurePolcy", 1) + binding,
		"a binding that is not decoded": good + strings.Replace(binding, "policyName", "polcyName", 1),
		"a policy that is not read":     strings.Replace(good, "spec:", "\tspec:", 1) + binding,
		"a version that does not exist": strings.ReplaceAll(good+binding, "k8s.io/v1", "k8s.io/v2"),
	} {
		r, err := Run(t.Context(), []Source{{"a.yaml", []byte(text)}}, Options{Oldest: 36, Newest: CurrentMinor})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Findings) == 0 {
			t.Errorf("%s: nothing is found", name)
		}
		for _, f := range r.Findings {
			if f.Rule != invalidRule {
				t.Errorf("%s: %s", name, f.Render())
			}
		}
	}
}

// TestDuplicateDirectories: directories may be for different clusters, files of one are applied together.
func TestDuplicateDirectories(t *testing.T) {
	const text = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: a}
spec: {policyName: a}
`
	for _, c := range []struct {
		files []string
		want  int
	}{{[]string{"dev/a.yaml", "prod/a.yaml"}, 0}, {[]string{"dev/a.yaml", "dev/b.yaml"}, 1}} {
		var sources []Source
		for _, name := range c.files {
			sources = append(sources, Source{name, []byte(text)})
		}
		r, err := Run(t.Context(), sources, Options{Oldest: CurrentMinor, Newest: CurrentMinor, Only: []string{"duplicate"}})
		if err != nil || len(r.Findings) != c.want {
			t.Errorf("%v: %v, %v", c.files, r.Findings, err)
		}
	}
}

// TestQuietOnExamples holds all rules against the examples.
func TestQuietOnExamples(t *testing.T) {
	var sources []Source
	files, err := filepath.Glob("../../examples/*/policy.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d examples: %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, Source{f, text})
	}
	for _, oldest := range []int{CurrentMinor, 36} {
		r, err := Run(t.Context(), sources, Options{Oldest: oldest, Newest: CurrentMinor})
		if err != nil {
			t.Fatal(err)
		}
		if r.Policies < len(files) {
			t.Fatalf("%d policies in %d files", r.Policies, len(files))
		}
		for _, f := range r.Findings {
			t.Errorf("1.%d: %s", oldest, f.Render())
		}
	}
}

// TestDocs holds docs/author/lint.md to the rules: its table, and a section for each.
func TestDocs(t *testing.T) {
	const page, begin, end = "../../docs/author/lint.md", "| Rule |", "\n\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| Rule | Severity | Fix | Finds |\n| --- | --- | --- | --- |\n")
	for _, r := range Rules() {
		fix := ""
		if r.Fixes {
			fix = "yes"
		}
		fmt.Fprintf(&want, "| [%s](#%s) | %s | %s | %s |\n", r.Name, r.Name, r.Severity, fix, r.Summary)
		if !strings.Contains(string(text), "\n### "+r.Name+"\n\n") {
			t.Errorf("no section ### %s", r.Name)
		}
	}
	before, rest, ok := strings.Cut(string(text), begin)
	if !ok {
		t.Fatal("no table")
	}
	table, after, _ := strings.Cut(begin+rest, end)
	if *update {
		if err := os.WriteFile(page, []byte(before+strings.TrimSuffix(want.String(), "\n")+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), table+"\n"); diff != "" {
		t.Errorf("run go test ./internal/lint -run TestDocs -update; -want +got\n%s", diff)
	}
	for line := range strings.Lines(string(text)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "### ")
		if ok && !slices.ContainsFunc(Rules(), func(r Rule) bool { return r.Name == name }) {
			t.Errorf("section %s is of no rule", name)
		}
	}
}

// TestBounded looks at policies whose parts multiply if rules follow them naively.
func TestBounded(t *testing.T) {
	head := `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: a}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  reinvocationPolicy: Never
`
	mutation := "  mutations:\n  - patchType: JSONPatch\n    jsonPatch:\n      expression: '%s'\n"
	var doubling strings.Builder
	doubling.WriteString("  variables:\n  - {name: v0, expression: \"has(object.metadata.labels) ? 'a/b' : 'c'\"}\n")
	for i := range 60 {
		fmt.Fprintf(&doubling, "  - {name: v%d, expression: \"variables.v%d == 'x' && variables.v%d != 'y' ? variables.v%d : variables.v%d\"}\n", i+1, i, i, i, i)
	}
	for name, text := range map[string]string{
		"variables that use others twice": head + doubling.String() + fmt.Sprintf(mutation, `[JSONPatch{op: "add", path: "/metadata/labels/" + variables.v60, value: "x"}]`),
		"a long condition": head + "  matchConditions:\n  - name: c\n    expression: '" + strings.TrimSuffix(strings.Repeat(`object.metadata.labels["a"] == "b" && `, 400), " && ") + "'\n" +
			fmt.Sprintf(mutation, `[JSONPatch{op: "remove", path: "/metadata/labels/a"}]`),
		"many operations": head + fmt.Sprintf(mutation, "["+strings.TrimSuffix(strings.Repeat(`JSONPatch{op: "add", path: "/metadata/labels", value: null},`, 800), ",")+"]"),
		"nested choices":  head + fmt.Sprintf(mutation, strings.Repeat(`has(object.spec.nodeName) ? [] : (`, 60)+`[JSONPatch{op: "add", path: "/spec/nodeName", value: "x"}]`+strings.Repeat(")", 60)),
		"many mutations":  head + "  mutations:\n" + strings.Repeat("  - {patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{spec: Object.spec{nodeName: object.spec.hostname}}'}}\n", 500),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), []Source{{"a.yaml", []byte(text)}}, Options{Oldest: CurrentMinor, Newest: CurrentMinor})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Findings {
				if f.Rule == invalidRule {
					t.Error(f.Render()[:200])
				}
			}
			if r.Policies != 1 || len(r.Findings) > maxOfPolicy+1 {
				t.Errorf("%d policies, %d findings", r.Policies, len(r.Findings))
			}
		})
	}
}

// mendable is a policy with one thing to mend.
func mendable(name string) string {
	return fmt.Sprintf(`---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %s}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  variables:
  - {name: unused, expression: "1"}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/spec/nodeName"}]'}
`, name)
}

// Fix mends all documents of a file, however many there are, but for two that are the same.
func TestFixMany(t *testing.T) {
	text := mendable("twice")
	for i := range 51 {
		text += mendable(fmt.Sprintf("p%d", i))
	}
	text += mendable("twice")
	fixed, err := Fix(t.Context(), []Source{{Name: "p.yaml", Data: []byte(text)}}, Options{Oldest: CurrentMinor, Newest: CurrentMinor, Only: []string{"unused-variable"}, Prove: accept})
	if err != nil {
		t.Fatal(err)
	}
	if len(fixed) != 1 || len(fixed[0].Mended) != 51 || strings.Count(string(fixed[0].Data), "unused") != 2 {
		t.Fatalf("not all are mended: %d files", len(fixed))
	}
	for i, f := range fixed[0].Mended {
		if want := fmt.Sprintf("MutatingAdmissionPolicy p%d", i); f.Object != want {
			t.Errorf("%d: %s, want %s", i, f.Object, want)
		}
	}
}

// A fix that makes a policy invalid is not made, and keeps no other from being made.
func TestFixHarmful(t *testing.T) {
	files := []Source{{Name: "p.yaml", Data: []byte(mendable("a") + mendable("b") + mendable("c"))}}
	m := mender{ctx: t.Context(), opts: Options{Oldest: CurrentMinor, Newest: CurrentMinor, Only: []string{"invalid", "unused-variable"}, Prove: accept},
		files: files, mended: make([][]Finding, 1), failed: map[fixID]string{}, fixes: map[docID]int{}}
	var err error
	if m.before, err = Run(m.ctx, files, m.opts); err != nil {
		t.Fatal(err)
	}
	batch := m.next()
	if len(batch) != 3 {
		t.Fatalf("%d fixes, want 3", len(batch))
	}
	batch[1].fix = func(object map[string]any) bool { object["spec"] = map[string]any{}; return true }
	if err := m.try(batch); err != nil {
		t.Fatal(err)
	}
	if len(m.mended[0]) != 2 || m.failed[batch[1].fixID()] == "" || !strings.Contains(string(m.files[0].Data), mendable("b")) {
		t.Errorf("mended %d, failed %v:\n%s", len(m.mended[0]), m.failed, m.files[0].Data)
	}
	if left := m.next(); len(left) != 0 {
		t.Errorf("left to try: %v", left)
	}
}
