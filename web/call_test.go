package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/internal/author/language"
)

// mutation returns a policy for Pods with a name and one mutation, and a binding without
// selectors.
func mutation(name, expression string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: %[2]q
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, name, expression)
}

const pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: app\n    image: nginx\n"

// label returns a policy that sets the label owner.
func label(name, value string) string {
	return mutation(name, fmt.Sprintf(`Object{metadata: Object.metadata{labels: {"owner": %s}}}`, value))
}

// unhurried returns a desk without a time limit, so that on a busy machine calls in tests end
// because of other bounds and not because of the clock.
func unhurried() *desk {
	d := newDesk()
	d.patience = time.Hour
	return d
}

// ask calls a method twice and returns its answer, which has to be the same.
func ask[A any](t *testing.T, d *desk, method string, params any) (out A) {
	t.Helper()
	in, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	var before string
	for range 2 {
		text, err := d.call(t.Context(), method, in)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		if before != "" && before != string(text) {
			t.Errorf("%s: the second answer differs:\n%s", method, cmp.Diff(before, string(text)))
		}
		before = string(text)
	}
	dec := json.NewDecoder(strings.NewReader(before))
	if err := dec.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func texts(list ...string) (out []Text) {
	for i, text := range list {
		out = append(out, Text{Name: fmt.Sprintf("%c.yaml", 'a'+i), Text: text})
	}
	return out
}

func TestNoCall(t *testing.T) {
	for _, tt := range [][3]string{
		{"evaluate", `{`, "the parameters: unexpected end of JSON input"},
		{"orders", `{"limit":"1"}`, "the parameters: json: cannot unmarshal string into Go struct field OrdersQuestion.limit of type int"},
		{"nothing", `{}`, `no method "nothing"`},
		{"orders", `{"limit":-1}`, "limit: want 1 to 10000, or nothing"},
		{"orders", `{"limit":10001}`, "limit: want 1 to 10000, or nothing"},
		{"verify", `{"count":-1}`, "count: want 1 to 5000, or nothing"},
		{"verify", `{"count":5001}`, "count: want 1 to 5000, or nothing"},
		{"verify", `{"count":-1}`, "count: want 1 to 5000, or nothing"},
		{"verify", `{"count":5001}`, "count: want 1 to 5000, or nothing"},
		{"diagnose", `{"kubernetes":"1.3"}`, `kubernetes version "1.3": want 1.32 to 1.38`},
		{"hover", `{"name":"x"}`, `there is no document "x"`},
		{"complete", `{"name":"x"}`, `there is no document "x"`},
		{"definition", `{"name":"x"}`, `there is no document "x"`},
		{"actions", `{"name":"x"}`, `there is no document "x"`},
		{"format", `{"name":"x"}`, `there is no document "x"`},
	} {
		if _, err := unhurried().call(t.Context(), tt[0], []byte(tt[1])); err == nil || err.Error() != tt[2] {
			t.Errorf("%s %s: error %v, want %s", tt[0], tt[1], err, tt[2])
		}
	}
}

func TestPanic(t *testing.T) {
	methods["panics"] = func(context.Context, *desk, []byte) (any, error) { panic("here") }
	defer delete(methods, "panics")
	d := unhurried()
	if _, err := d.call(t.Context(), "panics", nil); err == nil || err.Error() != "panics: this is a mistake of mapd: here" {
		t.Errorf("error %v", err)
	}
	ask[Answer](t, d, "evaluate", Question{Objects: texts(pod)}) // it still answers
}

// A call ends although the timer of its context does not fire.
func TestPatience(t *testing.T) {
	d := unhurried()
	d.patience = time.Nanosecond
	if _, err := d.call(t.Context(), "evaluate", []byte(`{}`)); err == nil || err.Error() != "evaluate: not done after 1ns" {
		t.Errorf("error %v", err)
	}
	w := &watched{context.Background(), time.Now().Add(-time.Hour)}
	if w.Err() != context.DeadlineExceeded {
		t.Errorf("error %v of a context that has ended", w.Err())
	}
}

func TestEvaluate(t *testing.T) {
	d := unhurried()
	q := EvaluateQuestion{Question: Question{Documents: texts(label("a", `"x"`), label("b", `object.metadata.name`)), Objects: texts(pod)}, Trace: true, WhyNot: true}
	got := ask[Answer](t, d, "evaluate", q).Results[0]
	if got.Verdict != "changed" || !strings.Contains(got.Text, "owner: web") {
		t.Fatalf("verdict %s, text\n%s", got.Verdict, got.Text)
	}
	want := []Line{
		{5, 6, "metadata.labels", "policies", "a", "a", "", 0},
		{6, 6, "metadata.labels.owner", "policies", "b", "b", "", 0},
	}
	if diff := cmp.Diff(want, got.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s\n%s", diff, got.Text)
	}
	if len(got.Trace) != 2 || got.Trace[1].Trace == nil || len(got.WhyNot) != 0 {
		t.Errorf("trace %+v, why not %v", got.Trace, got.WhyNot)
	}
	// No answer depends on the calls before it.
	q.Namespace = "other"
	ask[Answer](t, d, "evaluate", q)
	q.Namespace, q.Objects = "", texts("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", "a: [")
	a := ask[Answer](t, d, "evaluate", q)
	if diff := cmp.Diff(ask[Answer](t, unhurried(), "evaluate", q), a); diff != "" {
		t.Errorf("the answer depends on earlier calls (-alone +after others):\n%s", diff)
	}
	if n := len(a.Results[0].WhyNot); a.Results[0].Verdict != "no match" || n != 2 || a.Limits.Expression == 0 {
		t.Errorf("result %+v, limits %v", a.Results[0], a.Limits)
	}
	if a.Results[1].Error == nil || a.Results[1].Error.File != "b.yaml" {
		t.Errorf("result of what is no object: %+v", a.Results[1])
	}
}

// Compiled policies are reused, and only for the same texts.
func TestCompiledAgain(t *testing.T) {
	d := unhurried()
	q := Question{Objects: texts(pod), Documents: texts(label("a", `"x"`) + "---\n" + label("b", `"y"`))}
	ask[Answer](t, d, "evaluate", q)
	before := d.loaded[kind{}].Policies()
	q.Documents = texts("# a line more\n" + label("a", `"x"`) + "---\n" + label("b", `"z"`))
	ask[Answer](t, d, "evaluate", q)
	after := d.loaded[kind{}].Policies()
	if before[0] != after[0] || before[1] == after[1] {
		t.Errorf("the unchanged policy is the same: %t; the changed one is: %t", before[0] == after[0], before[1] == after[1])
	}
	definition := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: xs.example.com}\nspec:\n  group: example.com\n  scope: Cluster\n  names: {plural: xs, singular: x, kind: X, listKind: XList}\n  versions:\n  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n"
	q.Documents = append(q.Documents, Text{Name: "crd", Text: definition})
	if a := ask[Answer](t, d, "evaluate", q); len(a.Errors) > 0 || d.loaded[kind{}].Policies()[0] == after[0] {
		t.Errorf("a policy stays compiled although there is another definition, or %v", a.Errors)
	}
	q.Documents[0].Text = "#\n" + label("a", `nope`)
	a := ask[Answer](t, d, "evaluate", q)
	if len(a.Errors) != 1 || a.Errors[0].Line != 11 {
		t.Errorf("errors %+v", a.Errors)
	}
}

