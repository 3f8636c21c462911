package blame

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/tree"
)

// maxManaged bounds the lines for the managedFields of one object.
const maxManaged = 20_000

// Managed returns a line for each field in the managedFields of an object, sorted by field. It
// translates the paths in managedFields to JSON Pointers into the present object, and leaves out
// fields that the object no longer has.
func Managed(name string, object *unstructured.Unstructured) []Line {
	var out []Line
	all := object.GetManagedFields()
	creator := creatorOf(object, all)
	for i, entry := range all {
		set := fieldSet(entry)
		if set == nil {
			continue
		}
		line := Line{Object: name, By: entry.Manager, Kind: ByManager, Operation: strings.ToLower(string(entry.Operation)), Source: FromManaged}
		if i == creator {
			line.Operation = "create"
		}
		if entry.Subresource != "" {
			line.Operation += " " + entry.Subresource
		}
		if entry.Time != nil {
			line.Time = Time{entry.Time.Time}
		}
		out = appendManaged(out, line, nil, set, object.Object)
	}
	slices.SortStableFunc(out, func(a, b Line) int { return comparePointers(a.Field, b.Field) })
	return out
}

// creatorOf returns the index of the entry of the request that created an object, -1 if it is
// not certain. managedFields have the operation Update for a creation, too. So the entry must be
// the only one that is not later than creationTimestamp, which has the same clock and the same
// precision of seconds, and its operation must be Update.
func creatorOf(object *unstructured.Unstructured, all []metav1.ManagedFieldsEntry) int {
	made, at := object.GetCreationTimestamp(), -1
	for i, entry := range all {
		if entry.Subresource != "" || entry.Time == nil || made.IsZero() || entry.Time.After(made.Time) {
			continue
		}
		if at >= 0 {
			return -1
		}
		at = i
	}
	if at >= 0 && all[at].Operation == metav1.ManagedFieldsOperationUpdate {
		return at
	}
	return -1
}

func fieldSet(entry metav1.ManagedFieldsEntry) map[string]any {
	if entry.FieldsV1 == nil {
		return nil
	}
	var set map[string]any
	if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
		return nil
	}
	return set
}

func appendManaged(out []Line, line Line, at []byte, set map[string]any, value any) []Line {
	leaf := true
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if key == "." {
			continue
		}
		leaf = false
		token, below, ok := member(value, key)
		inner, isSet := set[key].(map[string]any)
		if !ok || !isSet || len(out) >= maxManaged {
			continue
		}
		out = appendManaged(out, line, tree.AppendToken(at[:len(at):len(at)], token), inner, below)
	}
	if leaf && len(at) > 0 {
		line.Field = string(at)
		out = append(out, line)
	}
	return out
}

// member returns the field or element of a value that a key of managedFields names, and its token
// in a JSON Pointer. "f:name" names a field, "k:{…}" the element of a list with these keys, "v:…"
// the element with this value, and "i:0" the element at this index.
func member(value any, key string) (token string, below any, ok bool) {
	kind, rest, _ := strings.Cut(key, ":")
	switch v := value.(type) {
	case map[string]any:
		below, ok = v[rest]
		return rest, below, ok && kind == "f"
	case []any:
		at := -1
		switch kind {
		case "k":
			want, err := tree.Decode([]byte(rest))
			if err != nil {
				return "", nil, false
			}
			at = slices.IndexFunc(v, func(e any) bool { return hasKeys(e, want) })
		case "v":
			wrapped, err := tree.Decode([]byte(`{"v":` + rest + `}`))
			if err != nil {
				return "", nil, false
			}
			at = slices.IndexFunc(v, func(e any) bool { return tree.Equal(e, wrapped["v"]) })
		case "i":
			if n, err := strconv.Atoi(rest); err == nil && n < len(v) {
				at = n
			}
		}
		if at >= 0 {
			return strconv.Itoa(at), v[at], true
		}
	}
	return "", nil, false
}

// hasKeys reports whether an element of a list has these keys. Some of them may be absent, since
// they may have their default, such as the protocol of a port, but not all.
func hasKeys(element any, want map[string]any) bool {
	m, ok := element.(map[string]any)
	if !ok || len(want) == 0 {
		return false
	}
	found := 0
	for key, value := range want {
		have, ok := m[key]
		switch {
		case !ok:
		case !tree.Equal(have, value):
			return false
		default:
			found++
		}
	}
	return found > 0
}

// comparePointers compares two pointers token by token, and tokens that are numbers as numbers.
func comparePointers(a, b string) int {
	for a != "" && b != "" {
		x, y := firstToken(a), firstToken(b)
		if x != y {
			m, err := strconv.Atoi(x[1:])
			n, err2 := strconv.Atoi(y[1:])
			if err == nil && err2 == nil && m != n {
				return m - n
			}
			return strings.Compare(x, y)
		}
		a, b = a[len(x):], b[len(y):]
	}
	return len(a) - len(b)
}

// firstToken returns the first token of a pointer, with the slash before it.
func firstToken(pointer string) string {
	if pointer[0] == '/' {
		if i := strings.IndexByte(pointer[1:], '/'); i >= 0 {
			return pointer[:i+1]
		}
	}
	return pointer
}
