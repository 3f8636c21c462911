// The examples as tests: each gives what its want.yaml says, gives it again when
// it runs on its own result, is not disturbed by the other examples, and gives
// the same in Kubernetes.

package examples_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/oracle"
)

var update = flag.Bool("update", false, "rewrite want.yaml")

// mapd is the program under test.
var mapd string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "examples")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	mapd = filepath.Join(dir, "mapd")
	build := exec.Command("go", "build", "-o", mapd, "../cmd/mapd")
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = m.Run()
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// names lists the examples.
func names(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*/policy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	var all []string
	for _, f := range files {
		all = append(all, filepath.Dir(f))
	}
	return all
}

func eval(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(mapd, append([]string{"eval"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args[1:], err, &stderr)
	}
	return stdout.String()
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestExamples(t *testing.T) {
	var together []string
	for _, name := range names(t) {
		together = append(together, "-p", filepath.Join(name, "policy.yaml"))
	}
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			policy, objects, want := filepath.Join(name, "policy.yaml"), filepath.Join(name, "objects.yaml"), filepath.Join(name, "want.yaml")
			got := eval(t, "-p", policy, "-f", objects)
			if *update {
				if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			wanted := read(t, want)
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Errorf("-want.yaml +got\n%s", diff)
			}
			if diff := cmp.Diff(wanted, eval(t, "-p", policy, "-f", want)); diff != "" {
				t.Errorf("a second run changes its result: -want.yaml +got\n%s", diff)
			}
			if diff := cmp.Diff(wanted, eval(t, append(together, "-f", objects)...)); diff != "" {
				t.Errorf("with the policies of all examples: -want.yaml +got\n%s", diff)
			}
			if wanted == read(t, objects) {
				t.Error("the example changes nothing")
			}
		})
	}
}

// TestKubernetes runs the examples in the dispatcher of an API server.
func TestKubernetes(t *testing.T) {
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			objects, want := split(read(t, name, "objects.yaml")), split(read(t, name, "want.yaml"))
			if len(objects) != len(want) {
				t.Fatalf("%d objects become %d", len(objects), len(want))
			}
			for i, object := range objects {
				c := asCase(t, read(t, name, "policy.yaml"), object)
				got, err := oracle.Run(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if got.Panic != nil || got.Status != nil {
					t.Fatalf("%s\npanic: %v, status: %v", object, got.Panic, got.Status)
				}
				wanted, err := cases.Normal(parse(t, want[i]), c.CRDs)
				if err != nil {
					t.Fatal(err)
				}
				if !cases.Same(wanted, got.Object) {
					t.Errorf("-want.yaml +Kubernetes\n%s", cmp.Diff(wanted, got.Object))
				}
			}
		})
	}
}

// asCase writes an example as a case of the corpus.
func asCase(t *testing.T, policies, object string) *cases.Case {
	t.Helper()
	obj := parse(t, object)
	sections := map[string][]string{
		// Without this one, every namespace has the same labels.
		"namespaces.yaml": {},
		"request.yaml":    {"operation: CREATE\nobject:\n" + indent(object)},
	}
	known := false
	for _, doc := range split(policies) {
		section := "params.yaml"
		switch u := parse(t, doc); u.GetKind() {
		case "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
			section = "policies.yaml"
		case "CustomResourceDefinition":
			section = "crds.yaml"
		case "Namespace":
			section = "namespaces.yaml"
			known = known || u.GetName() == obj.GetNamespace()
		}
		sections[section] = append(sections[section], doc)
	}
	if !known {
		sections["namespaces.yaml"] = append(sections["namespaces.yaml"],
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: "+obj.GetNamespace()+"}\n")
	}
	archive := &txtar.Archive{Comment: []byte("§1.2: An example.\n")}
	for _, section := range []string{"policies.yaml", "params.yaml", "namespaces.yaml", "crds.yaml", "request.yaml"} {
		if docs := sections[section]; len(docs) > 0 {
			archive.Files = append(archive.Files, txtar.File{Name: section, Data: []byte(strings.Join(docs, "---\n"))})
		}
	}
	c, err := cases.Parse(obj.GetName(), txtar.Format(archive))
	if err != nil {
		t.Fatalf("%v\n%s", err, txtar.Format(archive))
	}
	return c
}

var separator = regexp.MustCompile(`(?m)^---\n`)

func split(stream string) []string { return separator.Split(stream, -1) }

func parse(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSONStrict([]byte(doc))
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	return u
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}

// TestReadme: the list is complete, and every policy says in two lines what it
// is for.
func TestReadme(t *testing.T) {
	readme := read(t, "README.md")
	header := regexp.MustCompile(`^# \S.*\n# \S.*\napiVersion:`)
	listed := 0
	for _, name := range names(t) {
		if !strings.Contains(readme, "]("+name+"/)") {
			t.Errorf("README.md does not mention %s", name)
		} else {
			listed++
		}
		if !header.MatchString(read(t, name, "policy.yaml")) {
			t.Errorf("%s/policy.yaml does not begin with two lines of comment", name)
		}
	}
	if links := strings.Count(readme, "/)"); links != listed {
		t.Errorf("README.md has %d links for %d examples", links, listed)
	}
}
