package coverage

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/mapd"
)

const condition = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  matchConditions:
  - name: c
    expression: |-
      EXPRESSION
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: 'object.metadata.name == "pod-3" ? [JSONPatch{op: "remove", path: "/spec/priority"}] : []'
`

func read(t *testing.T, text string) (docs []*mapd.Document) {
	t.Helper()
	for d, err := range mapd.Read("in.yaml", strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, d)
	}
	return docs
}

// load loads policies whose evaluations are counted.
func load(t *testing.T, docs []*mapd.Document, like *mapd.Policies, env *cel.Env) *mapd.Policies {
	t.Helper()
	p, err := mapd.Load(mapd.Options{Unbound: true, ToolOptions: mapd.ToolOptions{Documents: docs, Brief: true, Env: env, Like: like}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func counting(t *testing.T) *cel.Env {
	t.Helper()
	env, err := cel.NewEnv(cel.Options{Observe: true})
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// admit creates pod-1 to pod-3 with priorities of 1 to 3. pod-2 has the containers a and
// b, the others have only a, and pod-3 alone has the label team.
func admit(t *testing.T, p *mapd.Policies, c *Counter) {
	t.Helper()
	for n := 1; n <= 3; n++ {
		labels, more := "{}", ""
		if n == 2 {
			more = ", {name: b, image: x}"
		}
		if n == 3 {
			labels = "{team: red}"
		}
		pod := fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: pod-%d, labels: %s}, spec: {priority: %d, containers: [{name: a, image: x}%s]}}", n, labels, n, more)
		r, err := p.Eval(t.Context(), read(t, pod)[0], mapd.RequestOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.Count(r.Decision)
	}
}

// show returns the parts as "LINE:COLUMN kind text outcome hits …".
func show(p *Policy) (all []string) {
	for _, part := range p.Parts {
		text := fmt.Sprintf("%d:%d %s %s", part.Line, part.Column, part.Kind, part.Text)
		for i, o := range part.Outcomes {
			text += fmt.Sprintf(" %s=%d", o, part.Hits[i])
		}
		all = append(all, text)
	}
	return all
}

// What is counted of the conditions, by hand. The mutation runs for the Pods for which the
// condition is true, and changes pod-3. For these Pods there is a second round, as in a
// server, in which the condition is evaluated again; that of pod-3 fails where it reads
// the priority, which is no longer there, and does not count.
func TestHandCounts(t *testing.T) {
	env := counting(t)
	for _, c := range []struct {
		expression string
		ran        int
		last       bool     // for pod-3
		want       []string // of the whole expression only the counts
	}{
		{"object.spec.priority > 1", 2, true, []string{"true=3 false=1"}},
		{"object.spec.priority == 1 ? false : object.spec.priority == 2 ? true : true", 2, true, []string{
			"true=3 false=1", "condition object.spec.priority == 1 true=1 false=3", "condition object.spec.priority == 2 true=2 false=1"}},
		{"object.spec.priority > 1 && object.spec.priority > 2", 1, true, []string{
			"true=1 false=2", "operand object.spec.priority > 1 true=2 false=1", "operand object.spec.priority > 2 true=1 false=1"}},
		{"object.spec.priority > 2 || object.spec.priority > 1", 2, true, []string{
			"true=3 false=1", "operand object.spec.priority > 2 true=1 false=3", "operand object.spec.priority > 1 true=2 false=1"}},
		{`object.metadata.?labels[?"team"].orValue("none") == "none"`, 2, false, []string{
			"true=4 false=1", `optional object.metadata.?labels[?"team"] present=1 absent=4`}},
		{`object.spec.containers.exists(c, c.name == "b")`, 1, false, []string{
			"true=2 false=2", `operand c.name == "b" true=2 false=4`}},
		{`object.spec.containers.all(c, c.name == "a")`, 2, true, []string{
			"true=4 false=1", `operand c.name == "a" true=5 false=1`}},
		{`object.spec.containers.map(c, c.name + "!") == ["a!"]`, 2, true, []string{
			"true=4 false=1", `body c.name + "!" run=6`}},
		{`object.spec.containers.filter(c, c.name == "b") == []`, 2, true, []string{
			"true=4 false=1", `condition c.name == "b" true=1 false=5`}},
	} {
		docs := read(t, strings.Replace(condition, "EXPRESSION", c.expression, 1))
		p := load(t, docs, nil, env)
		var counter Counter
		admit(t, p, &counter)
		var r Report
		r.Add(p, docs, &counter)
		if len(r.Policies) != 1 {
			t.Fatalf("%d policies", len(r.Policies))
		}
		var got []string
		for _, s := range show(r.Policies[0]) {
			if at, text, _ := strings.Cut(s, " "); strings.HasPrefix(at, "12:") {
				got = append(got, text)
			}
		}
		if len(got) == 0 || !strings.HasPrefix(got[0], "expression ") || !strings.HasSuffix(got[0], " "+c.want[0]) || !slices.Equal(got[1:], c.want[1:]) {
			t.Errorf("%s\ngot  %q\nwant %q", c.expression, got, c.want)
		}
		changes := 0
		if c.last {
			changes = 1
		}
		all := show(r.Policies[0])
		mutation := all[len(all)-2:]
		if !strings.HasSuffix(mutation[0], fmt.Sprintf("… run=%d changed=%d", c.ran, changes)) ||
			!strings.HasSuffix(mutation[1], fmt.Sprintf(`object.metadata.name == "pod-3" true=%d false=%d`, changes, c.ran-changes)) {
			t.Errorf("%s: %q", c.expression, mutation)
		}
	}
}

// Programs that several loads share count once, and what decisions say is added up.
func TestSharedPrograms(t *testing.T) {
	env := counting(t)
	docs := read(t, strings.Replace(condition, "EXPRESSION", "object.spec.priority > 1", 1))
	more := append(slices.Clone(docs), read(t, "{apiVersion: v1, kind: Namespace, metadata: {name: default}}")...)
	first := load(t, docs, nil, env)
	second := load(t, more, first, env)
	if first.Policies()[0] != second.Policies()[0] {
		t.Fatal("the policy was compiled again")
	}
	var a, b Counter
	admit(t, first, &a)
	admit(t, second, &b)
	var r Report
	r.Add(first, docs, &a)
	r.Add(second, more, &b)
	got := show(r.Policies[0])
	want := []string{
		"12:7 expression object.spec.priority > 1 true=6 false=2",
		`16:20 expression (object.metadata.name == "pod-3") ? [JSONPatch{op: "remove"… run=4 changed=2`,
		`16:20 condition object.metadata.name == "pod-3" true=2 false=2`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	// Another definition has another schema, so nothing compiled for the first is used.
	crd := read(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: as.example.com}, spec: {group: example.com, scope: Cluster,
		names: {plural: as, singular: a, kind: A, listKind: AList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`)
	if third := load(t, append(crd, docs...), first, env); third.Policies()[0] == first.Policies()[0] {
		t.Error("the policy was not compiled again")
	}
	if other := load(t, docs, first, counting(t)); other.Policies()[0] == first.Policies()[0] {
		t.Error("the policy was not compiled again in another language")
	}
}
