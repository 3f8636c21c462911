package translate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

var update = flag.Bool("update", false, "rewrite the want sections of testdata/native")

// A golden is a file of testdata/native: a story, mutators, and what users get of
// them.
//
//	-- mutators.yaml --     mutators, and CustomResourceDefinitions
//	-- options --           lines such as "patch: json" or "params: true"
//	-- recorded.yaml --     answers of external data providers
//	-- object.yaml --       an object to create in the namespace it names
//	-- want.verdicts --     what became of each mutator
//	-- want/NAME.yaml --    the files
//	-- want.object.yaml --  what the policies make of the object
type golden struct {
	story    string
	names    []string // of sections, in order
	sections map[string]string
}

func readGolden(t *testing.T, file string) *golden {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{sections: map[string]string{}}
	name := ""
	for line := range strings.Lines(string(data)) {
		if s, ok := strings.CutPrefix(strings.TrimSpace(line), "-- "); ok && strings.HasSuffix(s, " --") {
			name = strings.TrimSuffix(s, " --")
			g.names = append(g.names, name)
			g.sections[name] = ""
		} else if name == "" {
			g.story += line
		} else {
			g.sections[name] += line
		}
	}
	return g
}

func (g *golden) wanted() map[string]string {
	m := maps.Clone(g.sections)
	maps.DeleteFunc(m, func(name, _ string) bool { return !strings.HasPrefix(name, "want") })
	return m
}

// write puts the sections into the file: those given in their order, then those
// wanted.
func (g *golden) write(t *testing.T, file string, want map[string]string) {
	var b bytes.Buffer
	b.WriteString(g.story)
	for _, name := range g.names {
		if !strings.HasPrefix(name, "want") {
			fmt.Fprintf(&b, "-- %s --\n%s", name, g.sections[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		fmt.Fprintf(&b, "-- %s --\n%s", name, want[name])
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func documents(t *testing.T, text string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for d, err := range manifest.ReadStream("", strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Object != nil {
			out = append(out, d.Object)
		}
	}
	return out
}

// units translates the mutators of a golden.
func (g *golden) units(t *testing.T) ([]*legacy.Mutator, []translate.Unit, verify.Options) {
	var ms []*legacy.Mutator
	var crds []*unstructured.Unstructured
	for _, u := range documents(t, g.sections["mutators.yaml"]) {
		if !legacy.IsMutator(u.GroupVersionKind()) {
			crds = append(crds, u)
			continue
		}
		m, err := legacy.Decode(u)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, m)
	}
	custom, err := openapi.CRDs(crds...)
	if err != nil {
		t.Fatal(err)
	}
	types := openapi.New(openapi.Builtin(), custom)
	o := translate.Options{Types: types}
	for line := range strings.Lines(g.sections["options"]) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), ": "); key {
		case "patch":
			o.Patch = value
		case "style":
			o.Readable = value == "readable"
		case "params":
			o.Params = value == "true"
		case "group":
			o.Group = value
		default:
			t.Fatalf("options: %q", line)
		}
	}
	v := verify.Options{Types: types}
	if text, ok := g.sections["recorded.yaml"]; ok {
		answers, err := externaldata.ReadAnswers("recorded.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		o.Recorded, v.Answers, v.Keys = answers.Values(), answers, answers.Keys()
	}
	return ms, translate.Native(ms, o), v
}

func TestNative(t *testing.T) {
	hammer.Alone(t)
	files, err := filepath.Glob("testdata/native/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/native: %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			g := readGolden(t, file)
			ms, units, options := g.units(t)
			want := map[string]string{"want.verdicts": verdicts(units)}
			group := ""
			for _, u := range units {
				if u.Policy != nil {
					group, _, _ = strings.Cut(u.Policy.APIVersion, "/")
				}
			}
			for _, f := range migrate.Files(units, group) {
				want["want/"+f.Name] = string(f.Data)
			}
			if text, ok := g.sections["object.yaml"]; ok {
				want["want.object.yaml"] = admit(t, want, options.Types, documents(t, text)[0])
			}
			if *update {
				g.write(t, file, want)
			} else if diff := cmp.Diff(g.wanted(), want); diff != "" {
				t.Errorf("Native() (-want +got):\n%s", diff)
			}
			agree(t, ms, units, options)
		})
	}
}

