package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

// Any input gets an answer or an error, and the same desk still answers the next question.
func TestBounds(t *testing.T) {
	hammer.Alone(t)
	const large = 5 << 20
	many := func(n int, text string) string { return strings.Repeat(text, n) }
	deep := func(n int) string { return "a: " + many(n, "[") + many(n, "]") }
	aliases := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for i := 'b'; i <= 'i'; i++ {
		aliases += fmt.Sprintf("%c: &%c [%s*%c]\n", i, i, many(8, fmt.Sprintf("*%c, ", i-1)), i-1)
	}
	object := func(rest string) string { return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n" + rest }
	loop := func(n int) string {
		return many(n, "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20].map(x, ") + "1" + many(n, ")")
	}
	d := unhurried()
	for name, tt := range map[string]struct {
		q    Question
		want string // in the answer or the error; "" is anything
	}{
		"a large object":                    {Question{Objects: texts(object("data: {a: " + many(large, "x") + "}\n"))}, "at most 4194304 are read"},
		"a large document":                  {Question{Documents: texts(many(large/10, "- a: b\n- c\n"))}, "at most 4194304 are read"},
		"an object as large as etcd stores": {Question{Documents: texts(label("p", `"x"`)), Objects: texts(strings.Replace(pod, "  name: web", "  name: web\n  annotations: {a: "+many(1_500_000, "x")+"}", 1))}, ""},
		"many small values":                 {Question{Objects: texts(object("list:\n" + many(100_000, "- a\n")))}, ""},
		"too many small values":             {Question{Objects: texts(object("list: [" + many(200_000, "a,") + "]\n" + many(60_000, "#\n")))}, "the texts have 260004 lines and commas"},
		"many documents":                    {Question{Documents: texts(many(maxDocuments+1, object("---\n")))}, "there are 1001 documents"},
		"many objects":                      {Question{Objects: texts(many(maxObjects+1, object("---\n")))}, "there are more than 200 objects"},
		"deep nesting":                      {Question{Objects: texts(object(deep(20_000)))}, ""},
		"aliases of aliases":                {Question{Documents: texts(aliases), Objects: texts(aliases)}, ""},
		"nested loops":                      {Question{Documents: texts(label("p", `string(size(`+loop(8)+`))`)), Objects: texts(pod)}, "cost"},
		"loops in a variable's name":        {Question{Documents: texts(label("p", `string(`+many(2_000, "(")+"1"+many(2_000, ")")+`)`)), Objects: texts(pod)}, "p"},
		"a text times a text":               {Question{Documents: texts(label("p", many(30, `[1,2,3,4,5,6,7,8,9,10].map(a, `)+`"x"`+many(30, `).join("xxxxxxxxxx")`))), Objects: texts(pod)}, ""},
		"names of all characters":           {Question{Documents: []Text{{Name: "\x00../\u2028", Text: "a: ["}}}, "did not find"},
		"no object":                         {Question{Objects: texts("[]", "1", "null", "\x00", "\xff\xfe", "{", "--- !!binary x")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			params, err := json.Marshal(EvaluateQuestion{Question: tt.q, Trace: true, WhyNot: true})
			if err != nil {
				t.Fatal(err)
			}
			answer, err := d.call(t.Context(), "evaluate", params)
			if got := fmt.Sprint(string(answer), err); !strings.Contains(got, tt.want) {
				t.Errorf("answer %.500s\nwant %s", got, tt.want)
			}
			for _, method := range []string{"suite", "migrate", "diagnose"} {
				if answer, err := d.call(t.Context(), method, params); err == nil && !json.Valid(answer) {
					t.Errorf("%s: the answer is not JSON: %.500s", method, answer)
				}
			}
		})
	}
	if a := ask[Answer](t, d, "evaluate", Question{Documents: texts(label("p", `"x"`)), Objects: texts(pod)}); len(a.Results) != 1 || a.Results[0].Verdict != "changed" {
		t.Errorf("answer after all of that: %+v", a)
	}
	if _, err := d.call(t.Context(), "evaluate", make([]byte, maxParams+1)); err == nil || !strings.Contains(err.Error(), "at most 16777216 are read") {
		t.Errorf("error %v", err)
	}
}

// BenchmarkKeystroke measures a question after one character was typed, in the object or in one of
// the policies. Each policy adds a label.
func BenchmarkKeystroke(b *testing.B) {
	for _, policies := range []int{1, 100} {
		for _, trace := range []bool{false, true} {
			for _, where := range []string{"object", "policy"} {
				b.Run(fmt.Sprintf("policies=%d/trace=%t/%s", policies, trace, where), func(b *testing.B) {
					d := unhurried()
					n := 0
					for b.Loop() {
						n++
						q := EvaluateQuestion{Trace: trace}
						object, value := "nginx", "x"
						if where == "object" {
							object = fmt.Sprint("nginx:", n)
						} else {
							value = fmt.Sprint(n)
						}
						for i := range policies {
							v := "x"
							if i == policies/2 {
								v = value
							}
							q.Documents = append(q.Documents, Text{Name: fmt.Sprint(i), Text: mutation(fmt.Sprintf("p%d", i), fmt.Sprintf(`Object{metadata: Object.metadata{labels: {"l%d": %q}}}`, i, v))})
						}
						q.Objects = texts(strings.Replace(pod, "nginx", object, 1))
						params, err := json.Marshal(q)
						if err != nil {
							b.Fatal(err)
						}
						if _, err := d.call(b.Context(), "evaluate", params); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
