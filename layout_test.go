// The layers of mapd as a test; docs/reference/architecture.md draws them and says why. Only
// what packages import is checked; tests may import more, because the oracle is made of
// upstream.

package mapd_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/mapd-project/mapd/"

// layer is a package or a group of packages, and what else of this module it may import.
type layer struct {
	path string
	may  []string
}

// library lists the packages of pkg from the ground up.
var library = []layer{
	{"pkg/tree", nil},
	{"pkg/api", nil},
	{"pkg/memory", nil},
	{"pkg/cel/quick", nil},
	{"pkg/cel/layout", nil},
	{"pkg/quantity", nil},
	{"pkg/cel/syntax", []string{"pkg/api", "pkg/cel/layout"}},
	{"pkg/cel", []string{"pkg/api", "pkg/cel/quick", "pkg/cel/syntax", "pkg/memory", "pkg/quantity"}},
	{"pkg/openapi", []string{"pkg/api", "pkg/openapi/internal/compact", "pkg/openapi/smd", "pkg/quantity", "pkg/tree"}},
	{"pkg/policy/draft", []string{"pkg/openapi", "pkg/tree"}},
	{"pkg/policy/patch", []string{"pkg/cel", "pkg/openapi", "pkg/policy/draft", "pkg/tree"}},
	{"pkg/policy/merge", []string{"pkg/openapi", "pkg/openapi/smd", "pkg/policy/draft", "pkg/tree"}},
	{"pkg/policy", []string{"pkg/api", "pkg/cel", "pkg/cel/syntax", "pkg/lookup", "pkg/memory", "pkg/openapi", "pkg/openapi/smd", "pkg/policy/draft", "pkg/policy/merge", "pkg/policy/patch"}},
	{"pkg/lookup", nil},
	{"pkg/servingcert", nil},
	{"pkg/binding", []string{"pkg/api", "pkg/policy", "pkg/lookup", "pkg/tree"}},
	{"pkg/engine", []string{"pkg/api", "pkg/policy", "pkg/binding", "pkg/lookup", "pkg/memory", "pkg/tree"}},
	{"pkg/explain", []string{"pkg/api", "pkg/binding", "pkg/cel", "pkg/engine", "pkg/lookup", "pkg/openapi", "pkg/policy", "pkg/tree"}},
	{"pkg/kubewarden", []string{"pkg/api", "pkg/binding", "pkg/policy"}},
	{"pkg/webhook", []string{"pkg/api", "pkg/policy", "pkg/engine", "pkg/memory", "pkg/tree"}},
	{"pkg/mapd", []string{
		"pkg/api", "pkg/binding", "pkg/cel", "pkg/explain", "pkg/legacy", "pkg/openapi", "pkg/policy", "pkg/engine", "pkg/kubewarden", "pkg/tree",
		"internal/document/manifest", "internal/policyset", "internal/output/report", "internal/apiserver/defaulting", "internal/words",
	}},
	{"pkg/legacy", []string{"pkg/api", "pkg/lookup", "pkg/tree"}},
	{"pkg/legacy/direct", []string{"pkg/legacy", "pkg/tree"}},
	{"pkg/legacy/expand", []string{"pkg/legacy"}},
}

