// The import floors of mapd as a test. docs/reference/architecture.md says why each floor
// is where it is. Only what packages import is checked; tests may reach
// further, because the oracle has to.

package mapd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/mapd-project/mapd/"

// floors lists the public packages from the ground up and, for each, the mapd
// packages it may import directly.
var floors = []struct {
	pkg string
	may []string
}{
	{"pkg/tree", nil},
	{"pkg/api", nil},
	{"pkg/memory", nil},
	{"pkg/cel/quick", nil},
	{"pkg/cel/layout", nil},
	{"pkg/quantity", nil},
	{"pkg/cel", []string{"pkg/api", "pkg/cel/layout", "pkg/cel/quick", "pkg/memory", "pkg/quantity"}},
	{"pkg/openapi", []string{"pkg/api", "pkg/openapi/internal/compact", "pkg/quantity", "pkg/tree"}},
	{"pkg/policy/draft", []string{"pkg/openapi", "pkg/tree"}},
	{"pkg/policy/patch", []string{"pkg/cel", "pkg/openapi", "pkg/policy/draft", "pkg/tree"}},
	{"pkg/policy/merge", []string{"pkg/openapi", "pkg/policy/draft", "pkg/tree"}},
	{"pkg/policy", []string{"pkg/api", "pkg/cel", "pkg/lookup", "pkg/memory", "pkg/openapi", "pkg/policy/draft", "pkg/policy/merge", "pkg/policy/patch"}},
	{"pkg/lookup", nil},
	{"pkg/servingcert", nil},
	{"pkg/binding", []string{"pkg/api", "pkg/policy", "pkg/lookup", "pkg/tree"}},
	{"pkg/engine", []string{"pkg/api", "pkg/policy", "pkg/binding", "pkg/lookup", "pkg/memory", "pkg/tree"}},
	{"pkg/explain", []string{"pkg/api", "pkg/binding", "pkg/cel", "pkg/engine", "pkg/lookup", "pkg/openapi", "pkg/policy", "pkg/tree"}},
	{"pkg/kubewarden", []string{"pkg/api", "pkg/binding", "pkg/policy"}},
	{"pkg/webhook", []string{"pkg/api", "pkg/policy", "pkg/engine", "pkg/memory", "pkg/tree"}},
	{"pkg/mapd", []string{
		"pkg/api", "pkg/binding", "pkg/cel", "pkg/explain", "pkg/legacy", "pkg/openapi", "pkg/policy", "pkg/engine", "pkg/kubewarden", "pkg/tree",
		"internal/document/manifest", "internal/policyset", "internal/output/report", "internal/apiserver/defaulting",
	}},
	// Beside the tower: what it knows of Gatekeeper leaves as policies.
	{"pkg/legacy", []string{"pkg/api", "pkg/lookup", "pkg/tree"}},
	{"pkg/legacy/direct", []string{"pkg/legacy", "pkg/tree"}},
	{"pkg/legacy/expand", []string{"pkg/legacy"}},
	{"pkg/legacy/translate", []string{"pkg/api", "pkg/cel/layout", "pkg/legacy", "pkg/openapi"}},
}

// doors names, for a large dependency, the packages that may import it.
var doors = map[string][]string{
	"github.com/google/cel-go/":             {"pkg/cel"},
	"sigs.k8s.io/structured-merge-diff/":    {"pkg/policy", "pkg/openapi"},
	"github.com/prometheus/":                {"pkg/webhook"},
	"github.com/evanphx/json-patch":         nil,
	"gopkg.in/evanphx/json-patch.v4":        nil,
	"go.opentelemetry.io/":                  {"internal/cluster/telemetry"},
	"github.com/go-logr/":                   {"internal/cluster/telemetry"},
	"k8s.io/client-go/":                     {"internal/cluster/watch", "internal/cluster/store", "internal/cluster/controllers", "internal/cluster/certs", "internal/operate/install", "internal/operate/doctor", "internal/operate/supportbundle", "internal/operate/promote", "internal/operate/replicas", "internal/operate/audit", "cmd/mapd"},
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
	"k8s.io/kubernetes/":                    nil,
	"github.com/rogpeppe/go-internal/":      nil,
	"k8s.io/apiserver/pkg/admission/plugin": {"pkg/engine", "internal/apiserver/validating"},
	"k8s.io/pod-security-admission/":        {"internal/apiserver/validating"},
	// An API server's feature gates, and with them its metrics and Prometheus.
	"k8s.io/component-base/":               nil,
	"oras.land/oras-go/":                   {"internal/kubewarden/download"},
	"sigs.k8s.io/kustomize/":               {"internal/document/kustomize"},
	"github.com/opencontainers/":           {"internal/kubewarden/download"},
	"k8s.io/apiserver/pkg/cel/environment": {"internal/apiserver/validating"},
	// A template calls methods by their name, so the linker keeps every method of
	// every type: half as much program again.
	"text/template": nil,
	"html/template": nil,
}

// front is the one public package that puts rooms of internal/ to use, those of its
// floor. It must not show their types.
const front = "pkg/mapd"