// A policy may have any number of variables for one thing: here one for each
// element that is added to a list.
func TestNativeManyVariables(t *testing.T) {
	const n = 30
	var ms []*legacy.Mutator
	for i := range n {
		name := fmt.Sprint("v", i)
		m, err := legacy.Decode(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "mutations.gatekeeper.sh/v1", "kind": "Assign", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"applyTo":    []any{map[string]any{"groups": []any{""}, "versions": []any{"v1"}, "kinds": []any{"Pod"}}},
				"location":   "spec.volumes[name: " + name + "]",
				"parameters": map[string]any{"assign": map[string]any{"value": map[string]any{"name": name}}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, m)
	}
	units := translate.Native(ms, translate.Options{})
	if len(units) != 1 || units[0].Policy == nil {
		t.Fatalf("%d units, want one with a policy", len(units))
	}
	names := map[string]bool{}
	for _, v := range units[0].Policy.Spec.Variables {
		names[v.Name] = true
	}
	if len(names) != n || !names["index"] || !names[fmt.Sprint("index", n)] {
		t.Errorf("variables %v, want %d", slices.Sorted(maps.Keys(names)), n)
	}
}

// verdicts is what became of each mutator, a line each and one for each note.
func verdicts(units []translate.Unit) string {
	var b strings.Builder
	for _, u := range units {
		for _, v := range u.Verdicts {
			fmt.Fprintf(&b, "%s: %s\n", v.ID, v.Verdict)
			for _, n := range v.Notes {
				fmt.Fprintf(&b, "  %s %s\n", n.Trap, n.Text)
			}
		}
	}
	return b.String()
}

// agree compares the units with the direct interpreter on generated objects.
func agree(t *testing.T, ms []*legacy.Mutator, units []translate.Unit, o verify.Options) {
	n := hammer.Count(100)
	v := verify.New(ms, units, o)
	v.CheckGenerated(t.Context(), verify.DefaultSeed, n)
	for _, c := range v.Comparisons() {
		if c.Invalid != "" {
			t.Errorf("%s: %s", c.Name, c.Invalid)
		} else if c.Unexpected() {
			t.Errorf("%s: %s\n%s", c.Name, migrate.Result(c), migrate.Show(c.First))
		}
	}
}

// admit creates an object on a server that has the policies of the files.
func admit(t *testing.T, files map[string]string, types *openapi.Types, obj *unstructured.Unstructured) string {
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var policies []*policy.Policy
	var bindings []*binding.Binding
	params := binding.NewMemoryParams(func(schema.GroupVersionKind) (bool, error) { return true, nil })
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasPrefix(name, "want/") {
			continue
		}
		for _, u := range documents(t, files[name]) {
			switch u.GetKind() {
			case api.PolicyKind:
				policies = append(policies, compile(t, u, policy.Deps{Env: env, Types: types}))
			case "ConfigMap":
				params.Put(u.GroupVersionKind(), u)
			default:
				bindings = append(bindings, bind(t, u))
			}
		}
	}
	ix, err := binding.NewIndex(policies, bindings, binding.Sources{Params: params, Namespaces: namespaces{}})
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(engine.Options{})
	e.Publish(engine.Policies(ix))
	kind, _ := types.Kind(obj.GroupVersionKind())
	if obj.Object, err = kind.Normalize(obj.Object); err != nil {
		t.Fatal(err)
	}
	resource, ok := types.ResourceFor(obj.GroupVersionKind())
	if !ok {
		t.Fatalf("no resource for %s", obj.GroupVersionKind())
	}
	d := e.Admit(context.Background(), &policy.Request{
		Kind: resource.Kind, Resource: resource.GVR, RequestKind: resource.Kind, RequestResource: resource.GVR,
		Name: obj.GetName(), Namespace: obj.GetNamespace(), Operation: admissionv1.Create, Object: obj,
		UserInfo: authenticationv1.UserInfo{Username: "system:serviceaccount:ci:builder"},
	})
	if d.Status != nil {
		return d.Status.Message + "\n"
	}
	return string(manifest.Encode(d.Object.Object))
}

