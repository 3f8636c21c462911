package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/answer.json")

func evaluated(t *testing.T, question []byte) string {
	t.Helper()
	a, err := unhurried().call(t.Context(), "evaluate", question)
	if err != nil {
		t.Fatal(err)
	}
	return string(a) + "\n"
}

// The answer is the same as that of mapd eval. hack/web.sh compares it with the answer of the
// program for browsers, which it runs with node.
func TestAnswer(t *testing.T) {
	question, err := os.ReadFile("testdata/question.json")
	if err != nil {
		t.Fatal(err)
	}
	got := evaluated(t, question)
	if *update {
		if err := os.WriteFile("testdata/answer.json", []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/answer.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if again := evaluated(t, question); again != got {
		t.Errorf("the second answer differs:\n%s", cmp.Diff(got, again))
	}
}

func TestFaults(t *testing.T) {
	for name, tt := range map[string]struct{ question, want string }{
		"no version": {
			`{"kubernetes":"2.0"}`,
			`{"errors":[{"message":"kubernetes version \"2.0\": want a minor such as \"1.37\""}]}`,
		},
		"a policy with two faults": {
			`{"documents":[{"name":"p","text":"apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n  reinvocationPolicy: Never\n  mutations:\n  - {patchType: JSONPatch, jsonPatch: {expression: \"[a, b]\"}}\n"}]}`,
			`{"errors":[{"file":"p","document":1,"line":8,"column":54,"message":"MutatingAdmissionPolicy p: spec.mutations[0].jsonPatch.expression: undeclared reference to 'a' (in container '')"},` +
				`{"file":"p","document":1,"line":8,"column":57,"message":"MutatingAdmissionPolicy p: spec.mutations[0].jsonPatch.expression: undeclared reference to 'b' (in container '')"}]}`,
		},
		"no document": {
			`{"documents":[{"name":"p","text":"a: ["}]}`,
			`{"errors":[{"file":"p","document":1,"line":2,"message":"did not find expected node content"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := evaluated(t, []byte(tt.question)); !strings.HasPrefix(got, tt.want) {
				t.Errorf("answer %s\nwant   %s", got, tt.want)
			}
		})
	}
}
