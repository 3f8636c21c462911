package translate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/cel/layout"
)

// expr is a piece of CEL: its layout, and how tightly it binds. Expressions
// that are made of pieces are well-formed, whatever the pieces contain: names
// and constants are escaped, and parentheses stand where binding needs them.
type expr struct {
	doc  layout.Doc
	bind int
	// typ is the CEL type, as far as literals need it; "" if it is unknown.
	typ string
	// everywhere: it reads nothing that a loop around it names.
	everywhere bool
	// chain is the layout of a conditional without indentation: a conditional
	// after the colon of another one stands below it and not further in.
	chain *layout.Doc
	// opposite is the negation, if there is a better one than with an
	// exclamation mark.
	opposite *expr
	// names says the same of an object's namespace as a selector of namespaces does;
	// nil if none can.
	names *metav1.LabelSelectorRequirement
}

// How tightly operators bind, loosest first.
const (
	bindCond = iota
	bindOr
	bindAnd
	bindRelation
	bindSum
	bindUnary
	bindMember
)

// String returns the expression as a person would write it, in lines of at most
// 100 columns where that is possible.
func (e expr) String() string { return layout.Group(e.doc).String() }

// within returns the layout of e as an operand of an operator.
func (e expr) within(bind int) layout.Doc {
	if e.bind >= bind {
		return e.doc
	}
	return layout.Parens(layout.Text("("), e.doc, layout.Text(")"))
}

// ident returns a name that the generator chose; it is not escaped.
func ident(name string) expr { return expr{doc: layout.Text(name), bind: bindMember} }

// reserved are words that cannot be field names after a dot.
var reserved = []string{"false", "in", "null", "true"}

// isIdentifier reports whether name can stand behind a dot.
func isIdentifier(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && '0' <= c && c <= '9':
		default:
			return false
		}
	}
	return name != "" && !slices.Contains(reserved, name)
}

// field returns member name of an object e: e.name, or e["name"] where name is
// not an identifier.
func field(e expr, name string) expr {
	if isIdentifier(name) {
		return expr{doc: layout.Concat(e.within(bindMember), layout.Text("."+name)), bind: bindMember}
	}
	return expr{doc: layout.Concat(e.within(bindMember), layout.Text("["+quote(name)+"]")), bind: bindMember}
}

// optional returns member name of e, or of what the optional e holds, as an
// optional: e.?name, or e[?"name"].
func optional(e expr, name string) expr {
	if isIdentifier(name) {
		return expr{doc: layout.Concat(e.within(bindMember), layout.Text(".?"+name)), bind: bindMember}
	}
	return expr{doc: layout.Concat(e.within(bindMember), layout.Text("[?"+quote(name)+"]")), bind: bindMember}
}

// has returns whether the object e has the member: has(e.name), or "name" in e.
//
// Of a string, a number, a bool or null, the first is false and the second an
// error; of a list the first is an error.
func has(e expr, name string) expr {
	if isIdentifier(name) {
		return fn("has", field(e, name))
	}
	return binary("in", constant(name), e)
}

// item returns e[i].
func item(e, i expr) expr {
	return expr{doc: layout.Index(e.within(bindMember), layout.Text("["), i.doc, layout.Text("]")), bind: bindMember}
}

// cond returns `test ? yes : no`.
func cond(test, yes, no expr) expr {
	// The part before the colon must bind tighter than a conditional.
	a, b, mark, colon := test.within(bindOr), yes.within(bindOr), layout.Text("?"), layout.Text(":")
	chain := layout.ConditionalChain(a, mark, b, colon, no.doc, no.chain)
	e := expr{doc: layout.Conditional(a, mark, b, colon, no.doc, no.chain), bind: bindCond, chain: &chain}
	if yes.typ == no.typ {
		e.typ = yes.typ
	}
	return e
}

// when guards an expression with conditions; without them the result is none.
// Before a longer expression, the case without effect comes first.
func when(conds []expr, then, none expr) expr {
	if then.chain == nil || none.chain != nil {
		return cond(all(conds...), then, none)
	}
	var opposites []expr
	for _, c := range conds {
		opposites = append(opposites, not(c))
	}
	return cond(anyOf(opposites...), none, then)
}

