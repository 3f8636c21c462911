package convert

import (
	"regexp"
	"strings"

	"github.com/mapd-project/mapd/internal/celgen"
)

// expr is an expression. Its Type is that of the value, as the schema has it (string, int, bool,
// list, map), which CEL need not know: what is read from an object is dyn to it.
type expr = celgen.Expr

// Expressions are nested deeply here, so what writes them has short names.
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

// literal writes a value that holds constants and exprs.
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

// untyped gives the exprs of a value the types that CEL knows.
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
	// ofObject matches what is read from an object.
	ofObject = regexp.MustCompile(`^(object|oldObject|namespaceObject|params|[a-z]2?)(\.|\[)`)
	// dynOr matches a text for a field that may be missing, which stays dyn for CEL; for a member in
	// brackets it is a string.
	dynOr = regexp.MustCompile(`\.\?\w+\.orValue\("(?:[^"\\]|\\.)*"\)$`)
	// textCall matches what ends with a function whose result is a text, or with a text for a member
	// that may be missing.
	textCall = regexp.MustCompile(`(?:\]\.orValue\("(?:[^"\\]|\\.)*"|\.(?:replace|substring|upperAscii|lowerAscii|join|find|trim)\([^()]*)\)$`)
	// keyOr matches the value for a member in brackets that may be missing.
	keyOr = regexp.MustCompile(`^[a-z][\w.?]*\[\?"[^"]*"\]\.orValue\((.+)\)$`)
	// typedCall finds functions whose result has a type that CEL knows.
	typedCall = regexp.MustCompile(`\.(split|replace|find|substring|upperAscii|lowerAscii|join|size)\(`)
)

// typeInCEL is the type that CEL knows: dyn for what is read from an object, "string" for texts that
// are put together, and "" where this package does not know what CEL knows.
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

// typeOfKey is the type that CEL knows of a member in brackets with a value for where it is missing:
// that of the value. It is "" where that is not known.
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
			return "" // more follows the value
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

// choice matches a conditional with a text for where the condition does not hold.
var choice = regexp.MustCompile(`^.* \? (.*) : "[^"]*"$`)