func TestSecret(t *testing.T) {
	policy := strings.Replace(mutation("s", `Object{metadata: Object.metadata{labels: {"length": string(size(object.data["password"]))}}, data: {"password": object.data["password"] + "IQ=="}}`), "[pods]", "[secrets]", 1)
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {password: aHVudGVyMjIy}\n"
	type part struct{ Text, Diff, Trace, Summary, Steps json.RawMessage }
	got := ask[struct{ Results []part }](t, unhurried(), "evaluate", EvaluateQuestion{Question: Question{Documents: texts(policy), Objects: texts(secret)}, Trace: true}).Results[0]
	if !strings.Contains(string(got.Text), "aHVudGVyMjIyIQ==") {
		t.Errorf("the text does not have what was written: %s %s", got.Text, got.Steps)
	}
	for name, text := range map[string]json.RawMessage{"trace": got.Trace, "diff": got.Diff, "summary": got.Summary} {
		if strings.Contains(string(text), "aHVudGVy") || len(text) < 20 {
			t.Errorf("%s has the password, or nothing: %s", name, text)
		}
	}
}

func TestOrders(t *testing.T) {
	got := ask[OrdersAnswer](t, unhurried(), "orders", OrdersQuestion{Question: Question{Documents: texts(label("a", `"x"`), label("b", `"y"`)), Objects: texts(pod, "a: [", pod)}})
	if len(got.Objects) != 3 || got.Objects[1].Error == nil {
		t.Fatalf("answer %+v", got)
	}
	o := got.Objects[0]
	if o.Policies != 2 || o.Run != 2 || o.Of != "2" || !o.Whole || len(o.Differences) != 1 || o.Differences[0].Kind != "order" || len(o.Differences[0].Changes) != 1 {
		t.Errorf("orders %+v", o)
	}
}