// groups lists the groups of internal from the ground up and, for each, the groups that its
// packages may import, besides their own group and the library below pkg/mapd.
var groups = []layer{
	{"internal/detach", nil},
	{"internal/parallel", nil},
	{"internal/words", nil},
	{"internal/atomicfile", nil},
	{"internal/httpsclient", nil},
	{"internal/breaker", nil},
	{"internal/document", nil},
	{"internal/output", []string{"internal/document", "internal/words"}},
	{"internal/apiserver", []string{"internal/detach", "internal/document", "internal/parallel"}},
	{"internal/celgen", nil},
	{"internal/gatekeeper", []string{"internal/celgen"}},
	{"internal/kyverno", []string{"internal/celgen", "internal/document"}},
	{"internal/policyset", []string{"internal/apiserver", "internal/breaker", "internal/document", "internal/gatekeeper", "internal/kyverno", "internal/parallel"}},
	{"internal/kubewarden", []string{"internal/atomicfile", "internal/detach", "internal/httpsclient", "internal/words"}},
	{"internal/externaldata", []string{"internal/httpsclient", "internal/words"}},
	{"internal/workloads", []string{"internal/apiserver", "internal/document", "internal/policyset", "internal/words"}},
	{"internal/lint", []string{"internal/apiserver", "internal/document", "internal/kyverno", "internal/policyset", "internal/words"}},
	{"internal/author", []string{
		"internal/apiserver", "internal/atomicfile", "internal/celgen", "internal/document", "internal/externaldata", "internal/gatekeeper", "internal/kyverno", "internal/lint", "internal/output", "internal/parallel",
		"internal/policyset", "internal/words", "pkg/mapd",
	}},
	{"internal/cluster", []string{
		"internal/apiserver", "internal/breaker", "internal/detach", "internal/externaldata", "internal/gatekeeper", "internal/lint",
		"internal/output", "internal/parallel", "internal/policyset", "internal/words", "internal/workloads",
	}},
	{"internal/operate", []string{
		"internal/atomicfile", "internal/author", "internal/breaker", "internal/celgen", "internal/cluster", "internal/document", "internal/gatekeeper", "internal/httpsclient", "internal/kyverno", "internal/lint",
		"internal/output", "internal/parallel", "internal/policyset", "internal/words", "pkg/mapd",
	}},
}

// dependencies names, for a large dependency, the packages that may import it.
var dependencies = map[string][]string{
	"github.com/google/cel-go/":             {"pkg/cel"},
	"sigs.k8s.io/structured-merge-diff/":    {"pkg/openapi/smd"},
	"github.com/prometheus/":                {"internal/cluster/metrics", "pkg/webhook"},
	"github.com/evanphx/json-patch":         nil,
	"gopkg.in/evanphx/json-patch.v4":        nil,
	"go.opentelemetry.io/":                  {"internal/cluster/telemetry"},
	"github.com/go-logr/":                   {"internal/cluster/telemetry"},
	"k8s.io/client-go/":                     {"internal/cluster", "internal/operate", "cmd/mapd"},
	"github.com/spf13/cobra":                {"cmd/mapd"},
	"github.com/klauspost/compress/":        {"pkg/openapi"},
	"github.com/go-json-experiment/":        {"pkg/webhook"},
	"github.com/KimMachineGun/":             {"cmd/mapd"},
	"github.com/tetratelabs/wazero":         {"internal/kubewarden/wapc"},
	"golang.org/x/perf/":                    nil,
	"k8s.io/apiextensions-apiserver/":       {"pkg/openapi"},
	"go.yaml.in/yaml/":                      {"internal/document/manifest"},
	"github.com/fsnotify/fsnotify":          {"internal/document/manifest"},
	"github.com/sourcegraph/jsonrpc2":       {"internal/author/lsp"},
	"github.com/kyverno/go-jmespath":        {"internal/kyverno/convert", "internal/kyverno/interpret"},
	"k8s.io/kubernetes/":                    nil,
	"github.com/rogpeppe/go-internal/":      nil,
	"k8s.io/apiserver/pkg/admission/plugin": {"pkg/engine", "internal/apiserver/validating"},
	"k8s.io/pod-security-admission/":        {"internal/apiserver/validating"},
	// An API server's feature gates, and with them its metrics and Prometheus.
	"k8s.io/component-base/":               nil,
	"oras.land/oras-go/":                   {"internal/kubewarden/download"},
	"sigs.k8s.io/kustomize/":               {"internal/document/kustomize"},
	"github.com/opencontainers/":           {"hack/release", "internal/kubewarden/download"},
	"k8s.io/apiserver/pkg/cel/environment": {"internal/apiserver/validating"},
	// A template calls methods by their name, so the linker keeps every method of
	// every type: half as much program again.
	"text/template": nil,
	"html/template": nil,
}

