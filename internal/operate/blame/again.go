package blame

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/explain"
	"github.com/mapd-project/mapd/pkg/tree"
)

// AsManaged returns an object with only the fields that some manager has set: about what clients
// have written, because API servers do not record what admission writes. It returns nil if the
// object has no managedFields.
func AsManaged(object *unstructured.Unstructured) *unstructured.Unstructured {
	var all map[string]any
	for _, entry := range object.GetManagedFields() {
		if set := fieldSet(entry); set != nil && entry.Subresource != "status" {
			all = union(all, set)
		}
	}
	if all == nil {
		return nil
	}
	out, _ := managedPart(object.Object, all).(map[string]any)
	u := &unstructured.Unstructured{Object: out}
	u.SetAPIVersion(object.GetAPIVersion())
	u.SetKind(object.GetKind())
	u.SetNamespace(object.GetNamespace())
	if u.GetGenerateName() == "" {
		u.SetName(object.GetName())
	}
	return u
}

// union returns the fields of two sets. It may change a.
func union(a, b map[string]any) map[string]any {
	if a == nil {
		return b
	}
	for key, v := range b {
		x, ok := a[key].(map[string]any)
		y, isSet := v.(map[string]any)
		switch {
		case !isSet || ok && len(x) == 0: // v is not a set of fields, or a has all of key already
		case ok && len(y) > 0:
			a[key] = union(x, y)
		default:
			a[key] = y
		}
	}
	return a
}

func managedPart(value any, set map[string]any) any {
	if len(set) == 0 || len(set) == 1 && set["."] != nil {
		return value
	}
	fields := map[string]any{}
	items := map[int]any{}
	for key, v := range set {
		inner, isSet := v.(map[string]any)
		token, below, ok := member(value, key)
		if !ok || !isSet {
			continue
		}
		part := managedPart(below, inner)
		if strings.HasPrefix(key, "f:") {
			fields[token] = part
		} else if i, err := strconv.Atoi(token); err == nil {
			items[i] = part
		}
	}
	list, isList := value.([]any)
	if !isList {
		return fields
	}
	out := []any{}
	for i := range list {
		if part, ok := items[i]; ok {
			out = append(out, part)
		}
	}
	return out
}

// guess is the note of lines that come from an evaluation.
const guess = "a guess: the policy writes this value today"

// Again returns a line for each field that has the same value in the object as after a decision.
// The decision is that of an engine with Trace for the object of AsManaged.
func Again(name string, object *unstructured.Unstructured, d *engine.Decision) []Line {
	b := explain.BlameOf(d)
	if b == nil {
		return nil
	}
	a := againReader{name: name, made: d.Object.Object, live: object.Object}
	a.walk(b, d.Object.Object, nil, nil)
	return a.lines
}

// Excepted returns a line for each policy that does not apply to an object because of an
// exception, according to the decision for Again.
func Excepted(name string, d *engine.Decision) (out []Line) {
	for _, reason := range explain.ExceptedBy(d) {
		out = append(out, Line{Object: name, By: reason.Exception, Kind: ByException, Source: FromAgain, Note: reason.String()})
	}
	return out
}

type againReader struct {
	name       string
	made, live any
	lines      []Line
}

// walk adds the lines for a value, of which by wrote the whole.
func (a *againReader) walk(b *explain.Blame, value any, at []string, by []explain.Cause) {
	if b != nil && len(b.Causes) > 0 {
		by = b.Causes
	}
	if len(by) > 0 {
		if path, ok := locate(a.made, a.live, at); ok && len(at) > 0 {
			a.add(tree.Pointer(path...), by)
			return
		}
	}
	if b == nil && len(by) == 0 {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			var of *explain.Blame
			if b != nil {
				of = b.Fields[key]
			}
			a.walk(of, v[key], append(at[:len(at):len(at)], key), by)
		}
	case []any:
		for i, e := range v {
			var of *explain.Blame
			if b != nil && i < len(b.Items) {
				of = b.Items[i]
			}
			a.walk(of, e, append(at[:len(at):len(at)], strconv.Itoa(i)), by)
		}
	}
}

func (a *againReader) add(field string, by []explain.Cause) {
	last := by[len(by)-1]
	line := Line{Object: a.name, Field: field, By: last.Policy, Kind: ByPolicy, Source: FromAgain, Note: guess}
	if last.Binding != "" {
		line.By += "/" + last.Binding
	}
	if last.Param != "" {
		line.Note = joinNotes("with the parameter "+last.Param, line.Note)
	}
	a.lines = append(a.lines, line)
}
