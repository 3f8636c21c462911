package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
)

// How tightly the parts of an expression bind.
const (
	bindCond = iota
	bindOr
	bindAnd
	bindRelation
	bindSum
	bindUnary
	bindMember
)

// expr is an expression of CEL, and its type where it is known: string, int, bool, list, map.
type expr struct {
	text string
	bind int
	typ  string
	// from are the places of an optional value, as show has them; Kyverno takes null for a
	// missing one.
	from string
}

func (e expr) within(bind int) string {
	if e.bind < bind {
		return "(" + e.text + ")"
	}
	return e.text
}

func atom(text, typ string) expr { return expr{text: text, bind: bindMember, typ: typ} }

func quote(s string) string { return translate.Literal(s) }

func str(s string) expr { return atom(quote(s), "string") }

var yes, no = atom("true", "bool"), atom("false", "bool")

func joined(op string, bind int, parts []expr) expr {
	if len(parts) == 1 {
		return parts[0]
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.within(bind)
	}
	return expr{text: strings.Join(texts, " "+op+" "), bind: bind, typ: parts[0].typ}
}

// all joins conditions; none is true.
func all(conds ...expr) expr {
	var parts []expr
	for _, c := range conds {
		switch {
		case c.text == no.text:
			return no
		case c.text != yes.text && !slices.Contains(parts, c):
			parts = append(parts, c)
		}
	}
	if len(parts) == 0 {
		return yes
	}
	return joined("&&", bindAnd, parts)
}

// anyOf joins conditions; none is false.
func anyOf(conds ...expr) expr {
	var parts []expr
	for _, c := range conds {
		switch {
		case c.text == yes.text:
			return yes
		case c.text != no.text && !slices.Contains(parts, c):
			parts = append(parts, c)
		}
	}
	if len(parts) == 0 {
		return no
	}
	return joined("||", bindOr, parts)
}

func not(e expr) expr {
	switch {
	case e.text == yes.text:
		return no
	case e.text == no.text:
		return yes
	case e.bind == bindUnary && strings.HasPrefix(e.text, "!"):
		return expr{text: e.text[1:], bind: bindMember, typ: "bool"}
	case e.bind == bindRelation && strings.Count(e.text, " == ") == 1 && !strings.Contains(e.text, " ? ") && !strings.ContainsAny(e.text, "&|"):
		return expr{text: strings.Replace(e.text, " == ", " != ", 1), bind: bindRelation, typ: "bool"}
	}
	return expr{text: "!" + e.within(bindUnary), bind: bindUnary, typ: "bool"}
}

func relation(a expr, op string, b expr) expr {
	return expr{text: a.within(bindSum) + " " + op + " " + b.within(bindSum), bind: bindRelation, typ: "bool"}
}

func equal(a, b expr) expr { return relation(a, "==", b) }

func in(a, list expr) expr { return relation(a, "in", list) }

// sum joins strings or lists.
func sum(parts ...expr) expr {
	var out []expr
	for _, p := range parts {
		last := len(out) - 1
		if last >= 0 && isQuoted(out[last].text) && isQuoted(p.text) {
			a, _ := strconv.Unquote(out[last].text)
			b, _ := strconv.Unquote(p.text)
			out[last] = str(a + b)
			continue
		}
		out = append(out, p)
	}
	return joined("+", bindSum, out)
}

func isQuoted(s string) bool {
	_, err := strconv.Unquote(s)
	return err == nil && strings.HasPrefix(s, `"`)
}

func when(cond, then, otherwise expr) expr {
	switch cond.text {
	case yes.text:
		return then
	case no.text:
		return otherwise
	}
	return expr{text: cond.within(bindOr) + " ? " + then.within(bindOr) + " : " + otherwise.text, bind: bindCond, typ: then.typ}
}

func call(recv expr, name, typ string, args ...expr) expr {
	texts := make([]string, len(args))
	for i, a := range args {
		texts[i] = a.text
	}
	return atom(recv.within(bindMember)+"."+name+"("+strings.Join(texts, ", ")+")", typ)
}