func compile(t *testing.T, u *unstructured.Unstructured, deps policy.Deps) *policy.Policy {
	obj, err := policy.Decode(u)
	if err != nil {
		t.Fatal(err)
	}
	if errs := policy.Validate(obj, deps.Env); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	p, err := policy.Compile(obj, deps)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range policy.Warnings(p, deps.Types) {
		t.Errorf("policy %s: %s: %s", obj.Name, w.Field, w.Message)
	}
	return p
}

func bind(t *testing.T, u *unstructured.Unstructured) *binding.Binding {
	obj, err := binding.Decode(u)
	if err != nil {
		t.Fatal(err)
	}
	if errs := binding.Validate(obj); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	b, err := binding.Compile(obj)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// namespaces are all there, without labels of their own.
type namespaces struct{}

func (namespaces) Namespace(_ context.Context, name string) (*unstructured.Unstructured, error) {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"kubernetes.io/metadata.name": name}},
	}}, nil
}

// What a ConfigMap cannot have, or a policy cannot escape, stays with the mutator; all
// else has a name of its own there.
func TestRecordedLimits(t *testing.T) {
	m, err := legacy.Decode(documents(t, `
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: digests}
spec:
  applyTo:
  - {groups: [""], kinds: [Pod], versions: [v1]}
  location: spec.hostname
  parameters:
    assign:
      externalData: {provider: p, dataSource: ValueAtLocation, failurePolicy: Fail}
`)[0])
	if err != nil {
		t.Fatal(err)
	}
	many, large := map[string]string{}, map[string]string{}
	for i := range 30 {
		many[string(rune('α'+i))] = "x"
	}
	for i := range 1025 {
		large[fmt.Sprint("key", i)] = strings.Repeat("x", 1<<10)
	}
	longKeys := map[string]string{}
	for i := range 5000 {
		longKeys[strings.Repeat("k", 160)+fmt.Sprint(i)] = "x"
	}
	odd := map[string]string{}
	for _, key := range []string{"", "_", "__", ".", "..", "...", "..a", "a:b", "a_3ab", "a_5f3ab", "_5f", "_x", "_xe9_", "é", "\x00", "\n", "\\n", `"`, "$", "a/b@c"} {
		odd[key] = "value of " + key
	}
	for _, c := range []struct {
		name   string
		values map[string]string
		want   string // in the note; empty if there is a policy
	}{
		{"none", nil, "of which the snapshot has no value"},
		{"many characters", many, "have 34 different characters that keys of a ConfigMap cannot have; a policy escapes 24"},
		{"too large", large, "bytes, and a ConfigMap holds 1048576"},
		{"many long keys", longKeys, "the 5000 keys for the provider p take 1742780 bytes with managedFields, and an API server stores 1500000"},
		{"a long key", map[string]string{strings.Repeat(":", 85): "x"}, "must be no more than 253 characters"},
		{"a value of other bytes", map[string]string{"a": "\xff"}, `for the key "a" is not UTF-8`},
		{"odd keys", odd, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := translate.Options{Params: true, Recorded: translate.Recorded{"p": c.values}}
			units := translate.Native([]*legacy.Mutator{m}, o)
			v := units[0].Verdicts[0]
			if c.want != "" {
				if v.Verdict != translate.EngineOnly || units[0].Policy != nil || !strings.Contains(v.Notes[0].Text, c.want) {
					t.Errorf("%s %v, want engine-only with %q", v.Verdict, v.Notes, c.want)
				}
				return
			}
			data, _, _ := unstructured.NestedStringMap(units[0].Params.Object, "data")
			if v.Verdict != translate.Exact || len(data) != len(c.values) {
				t.Errorf("%s with %d entries for %d keys: %v", v.Verdict, len(data), len(c.values), data)
			}
			text, err := json.Marshal(o.Recorded)
			if err != nil {
				t.Fatal(err)
			}
			known, err := externaldata.ReadAnswers("odd", text)
			if err != nil {
				t.Fatal(err)
			}
			agree(t, []*legacy.Mutator{m}, units, verify.Options{Answers: known, Keys: known.Keys()})
		})
	}
}
