package ignore

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Argo CD deletes what the rules name from the object of Git and from that of the cluster,
// and compares the rest. Then there is no difference, unless there is another one.
func TestArgoRulesWithJQ(t *testing.T) {
	jqPath, err := exec.LookPath("jq")
	if err != nil {
		t.Skip("there is no jq")
	}
	object := func(text string) (m map[string]any) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	before := object(`{"metadata": {"labels": {"app": "web"}}, "spec": {"replicas": 1, "containers": [{"name": "a\"b\\(1)", "image": "x"}, {"name": "8", "image": "y"}], "ports": [{"port": 80, "protocol": "TCP"}], "tolerations": [{"key": "t"}]}}`)
	after := object(`{"metadata": {"labels": {"app": "web", "example.com/team": "x"}}, "spec": {"replicas": 2, "containers": [{"name": "proxy", "image": "p"}, {"name": "a\"b\\(1)", "image": "z"}, {"name": "8", "image": "w"}], "ports": [{"port": 80, "protocol": "TCP", "name": "web"}], "tolerations": [{"key": "t", "operator": "Exists"}]}}`)
	r := Rules{For: ArgoCD}
	r.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, true, before, after, []mapd.Change{
		{Path: "metadata.labels[example.com/team]", After: "x"},
		{Path: "spec.replicas", Before: int64(1), After: int64(2)},
		{Path: "spec.containers[name=proxy]", After: map[string]any{"name": "proxy", "image": "p"}},
		{Path: `spec.containers[name=a"b\(1)].image`, Before: "x", After: "z"},
		{Path: "spec.containers[name=8].image", Before: "y", After: "w"},
		{Path: "spec.ports[port=80,protocol=TCP].name", After: "web"},
		{Path: "spec.tolerations[0].operator", After: "Exists"},
	})
	rules := r.Argo(false)
	if len(rules) != 1 {
		t.Fatalf("%v", rules)
	}
	rule := rules[0].(map[string]any)
	left := func(in map[string]any) map[string]any {
		t.Helper()
		for _, e := range rule["jqPathExpressions"].([]any) {
			text, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), jqPath, "del("+e.(string)+")")
			cmd.Stdin = strings.NewReader(string(text))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", e, err, out)
			}
			in = object(string(out))
		}
		for _, p := range rule["jsonPointers"].([]any) {
			tokens, err := tree.ParsePointer(p.(string))
			if err != nil {
				t.Fatal(err)
			}
			m := in
			for _, token := range tokens[:len(tokens)-1] {
				m, _ = m[token].(map[string]any)
			}
			delete(m, tokens[len(tokens)-1])
		}
		return in
	}
	if a, b := left(before), left(after); !tree.Equal(a, b) {
		t.Errorf("rules %v leave\n%v\n%v", rule, a, b)
	}
	// They are narrow: what nobody has written is still a difference.
	for _, other := range []string{
		`{"metadata": {"labels": {"app": "web"}}, "spec": {"replicas": 1, "containers": [{"name": "8", "image": "y", "tty": true}]}}`,
		`{"metadata": {"labels": {"app": "other"}}, "spec": {"replicas": 1, "containers": [{"name": "8", "image": "y"}]}}`,
		`{"metadata": {"labels": {"app": "web"}}, "spec": {"replicas": 1, "containers": [{"name": "9", "image": "y"}]}}`,
	} {
		base := object(`{"metadata": {"labels": {"app": "web"}}, "spec": {"replicas": 1, "containers": [{"name": "8", "image": "y"}]}}`)
		if tree.Equal(left(base), left(object(other))) {
			t.Errorf("rules %v ignore %s", rule, other)
		}
	}
}

// What stands behind a comma of a value is no other key.
func TestValueLikeKeys(t *testing.T) {
	mounts := func(readOnly bool) map[string]any {
		return map[string]any{"spec": map[string]any{"mounts": []any{map[string]any{"mountPath": "/a,b=c", "readOnly": readOnly}}}}
	}
	for of, want := range map[string]string{
		ArgoCD: `.spec.mounts[]? | select(.mountPath == "/a,b=c") | .readOnly`,
		Flux:   "/spec/mounts/0/readOnly",
	} {
		r := Rules{For: of}
		r.Add(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, true, mounts(false), mounts(true), []mapd.Change{
			{Path: "spec.mounts[mountPath=/a,b=c].readOnly", Before: false, After: true},
		})
		text, err := r.Text("", false)
		if err != nil || !strings.Contains(string(text), "- "+want+"\n") {
			t.Errorf("%v\n%s\nwant %s", err, text, want)
		}
	}
}

// Texts of a tenant, such as names with quotes, make no other expression.
func FuzzQuoted(f *testing.F) {
	for _, s := range []string{"a", `a"b`, `\(1)`, "\\", "<é😀>", "\x00\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var back string
		text := quoted(s)
		if err := json.Unmarshal([]byte(text), &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") && strings.ToValidUTF8(s, "") == s {
			t.Errorf("%q → %s → %q, %v", s, text, back, err)
		}
		if strings.Contains(strings.ReplaceAll(text, `\\`, ""), `\(`) {
			t.Errorf("%q → %s has an interpolation", s, text)
		}
	})
}

// A policy for all containers makes null of the empty list of an object that is made up. A rule
// about that would be about every list of containers.
func TestEmptyList(t *testing.T) {
	var r Rules
	r.Add(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, false,
		map[string]any{"spec": map[string]any{"containers": []any{}}}, map[string]any{"spec": map[string]any{}},
		[]mapd.Change{{Path: "spec.containers", Before: []any{}}, {Path: "spec.hostname", After: "a"}})
	if r.Len() != 1 {
		t.Errorf("%v", r.Argo(false))
	}
}
