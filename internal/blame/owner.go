package blame

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/tree"
)

// template says which part of an object is made from which part of its owner.
func template(owner *unstructured.Unstructured) (part, from []string) {
	switch owner.GetKind() {
	case "Deployment":
		return []string{"spec", "template"}, []string{"spec", "template"}
	case "CronJob":
		return nil, []string{"spec", "jobTemplate"}
	}
	return nil, []string{"spec", "template"}
}

// Inherit says of lines whose field has the value that it has in the owner's template who
// wrote it there: owned are the owner's lines. Other lines stay as they are.
func Inherit(lines []Line, object *unstructured.Unstructured, ownerName string, owner *unstructured.Unstructured, owned []Line) []Line {
	var out []Line
	for _, line := range lines {
		there := ""
		if line.Kind == ByManager {
			there = inOwner(line.Field, object, owner)
		}
		if there == "" {
			out = append(out, line)
			continue
		}
		found := false
		for _, o := range owned {
			if o.Failed || !within(there, o.Field) && !within(o.Field, there) || o.Field == "" {
				continue
			}
			found = true
			o.Object, o.Field, o.inherited = line.Object, line.Field, true
			o.Note = joinNotes("in "+ownerName+" "+there, o.Note)
			out = append(out, o)
		}
		if !found {
			line.inherited = true
			line.Note = joinNotes("from "+ownerName+" "+there, line.Note)
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

// inOwner returns the pointer in the owner at which a field of the object stands with the
// same value, "" if there is none.
func inOwner(pointer string, object, owner *unstructured.Unstructured) string {
	tokens, err := tree.ParsePointer(pointer)
	part, from := template(owner)
	if err != nil || len(tokens) <= len(part) || !slices.Equal(tokens[:len(part)], part) {
		return ""
	}
	rest := tokens[len(part):]
	if rest[0] != "spec" && (rest[0] != "metadata" || len(rest) < 3) { // labels and annotations
		return ""
	}
	var here any = object.Object
	if len(part) > 0 {
		here, _, _ = unstructured.NestedFieldNoCopy(object.Object, part...)
	}
	there, _, _ := unstructured.NestedFieldNoCopy(owner.Object, from...)
	path, ok := locate(here, there, rest)
	if !ok {
		return ""
	}
	return tree.Pointer(slices.Concat(from, path)...)
}

// locate follows tokens in one tree and finds the same place in another one, in which
// elements of lists that have a name may have another index. The values must be equal.
func locate(from, to any, tokens []string) (path []string, ok bool) {
	for _, token := range tokens {
		switch x := from.(type) {
		case map[string]any:
			y, isMap := to.(map[string]any)
			if !isMap {
				return nil, false
			}
			from, ok = x[token]
			to, isMap = y[token]
			if !ok || !isMap {
				return nil, false
			}
		case []any:
			y, isList := to.([]any)
			i, err := strconv.Atoi(token)
			if !isList || err != nil || i < 0 || i >= len(x) {
				return nil, false
			}
			from = x[i]
			if i = indexLike(y, from, i); i < 0 {
				return nil, false
			}
			to, token = y[i], strconv.Itoa(i)
		default:
			return nil, false
		}
		path = append(path, token)
	}
	return path, tree.Equal(from, to)
}

// indexLike returns the index of the element that has the name of this one, or the index
// of this one if it has no name.
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
