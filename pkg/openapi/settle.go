package openapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Decoding is the way in which a server decodes a patched object; the two ways reject different
// things.
type Decoding int

const (
	// FromJSONPatch is a strict decoding of JSON text: unknown fields and
	// numbers out of range are errors, 5.0 is written as 5.
	FromJSONPatch Decoding = iota

	// FromApply is the conversion of a merge result: unknown fields have been
	// refused by the merge already, a float without a fraction becomes an integer.
	FromApply
)

// Settle changes a patched object as an API server does between one mutation and the next
// (k8s.io/apiserver …/mutating/dispatcher.go: dispatchOne).
//
// A built-in kind goes through its Go type: null and, where the type says omitempty, empty
// values are removed; required ones are added (name: "", resources: {}); quantities and times
// get their canonical form; 5.0 becomes 5. A value that does not fit is an error with
// upstream's text. Settle is stricter than upstream in two cases: an integer that does not fit
// its type is an error after a merge, too, and a field that the kind's document lacks, because
// it is older than the Go type, is an error after a JSON Patch. A field that the document
// declares but the Go type lacks, because it is older, is kept as it is. Settle does not apply
// defaults of built-in kinds, which exist only inside the server.
//
// A custom kind gets the defaults of its CustomResourceDefinition and, after a JSON Patch,
// numbers as a decoder reads them, 5.0 as 5.
//
// before must have been settled or normalized. Settle does not visit subtrees of after that it
// shares with before (tree.Same, at the same path or, in a list, at the same distance from
// either end), so its cost is that of the change. It thereby misses one thing: upstream decodes
// the whole text of a custom object again, so that a float 5.0 in an unchanged part becomes 5.
//
// No tree is modified. The result is before itself if the patch made no difference and after
// itself if nothing needed settling; otherwise it shares unchanged parts with them.
func (k *Kind) Settle(before, after map[string]any, from Decoding) (map[string]any, error) {
	if k.goType != nil {
		return k.settleBuiltin(before, after, from)
	}
	return k.settleCustom(before, after, from)
}

