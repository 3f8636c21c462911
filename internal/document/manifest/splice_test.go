package manifest

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestSplice gives every object of a text another label, and reads what came of it.
func TestSplice(t *testing.T) {
	const pod = "kind: Pod\napiVersion: v1\n"
	for name, text := range map[string]string{
		"plain":           pod,
		"no newline":      strings.TrimSuffix(pod, "\n"),
		"mark":            "\ufeff" + pod + "---\n" + pod,
		"windows":         strings.ReplaceAll(pod+"metadata:\n  name: a # x\n---\n# c\n"+pod, "\n", "\r\n"),
		"marker and text": pod + "--- {kind: Pod, apiVersion: v1}\n--- # why\n" + pod + "...\n# after\n",
		"directive":       "%YAML 1.1\n---\n" + pod + "...\n%YAML 1.1\n---\n" + pod,
		"anchors":         pod + "metadata: &m\n  name: a\nspec: *m\n",
		"empty ones":      "---\n---\n# nothing\n---\n" + pod + "---\n",
		"same twice":      pod + "---\n" + pod + "---\n# c\n" + pod + "---\n" + pod,
		"json":            `{"kind":"Pod","apiVersion":"v1"}{"kind":"Pod","apiVersion":"v1"}` + "\n---\n" + pod,
		"json with tabs":  "{\n\t\"kind\": \"Pod\",\n\t\"apiVersion\": \"v1\",\n\t\"n\": [1.50, 1e3, {}, []]\n}\n",
		"list":            "kind: PodList\napiVersion: v1\nitems:\n- metadata: {name: a} # one\n- {}\n- kind: List\n  apiVersion: v1\n  items: [{kind: Pod, apiVersion: v1}, {kind: Pod, apiVersion: v1}]\n",
		"json list":       `{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}, {}]}`,
	} {
		var edits []Edit
		for d, err := range ReadStream(name, strings.NewReader(text)) {
			switch {
			case err != nil:
				t.Fatalf("%s: %v", name, err)
			case d.Object == nil:
				continue
			}
			after := runtime.DeepCopyJSON(d.Object.Object)
			after["spec"] = map[string]any{"x": "y\n# z"}
			edits = append(edits, Edit{d, after})
		}
		same, err := Splice([]byte(text), nil)
		if err != nil || string(same) != text {
			t.Errorf("%s: no edits gave %q, %v", name, same, err)
		}
		out, err := Splice([]byte(text), edits)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n := 0
		for d, err := range ReadStream(name, strings.NewReader(string(out))) {
			if err != nil {
				t.Errorf("%s: %v in\n%s", name, err, out)
			} else if d.Object != nil {
				n++
				if spec, _ := d.Object.Object["spec"].(map[string]any); spec["x"] != "y\n# z" {
					t.Errorf("%s: an object without its edit in\n%s", name, out)
				}
			}
		}
		if n != len(edits) {
			t.Errorf("%s: %d objects, want %d, in\n%s", name, n, len(edits), out)
		}
		if len(edits) > 0 {
			if _, err := Splice([]byte(strings.Replace(text, "v1", "v2", 1)), edits); err == nil {
				t.Errorf("%s: a file that has changed is no error", name)
			}
			if _, err := Splice(nil, edits); err == nil {
				t.Errorf("%s: a file that is empty now is no error", name)
			}
		}
	}
}