func TestLanguage(t *testing.T) {
	d := unhurried()
	policy := `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: p
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  reinvocationPolicy: Never
  variables:
  - name: owner
    expression: object.metadata.name
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{spec: Object.spec{ hostname: variables.owner}}
`
	broken := strings.Replace(policy, "variables.owner", "variables.own", 1)
	doc := func(text string) DocumentQuestion {
		return DocumentQuestion{LanguageQuestion{Documents: []Text{{Name: "p.yaml", Text: text}, {Name: "other.yaml", Text: pod}}}, "p.yaml"}
	}
	at := func(line, character int) language.Position {
		return language.Position{Line: line, Character: character}
	}
	use := at(16, 55) // in variables.owner

	found := ask[map[string][]language.Diagnostic](t, d, "diagnose", doc(broken))["p.yaml"]
	if len(found) != 2 || found[1].Severity != "error" || found[1].Range.Start.Line != 16 {
		t.Errorf("diagnostics %+v", found)
	}
	if found := ask[map[string][]language.Diagnostic](t, d, "diagnose", doc(policy))["p.yaml"]; len(found) > 0 && found[0].Severity == "error" {
		t.Errorf("diagnostics of a policy without a fault: %+v", found)
	}
	items := ask[[]language.Completion](t, d, "complete", PositionQuestion{doc(policy), use})
	if len(items) != 1 || items[0].Label != "owner" || items[0].Kind != "variable" {
		t.Errorf("completions %+v", items)
	}
	if h := ask[*language.Hover](t, d, "hover", PositionQuestion{doc(policy), use}); h == nil || !strings.Contains(h.Text, "string") {
		t.Errorf("hover %+v", h)
	}
	if h := ask[*language.Hover](t, d, "hover", PositionQuestion{doc(policy), at(1000, 0)}); h != nil {
		t.Errorf("hover of nothing: %+v", h)
	}
	if h := ask[*language.Hover](t, d, "hover", PositionQuestion{doc(policy), at(0, 0)}); h == nil || !strings.Contains(h.Text, "The group and version") {
		t.Errorf("hover of a key: %+v", h)
	}
	// Objects are completed and checked, but not as documents with policies.
	object := DocumentQuestion{LanguageQuestion{Documents: []Text{{Name: "p.yaml", Text: policy}}, Objects: []Text{{Name: "objects/p.yaml", Text: "apiVersion: v1\nkind: Pod\nspec:\n  hostNet\n  containrs: []\n"}}}, "objects/p.yaml"}
	if items := ask[[]language.Completion](t, d, "complete", PositionQuestion{object, at(3, 9)}); len(items) != 1 || items[0].Label != "hostNetwork" {
		t.Errorf("completions of an object %+v", items)
	}
	object.Objects[0].Text = strings.Replace(object.Objects[0].Text, "  hostNet\n", "", 1)
	if found := ask[map[string][]language.Diagnostic](t, d, "diagnose", object.LanguageQuestion)["objects/p.yaml"]; len(found) != 1 || !strings.Contains(found[0].Message, "did you mean containers?") {
		t.Errorf("diagnostics of an object %+v", found)
	}
	if l := ask[*language.Location](t, d, "definition", PositionQuestion{doc(policy), use}); l == nil || l.Range.Start.Line != 10 && l.Range.Start.Line != 11 {
		t.Errorf("definition %+v", l)
	}
	if edits := ask[[]language.Edit](t, d, "format", doc(policy)); len(edits) != 1 || strings.Contains(edits[0].Text, "{ ") {
		t.Errorf("edits %+v", edits)
	}
	whole := language.Range{End: at(100, 0)}
	useless := strings.Replace(policy, "reinvocationPolicy: Never", "failurePolicy: Fail\n  reinvocationPolicy: Never", 1)
	if actions := ask[[]language.Action](t, d, "actions", RangeQuestion{doc(useless), whole}); actions == nil {
		t.Error("actions: null")
	}
	large := doc(policy)
	large.Documents = append(large.Documents, Text{Name: "large.yaml", Text: strings.Repeat("#", language.MaxDocument+1)})
	if found := ask[map[string][]language.Diagnostic](t, d, "diagnose", large); len(found["large.yaml"]) != 1 {
		t.Errorf("diagnostics of a document that is too large: %+v", found["large.yaml"])
	}
}

