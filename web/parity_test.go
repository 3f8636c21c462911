package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/web/gallery"
)

// A line is a call of a method in the format that testdata/run.js reads.
type line struct{ name, method, params string }

func lineOf(t *testing.T, name, method string, params any) line {
	t.Helper()
	data, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	return line{name, method, string(data)}
}

// sameSpace makes errors of google.golang.org/protobuf comparable. That module deliberately varies
// the space after "proto:" from one program to another.
var sameSpace = strings.NewReplacer("proto:\u00a0", "proto: ")

// sortedReads returns a line with the values of each read of a trace sorted. A CEL macro over a
// map reads its keys in an order that differs each time.
func sortedReads(line string) string {
	var answer any
	d := json.NewDecoder(strings.NewReader(sameSpace.Replace(line)))
	d.UseNumber()
	if d.Decode(&answer) != nil {
		return line
	}
	text := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			panic(err) // it was read from JSON
		}
		return string(data)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for _, item := range v {
				walk(item)
			}
			reads, _ := v["reads"].([]any)
			for _, r := range reads {
				if values, ok := r.(map[string]any)["values"].([]any); ok {
					slices.SortFunc(values, func(a, b any) int { return strings.Compare(text(a), text(b)) })
				}
			}
		}
	}
	walk(answer)
	return text(answer)
}

// TestParity calls the program for browsers, which hack/web.sh has built in the directory MAPD_WEB
// and which runs under node, and the same code here, and compares the answers byte by byte. The
// calls are test/cases, except those that need something outside of the program, the gallery, and
// a few calls of each method.
func TestParity(t *testing.T) {
	dir := os.Getenv("MAPD_WEB")
	if dir == "" {
		t.Skip("MAPD_WEB does not name what hack/web.sh has built")
	}
	lines := caseLines(t)
	cases := len(lines)
	lines = append(lines, galleryLines(t)...)
	lines = append(lines, methodLines(t)...)
	for method := range methods {
		if !slices.ContainsFunc(lines, func(l line) bool { return l.method == method }) {
			t.Errorf("no call of %s is compared", method)
		}
	}
	n := startNode(t, dir)
	go func() {
		for _, l := range lines {
			n.write(l)
		}
	}()
	// Both programs work at the same time.
	d, verdicts := unhurried(), map[string]int{}
	for _, l := range lines {
		want := answerLine(t, d, l, verdicts)
		if strings.HasPrefix(l.name, "method ") && strings.HasPrefix(want, "! ") != (l.method == "nothing") {
			t.Errorf("%s: %s", l.name, want)
		}
		if l.name == betaLine && !strings.Contains(want, `"verdict":"changed"`) {
			t.Errorf("%s: %s", l.name, want)
		}
		if l.name == "method hover" && !strings.Contains(want, "Standard object's metadata") {
			t.Errorf("%s: %s has no description", l.name, want)
		}
		if got := n.read(t); sameSpace.Replace(got) != sameSpace.Replace(want) && sortedReads(got) != sortedReads(want) {
			t.Errorf("%s: %s differs (-here +browser):\n%s", l.name, l.method, cmp.Diff(want, got))
		}
	}
	// Answers that are all errors would prove nothing.
	if verdicts["changed"] < 300 || verdicts["denied"] < 30 || verdicts["unchanged"] < 20 || verdicts["no match"] < 20 {
		t.Errorf("verdicts %v: that is too few", verdicts)
	}
	t.Logf("%d calls, %d of them cases, have the same answers: %v", len(lines), cases, verdicts)
}

// A call that needs a schema that cannot be read fails, and the next call asks for it again.
func TestMissingSchema(t *testing.T) {
	built := os.Getenv("MAPD_WEB")
	if built == "" {
		t.Skip("MAPD_WEB does not name what hack/web.sh has built")
	}
	dir := programIn(t, built)
	n := startNode(t, dir)
	l := lineOf(t, "a Pod", "evaluate", Question{Documents: texts(label("p", `"x"`)), Objects: texts(pod)})
	n.write(l)
	if got, want := n.read(t), "! the schema core_v1.schema could not be had, without which there is no answer: Error: ENOENT"; !strings.HasPrefix(got, want) {
		t.Errorf("without the schema: %s\nwant %s", got, want)
	}
	if err := os.Symlink(filepath.Join(built, "schemas"), filepath.Join(dir, "schemas")); err != nil {
		t.Fatal(err)
	}
	n.write(l)
	if got, want := n.read(t), answerLine(t, unhurried(), l, map[string]int{}); got != want {
		t.Errorf("with the schema: %s\nwant %s", got, want)
	}
}

