package suite

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const policyText = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
  matchConditions:
  - name: wants
    expression: 'object.metadata.?labels[?"skip"].orValue("") != "yes"'
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"%[1]s": namespaceObject.metadata.name}}}'
`

// write writes a suite with the policy owner beside it and returns its file.
func write(t testing.TB, cases string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"policy.yaml":    fmt.Sprintf(policyText, "owner"),
		"mapd-test.yaml": "apiVersion: test.mapd.dev/v1alpha1\nkind: Suite\npolicies: [policy.yaml]\nunbound: true\ncases:\n" + cases,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "mapd-test.yaml")
}

// outcomes runs a suite and returns "NAME STATUS: MESSAGE" of each case.
func outcomes(t *testing.T, opts Options, file string) []string {
	t.Helper()
	r := Run(t.Context(), []string{file}, opts)
	for _, err := range r.Errs {
		t.Error(err)
	}
	var out []string
	for _, o := range r.Outcomes {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", o.Name, o.Status, o.Message), ": "))
	}
	return out
}

const pod = `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop%s}, spec: {containers: [{name: app, image: nginx}]}}`

func TestExpectations(t *testing.T) {
	plain, skipping := fmt.Sprintf(pod, ""), fmt.Sprintf(pod, `, labels: {skip: "yes"}`)
	file := write(t, `
- {name: whole, object: `+plain+`, expect: {object: `+fmt.Sprintf(pod, ", labels: {owner: shop}")+`}}
- {name: other whole, object: `+plain+`, expect: {object: `+plain+`}}
- {name: patch, object: `+plain+`, expect: {patch: [{op: add, path: /metadata/labels, value: {}}, {op: add, path: /metadata/labels/owner, value: shop}]}}
- {name: no patch, object: `+plain+`, expect: {patch: [{op: remove, path: /metadata/labels}]}}
- {name: fields, object: `+plain+`, expect: {fields: {metadata.labels.owner: shop, "spec.containers[name=app].image": nginx, "spec.containers[0].name": app, metadata.annotations: null}}}
- {name: other field, object: `+plain+`, expect: {fields: {metadata.labels.owner: x}}}
- {name: unchanged, object: `+skipping+`, expect: {unchanged: true}}
- {name: changed, object: `+plain+`, expect: {unchanged: true}}
- {name: admitted, object: `+plain+`, expect: {denied: true}}
- {name: update, object: `+plain+`, old: `+skipping+`, expect: {fields: {metadata.labels.owner: shop}}}
- {name: nothing, object: `+plain+`}
- {name: left out, skip: later, object: `+plain+`, expect: {denied: true}}
- {name: elsewhere, namespace: other, object: {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: nginx}]}}, expect: {fields: {metadata.labels.owner: other}}}
- {name: no kind, object: {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: 3}}, expect: {unchanged: true}}
`)
	want := []string{
		"whole pass", "other whole fail: it is not as expected", "patch pass",
		`no patch fail: the expected patch does not fit the object: operation 0, remove "/metadata/labels": no field "labels"`,
		"fields pass", "other field fail: fields are not as expected", "unchanged pass", "changed fail: it is changed, and should not be",
		"admitted fail: it is admitted, and should be denied", "update pass", "nothing fail: the case has no expect; --update writes what comes out",
		"left out skip: later", "elsewhere pass",
	}
	got := outcomes(t, Options{Count: 2}, file)
	if len(got) != len(want)+1 {
		t.Fatalf("%d outcomes: %q", len(got), got)
	}
	for i, w := range want {
		if got[i] != w {
			t.Errorf("got  %s\nwant %s", got[i], w)
		}
	}
	// What the object has wrong is said where it stands in the suite.
	if last := got[len(want)]; !strings.HasPrefix(last, "no kind error: ") || !strings.Contains(last, "mapd-test.yaml: document 1, line 20, column 97") {
		t.Error(last)
	}
}

func TestDenials(t *testing.T) {
	file := write(t, "")
	dir := filepath.Dir(file)
	text := strings.Replace(fmt.Sprintf(policyText, "owner"), `namespaceObject.metadata.name`, `object.spec.nodeName`, 1)
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	object := fmt.Sprintf(pod, "")
	cases := "apiVersion: test.mapd.dev/v1alpha1\nkind: Suite\npolicies: [policy.yaml]\nunbound: true\ncases:\n"
	for name, expect := range map[string]string{
		"any": "denied: true", "part": "denied: {contains: no such key}", "regexp": "denied: {matches: 'no such key: node(Name|x)$'}",
		"whole-fail": "denied: {message: no such key}", "part-fail": "denied: {contains: xyz}", "regexp-fail": "denied: {matches: '^x'}", "admitted-fail": "unchanged: true",
	} {
		cases += "- {name: " + name + ", object: " + object + ", expect: {" + expect + "}}\n"
	}
	if err := os.WriteFile(file, []byte(cases), 0o644); err != nil {
		t.Fatal(err)
	}
	got := outcomes(t, Options{}, file)
	if len(got) != 7 {
		t.Fatalf("%q", got)
	}
	for _, o := range got {
		name, rest, _ := strings.Cut(o, " ")
		if strings.HasSuffix(name, "-fail") != strings.HasPrefix(rest, "fail") {
			t.Error(o)
		}
	}
}

func TestTables(t *testing.T) {
	file := write(t, `
