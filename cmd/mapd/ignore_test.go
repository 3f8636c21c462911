package main

// What the rules of mapd export ignore leave of an object of Git and of the same in a cluster,
// when their fields are removed as the controllers remove them: Argo CD each JSON pointer that
// is there, and what each jq expression names; Flux all JSON pointers as one JSON patch. make
// argocd asks Argo CD's own code, too. Flux's is not run.

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

	jsonpatchv5 "github.com/evanphx/json-patch/v5"
	"github.com/itchyny/gojq"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/test/hammer"
)

// ignoreCase is case.yaml of a file of testdata/ignore, which has policies.yaml and git.yaml, too.
type ignoreCase struct {
	// Warnings are regular expressions for all lines of standard error, by controller.
	Warnings map[string][]string
	// Seen are changes of the cluster's objects that are differences with the rules, too.
	// Ignored are some that are none.
	Seen, Ignored []ignoreEdit
}

type ignoreEdit struct {
	For    []string // controllers; all if it is empty
	Object string
	Patch  []any
	// Unseen says that Argo CD itself does not see it, whatever the rules are: it merges ports by
	// their number, so two with one number are mixed up.
	Unseen bool
}

func TestIgnoreRules(t *testing.T) {
	hammer.Alone(t)
	files, err := filepath.Glob("testdata/ignore/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var argo *argoCD
	if program := os.Getenv("MAPD_ARGOCD"); program != "" {
		argo = startArgoCD(t, program)
	}
	removers := map[string]func(*testing.T, map[string]any, []byte) map[string]any{"argocd": removedByArgo, "flux": removedByFlux}
	for _, file := range files {
		for controller, remove := range removers {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+controller, func(t *testing.T) {
				asked := argo
				if controller != "argocd" {
					asked = nil
				}
				testIgnore(t, file, controller, remove, asked)
			})
		}
	}
}

