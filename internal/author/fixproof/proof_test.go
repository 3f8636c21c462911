package fixproof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

func options() lint.Options {
	return lint.Options{Oldest: lint.CurrentMinor, Newest: lint.CurrentMinor, Prove: new(Prover).Prove}
}

const head = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  failurePolicy: %s
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [%s]}
`

// An opt-out stays one: where the label is missing, the policy applies.
func TestOptOut(t *testing.T) {
	const policy = `  matchConditions:
  - name: opt-out
    # on purpose
    expression: |-
      %s
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{spec: Object.spec{automountServiceAccountToken: false}}'
`
	for condition, applies := range map[string][3]bool{ // without labels, with another one, with "true"
		`object.metadata.labels.skip != "true"`:                                                        {true, true, false},
		`!(object.metadata.labels.skip == "true")`:                                                     {true, true, false},
		`object.metadata.labels["skip"] == "true"`:                                                     {false, false, true},
		`object.metadata.name == "none" || object.metadata.labels.skip != "true"`:                      {true, true, false},
		`object.metadata.labels.skip != "true" && object.metadata.annotations["example.com/x"] != "y"`: {true, true, false},
	} {
		before := fmt.Sprintf(head, "Fail", "pods") + fmt.Sprintf(policy, condition)
		fixed, err := lint.Fix(t.Context(), []lint.Source{{Name: "p.yaml", Data: []byte(before)}}, options())
		if err != nil {
			t.Fatal(err)
		}
		if len(fixed) != 1 || !strings.Contains(string(fixed[0].Data), "# on purpose") {
			t.Errorf("%s: %d files are fixed", condition, len(fixed))
			continue
		}
		policies := loaded(t, fixed[0].Data)
		for i, labels := range []string{"", ", labels: {a: b}", `, labels: {skip: "true"}`} {
			r := evaluated(t, policies, "apiVersion: v1\nkind: Pod\nmetadata: {name: web"+labels+"}\nspec: {containers: [{name: a, image: b}]}\n")
			if r.Denied() || r.Changed() != applies[i] {
				t.Errorf("%s: %d: denied %t, changed %t\n%s", condition, i, r.Denied(), r.Changed(), fixed[0].Data)
			}
		}
	}
}

// Where what holds without the field is for the author to say, there is no fix, and nothing
// that a mutation sets is lost.
func TestAdvice(t *testing.T) {
	for _, mutation := range []string{
		`Object{metadata: Object.metadata{labels: {"team": object.metadata.labels.owner}}, spec: Object.spec{automountServiceAccountToken: false}}`,
		`Object{spec: Object.spec{hostname: object.spec.nodeName, automountServiceAccountToken: false}}`,
		`object.spec.securityContext.runAsUser == 0 ? Object{} : Object{spec: Object.spec{automountServiceAccountToken: false}}`,
	} {
		text := fmt.Sprintf(head, "Fail", "pods") + "  mutations:\n  - patchType: ApplyConfiguration\n    applyConfiguration:\n      expression: |-\n        " + mutation + "\n"
		sources := []lint.Source{{Name: "p.yaml", Data: []byte(text)}}
		r, err := lint.Run(t.Context(), sources, options())
		if err != nil {
			t.Fatal(err)
		}
		fixed, err := lint.Fix(t.Context(), sources, options())
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Findings) == 0 || r.Findings[0].Fixable || r.Findings[0].NotFixed != "" || len(fixed) > 0 {
			t.Errorf("%s: %d findings, %d files fixed", mutation, len(r.Findings), len(fixed))
		}
	}
}

// A resource that is put right in a rule that leaves objects out takes a result away.
func TestRefused(t *testing.T) {
	text := fmt.Sprintf(head, "Fail", "pods") + `    excludeResourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [Pod]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"a": "b"}}}'
