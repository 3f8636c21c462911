package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/fakeapi"
)

// fixer returns a Fixer of what a server has, and what it wrote for an undo.
func fixer(t *testing.T, s *fakeapi.Server, undo *[]*Undo) *Fixer {
	t.Helper()
	o := options(t, connect(t, s), Loading{})
	return &Fixer{Writer: Writer{Cluster: o.Cluster, Patience: time.Minute}, Set: o.Set, Asking: o.Asking, Before: func(u *Undo) error {
		*undo = append(*undo, u)
		return nil
	}}
}

func reference(namespace, name string) Reference {
	return Reference{Resource: Resource{GVR: configMaps, GVK: configMaps.GroupVersion().WithKind("ConfigMap"), Namespaced: true}, Namespace: namespace, Name: name}
}

func fix(t *testing.T, f *Fixer, name string, want Outcome) {
	t.Helper()
	got, why, err := f.Fix(t.Context(), reference("a", name))
	if err != nil || got != want {
		t.Fatalf("%s: %s, %s, %v; want %s", name, got, why, err, want)
	}
}

// What was written is noted before, once, and can be put back.
func TestFixAndRestore(t *testing.T) {
	s := serve()
	fill(t, s, 1)
	put(t, s, labels("team", "configmaps", `"x"`))
	before := s.Get(configMaps, "a", "m0000")
	var undo []*Undo
	f := fixer(t, s, &undo)
	f.DryRun = true
	fix(t, f, "m0000", Checked)
	if len(undo) != 0 || !reflect.DeepEqual(s.Get(configMaps, "a", "m0000"), before) {
		t.Fatal("a dry run has written")
	}
	f.DryRun = false
	fix(t, f, "m0000", Written)
	fix(t, f, "m0000", Done)
	fix(t, f, "other", Gone)
	if got := s.Get(configMaps, "a", "m0000").GetLabels()["team"]; got != "x" || len(undo) != 1 {
		t.Fatalf("label %q, %d undos", got, len(undo))
	}
	outcome, why, err := f.Restore(t.Context(), undo[0])
	if err != nil || outcome != Restored {
		t.Fatal(outcome, why, err)
	}
	if now := s.Get(configMaps, "a", "m0000"); !reflect.DeepEqual(stable(now), stable(before)) {
		t.Errorf("got %v, want %v", now, before)
	}
	if outcome, _, _ = f.Restore(t.Context(), undo[0]); outcome != Before {
		t.Errorf("again: %s", outcome)
	}
	// Somebody else's label stays, and what somebody has changed since is left alone.
	fix(t, f, "m0000", Written)
	change(s, func(l map[string]any) { l["mine"] = "y" })
	if outcome, why, err = f.Restore(t.Context(), undo[1]); outcome != Restored {
		t.Fatal(outcome, why, err)
	}
	if l := s.Get(configMaps, "a", "m0000").GetLabels(); !reflect.DeepEqual(l, map[string]string{"mine": "y"}) {
		t.Errorf("labels %v", l)
	}
	fix(t, f, "m0000", Written)
	change(s, func(l map[string]any) { l["team"] = "z" })
	if outcome, why, err = f.Restore(t.Context(), undo[2]); outcome != Conflict || why != "changed since: metadata.labels.team" {
		t.Fatal(outcome, why, err)
	}
}

// change edits the labels of an object as another client does.
func change(s *fakeapi.Server, edit func(labels map[string]any)) {
	o := s.Get(configMaps, "a", "m0000").Object
	l, _ := o["metadata"].(map[string]any)["labels"].(map[string]any)
	if l == nil {
		l = map[string]any{}
		o["metadata"].(map[string]any)["labels"] = l
	}
	edit(l)
	s.Put(configMaps, "a", "m0000", o)
}

// An object that changes between reading and writing is evaluated again, and nothing of
// what the other has written is lost.
func TestFixChangedMeanwhile(t *testing.T) {
	s := serve()
	fill(t, s, 1)
	put(t, s, labels("team", "configmaps", `has(object.metadata.labels) && "owner" in object.metadata.labels ? object.metadata.labels.owner : "none"`))
	var undo []*Undo
	f := fixer(t, s, &undo)
	changes := 0
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Verb == "patch" && changes < 2 { // before the dry run, then before the write
			changes++
			change(s, func(l map[string]any) { l["owner"] = fmt.Sprint("o", changes) })
		}
		return nil, nil
	}
	fix(t, f, "m0000", Written)
	if l := s.Get(configMaps, "a", "m0000").GetLabels(); !reflect.DeepEqual(l, map[string]string{"owner": "o2", "team": "o2"}) {
		t.Errorf("labels %v", l)
	}
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Verb == "patch" {
			changes++
			change(s, func(l map[string]any) { l["owner"] = fmt.Sprint("o", changes) })
		}
		return nil, nil
	}
	put(t, s, labels("team", "configmaps", `"always"`))
	f = fixer(t, s, &undo)
	fix(t, f, "m0000", Conflict)
}

