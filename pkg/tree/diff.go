package tree

import (
	"slices"
	"strconv"
)

// Op is one operation of an RFC 6902 patch: add, replace or remove.
type Op struct {
	Op    string
	Path  string
	Value any
}

// MarshalJSON writes the operation as RFC 6902 has it: remove has no value,
// add and replace always have one, even if it is null.
func (o Op) MarshalJSON() ([]byte, error) { return o.append(nil) }

// EncodePatch writes a patch as json.Marshal does, but without validating the output of
// MarshalJSON a second time.
func EncodePatch(ops []Op) ([]byte, error) {
	size := 64*len(ops) + 2
	for _, op := range ops {
		if m, ok := op.Value.(map[string]any); ok {
			size += 16 * len(m)
		}
	}
	b := append(make([]byte, 0, size), '[')
	for i, op := range ops {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = op.append(b); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func (o Op) append(b []byte) ([]byte, error) {
	b = AppendString(append(b, `{"op":`...), o.Op)
	b = AppendString(append(b, `,"path":`...), o.Path)
	if o.Op != "remove" {
		var err error
		if b, err = appendValue(append(b, `,"value":`...), o.Value); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// Diff returns a patch that turns before into after, none when they are equal.
//
// The patch is deterministic and small. Fields are in the order of their names, subtrees that
// are Same are not visited, and list elements are aligned (see diffList) so that an inserted
// sidecar is one add. A value that changed in thousands of places is replaced as a whole. The
// patch works with github.com/evanphx/json-patch v4 and v5: it has only add, replace and
// remove, no operation below a null or below a field whose name is empty, and it never replaces
// the whole document when both versions are objects.
func Diff(before, after any) []Op {
	var room [usualPath]byte
	d := differ{path: room[:0]}
	d.diff(before, after)
	return d.ops
}

// Changed returns the paths of Diff's operations, sorted, each once.
func Changed(before, after any) []string {
	var room [usualPath]byte
	d := differ{path: room[:0], pathsOnly: true}
	d.diff(before, after)
	if len(d.paths) < 2 {
		return d.paths
	}
	slices.Sort(d.paths)
	return slices.Compact(d.paths)
}

// ChangedBelow is Changed for two values at path in a document.
func ChangedBelow(path string, before, after any) []string {
	var room [usualPath]byte
	d := differ{path: append(room[:0], path...), pathsOnly: true}
	d.diff(before, after)
	slices.Sort(d.paths)
	return slices.Compact(d.paths)
}

// Identifies reports whether Diff may tell the elements of a list from each
// other by a field of that name.
func Identifies(field string) bool { return slices.Contains(identities, field) }

// usualPath is the initial capacity for a path; few paths are longer.
const usualPath = 64

// differ collects operations, or only their paths. path is the pointer to the value that it
// compares at present. It is one buffer, so that a pointer is only allocated for a change.
type differ struct {
	path []byte
	ops  []Op

	replaceStrings bool // see Patch

	pathsOnly bool
	paths     []string
}

const (
	// maxOps is the largest number of operations within one object or list. With more, the
	// object or list is replaced: the operations would be longer than the new value, and a
	// server looks up each path from the root.
	maxOps = 4096
	// maxShifts bounds how many elements of one list are moved in all when its
	// operations are applied one by one: half of 300,000 elements removed would
	// keep an API server busy for minutes.
	maxShifts = 1 << 20
)

// count returns how many operations or paths were emitted so far.
func (d *differ) count() int { return len(d.ops) + len(d.paths) }

// collapse replaces the operations that were emitted since start, all of them at or below
// d.path, by one that replaces the value at d.path. It does nothing at the root.
func (d *differ) collapse(start int, value any) {
	if len(d.path) == 0 {
		return
	}
	if d.pathsOnly {
		d.paths = d.paths[:start]
	} else {
		clear(d.ops[start:])
		d.ops = d.ops[:start]
	}
	d.emit("replace", value)
}

func (d *differ) emit(op string, value any) {
	if d.pathsOnly {
		d.paths = append(d.paths, string(d.path))
		return
	}
	d.ops = append(d.ops, Op{Op: op, Path: string(d.path), Value: value})
}

// key and index step one token down and return where to come back up to.
func (d *differ) key(token string) int {
	n := len(d.path)
	d.path = appendToken(d.path, token)
	return n
}

func (d *differ) index(i int) int {
	n := len(d.path)
	d.path = append(d.path, '/')
	d.path = strconv.AppendInt(d.path, int64(i), 10)
	return n
}

func (d *differ) up(n int) { d.path = d.path[:n] }

func (d *differ) diff(a, b any) {
	if Same(a, b) {
		return
	}
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok && a != nil && b != nil {
			start := d.count()
			d.diffMap(a, b)
			if d.count()-start > maxOps {
				d.collapse(start, b)
			}
			return
		}
	case []any:
		if b, ok := b.([]any); ok && a != nil && b != nil {
			start := d.count()
			if !d.diffList(a, b) || d.count()-start > maxOps {
				d.collapse(start, b)
			}
			return
		}
	}
	if !Equal(a, b) {
		d.emit("replace", b)
	}
}

// AppendSuspects appends the keys whose values may differ between two versions of an object, in
// no order: keys that only one version has, and keys whose values are not Same. After a change
// of one of a thousand labels it appends one key.
func AppendSuspects(keys []string, before, after map[string]any) []string {
	common := 0
	for k, v := range before {
		w, ok := after[k]
		if ok {
			common++
		}
		if !ok || !Same(v, w) {
			keys = append(keys, k)
		}
	}
	if common < len(after) {
		keys = slices.Grow(keys, len(after)-common)
		for k := range after {
			if _, ok := before[k]; !ok {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

func (d *differ) diffMap(a, b map[string]any) {
	var few [8]string
	keys := AppendSuspects(few[:0], a, b)
	if d.replaced(b, keys) {
		return
	}
	if len(keys) > 1 {
		slices.Sort(keys)
	}
	for _, k := range keys {
		n := d.key(k)
		av, inA := a[k]
		bv, inB := b[k]
		switch {
		case !inA:
			d.emit("add", bv)
		case !inB:
			d.emit("remove", nil)
		case k == "":
			// v5 takes an empty name on the way for the object itself.
			if !Equal(av, bv) {
				d.emit("replace", bv)
			}
		default:
			d.diff(av, bv)
		}
		d.up(n)
	}
}

// diffList aligns the elements of the two versions. It emits removals from the highest index
// down and then, from the front, changes in place and insertions. At each operation the
// elements before its index have their final form, so that the index is valid for the server
// that applies the patch. It returns false if that would move too many elements, but never for
// a list that is the document, since that one is not replaced.
func (d *differ) diffList(a, b []any) bool {
	length := max(len(a), len(b))
	front := 0
	for front < len(a) && front < len(b) && Equal(a[front], b[front]) {
		front++
	}
	a, b = a[front:], b[front:]
	// A single element on both sides differs, as the loop above found. Comparing it again at
	// every level would make deep documents expensive.
	single := len(a) == 1 && len(b) == 1
	for !single && len(a) > 0 && len(b) > 0 && Equal(a[len(a)-1], b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a) == 0 && len(b) == 0 {
		return true
	}

	from, id := align(a, b)
	kept := make([]bool, len(a))
	same := 0
	for _, i := range from {
		if i >= 0 {
			kept[i] = true
			same++
		}
	}
	if moving := len(a) + len(b) - 2*same; moving > 2 && moving*length > maxShifts && len(d.path) > 0 {
		return false
	}
	for i := len(a) - 1; i >= 0; i-- {
		if !kept[i] {
			n := d.index(front + i)
			d.emit("remove", nil)
			d.up(n)
		}
	}
	for j, i := range from {
		n := d.index(front + j)
		switch {
		case i < 0:
			d.emit("add", b[j])
		case id != "" && !Same(identity(a[i], id), identity(b[j], id)):
			// This is another element in the same position: its fields are not compared with
			// those of the old one.
			d.emit("replace", b[j])
		default:
			d.diff(a[i], b[j])
		}
		d.up(n)
	}
	return true
}