`
	opts := options()
	opts.Only = []string{"unknown-resource"}
	r, err := lint.Run(t.Context(), []lint.Source{{Name: "p.yaml", Data: []byte(text)}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) != 1 || r.Findings[0].Fixable || r.Findings[0].NotFixed != "CREATE of Pod default/web would fail or not be matched, and is not now" {
		t.Errorf("%+v", r.Findings)
	}
}

// TestRandomFixes fixes random policies, whose parts every rule with a fix finds something in,
// and runs them before and after on random objects: the same result wherever there was one.
// What is called fixable is fixed, what is not is not, and a second time fixes nothing.
func TestRandomFixes(t *testing.T) {
	count := hammer.Count(10)
	fixable, made, rules, shown := 0, 0, map[string]int{}, 0
	for seed := range count {
		r := rand.New(rand.NewPCG(23, uint64(seed)))
		text := randomPolicy(r)
		sources := []lint.Source{{Name: "p.yaml", Data: []byte(text)}}
		opts := options()
		found, err := lint.Run(t.Context(), sources, opts)
		if err != nil {
			t.Fatal(err)
		}
		invalid := false
		said := map[string]bool{}
		for _, f := range found.Findings {
			invalid = invalid || f.Rule == "invalid"
			if f.Fixable {
				fixable++
				said[f.Field+f.Message] = true
			}
			if f.Fixable && f.NotFixed != "" {
				t.Errorf("seed %d: %s is fixable and not", seed, f.Message)
			}
		}
		if invalid {
			t.Fatalf("seed %d: the policy is invalid: %s\n%s", seed, found.Findings[0].Render(), text)
		}
		fixed, err := lint.Fix(t.Context(), sources, opts)
		if err != nil {
			t.Fatal(err)
		}
		if len(fixed) == 0 {
			if len(said) > 0 {
				t.Errorf("seed %d: %d fixable, none is fixed\n%s", seed, len(said), text)
			}
			continue
		}
		for _, f := range fixed[0].Mended {
			made++
			rules[f.Rule]++
		}
		again, err := lint.Run(t.Context(), []lint.Source{fixed[0].Source}, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range again.Findings {
			if f.Fixable || said[f.Field+f.Message] {
				t.Errorf("seed %d: after --fix there is still %s\n%s", seed, f.Render(), fixed[0].Data)
			}
		}
		was, is := loaded(t, []byte(text)), loaded(t, fixed[0].Data)
		for range 60 {
			object := randomObject(r)
			old, now := evaluated(t, was, object), evaluated(t, is, object)
			if !gives(old.Decision) {
				continue
			}
			shown++
			if !gives(now.Decision) || !tree.Equal(old.Object(), now.Object()) {
				t.Fatalf("seed %d: another result\n%s\n---\n%s\n---\n%s", seed, text, fixed[0].Data, object)
			}
		}
	}
	t.Logf("%d fixable, %d fixes made %v, %d results compared", fixable, made, rules, shown)
	for _, rule := range lint.Rules() {
		if rule.Fixes && rules[rule.Name] == 0 {
			t.Errorf("no random policy has a fix of %s", rule.Name)
		}
	}
	if shown == 0 {
		t.Error("no random object has a result")
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func randomPolicy(r *rand.Rand) string {
	selection := func() string {
		return pick(r, `object.metadata.labels.skip`, `object.metadata.labels["example.com/a"]`, `object.metadata.annotations['x']`, `object.metadata.namespace`, `object.metadata.generateName`)
	}
	condition := func(depth int) string {
		if depth > 0 && r.IntN(3) > 0 {
			return pick(r, "(%s) && (%s)", "(%s) || (%s)", "!(%s) || (%s)", "(%s) ? (%s) : true")
		}
		return pick(r, `%s != "%s"`, `%s == "%s"`, `"%[2]s" == %[1]s`, `!(%s == "%s")`, `%s.startsWith("%s")`, `has(object.metadata.labels) && %s != "%s"`, `%s in ["a", "%s"]`)
	}
	var expand func(depth int) string
	expand = func(depth int) string {
		f := condition(depth)
		if strings.Contains(f, "(%s)") && depth > 0 && !strings.Contains(f, "==") && !strings.Contains(f, "startsWith") {
			return fmt.Sprintf(f, expand(depth-1), expand(depth-1))
		}
		return fmt.Sprintf(f, selection(), pick(r, "true", "x", "b", ""))
	}
	var b strings.Builder
	fmt.Fprintf(&b, head, pick(r, "Fail", "Ignore"), pick(r, "pods", "Pod", "configmaps", "pods, ConfigMap"))
	if r.IntN(4) == 0 {
		fmt.Fprintf(&b, "    excludeResourceRules:\n    - {apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [%s]}\n", pick(r, "Pod", "pods", "Secret"))
	}
	if r.IntN(4) > 0 {
		b.WriteString("  matchConditions:\n")
		for i := range 1 + r.IntN(2) {
			fmt.Fprintf(&b, "  - name: c%d\n    expression: |-\n      %s\n", i, expand(2))
		}
	}
	b.WriteString("  variables:\n")
	fmt.Fprintf(&b, "  - {name: a, expression: '1'}\n  - {name: b, expression: 'variables.a + 1'}\n  - {name: key, expression: '\"%s\"'}\n", pick(r, "example.com/team", "plain"))
	fmt.Fprintf(&b, "  - name: asked\n    expression: |-\n      %s\n", expand(1))
	b.WriteString("  mutations:\n")
	for range 1 + r.IntN(2) {
		if r.IntN(2) == 0 {
			fmt.Fprintf(&b, "  - patchType: ApplyConfiguration\n    applyConfiguration:\n      expression: |-\n        %s ? Object{metadata: Object.metadata{labels: {\"team\": %s}}} : Object{metadata: Object.metadata{annotations: {\"other\": \"x\"}}}\n",
				pick(r, "variables.asked", "("+expand(1)+")"), pick(r, `"a"`, selection(), "string(variables.b)"))
			continue
		}
		fmt.Fprintf(&b, "  - patchType: JSONPatch\n    jsonPatch:\n      expression: |-\n        has(object.metadata.labels) ? [JSONPatch{op: \"add\", path: %s, value: \"v\"}] : []\n",
			pick(r, `"/metadata/labels/" + variables.key`, `"/metadata/labels/example.com/team"`, `"/metadata/labels/" + jsonpatch.escapeKey(variables.key)`, `"/metadata/labels/plain"`))
	}
	return b.String()
}

func randomObject(r *rand.Rand) string {
	meta := "name: web"
	values := func() string { return pick(r, `"true"`, "x", "b", `""`, "xyz") }
	for _, field := range []string{"labels", "annotations"} {
		switch r.IntN(3) {
		case 0:
			meta += fmt.Sprintf(", %s: {a: b}", field)
		case 1:
			meta += fmt.Sprintf(", %s: {skip: %s, example.com/a: %s, x: %s}", field, values(), values(), values())
		}
	}
	if r.IntN(2) == 0 {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {" + meta + "}\n"
	}
	return "apiVersion: v1\nkind: Pod\nmetadata: {" + meta + "}\nspec: {containers: [{name: a, image: b}]}\n"
}

func loaded(t *testing.T, text []byte) *mapd.Policies {
	t.Helper()
	p, err := load(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

func evaluated(t *testing.T, p *mapd.Policies, object string) *mapd.Result {
	t.Helper()
	for d, err := range mapd.Read("object.yaml", strings.NewReader(object)) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Eval(t.Context(), d, mapd.RequestOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Fatal("no object")
	return nil
}

// A Prover remembers, and does not remember what a request that ended did not find out.
func TestProver(t *testing.T) {
	var p Prover
	var objects []map[string]any
	for _, label := range []string{"a", "b"} {
		text := fmt.Sprintf(head, "Fail", "pods") + "  mutations:\n  - patchType: ApplyConfiguration\n    applyConfiguration:\n      expression: 'Object{metadata: Object.metadata{labels: {\"x\": \"" + label + "\"}}}'\n"
		for d, err := range mapd.Read("p.yaml", strings.NewReader(text)) {
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, d.Object().Object)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Prove(ended, objects[0], objects[1]); err != context.Canceled {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	for range 2 {
		if err := p.Prove(t.Context(), objects[0], objects[0]); err != nil {
			t.Error(err)
		}
		if err := p.Prove(t.Context(), objects[0], objects[1]); err == nil {
			t.Error("another label is the same")
		}
	}
}
