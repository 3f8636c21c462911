// Package celgen answers one question: how is an expression of CEL written by a program?
//
// An Expr is a piece of CEL. Expressions that are made of pieces are well-formed, whatever the
// pieces contain: names and constants are escaped, and parentheses stand where binding needs them.
// Both converters of policies write with it, from Gatekeeper's mutators and from Kyverno's rules.
// It knows nothing of either, nor of what an expression is about.
//
// Start with Expr; literal.go writes values, policy.go what a policy has around expressions.
package celgen

import (
	"slices"
	"strconv"
	"strings"
)

// Expr is a piece of CEL on one line.
type Expr struct {
	Text string
	Bind Binding
	// Type is the CEL type of the expression, as far as literals need it: "string", "list(int)",
	// "dyn" for a value whose type CEL does not know either; "" if this package does not know it.
	Type string
	// opposite is the negation of the expression where it can be written without "!"; nil
	// otherwise.
	opposite *Expr
}

// Binding says how tightly an expression binds.
type Binding int

// How tightly operators bind, loosest first.
const (
	BindCond Binding = iota
	BindOr
	BindAnd
	BindRelation
	BindSum
	BindUnary
	BindMember
)

// True and False are the constants.
var True, False = Atom("true", "bool"), Atom("false", "bool")

// Atom returns a text that binds as tightly as a name.
func Atom(text, typ string) Expr { return Expr{Text: text, Bind: BindMember, Type: typ} }

// Ident returns a name that the generator chose; it is not escaped.
func Ident(name string) Expr { return Atom(name, "") }

// String returns the expression on one line.
func (e Expr) String() string { return e.Text }

// As returns the expression with a type.
func (e Expr) As(typ string) Expr {
	e.Type = typ
	return e
}

// Is reports whether two expressions are written the same.
func (e Expr) Is(other Expr) bool { return e.Text == other.Text }

// Within returns the text as an operand of an operator.
func (e Expr) Within(b Binding) string {
	if e.Bind < b {
		return "(" + e.Text + ")"
	}
	return e.Text
}

// words are CEL's keywords that cannot follow a dot as the name of a field.
var words = []string{"false", "in", "null", "true"}

// IsField reports whether name can be written after a dot: e.name.
func IsField(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && '0' <= c && c <= '9':
		default:
			return false
		}
	}
	return name != "" && !slices.Contains(words, name)
}

// Field returns member name of an object: e.name, or e["name"] where name is no identifier.
func Field(e Expr, name string) Expr {
	if IsField(name) {
		return Ident(e.Within(BindMember) + "." + name)
	}
	return Ident(e.Within(BindMember) + "[" + Quote(name) + "]")
}

// Optional returns member name of e, or of what the optional e holds, as an optional: e.?name, or
// e[?"name"].
func Optional(e Expr, name string) Expr {
	if IsField(name) {
		return Ident(e.Within(BindMember) + ".?" + name)
	}
	return OptionalItem(e, Constant(name))
}

// Has returns whether the object e has the member: has(e.name), or "name" in e.
//
// Of a string, a number, a bool or null, the first is false and the second an error; of a list the
// first is an error.
func Has(e Expr, name string) Expr {
	if IsField(name) {
		return Fn("has", Field(e, name)).As("bool")
	}
	return In(Constant(name), e)
}

// Item returns e[i].
func Item(e, i Expr) Expr { return Ident(e.Within(BindMember) + "[" + i.Text + "]") }

// OptionalItem returns e[?i].
func OptionalItem(e, i Expr) Expr { return Ident(e.Within(BindMember) + "[?" + i.Text + "]") }

// Cond returns `test ? yes : no`.
func Cond(test, yes, no Expr) Expr {
	// The part before the colon must bind tighter than a conditional.
	e := Expr{Text: test.Within(BindOr) + " ? " + yes.Within(BindOr) + " : " + no.Text}
	if yes.Type == no.Type {
		e.Type = yes.Type
	}
	return e
}

// When is Cond, or one of the two if the test is a constant.
func When(test, yes, no Expr) Expr {
	switch {
	case test.Is(True):
		return yes
	case test.Is(False):
		return no
	}
	return Cond(test, yes, no)
}

