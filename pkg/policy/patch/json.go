package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy/draft"
	"github.com/mapd-project/mapd/pkg/tree"
)

// CopyLimit bounds the bytes of JSON that the copy operations of one patch may add. It is the
// value to which an API server sets the library's process-wide limit.
const CopyLimit = 3 << 20

// maxMoved bounds the list elements that the operations of one patch shift. A thousand
// operations at the front of a list of a thousand elements shift 1.5 million.
const maxMoved = 100 << 20

var (
	errTestFailed   = errors.New("test failed")
	errMissing      = errors.New("missing value")
	errInvalidIndex = errors.New("invalid index referenced")
)

// crashError is the error for an operation that makes upstream's library panic, and fails the
// request (spec §14 T4). Here it is an error of the policy.
type crashError struct{ what string }

func (e *crashError) Error() string { return e.what }

func crash(format string, args ...any) error {
	return &crashError{what: fmt.Sprintf(format, args...)}
}

// Apply applies a patch to the object of a draft, and settles the values that it writes. After
// an error the object is unchanged.
func Apply(d *draft.Draft, kind *openapi.Kind, ops []cel.PatchOp) error {
	if !d.SettledAs.Empty() && inPlace(d, kind, ops) {
		return nil
	}
	return ByCopying(d, kind, ops)
}

// ByCopying is Apply, but it copies the containers that it writes to and settles the whole
// object.
func ByCopying(d *draft.Draft, kind *openapi.Kind, ops []cel.PatchOp) error {
	switch err := whole(d, ops); {
	case errors.Is(err, errTestFailed):
		// The whole mutation is skipped, and that is no error (spec §8.1).
		return d.Settle(kind, openapi.FromApply)
	case err != nil:
		return err
	}
	return d.Settle(kind, openapi.FromJSONPatch)
}

// Lenient applies a patch to the object of a draft, and does not settle the result. After an
// error the object is unchanged.
func Lenient(d *draft.Draft, ops []cel.PatchOp) error {
	if inPlace(d, nil, ops) {
		return nil
	}
	switch err := whole(d, ops); {
	case errors.Is(err, errTestFailed):
		return nil
	case err != nil:
		return err
	}
	d.Replace(&unstructured.Unstructured{Object: d.Edit.Root().(map[string]any)})
	return nil
}

// inPlace applies a patch and settles each value that it writes, if kind is not nil. It reports
// false, and changes nothing, if the result or an error might differ from those of whole
// followed by settling the object.
func inPlace(d *draft.Draft, kind *openapi.Kind, ops []cel.PatchOp) bool {
	if r := &d.Recent; r.Kind != kind || r.Through {
		r.Way = ""
	}
	if len(ops) > maxSure {
		return false
	}
	if len(ops) > 1 {
		for i := range ops {
			d.Edit.Release(ops[i].Value)
		}
	}
	d.Begin()
	p := patching{draft: d, sure: true, kind: kind, ops: len(ops)}
	for i := range ops {
		if !p.write(ops, i) {
			d.Undo()
			return false
		}
	}
	d.Commit()
	return true
}

// whole applies a patch with the semantics of gopkg.in/evanphx/json-patch.v4 v4.13.0, quirks
// included (spec §8.3), since policies are written for and tested with that library. The draft
// copies the containers that it writes to. An error undoes the mutation; a failed test is
// errTestFailed.
func whole(d *draft.Draft, ops []cel.PatchOp) error {
	d.Edit.Keep()
	d.Top()
	d.Begin()
	p := patching{draft: d, ops: len(ops)}
	err := p.all(ops)
	d.Top()
	if err != nil {
		d.Undo()
		if errors.Is(err, errTestFailed) {
			return err
		}
		return fmt.Errorf("JSON Patch: %w", err)
	}
	return nil
}

// maxSure bounds how many paths are compared with each other: up to about so many operations,
// that is faster than copying the object.
const maxSure = 256