func testIgnore(t *testing.T, file, controller string, remove func(*testing.T, map[string]any, []byte) map[string]any, argo *argoCD) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	texts := map[string][]byte{}
	for _, f := range archive.Files {
		texts[f.Name] = f.Data
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var tt ignoreCase
	if err := yaml.UnmarshalStrict(texts["case.yaml"], &tt); err != nil {
		t.Fatal(err)
	}
	given := []string{"--unbound", "-p", filepath.Join(dir, "policies.yaml"), "-f", filepath.Join(dir, "git.yaml"), "-n", "shop"}
	git := objectsByName(t, texts["git.yaml"])
	cluster := objectsByName(t, []byte(printed(t, append([]string{"eval", "-q"}, given...)...)))
	var stdout, stderr bytes.Buffer
	if code := run(append([]string{"export", "ignore", "--for", controller}, given...), nil, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	rules := stdout.Bytes()
	t.Logf("%s%s", rules, &stderr)
	missing := slices.Clone(tt.Warnings[controller])
	for line := range strings.Lines(stderr.String()) {
		i := slices.IndexFunc(missing, func(want string) bool { return regexp.MustCompile(want).MatchString(strings.TrimSpace(line)) })
		if i < 0 {
			t.Errorf("a warning that is not expected: %s", line)
			continue
		}
		missing = slices.Delete(missing, i, i+1)
	}
	if len(missing) > 0 {
		t.Errorf("warnings are missing: %s", missing)
	}
	differs := func(of string, live map[string]any) bool {
		a, b := asJSON(t, remove(t, git[of], rules)), asJSON(t, remove(t, live, rules))
		if a != b {
			t.Logf("%s: of Git and of the cluster\n%s\n%s", of, a, b)
		}
		return a != b
	}
	changed := false
	for name, live := range cluster {
		changed = changed || asJSON(t, live) != asJSON(t, git[name])
		if differs(name, live) {
			t.Errorf("%s still differs", name)
		}
		if argo != nil && argo.differs(t, rules, git[name], live) {
			t.Errorf("%s still differs for Argo CD", name)
		}
	}
	if !changed {
		t.Error("the policies change nothing")
	}
	for want, edits := range map[bool][]ignoreEdit{true: tt.Seen, false: tt.Ignored} {
		for _, e := range edits {
			if len(e.For) > 0 && !slices.Contains(e.For, controller) {
				continue
			}
			patch, err := jsonpatchv5.DecodePatch([]byte(asJSON(t, e.Patch)))
			if err != nil {
				t.Fatal(err)
			}
			text, err := patch.Apply([]byte(asJSON(t, cluster[e.Object])))
			if err != nil {
				t.Fatalf("%s: %v: %v", e.Object, e.Patch, err)
			}
			if got := differs(e.Object, objectOf(t, text)); got != want {
				t.Errorf("%s with %v: differs: %t, want %t", e.Object, e.Patch, got, want)
			}
			if argo == nil {
				continue
			}
			// What only the cluster has is no difference for Argo CD, whatever the rules are. So the
			// object of Git is one that has all that policies write.
			edited, mutated := objectOf(t, text), cluster[e.Object]
			want := want && !e.Unseen && argo.differs(t, nil, mutated, edited)
			if got := argo.differs(t, rules, mutated, edited); got != want {
				t.Errorf("%s with %v: differs for Argo CD: %t, want %t", e.Object, e.Patch, got, want)
			}
		}
	}
}

// What mapd audit --fix has written is no difference for Argo CD with --fixes, and is one without.
func TestIgnoreFixesByArgoCD(t *testing.T) {
	program := os.Getenv("MAPD_ARGOCD")
	if program == "" {
		t.Skip("MAPD_ARGOCD names no program of test/argocd; make argocd builds it")
	}
	argo := startArgoCD(t, program)
	archive, err := txtar.ParseFile("testdata/ignore/fields.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range archive.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	given := []string{"--unbound", "-p", filepath.Join(dir, "policies.yaml"), "-f", filepath.Join(dir, "git.yaml"), "-n", "shop"}
	live := objectsByName(t, []byte(printed(t, append([]string{"eval", "-q"}, given...)...)))["Deployment/web"]
	git := objectOf(t, []byte(asJSON(t, live)))
	live["metadata"].(map[string]any)["labels"].(map[string]any)["app"] = "fixed"
	live["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{
		"manager": "mapd-audit", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
		"fieldsV1": map[string]any{"f:metadata": map[string]any{"f:labels": map[string]any{"f:app": map[string]any{}}}},
	}}
	for fixes, want := range map[string]bool{"--fixes": false, "--fixes=false": true} {
		rules := printed(t, append([]string{"export", "ignore", "--for", "argocd", fixes}, given...)...)
		if got := argo.differs(t, []byte(rules), git, live); got != want {
			t.Errorf("%s: differs: %t, want %t\n%s", fixes, got, want, rules)
		}
	}
}

// objectsByName reads YAML documents, by Kind/name.
func objectsByName(t *testing.T, text []byte) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for doc := range strings.SplitSeq("\n"+string(text), "\n---\n") {
		text, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		o := objectOf(t, text)
		m, _ := o["metadata"].(map[string]any)
		out[fmt.Sprintf("%s/%s", o["kind"], m["name"])] = o
	}
	return out
}

