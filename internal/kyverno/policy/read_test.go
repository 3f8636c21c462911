package policy_test

import (
	"strings"
	"testing"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

// read returns the policies of a text and all errors in it.
func read(t testing.TB, text string) (all []*policy.Policy, errs []string) {
	t.Helper()
	for d, err := range manifest.ReadStream("p.yaml", strings.NewReader(text)) {
		if err != nil {
			errs = append(errs, err.Error())
			continue
		}
		if d.Object == nil || !policy.Is(d.Object.GroupVersionKind()) {
			continue
		}
		p, found := policy.Read(d)
		for _, err := range found {
			errs = append(errs, err.Error())
		}
		if p != nil {
			all = append(all, p)
		}
	}
	return all, errs
}

const whole = `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: whole}
spec:
  background: false
  rules:
  - name: first
    match:
      any:
      - resources: {kinds: [Pod], selector: {matchLabels: {app: web}}}
        subjects: [{kind: User, name: alice}]
    exclude:
      resources: {namespaces: [kube-*]}
    preconditions:
    - {key: "{{ request.operation }}", operator: Equals, value: CREATE}
    mutate:
      foreach:
      - list: request.object.spec.containers
        order: Descending
        preconditions: {all: [{key: a, operator: In, value: [a]}]}
        foreach:
        - list: element.env
          patchesJson6902: "- {op: remove, path: /x}"
  - name: second
    match: {resources: {kinds: [Pod]}}
    validate: {message: no, pattern: {spec: {x: "?*"}}}
`

func TestRead(t *testing.T) {
	all, errs := read(t, whole)
	if len(all) != 1 || errs != nil {
		t.Fatalf("%d policies, %q", len(all), errs)
	}
	p := all[0]
	if got := p.ID(); got != "ClusterPolicy/whole" {
		t.Errorf("ID %s", got)
	}
	first, second := p.Rules.Rules[0], p.Rules.Rules[1]
	if first.Does() != "mutate" || second.Does() != "validate" {
		t.Errorf("rules do %s and %s", first.Does(), second.Does())
	}
	if got := first.Match.Any[0].Resources.Kinds; len(got) != 1 || got[0] != "Pod" {
		t.Errorf("kinds %v", got)
	}
	if got := first.Exclude.Resources.Namespaces; len(got) != 1 || got[0] != "kube-*" {
		t.Errorf("excluded namespaces %v", got)
	}
	if got := first.Preconditions.All[0].Operator; got != "Equals" {
		t.Errorf("a list of preconditions has the operator %q", got)
	}
	if got := first.Mutate.ForEach[0].ForEach[0].List; got != "element.env" {
		t.Errorf("nested list %q", got)
	}
}

func TestReadCELPolicy(t *testing.T) {
	all, errs := read(t, `apiVersion: policies.kyverno.io/v1alpha1
kind: NamespacedMutatingPolicy
metadata: {name: a, namespace: shop}
spec:
  evaluation: {mutateExisting: {enabled: true}}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[]"}
`)
	if len(all) != 1 || errs != nil {
		t.Fatalf("%d policies, %q", len(all), errs)
	}
	if p := all[0]; p.CEL == nil || p.ID() != "NamespacedMutatingPolicy/shop/a" || len(p.CEL.Mutations) != 1 {
		t.Errorf("read as %+v", p)
	}
}

func TestErrorsHavePlaces(t *testing.T) {
	for _, test := range []struct{ name, from, to, want string }{
		{"field of a rule", "    preconditions:\n", "    precondition:\n",
			`p.yaml: document 1, line 14, column 5: ClusterPolicy whole: unknown field "spec.rules[0].precondition"; did you mean preconditions?`},
		{"field of a filter", "kinds: [Pod], selector", "kind: [Pod], selector",
			`p.yaml: document 1, line 10, column 21: ClusterPolicy whole: unknown field "spec.rules[0].match.any[0].resources.kind"; did you mean kinds?`},
		{"field of a condition in the old form", "operator: Equals", "op: Equals",
			`p.yaml: document 1, line 15, column 40: ClusterPolicy whole: unknown field "spec.rules[0].preconditions[0].op"`},
		{"type", "list: element.env", "list: [a]",
			`p.yaml: document 1, line 22, column 17: ClusterPolicy whole: spec.rules[0].mutate.foreach[0].foreach[0].list: must be a string, not a list`},
		{"two ways", "patchesJson6902", "patchesJson69O2",
			`p.yaml: document 1, line 23, column 11: ClusterPolicy whole: unknown field "spec.rules[0].mutate.foreach[0].foreach[0].patchesJson69O2"; did you mean patchesJson6902?`},
		{"version", "kyverno.io/v1\n", "kyverno.io/v3\n",
			`p.yaml: document 1, line 1, column 13: ClusterPolicy whole: apiVersion: Kyverno serves ClusterPolicy in v1, v2beta1, not in v3`},
		{"name of a rule", "name: second", "name: first",
			`p.yaml: document 1, line 24, column 11: ClusterPolicy whole: spec.rules[1].name: the policy has another rule first`},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := strings.Replace(whole, test.from, test.to, 1)
			if text == whole {
				t.Fatal("the test changes nothing")
			}
			if _, errs := read(t, text); len(errs) != 1 || errs[0] != test.want {
				t.Errorf("got  %q\nwant %q", errs, test.want)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	nested := "patchesJson6902: x"
	for range policy.MaxNesting + 1 {
		nested = "foreach: [{list: a, " + nested + "}]"
	}
	deep := strings.Repeat("{a: ", policy.MaxDepth+2) + "1" + strings.Repeat("}", policy.MaxDepth+2)
	many := func(n int, text string) string { return strings.Repeat(text+", ", n) + text }
	for name, mutate := range map[string]string{
		"2004 values; at":   "patchStrategicMerge: {metadata: {finalizers: [" + many(policy.MaxValues, "a") + "]}}",
		"501 parts; at":     "foreach: [" + many(policy.MaxParts, "{list: a, patchStrategicMerge: {b: c}}") + "]",
		"501 kinds, with":   "patchStrategicMerge: {a: b}",
		"2001 values; at":   "patchStrategicMerge: {b: c}",
		"nested more than":  nested,
		"levels deep":       "patchStrategicMerge: " + deep,
		"needs one of":      "{}",
		"must be an object": "patchStrategicMerge: [a]",
	} {
		text := "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: a}\nspec: {rules: [{name: b, match: {any: [{resources: {kinds: [Pod]}}]}, mutate: {" + strings.Trim(mutate, "{}") + "}}]}\n"
		if name != "needs one of" && name != "levels deep" {
			text = strings.Replace(text, strings.Trim(mutate, "{}"), mutate, 1)
		}
		if name == "501 kinds, with" {
			text = strings.Replace(text, "[Pod]", "["+many(policy.MaxKinds, "Pod")+"]", 1)
		}
		if name == "2001 values; at" {
			text = strings.Replace(text, "mutate:", "preconditions: [{key: a, operator: AnyIn, value: ["+many(policy.MaxValues-2, "a")+"]}], mutate:", 1)
		}
		if name == "levels deep" {
			text = strings.Replace(text, strings.Trim(mutate, "{}"), mutate, 1)
		}
		if _, errs := read(t, text); len(errs) == 0 || !strings.Contains(strings.Join(errs, "\n"), name) {
			t.Errorf("%s: %q", name, errs)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(whole)
	f.Add(strings.Replace(whole, "kinds", "kind", 1))
	f.Add("apiVersion: policies.kyverno.io/v1\nkind: MutatingPolicy\nmetadata: {name: a}\nspec: {mutations: [{patchType: x}]}\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, errs := read(t, text)
		for _, p := range all {
			if p.Name == "" || (p.Rules == nil) == (p.CEL == nil) {
				t.Errorf("read as %+v, %q", p, errs)
			}
		}
	})
}