// All joins conditions with &&, each once. Without any it is true.
func All(conds ...Expr) Expr { return joined("&&", BindAnd, conds, True, False) }

// AnyOf joins conditions with ||, each once. Without any it is false.
func AnyOf(conds ...Expr) Expr { return joined("||", BindOr, conds, False, True) }

// joined joins conditions with op, without duplicates and without the constant none. It returns
// decisive if one of the conditions is that constant, and none if no condition is left.
func joined(op string, b Binding, conds []Expr, none, decisive Expr) Expr {
	var parts []Expr
	for _, c := range conds {
		if c.Is(decisive) {
			return decisive
		}
		if !c.Is(none) && !slices.ContainsFunc(parts, c.Is) {
			parts = append(parts, c)
		}
	}
	if len(parts) == 0 {
		return none
	}
	return Joined(op, b, parts...).As("bool")
}

// Joined joins operands with an operator. It needs at least one.
func Joined(op string, b Binding, parts ...Expr) Expr {
	if len(parts) == 1 {
		return parts[0]
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Within(b)
	}
	return Expr{Text: strings.Join(texts, " "+op+" "), Bind: b, Type: parts[0].Type}
}

// Not negates a condition.
func Not(e Expr) Expr {
	switch {
	case e.opposite != nil:
		return *e.opposite
	case e.Is(True):
		return False
	case e.Is(False):
		return True
	}
	return Expr{Text: "!" + e.Within(BindUnary), Bind: BindUnary, Type: "bool", opposite: &e}
}

// WithOpposite returns e with negation as its opposite: Not(e) then returns negation.
func (e Expr) WithOpposite(negation Expr) Expr {
	e.opposite = &negation
	return e
}

// Relation returns `a op b` for ==, !=, in, >= and the like.
func Relation(op string, a, b Expr) Expr {
	return Expr{Text: a.Within(BindSum) + " " + op + " " + b.Within(BindSum), Bind: BindRelation, Type: "bool"}
}

// Equal returns a == b.
func Equal(a, b Expr) Expr {
	e, ne := Relation("==", a, b), Relation("!=", a, b)
	ne.opposite, e.opposite = &e, &ne
	return e
}

// In returns a in b.
func In(a, b Expr) Expr { return Relation("in", a, b) }

// Among returns the condition that e equals one of the values.
func Among(e Expr, values []string) Expr {
	if len(values) == 1 {
		return Equal(e, Constant(values[0]))
	}
	return In(e, Strings(values))
}

// Sum joins strings or lists with +, and merges adjacent constant strings. It needs at least one
// part.
func Sum(parts ...Expr) Expr {
	var out []Expr
	for _, p := range parts {
		if last := len(out) - 1; last >= 0 {
			a, ok := Unquoted(out[last])
			if b, also := Unquoted(p); ok && also {
				out[last] = Constant(a + b)
				continue
			}
		}
		out = append(out, p)
	}
	e := Joined("+", BindSum, out...)
	if len(out) > 1 {
		e.Type = "" // the sum may have another type than its first part
	}
	return e
}

// Unquoted returns the constant string that e is a literal of; false if e is no string literal.
func Unquoted(e Expr) (string, bool) {
	if e.Bind != BindMember || !strings.HasPrefix(e.Text, `"`) {
		return "", false
	}
	s, err := strconv.Unquote(e.Text)
	return s, err == nil
}

// Call returns recv.name(args…), and Fn returns name(args…).
func Call(recv Expr, name string, args ...Expr) Expr {
	return Ident(recv.Within(BindMember) + "." + name + "(" + commas(args) + ")")
}

// Fn returns name(args…).
func Fn(name string, args ...Expr) Expr { return Ident(name + "(" + commas(args) + ")") }

// Macro returns recv.name(vars…, bodies…).
func Macro(recv Expr, name string, vars []string, bodies ...Expr) Expr {
	var args []Expr
	for _, v := range vars {
		args = append(args, Ident(v))
	}
	return Call(recv, name, append(args, bodies...)...)
}

func commas(list []Expr) string {
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = e.Text
	}
	return strings.Join(texts, ", ")
}