// patching is a document to which a patch is being applied. The container that an operation
// changes is at the cursor of the draft's Edit.
type patching struct {
	draft  *draft.Draft
	ops    int
	copied int64
	moved  int  // list elements shifted by insertions and removals
	nulls  bool // some newNull was written

	// sure allows only operations whose outcome is certain, and settles the values that they
	// write for kind, if that is not nil.
	sure bool
	kind *openapi.Kind
}

// newNull is a null that an operation wrote as its explicit value. The library treats it
// differently from a null of the document or of a nested value, which counts as absent. A
// newNull can be descended into, without finding anything, equals null and {}, and nothing can
// be added to it.
type newNull struct{}

// MarshalJSON writes null.
func (newNull) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// all applies a patch as the library does.
func (p *patching) all(ops []cel.PatchOp) error {
	for i := range ops {
		if err := p.apply(&ops[i]); err != nil {
			return err
		}
	}
	if p.nulls {
		p.seal(p.draft.Edit.Root())
	}
	if after, ok := p.draft.Edit.Root().(map[string]any); !ok || after == nil {
		return errors.New("the patched document is not an object")
	}
	return nil
}

// seal replaces each newNull in v by a plain null. All containers with a newNull, and those on
// the way to them, are owned by the Edit.
func (p *patching) seal(v any) {
	if !p.draft.Edit.Owns(v) {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if _, null := e.(newNull); null {
				v[k] = nil
			}
			p.seal(e)
		}
	case []any:
		for i, e := range v {
			if _, null := e.(newNull); null {
				v[i] = nil
			}
			p.seal(e)
		}
	}
}

// snapshot returns v for use in a second place, with copies of the parts that may be written
// to.
func (p *patching) snapshot(v any) any {
	if _, null := v.(newNull); null {
		return nil
	}
	if !p.draft.Edit.Owns(v) {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = p.snapshot(e)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = p.snapshot(e)
		}
		return l
	}
	return v
}

func (p *patching) apply(op *cel.PatchOp) error {
	kind, err := quoted(op.Op)
	if err != nil {
		kind = "unknown"
	}
	switch kind {
	case "add":
		return p.add(op)
	case "remove":
		return p.remove(op)
	case "replace":
		return p.replace(op)
	case "move":
		return p.move(op)
	case "copy":
		return p.copy(op)
	case "test":
		return p.test(op)
	}
	//lint:ignore ST1005 upstream's text
	return fmt.Errorf("Unexpected kind: %s", kind)
}