const assign = `apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: always-pull}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]
  location: "spec.containers[name:*].imagePullPolicy"
  parameters: {assign: {value: Always}}
`

func TestMigrate(t *testing.T) {
	wrong := "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: wrong}\nspec: {location: \"spec[\"}\n"
	got := ask[MigrateAnswer](t, unhurried(), "migrate", MigrateQuestion{texts(assign, wrong, pod)})
	if len(got.Entries) != 2 || len(got.Files) != 1 || len(got.Notes) != 2 || got.Summary != "2 mutators: 1 exact, 1 refused" {
		t.Fatalf("answer %+v", got)
	}
	if e := got.Entries[0]; e.Name != "Assign/always-pull" || e.Verdict != "exact" || e.File != got.Files[0].Name || !strings.Contains(got.Files[0].Text, "MutatingAdmissionPolicyBinding") {
		t.Errorf("entry %+v, file\n%s", e, got.Files[0].Text)
	}
	if got := ask[MigrateAnswer](t, unhurried(), "migrate", MigrateQuestion{texts(assign + "---\n" + assign)}); len(got.Errors) != 1 || got.Errors[0].Document != 2 {
		t.Errorf("errors of a mutator that is given twice: %+v", got.Errors)
	}
	if got := ask[MigrateAnswer](t, unhurried(), "migrate", MigrateQuestion{texts(pod)}); len(got.Errors)+len(got.Entries) > 0 {
		t.Errorf("answer without mutators: %+v", got)
	}
}

func TestVerify(t *testing.T) {
	got := ask[VerifyAnswer](t, unhurried(), "verify", VerifyQuestion{Documents: texts(assign), Count: 20})
	if len(got.Comparisons) == 0 || got.Seed != 1 || got.Count != 20 {
		t.Fatalf("answer %+v", got)
	}
	for _, c := range got.Comparisons {
		if c.Objects == 0 || c.Changed == 0 || c.Agreements != c.Objects || c.Unexpected || !strings.HasPrefix(c.Summary, "no difference in") {
			t.Errorf("comparison %+v", c)
		}
	}
	if got := ask[VerifyAnswer](t, unhurried(), "verify", VerifyQuestion{Documents: texts("a: [")}); len(got.Errors) != 1 {
		t.Errorf("errors %+v", got.Errors)
	}
}

// FuzzCall calls a method with texts of which some are policies, or with invalid JSON.
func FuzzCall(f *testing.F) {
	for _, name := range slices.Sorted(maps.Keys(contract)) {
		f.Add(name, "documents", label("a", `"x"`), pod, 1, 2)
		f.Add(name, "documents", assign, "a: [", -1, 1<<40)
	}
	f.Add("nothing", "", "", "", 0, 0)
	f.Add("hover", "\x00", "\xff", "{", 0, 0)
	d := newDesk()
	f.Fuzz(func(t *testing.T, method, field, document, object string, line, character int) {
		if len(document)+len(object) > 10_000 {
			return
		}
		question := map[string]any{
			field: []any{map[string]any{"name": "d", "text": document}}, "documents": texts(document), "objects": texts(object), "old": texts(object),
			"name": "a.yaml", "line": line, "character": character, "range": map[string]any{"start": map[string]any{"line": line}, "end": map[string]any{"line": character}},
			"count": 3, "limit": 10, "trace": line > 0, "whyNot": true,
		}
		if method == "orders" {
			question = map[string]any{"question": question, "limit": 10}
		}
		params, err := json.Marshal(question)
		if err != nil {
			t.Skip()
		}
		for _, in := range [][]byte{params, []byte(document)} {
			answer, err := d.call(t.Context(), method, in)
			if err == nil && !json.Valid(answer) || err != nil && strings.Contains(err.Error(), "mistake of mapd") {
				t.Errorf("%s %s: %v\n%s", method, in, err, answer)
			}
		}
	})
}
