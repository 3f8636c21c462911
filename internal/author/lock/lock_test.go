package lock

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestCheck(t *testing.T) {
	made := time.Date(2026, 11, 28, 5, 0, 0, 0, time.UTC)
	object := func(kind, name string, more map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name, "uid": "x", "resourceVersion": "7"}}}
		for k, v := range more {
			u.Object[k] = v
		}
		return u
	}
	all := []*unstructured.Unstructured{
		object("Namespace", "shop", map[string]any{"status": map[string]any{"phase": "Active"}}),
		object("ConfigMap", "b", map[string]any{"data": map[string]any{"text": "a\n---\nb", "more": "---\n"}}),
		object("Secret", "s", map[string]any{"data": map[string]any{"k": "dG9w"}}),
	}
	text, secrets := Write("1.37", made, all)
	if len(secrets) != 1 || secrets[0] != "Secret s" || strings.Contains(string(text), "dG9w") || strings.Contains(string(text), "resourceVersion") || strings.Contains(string(text), "phase") {
		t.Errorf("%q in\n%s", secrets, text)
	}
	if again, _ := Write("1.37", made, []*unstructured.Unstructured{all[1], all[2], all[0]}); string(again) != string(text) {
		t.Errorf("another order gives\n%s\nnot\n%s", again, text)
	}
	for name, tc := range map[string]struct {
		text string
		ok   bool
		err  string
	}{
		"as it was":    {string(text), true, ""},
		"no snapshot":  {"kind: Namespace\n", false, ""},
		"edited":       {strings.Replace(string(text), "name: shop", "name: shop2", 1), true, "f: Namespace shop is not what the cluster had: its digest is another one; mapd snapshot makes it anew"},
		"cut":          {string(text[:len(text)-20]), true, "is not what the cluster had"},
		"one more":     {string(text) + "---\nkind: Namespace\n", true, "3 objects, and digests of 2"},
		"one less":     {string(text[:strings.LastIndex(string(text), "---\napiVersion")]), true, "1 objects, and digests of 2"},
		"no date":      {strings.Replace(string(text), "2026-11-28T05:00:00Z", "today", 1), true, "the first line does not end with when it was made"},
		"only a line":  {first + "1.37, 2026-11-28T05:00:00Z\n", true, ""},
		"no objects":   {strings.Join(strings.SplitAfter(string(text), "\n")[:2], ""), true, "0 objects, and digests of 1"},
		"bare line":    {first + "1.37, 2026-11-28T05:00:00Z", true, ""},
		"nothing more": {first, true, "the first line"},
	} {
		at, ok, err := Check("f", []byte(tc.text))
		switch {
		case ok != tc.ok, (err != nil) != (tc.err != ""), err != nil && !strings.Contains(err.Error(), tc.err):
			t.Errorf("%s: %v, %v, want %v, %q\n%s", name, ok, err, tc.ok, tc.err, tc.text)
		case ok && err == nil && !at.Equal(made):
			t.Errorf("%s: of %v", name, at)
		}
	}
	if empty, _ := Write("1.37", made, nil); len(empty) == 0 {
		t.Error("nothing is written")
	} else if _, ok, err := Check("f", empty); !ok || err != nil {
		t.Errorf("without objects: %v, %v", ok, err)
	}
}

func FuzzCheck(f *testing.F) {
	text, _ := Write("1.37", time.Unix(0, 0), []*unstructured.Unstructured{{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "a"}}}})
	f.Add(text)
	f.Add([]byte(first + "\n---\n---\n"))
	f.Fuzz(func(t *testing.T, text []byte) { _, _, _ = Check("f", text) })
}