func (p *patching) add(op *cel.PatchOp) error {
	path, err := quoted(op.Path)
	if err != nil {
		return fmt.Errorf("add operation failed to decode path: %w", errMissing)
	}
	key, ok := p.find(path)
	if !ok {
		return fmt.Errorf("add operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	if err := p.addTo(key, p.written(op)); err != nil {
		return inner("error in add for path: '%s': %w", path, err)
	}
	return nil
}

func (p *patching) remove(op *cel.PatchOp) error {
	path, err := quoted(op.Path)
	if err != nil {
		return fmt.Errorf("remove operation failed to decode path: %w", errMissing)
	}
	key, ok := p.find(path)
	if !ok {
		return fmt.Errorf("remove operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	if err := p.removeFrom(key); err != nil {
		return inner("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

func (p *patching) replace(op *cel.PatchOp) error {
	path, err := quoted(op.Path)
	if err != nil {
		return fmt.Errorf("replace operation failed to decode path: %w", err)
	}
	if path == "" {
		if !op.HasValue {
			return crash("replace operation of the whole document has no value")
		}
		switch op.Value.(type) {
		case map[string]any, []any, nil:
			p.draft.Top()
			p.draft.Edit.SetRoot(op.Value)
			return nil
		}
		return errors.New("replace operation value must be object or array: %!w(<nil>)")
	}
	key, ok := p.find(path)
	if !ok {
		return fmt.Errorf("replace operation does not apply: doc is missing path: %s: %w", path, errMissing)
	}
	if _, err := p.get(key); err != nil {
		return fmt.Errorf("replace operation does not apply: doc is missing key: %s: %w", path, errMissing)
	}
	// The text has "remove" in the library too.
	if err := p.setIn(key, p.written(op)); err != nil {
		return inner("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

func (p *patching) move(op *cel.PatchOp) error {
	from, err := source(op)
	if err != nil {
		return fmt.Errorf("move operation failed to decode from: %w", err)
	}
	key, ok := p.find(from)
	if !ok {
		return fmt.Errorf("move operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	v, err := p.get(key)
	if err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", key, err)
	}
	if err := p.removeFrom(key); err != nil {
		return inner("error in move for path: '%s': %w", key, err)
	}
	path, err := quoted(op.Path)
	if err != nil {
		return fmt.Errorf("move operation failed to decode path: %w", err)
	}
	if key, ok = p.find(path); !ok {
		return fmt.Errorf("move operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	if err := p.addTo(key, v); err != nil {
		return inner("error in move for path: '%s': %w", path, err)
	}
	return nil
}

func (p *patching) copy(op *cel.PatchOp) error {
	from, err := source(op)
	if err != nil {
		return fmt.Errorf("copy operation failed to decode from: %w", err)
	}
	key, ok := p.find(from)
	if !ok {
		return fmt.Errorf("copy operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	v, err := p.get(key)
	if err != nil {
		return fmt.Errorf("error in copy for from: '%s': %w", from, err)
	}
	path, err := quoted(op.Path)
	if err != nil {
		return fmt.Errorf("copy operation failed to decode path: %w", errMissing)
	}
	if key, ok = p.find(path); !ok {
		return fmt.Errorf("copy operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	if v != nil {
		// The library copies the JSON text, so nested nulls become those of the document; a
		// value that is itself null stays a newNull or a plain null.
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("error while performing deep copy: %w", err)
		}
		if p.copied += int64(len(text)); p.copied > CopyLimit {
			//lint:ignore ST1005 upstream's text
			return fmt.Errorf("Unable to complete the copy, the accumulated size increase of copy is %d, exceeding the limit %d", p.copied, CopyLimit)
		}
		if _, ok := v.(newNull); !ok {
			v = p.snapshot(v)
		}
	}
	if err := p.addTo(key, v); err != nil {
		if _, ok := err.(*crashError); ok {
			return err
		}
		return fmt.Errorf("error while adding value during copy: %w", err)
	}
	return nil
}

func (p *patching) test(op *cel.PatchOp) error {
	path, err := quoted(op.Path)
	if err != nil {
		return fmt.Errorf("test operation failed to decode path: %w", err)
	}
	failed := func() error { return fmt.Errorf("testing value %s failed: %w", path, errTestFailed) }
	if path == "" {
		if !op.HasValue {
			return crash("test operation of the whole document has no value")
		}
		root := p.draft.Edit.Root()
		if root == nil {
			root = newNull{} // test treats a document that was replaced by null as an empty one
		}
		return compare(root, op.Value, failed)
	}
	key, ok := p.find(path)
	if !ok {
		return fmt.Errorf("test operation does not apply: is missing path: %s: %w", path, errMissing)
	}
	v, err := p.get(key)
	switch {
	case err != nil:
		return fmt.Errorf("error in test for path: '%s': %w", path, err)
	case v == nil && !op.HasValue:
		return nil
	case v == nil || !op.HasValue:
		// The library treats null and absent alike, and an explicit value, even null, equals
		// neither.
		return failed()
	}
	return compare(v, op.Value, failed)
}

func compare(have, want any, failed func() error) error {
	switch same, crashes := sameJSON(have, want); {
	case crashes:
		return crash("test operation compares a list that holds null")
	case !same:
		return failed()
	}
	return nil
}

// sameJSON compares as the library's lazyNode.equal does. have is a value of the document, not
// nil; want is the operation's value as the in-tree plugin passes it. Numbers are compared by
// their text. A null want equals an empty object or list. The library crashes on a list that
// has a null, and on comparing an element with null.
func sameJSON(have, want any) (same, crashes bool) {
	switch h := have.(type) {
	case newNull:
		switch w := want.(type) {
		case nil:
			return true, false
		case map[string]any:
			return len(w) == 0, false
		}
		return false, false
	case map[string]any:
		return sameMap(h, want)
	case []any:
		return sameList(h, want)
	}
	switch want.(type) {
	case map[string]any, []any, nil:
		return false, false
	}
	return scalarText(have) == scalarText(want), false
}

func sameMap(have map[string]any, want any) (same, crashes bool) {
	w, ok := want.(map[string]any)
	if !ok && want != nil || len(have) != len(w) {
		return false, false
	}
	for _, k := range slices.Sorted(maps.Keys(have)) {
		hv := have[k]
		wv, ok := w[k]
		if !ok || (hv == nil) != (wv == nil) {
			return false, false
		}
		if hv == nil {
			continue
		}
		if same, crashes := sameJSON(hv, wv); !same || crashes {
			return false, crashes
		}
	}
	return true, false
}

func sameList(have []any, want any) (same, crashes bool) {
	w, ok := want.([]any)
	if !ok && want != nil || len(have) != len(w) {
		return false, false
	}
	for i, hv := range have {
		if hv == nil || w[i] == nil {
			return false, true
		}
		if same, crashes := sameJSON(hv, w[i]); !same || crashes {
			return false, crashes
		}
	}
	return true, false
}

// scalarText returns the JSON text of a scalar, without an encoder where possible.
func scalarText(v any) string {
	switch v := v.(type) {
	case string:
		return `"` + v
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%T %v", v, v)
	}
	return string(text)
}

// written returns the value that an operation writes; without a value, that is a plain null.
func (p *patching) written(op *cel.PatchOp) any {
	switch {
	case !op.HasValue:
		return nil
	case op.Value == nil:
		p.nulls = true
		return newNull{}
	}
	return op.Value
}

// source returns the operation's from. An empty one counts as absent, since the in-tree plugin
// drops it.
func source(op *cel.PatchOp) (string, error) {
	if op.From == "" {
		return "", fmt.Errorf("operation, missing from field: %w", errMissing)
	}
	return quoted(op.From)
}

// quoted returns s after quoting by Go's rules, as the in-tree plugin does (k8s.io/apiserver
// …/mutating/patch/json_patch.go), and decoding as JSON: s itself, or an error for the few
// characters that the two escape differently.
func quoted(s string) (string, error) {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			var out string
			err := json.Unmarshal([]byte(strconv.Quote(s)), &out)
			return out, err
		}
	}
	return s, nil
}

// inner wraps err, unless it is a crashError, which has no text upstream.
func inner(format, path string, err error) error {
	if c, ok := err.(*crashError); ok {
		return c
	}
	return fmt.Errorf(format, path, err)
}

// find moves the cursor to the container that path points into and returns the last token. As
// in the library, characters before the first slash are ignored.
func (p *patching) find(path string) (key string, ok bool) {
	end := strings.LastIndexByte(path, '/') + 1
	if end == 0 {
		return "", false
	}
	way, key := path[:end], unescape(path[end:])
	if r := &p.draft.Recent; r.Way == way && r.Kind == p.kind {
		return key, true
	}
	p.draft.Top()
	edit, recent := &p.draft.Edit, draft.Recent{Way: way, Kind: p.kind}
	if p.kind != nil {
		object, _ := edit.Root().(map[string]any)
		if recent.Spot, ok = p.kind.Spot(object, openapi.FromJSONPatch); !ok {
			return "", false
		}
	}
	_, rest, _ := strings.Cut(way, "/")
	for rest != "" {
		token, more, _ := strings.Cut(rest, "/")
		rest = more
		token = unescape(token)
		at := edit.At()
		if p.sure && !p.passes(&recent, at, token) {
			return "", false
		}
		next, err := p.get(token)
		if err != nil {
			return "", false
		}
		switch next.(type) {
		case map[string]any, []any, newNull:
		default:
			return "", false
		}
		step := tree.Token{Key: token}
		if list, ok := at.([]any); ok {
			step.Index, _ = elementAt(token, len(list))
		}
		edit.Down(step, next)
	}
	p.draft.Recent = recent
	return key, true
}

// get returns the value at key of the container at the cursor; nil if it is null or a
// map has none.
func (p *patching) get(key string) (any, error) {
	switch at := p.draft.Edit.At().(type) {
	case map[string]any:
		return plain(at[key]), nil
	case []any:
		i, err := elementAt(key, len(at))
		if err != nil {
			return nil, err
		}
		return plain(at[i]), nil
	}
	return nil, nil // a null looked into
}

// plain returns v as it is in the JSON text of the document: a nil list, which an empty list of
// an apply configuration leaves in a custom resource, is null there.
func plain(v any) any {
	if l, ok := v.([]any); ok && l == nil {
		return nil
	}
	return v
}

// elementAt reads an index into a list of n elements, counting negative ones from the
// end.
func elementAt(key string, n int) (int, error) {
	i, err := strconv.Atoi(key)
	if err != nil {
		return 0, err
	}
	if i >= n || i < -n {
		//lint:ignore ST1005 upstream's text
		return 0, fmt.Errorf("Unable to access invalid index: %d: %w", i, errInvalidIndex)
	}
	if i < 0 {
		i += n
	}
	return i, nil
}

// addTo adds a value under key to the container at the cursor.
func (p *patching) addTo(key string, v any) error {
	edit := &p.draft.Edit
	switch at := edit.At().(type) {
	case newNull, nil:
		return crash("add operation below a null that the patch has just written")
	case []any:
		i := len(at)
		if key != "-" {
			var err error
			if i, err = elementAt(key, len(at)+1); err != nil {
				if _, syntax := err.(*strconv.NumError); syntax {
					err = fmt.Errorf("value was not a proper array index: '%s': %w", key, err)
				}
				return err
			}
		}
		if err := p.shift(len(at) - i); err != nil {
			return err
		}
		edit.Insert(i, v)
		return nil
	}
	edit.Set(tree.Token{Key: key}, v)
	return nil
}

// setIn replaces the value at key, which a list must have.
func (p *patching) setIn(key string, v any) error {
	edit := &p.draft.Edit
	token := tree.Token{Key: key}
	switch at := edit.At().(type) {
	case newNull, nil:
		return crash("replace operation below a null that the patch has just written")
	case []any:
		var err error
		if token.Index, err = elementAt(key, len(at)); err != nil {
			return err
		}
	}
	edit.Set(token, v)
	return nil
}

// removeFrom removes the value at key.
func (p *patching) removeFrom(key string) error {
	edit := &p.draft.Edit
	token, found := tree.Token{Key: key}, false
	switch at := edit.At().(type) {
	case []any:
		var err error
		if token.Index, err = elementAt(key, len(at)); err != nil {
			return err
		}
		if err := p.shift(len(at) - token.Index); err != nil {
			return err
		}
		found = true
	case map[string]any:
		_, found = at[key]
	}
	if !found {
		//lint:ignore ST1005 upstream's text
		return fmt.Errorf("Unable to remove nonexistent key: %s: %w", key, errMissing)
	}
	edit.Delete(token)
	return nil
}

// shift counts the list elements that an operation shifts.
func (p *patching) shift(elements int) error {
	if p.moved += elements; p.moved > maxMoved {
		return fmt.Errorf("the operations of one patch move more than %d elements of lists", maxMoved)
	}
	return nil
}

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")

// unescape decodes a token; an invalid escape is left as it is.
func unescape(token string) string {
	if strings.IndexByte(token, '~') < 0 {
		return token
	}
	return unescaper.Replace(token)
}
