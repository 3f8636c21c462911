package audit

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/fakeapi"
)

// sets is a policy with its binding whose JSON patch has operations in CEL.
func sets(name, operations string) string {
	p := labels(name, "configmaps", `"x"`)
	return p[:strings.Index(p, "  mutations:")] + `  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[` + operations + `]'
` + p[strings.Index(p, "---"):]
}

const (
	otherName = `JSONPatch{op: "replace", path: "/metadata/name", value: "other"}`
	teamLabel = `JSONPatch{op: "add", path: "/metadata/labels", value: {"team": "x"}}`
)

// A field that no write changes is not written, is not counted as written, and has no undo.
func TestFixOfWhatCannotBeChanged(t *testing.T) {
	for name, tt := range map[string]struct {
		operations string
		dryRun     bool
		want       Outcome
		why        string
	}{
		"name":                {otherName, false, Unwritten, "metadata.name cannot be changed"},
		"name in a dry run":   {otherName, true, Unwritten, "metadata.name cannot be changed"},
		"namespace":           {`JSONPatch{op: "replace", path: "/metadata/namespace", value: "other"}`, false, Unwritten, "metadata.namespace cannot be changed"},
		"uid":                 {`JSONPatch{op: "add", path: "/metadata/uid", value: "x"}`, false, Unwritten, "metadata.uid cannot be changed"},
		"and a label":         {otherName + ", " + teamLabel, false, Partly, "metadata.name cannot be changed"},
		"and a label, dryRun": {otherName + ", " + teamLabel, true, CheckedPartly, "metadata.name cannot be changed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve()
			fill(t, s, 1)
			put(t, s, sets("odd", tt.operations))
			before := s.Get(configMaps, "a", "m0000")
			file := UndoFile{Name: filepath.Join(t.TempDir(), "undo.yaml")}
			f := fixer(t, s, nil)
			f.DryRun, f.Before, f.Refused = tt.dryRun, file.Add, file.Drop
			for range 2 { // the next run says the same
				outcome, why, err := f.Fix(t.Context(), reference("a", "m0000"))
				if outcome != tt.want || why != tt.why || err != nil {
					t.Fatalf("%q, %q, %v; want %q, %q", outcome, why, err, tt.want, tt.why)
				}
				if outcome.OK() {
					t.Error("nobody has to look at it")
				}
				if outcome == Partly {
					tt.want = Unwritten
				}
			}
			undo, err := file.Close()
			if wrote := !tree.Equal(s.Get(configMaps, "a", "m0000").Object, before.Object); wrote != undo || err != nil {
				t.Errorf("written: %t, in the undo file: %t, %v", wrote, undo, err)
			}
			if undo != (name == "and a label") {
				t.Errorf("in the undo file: %t", undo)
			}
		})
	}
}

// What the API server keeps as it is in the write itself, not already in the dry run.
func TestFixKeptByTheServer(t *testing.T) {
	s := serve()
	fill(t, s, 1)
	put(t, s, labels("team", "configmaps", `"x"`))
	before := s.Get(configMaps, "a", "m0000").Object
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Verb == "patch" && !r.DryRun {
			return before, nil
		}
		return nil, nil
	}
	file := UndoFile{Name: filepath.Join(t.TempDir(), "undo.yaml")}
	f := fixer(t, s, nil)
	f.Before, f.Refused = file.Add, file.Drop
	if outcome, why, err := f.Fix(t.Context(), reference("a", "m0000")); outcome != Unwritten || why != "the API server leaves metadata.labels unchanged" || err != nil {
		t.Errorf("%q, %q, %v", outcome, why, err)
	}
	if written, err := file.Close(); written || err != nil {
		t.Errorf("the undo file has a document, %v", err)
	}
}

// An undo is of what was stored, also if the dry run was answered with another value, as a
// number that the API server chooses.
func TestUndoOfWhatWasStored(t *testing.T) {
	s := serve()
	fill(t, s, 1)
	put(t, s, labels("team", "configmaps", `"x"`))
	before := s.Get(configMaps, "a", "m0000")
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Apply && !r.DryRun {
			r.Object["data"] = map[string]any{"port": "30001"}
		}
		return nil, nil
	}
	file := UndoFile{Name: filepath.Join(t.TempDir(), "undo.yaml")}
	f := fixer(t, s, nil)
	f.Before, f.Refused = file.Add, file.Drop
	fix(t, f, "m0000", Written)
	if _, err := file.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := ReadUndoFile(file.Name)
	if err != nil || len(all) != 1 {
		t.Fatal(len(all), err)
	}
	if outcome, why, err := f.Restore(t.Context(), all[0]); outcome != Restored || err != nil {
		t.Fatal(outcome, why, err)
	}
	if diff := cmp.Diff(stable(before), stable(s.Get(configMaps, "a", "m0000"))); diff != "" {
		t.Error(diff)
	}
}

