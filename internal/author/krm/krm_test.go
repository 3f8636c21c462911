package krm

import (
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
)

// An item keeps the annotations of the caller, whatever policies change in the rest.
func TestCallersAnnotations(t *testing.T) {
	object := func(annotations map[string]any) map[string]any {
		meta := map[string]any{"name": "a"}
		if annotations != nil {
			meta["annotations"] = annotations
		}
		return map[string]any{"kind": "A", "metadata": meta}
	}
	const index, path, own = "internal.config.kubernetes.io/index", "config.kubernetes.io/path", "config.kubernetes.io/origin"
	for _, tc := range []struct{ given, bare, made, want map[string]any }{
		{object(nil), object(nil), object(nil), object(nil)},
		{object(map[string]any{index: "1"}), object(nil), object(nil), object(map[string]any{index: "1"})},
		{object(map[string]any{index: "1", own: "x"}), object(map[string]any{own: "x"}), object(map[string]any{own: "y"}), object(map[string]any{index: "1", own: "y"})},
		{object(map[string]any{index: "1", own: "x"}), object(map[string]any{own: "x"}), map[string]any{"kind": "A"}, map[string]any{"kind": "A", "metadata": map[string]any{"annotations": map[string]any{index: "1"}}}},
		// A policy that adds such annotations cannot change the file that an item belongs to.
		{object(map[string]any{path: "a.yaml"}), object(nil), object(map[string]any{path: "b.yaml", index: "9"}), object(map[string]any{path: "a.yaml"})},
	} {
		bare, kept := split(tc.given)
		if !tree.Equal(bare, tc.bare) {
			t.Errorf("%v is bare %v", tc.given, bare)
		}
		if got := join(tc.made, kept); !tree.Equal(got, tc.want) {
			t.Errorf("%v, made of %v, is %v, want %v", tc.made, tc.given, got, tc.want)
		}
		if got := join(bare, kept); !tree.Equal(got, tc.given) {
			t.Errorf("%v is %v without a change", tc.given, got)
		}
	}
}

// Results are bounded, except for errors; with an error no item is changed.
func TestResults(t *testing.T) {
	const text = "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems:\n- apiVersion: v1\n  kind: A # a\nresults:\n- message: earlier\n"
	l, err := Read("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var item *mapd.Document
	for d, err := range mapd.Read("f", strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		item = d
	}
	l.Change(item, map[string]any{"apiVersion": "v1", "kind": "A", "x": "why"})
	for range maxResults + 5 {
		l.Say(Result{Severity: Info, Message: "m", Item: item})
	}
	out, err := l.Write()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(out), "severity: info"); n != maxResults+1 || !strings.Contains(string(out), "and 5 more") ||
		!strings.Contains(string(out), "message: earlier") || !strings.Contains(string(out), "- apiVersion: v1\n  kind: A # a\n  x: why\n") {
		t.Errorf("%d results in\n%.500s", n, out)
	}
	l.Say(Result{Severity: Error, Message: "bad"})
	if out, err = l.Write(); err != nil || strings.Contains(string(out), "x: why") || strings.Contains(string(out), "severity: info") || !strings.Contains(string(out), "message: bad") {
		t.Errorf("%v\n%.500s", err, out)
	}
}

// Any input is either refused, or written with all its items.
func FuzzList(f *testing.F) {
	for _, s := range []string{
		"apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems: []\nfunctionConfig: {apiVersion: v1, kind: ConfigMap, data: {paths: \"a\\nb\", policies: \"kind: A\"}}\n",
		"apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems:\n- {apiVersion: v1, kind: A, metadata: {annotations: {config.kubernetes.io/index: '0'}}}\nresults: 1\n",
		`{"apiVersion": "config.kubernetes.io/v1", "kind": "ResourceList", "items": [{"apiVersion": "v1", "kind": "List", "items": []}]}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Read("f", []byte(text))
		if err != nil {
			return
		}
		for d, err := range mapd.Read("f", strings.NewReader(text)) {
			if err != nil || d.Object() == nil {
				continue
			}
			IsLocal(d)
			if bare, err := Bare(d); err == nil {
				l.Change(d, bare.Object().Object)
			}
			l.Say(Result{Severity: Warning, Message: "m", Item: d})
		}
		out, err := l.Write()
		if err != nil {
			return
		}
		if _, err := Read("f", out); err != nil {
			t.Fatalf("%q → %q: %v", text, out, err)
		}
	})
}