func objectOf(t *testing.T, text []byte) (o map[string]any) {
	t.Helper()
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// target says which objects a rule is about.
type ignoreTarget struct{ Group, Kind, Name, Namespace string }

func (i ignoreTarget) names(o map[string]any) (group, kind, name, namespace string) {
	version, _ := o["apiVersion"].(string)
	if g, _, ok := strings.Cut(version, "/"); ok {
		group = g
	}
	m, _ := o["metadata"].(map[string]any)
	kind, _ = o["kind"].(string)
	name, _ = m["name"].(string)
	namespace, _ = m["namespace"].(string)
	return group, kind, name, namespace
}

// removedByArgo returns an object without what rules of an Application name, and without what is
// empty then. gojq is what Argo CD has for jq.
func removedByArgo(t *testing.T, object map[string]any, rules []byte) map[string]any {
	t.Helper()
	var app struct {
		IgnoreDifferences []struct {
			ignoreTarget      `json:",inline"`
			JSONPointers      []string
			JQPathExpressions []string
		}
	}
	if err := yaml.UnmarshalStrict(rules, &app); err != nil {
		t.Fatal(err)
	}
	text := []byte(asJSON(t, object))
	for _, rule := range app.IgnoreDifferences {
		group, kind, name, namespace := rule.names(object)
		if rule.Group != group || rule.Kind != kind || rule.Name != "" && rule.Name != name || rule.Namespace != "" && rule.Namespace != namespace {
			continue
		}
		for _, p := range rule.JSONPointers {
			if out, err := removal(t, p).Apply(text); err == nil {
				text = out
			}
		}
		for _, e := range rule.JQPathExpressions {
			query, err := gojq.Parse("del(" + e + ")")
			if err != nil {
				t.Fatalf("%s: %v", e, err)
			}
			out, _ := query.RunWithContext(t.Context(), objectOf(t, text)).Next()
			if err, failed := out.(error); failed {
				t.Fatalf("%s: %v", e, err)
			}
			text = []byte(asJSON(t, out))
		}
	}
	out := objectOf(t, text)
	removeEmpty(out)
	return out
}

func removeEmpty(m map[string]any) {
	for name, v := range m {
		switch v := v.(type) {
		case map[string]any:
			if removeEmpty(v); len(v) == 0 {
				delete(m, name)
			}
		case []any:
			for _, e := range v {
				if e, ok := e.(map[string]any); ok {
					removeEmpty(e)
				}
			}
			if len(v) == 0 {
				delete(m, name)
			}
		}
	}
}

// argoCD is the program of test/argocd.
type argoCD struct {
	in  *json.Encoder
	out *json.Decoder
}

func startArgoCD(t *testing.T, program string) *argoCD {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &argoCD{json.NewEncoder(in), json.NewDecoder(out)}
}

// differs asks whether an object of Git and the same in a cluster differ with the rules of an
// Application.
func (a *argoCD) differs(t *testing.T, rules []byte, git, live map[string]any) bool {
	t.Helper()
	var app struct{ IgnoreDifferences []any }
	if err := yaml.UnmarshalStrict(rules, &app); err != nil {
		t.Fatal(err)
	}
	if err := a.in.Encode(map[string]any{"rules": app.IgnoreDifferences, "git": git, "live": live}); err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Differs   bool
		Git, Live json.RawMessage
		Error     string
	}
	if err := a.out.Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if answer.Error != "" {
		t.Fatal(answer.Error)
	}
	if answer.Differs {
		t.Logf("Argo CD compares\n%s\n%s", answer.Git, answer.Live)
	}
	return answer.Differs
}

// removedByFlux returns an object without what rules of a Kustomization name.
func removedByFlux(t *testing.T, object map[string]any, rules []byte) map[string]any {
	t.Helper()
	var spec struct {
		Ignore []struct {
			Paths  []string
			Target ignoreTarget
		}
	}
	if err := yaml.UnmarshalStrict(rules, &spec); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, rule := range spec.Ignore {
		group, kind, name, namespace := rule.Target.names(object)
		match := func(pattern, text string) bool {
			return pattern == "" || regexp.MustCompile("^(?:"+pattern+")$").MatchString(text)
		}
		if match(rule.Target.Group, group) && match(rule.Target.Kind, kind) && match(rule.Target.Name, name) && match(rule.Target.Namespace, namespace) {
			paths = append(paths, rule.Paths...)
		}
	}
	options := jsonpatchv5.NewApplyOptions()
	options.AllowMissingPathOnRemove = true
	text, err := removal(t, paths...).ApplyWithOptions([]byte(asJSON(t, object)), options)
	if err != nil {
		t.Fatal(err)
	}
	out := objectOf(t, text)
	// Flux compares labels and annotations of metadata, and ignores those that only the cluster has.
	m, _ := out["metadata"].(map[string]any)
	for _, name := range []string{"labels", "annotations"} {
		if of, _ := m[name].(map[string]any); len(of) == 0 {
			delete(m, name)
		}
	}
	return out
}

func removal(t *testing.T, paths ...string) jsonpatchv5.Patch {
	t.Helper()
	operations := []map[string]string{}
	for _, p := range paths {
		operations = append(operations, map[string]string{"op": "remove", "path": p})
	}
	patch, err := jsonpatchv5.DecodePatch([]byte(asJSON(t, operations)))
	if err != nil {
		t.Fatal(err)
	}
	return patch
}
