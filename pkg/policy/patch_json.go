package policy

import (
	"context"
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
	"github.com/mapd-project/mapd/pkg/tree"
)

// jsonPatchMutator is a mutation of type JSONPatch (spec §8).
type jsonPatchMutator struct {
	expr  expression
	types *openapi.Types
}

// Mutate evaluates the patch, applies it and settles the result.
func (m *jsonPatchMutator) Mutate(ctx context.Context, in Input) (*unstructured.Unstructured, error) {
	if in.Object == nil {
		return nil, nil
	}
	ops, err := evaluate(ctx, m.expr, in, (*cel.Program).JSONPatch)
	if err != nil {
		return nil, err
	}
	if in.Grown != nil && slices.ContainsFunc(ops, func(op cel.PatchOp) bool { return op.Op == "copy" }) {
		*in.Grown += copyLimit // at most
	}
	// Settling asks for the Go type alone, which Scale, Eviction and
	// PodExecOptions have without a schema (spec §2.6).
	kind, _ := m.types.Kind(in.Kind)
	return in.patched(kind, ops)
}

// patched applies a patch to the object and settles the result.
func (in *Input) patched(kind *openapi.Kind, ops []cel.PatchOp) (*unstructured.Unstructured, error) {
	if d := in.Draft; d != nil && in.settled() != nil && d.patch(kind, ops) {
		if d.object != in.Object && !kind.Builtin() {
			in.Request.forget(d.object.Object)
		}
		return d.object, nil
	}
	after, err := applyJSONPatch(in.Object.Object, ops)
	if err != nil {
		if errors.Is(err, errTestFailed) {
			// The whole mutation is skipped, and that is no error (spec §8.1).
			return in.unchanged(kind, openapi.FromApply)
		}
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	if tree.Same(in.Object.Object, after) {
		return in.unchanged(kind, openapi.FromJSONPatch)
	}
	if after, err = kind.Settle(in.settled(), after, openapi.FromJSONPatch); err != nil {
		return nil, err
	}
	return result(in.Object, after), nil
}

// copyLimit bounds what the copy operations of one patch may add, in bytes of
// JSON: an API server's fixed setting for the process-wide limit of the library.
const copyLimit = 3 << 20

var (
	errTestFailed   = errors.New("test failed")
	errMissing      = errors.New("missing value")
	errInvalidIndex = errors.New("invalid index referenced")
)

// crashError stands for an operation that brings upstream's library, and with
// it the request, down (spec §14 T4). Here it is the policy's error.
type crashError struct{ what string }

func (e *crashError) Error() string { return e.what }

func crash(format string, args ...any) error {
	return &crashError{what: fmt.Sprintf(format, args...)}
}

// applyJSONPatch applies ops to doc with the semantics of
// gopkg.in/evanphx/json-patch.v4 v4.13.0, quirks included (spec §8.3): that is
// what policies are written and tested against. It does not modify doc or any
// value of ops; what no operation touches is shared with the result, which is
// doc itself if there is nothing to do. A failed test is errTestFailed.
func applyJSONPatch(doc map[string]any, ops []cel.PatchOp) (map[string]any, error) {
	p := patching{root: doc}
	for i := range ops {
		if err := p.apply(&ops[i]); err != nil {
			return nil, err
		}
	}
	after, ok := seal(p.root).(map[string]any)
	if !ok || after == nil {
		return nil, errors.New("the patched document is not an object")
	}
	return after, nil
}

// patching is a document while a patch is applied to it. Containers that this
// patch has copied are *ownMap and *ownList and may be changed in place, so
// that a hundred operations on one map copy it once; all others belong to
// somebody else and are copied before their first change. An owned container is
// only ever reached through owned ones, and from one place.
type patching struct {
	root   any
	copied int64
	moved  int // elements of lists, to make or close gaps
}

// maxMoved bounds the elements that the operations of one patch move. A thousand
// operations at the front of a list of a thousand move 1.5 million.
const maxMoved = 100 << 20

// move counts the elements of a list that an operation moves.
func (at *place) move(elements int) error {
	if at.p.moved += elements; at.p.moved > maxMoved {
		return fmt.Errorf("the operations of one patch move more than %d elements of lists", maxMoved)
	}
	return nil
}

type (
	ownMap  struct{ m map[string]any }
	ownList struct{ l []any }

	// newNull is a null that an operation wrote with an explicit value. The
	// library tells it from a null that the document or a nested value held,
	// which it takes for an absent value: it can be looked into, finding
	// nothing, compares equal to null and to {}, and cannot be added to.
	newNull struct{}
)

func (newNull) MarshalJSON() ([]byte, error) { return []byte("null"), nil }
func (o *ownMap) MarshalJSON() ([]byte, error) {
	return json.Marshal(o.m)
}
func (o *ownList) MarshalJSON() ([]byte, error) {
	return json.Marshal(o.l)
}

// seal returns v as plain data, giving up the ownership of all it holds.
func seal(v any) any {
	switch v := v.(type) {
	case *ownMap:
		for k, e := range v.m {
			switch e.(type) {
			case *ownMap, *ownList, newNull:
				v.m[k] = seal(e)
			}
		}
		return v.m
	case *ownList:
		for i, e := range v.l {
			switch e.(type) {
			case *ownMap, *ownList, newNull:
				v.l[i] = seal(e)
			}
		}
		return v.l
	case newNull:
		return nil
	}
	return v
}

// snapshot is seal for a value that stays where it is: owned containers are
// copied, since they may change later.
func snapshot(v any) any {
	switch v := v.(type) {
	case *ownMap:
		m := make(map[string]any, len(v.m))
		for k, e := range v.m {
			m[k] = snapshot(e)
		}
		return m
	case *ownList:
		l := make([]any, len(v.l))
		for i, e := range v.l {
			l[i] = snapshot(e)
		}
		return l
	case newNull:
		return nil
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
	at, key, ok := p.find(path)
	if !ok {
		return fmt.Errorf("add operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	if err := at.add(key, written(op)); err != nil {
		return inner("error in add for path: '%s': %w", path, err)
	}
	return nil
}

func (p *patching) remove(op *cel.PatchOp) error {
	path, err := quoted(op.Path)
	if err != nil {
		return fmt.Errorf("remove operation failed to decode path: %w", errMissing)
	}
	at, key, ok := p.find(path)
	if !ok {
		return fmt.Errorf("remove operation does not apply: doc is missing path: \"%s\": %w", path, errMissing)
	}
	if err := at.remove(key); err != nil {
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
			p.root = op.Value
			return nil
		}
		return errors.New("replace operation value must be object or array: %!w(<nil>)")
	}
	at, key, ok := p.find(path)
	if !ok {
		return fmt.Errorf("replace operation does not apply: doc is missing path: %s: %w", path, errMissing)
	}
	if _, err := at.get(key); err != nil {
		return fmt.Errorf("replace operation does not apply: doc is missing key: %s: %w", path, errMissing)
	}
	// The library says remove here.
	if err := at.set(key, written(op)); err != nil {
		return inner("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

func (p *patching) move(op *cel.PatchOp) error {
	from, err := source(op)
	if err != nil {
		return fmt.Errorf("move operation failed to decode from: %w", err)
	}
	at, key, ok := p.find(from)
	if !ok {
		return fmt.Errorf("move operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	v, err := at.get(key)
	if err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", key, err)
	}
	if err := at.remove(key); err != nil {
		return inner("error in move for path: '%s': %w", key, err)
	}
	path, err := quoted(op.Path)
	if err != nil {
		return fmt.Errorf("move operation failed to decode path: %w", err)
	}
	if at, key, ok = p.find(path); !ok {
		return fmt.Errorf("move operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	if err := at.add(key, v); err != nil {
		return inner("error in move for path: '%s': %w", path, err)
	}
	return nil
}

func (p *patching) copy(op *cel.PatchOp) error {
	from, err := source(op)
	if err != nil {
		return fmt.Errorf("copy operation failed to decode from: %w", err)
	}
	at, key, ok := p.find(from)
	if !ok {
		return fmt.Errorf("copy operation does not apply: doc is missing from path: %s: %w", from, errMissing)
	}
	v, err := at.get(key)
	if err != nil {
		return fmt.Errorf("error in copy for from: '%s': %w", from, err)
	}
	path, err := quoted(op.Path)
	if err != nil {
		return fmt.Errorf("copy operation failed to decode path: %w", errMissing)
	}
	if at, key, ok = p.find(path); !ok {
		return fmt.Errorf("copy operation does not apply: doc is missing destination path: %s: %w", path, errMissing)
	}
	if v != nil {
		// The library copies the JSON text, so nulls inside become the
		// document's; a null itself stays what it is.
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("error while performing deep copy: %w", err)
		}
		if p.copied += int64(len(text)); p.copied > copyLimit {
			//lint:ignore ST1005 upstream's text
			return fmt.Errorf("Unable to complete the copy, the accumulated size increase of copy is %d, exceeding the limit %d", p.copied, copyLimit)
		}
		if _, ok := v.(newNull); !ok {
			v = snapshot(v)
		}
	}
	if err := at.add(key, v); err != nil {
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
		root := p.root
		if root == nil {
			root = newNull{} // a document replaced by null is an empty one to test
		}
		return compare(root, op.Value, failed)
	}
	at, key, ok := p.find(path)
	if !ok {
		return fmt.Errorf("test operation does not apply: is missing path: %s: %w", path, errMissing)
	}
	v, err := at.get(key)
	switch {
	case err != nil:
		return fmt.Errorf("error in test for path: '%s': %w", path, err)
	case v == nil && !op.HasValue:
		return nil
	case v == nil || !op.HasValue:
		// Null and absent are one to the library, and a value that was given,
		// were it null, is neither.
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

// sameJSON is the library's lazyNode.equal on what MAP makes of both sides:
// have is a value of the document, not nil; want is the operation's. Numbers
// are compared by their text. Null wants match an empty object or list. A list
// that holds null crashes it; so does comparing an element with null.
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
	case *ownMap:
		return sameMap(h.m, want)
	case map[string]any:
		return sameMap(h, want)
	case *ownList:
		return sameList(h.l, want)
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

// scalarText is the JSON text of a scalar, cheaply where it can be.
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

// written is what an operation writes: nothing given writes a plain null.
func written(op *cel.PatchOp) any {
	switch {
	case !op.HasValue:
		return nil
	case op.Value == nil:
		return newNull{}
	}
	return op.Value
}

// source is the operation's from. An empty one counts as not given: MAP drops it.
func source(op *cel.PatchOp) (string, error) {
	if op.From == "" {
		return "", fmt.Errorf("operation, missing from field: %w", errMissing)
	}
	return quoted(op.From)
}

// quoted is what reading s as JSON gives after MAP has quoted it as Go
// (k8s.io/apiserver …/mutating/patch/json_patch.go): s itself, or an error for
// the few characters that the two escape differently.
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

// inner wraps err, unless it stands for a crash: that has no text upstream.
func inner(format, path string, err error) error {
	if c, ok := err.(*crashError); ok {
		return c
	}
	return fmt.Errorf(format, path, err)
}

// place is one container of the document and the way to it: enough to read it
// as it is and, before the first change, to make it the patch's own.
type place struct {
	p     *patching
	way   string // what follows the path's first slash
	depth int    // how many tokens of it lead to the container
	v     any    // the container as it is
}

// find returns the container that path points into and the last token. As in
// the library, what stands before the first slash is ignored.
func (p *patching) find(path string) (place, string, bool) {
	_, rest, ok := strings.Cut(path, "/")
	if !ok {
		return place{}, "", false
	}
	at := place{p: p, way: rest, v: p.root}
	for {
		token, more, ok := strings.Cut(rest, "/")
		if token = unescape(token); !ok {
			return at, token, true
		}
		next, err := at.get(token)
		if err != nil {
			return place{}, "", false
		}
		switch next.(type) {
		case map[string]any, []any, *ownMap, *ownList, newNull:
		default:
			return place{}, "", false
		}
		at.depth++
		at.v = next
		rest = more
	}
}

var unescaper = strings.NewReplacer("~1", "/", "~0", "~")

// unescape decodes a token; an escape that is none stays as it is.
func unescape(token string) string {
	if strings.IndexByte(token, '~') < 0 {
		return token
	}
	return unescaper.Replace(token)
}

// get returns the value at key; nil if it is null or a map has none.
func (at *place) get(key string) (any, error) {
	switch v := at.v.(type) {
	case map[string]any:
		return plain(v[key]), nil
	case *ownMap:
		return plain(v.m[key]), nil
	case []any:
		return element(v, key)
	case *ownList:
		return element(v.l, key)
	}
	return nil, nil // a null looked into
}

// plain is v as the document's text has it: a list that is nil, which an apply
// configuration's empty list leaves in a custom resource, is null there.
func plain(v any) any {
	if l, ok := v.([]any); ok && l == nil {
		return nil
	}
	return v
}

func element(list []any, key string) (any, error) {
	i, err := strconv.Atoi(key)
	if err != nil {
		return nil, err
	}
	if i, err = index(i, len(list)); err != nil {
		return nil, err
	}
	return plain(list[i]), nil
}

// index resolves an index into a list of n elements, counting negative ones
// from the end.
func index(i, n int) (int, error) {
	if i >= n || i < -n {
		//lint:ignore ST1005 upstream's text
		return 0, fmt.Errorf("Unable to access invalid index: %d: %w", i, errInvalidIndex)
	}
	if i < 0 {
		i += n
	}
	return i, nil
}

// own makes the container, and those on the way to it, the patch's own.
func (at *place) own() {
	switch at.v.(type) {
	case *ownMap, *ownList:
		return
	}
	p := at.p
	p.root = owned(p.root)
	v, rest := p.root, at.way
	for range at.depth {
		token, more, _ := strings.Cut(rest, "/")
		token, rest = unescape(token), more
		switch c := v.(type) {
		case *ownMap:
			v = owned(c.m[token])
			c.m[token] = v
		case *ownList:
			// The way was walked before, so the index is good.
			i, _ := strconv.Atoi(token)
			i, _ = index(i, len(c.l))
			v = owned(c.l[i])
			c.l[i] = v
		}
	}
	at.v = v
}

func owned(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return &ownMap{maps.Clone(v)}
	case []any:
		return &ownList{append(make([]any, 0, len(v)+1), v...)}
	}
	return v
}

func (at *place) add(key string, v any) error {
	switch at.v.(type) {
	case newNull, nil:
		return crash("add operation below a null that the patch has just written")
	}
	if list, ok := at.list(); ok {
		i, n := len(list), len(list)
		if key != "-" {
			var err error
			if i, err = strconv.Atoi(key); err != nil {
				return fmt.Errorf("value was not a proper array index: '%s': %w", key, err)
			}
			if i, err = index(i, n+1); err != nil {
				return err
			}
		}
		if err := at.move(n - i); err != nil {
			return err
		}
		at.own()
		own := at.v.(*ownList)
		own.l = slices.Insert(own.l, i, v)
		return nil
	}
	return at.setKey(key, v)
}

// set replaces the value at key, which a list must have.
func (at *place) set(key string, v any) error {
	switch at.v.(type) {
	case newNull, nil:
		return crash("replace operation below a null that the patch has just written")
	}
	if list, ok := at.list(); ok {
		i, err := strconv.Atoi(key)
		if err != nil {
			return err
		}
		if i, err = index(i, len(list)); err != nil {
			return err
		}
		at.own()
		at.v.(*ownList).l[i] = v
		return nil
	}
	return at.setKey(key, v)
}

func (at *place) setKey(key string, v any) error {
	at.own()
	at.v.(*ownMap).m[key] = v
	return nil
}

func (at *place) remove(key string) error {
	if list, ok := at.list(); ok {
		i, err := strconv.Atoi(key)
		if err != nil {
			return err
		}
		if i, err = index(i, len(list)); err != nil {
			return err
		}
		if err := at.move(len(list) - i); err != nil {
			return err
		}
		at.own()
		own := at.v.(*ownList)
		own.l = slices.Delete(own.l, i, i+1)
		return nil
	}
	found := false
	switch v := at.v.(type) {
	case map[string]any:
		_, found = v[key]
	case *ownMap:
		_, found = v.m[key]
	}
	if !found {
		//lint:ignore ST1005 upstream's text
		return fmt.Errorf("Unable to remove nonexistent key: %s: %w", key, errMissing)
	}
	at.own()
	delete(at.v.(*ownMap).m, key)
	return nil
}

// list is the container's elements, if it is a list.
func (at *place) list() ([]any, bool) {
	switch v := at.v.(type) {
	case []any:
		return v, true
	case *ownList:
		return v.l, true
	}
	return nil, false
}