// What another has written meanwhile, even if it is the same, is not taken back.
func TestUndoOfWhatWasNotWritten(t *testing.T) {
	s := serve()
	fill(t, s, 1)
	put(t, s, labels("team", "configmaps", `"x"`))
	file := UndoFile{Name: filepath.Join(t.TempDir(), "undo.yaml")}
	f := fixer(t, s, nil)
	f.Before, f.Refused = file.Add, file.Drop
	patches := 0
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Verb == "patch" {
			if patches++; patches == 2 { // after the dry run
				change(s, func(l map[string]any) { l["team"] = "x" })
			}
		}
		return nil, nil
	}
	fix(t, f, "m0000", Done)
	if written, err := file.Close(); written || err != nil {
		t.Errorf("the undo file has a document, %v", err)
	}
	if _, err := os.Stat(file.Name); !os.IsNotExist(err) {
		t.Errorf("the undo file: %v", err)
	}
}

// A removal is a JSON patch of the version that was evaluated.
func TestFixRemoves(t *testing.T) {
	s := serve()
	fill(t, s, 1)
	p := labels("drop", "configmaps", `"x"`)
	p = p[:strings.Index(p, "  mutations:")] + `  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: 'has(object.data) ? [JSONPatch{op: "remove", path: "/data"}] : []'
` + p[strings.Index(p, "---"):]
	put(t, s, p)
	before := s.Get(configMaps, "a", "m0000")
	var undo []*Undo
	f := fixer(t, s, &undo)
	fix(t, f, "m0000", Written)
	if _, ok := s.Get(configMaps, "a", "m0000").Object["data"]; ok {
		t.Fatal("data is still there")
	}
	if outcome, why, err := f.Restore(t.Context(), undo[0]); outcome != Restored {
		t.Fatal(outcome, why, err)
	}
	if now := s.Get(configMaps, "a", "m0000"); !reflect.DeepEqual(stable(now), stable(before)) {
		t.Errorf("got %v, want %v", now, before)
	}
}

// Nothing is written if it cannot be noted, or the policies fail.
func TestFixRefuses(t *testing.T) {
	s := serve()
	fill(t, s, 1)
	put(t, s, labels("team", "configmaps", `"x"`))
	var undo []*Undo
	f := fixer(t, s, &undo)
	file := filepath.Join(t.TempDir(), "undo")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.Before = (&UndoFile{Name: file}).Add // it exists
	if _, _, err := f.Fix(t.Context(), reference("a", "m0000")); !os.IsExist(err) {
		t.Errorf("got %v", err)
	}
	f.Confirm = func(*Result) (bool, error) { return false, nil }
	fix(t, f, "m0000", Declined)
	put(t, s, labels("bad", "configmaps", `[""][int(object.data.n)+5]`))
	f = fixer(t, s, &undo)
	fix(t, f, "m0000", Refused)
	put(t, s, strings.Replace(labels("bad", "configmaps", `[""][int(object.data.n)+5]`), "failurePolicy: Fail", "failurePolicy: Ignore", 1))
	f = fixer(t, s, &undo)
	fix(t, f, "m0000", Failed)
	for _, w := range s.Writes() {
		if !w.DryRun {
			t.Errorf("written: %s", w)
		}
	}
}

func TestUndoFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "undo.yaml")
	f := &UndoFile{Name: file}
	if written, err := f.Close(); written || err != nil {
		t.Fatal(written, err)
	}
	var want []*Undo
	for i := range 3 {
		u := &Undo{APIVersion: undoVersion, Kind: undoKind, Resource: "configmaps", Namespaced: true, Before: map[string]any{"kind": "ConfigMap", "n": int64(i)}, After: map[string]any{"t": "---\n\u2028"}}
		want = append(want, u)
		if err := f.Add(u); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := ReadUndoFile(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, got %+v", err, got)
	}
	text := must(os.ReadFile(file))
	for cut := range text {
		got, err := ReadUndo(bytes.NewReader(text[:cut]))
		if err != nil || len(got) > 3 {
			t.Fatalf("%d bytes: %v, %d documents", cut, err, len(got))
		}
	}
	if _, err := ReadUndo(strings.NewReader("kind: ConfigMap\n---\n")); err == nil {
		t.Error("anything is an undo file")
	}
	if _, err := ReadUndo(strings.NewReader(`{"kind": "ConfigMap"}` + "\n")); err == nil {
		t.Error("any object is an undo")
	}
}

// fuzzed values for takeBack: now is after with an edit of its own.
func FuzzRestore(f *testing.F) {
	f.Add(`{"a":{"b":1}}`, `{"a":{"b":2,"c":3}}`, `{"a":{"b":2,"c":3},"d":4}`)
	f.Add(`{}`, `{"a":{"b":2}}`, `{"a":{"b":2,"x":1}}`)
	f.Add(`{"l":[1,2]}`, `{"l":[1]}`, `{"l":[1,3]}`)
	f.Fuzz(func(t *testing.T, b, a, n string) {
		var before, after, now map[string]any
		for text, into := range map[*string]*map[string]any{&b: &before, &a: &after, &n: &now} {
			o, err := tree.Decode([]byte(*text))
			if err != nil {
				t.Skip()
			}
			*into = o
		}
		var taken []string
		back, _ := takeBack("", after, after, before, &taken)
		if len(taken) > 0 || !same(back, before) {
			t.Errorf("after is not put back: %v, %v", back, taken)
		}
		taken = nil
		back, _ = takeBack("", now, after, before, &taken)
		if len(taken) > 0 {
			return
		}
		// What is put back once stays.
		again, _ := takeBack("", back, after, before, &taken)
		if !same(again, back) {
			t.Errorf("again gives %v, not %v", again, back)
		}
	})
}
