package convert_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/format"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/kyverno/convert"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
	"github.com/mapd-project/mapd/pkg/openapi"
	programs "github.com/mapd-project/mapd/pkg/policy"
)

var update = flag.Bool("update", false, "write the files of testdata")

// policies returns the policies of a text.
func policies(t testing.TB, text []byte) (all []*policy.Policy) {
	t.Helper()
	for d, err := range manifest.ReadStream("policy.yaml", bytes.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		p, errs := policy.Read(d)
		for _, err := range errs {
			t.Error(err)
		}
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// written is what a result has, for people: verdicts, and policies.
func written(r *convert.Result) string {
	var b strings.Builder
	for _, rule := range r.Rules {
		fmt.Fprintf(&b, "# %s: %s\n", rule.Name, rule.Verdict)
		for _, reason := range rule.Reasons {
			fmt.Fprintf(&b, "# - %s\n", reason)
		}
		if rule.Instead != "" {
			fmt.Fprintf(&b, "#   instead: %s\n", rule.Instead)
		}
	}
	for i, u := range r.Units {
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(format.Form.Encode(api.Object(u.Policy, api.NativeGroup).Object))
	}
	return b.String()
}

func environment(t *testing.T) *cel.Env {
	t.Helper()
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// Each case for test/kyverno has a file of what is written for its policy, which a server would
// take. Run with -update after a change, and read the difference.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("../../../test/cases/kyverno/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	env := environment(t)
	types := openapi.New(openapi.Builtin())
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all := policies(t, a.Files[0].Data)
			if len(all) != 1 {
				t.Fatalf("%d policies", len(all))
			}
			r := convert.Policy(all[0], convert.Options{Types: types})
			for _, u := range r.Units {
				data, err := api.JSON(api.Object(u.Policy, api.NativeGroup))
				if err != nil {
					t.Fatal(err)
				}
				if p := compile.NewPolicy(context.Background(), data, compile.New, programs.Deps{Env: env, Types: types}); p.Err != nil {
					t.Errorf("a server would refuse %s: %v", u.Name, p.Err)
				}
			}
			golden := filepath.Join("testdata", name+".yaml")
			got := written(r)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if string(want) != got {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// The verdicts that no case of test/kyverno can show.
func TestPolicy(t *testing.T) {
	const head = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: a}\nspec:\n"
	const label = "mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}"
	for name, test := range map[string]struct {
		spec   string
		want   convert.Verdict
		reason string
	}{
		"several mutations, Ignore": {"  failurePolicy: Ignore\n  rules:\n  - {name: r, match: {any: [{resources: {kinds: [Service]}}]}, " + label + "}\n" +
			"  - {name: s, match: {any: [{resources: {kinds: [Service]}}]}, " + label + "}\n", convert.Differs, "Kyverno undoes all rules"},
		"one mutation, Ignore": {"  failurePolicy: Ignore\n  rules:\n  - {name: r, match: {any: [{resources: {kinds: [Service]}}]}, " + label + "}\n", convert.Exact, ""},
		"roles":                {"  rules:\n  - {name: r, match: {any: [{resources: {kinds: [Service]}, clusterRoles: [a]}]}, " + label + "}\n", convert.Needs, "looks up the user's bindings"},
		"targets":              {"  rules:\n  - {name: r, match: {any: [{resources: {kinds: [Service]}}]}, mutate: {targets: [{kind: Pod}], patchStrategicMerge: {a: b}}}\n", convert.Refused, "objects that exist already"},
		"wildcard kind":        {"  rules:\n  - {name: r, match: {any: [{resources: {kinds: ['Ser*']}}]}, " + label + "}\n", convert.Refused, "stands for kinds"},
		"every kind beside one": {"  rules:\n  - {name: r, match: {any: [{resources: {kinds: ['*']}}]}, " + label + "}\n" +
			"  - {name: s, match: {any: [{resources: {kinds: [Service]}}]}, " + label + "}\n", convert.Refused, "their order would be lost"},
		"unknown kind":  {"  rules:\n  - {name: r, match: {any: [{resources: {kinds: [Unknown]}}]}, " + label + "}\n", convert.Refused, "is not known"},
		"unknown field": {"  rules:\n  - {name: r, match: {any: [{resources: {kinds: [Service]}}]}, mutate: {patchStrategicMerge: {spec: {typo: b}}}}\n", convert.Refused, "no field spec.typo"},
		"apply one": {"  applyRules: One\n  rules:\n  - {name: r, match: {any: [{resources: {kinds: [Service]}}]}, " + label + "}\n" +
			"  - {name: s, match: {any: [{resources: {kinds: [Service]}}]}, " + label + "}\n", convert.Refused, "applyRules: One"},
		"function":        {"  rules:\n  - {name: r, match: {any: [{resources: {kinds: [Service]}}]}, mutate: {patchStrategicMerge: {metadata: {labels: {a: \"{{ random('a') }}\"}}}}}\n", convert.Refused, "the function random() has no translation"},
		"case of letters": {"  rules:\n  - {name: r, match: {any: [{resources: {kinds: [Service]}}]}, mutate: {patchStrategicMerge: {metadata: {labels: {a: \"{{ to_upper(request.object.metadata.name) }}\"}}}}}\n", convert.Differs, "changes the case of all letters, the policy that of A to Z"},
		"context":         {"  rules:\n  - {name: r, context: [{name: c, configMap: {name: x, namespace: z}}], match: {any: [{resources: {kinds: [Service]}}]}, mutate: {patchStrategicMerge: {metadata: {labels: {a: \"{{ c.data.x }}\"}}}}}\n", convert.Exact, ""},
		"two ConfigMaps": {"  rules:\n  - {name: r, context: [{name: c, configMap: {name: x, namespace: z}}, {name: d, configMap: {name: other}}], match: {any: [{resources: {kinds: [Service]}}]}, " +
			"mutate: {patchStrategicMerge: {metadata: {labels: {a: \"{{ c.data.x }}{{ d.data.x }}\"}}}}}\n", convert.Refused, "two ConfigMaps"},
		"variable ConfigMap": {"  rules:\n  - {name: r, context: [{name: c, configMap: {name: \"{{request.name}}\", namespace: z}}], match: {any: [{resources: {kinds: [Service]}}]}, " +
			"mutate: {patchStrategicMerge: {metadata: {labels: {a: \"{{ c.data.x }}\"}}}}}\n", convert.Needs, "whose name has a variable"},
		"ConfigMap and conditions": {"  rules:\n  - {name: r, context: [{name: c, configMap: {name: x}}], match: {any: [{resources: {kinds: [Service], names: [a]}}]}, " +
			"mutate: {patchStrategicMerge: {metadata: {labels: {a: \"{{ c.data.x }}\"}}}}}\n", convert.Differs, "a server refuses all objects of the kind"},
		"unused": {"  rules:\n  - {name: r, context: [{name: c, configMap: {name: x, namespace: z}}], match: {any: [{resources: {kinds: [Service]}}]}, " + label + "}\n", convert.Exact, ""},
	} {
		t.Run(name, func(t *testing.T) {
			all := policies(t, []byte(head+test.spec))
			if len(all) != 1 {
				t.Fatalf("%d policies", len(all))
			}
			rule := convert.Policy(all[0], convert.Options{Types: builtin}).Rules[0]
			if rule.Verdict != test.want || !strings.Contains(strings.Join(rule.Reasons, "; "), test.reason) {
				t.Errorf("%s, %q; want %s, %q", rule.Verdict, rule.Reasons, test.want, test.reason)
			}
		})
	}
}

// A MutatingPolicy is renamed; its match conditions cannot use variables on a server.
func TestCELPolicy(t *testing.T) {
	const text = `apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: a}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: c, expression: "variables.second && true"}]
  variables:
  - {name: first, expression: has(object.metadata.labels)}
  - {name: second, expression: "!variables.first"}
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[]"}}]
`
	r := convert.Policy(policies(t, []byte(text))[0], convert.Options{Types: builtin})
	if len(r.Units) != 3 {
		t.Fatalf("%+v", r.Rules)
	}
	if got, want := r.Units[0].Policy.Spec.MatchConditions[0].Expression, "(!(has(object.metadata.labels))) && true"; got != want {
		t.Errorf("match condition %s, want %s", got, want)
	}
	// A block of YAML ends with the end of a line.
	block := strings.NewReplacer(`expression: "[]"`, `expression: "[]\n"`, "has(object.metadata.labels)", `"has(object.metadata.labels) \n"`).Replace(text)
	if r := convert.Policy(policies(t, []byte(block))[0], convert.Options{Types: builtin}); r.Units[0].Policy.Spec.Mutations[0].JSONPatch.Expression != "[]" || r.Units[1].Policy.Spec.Variables[0].Expression != "has(object.spec.template.metadata.labels)" {
		t.Errorf("%+v", r.Units[1].Policy.Spec)
	}
	// Neither a server nor Kyverno takes a list with elements of several types.
	refuses := func(p *admissionregistrationv1.MutatingAdmissionPolicy) error {
		_, err := programs.Compile(p, programs.Deps{Env: environment(t), Types: builtin})
		return err
	}
	mixed := strings.Replace(text, `expression: "[]"`, `expression: "[1, 'a'].size() == 2 ? [] : []"`, 1)
	if rule := convert.Policy(policies(t, []byte(mixed))[0], convert.Options{Types: builtin, Check: refuses}).Rules[0]; rule.Converted() || !strings.Contains(rule.Instead, "dyn()") {
		t.Errorf("%+v", rule)
	}
	// A server has no namespaceObject in match conditions.
	namespace := strings.Replace(text, "variables.second && true", "namespaceObject.metadata.name != 'a'", 1)
	spec := convert.Policy(policies(t, []byte(namespace))[0], convert.Options{Types: builtin}).Units[0].Policy.Spec
	if got, want := spec.Mutations[0].JSONPatch.Expression, "(namespaceObject.metadata.name != 'a') ? ([]) : []"; got != want || len(spec.MatchConditions) > 0 {
		t.Errorf("mutation %s, want %s; %d match conditions", got, want, len(spec.MatchConditions))
	}
	several := strings.Replace(strings.Replace(namespace, "!= 'a'", "!= object.metadata.name", 1), "mutations: [", `mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[]"}}, `, 1)
	if r := convert.Policy(policies(t, []byte(several))[0], convert.Options{Types: builtin}); r.Rules[0].Verdict != convert.Refused || !strings.Contains(r.Rules[0].Reasons[0], "c uses the object") {
		t.Errorf("%+v", r.Rules[0])
	}
	library := strings.Replace(text, `expression: "[]"`, `expression: "[JSONPatch{op: \"add\", path: \"/x\", value: resource.Get(\"v1\", \"pods\", \"a\", \"b\")}]"`, 1)
	r = convert.Policy(policies(t, []byte(library))[0], convert.Options{Types: builtin})
	if rule := r.Rules[0]; rule.Verdict != convert.Needs || !strings.Contains(rule.Reasons[0], "the library resource") {
		t.Errorf("%+v", rule)
	}
}

// Kyverno makes policies for the controllers of Pods of a MutatingPolicy.
func TestCELAutogen(t *testing.T) {
	const text = `apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: a}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: c, expression: "object.metadata.name != request.name && has(object.spec.nodeName)"}]
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{hostNetwork: object.spec.hostPID}}"}}]
`
	r := convert.Policy(policies(t, []byte(text))[0], convert.Options{Types: builtin})
	if len(r.Units) != 3 || r.Rules[0].Verdict != convert.Exact {
		t.Fatalf("%+v", r.Rules)
	}
	spec := r.Units[1].Policy.Spec
	if got, want := spec.MatchConditions[0].Expression, "object.metadata.name != request.name && has(object.spec.template.spec.nodeName)"; got != want {
		t.Errorf("match condition %s, want %s", got, want)
	}
	got := strings.Join(strings.Fields(spec.Mutations[0].ApplyConfiguration.Expression), "")
	if want := "Object{spec:Object.spec{template:Object.spec.template{spec:Object.spec.template.spec{hostNetwork:object.spec.template.spec.hostPID}}}}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := r.Units[2].Policy.Spec.MatchConstraints.ResourceRules; len(got) != 1 || got[0].Resources[0] != "cronjobs" {
		t.Errorf("%+v", got)
	}
	for change, want := range map[string]struct {
		units  int
		reason string
	}{
		"spec:\n  autogen: {podControllers: {controllers: []}}":             {1, ""},
		"spec:\n  autogen: {podControllers: {controllers: [deployments]}}":  {2, ""},
		"spec:\n  autogen: {podControllers: {controllers: [jobsets.v1.x]}}": {0, "autogen for jobsets.v1.x"},
		"spec:\n  failurePolicy: Fail":                                      {3, ""},
	} {
		r := convert.Policy(policies(t, []byte(strings.Replace(text, "spec:", change, 1)))[0], convert.Options{Types: builtin})
		if reasons := strings.Join(r.Rules[0].Reasons, "; "); len(r.Units) != want.units || !strings.Contains(reasons, want.reason) {
			t.Errorf("%s: %d policies, %s", change, len(r.Units), reasons)
		}
	}
	// A JSON patch of another field of the metadata belongs to the object.
	patch := strings.Replace(text, `{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{hostNetwork: object.spec.hostPID}}"}}`,
		`{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/metadata/finalizers/-", value: "x"}]'}}`, 1)
	r = convert.Policy(policies(t, []byte(patch))[0], convert.Options{Types: builtin})
	if len(r.Units) != 0 || r.Rules[0].Verdict != convert.Refused {
		t.Errorf("%+v", r.Rules)
	}
}

// Kyverno's own ConfigMap leaves out ReplicaSets.
func TestReplicaSets(t *testing.T) {
	const label = "mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}"
	cel := "apiVersion: policies.kyverno.io/v1\nkind: MutatingPolicy\nmetadata: {name: a}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n" +
		"  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: \"Object{spec: Object.spec{hostNetwork: true}}\"}}]\n"
	rules := "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: a}\nspec:\n  rules:\n  - {name: r, match: {any: [{resources: {kinds: [Pod]}}]}, " + label + "}\n"
	for i, text := range []string{cel, rules, strings.Replace(rules, "{name: a}", "{name: a, annotations: {pod-policies.kyverno.io/autogen-controllers: all}}", 1)} {
		r := convert.Policy(policies(t, []byte(text))[0], convert.Options{Types: builtin})
		if want := []int{3, 1, 1}[i]; len(r.Units) != want || r.Rules[0].Verdict != convert.Exact {
			t.Errorf("%d policies, %+v", len(r.Units), r.Rules)
		}
		for _, u := range r.Units {
			for _, rule := range u.Policy.Spec.MatchConstraints.ResourceRules {
				if slices.Contains(rule.Resources, "replicasets") {
					t.Errorf("%s is for %v", u.Name, rule.Resources)
				}
			}
		}
	}
	named := strings.Replace(rules, "kinds: [Pod]", "kinds: [ReplicaSet]", 1)
	r := convert.Policy(policies(t, []byte(named))[0], convert.Options{Types: builtin})
	if r.Rules[0].Verdict != convert.Differs || !strings.Contains(r.Rules[0].Reasons[0], "resourceFilters") {
		t.Errorf("%+v", r.Rules[0])
	}
}

// policyWith returns a policy with one rule for Pods.
func policyWith(mutate map[string]any, precondition string) (*policy.Policy, error) {
	rule := map[string]any{
		"name": "r", "match": map[string]any{"any": []any{map[string]any{"resources": map[string]any{"kinds": []any{"Pod"}}}}}, "mutate": mutate,
	}
	if precondition != "" {
		rule["preconditions"] = map[string]any{"all": []any{map[string]any{"key": precondition, "operator": "Equals", "value": "x"}}}
	}
	return policy.Decode(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": map[string]any{"name": "a"},
		"spec": map[string]any{"rules": []any{rule}},
	}})
}

