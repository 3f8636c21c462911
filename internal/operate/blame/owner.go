package blame

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/tree"
)

// template returns the path of the part of an object that its controller copies from the owner,
// and the path of the template in the owner. An empty part is the whole object.
func template(owner *unstructured.Unstructured) (part, from []string) {
	switch owner.GetKind() {
	case "Deployment":
		return []string{"spec", "template"}, []string{"spec", "template"}
	case "CronJob":
		return nil, []string{"spec", "jobTemplate"}
	}
	return nil, []string{"spec", "template"}
}

// Inherit replaces lines of fields that have the same value in the owner's template by the lines
// of who wrote them there; owned are the owner's lines. A field that differs from the template
// gets a note. Other lines are returned unchanged.
func Inherit(lines []Line, object *unstructured.Unstructured, ownerName string, owner *unstructured.Unstructured, owned []Line) []Line {
	var out []Line
	for _, line := range lines {
		there := ""
		equal := false
		if line.Kind == ByManager {
			there, equal = inOwner(line.Field, object, owner)
		}
		if there != "" && !equal && byTemplate(&line, object, owner) {
			who := "its controller, or admission (a policy or webhook),"
			if kind := owner.GetKind(); kind == "ReplicaSet" || kind == "ReplicationController" { // their controllers copy the template unchanged
				who = "admission (a policy or webhook)"
			}
			line.Note = joinNotes("differs from "+ownerName+" "+tree.Field(there)+": "+who+" wrote it, unless the template has changed since", line.Note)
		}
		if there == "" || !equal {
			out = append(out, line)
			continue
		}
		found := false
		for _, o := range owned {
			if o.Failed || !within(there, o.Field) && !within(o.Field, there) || o.Field == "" {
				continue
			}
			found = true
			o.Object, o.Field = line.Object, line.Field
			o.Note = joinNotes("in "+ownerName+" "+tree.Field(there), o.Note)
			out = append(out, o)
		}
		if !found {
			line.Note = joinNotes("from "+ownerName+" "+tree.Field(there), line.Note)
			out = append(out, line)
		}
	}
	return out
}

func joinNotes(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// byTemplate reports whether a line is of the controller that created the object from the template
// of its owner; that is the manager of ownerReferences. It returns false unless the owner is a
// built-in workload: templates of other kinds need not be normalized, so that an object could
// differ from its template although nobody has changed it.
func byTemplate(line *Line, object, owner *unstructured.Unstructured) bool {
	switch owner.GroupVersionKind().Group {
	case "", "apps", "batch":
	default:
		return false
	}
	for _, entry := range object.GetManagedFields() {
		if meta, _ := fieldSet(entry)["f:metadata"].(map[string]any); meta["f:ownerReferences"] != nil {
			return line.By == entry.Manager && entry.Subresource == ""
		}
	}
	return false
}

// AsTemplate returns a copy of made, which AsManaged returned for object. Fields that the
// controller set and that now differ from the owner's template have the values of the template in
// the copy, because admission has changed them.
func AsTemplate(made, object, owner *unstructured.Unstructured) *unstructured.Unstructured {
	var ops []tree.Op
	for _, line := range Managed("", object) {
		there, equal := inOwner(line.Field, object, owner)
		if there == "" || equal || !byTemplate(&line, object, owner) {
			continue
		}
		tokens, _ := tree.ParsePointer(line.Field) // Managed returns only valid pointers
		path, found, _ := place(object.Object, made.Object, tokens)
		from, _ := tree.ParsePointer(there)
		if value, ok := valueAt(owner.Object, from); ok && found {
			ops = append(ops, tree.Op{Op: "replace", Path: tree.Pointer(path...), Value: value})
		}
	}
	out, err := tree.Apply(any(made.Object), ops)
	fields, ok := out.(map[string]any)
	if err != nil || !ok {
		return made
	}
	return &unstructured.Unstructured{Object: fields}
}

// valueAt returns the value at a path.
func valueAt(v any, path []string) (any, bool) {
	for _, token := range path {
		ok := false
		switch x := v.(type) {
		case map[string]any:
			v, ok = x[token]
		case []any:
			i, err := strconv.Atoi(token)
			if ok = err == nil && i >= 0 && i < len(x); ok {
				v = x[i]
			}
		}
		if !ok {
			return nil, false
		}
	}
	return v, true
}

// inOwner returns the pointer to the field in the owner's template that a field of the object was
// copied from, "" if there is none, and whether both have the same value.
func inOwner(pointer string, object, owner *unstructured.Unstructured) (there string, equal bool) {
	tokens, err := tree.ParsePointer(pointer)
	part, from := template(owner)
	if err != nil || len(tokens) <= len(part) || !slices.Equal(tokens[:len(part)], part) {
		return "", false
	}
	rest := tokens[len(part):]
	if rest[0] != "spec" && (rest[0] != "metadata" || len(rest) < 3) { // labels and annotations
		return "", false
	}
	var here any = object.Object
	if len(part) > 0 {
		here, _, _ = unstructured.NestedFieldNoCopy(object.Object, part...)
	}
	other, _, _ := unstructured.NestedFieldNoCopy(owner.Object, from...)
	path, found, equal := place(here, other, rest)
	if !found {
		return "", false
	}
	return tree.Pointer(slices.Concat(from, path)...), equal
}

// locate returns the path that place finds, and true if the values there are equal.
func locate(from, to any, tokens []string) (path []string, ok bool) {
	path, found, equal := place(from, to, tokens)
	return path, found && equal
}

// place follows the path tokens in the tree from, and returns the path of the same field in the
// tree to. It finds elements of lists by the field name if they have one, because their indices
// may differ. equal reports whether the values of the field are equal.
func place(from, to any, tokens []string) (path []string, found, equal bool) {
	for _, token := range tokens {
		switch x := from.(type) {
		case map[string]any:
			y, isMap := to.(map[string]any)
			if !isMap {
				return nil, false, false
			}
			var ok bool
			from, ok = x[token]
			to, isMap = y[token]
			if !ok || !isMap {
				return nil, false, false
			}
		case []any:
			y, isList := to.([]any)
			i, err := strconv.Atoi(token)
			if !isList || err != nil || i < 0 || i >= len(x) {
				return nil, false, false
			}
			from = x[i]
			if i = indexLike(y, from, i); i < 0 {
				return nil, false, false
			}
			to, token = y[i], strconv.Itoa(i)
		default:
			return nil, false, false
		}
		path = append(path, token)
	}
	return path, true, tree.Equal(from, to)
}

// indexLike returns the index in list of the element with the same field name as element. If
// element has no name, it returns i, the index of element in its own list. It returns -1 if list
// has no such element.
func indexLike(list []any, element any, i int) int {
	m, _ := element.(map[string]any)
	name, named := m["name"]
	if !named {
		if i < len(list) {
			return i
		}
		return -1
	}
	for j, e := range list {
		if other, _ := e.(map[string]any); other != nil && tree.Equal(other["name"], name) {
			return j
		}
	}
	return -1
}
