package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Undo has an object before and after a write. It is a document of an undo file. The
// managedFields of the two show what the write took from other managers.
type Undo struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Resource   string         `json:"resource"`
	Namespaced bool           `json:"namespaced"`
	Before     map[string]any `json:"before"`
	After      map[string]any `json:"after"`
	// At is the time of the write, in RFC 3339. Stored: the API server has confirmed the write.
	// Undo files do not have these fields.
	At     string `json:"at,omitempty"`
	Stored bool   `json:"stored,omitempty"`
}

const (
	undoVersion = "audit.mapd.dev/v1"
	undoKind    = "Undo"
)

func newUndo(of Resource, before, after *unstructured.Unstructured) *Undo {
	return &Undo{APIVersion: undoVersion, Kind: undoKind, Resource: of.GVR.Resource, Namespaced: of.Namespaced, Before: before.Object, After: after.Object}
}

// UndoFile is a file of Undo documents, which is created with the first one.
type UndoFile struct {
	Name string
	file *os.File
	last int64 // where the last document begins
}

// Add writes a document, and returns when it is on the disk. Only the owner may read the file,
// because it has whole objects.
func (f *UndoFile) Add(u *Undo) (err error) {
	if f.file == nil {
		if f.file, err = os.OpenFile(f.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return err
		}
	}
	text, err := json.Marshal(u)
	if err != nil {
		return err
	}
	if f.last, err = f.file.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	if _, err = f.file.Write(append(append([]byte("---\n"), text...), '\n')); err == nil {
		err = f.file.Sync()
	}
	return err
}

// Drop removes the last document, because its object was not written. Undoing it could revert
// somebody else's write.
func (f *UndoFile) Drop() error {
	err := f.file.Truncate(f.last)
	if err == nil {
		err = f.file.Sync()
	}
	return err
}

// Close closes the file, and removes it if it has no documents; written reports whether it has
// one.
func (f *UndoFile) Close() (written bool, err error) {
	if f.file == nil {
		return false, nil
	}
	info, err := f.file.Stat()
	if closed := f.file.Close(); err == nil {
		err = closed
	}
	if err == nil && info.Size() == 0 {
		return false, os.Remove(f.Name)
	}
	return true, err
}

// ReadUndo reads an undo file. It ignores an incomplete last document, because its object was not
// written. If two consecutive documents have the same object before the write, the second has
// what the API server stored.
func ReadUndo(r io.Reader) (all []*Undo, err error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	docs := bytes.SplitAfter(text, []byte("\n"))
	for i, line := range docs {
		if len(bytes.TrimSpace(line)) == 0 || string(bytes.TrimSpace(line)) == "---" {
			continue
		}
		o, err := tree.Decode(line)
		if err != nil && i == len(docs)-1 {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		u := &Undo{}
		u.APIVersion, _ = o["apiVersion"].(string)
		u.Kind, _ = o["kind"].(string)
		u.Resource, _ = o["resource"].(string)
		u.Namespaced, _ = o["namespaced"].(bool)
		u.Before, _ = o["before"].(map[string]any)
		u.After, _ = o["after"].(map[string]any)
		u.At, _ = o["at"].(string)
		u.Stored, _ = o["stored"].(bool)
		if u.APIVersion != undoVersion || u.Kind != undoKind || u.Resource == "" || u.Before == nil || u.After == nil {
			return nil, fmt.Errorf("line %d: want an object of kind %s of %s, which mapd audit --fix has written", i+1, undoKind, undoVersion)
		}
		if n := len(all); n > 0 && all[n-1].Resource == u.Resource && tree.Equal(all[n-1].Before, u.Before) {
			all = all[:n-1]
		}
		all = append(all, u)
	}
	return all, nil
}

// Title returns the object as messages call it.
func (u *Undo) Title() string { return newResult(u.object()).Title() }

func (u *Undo) object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: u.Before}
}

// Restore sets the fields that a Fixer has changed to their former values. If any of them is no
// longer as the Fixer has written it, Restore writes nothing. Other managers get back the fields
// that the Fixer took from them.
func (w *Writer) Restore(ctx context.Context, u *Undo) (Outcome, string, error) {
	var read, stored *unstructured.Unstructured
	outcome, why, err := w.restore(ctx, u, func(before, after *unstructured.Unstructured) { read, stored = before, after })
	if err != nil || stored == nil {
		return outcome, why, err
	}
	pods, err := w.await(ctx, w.Cluster.of(u.resource(), stored.GetNamespace()), read, stored)
	return outcome, also(why, pods), err
}

// also joins two explanations, either of which may be empty.
func also(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// Changed returns the fields that the write changed, as pointers with their present values; nil
// if there are none.
func (u *Undo) Changed() map[string]any {
	return Changed(u.object(), &unstructured.Unstructured{Object: u.After})
}

// Changed returns the fields that differ between two versions of an object, as pointers with
// their values in now; nil if there are none. New and removed objects count by their innermost
// fields.
func Changed(was, now *unstructured.Unstructured) map[string]any {
	before, after := &unstructured.Unstructured{Object: stable(was)}, &unstructured.Unstructured{Object: stable(now)}
	out := map[string]any{}
	for _, pointer := range tree.Changed(before.Object, after.Object) {
		for _, p := range leaves(pointer, before, after) {
			for _, p := range leaves(p, after, before) {
				out[p] = at(after, p)
			}
		}
	}
	return out
}

// ValueAt returns the value at a pointer of an object, nil if there is none.
func ValueAt(u *unstructured.Unstructured, pointer string) any { return at(u, pointer) }

// FieldName returns a pointer as results name fields.
func FieldName(pointer string) string { return fieldName(pointer) }

func (u *Undo) resource() Resource {
	gvk := u.object().GroupVersionKind()
	return Resource{GVR: schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: u.Resource}, GVK: gvk, Namespaced: u.Namespaced}
}