// all joins conditions with &&. It needs at least one.
func all(conds ...expr) expr { return joined("&&", bindAnd, conds) }

// anyOf joins conditions with ||. It needs at least one.
func anyOf(conds ...expr) expr { return joined("||", bindOr, conds) }

func joined(op string, bind int, conds []expr) expr {
	if len(conds) == 1 {
		return conds[0]
	}
	var docs []layout.Doc
	for _, c := range conds {
		docs = append(docs, c.within(bind))
	}
	return expr{doc: layout.Joined(docs, between(docs, op)), bind: bind}
}

// not negates a condition.
func not(e expr) expr {
	if e.opposite != nil {
		return *e.opposite
	}
	return expr{doc: layout.Concat(layout.Text("!"), e.within(bindUnary)), bind: bindUnary, opposite: &e}
}

// binary returns `a op b` for a relation: ==, !=, in, >=.
func binary(op string, a, b expr) expr {
	docs := []layout.Doc{a.within(bindRelation + 1), b.within(bindRelation + 1)}
	return expr{doc: layout.Sum(docs, between(docs, op)), bind: bindRelation}
}

func equal(a, b expr) expr {
	e, ne := binary("==", a, b), binary("!=", a, b)
	ne.opposite = &e
	e.opposite = &ne
	return e
}

// sum joins strings or lists with +. It needs at least one.
func sum(parts ...expr) expr {
	if len(parts) == 1 {
		return parts[0]
	}
	var docs []layout.Doc
	for _, p := range parts {
		docs = append(docs, p.within(bindSum))
	}
	return expr{doc: layout.Sum(docs, between(docs, "+")), bind: bindSum}
}

// chain joins lists with +, each from the same column on. It needs at least one.
func chain(lists ...expr) expr {
	if len(lists) == 1 {
		return lists[0]
	}
	docs := make([]layout.Doc, len(lists))
	for i, l := range lists {
		docs[i] = l.doc
		if l.bind < bindSum {
			docs[i] = layout.Tight(layout.Text("("), l.doc, layout.Text(")"))
		}
	}
	return expr{doc: layout.Joined(docs, between(docs, "+")), bind: bindSum, typ: lists[0].typ}
}

// call returns recv.name(args…), and fn returns name(args…).
func call(recv expr, name string, args ...expr) expr {
	return expr{doc: layout.Group(recv.within(bindMember), layout.Text("."+name), arguments(args)), bind: bindMember}
}

func fn(name string, args ...expr) expr {
	return expr{doc: layout.Group(layout.Text(name), arguments(args)), bind: bindMember}
}

func arguments(args []expr) layout.Doc {
	var docs []layout.Doc
	for _, a := range args {
		docs = append(docs, a.doc)
	}
	return layout.Enclosed(layout.Text("("), docs, between(docs, ","), layout.Text(")"))
}

// macro returns recv.name(vars…, bodies…). The variables stay on the line of
// the call; each body has a line of its own if they do not fit.
func macro(recv expr, name string, vars []string, bodies ...expr) expr {
	var docs []layout.Doc
	for _, b := range bodies {
		docs = append(docs, b.doc)
	}
	begin := layout.Text("." + name + "(" + strings.Join(vars, ", ") + ",")
	return expr{doc: layout.Macro(recv.within(bindMember), begin, docs, between(docs, ","), layout.Text(")")), bind: bindMember}
}

// entry is one entry of a literal.
type entry struct {
	name  string
	value expr
}

// message returns a literal such as Object.spec{replicas: 1} or JSONPatch{…}. Names
// are identifiers.
func message(typ string, members ...entry) expr {
	var docs []layout.Doc
	for _, m := range members {
		docs = append(docs, layout.Concat(layout.Text(m.name+": "), m.value.doc))
	}
	e := enclosed(typ+"{", docs, "}")
	e.typ = typ
	return e
}

