package kyverno

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
)

func assessed(t testing.TB, text string) *Assessment {
	t.Helper()
	in, errs := Read([]manifest.Input{{Name: "policy.yaml", Open: open(text)}})
	if len(errs) > 0 || len(in.Unreadable) > 0 {
		t.Fatal(errs, in.Unreadable)
	}
	a, err := Assess(in)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func open(text string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
}

func policyWith(rules string) string {
	return "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  rules:\n" + rules
}

const twoRules = `  - name: team
    match: {any: [{resources: {kinds: [Pod], namespaces: ["shop*"]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {+(team): shop}}}}
  - name: pull
    match: {any: [{resources: {kinds: [Pod]}}]}
    preconditions: {all: [{key: "{{ request.object.spec.hostNetwork || ` + "`false`" + ` }}", operator: Equals, value: true}]}
    mutate: {patchStrategicMerge: {spec: {containers: [{(name): "*", imagePullPolicy: Always}]}}}
`

// The verifier finds no difference in what is written, sees objects on both sides of each
// condition, and does the same for the same seed.
func TestVerify(t *testing.T) {
	run := func() string {
		v := assessed(t, policyWith(twoRules)).Verifier()
		v.CheckGenerated(t.Context(), 3, 200)
		v.Finish()
		if !v.OK() || len(v.Rules) != 3 {
			t.Errorf("%d comparisons, OK %v", len(v.Rules), v.OK())
		}
		for _, c := range v.Rules {
			if c.Objects < 150 || c.Changed < 10 || c.Equal+c.Reordered+c.Explained+c.Different != c.Objects || c.Equal-c.Changed < 10 {
				t.Errorf("%+v", c)
			}
		}
		var b bytes.Buffer
		if err := v.WriteTable(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if first, second := run(), run(); first != second {
		t.Errorf("the same seed has another outcome:\n%s\n%s", first, second)
	}
}

// A policy that does something else is found, with a small object that shows it.
func TestVerifyFindsDifferences(t *testing.T) {
	for name, spoil := range map[string]func(expression string) string{
		"another value":     func(e string) string { return strings.ReplaceAll(e, `"Always"`, `"Never"`) },
		"another condition": func(e string) string { return strings.ReplaceAll(e, "hostNetwork", "hostPID") },
		"no condition":      func(e string) string { return strings.ReplaceAll(e, "object.spec.?hostNetwork", "optional.of(true)") },
	} {
		t.Run(name, func(t *testing.T) {
			a := assessed(t, policyWith(twoRules[strings.Index(twoRules, "  - name: pull"):]))
			spoilt := 0
			for _, u := range a.Results[0].Units {
				for i := range u.Policy.Spec.MatchConditions {
					c := &u.Policy.Spec.MatchConditions[i]
					if s := spoil(c.Expression); s != c.Expression {
						c.Expression, spoilt = s, spoilt+1
					}
				}
				for i := range u.Policy.Spec.Mutations {
					m := &u.Policy.Spec.Mutations[i]
					if m.ApplyConfiguration != nil {
						if s := spoil(m.ApplyConfiguration.Expression); s != m.ApplyConfiguration.Expression {
							m.ApplyConfiguration.Expression, spoilt = s, spoilt+1
						}
					}
				}
			}
			if spoilt == 0 {
				t.Fatal("the test changes nothing")
			}
			v := a.Verifier()
			v.CheckGenerated(t.Context(), verify.DefaultSeed, 200)
			v.Finish()
			c := v.Rules[0]
			if v.OK() || c.Different == 0 || c.First == nil {
				t.Fatalf("no difference: %+v", c)
			}
			data, err := json.Marshal(c.First.Object)
			if err != nil || len(data) > 450 || !strings.Contains(string(data), `"containers"`) {
				t.Errorf("not reduced: %s, %v", data, err)
			}
		})
	}
}

// BenchmarkVerify compares one rule on one generated object.
func BenchmarkVerify(b *testing.B) {
	v := assessed(b, policyWith(twoRules[strings.Index(twoRules, "  - name: pull"):])).Verifier()
	b.ReportAllocs()
	v.CheckGenerated(b.Context(), verify.DefaultSeed, b.N)
	v.Finish()
	if c := v.Rules[0]; c.Different > 0 || c.Objects == 0 {
		b.Errorf("%+v", c)
	}
}