func (k *Kind) settleBuiltin(before, after map[string]any, from Decoding) (map[string]any, error) {
	if tree.Same(before, after) && before != nil {
		return before, nil
	}
	out, err := k.throughGoType(before, after, from)
	if err != nil {
		return nil, err
	}
	if p, ok := k.declares(from); ok {
		if err := p.undeclared(before, after); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (k *Kind) throughGoType(before, after map[string]any, from Decoding) (map[string]any, error) {
	t := k.goType
	if after["apiVersion"] == t.apiVersion && after["kind"] == t.kind {
		w := settler{from: from}
		if out := w.members(t.root.shape, before, after); !w.odd {
			return out, nil
		}
	}
	// Something is odd. Only the Go type itself has upstream's error texts.
	plain, extras := k.withoutExtras(after)
	out, err := t.roundTrip(plain, from)
	if err != nil {
		return nil, err
	}
	return share(before, after, withExtras(out, extras)).(map[string]any), nil
}

// A settler walks a changed tree along a shape, beside the settled tree from which the changed
// one was made. It copies a map or list before it first changes it. At the first thing that it
// cannot settle itself, it sets odd and stops: an error, a type that only the round trip
// handles, an undeclared field.
type settler struct {
	from Decoding
	odd  bool
}

// members settles a value of a struct or map type.
func (w *settler) members(sh *shape, before, after map[string]any) map[string]any {
	out, own := after, false // own: out is a copy of after
	change := func() {
		if !own {
			out, own = maps.Clone(after), true
		}
		if out == nil {
			out = map[string]any{}
		}
	}
	same := before != nil
	found := 0
	for key, av := range after {
		m := sh.member(key)
		if m == nil || sh.form == dict && !utf8.ValidString(key) {
			w.odd = true
			return after
		}
		if m.always {
			found++
		}
		bv, had := before[key]
		if had && tree.Same(av, bv) {
			continue
		}
		v := w.value(m.shape, bv, av)
		drop := !w.odd && m.drops(av, v, &w.odd)
		switch {
		case w.odd:
			return after
		case drop:
			// before cannot have the key with this value, but it may lack it.
			change()
			delete(out, key)
			continue
		case !tree.Same(v, av):
			change()
			out[key] = v
		}
		same = same && had && tree.Same(v, bv)
	}
	if found < sh.required {
		for key, m := range sh.fields {
			if _, ok := out[key]; ok || !m.always {
				continue
			}
			change()
			out[key] = m.fill
			if bv, had := before[key]; had && tree.Equal(bv, m.fill) {
				out[key] = bv
			} else {
				same = false
			}
		}
	}
	if same && len(out) == len(before) {
		return before
	}
	if out == nil {
		out = map[string]any{}
	}
	return out
}

// drops reports whether a field with the settled value v, decoded from in, is
// left out of the tree.
func (f *member) drops(in, v any, odd *bool) bool {
	switch f.omit {
	case ifEmpty:
		return empty(v)
	case ifNull:
		return isNull(in)
	case ifZero:
		return v == nil
	case unsurely:
		*odd = true
		return true
	}
	return false
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case int64:
		return v == 0
	case float64:
		return v == 0
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// isNull reports whether v is null, or a nil map or list, which are encoded as null.
func isNull(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return v == nil
	case []any:
		return v == nil
	}
	return false
}

// value settles any value.
func (w *settler) value(sh *shape, before, after any) any {
	if sh.form == opaque {
		w.odd = true
		return after
	}
	if isNull(after) {
		if after != nil && w.from == FromApply {
			w.odd = sh.form != free // a nil map or list is null in JSON only
			return after
		}
		if before != nil && tree.Equal(before, sh.zero) {
			return before
		}
		return sh.zero
	}
	switch sh.form {
	case pointer:
		return w.value(sh.elem, before, after)
	case text:
		if s, ok := after.(string); ok {
			w.odd = w.odd || !utf8.ValidString(s)
			return after
		}
	case truth:
		if _, ok := after.(bool); ok {
			return after
		}
	case integer:
		switch n := after.(type) {
		case int64:
			if n >= sh.min && n <= sh.max {
				return after
			}
		case float64:
			// Beyond 2^53 the text of the number decides.
			if n == math.Trunc(n) && math.Abs(n) <= 1<<53 {
				if i := int64(n); i >= sh.min && i <= sh.max {
					return i
				}
			}
		}
	case number:
		switch n := after.(type) {
		case float64:
			return after
		case int64:
			return float64(n)
		}
	case bytes:
		if s, ok := after.(string); ok {
			data, err := base64.StdEncoding.DecodeString(s)
			if err == nil {
				if clean := base64.StdEncoding.EncodeToString(data); clean != s {
					return clean
				}
				return after
			}
		}
	case list:
		if l, ok := after.([]any); ok {
			b, _ := before.([]any)
			return w.list(sh, b, l)
		}
	case dict, structure:
		if m, ok := after.(map[string]any); ok {
			b, _ := before.(map[string]any)
			return w.members(sh, b, m)
		}
	case special:
		if s, ok := after.(string); ok && !utf8.ValidString(s) {
			break
		}
		if v, ok := sh.canonical(after); ok {
			if tree.Same(v, after) {
				return after
			}
			return share(before, after, v)
		}
	case raw:
		w := settler{from: FromJSONPatch}
		return w.value(anything, before, after)
	case free:
		switch v := after.(type) {
		case map[string]any:
			b, _ := before.(map[string]any)
			return w.members(sh, b, v)
		case []any:
			b, _ := before.([]any)
			return w.list(sh, b, v)
		}
		if w.from == FromJSONPatch {
			return reread(after)
		}
		return after
	}
	w.odd = true
	return after
}

// list settles a value of a slice type.
func (w *settler) list(sh *shape, before, after []any) []any {
	out := after
	own := false
	head, tail := aligned(before, after)
	same := before != nil && len(before) == len(after)
	for i := head; i < len(after)-tail; i++ {
		var bv any
		if len(before) == len(after) {
			bv = before[i]
		}
		av := after[i]
		if bv != nil && tree.Same(av, bv) {
			continue
		}
		v := w.value(sh.items.shape, bv, av)
		if w.odd {
			return after
		}
		if !tree.Same(v, av) {
			if !own {
				out, own = slices.Clone(after), true
			}
			out[i] = v
		}
		same = same && tree.Same(v, bv)
	}
	if same {
		return before
	}
	return out
}

// aligned returns how many elements two lists share at their starts and, of the rest, at their
// ends.
func aligned(before, after []any) (head, tail int) {
	n := min(len(before), len(after))
	for head < n && tree.Same(before[head], after[head]) {
		head++
	}
	for tail < n-head && tree.Same(before[len(before)-1-tail], after[len(after)-1-tail]) {
		tail++
	}
	return head, tail
}

// reread returns a scalar as it is after encoding and decoding.
func reread(v any) any {
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			return string([]rune(v)) // one U+FFFD for each stray byte
		}
	case float64:
		// encoding/json writes an exponent from 1e21 on, and integers end at 2^63.
		if v == math.Trunc(v) && math.Abs(v) < 1e21 {
			if i, err := strconv.ParseInt(strconv.FormatFloat(v, 'f', -1, 64), 10, 64); err == nil {
				return i
			}
		}
	}
	return v
}

// share returns fresh with its parts replaced by equal parts of before or, failing
// that, of after, so that what did not change keeps its identity.
// It modifies fresh, nothing else.
func share(before, after, fresh any) any {
	switch f := fresh.(type) {
	case map[string]any:
		b, _ := before.(map[string]any)
		a, _ := after.(map[string]any)
		likeB := b != nil && len(b) == len(f)
		likeA := a != nil && len(a) == len(f)
		for key, fv := range f {
			bv, inB := b[key]
			av, inA := a[key]
			v := share(bv, av, fv)
			f[key] = v
			likeB = likeB && inB && tree.Same(v, bv)
			likeA = likeA && inA && tree.Same(v, av)
		}
		if likeB {
			return before
		}
		if likeA {
			return after
		}
	case []any:
		b, _ := before.([]any)
		a, _ := after.([]any)
		likeB := b != nil && len(b) == len(f)
		likeA := a != nil && len(a) == len(f)
		for i, fv := range f {
			var bv, av any
			if i < len(b) {
				bv = b[i]
			}
			if i < len(a) {
				av = a[i]
			}
			v := share(bv, av, fv)
			f[i] = v
			likeB = likeB && tree.Same(v, bv)
			likeA = likeA && tree.Same(v, av)
		}
		if likeB {
			return before
		}
		if likeA {
			return after
		}
	}
	return fresh
}

// encode returns the JSON text of a tree, as upstream has it after patching the text.
func encode(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	return data, nil
}
