package main

// The examples as tests: the suites beside them pass, and they give the same in
// Kubernetes. And the README: what it shows is what is printed.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/apiserver/defaulting"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/hammer"
	"github.com/mapd-project/mapd/test/oracle"
)

const examples = "../../examples"

// exampleNames lists the examples.
func exampleNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(examples, "*", "policy.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	var all []string
	for _, f := range files {
		all = append(all, filepath.Base(filepath.Dir(f)))
	}
	return all
}

// printed runs mapd and returns its standard output.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(args, nil, &stdout, &stderr); code != 0 {
		t.Fatalf("mapd %s: exit code %d\n%s", strings.Join(args, " "), code, &stderr)
	}
	return stdout.String()
}

func readFile(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The suites of the examples pass. There is one for each, one with all policies, which
// passes in every order of the policies, and those of the programs.
func TestExamples(t *testing.T) {
	hammer.Alone(t)
	names := exampleNames(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const program = examples + "/kubewarden/drop-capabilities"
	module := filepath.Join(t.TempDir(), "drop.wasm")
	build := exec.Command("go", "build", "-C", program+"/guest", "-buildmode=c-shared", "-trimpath", "-ldflags=-s", "-o", module, ".")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	out := printed(t, "test", "--module", "ghcr.io/example/drop-capabilities:v1="+module, examples+"/...")
	printed(t, "test", examples+"/mapd-test.yaml", "--orders")
	if want := fmt.Sprintf("%d suites: ", len(names)+3); !strings.Contains(out, want) {
		t.Errorf("want %s; make test prints\n%s", want, out)
	}
	together := readFile(t, examples, "mapd-test.yaml")
	for _, name := range names {
		if readFile(t, examples, name, "want.yaml") == readFile(t, examples, name, "objects.yaml") {
			t.Errorf("%s changes nothing", name)
		}
		if !strings.Contains(together, "  objects: "+name+"/objects.yaml\n  expect: {objects: "+name+"/want.yaml}\n") {
			t.Errorf("%s is not in the suite of all examples", name)
		}
	}
}

// TestExamplesInKubernetes runs the examples in the dispatcher of an API server.
func TestExamplesInKubernetes(t *testing.T) {
	hammer.Alone(t)
	for _, name := range exampleNames(t) {
		t.Run(name, func(t *testing.T) {
			objects, want := splitStream(readFile(t, examples, name, "objects.yaml")), splitStream(readFile(t, examples, name, "want.yaml"))
			if len(objects) != len(want) {
				t.Fatalf("%d objects become %d", len(objects), len(want))
			}
			for i, object := range objects {
				c := asCase(t, readFile(t, examples, name, "policy.yaml"), object)
				got, err := oracle.Run(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if got.Panic != nil || got.Status != nil {
					t.Fatalf("%s\npanic: %v, status: %v", object, got.Panic, got.Status)
				}
				wanted, err := cases.Normal(defaulted(parseObject(t, want[i])), c.CRDs)
				if err != nil {
					t.Fatal(err)
				}
				// The dispatcher in process fills in nothing between mutations; a
				// server does so at the latest when it stores the result.
				stored := defaulted(got.Object)
				if !cases.Same(wanted, stored) {
					t.Errorf("-want.yaml +Kubernetes\n%s", cmp.Diff(wanted, stored))
				}
			}
		})
	}
}

// asCase writes an example as a case of the corpus.
func asCase(t *testing.T, policies, object string) *cases.Case {
	t.Helper()
	obj := defaulted(parseObject(t, object))
	asSent, err := json.Marshal(obj.Object)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string][]string{
		// Without this one, every namespace has the same labels.
		"namespaces.yaml": {},
		"request.yaml":    {"operation: CREATE\nobject: " + string(asSent) + "\n"},
	}
	known := false
	for _, doc := range splitStream(policies) {
		section := "params.yaml"
		switch u := parseObject(t, doc); u.GetKind() {
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
	if name := obj.GetNamespace(); !known && name != "" {
		sections["namespaces.yaml"] = append(sections["namespaces.yaml"], // with the label that a server gives it
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+", labels: {kubernetes.io/metadata.name: "+name+"}}\n")
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

func splitStream(stream string) []string { return separator.Split(stream, -1) }

func parseObject(t *testing.T, doc string) *unstructured.Unstructured {
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

// defaulted is an object as a server has it when admission begins.
func defaulted(u *unstructured.Unstructured) *unstructured.Unstructured {
	obj, _ := defaulting.Apply(u.Object)
	return &unstructured.Unstructured{Object: obj}
}

// An example that is about Pods can be written for workloads, and has work to do there.
func TestExamplesRewritten(t *testing.T) {
	hammer.Alone(t)
	compared := regexp.MustCompile(`the same Pods of [0-9]+ generated workloads: ([0-9]+) changed`)
	// The generated Pods have no claims, arguments and ports of the host, and are not selected by the presets.
	unchanged := []string{"backup-volumes", "container-args", "host-ports", "pod-preset"}
	pods := 0
	for _, name := range exampleNames(t) {
		var stdout, stderr bytes.Buffer
		code := run([]string{"expand", "--rewrite", filepath.Join(examples, name, "policy.yaml")}, nil, &stdout, &stderr)
		switch text := stderr.String(); {
		case code == exitPolicy && strings.Contains(text, "so there is nothing to rewrite"):
		case code != exitOK || !compared.MatchString(text) || stdout.Len() == 0,
			(compared.FindStringSubmatch(text)[1] == "0") != slices.Contains(unchanged, name):
			t.Errorf("%s: exit code %d\n%s", name, code, text)
		default:
			pods++
		}
	}
	if pods < 40 {
		t.Errorf("%d examples are rewritten", pods)
	}
}

// What is written for workloads does in Kubernetes what it does here.
func TestRewrittenInKubernetes(t *testing.T) {
	hammer.Alone(t)
	object := filepath.Join("../../docs/tour/expansion", "deployment.yaml")
	for _, name := range []string{"image-pull-policy", "security-context", "sidecar-jsonpatch", "tolerations"} {
		// The bindings of the examples select Namespaces with such a label.
		policies := printed(t, "expand", "--rewrite", filepath.Join(examples, name, "policy.yaml")) +
			"---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {policies.example.com/" + name + ": enabled}}}\n"
		file := filepath.Join(t.TempDir(), "rewritten.yaml")
		if err := os.WriteFile(file, []byte(policies), 0o644); err != nil {
			t.Fatal(err)
		}
		c := asCase(t, policies, readFile(t, object))
		want, err := oracle.Run(t.Context(), c)
		if err != nil || want.Panic != nil || want.Status != nil {
			t.Fatalf("%s: %v, %v, %v", name, err, want.Panic, want.Status)
		}
		printed := printed(t, "eval", "-p", file, "-f", object)
		got, err := cases.Normal(defaulted(parseObject(t, printed)), c.CRDs)
		if err != nil {
			t.Fatal(err)
		}
		if stored := defaulted(want.Object); !cases.Same(stored, got) {
			t.Errorf("%s: -Kubernetes +mapd\n%s", name, cmp.Diff(stored, got))
		}
		if printed == readFile(t, object) {
			t.Errorf("%s changes nothing", name)
		}
	}
}

// Recorded external data is looked up in Kubernetes as Gatekeeper's mutator gets it
// from a provider, and what is not recorded is refused.
func TestRecordedInKubernetes(t *testing.T) {
	hammer.Alone(t)
	policies := printed(t, "migrate", "gatekeeper", "-p", filepath.Join(examples, "external-data/mutator.yaml"),
		"--values", "params", "--external-snapshot", filepath.Join(examples, "external-data/answers.yaml"))
	object := filepath.Join(examples, "external-data/pod.yaml")
	asked := printed(t, "eval", "-p", filepath.Join(examples, "external-data/mutator.yaml"), "-f", object,
		"--external", filepath.Join(examples, "external-data/answers.yaml"))
	c := asCase(t, policies, readFile(t, object))
	got, err := oracle.Run(t.Context(), c)
	if err != nil || got.Panic != nil || got.Status != nil {
		t.Fatalf("%v, %v, %v", err, got.Panic, got.Status)
	}
	want, err := cases.Normal(defaulted(parseObject(t, asked)), c.CRDs)
	if err != nil {
		t.Fatal(err)
	}
	if stored := defaulted(got.Object); !cases.Same(want, stored) || asked == readFile(t, object) {
		t.Errorf("-Gatekeeper +Kubernetes\n%s", cmp.Diff(want, stored))
	}
	other := strings.Replace(readFile(t, object), "nginx:1.25", "shop/app:1", 1)
	got, err = oracle.Run(t.Context(), asCase(t, policies, other))
	if err != nil || got.Panic != nil || got.Status == nil || !strings.Contains(got.Status.Message, "provider digests: no value is recorded for the key shop/app:1") {
		t.Errorf("%v, %v, %v", err, got.Panic, got.Status)
	}
}

// tourBlock is a code block of a page that shows a command and all that it
// prints, both streams as a terminal shows them.
var tourBlock = regexp.MustCompile("(?s)```\n\\$ bin/mapd ((?:blame|eval|expand|export|fmt|inspect|lint|migrate|post-render|test) [^\n]*)\n(.*?)```\n")

// tourFile is a file that the README shows whole.
var tourFile = regexp.MustCompile("(?s)```yaml\n# (docs/tour/[^\n]*)\n(.*?)```\n")

// The files that pages show are those that their commands read.
func TestReadmeFiles(t *testing.T) {
	blocks := tourFile.FindAllStringSubmatch(readFile(t, "../../README.md")+readFile(t, "../../docs/start/thirty-minutes.md")+readFile(t, "../../docs/author/test.md")+readFile(t, "../../docs/operate/rollout.md")+readFile(t, "../../docs/author/gitops.md"), -1)
	if len(blocks) < 3 {
		t.Fatalf("found %d files: the README is not read as it is written", len(blocks))
	}
	for _, m := range blocks {
		if d := cmp.Diff(m[2], readFile(t, "../..", m[1])); d != "" {
			t.Errorf("%s (-page +file):\n%s", m[1], d)
		}
	}
}

// The commands of the README, and of pages beside it, print what they say they print.
func TestReadme(t *testing.T) {
	hammer.Alone(t)
	t.Chdir("../..") // the commands name files from there
	for page, least := range map[string]int{"README.md": 1, "docs/start/thirty-minutes.md": 4, "docs/move/expansion.md": 4, "docs/move/external-data.md": 3, "docs/author/eval.md": 8, "docs/author/test.md": 4, "docs/author/ci.md": 1, "docs/author/gitops.md": 4, "docs/operate/blame.md": 2, "docs/author/editor.md": 1, "docs/operate/rollout.md": 3, "docs/operate/static.md": 1} {
		t.Run(page, func(t *testing.T) { checkPage(t, page, least) })
	}
}

// The extension for an editor has the settings and the name that its page says, and reads no
// others.
func TestEditorFolder(t *testing.T) {
	var extension struct {
		Name, Publisher, Main string
		Contributes           struct {
			Configuration struct {
				Properties map[string]struct{ Default any }
			}
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, "../../editors/vscode/package.json")), &extension); err != nil {
		t.Fatal(err)
	}
	page, program := readFile(t, "../../docs/author/editor.md"), readFile(t, "../../editors/vscode", extension.Main)
	read := regexp.MustCompile(`settings\.get\("(\w+)"\)`).FindAllStringSubmatch(program, -1)
	if properties := extension.Contributes.Configuration.Properties; len(read) == 0 || len(read) != len(properties) {
		t.Errorf("%d settings are read, %d are declared", len(read), len(properties))
	} else {
		for _, m := range read {
			if properties["mapd."+m[1]].Default == nil || !strings.Contains(page, "`mapd."+m[1]+"`") {
				t.Errorf("setting %s is not declared or not on the page", m[1])
			}
		}
	}
	if id := extension.Publisher + "." + extension.Name; !strings.Contains(page, `"`+id+`"`) {
		t.Errorf("the page does not name %s", id)
	}
	block := regexp.MustCompile("(?s)What becomes of the mutation.*```yaml\n(.*?)```").FindStringSubmatch(page)
	var out bytes.Buffer
	run([]string{"fmt", "-"}, strings.NewReader(readFile(t, "../../docs/tour/editor/policy.yaml")), &out, &out)
	if block == nil || !strings.Contains(out.String(), block[1]) {
		t.Errorf("the page does not show what fmt makes of its file:\n%s", out.String())
	}
}

// The extension of Visual Studio Code starts the server again when its path is mended: a
// client that could not start refuses to be stopped. It offers schemas by what is in a document.
// Its libraries are stood in for, as the editor has them.
func TestEditorExtension(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is missing, which runs the extension; make web and CI need it, too")
	}
	file, err := filepath.Abs("../../editors/vscode/extension.js")
	if err != nil {
		t.Fatal(err)
	}
	const editor = `
const settings = {path: "wrong", arguments: []};
let changed, schemas;
const vscode = {
  workspace: {
    getConfiguration: () => ({get: (name) => settings[name]}),
    onDidChangeConfiguration: (f) => { changed = f; },
    textDocuments: [
      {uri: "file:///a.yaml", getText: () => "# a\napiVersion: admissionregistration.mapd.dev/v1\nkind: MutatingAdmissionPolicyBinding\n"},
      {uri: "file:///b.yaml", getText: () => "apiVersion: test.mapd.dev/v1alpha1\nkind: Suite\n"},
      {uri: "file:///c.yaml", getText: () => "kind: Pod\n"},
    ],
  },
  extensions: {getExtension: () => ({activate: async () => ({registerContributor: (name, schemaOf, text) => { schemas = {schemaOf, text}; }})})},
  commands: {registerCommand: () => undefined},
};
class LanguageClient {
  constructor(id, name, server) { this.command = server.command; }
  async start() {
    if (this.command === "wrong") throw new Error("no such program");
    this.running = true;
    console.log("started " + this.command);
  }
  async stop() {
    if (!this.running) throw new Error("Client is not running and can't be stopped");
    console.log("stopped " + this.command);
  }
}
const Module = require("node:module");
const load = Module._load;
Module._load = (name, ...rest) => name === "vscode" ? vscode
  : name === "vscode-languageclient/node" ? {LanguageClient, TransportKind: {}} : load(name, ...rest);
const extension = require(process.argv[1]);
(async () => {
  await extension.activate({subscriptions: []}).catch((err) => console.log(err.message));
  for (const path of ["right", "other"]) {
    settings.path = path;
    await changed({affectsConfiguration: () => true});
  }
  await extension.deactivate();
  for (const name of ["a", "b", "c"]) {
    const uri = schemas.schemaOf("file:///" + name + ".yaml");
    console.log(uri, uri && JSON.parse(schemas.text(uri)).title);
  }
})();
`
	out, err := exec.Command(node, "-e", editor, file).CombinedOutput()
	if want := "no such program\nstarted right\nstopped right\nstarted other\nstopped other\n" +
		"mapd://schemas/mapd-policy.schema.json Policies and bindings of mapd and Kubernetes\nmapd://schemas/mapd-test.schema.json A suite of mapd test\nundefined undefined\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

// builtModule matches what mapd inspect prints of a module that differs from one Go
// release to the next.
var builtModule = regexp.MustCompile(`(?m)^((?:digest|bytes|imports): +).*`)

// checkPage runs the commands of a page, of which there should be some.
func checkPage(t *testing.T, page string, least int) {
	text := []byte(readFile(t, page))
	blocks := tourBlock.FindAllSubmatch(text, -1)
	if len(blocks) < least {
		t.Fatalf("found %d commands with output: the page is not read as it is written", len(blocks))
	}
	after := text
	for _, m := range blocks {
		want := string(m[2])
		var out bytes.Buffer
		args := strings.Replace(string(m[1]), " -o policies ", " -o "+t.TempDir()+" ", 1)
		run(strings.Fields(args), nil, &out, &out)
		printed := builtModule.ReplaceAllString(out.String(), "$1…")
		if *update {
			block := bytes.Replace(m[0], []byte("\n"+want+"```"), []byte("\n"+printed+"```"), 1)
			after = bytes.Replace(after, m[0], block, 1)
			continue
		}
		if d := cmp.Diff(want, printed); d != "" {
			t.Errorf("mapd %s (-%s +printed):\n%s", m[1], page, d)
		}
	}
	if *update {
		if err := os.WriteFile(page, after, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The example of docs/move/kubewarden.md: the stock toolchain builds its module, and the
// commands print what the page says.
func TestKubewardenPage(t *testing.T) {
	hammer.Alone(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	for _, name := range []string{"docs", "examples"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	const page = "docs/move/kubewarden.md"
	_, build, ok := strings.Cut(readFile(t, page), "```\n$ GOOS=")
	build, _, end := strings.Cut(build, "\n```")
	if !ok || !end {
		t.Fatal("the page builds no module")
	}
	if out, err := exec.Command("sh", "-c", "GOOS="+build).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkPage(t, page, 3)
}
