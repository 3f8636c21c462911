package convert

import (
	"regexp"
	"strings"

	"github.com/mapd-project/mapd/internal/celgen"
)

// expr is a CEL expression. Its Type is that of the value by the schema (string, int, bool, list,
// map). CEL itself may not know that type: whatever is read from an object is dyn to it.
type expr = celgen.Expr

// The functions of celgen, by short names: the expressions here nest deeply.
var (
	yes, no         = celgen.True, celgen.False
	atom, quote     = celgen.Atom, celgen.Quote
	all, anyOf, not = celgen.All, celgen.AnyOf, celgen.Not
	equal, in, sum  = celgen.Equal, celgen.In, celgen.Sum
	isField         = celgen.IsField
)

func str(s string) expr { return celgen.Constant(s) }

func relation(a expr, op string, b expr) expr { return celgen.Relation(op, a, b) }

// when is cond ? then : otherwise, or one of them if cond is a constant.
func when(cond, then, otherwise expr) expr {
	return celgen.When(cond, then, otherwise).As(then.Type)
}

func call(recv expr, name, typ string, args ...expr) expr {
	return celgen.Call(recv, name, args...).As(typ)
}

func fn(name, typ string, args ...expr) expr { return celgen.Fn(name, args...).As(typ) }

func list(elems ...expr) expr { return celgen.List(elems...).As("list") }

func strs(values []string) expr { return celgen.Strings(values).As("list") }

// member returns e.name, and e.?name if optional.
func member(e expr, name string, optional bool) expr {
	if optional {
		return celgen.Optional(e, name)
	}
	return celgen.Field(e, name)
}

// literal writes a value that consists of constants and exprs.
func literal(v any) expr {
	switch e := celgen.JSON(untyped(v)); e.Text {
	case "[]":
		return e.As("list")
	case "{}":
		return e.As("map")
	default:
		return e
	}
}

// untyped returns v with the Type of each expr in it replaced by the type that CEL knows, see
// typeInCEL.
func untyped(v any) any {
	switch v := v.(type) {
	case expr:
		return v.As(typeInCEL(v))
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = untyped(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = untyped(e)
		}
		return out
	}
	return v
}

var (
	// ofObject matches expressions that read from an object.
	ofObject = regexp.MustCompile(`^(object|oldObject|namespaceObject|params|[a-z]2?)(\.|\[)`)
	// dynOr matches a field with a default text: a.?b.orValue("x"). CEL takes that for dyn. For a
	// member in brackets, a[?"b"].orValue("x"), it knows that it is a string.
	dynOr = regexp.MustCompile(`\.\?\w+\.orValue\("(?:[^"\\]|\\.)*"\)$`)
	// textCall matches expressions that end with a function that returns a string, or with a
	// default text for a member in brackets.
	textCall = regexp.MustCompile(`(?:\]\.orValue\("(?:[^"\\]|\\.)*"|\.(?:replace|substring|upperAscii|lowerAscii|join|find|trim)\([^()]*)\)$`)
	// keyOr matches a member in brackets with a default: a[?"b"].orValue(x).
	keyOr = regexp.MustCompile(`^[a-z][\w.?]*\[\?"[^"]*"\]\.orValue\((.+)\)$`)
	// typedCall finds functions whose result has a type that CEL knows.
	typedCall = regexp.MustCompile(`\.(split|replace|find|substring|upperAscii|lowerAscii|join|size)\(`)
)

// typeInCEL returns the type that CEL infers for e: dyn for what is read from an object, "string"
// for concatenated strings, and "" where this package cannot tell.
func typeInCEL(e expr) string {
	switch {
	case e.Type == "string" && e.Bind == celgen.BindSum && (strings.HasPrefix(e.Text, `"`) || strings.HasSuffix(e.Text, `"`)):
		return "string"
	case e.Bind != celgen.BindMember:
		return ""
	case ofObject.MatchString(e.Text) && dynOr.MatchString(e.Text):
		return "dyn"
	case textCall.MatchString(e.Text):
		return "string"
	case keyOr.MatchString(e.Text):
		return typeOfKey(e)
	case ofObject.MatchString(e.Text) && !typedCall.MatchString(e.Text):
		return "dyn"
	}
	return ""
}

// typeOfKey returns the type that CEL infers for a member in brackets with a default: the type of
// the default. It is "" if that is not known.
func typeOfKey(e expr) string {
	other := keyOr.FindStringSubmatch(e.Text)[1]
	depth := 0
	for _, c := range other {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth < 0 {
			return "" // the expression continues after the default
		}
	}
	if chosen := choice.FindStringSubmatch(other); chosen != nil {
		other = chosen[1]
	}
	if strings.Contains(other, " ? ") {
		return ""
	}
	if typ := typeInCEL(atom(other, e.Type)); typ == "string" {
		return typ
	}
	return ""
}

// choice matches a conditional whose last branch is a text.
var choice = regexp.MustCompile(`^.* \? (.*) : "[^"]*"$`)
