package format

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// check fails unless a formatted file stays as it is and has the same comments, and
// returns it.
func check(t *testing.T, name string, data []byte) []byte {
	t.Helper()
	once, errs := Source(t.Context(), name, data)
	if len(errs) > 0 {
		if !bytes.Equal(once, data) {
			t.Errorf("%s: changed beside errors", name)
		}
		return data
	}
	twice, errs := Source(t.Context(), name, once)
	if len(errs) > 0 || !bytes.Equal(once, twice) {
		t.Errorf("%s: %v; once\n%s\ntwice\n%s", name, errs, once, twice)
	}
	if a, b := comments(data), comments(once); !slices.Equal(a, b) {
		t.Errorf("%s: comments %q become %q", name, a, b)
	}
	return once
}

// comments returns the comments of YAML, sorted.
func comments(data []byte) (out []string) {
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		for _, c := range []string{n.HeadComment, n.LineComment, n.FootComment} {
			for line := range strings.SplitSeq(c, "\n") {
				if line = strings.TrimSpace(line); line != "" {
					out = append(out, line)
				}
			}
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		if dec.Decode(&n) != nil {
			break
		}
		walk(&n)
	}
	slices.Sort(out)
	return out
}

// files calls yield with the YAML of the examples and of the cases.
func files(t *testing.T, yield func(name string, data []byte)) {
	t.Helper()
	for _, root := range []string{"../../../examples", "../../../test/cases", "../../../internal/gatekeeper/translate/testdata/native"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			ext := filepath.Ext(path)
			if err != nil || d.IsDir() || ext != ".yaml" && ext != ".txtar" {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if ext == ".yaml" {
				yield(path, data)
				return nil
			}
			for _, f := range txtar.Parse(data).Files {
				yield(path+"/"+f.Name, f.Data)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// All examples and cases can be formatted, and their policies are valid, and compile, or not,
// as before. What migrations write is formatted.
func TestEverything(t *testing.T) {
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	deps := policy.Deps{Env: env, Types: openapi.New(openapi.Builtin())}
	changed, compared := 0, 0
	files(t, func(name string, data []byte) {
		if !bytes.Contains(data, []byte(api.PolicyKind)) {
			return
		}
		out := check(t, name, data)
		if bytes.Equal(out, data) {
			return
		}
		changed++
		if strings.Contains(name, "/native/") {
			t.Errorf("%s is not as it is formatted:\n%s", name, out)
		}
		before, after := policies(name, data), policies(name, out)
		if len(before) != len(after) {
			t.Fatalf("%s: %d policies become %d", name, len(before), len(after))
		}
		for i := range before {
			compared++
			a, b := compile.NewPolicy(t.Context(), before[i], compile.New, deps), compile.NewPolicy(t.Context(), after[i], compile.New, deps)
			if !slices.EqualFunc(api.FaultsOf(a.Err), api.FaultsOf(b.Err), func(a, b *api.Fault) bool { return a.Path == b.Path && a.Phase == b.Phase }) {
				t.Errorf("%s: %v becomes %v", name, a.Err, b.Err)
			}
		}
	})
	if changed < 20 || compared < changed {
		t.Errorf("%d files were changed, %d policies compared", changed, compared)
	}
}

func policies(name string, data []byte) (out [][]byte) {
	for d, err := range manifest.ReadStream(name, bytes.NewReader(data)) {
		if err == nil && d.Object != nil && d.Object.GetKind() == api.PolicyKind {
			text, _ := json.Marshal(d.Object.Object)
			out = append(out, text)
		}
	}
	return out
}

const head = "apiVersion: admissionregistration.mapd.dev/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n"

func TestSource(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"lines end as they did":       {"  variables:\r\n  - name: a\r\n    expression: |\r\n      a&&\r\n      b # c\r\n", ""},
		"windows":                     {"  variables:\r\n  - name: a\r\n    expression: |\r\n      // c\r\n      a&&\r\n      b\r\n  x: 1\r\n", "  variables:\r\n  - name: a\r\n    expression: |-\r\n      // c\r\n      a && b\r\n  x: 1\r\n"},
		"no line end":                 {"  variables:\n  - expression: a&&b", "  variables:\n  - expression: a && b"},
		"one that needs quotes":       {"  variables:\n  - expression: '!a'", "  variables:\n  - expression: |-\n      !a"},
		"joined emoji":                {"  variables:\n  - expression: >-\n      'a 👨\u200d👩\u200d👧: 👍🏽 #'+b\n", "  variables:\n  - expression: |-\n      'a 👨\u200d👩\u200d👧: 👍🏽 #' + b\n"},
		"spaces of scripts":           {"  variables:\n  - expression: >-\n      'a\u3000b\u00a0c: #'+b\n", "  variables:\n  - expression: |-\n      'a\u3000b\u00a0c: #' + b\n"},
		"another direction":           {"  variables:\n  - expression: |-\n      'a\u202eb: #'+b\n", "  variables:\n  - expression: \"'a\u202eb: #' + b\"\n"},
		"a block that fits":           {"  variables:\n  - expression: >+\n      a\n\n\n  - expression: b\n", "  variables:\n  - expression: a\n\n\n  - expression: b\n"},
		"anchors stay":                {"  variables:\n  - expression: &a a&&b\n  - expression: *a\n", ""},
		"what has an alias stays":     {"  variables: &v\n  - expression: a&&b\n  x: *v\n", ""},
		"tags stay":                   {"  variables:\n  - expression: !!str a&&b\n", ""},
		"brackets stay":               {"  variables: [{expression: a&&b}]\n", ""},
		"a comment between":           {"  variables:\n  - expression: # why\n      a&&b\n", ""},
		"numbers stay":                {"  variables:\n  - expression: 1\n", ""},
		"an indentation that is said": {"  variables:\n  - expression: |1\n      a&&b\n", "  variables:\n  - expression: a && b\n"},
		"an odd key":                  {"  variables:\n  - 'expression': a&&b\n", "  variables:\n  - 'expression': a && b\n"},
		"others":                      {"  matchConditions:\n  - expression: a&&b\n  validations:\n  - expression: a&&b\n  mutations:\n  - jsonPatch:\n      expression: a&&b\n", "  matchConditions:\n  - expression: a && b\n  validations:\n  - expression: a&&b\n  mutations:\n  - jsonPatch:\n      expression: a && b\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.want == "" {
				tt.want = tt.in
			}
			head := head
			if strings.Contains(tt.in, "\r") {
				head = strings.ReplaceAll(head, "\n", "\r\n")
			}
			if got := string(check(t, "f", []byte(head+tt.in))); got != head+tt.want {
				t.Errorf("got\n%q\nwant\n%q", got, head+tt.want)
			}
		})
	}
	list := "apiVersion: v1\nkind: List\nitems:\n- apiVersion: admissionregistration.k8s.io/v1\n  kind: ValidatingAdmissionPolicy\n  spec:\n    validations:\n    - expression: a&&b\n      messageExpression: a+b\n"
	if got := string(check(t, "f", []byte(list))); !strings.Contains(got, "a && b\n      messageExpression: a + b\n") {
		t.Errorf("in a List:\n%s", got)
	}
	list = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyList\nitems:\n- spec:\n    variables:\n    - expression: a&&b\n"
	if got := string(check(t, "f", []byte(list))); !strings.Contains(got, "a && b\n") {
		t.Errorf("in a List of policies:\n%s", got)
	}
}

func FuzzSource(f *testing.F) {
	f.Add([]byte(head + "  variables:\n  - name: a # b\n    expression: |- # c\n      // d\n      a &&b\n    # e\n---\n" + head + "  matchConditions:\n  - expression: \"a\\n&&b\" # x\n"))
	f.Add([]byte(head + "  variables:\n  - expression: 'a ||\n\n      b' #\n  mutations:\n    - jsonPatch: {expression: a}\n    - jsonPatch:\n        expression:\n         a\n         +b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 5000 {
			check(t, "f", data)
		}
	})
}
