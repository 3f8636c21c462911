package report

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/explain"
)

// hidden has one of each kind that people do not see: what moves a cursor, ends a line, or
// turns the direction of text.
const hidden = "\x1b\x07\u0085\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"

// family is one emoji of three that are joined, and persian a word with a joiner of its own.
const family, persian = "👨‍👩‍👧", "می\u200cخواهم"

// Nothing hidden reaches a reader, by whichever way it comes, and joiners stay.
func TestNothingHidden(t *testing.T) {
	value := "a" + hidden + "b"
	object := func(v string) map[string]any {
		return map[string]any{"kind": "ConfigMap", "data": map[string]any{"k": v, "k" + v: v, "lines": "1\n" + v, "list": []any{v, map[string]any{v: v}}}}
	}
	var diff strings.Builder
	changes := Diff(object("x"), object(value), nil)
	changes = append(changes, Diff(map[string]any{"kind": "ConfigMap"}, object(value), nil)...)
	changes = append(changes, Change{Path: "spec" + value, Before: value, After: value, Moved: true})
	if err := WriteDiff(&diff, "title"+value, changes, false); err != nil {
		t.Fatal(err)
	}
	stage := engine.Policies(nil)
	failed := &engine.Decision{Steps: []engine.Step{
		{Stage: stage.Name, Policy: "p" + value, Outcome: engine.Failed, Err: errorText(value)},
		{Stage: stage.Name, Policy: "p", Outcome: engine.Skipped, Reason: value},
	}, Stages: []engine.Record{{Stage: &stage}}}
	keys := func(*unstructured.Unstructured) Keys { return nil }
	for name, text := range map[string]string{
		"Line": Line(value), "Printable": Printable(value), "diff": diff.String(),
		"summary": Summary("n"+value, failed, keys, Everything),
		"blame":   BlameText(object(value), &explain.Blame{}),
	} {
		if i := strings.IndexFunc(text, func(r rune) bool { return Hidden(r) && r != '\n' && r != '\t' }); i >= 0 {
			t.Errorf("%s: %q", name, text)
		}
		if !strings.Contains(text, "202e") && !strings.Contains(text, "202E") {
			t.Errorf("%s does not show what it escapes: %q", name, text)
		}
	}
	for _, text := range []string{family, persian} {
		if Line(text) != text || Printable(text) != text {
			t.Errorf("%q became %q", text, Line(text))
		}
	}
}

type errorText string

func (e errorText) Error() string { return string(e) }