- name: images
  object: {apiVersion: v1, kind: Pod, metadata: {name: "web-$(size)", labels: {skip: "$(skip)"}}, spec: {priority: $(size), containers: [{name: app, image: "x:$(size)$(HOME)"}]}}
  expect: {fields: {"metadata.labels.owner": $(want), spec.priority: 3, "spec.containers[0].image": "x:3$(HOME)"}}
  table:
  - {name: done, size: 3, skip: "no", want: default}
  - {size: 3, skip: "yes", want: null}
`)
	got := outcomes(t, Options{}, file)
	if !slices.Equal(got, []string{"images/done pass", "images/#2 pass"}) {
		t.Errorf("%q", got)
	}
}

// Values that are no texts stand in texts as JSON, and of keys that become the same the
// last one in the order of names counts.
func TestTablesOfValues(t *testing.T) {
	fill := &filling{columns: map[string]any{"f": 1000000.5, "n": nil, "m": map[string]any{"a": int64(1)}, "k": "x"}, used: map[string]bool{}}
	for range 10 {
		got := fill.in(map[string]any{"$(f)!": "<$(n)> $(m)", "$(k)": "1", "x": "2"})
		want := map[string]any{"1000000.5!": `<null> {"a":1}`, "x": "2"}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v", got)
		}
	}
}

func TestFocus(t *testing.T) {
	object := fmt.Sprintf(pod, "")
	file := write(t, "- {name: a, object: "+object+", expect: {denied: true}}\n- {name: b, focus: true, object: "+object+", expect: {fields: {metadata.labels.owner: shop}}}\n")
	r := Run(t.Context(), []string{file}, Options{})
	if text := r.Text(false, false); text != "ok   "+file+": 1 passed\nOnly cases with focus were run.\n" {
		t.Error(text)
	}
}

// What is wrong in a suite is said at its place, and nothing of the suite runs.
func TestStrict(t *testing.T) {
	object := "object: " + fmt.Sprintf(pod, "")
	for text, want := range map[string]string{
		"- {name: a, objekt: 3}":                                         "line 6, column 13: unknown field cases[0].objekt; want one of ",
		"- {name: a, object: 3, expect: {unchanged: true}}":              "line 6, column 21: cases[0].object: want the name of a file or an object, not a number",
		"- {" + object + ", expect: {unchanged: true}}":                  "cases[0].name is required",
		"- {name: a, " + object + ", expect: {}}":                        "cases[0].expect: want one of denied, fields, object, objects, patch, unchanged; there are 0",
		"- {name: a, " + object + ", expect: {denied: {matches: '('}}}":  "cases[0].expect.denied.matches: error parsing regexp",
		"- {name: a, " + object + ", expect: {fields: {a..b: 3}}}":       `cases[0].expect.fields: "a..b": a name is missing in the path`,
		"- {name: a, " + object + ", operation: update}":                 "cases[0].operation: UPDATE needs old",
		"- {name: a, " + object + ", operation: DELETE}":                 "cases[0]: a DELETE has old, the object that is deleted, and no other",
		"- {name: a, " + object + ", operation: LIST}":                   "cases[0].operation: want one of CREATE, UPDATE, CONNECT, DELETE",
		"- {name: a, object: none.yaml, expect: {unchanged: true}}":      "cases[0].object: there is no file ",
		"- {name: a, " + object + "}\n- {name: a, " + object + "}":       `cases[1].name: "a" is given twice`,
		"- {name: a, " + object + ", table: []}":                         "cases[0].table: it has no rows",
		"- {name: a, " + object + ", table: [{x: 3}]}":                   "cases[0].table[0].x: no text of the case has $(x)",
		"- {name: a, object: {kind: $(x)}, table: [{x: Pod}]}":           "Object 'apiVersion' is missing",
		"- {name: a, user: {name: [x]}, " + object + "}":                 "cases[0].user.name: want a text, not a list",
		"- {name: a, dryRun: 'yes', " + object + "}":                     "cases[0].dryRun: want true or false, not a text",
		"- {name: a, " + object + ", objects: policy.yaml}":              "cases[0]: want object or objects, one of them",
		"- {name: a, " + object + ", expect: {patch: [{op: x}]}}":        "cases[0].expect.patch[0].path is required",
		"- {name: a, objects: policy.yaml, expect: {object: mapd.yaml}}": "cases[0].expect.object: the case has objects",
	} {
		r := Run(t.Context(), []string{write(t, text)}, Options{})
		if len(r.Errs) == 0 || !strings.Contains(r.Errs[0].Error(), want) || len(r.Outcomes) > 0 || !r.Unread {
			t.Errorf("%s\ngot  %v\nwant %s", text, r.Errs, want)
		}
	}
}

// The schema is that of the decoder: each has every field of the other. Package forms publishes it.
func TestSchema(t *testing.T) {
	var s struct {
		Properties map[string]struct {
			Description string
			Items       struct{ Properties map[string]any }
		}
		Required []string
	}
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Required, []string{"apiVersion", "kind", "policies", "cases"}) || len(s.Properties["cases"].Items.Properties) != reflect.TypeFor[testCase]().NumField() {
		t.Errorf("%+v", s)
	}
	for name, p := range s.Properties {
		if p.Description == "" {
			t.Errorf("%s has no description", name)
		}
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/mapd-test.yaml", "a/b/mapd-test.yaml", "a/testdata/mapd-test.yaml", "a/.x/mapd-test.yaml", "c/other.yaml"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for args, want := range map[string]string{
		"./...": "a/b/mapd-test.yaml a/mapd-test.yaml", "a": "a/mapd-test.yaml", "a/testdata": "a/testdata/mapd-test.yaml",
		"a a/b a/...": "a/mapd-test.yaml a/b/mapd-test.yaml", "c": "c: no suites (mapd-test.yaml, kyverno-test.yaml, or suites of gator); c/... looks below, too, and mapd test --generate POLICY writes one", "d/...": "d: no such file or directory",
		"c/...": "c/...: no suites (mapd-test.yaml, kyverno-test.yaml, or suites of gator); mapd test --generate POLICY writes one",
	} {
		files, err := Find(strings.Fields(args))
		got := strings.Join(files, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
	}
}

// BenchmarkThousand runs 1,000 cases over 100 policies, from the files on: with the same
// objects beside them, and each with a Namespace and a parameter of its own.
func BenchmarkThousand(b *testing.B) {
	for name, more := range map[string]string{
		"same": "", "own": ", context: [{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {n: '%[1]d'}}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: c-%[1]d}}]",
	} {
		b.Run(name, func(b *testing.B) {
			file := thousand(b, 1000, more)
			for b.Loop() {
				r := Run(b.Context(), []string{file}, Options{})
				if len(r.Errs) > 0 || r.Count(Passed) != 1000 {
					b.Fatal(r.Errs, r.Text(false, false))
				}
			}
		})
	}
}

// thousand writes a suite of n cases over 100 policies.
func thousand(t testing.TB, n int, more string) string {
	file := write(t, "[]\n")
	dir := filepath.Dir(file)
	for i := range 100 {
		text := fmt.Sprintf(policyText, fmt.Sprintf("owner-%d", i))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("policy-%03d.yaml", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cases := "apiVersion: test.mapd.dev/v1alpha1\nkind: Suite\npolicies: ['policy-*.yaml']\nunbound: true\ncases:\n"
	for i := range n {
		own := more
		if more != "" {
			own = fmt.Sprintf(more, i)
		}
		cases += fmt.Sprintf("- {name: case %d, object: %s, expect: {fields: {metadata.labels.owner-%d: shop}}%s}\n", i, fmt.Sprintf(pod, ""), i%100, own)
	}
	if err := os.WriteFile(file, []byte(cases), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// Files keep their form: JSON stays JSON, lines end as they did, and directives stand
// where they may.
func TestUpdateKeepsForm(t *testing.T) {
	const object = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","namespace":"shop"%s},"spec":{"containers":[{"image":"<nginx>","name":"app"}]}}`
	a, b := fmt.Sprintf(object, "a", ""), fmt.Sprintf(object, "b", "")
	changed := func(name string) string { return fmt.Sprintf(object, name, `,"labels":{"owner":"shop"}`) }
	yamlOf := func(name, labels string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n  namespace: shop\n" + labels + "spec: {containers: [{name: app, image: nginx}]}\n"
	}
	crlf := func(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }
	const own, skip = "  labels:\n    owner: shop\n", "  labels: {skip: \"yes\"}\n"
	for _, tt := range []struct{ name, in, want string }{
		{"a.json", a + "\n" + b + "\n", changed("a") + "\n" + changed("b") + "\n"},
		{"b.yaml", crlf("# top\n" + yamlOf("a", "") + "---\n" + yamlOf("b", "")), crlf("# top\n" + yamlOf("a", own) + "---\n" + yamlOf("b", own))},
		{"c.yaml", yamlOf("a", "") + "...\n%YAML 1.1\n---\n" + yamlOf("b", skip), yamlOf("a", own) + "...\n%YAML 1.1\n---\n" + yamlOf("b", skip)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := write(t, "- {name: c, objects: "+tt.name+", expect: {objects: want-"+tt.name+"}}\n")
			for _, name := range []string{tt.name, "want-" + tt.name} {
				if err := os.WriteFile(filepath.Join(filepath.Dir(file), name), []byte(tt.in), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			files, errs := Run(t.Context(), []string{file}, Options{}).Update()
			if len(errs) > 0 || len(files) != 1 {
				t.Fatalf("%d files, errors %v", len(files), errs)
			}
			if got := string(files[0].Text); got != tt.want {
				t.Errorf("got:\n%q\nwant:\n%q", got, tt.want)
			}
			if err := WriteFiles(files); err != nil {
				t.Fatal(err)
			}
			for _, o := range Run(t.Context(), []string{file}, Options{}).Outcomes {
				if o.Status != Passed {
					t.Errorf("%s after it: %s %s", o.Name, o.Status, o.Message)
				}
			}
		})
	}
}