func fn(name, typ string, args ...expr) expr {
	texts := make([]string, len(args))
	for i, a := range args {
		texts[i] = a.text
	}
	return atom(name+"("+strings.Join(texts, ", ")+")", typ)
}

func list(elems ...expr) expr {
	texts := make([]string, len(elems))
	for i, e := range elems {
		texts[i] = e.text
	}
	return atom("["+strings.Join(texts, ", ")+"]", "list")
}

func strs(values []string) expr {
	var out []expr
	for _, v := range values {
		out = append(out, str(v))
	}
	return list(out...)
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// isField reports whether name can stand behind a dot.
func isField(name string) bool {
	return identifier.MatchString(name) && !slices.Contains([]string{"in", "true", "false", "null"}, name)
}

// member returns e.name, and e.?name if optional.
func member(e expr, name string, optional bool) expr {
	mark := ""
	if optional {
		mark = "?"
	}
	if isField(name) {
		return atom(e.within(bindMember)+"."+mark+name, "")
	}
	return atom(e.within(bindMember)+"["+mark+quote(name)+"]", "")
}

// literal writes a value that holds constants and exprs. Values of mixed types become dyn.
func literal(v any) expr {
	switch v := v.(type) {
	case expr:
		v.typ = dynamic
		return v
	case []any:
		elems := make([]expr, len(v))
		for i, e := range v {
			elems[i] = literal(e)
		}
		out := list(unified(elems)...)
		if len(elems) > 0 {
			out.typ = "list " + unified(elems)[0].typ
		}
		return out
	case map[string]any:
		keys := fieldOrder(v)
		values := make([]expr, len(keys))
		for i, k := range keys {
			values[i] = literal(v[k])
		}
		values = unified(values)
		var parts []string
		for i, k := range keys {
			parts = append(parts, quote(k)+": "+values[i].text)
		}
		out := atom("{"+strings.Join(parts, ", ")+"}", "map")
		if len(keys) > 0 {
			out.typ = "map " + values[0].typ
		}
		return out
	case string:
		return str(v)
	case int64:
		return atom(strconv.FormatInt(v, 10), "int")
	case bool:
		return atom(strconv.FormatBool(v), "bool")
	}
	return atom(translate.Literal(v), fmt.Sprintf("%T", v))
}

// dynamic is the type of what stands for a variable: CEL may know it or not.
const dynamic = "dynamic"

// ofObject matches what is read from an object, whose type CEL does not know.
var ofObject = regexp.MustCompile(`^(object|namespaceObject|params|[a-z]2?)(\.|\[)`)

// unified makes parts of one type of them: values of a list or map of CEL have one type.
func unified(parts []expr) []expr {
	if !slices.ContainsFunc(parts, func(p expr) bool {
		return p.typ != parts[0].typ || p.typ == "" || p.typ == dynamic && !unknownType(p)
	}) || len(parts) == 1 {
		return parts
	}
	out := make([]expr, len(parts))
	for i, p := range parts {
		out[i] = p
		if p.typ != "dyn" && !unknownType(p) {
			out[i] = fn("dyn", "dyn", p)
		}
		out[i].typ = "dyn"
	}
	return out
}

// typedCall finds functions whose result has a type that CEL knows.
var typedCall = regexp.MustCompile(`\.(split|replace|find|substring|upperAscii|lowerAscii|join|size)\(`)

func unknownType(e expr) bool {
	return e.typ == dynamic && e.bind == bindMember && ofObject.MatchString(e.text) && !typedCall.MatchString(e.text)
}

// fieldOrder returns the keys of an object in the order in which people write them.
func fieldOrder(m map[string]any) []string {
	first := []string{"metadata", "name", "image", "spec"}
	rank := func(k string) int {
		if i := slices.Index(first, k); i >= 0 {
			return i
		}
		return len(first)
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return keys
}
