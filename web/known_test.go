package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A text that was sent once can be used by its Ref in any list and by any method.
func TestRefs(t *testing.T) {
	d := unhurried()
	call := func(method string, q any) (string, error) {
		params, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := d.call(t.Context(), method, params)
		return string(answer), err
	}
	ref := func(ref int, text string) []Text { return []Text{{Name: "a.yaml", Text: text, Ref: ref}} }
	want, err := call("evaluate", Question{Documents: texts(label("p", `"x"`)), Objects: texts(pod)})
	if err != nil || !strings.Contains(want, `"verdict":"changed"`) {
		t.Fatalf("%s, %v", want, err)
	}
	for _, q := range []Question{
		{Documents: ref(1, label("p", `"x"`)), Objects: ref(2, pod)},
		{Documents: ref(1, ""), Objects: ref(2, "")},
		{Documents: ref(1, ""), Objects: texts(pod)},
	} {
		if got, err := call("evaluate", q); err != nil || got != want {
			t.Errorf("%s, %v", cmp.Diff(want, got), err)
		}
	}
	if got, err := call("format", DocumentQuestion{LanguageQuestion{Documents: ref(1, "")}, "a.yaml"}); err != nil || !strings.Contains(got, "newText") {
		t.Errorf("format: %s, %v", got, err)
	}
	for _, method := range []string{"evaluate", "suite", "migrate", "diagnose"} {
		if _, err := call(method, Question{Documents: ref(3, "")}); err == nil || err.Error() != errUnknownRef.Error() {
			t.Errorf("%s: error %v", method, err)
		}
	}
	// If there are too many texts, only those of the present question are kept.
	for i := range 3 {
		if _, err := call("evaluate", Question{Documents: ref(1, ""), Objects: ref(10+i, "# "+strings.Repeat("a", maxTexts-1000))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := call("evaluate", Question{Documents: ref(1, ""), Objects: ref(2, "")}); err == nil || err.Error() != errUnknownRef.Error() {
		t.Errorf("error %v", err)
	}
	if d.texts.bytes > 2*maxTexts || len(d.texts.texts) != 2 {
		t.Errorf("%d texts with %d bytes are kept", len(d.texts.texts), d.texts.bytes)
	}
	// A text that is used many times counts as many times.
	many := Question{}
	for range 100_000 {
		many.Objects = append(many.Objects, Text{Ref: 12})
	}
	if got, err := call("evaluate", many); err != nil || !strings.Contains(got, "at most 4194304 are read") {
		t.Errorf("%.200s, %v", got, err)
	}
}

// Parts of results that the question does not ask for are left out, and the others are the same.
func TestOnly(t *testing.T) {
	q := EvaluateQuestion{Question: Question{Documents: texts(label("p", `"x"`), label("q", `"y"`)), Objects: texts(pod)}}
	whole := ask[Answer](t, unhurried(), "evaluate", q).Results[0]
	for _, only := range []string{textPart, diffPart, patchPart, stepsPart, summaryPart} {
		q.Only = []string{only}
		want := Result{Name: whole.Name, Verdict: whole.Verdict}
		switch only {
		case textPart:
			want.Text, want.Lines, want.FilledIn = whole.Text, whole.Lines, whole.FilledIn
		case diffPart:
			want.Text, want.Diff = whole.Text, whole.Diff
		case patchPart:
			want.Patch = whole.Patch
		case stepsPart:
			want.Steps = whole.Steps
		case summaryPart:
			want.Summary = whole.Summary
		}
		if cmp.Equal(want, Result{Name: whole.Name, Verdict: whole.Verdict}) {
			t.Errorf("%s: the whole answer has no such part", only)
		}
		if diff := cmp.Diff(want, ask[Answer](t, unhurried(), "evaluate", q).Results[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", only, diff)
		}
	}
	q.Only = []string{"colour"}
	params, _ := json.Marshal(q)
	if _, err := unhurried().call(t.Context(), "evaluate", params); err == nil || err.Error() != `a result has no part "colour"` {
		t.Errorf("error %v", err)
	}
}

// If a policy has a fault, the others still run, and nothing else is left out.
func TestLeftOut(t *testing.T) {
	good, other := label("good", `"x"`), mutation("other", `Object{spec: Object.spec{priority: 7}}`)
	wrong := strings.Replace(label("wrong", `"y"`), "Object{", "Object{{", 1)
	unreadable := strings.Replace(label("wrong", `"y"`), "metadata: {", "metadata: {{", 1)
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n"
	both := ask[Answer](t, unhurried(), "evaluate", Question{Documents: texts(good, other), Objects: texts(pod)})
	for name, tt := range map[string]struct {
		documents []string
		left      []string // nil: there is no result
	}{
		"an expression":     {[]string{good, wrong, other}, []string{"MutatingAdmissionPolicy wrong", "MutatingAdmissionPolicyBinding wrong"}},
		"no YAML":           {[]string{good, unreadable, other}, []string{"b.yaml, document 1"}},
		"a binding":         {[]string{good + "---\n" + strings.Replace(strings.SplitN(good, "---\n", 2)[1], "policyName: good", "policyName: ''", 1), other}, []string{"MutatingAdmissionPolicyBinding good"}},
		"all":               {[]string{wrong}, nil},
		"a Namespace":       {[]string{good, other, namespace + "spec: ["}, nil},
		"beside others":     {[]string{good, other, unreadable + "---\n" + namespace}, nil},
		"and a Namespace":   {[]string{good, other, wrong, namespace + "  [\n"}, nil},
		"the same document": {[]string{good, good, other}, []string{"MutatingAdmissionPolicy good", "MutatingAdmissionPolicyBinding good"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask[Answer](t, unhurried(), "evaluate", Question{Documents: texts(tt.documents...), Objects: texts(pod)})
			if len(a.Errors) == 0 {
				t.Fatalf("%+v: no error", a)
			}
			if diff := cmp.Diff(tt.left, a.LeftOut); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
			want := both.Results
			if tt.left == nil {
				want = nil
			}
			if diff := cmp.Diff(want, a.Results); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if s := ask[SuiteAnswer](t, unhurried(), "suite", Question{Documents: texts(tt.documents...), Objects: texts(pod)}); len(s.Errors) == 0 || len(s.Files) > 0 {
				t.Errorf("a suite of documents with errors: %+v", s)
			}
		})
	}
}
