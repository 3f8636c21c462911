package openapi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mapd-project/mapd/pkg/tree"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// A server may be older than our Go types: a field of theirs that its document
// does not declare would be lost without a word, since a server is lenient with
// what webhooks answer. undeclared refuses it, in the words of a strict decoding,
// which is how the in-tree plugin of such a server would. A merge needs no such
// look: it goes by the document.
//
// Only what differs between before and after is visited.
func undeclared(s *smdschema.Schema, ref smdschema.TypeRef, before, after map[string]any) error {
	w := declarations{schema: s}
	w.visit(ref, "", before, after)
	if len(w.unknown) == 0 {
		return nil
	}
	return errors.New("strict decoding error: " + strings.Join(w.unknown, ", "))
}

type declarations struct {
	schema  *smdschema.Schema
	unknown []string
}

func (w *declarations) visit(ref smdschema.TypeRef, path string, before, after any) {
	if tree.Same(before, after) {
		return
	}
	atom, ok := w.schema.Resolve(ref)
	if !ok {
		return
	}
	switch after := after.(type) {
	case map[string]any:
		if atom.Map == nil {
			return
		}
		before, _ := before.(map[string]any)
		for _, key := range sortedKeys(after) {
			old, had := before[key]
			if had && tree.Same(old, after[key]) {
				continue
			}
			at := key
			if path != "" {
				at = path + "." + key
			}
			next := atom.Map.ElementType
			if field, ok := atom.Map.FindField(key); ok {
				next = field.Type
			} else if next == (smdschema.TypeRef{}) {
				// As structured-merge-diff tells a struct from a map (typed/validate.go).
				w.unknown = append(w.unknown, fmt.Sprintf("unknown field %q", at))
				continue
			}
			w.visit(next, at, old, after[key])
		}
	case []any:
		if atom.List == nil {
			return
		}
		before, _ := before.([]any)
		for i, v := range after {
			at := fmt.Sprintf("%s[%d]", path, i)
			if end := len(before) - len(after) + i; end >= 0 && end < len(before) && tree.Same(before[end], v) {
				continue
			}
			var old any
			if i < len(before) {
				old = before[i]
			}
			w.visit(atom.List.ElementType, at, old, v)
		}
	}
}
