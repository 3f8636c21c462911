package celgen

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Entry is one entry of a literal.
type Entry struct {
	Name  string
	Value Expr
}

// Message returns a literal such as Object.spec{replicas: 1} or JSONPatch{…}. Names are
// identifiers, with ? before those whose value is an optional.
func Message(typ string, members ...Entry) Expr {
	texts := make([]string, len(members))
	for i, m := range members {
		texts[i] = m.Name + ": " + m.Value.Text
	}
	return Atom(typ+"{"+strings.Join(texts, ", ")+"}", typ)
}

// List returns a list of expressions.
func List(elems ...Expr) Expr {
	elems, typ := unified(elems)
	return Atom("["+commas(elems)+"]", "list("+typ+")")
}

// Map returns a map with constant keys.
func Map(entries ...Entry) Expr {
	values := make([]Expr, len(entries))
	for i, m := range entries {
		values[i] = m.Value
	}
	values, typ := unified(values)
	texts := make([]string, len(entries))
	for i, m := range entries {
		texts[i] = Quote(m.Name) + ": " + values[i].Text
	}
	return Atom("{"+strings.Join(texts, ", ")+"}", "map("+typ+")")
}

// Strings returns a list of strings.
func Strings(values []string) Expr {
	elems := make([]Expr, len(values))
	for i, v := range values {
		elems[i] = Constant(v)
	}
	return List(elems...)
}

// unified returns the parts of a list or map, which have to be of one type. If they are not, or if
// a type is unknown, they become dyn.
func unified(parts []Expr) ([]Expr, string) {
	if len(parts) == 0 {
		return nil, "nothing"
	}
	if typ := parts[0].Type; len(parts) == 1 || typ != "" && !slices.ContainsFunc(parts, func(e Expr) bool { return e.Type != typ }) {
		return parts, typ
	}
	return dyns(parts), "dyn"
}

// dyns returns expressions as values of any type.
func dyns(parts []Expr) []Expr {
	out := slices.Clone(parts)
	for i, e := range out {
		out[i] = Dyn(e)
	}
	return out
}

// Dyn returns e as a value of any type.
func Dyn(e Expr) Expr {
	if e.Type == "dyn" {
		return e
	}
	return Fn("dyn", e).As("dyn")
}

// Constant returns nil, a bool, string, int64 or float64, or a list or map of them, in which an
// Expr may stand for a value. Numbers keep their type: 1.0 is a double. Keys are sorted.
func Constant(v any) Expr {
	return literal(v, double, func(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) })
}

// JSON is Constant for a value that becomes JSON: 1.0 is written 1, and fields stand in FieldOrder.
func JSON(v any) Expr {
	number := func(f float64) Expr {
		if n := int64(f); float64(n) == f && -MaxSafeInt <= n && n <= MaxSafeInt {
			return Atom(strconv.FormatInt(n, 10), "int")
		}
		return double(f)
	}
	return literal(v, number, FieldOrder[any])
}

// MaxSafeInt is the largest integer that CEL writes as a JSON number; beyond it and below its
// negative they become strings (Gatekeeper spec §14.1, T34).
const MaxSafeInt = 1<<53 - 1

func double(f float64) Expr {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return Atom(s, "double")
}

func literal(v any, number func(float64) Expr, order func(map[string]any) []string) Expr {
	switch v := v.(type) {
	case Expr:
		return v
	case nil:
		return Atom("null", "null")
	case bool:
		return Atom(strconv.FormatBool(v), "bool")
	case string:
		return Atom(Quote(v), "string")
	case int64:
		return Atom(strconv.FormatInt(v, 10), "int")
	case float64:
		return number(v)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return Atom(strconv.FormatInt(n, 10), "int")
		}
		f, _ := v.Float64()
		return number(f)
	case []any:
		elems := make([]Expr, len(v))
		for i, e := range v {
			elems[i] = literal(e, number, order)
		}
		return List(elems...)
	case map[string]any:
		entries := make([]Entry, 0, len(v))
		for _, k := range order(v) {
			entries = append(entries, Entry{Name: k, Value: literal(v[k], number, order)})
		}
		return Map(entries...)
	default:
		// Decoded JSON has no other values.
		return Atom(Quote(fmt.Sprint(v)), "string")
	}
}

// first are the fields that people write before others.
var first = []string{"metadata", "name", "image", "spec"}

// FieldOrder returns the keys of an object in the order in which people write them.
func FieldOrder[V any](m map[string]V) []string {
	rank := func(k string) int {
		if i := slices.Index(first, k); i >= 0 {
			return i
		}
		return len(first)
	}
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
	})
}

// Quote returns a string literal. It escapes everything that is not printable, so that a literal
// stays on one line and shows its content.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case strconv.IsPrint(c):
			b.WriteRune(c)
		case c <= 0xFFFF:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