// entrance is the one public package that uses packages of internal. It must not show their
// types.
const entrance = "pkg/mapd"

// pack is what the Go command says of a package, its own paths below the module's root.
type pack struct {
	ImportPath                string
	Imports, Deps             []string
	TestGoFiles, XTestGoFiles []string
}

// listed are the packages of the module, by their path below its root.
var listed = sync.OnceValues(func() (map[string]*pack, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,TestGoFiles,XTestGoFiles", "./...")
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	all := map[string]*pack{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := &pack{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[strings.TrimPrefix(p.ImportPath, module)] = p
	}
})

func packages(t *testing.T) map[string]*pack {
	t.Helper()
	all, err := listed()
	if err != nil || len(all) < 50 {
		t.Fatalf("%d packages, %v", len(all), err)
	}
	return all
}

// local returns the packages of this module among imports.
func local(imports []string) []string {
	var out []string
	for _, imp := range imports {
		if path, ok := strings.CutPrefix(imp, module); ok {
			out = append(out, path)
		}
	}
	return out
}

// The public packages import what the table says, all that it says, and no cluster client.
func TestLibrary(t *testing.T) {
	all := packages(t)
	for _, l := range library {
		p := all[l.path]
		if p == nil {
			t.Errorf("%s is in the table and does not exist", l.path)
			continue
		}
		imports := local(p.Imports)
		for _, imp := range imports {
			if !slices.Contains(l.may, imp) {
				t.Errorf("%s imports %s; allowed: %v", l.path, imp, l.may)
			}
		}
		for _, may := range l.may {
			if !slices.Contains(imports, may) {
				t.Errorf("%s may import %s, and does not", l.path, may)
			}
		}
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, "k8s.io/client-go/") {
				t.Errorf("%s depends on %s; pkg must not know a cluster client", l.path, dep)
			}
		}
	}
	for path := range all {
		top, _, _ := strings.Cut(strings.TrimPrefix(path, "pkg/"), "/")
		if strings.HasPrefix(path, "pkg/") && !strings.Contains(path, "/internal/") &&
			!slices.ContainsFunc(library, func(l layer) bool { return l.path == "pkg/"+top }) {
			t.Errorf("%s has no row: add it, and say why in docs/reference/architecture.md", path)
		}
	}
}

// groupOf returns the group of a package of internal, or pkg/mapd itself; "" for others.
func groupOf(path string) string {
	if path == entrance {
		return path
	}
	group, ok := strings.CutPrefix(path, "internal/")
	if !ok {
		return ""
	}
	group, _, _ = strings.Cut(group, "/")
	return "internal/" + group
}

// The groups of internal import what the table says, and all that it says.
func TestGroups(t *testing.T) {
	used := map[string]map[string]string{} // group → group → a package that imports it
	for path, p := range packages(t) {
		from := groupOf(path)
		if from == "" || from == entrance {
			continue
		}
		if used[from] == nil {
			used[from] = map[string]string{}
		}
		for _, imp := range local(p.Imports) {
			if to := groupOf(imp); to != "" && to != from {
				used[from][to] = path + " imports " + imp
			}
		}
	}
	for i, l := range groups {
		if used[l.path] == nil {
			t.Errorf("%s is in the table and does not exist", l.path)
		}
		for to, example := range used[l.path] {
			if !slices.Contains(l.may, to) {
				t.Errorf("%s; allowed: %v", example, l.may)
			}
		}
		for _, may := range l.may {
			if used[l.path][may] == "" {
				t.Errorf("%s may import %s, and does not", l.path, may)
			}
			if may != entrance && !slices.ContainsFunc(groups[:i], func(below layer) bool { return below.path == may }) {
				t.Errorf("%s may import %s, which is not below it", l.path, may)
			}
		}
		delete(used, l.path)
	}
	for group := range used {
		t.Errorf("%s has no row: add it, and say why in docs/reference/architecture.md", group)
	}
}