// restore calls wrote with the object that it has read and what was stored, if it has written.
func (w *Writer) restore(ctx context.Context, u *Undo, wrote func(before, after *unstructured.Unstructured)) (Outcome, string, error) {
	was := u.object()
	client := w.Cluster.of(u.resource(), was.GetNamespace())
	before, after := stable(was), stable(&unstructured.Unstructured{Object: u.After})
	outcome, why := Before, ""
	for range attempts {
		now, err := client.Get(ctx, was.GetName(), metav1.GetOptions{})
		if outcome, why, err := failed(ctx, err); outcome != "" || err != nil {
			return outcome, why, err
		}
		if now.GetUID() != was.GetUID() {
			return Gone, "there is another object of that name", nil
		}
		current := stable(now)
		var taken []string
		back, _ := takeBack("", current, after, before, &taken)
		if len(taken) > 0 {
			return Conflict, "changed since: " + list(taken), nil
		}
		if ops := tree.Diff(current, back); len(ops) > 0 {
			stored, err := replace(ctx, client, now, ops, true)
			if err == nil {
				if why := w.leftOut(now.Object, stored.Object); why != "" {
					return LeftOut, why, nil
				}
			}
			if err == nil && !w.DryRun {
				stored, err = replace(ctx, client, now, ops, false)
			}
			if apierrors.IsConflict(err) {
				continue
			}
			if outcome, why, err := failed(ctx, err); outcome != "" || err != nil {
				return outcome, why, err
			}
			outcome, why = Restored, ""
			if left := otherwise(current, back, stable(stored)); len(left) > 0 {
				outcome, why = Conflict, "the API server, or a policy or webhook in force, sets another value for "+list(left)
			}
			if w.DryRun {
				if outcome == Restored {
					outcome, why = Checked, replaces(now, stored)
				}
				return outcome, why, nil
			}
			wrote(now, stored)
			now = stored
		}
		managers, changed := u.managers(now)
		switch {
		case !changed:
			return outcome, why, nil
		case w.DryRun:
			return Checked, "", nil
		}
		_, err = replace(ctx, client, now, []tree.Op{{Op: "replace", Path: "/metadata/managedFields", Value: managers}}, false)
		if apierrors.IsConflict(err) {
			continue
		}
		if failure, text, err := failed(ctx, err); failure != "" || err != nil {
			return failure, "its managedFields could not be put back: " + text, err
		}
		if outcome == Before {
			outcome = Restored
		}
		return outcome, why, nil
	}
	return Conflict, fmt.Sprintf("the object has changed %d times meanwhile", attempts), nil
}

// replace patches the version of an object that was read.
func replace(ctx context.Context, client dynamic.ResourceInterface, now *unstructured.Unstructured, ops []tree.Op, dryRun bool) (*unstructured.Unstructured, error) {
	p, err := jsonPatch(now, ops)
	if err != nil {
		return nil, err
	}
	return p.send(ctx, client, dryRun)
}

// otherwise returns the names of fields that a write should change from one value to another, but
// that have neither afterwards, or still have the first. It ignores other fields.
func otherwise(from, to, stored any) []string {
	asked := names(tree.Changed(from, to))
	return slices.DeleteFunc(names(tree.Changed(to, stored)), func(name string) bool {
		return !slices.ContainsFunc(asked, func(a string) bool { return overlap(a, name) })
	})
}

// names returns the fields of pointers, each once.
func names(pointers []string) []string {
	var out []string
	for _, p := range pointers {
		out = append(out, fieldName(p))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// absent is the value of a field that is not there.
type absent struct{}

// takeBack returns now with the changes from before to after reverted. It adds to taken the paths
// of fields that are neither as in after nor as in before. Lists count as single values.
func takeBack(path string, now, after, before any, taken *[]string) (any, bool) {
	switch {
	case same(after, before), same(now, before):
		return now, now != absent{}
	case same(now, after):
		return before, before != absent{}
	}
	n, a, b := fields(now), fields(after), fields(before)
	if n == nil || a == nil || b == nil {
		*taken = append(*taken, fieldName(path))
		return now, true
	}
	out := maps.Clone(n)
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v, ok := takeBack(path+tree.Pointer(name), member(n, name), member(a, name), member(b, name), taken)
		if ok {
			out[name] = v
		} else {
			delete(out, name)
		}
	}
	_, was := before.(absent)
	return out, !was || len(out) > 0
}

// fields returns the fields of an object, no fields for absent, and nil for other values.
func fields(v any) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		return v
	case absent:
		return map[string]any{}
	}
	return nil
}

func member(m map[string]any, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	return absent{}
}

func same(a, b any) bool {
	_, x := a.(absent)
	_, y := b.(absent)
	if x || y {
		return x == y
	}
	return tree.Equal(a, b)
}

// errEmpty is returned for a file without documents.
var errEmpty = errors.New("it has no document of mapd audit --fix")

// maxUndo is the size of an undo file that is read: 10,000 objects of 25 KiB, before and after.
const maxUndo = 512 << 20

// ReadUndoFile reads an undo file by its name.
func ReadUndoFile(name string) ([]*Undo, error) {
	f, err := manifest.Open(name, maxUndo)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := ReadUndo(f)
	if err == nil && len(all) == 0 {
		err = errEmpty
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return all, nil
}