// listOf returns a list of expressions.
func listOf(elems ...expr) expr {
	elems, typ := unified(elems)
	var e expr
	if len(elems) == 1 {
		// The brackets stay on the lines of their element: [JSONPatch{ … }].
		e = expr{doc: layout.Tight(layout.Text("["), elems[0].doc, layout.Text("]")), bind: bindMember}
	} else {
		var docs []layout.Doc
		for _, e := range elems {
			docs = append(docs, e.doc)
		}
		e = enclosed("[", docs, "]")
	}
	e.typ = "list(" + typ + ")"
	return e
}

// mapOf returns a map with constant keys.
func mapOf(entries ...entry) expr {
	values := make([]expr, len(entries))
	for i, m := range entries {
		values[i] = m.value
	}
	values, typ := unified(values)
	var docs []layout.Doc
	for i, m := range entries {
		docs = append(docs, layout.Concat(layout.Text(quote(m.name)+": "), values[i].doc))
	}
	e := enclosed("{", docs, "}")
	e.typ = "map(" + typ + ")"
	return e
}

// unified returns the parts of a list or map, which have to be of one type. If
// they are not, or if a type is unknown, they become dyn.
func unified(parts []expr) ([]expr, string) {
	if len(parts) == 0 {
		return nil, "nothing"
	}
	if typ := parts[0].typ; len(parts) == 1 || typ != "" && !slices.ContainsFunc(parts, func(e expr) bool { return e.typ != typ }) {
		return parts, typ
	}
	out := slices.Clone(parts)
	for i, e := range out {
		out[i] = dyn(e)
	}
	return out, "dyn"
}

// dyn returns e as a value of any type.
func dyn(e expr) expr {
	if e.typ == "dyn" {
		return e
	}
	e = fn("dyn", e)
	e.typ = "dyn"
	return e
}

func enclosed(open string, docs []layout.Doc, end string) expr {
	return expr{doc: layout.Enclosed(layout.Text(open), docs, between(docs, ","), layout.Text(end)), bind: bindMember}
}

// between returns a sign for each place between documents.
func between(docs []layout.Doc, sign string) []layout.Doc {
	var out []layout.Doc
	for range max(len(docs)-1, 0) {
		out = append(out, layout.Text(sign))
	}
	return out
}

// constant returns nil, a bool, string, int64 or float64, or a list or map of
// them. Numbers keep their type: 1.0 is a double.
func constant(v any) expr { return literal(v, double) }

// jsonConstant is constant for a value that becomes JSON: 1.0 is written 1.
func jsonConstant(v any) expr {
	return literal(v, func(f float64) expr {
		if n := int64(f); float64(n) == f && -maxSafeInt <= n && n <= maxSafeInt {
			return scalar(strconv.FormatInt(n, 10), "int")
		}
		return double(f)
	})
}

// maxSafeInt is the largest integer that CEL writes as a JSON number; beyond it
// and below its negative they become strings (Gatekeeper spec §14.1, T34).
const maxSafeInt = 1<<53 - 1

func scalar(s, typ string) expr { return expr{doc: layout.Text(s), bind: bindMember, typ: typ} }

func double(f float64) expr {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return scalar(s, "double")
}

func literal(v any, number func(float64) expr) expr {
	switch v := v.(type) {
	case nil:
		return scalar("null", "null")
	case bool:
		return scalar(strconv.FormatBool(v), "bool")
	case string:
		return scalar(quote(v), "string")
	case int64:
		return scalar(strconv.FormatInt(v, 10), "int")
	case float64:
		return number(v)
	case []any:
		elems := make([]expr, len(v))
		for i, e := range v {
			elems[i] = literal(e, number)
		}
		return listOf(elems...)
	case map[string]any:
		entries := make([]entry, 0, len(v))
		for k, e := range v {
			entries = append(entries, entry{k, literal(e, number)})
		}
		slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
		return mapOf(entries...)
	default:
		// Decoded JSON has no other values.
		return scalar(quote(fmt.Sprint(v)), "string")
	}
}

// quote returns a string literal. It escapes everything that is not printable,
// so that a literal stays on one line and shows its content.
func quote(s string) string {
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

// Literal returns an expression whose value is v: nil, a bool, string, int64 or float64, or a
// list or map of them. Numbers keep their type. Lists and maps of mixed types hold dyn.
func Literal(v any) string { return constant(v).String() }