// A DaemonSet has an annotation that the API server counts in, whatever is written there.
func TestStableDaemonSet(t *testing.T) {
	of := func(kind, n string) map[string]any {
		return stable(&unstructured.Unstructured{Object: map[string]any{"kind": kind, "metadata": map[string]any{
			"name": "d", "generation": int64(len(n)), "annotations": map[string]any{templateGeneration: n, "a": "b"},
		}}})
	}
	if diff := cmp.Diff(of("DaemonSet", "1"), of("DaemonSet", "22")); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(of("ConfigMap", "1"), of("ConfigMap", "22")) {
		t.Error("the annotation is a DaemonSet's only")
	}
}

func TestManagers(t *testing.T) {
	entry := func(manager, operation string, fields map[string]any) any {
		return map[string]any{"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields, "fieldsType": "FieldsV1"}
	}
	object := func(entries ...any) map[string]any {
		return map[string]any{"metadata": map[string]any{"managedFields": entries}}
	}
	read := func(text string) map[string]any {
		o, err := tree.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	kubectl := entry("kubectl", "Update", read(`{"f:data": {".": {}, "f:a": {}, "f:b": {}}}`))
	for name, tt := range map[string]struct {
		before, after, now, want map[string]any
	}{
		"nothing of it is left": {
			object(kubectl), object(kubectl, entry(Manager, "Apply", read(`{"f:data": {"f:c": {}}}`))), object(kubectl), object(kubectl),
		},
		"the keys of an element": {
			object(kubectl), object(kubectl, entry(Manager, "Apply", read(`{"f:l": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}, "f:i": {}}}}`))),
			object(kubectl, entry(Manager, "Apply", read(`{"f:l": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}}}}`))), object(kubectl),
		},
		"a field that was removed": {
			object(kubectl), object(entry("kubectl", "Update", read(`{"f:data": {".": {}, "f:a": {}}}`))),
			object(entry("kubectl", "Update", read(`{"f:data": {".": {}, "f:a": {}}}`)), entry(Manager, "Update", read(`{"f:data": {"f:b": {}}}`))), object(kubectl),
		},
		"all fields of a manager": {
			object(kubectl), object(),
			object(entry(Manager, "Update", read(`{"f:data": {".": {}, "f:a": {}, "f:b": {}}}`))), object(kubectl),
		},
		"an earlier write stays": {
			object(kubectl, entry(Manager, "Apply", read(`{"f:m": {"f:old": {}}}`))), object(kubectl, entry(Manager, "Apply", read(`{"f:m": {"f:old": {}, "f:new": {}}}`))),
			object(kubectl, entry(Manager, "Apply", read(`{"f:m": {"f:old": {}, "f:new": {}}}`))), object(kubectl, entry(Manager, "Apply", read(`{"f:m": {"f:old": {}}}`))),
		},
		"the only manager": {
			object(), object(entry(Manager, "Update", read(`{"f:m": {}}`))), object(entry(Manager, "Update", read(`{"f:m": {}}`))), object(map[string]any{}),
		},
		"others since": {
			object(kubectl), object(kubectl), object(kubectl, entry("hpa", "Update", read(`{"f:m": {}}`))), object(kubectl, entry("hpa", "Update", read(`{"f:m": {}}`))),
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := &Undo{Before: tt.before, After: tt.after}
			got, changed := u.managers(&unstructured.Unstructured{Object: tt.now})
			if diff := cmp.Diff(tt.want, object(got...)); diff != "" {
				t.Error(diff)
			}
			if same := cmp.Equal(tt.now, tt.want); changed == same {
				t.Errorf("changed: %t", changed)
			}
			if _, changed = u.managers(&unstructured.Unstructured{Object: object(got...)}); changed && name != "the only manager" {
				t.Error("it changes again")
			}
		})
	}
}