func TestFrontShowsNoInternalTypes(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "doc", "-all", "./"+front).CombinedOutput()
	if err != nil {
		t.Fatalf("go doc: %v\n%s", err, out)
	}
	var rooms []string
	for _, imp := range list(t, "Imports", front) {
		if room, ok := strings.CutPrefix(imp, module+"internal/"); ok {
			rooms = append(rooms, room)
		}
	}
	_, api, _ := strings.Cut(string(out), "\nCONSTANTS\n") // after the package's comment
	if len(rooms) == 0 || api == "" {
		t.Fatalf("rooms %v, API %q", rooms, api)
	}
	for line := range strings.Lines(api) {
		code, _, _ := strings.Cut(line, "//")
		for _, room := range rooms {
			if !strings.HasPrefix(line, "    ") && strings.Contains(code, room+".") {
				t.Errorf("shows internal/%s: %s", room, line)
			}
		}
	}
}

func TestFloors(t *testing.T) {
	for _, f := range floors {
		t.Run(f.pkg, func(t *testing.T) {
			imports := list(t, "Imports", f.pkg)
			for _, imp := range imports {
				if local, ok := strings.CutPrefix(imp, module); ok && !slices.Contains(f.may, local) {
					t.Errorf("imports %s; allowed: %v", local, f.may)
				}
			}
			for _, local := range f.may {
				if !slices.Contains(imports, module+local) {
					t.Errorf("may import %s and does not: take the permission away", local)
				}
			}
			for _, dep := range list(t, "Deps", f.pkg) {
				if strings.HasPrefix(dep, "k8s.io/client-go/") {
					t.Errorf("depends on %s; pkg/ must not know a cluster client", dep)
				}
			}
		})
	}
}

// Every public package stands on a floor; a new one has to be given a place.
func TestEveryPackageHasAFloor(t *testing.T) {
	for _, pkg := range packages(t) {
		top, _, _ := strings.Cut(strings.TrimPrefix(pkg, "pkg/"), "/")
		if !strings.HasPrefix(pkg, "pkg/") || strings.Contains(pkg, "/internal/") {
			continue
		}
		if !slices.ContainsFunc(floors, func(f struct {
			pkg string
			may []string
		}) bool {
			return f.pkg == "pkg/"+top
		}) {
			t.Errorf("%s stands on no floor: add it to floors, and to docs/reference/architecture.md why", pkg)
		}
	}
}

func TestDoors(t *testing.T) {
	for _, pkg := range packages(t) {
		if strings.HasPrefix(pkg, "test/") {
			continue // the oracle is made of upstream
		}
		for _, imp := range list(t, "Imports", pkg) {
			for dep, may := range doors {
				if strings.HasPrefix(imp, dep) && !slices.ContainsFunc(may, func(m string) bool {
					return pkg == m || strings.HasPrefix(pkg, m+"/")
				}) {
					t.Errorf("%s imports %s; only %v may", pkg, imp, may)
				}
			}
			local, ok := strings.CutPrefix(imp, module)
			if !ok {
				continue
			}
			if strings.HasPrefix(pkg, "pkg/") && pkg != front && strings.HasPrefix(local, "internal/") {
				t.Errorf("%s imports %s; of pkg/ only %s may import internal/", pkg, local, front)
			}
			if strings.HasPrefix(local, "cmd/") || strings.HasPrefix(local, "test/") {
				t.Errorf("%s imports %s; nothing imports cmd/ or test/", pkg, local)
			}
			if strings.HasPrefix(local, "web") && !strings.HasPrefix(pkg, "web/") && pkg != "hack/gallery" {
				t.Errorf("%s imports %s; nothing but the site's builder imports web/", pkg, local)
			}
			if pkg == "internal/author/playground" {
				t.Errorf("%s imports %s; it serves files, and what they do is decided elsewhere", pkg, local)
			}
		}
	}
}

// packages lists the module's packages as paths below its root.
func packages(t *testing.T) []string {
	t.Helper()
	var pkgs []string
	for _, p := range goList(t, "{{.ImportPath}}", "./...") {
		if local, ok := strings.CutPrefix(p, module); ok {
			pkgs = append(pkgs, local)
		}
	}
	return pkgs
}

func list(t *testing.T, field, pkg string) []string {
	t.Helper()
	return goList(t, `{{join .`+field+` "\n"}}`, "./"+pkg)
}

func goList(t *testing.T, format, pattern string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", format, pattern)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", pattern, err, stderr.String())
	}
	return strings.Fields(string(out))
}

// go doc shows what a package is for by an example that runs.
func TestEveryPublicPackageHasAnExample(t *testing.T) {
	for _, f := range floors {
		files := list(t, "TestGoFiles", f.pkg)
		files = append(files, list(t, "XTestGoFiles", f.pkg)...)
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(filepath.Join(f.pkg, file))
			if err != nil {
				t.Fatal(err)
			}
			_, example, ok := strings.Cut(string(text), "\nfunc Example")
			return ok && strings.Contains(example, "\t// Output:")
		}) {
			t.Errorf("%s has no Example with an output", f.pkg)
		}
	}
}
