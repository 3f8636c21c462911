package manifest

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// An edit of one item of a List leaves the text before and after the item as it is; where the
// layout does not allow it, the objects are right all the same.
func TestSpliceItem(t *testing.T) {
	const head, tail = "# All.\napiVersion:   v1\nkind: List\nitems:\n", "\n# The end.\nmetadata: {a:   b}  # more\n"
	const first, last = "# One,  first.\n- {apiVersion: v1,   kind: A}\n\n\n# Before.\n", "# Behind.\n- apiVersion:   v1\n  kind:  C # last\n  text: |\n    # no comment\n\n"
	const item = "- apiVersion: v1\n  kind: B # b\n  metadata:\n    name: x\n"
	for name, tc := range map[string]struct {
		before, item, after string
		whole               bool // all of it is laid out anew
	}{
		"plain":          {head + first, item, last + tail, false},
		"no braces":      {head, item, last + tail, false},
		"indented":       {head, indent(item), indent(last) + tail, false},
		"only":           {head, item, tail, false},
		"last of all":    {head, item, "", false},
		"no newline":     {head, strings.TrimSuffix(item, "\n"), "", false},
		"block":          {head, item + "  text: |\n    a\n\n    # no comment\n", last, false},
		"kept lines":     {head, item + "  text: |+\n    a\n\n\n", last, true},
		"own comment":    {head, item + "  # deeper\n", "# not deeper\n" + last, false},
		"marker":         {"---\n" + head, item, last + tail + "---\n" + head + item, false},
		"anchor":         {head, "- apiVersion: v1\n  kind: B\n  metadata: &m {name: x}\n", "- apiVersion: v1\n  kind: C\n  metadata: *m\n", true},
		"dash alone":     {head, "-\n  apiVersion: v1\n  kind: B\n  metadata: {name: x}\n", last, true},
		"windows":        {strings.ReplaceAll(head, "\n", "\r\n"), strings.ReplaceAll(item, "\n", "\r\n"), "", true},
		"quoted lines":   {head, item + "  text: \"a\n\n    b\"\n", last, false},
		"flow":           {"{kind:   List, apiVersion: v1, items: [", "{kind: B, apiVersion: v1, metadata: {name: x}}", "]}", true},
		"before another": {head, item, "- apiVersion: v1\n  kind: C\n- apiVersion: v1\n  kind: D\n", false},
	} {
		text := tc.before + tc.item + tc.after
		var edits []Edit
		for d, err := range ReadStream(name, strings.NewReader(text)) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if d.Object == nil || d.Object.GetKind() != "B" || len(edits) > 0 {
				continue
			}
			after := runtime.DeepCopyJSON(d.Object.Object)
			after["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"}
			edits = append(edits, Edit{d, after})
		}
		if len(edits) != 1 {
			t.Fatalf("%s: %d edits", name, len(edits))
		}
		out, err := Splice([]byte(text), edits)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		kept := strings.HasPrefix(string(out), tc.before) && strings.HasSuffix(string(out), tc.after)
		if kept == tc.whole {
			t.Errorf("%s: kept %v, in\n%s", name, kept, out)
		}
		if !strings.Contains(string(out), "a: b") {
			t.Errorf("%s: no label in\n%s", name, out)
		}
	}
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// FuzzSpliceItem: whatever the text, the objects are those that they should be, which Splice
// itself sees to; nothing panics.
func FuzzSpliceItem(f *testing.F) {
	f.Add("kind: List\napiVersion: v1\nitems:\n- kind: A\n  apiVersion: v1\n  # c\n- kind: B\n  apiVersion: v1\n")
	f.Add("kind: List\napiVersion: v1\nitems:\n  - kind: A\n    apiVersion: v1\n    t: |\n      x\n\n   # c\nresults: []\n")
	f.Fuzz(func(t *testing.T, text string) {
		var edits []Edit
		n := 0
		for d, err := range ReadStream("f", strings.NewReader(text)) {
			if err != nil {
				return
			}
			if d.Object == nil {
				continue
			}
			if n++; n%2 == 1 {
				after := runtime.DeepCopyJSON(d.Object.Object)
				after["added"] = "x"
				edits = append(edits, Edit{d, after})
			}
		}
		if len(edits) == 0 {
			return
		}
		out, err := Splice([]byte(text), edits)
		if err != nil {
			return
		}
		m := 0
		for d, err := range ReadStream("f", strings.NewReader(string(out))) {
			if err != nil {
				t.Fatalf("%q → %q: %v", text, out, err)
			}
			if d.Object != nil {
				m++
			}
		}
		if m != n {
			t.Fatalf("%q → %q: %d objects, want %d", text, out, m, n)
		}
	})
}