// If the descriptions cannot be read, a hover has only the type, and the next one asks for them
// again.
func TestMissingDescriptions(t *testing.T) {
	built := os.Getenv("MAPD_WEB")
	if built == "" {
		t.Skip("MAPD_WEB does not name what hack/web.sh has built")
	}
	dir := programIn(t, built)
	link := func(pattern string) {
		files, err := filepath.Glob(filepath.Join(built, "schemas", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			if err := os.Symlink(file, filepath.Join(dir, "schemas", filepath.Base(file))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "schemas"), 0o755); err != nil {
		t.Fatal(err)
	}
	link("*.schema")
	n := startNode(t, dir)
	for _, l := range methodLines(t) {
		if l.method != "hover" {
			continue
		}
		want := answerLine(t, newDesk(), l, map[string]int{})
		n.write(l)
		if got := n.read(t); !strings.Contains(got, "object.metadata: ") || strings.Contains(got, "Standard object's metadata") {
			t.Errorf("without descriptions: %s", got)
		}
		link("*.descriptions")
		n.write(l)
		if got := n.read(t); got != want {
			t.Errorf("with descriptions: %s\nwant %s", got, want)
		}
	}
}

// programIn returns a directory with the program, but without its files of schemas.
func programIn(t *testing.T, built string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"mapd.wasm.gz", "wasm_exec.js"} {
		if err := os.Symlink(filepath.Join(built, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// node is a running testdata/run.js.
type node struct {
	in   io.WriteCloser
	out  *bufio.Reader
	errs *bytes.Buffer
}

func startNode(t *testing.T, dir string) *node {
	t.Helper()
	cmd := exec.Command("node", "testdata/run.js", dir) // Cleanup ends it, after the context
	n := &node{errs: &bytes.Buffer{}}
	cmd.Stderr = n.errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	n.in, n.out = in, bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("node: %v\n%s", err, n.errs)
		}
	})
	return n
}

// write sends a call. It ignores errors: if node has ended, read reports that.
func (n *node) write(l line) { _, _ = fmt.Fprintf(n.in, "%s %s\n", l.method, l.params) }

// read returns the next answer.
func (n *node) read(t *testing.T) string {
	t.Helper()
	got, err := n.out.ReadString('\n')
	if err != nil {
		t.Fatalf("node ended: %v", err)
	}
	return got
}

// answerLine returns the answer in the format that run.js prints.
func answerLine(t *testing.T, d *desk, l line, verdicts map[string]int) string {
	t.Helper()
	answer, err := d.call(t.Context(), l.method, []byte(l.params))
	if err != nil {
		return "! " + err.Error() + "\n"
	}
	if l.method == "evaluate" {
		var a Answer
		if err := json.Unmarshal(answer, &a); err != nil {
			t.Fatal(err)
		}
		for _, r := range a.Results {
			verdicts[r.Verdict]++
		}
	}
	return string(answer) + "\n"
}

// caseLines returns calls for the cases of test/cases.
func caseLines(t *testing.T) (lines []line) {
	var leftOut []string
	for _, c := range cases.All(t) {
		why := ""
		switch {
		case len(c.External) > 0:
			why = "external data"
		case len(c.Guests) > 0:
			why = "Kubewarden's modules"
		}
		if why != "" {
			leftOut = append(leftOut, c.Name+": "+why)
			continue
		}
		q := Question{
			Operation: c.Request.Operation, Subresource: c.Request.SubResource, DryRun: c.Request.DryRun, User: c.Request.User,
			Namespace: c.Request.Namespace,
		}
		docs := slices.Concat(c.CRDs, c.Namespaces, c.Params, c.RBAC, c.Policies, c.Bindings, c.Mutators)
		if c.Config != nil {
			docs = append(docs, c.Config)
		}
		q.Documents = textsOf(t, "documents", docs...)
		q.Objects = textsOf(t, "object", c.Request.Object)
		q.Old = textsOf(t, "old", c.Request.OldObject)
		lines = append(lines, lineOf(t, c.Name, "evaluate", EvaluateQuestion{Question: q}))
	}
	t.Logf("left out: %d\n%s", len(leftOut), strings.Join(leftOut, "\n"))
	return lines
}

// textsOf returns a text with objects, none if there are none.
func textsOf(t *testing.T, name string, objects ...*unstructured.Unstructured) []Text {
	t.Helper()
	var b strings.Builder
	for _, o := range objects {
		if o == nil {
			continue
		}
		data, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "---\n%s\n", data)
	}
	if b.Len() == 0 {
		return nil
	}
	return []Text{{Name: name, Text: b.String()}}
}

// galleryLines returns calls for the entries of the gallery, of all methods that apply to them.
func galleryLines(t *testing.T) (lines []line) {
	entries, err := gallery.Entries(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := json.Marshal(e.State)
		if err != nil {
			t.Fatal(err)
		}
		var q EvaluateQuestion
		if err := json.Unmarshal(data, &q.Question); err != nil {
			t.Fatal(err)
		}
		// CEL reads the map of this entry in random order, in both programs, and a trace shows that.
		q.Trace, q.WhyNot = e.Name != "team-annotations", true
		lines = append(lines, lineOf(t, e.Name, "evaluate", q))
	}
	return lines
}

const betaLine = "an object of a beta version"

// methodLines returns a few calls of each method except evaluate.
func methodLines(t *testing.T) (lines []line) {
	policy := label("p", `object.metadata.?labels["team"].orValue("none")`)
	crd := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.ex.io}\nspec:\n  group: ex.io\n  scope: Namespaced\n  names: {plural: widgets, kind: Widget}\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer, default: 3}}}}}}\n"
	docs := texts(policy, crd, label("q", `"x"`), "a: [")
	mutator := "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: pull}\nspec:\n  applyTo: [{groups: [\"\"], versions: [v1], kinds: [Pod]}]\n  location: \"spec.containers[name:*].imagePullPolicy\"\n  parameters: {assign: {value: Always}}\n"
	at := func(s string) (line, character int) {
		before, _, ok := strings.Cut(policy, s)
		if !ok {
			t.Fatalf("the policy does not have %q", s)
		}
		return strings.Count(before, "\n"), len(before) - strings.LastIndex(before, "\n") - 1
	}
	row, column := at("metadata.?labels")
	place := map[string]any{"documents": docs, "name": "a.yaml", "line": row, "character": column + len("meta")}
	for method, params := range map[string]any{
		"diagnose":   map[string]any{"documents": docs},
		"complete":   place,
		"hover":      place,
		"definition": place,
		"format":     map[string]any{"documents": docs, "name": "a.yaml"},
		"actions": map[string]any{"documents": docs, "name": "a.yaml", "range": map[string]any{
			"start": map[string]int{"line": 0, "character": 0}, "end": map[string]int{"line": 30, "character": 0},
		}},
		"orders":  map[string]any{"question": Question{Documents: texts(policy, label("q", `"x"`)), Objects: texts(pod)}, "limit": 10},
		"suite":   Question{Documents: texts(policy), Objects: texts(pod)},
		"migrate": map[string]any{"documents": texts(mutator)},
		"verify":  map[string]any{"documents": texts(mutator), "seed": 1, "count": 50},
		"nothing": map[string]any{},
	} {
		lines = append(lines, lineOf(t, "method "+method, method, params))
	}
	slices.SortFunc(lines, func(a, b line) int { return strings.Compare(a.method, b.method) })
	beta := strings.NewReplacer(`apiGroups: [""], apiVersions: [v1]`, "apiGroups: [resource.k8s.io], apiVersions: [v1beta1]", "[pods]", "[resourceclaims]").Replace(label("p", `"x"`))
	claim := "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: c}\nspec: {devices: {requests: [{name: r, deviceClassName: x}]}}\n"
	return append(lines, lineOf(t, betaLine, "evaluate", Question{Documents: texts(beta), Objects: texts(claim)}))
}