// Large dependencies are imported by the packages of the table, and by each of them.
func TestDependencies(t *testing.T) {
	importers := map[string][]string{}
	for path, p := range packages(t) {
		if strings.HasPrefix(path, "test/") {
			continue // the oracle is made of upstream
		}
		for _, imp := range p.Imports {
			for dep, may := range dependencies {
				if !strings.HasPrefix(imp, dep) {
					continue
				}
				i := slices.IndexFunc(may, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") })
				if i < 0 {
					t.Errorf("%s imports %s; only %v may", path, imp, may)
					continue
				}
				importers[dep] = append(importers[dep], may[i])
			}
			to, ok := strings.CutPrefix(imp, module)
			if !ok {
				continue
			}
			if strings.HasPrefix(path, "pkg/") && path != entrance && strings.HasPrefix(to, "internal/") {
				t.Errorf("%s imports %s; of pkg only %s may import internal", path, to, entrance)
			}
			if strings.HasPrefix(to, "cmd/") || strings.HasPrefix(to, "test/") {
				t.Errorf("%s imports %s; nothing imports cmd or test", path, to)
			}
			if strings.HasPrefix(to, "web") && !strings.HasPrefix(path, "web/") && path != "hack/gallery" {
				t.Errorf("%s imports %s; nothing but the site's builder imports web", path, to)
			}
			if path == "internal/author/playground" {
				t.Errorf("%s imports %s; it serves files, and what they do is decided elsewhere", path, to)
			}
		}
	}
	for dep, may := range dependencies {
		for _, m := range may {
			if !slices.Contains(importers[dep], m) {
				t.Errorf("%s may import %s, and does not", m, dep)
			}
		}
	}
}

// The program for clusters, which the tag server makes, links nothing that only people use at
// their desks.
func TestServerLinks(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-tags", "server", "-deps", "./cmd/mapd").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	for _, has := range []string{module + "pkg/webhook", module + "internal/cluster/store", module + "internal/operate/audit"} {
		if !slices.Contains(deps, has) {
			t.Errorf("the server does not link %s", has)
		}
	}
	for _, dep := range deps {
		for _, not := range []string{"sigs.k8s.io/kustomize/", "github.com/sourcegraph/jsonrpc2", module + "internal/author/playground", module + "internal/author/lsp", module + "internal/author/suite", module + "internal/kyverno/interpret"} {
			if dep == strings.TrimSuffix(not, "/") || strings.HasPrefix(dep, not) {
				t.Errorf("the server links %s", dep)
			}
		}
	}
}

func TestEntranceShowsNoInternalTypes(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "doc", "-all", "./"+entrance).CombinedOutput()
	if err != nil {
		t.Fatalf("go doc: %v\n%s", err, out)
	}
	var names []string
	for _, imp := range local(packages(t)[entrance].Imports) {
		if strings.HasPrefix(imp, "internal/") {
			names = append(names, filepath.Base(imp))
		}
	}
	_, api, _ := strings.Cut(string(out), "\nCONSTANTS\n") // after the package's comment
	if len(names) == 0 || api == "" {
		t.Fatalf("packages %v, API %q", names, api)
	}
	for line := range strings.Lines(api) {
		code, _, _ := strings.Cut(line, "//")
		for _, name := range names {
			if !strings.HasPrefix(line, "    ") && strings.Contains(code, name+".") {
				t.Errorf("shows a type of %s: %s", name, line)
			}
		}
	}
}

// go doc shows what a package is for by an example that runs.
func TestEveryPublicPackageHasAnExample(t *testing.T) {
	for _, l := range library {
		p := packages(t)[l.path]
		if p == nil || !slices.ContainsFunc(slices.Concat(p.TestGoFiles, p.XTestGoFiles), func(file string) bool {
			text, err := os.ReadFile(filepath.Join(l.path, file))
			if err != nil {
				t.Fatal(err)
			}
			_, example, ok := strings.Cut(string(text), "\nfunc Example")
			return ok && strings.Contains(example, "\t// Output:")
		}) {
			t.Errorf("%s has no Example with an output", l.path)
		}
	}
}