// convertible converts a policy and checks that every written expression can be parsed.
func convertible(t *testing.T, p *policy.Policy) {
	t.Helper()
	r := convert.Policy(p, convert.Options{Types: builtin})
	if len(r.Rules) != 1 {
		t.Fatalf("%d rules", len(r.Rules))
	}
	if rule := r.Rules[0]; rule.Converted() == (len(r.Units) == 0) || !rule.Converted() && len(rule.Reasons) == 0 {
		t.Errorf("%d policies for %+v", len(r.Units), rule)
	}
	for _, u := range r.Units {
		for _, m := range u.Policy.Spec.Mutations {
			text := ""
			if m.JSONPatch != nil {
				text = m.JSONPatch.Expression
			} else {
				text = m.ApplyConfiguration.Expression
			}
			if _, err := syntax.Format(t.Context(), text); err != nil {
				t.Errorf("%v: %s", err, text)
			}
		}
	}
}

var builtin = openapi.New(openapi.Builtin())

func FuzzVariable(f *testing.F) {
	for _, text := range []string{
		"{{ request.object.metadata.name }}", "a {{request.namespace}} b", "{{ request.object.metadata.labels.a || 'x' }}",
		"{{ request.object.spec.volumes[?hostPath].name | length(@) }}", "{{ join(',', request.object.spec.containers[].name) }}",
		"{{ replace_all('{{request.object.metadata.name}}', 'a', 'b') }}", "{{ {{ }}", "{{ element.x }}", "$(./a)", `{{ images.containers."{{request.name}}".tag || 'x' }}`, "{{ images.*.*.path | [0] }}", "{{ request.object.spec.volumes[?projected].name[?starts_with(@, 'a')] | [-1] || '' }}",
		"{{ request.userInfo.{a: groups, b: username} | to_string(@) }}", "{{ merge(request.object.metadata.labels, {a: null}) }}", "{{ parse_yaml(request.name).a }}", "{{ add(`1`, multiply(`2`, elementIndex)) }}", `{{ request.object.metadata.annotations."a/b" || "" }}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := policyWith(map[string]any{"patchStrategicMerge": map[string]any{"metadata": map[string]any{"labels": map[string]any{"x": text}}}}, text)
		if err != nil {
			return
		}
		convertible(t, p)
	})
}

func FuzzOverlay(f *testing.F) {
	for _, text := range []string{
		`{"metadata": {"+(labels)": {"a": "b"}}}`, `{"spec": {"containers": [{"(name)": "*", "env": [{"name": "A", "value": "1"}]}]}}`,
		`{"spec": {"volumes": [{"<(emptyDir)": {}}], "nodeSelector": {"a": "b"}}}`, `{"spec": {"=(hostNetwork)": true}}`, `{"spec": {"containers": []}}`,
		`{"spec": {"containers": [{"(image)": "a|b"}]}, "metadata": {"annotations": {"(x)": "y*"}}}`, `{"spec": null}`, `{"a": 1.5}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var patch map[string]any
		if json.Unmarshal([]byte(text), &patch) != nil {
			return
		}
		p, err := policyWith(map[string]any{"patchStrategicMerge": patch}, "")
		if err != nil {
			return
		}
		convertible(t, p)
	})
}

