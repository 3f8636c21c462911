package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Keys returns the fields that identify the elements of a list. The path is
// that of the list, with "" for each list element on it. Without keys, elements
// are identified by their position.
type Keys func(path []string) []string

// SchemaKeys returns the keys that the schema of a kind declares.
func SchemaKeys(kind *openapi.Kind) Keys {
	schema, root := kind.Schema()
	return func(path []string) []string {
		if schema == nil {
			return nil
		}
		ref := root
		for _, step := range path {
			atom, ok := schema.Resolve(ref)
			if !ok {
				return nil
			}
			switch {
			case step == "" && atom.List != nil:
				ref = atom.List.ElementType
			case step != "" && atom.Map != nil:
				ref = atom.Map.ElementType
				if f, ok := atom.Map.FindField(step); ok {
					ref = f.Type
				}
			default:
				return nil
			}
		}
		if atom, ok := schema.Resolve(ref); ok && atom.List != nil {
			return atom.List.Keys
		}
		return nil
	}
}

// keysOf returns the fields that name the elements of lists: the schema's keys,
// or "name" if it identifies the elements of every list.
func keysOf(keys Keys, path []string, lists ...[]any) []string {
	var candidates [][]string
	if keys != nil {
		if k := keys(path); len(k) > 0 {
			candidates = append(candidates, k)
		}
	}
	for _, k := range append(candidates, []string{"name"}, []string{"key"}, []string{"type"}) {
		if distinct(k, lists) {
			return shorten(k, lists)
		}
	}
	return nil
}

// shorten drops keys that are not needed, such as protocol if every
// containerPort has one entry.
func shorten(keys []string, lists [][]any) []string {
	for n := 1; n < len(keys); n++ {
		if distinct(keys[:n], lists) {
			return keys[:n]
		}
	}
	return keys
}

func distinct(keys []string, lists [][]any) bool {
	some := false
	for _, list := range lists {
		seen := map[string]bool{}
		for _, e := range list {
			id, ok := identity(e, keys)
			if !ok || seen[id] {
				return false
			}
			seen[id], some = true, true
		}
	}
	return some
}

// identity returns the name of an element: "name=app". Some keys may be
// missing, as protocol is where it has its default, but not all.
func identity(e any, keys []string) (string, bool) {
	m, ok := e.(map[string]any)
	if !ok {
		return "", false
	}
	var parts []string
	for _, k := range keys {
		switch v := m[k].(type) {
		case nil:
		case map[string]any, []any:
			return "", false
		default:
			parts = append(parts, fmt.Sprintf("%s=%v", k, v))
		}
	}
	return strings.Join(parts, ","), len(parts) > 0
}

// Hidden reports whether a character is not seen itself and changes how others are: it moves
// the cursor of a terminal, begins a line, or changes the direction in which text is
// shown, so that people read something else than what is there. Joiners, of which emoji
// and scripts are made, do neither.
func Hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// Printable returns s with its Hidden characters escaped, except line ends and
// tabs. What is no UTF-8 becomes U+FFFD.
func Printable(s string) string {
	return escaped(s, func(r rune) bool { return Hidden(r) && r != '\n' && r != '\t' })
}

// Line is Printable for text on a line of its own: it escapes line ends and
// tabs as well.
func Line(s string) string { return escaped(s, Hidden) }

func escaped(s string, control func(rune) bool) string {
	if !strings.ContainsFunc(s, control) {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	var b strings.Builder
	for _, r := range s {
		if control(r) {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// inline formats a value on one line: strings as in YAML, everything else as
// JSON.
func inline(v any) string {
	if s, ok := v.(string); ok && !strings.Contains(s, "\n") {
		return Line(strings.TrimSuffix(string(manifest.Encode(s)), "\n"))
	}
	var b strings.Builder
	if err := WriteJSON(&b, v, ""); err != nil {
		return fmt.Sprint(v)
	}
	return Line(strings.TrimSuffix(b.String(), "\n"))
}