func FuzzJSONPatch(f *testing.F) {
	f.Add("- {op: add, path: /spec/nodeSelector/a~1b, value: x}")
	f.Add("- {op: remove, path: /spec/containers/0/env}\n- {op: replace, path: /spec/hostname, value: \"{{request.object.metadata.name}}\"}")
	f.Add("- {op: add, path: /spec/containers/-1/env/-1, value: {name: a}}\n- {op: remove, path: /spec/volumes/7}\n- {op: add, path: '/metadata/labels/{{request.name}}', value: a}")
	f.Add("- op: add\n  path: /spec/tolerations/-\n  value: {a: 1, b: [x]}")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := policyWith(map[string]any{"patchesJson6902": text}, "")
		if err != nil {
			return
		}
		convertible(t, p)
	})
}

// An expression that doubles with each step is refused; written out, none of these would end.
func TestGrowth(t *testing.T) {
	for _, text := range []string{
		"{{ request.object.metadata.name" + strings.Repeat(" || 'a'", 400) + " }}",
		"{{ images.containers.web.tag" + strings.Repeat(" || 'a'", 400) + " }}",
		"{{ " + strings.Repeat("trim_prefix(", 200) + "request.namespace" + strings.Repeat(", 'a')", 200) + " }}",
		"{{ " + strings.Repeat("!", 3000) + "request.namespace }}",
		"{{ request.object.spec.containers[].name" + strings.Repeat("[?@]", 300) + " }}",
	} {
		p, err := policyWith(map[string]any{"patchStrategicMerge": map[string]any{"metadata": map[string]any{"labels": map[string]any{"x": text}}}}, text)
		if err != nil {
			t.Fatal(err)
		}
		if r := convert.Policy(p, convert.Options{Types: builtin}); r.Rules[0].Converted() {
			t.Errorf("%.60s: %s", text, r.Rules[0].Verdict)
		}
	}
}

// What is not known for certain is said, and no text is blamed for what it does not have.
func TestReasons(t *testing.T) {
	for _, tt := range []struct{ kind, label, verdict, reason string }{
		{"example.com/v1/Widget", "x", "differs", "the resource widgets, with namespaces, is guessed"},
		{"Pod", "{{ request.object.[", "refused", "a {{ without its }}"},
		{"Pod", "x", "exact", ""},
	} {
		text := fmt.Sprintf("{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: a}, spec: {rules: [{name: r, match: {any: [{resources: {kinds: [%q]}}]}, mutate: {patchStrategicMerge: {metadata: {labels: {a: %q}}}}}]}}", tt.kind, tt.label)
		rule := convert.Policy(policies(t, []byte(text))[0], convert.Options{Types: builtin}).Rules[0]
		if got := strings.Join(rule.Reasons, "; "); string(rule.Verdict) != tt.verdict || !strings.HasPrefix(got, tt.reason) || (tt.reason == "") != (got == "") {
			t.Errorf("%s, %s: %s: %s", tt.kind, tt.label, rule.Verdict, got)
		}
	}
}
