package language

import (
	"slices"
	"strings"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/layout"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// value is what is known about a part of an expression.
type value struct {
	// spots are the places in the schemas of the policy's kinds from which it may come.
	spots []spot
	// element is the value of the elements, if the expression makes a list.
	element *value
	// typ is the type from the type checker, if typed is set.
	typ   cel.Type
	typed bool
	// optional: the value is an optional.
	optional bool
	// variables: the expression is the name "variables".
	variables bool
}

// spot is a place in the schema of a kind.
type spot struct {
	openapi.Place
	kind *openapi.Kind
	path []string
}

func (v value) known() bool { return len(v.spots) > 0 || v.element != nil || v.variables }

// root is the object of kinds.
func root(kinds ...*openapi.Kind) (v value) {
	for _, k := range kinds {
		if k == nil {
			continue
		}
		if at, ok := k.Root(); ok {
			v.spots = append(v.spots, spot{at, k, nil})
		}
	}
	return v
}

// field returns what is at a name.
func (v value) field(name string) (out value) {
	for _, s := range v.spots {
		if at, ok := s.Field(name); ok {
			out.spots = append(out.spots, spot{at, s.kind, append(slices.Clone(s.path), name)})
		}
	}
	return out
}

// each returns an element of a list, or the value at some key of a map.
func (v value) each() (out value) {
	if v.element != nil {
		return *v.element
	}
	for _, s := range v.spots {
		at, ok := s.Element()
		if !ok && s.Type().Map != nil && len(s.Type().Map.Fields) == 0 {
			at, ok = s.Field("")
		}
		if ok {
			out.spots = append(out.spots, spot{at, s.kind, s.path})
		}
	}
	return out
}

// bound has the loop variables of the macros around a part of an expression.
type bound struct {
	outer *bound
	name  string
	value value
}

func (b *bound) find(name string) (value, bool) {
	for ; b != nil; b = b.outer {
		if b.name == name {
			return b.value, true
		}
	}
	return value{}, false
}

// resolve returns what is known of an expression.
func (a *author) resolve(tokens []layout.Token, in *bound) value {
	if a.work += len(tokens) + 1; a.work > maxWork || len(tokens) == 0 {
		return value{}
	}
	if test, yes, no := conditional(tokens); test {
		if v := a.resolve(yes, in); v.known() {
			return v
		}
		return a.resolve(no, in)
	}
	var v value
	at := 0
	switch t := tokens[0]; {
	case isSign(t, "("):
		end := closing(tokens, 0)
		if end < 0 {
			return value{}
		}
		v, at = a.resolve(tokens[1:end], in), end+1
	case isSign(t, ".") && len(tokens) > 1:
		v, at = a.name(tokens[1].Text, nil), 2
	case t.Kind == layout.Identifier && len(tokens) > 1 && isSign(tokens[1], "("):
		end := closing(tokens, 1)
		if end < 0 {
			return value{}
		}
		if t.Text == "dyn" {
			v = a.resolve(tokens[2:end], in)
		}
		at = end + 1
	case t.Kind == layout.Identifier:
		v, at = a.name(t.Text, in), 1
	default:
		return value{}
	}
	for at < len(tokens) {
		if !v.known() {
			return value{}
		}
		switch t := tokens[at]; {
		case isSign(t, "."):
			at++
			optional := v.optional
			if at < len(tokens) && isSign(tokens[at], "?") {
				at++
				optional = true
			}
			if at >= len(tokens) || tokens[at].Kind != layout.Identifier {
				return value{}
			}
			name := strings.Trim(tokens[at].Text, "`")
			at++
			if at < len(tokens) && isSign(tokens[at], "(") {
				end := closing(tokens, at)
				if end < 0 {
					return value{}
				}
				v, at = a.method(v, name, tokens[at+1:end], in), end+1
				continue
			}
			if v.variables {
				v = a.variable(name)
			} else {
				v = v.field(name)
			}
			v.optional = optional
		case isSign(t, "["):
			end := closing(tokens, at)
			if end < 0 {
				return value{}
			}
			index, optional := tokens[at+1:end], v.optional
			if len(index) > 0 && isSign(index[0], "?") {
				index, optional = index[1:], true
			}
			at = end + 1
			if len(index) == 1 && index[0].Kind == layout.String {
				v = v.field(strings.Trim(index[0].Text, `"'`))
			} else {
				v = v.each()
			}
			v.optional = optional
		case isSign(t, "+") && (v.element != nil || len(v.spots) > 0 && v.spots[0].Type().List != nil):
			return v // lists
		default:
			return value{}
		}
	}
	return v
}

// name returns what a name stands for.
func (a *author) name(name string, in *bound) value {
	if v, ok := in.find(name); ok {
		return v
	}
	switch name {
	case "object", "oldObject":
		return root(a.kinds...)
	case "params":
		return root(a.params)
	case "variables":
		return value{variables: true}
	}
	return value{}
}

// variable returns what is known of a variable of the policy.
func (a *author) variable(name string) value {
	for i := range a.before {
		if v := a.spec.Variables[i]; v.Name == name {
			inner := *a
			inner.before = i
			tokens, _ := layout.Tokens(v.Expression)
			out := inner.resolve(tokens[:len(tokens)-1], nil)
			a.work = inner.work
			return out
		}
	}
	return value{}
}

// method returns what is known of the result of a member function.
func (a *author) method(v value, name string, args []layout.Token, in *bound) value {
	parts := arguments(args)
	body := func(vars int) value {
		if len(parts) <= vars {
			return value{}
		}
		return a.resolve(parts[len(parts)-1], a.bind(v, name, parts, in))
	}
	switch name {
	case "orValue", "value":
		v.optional = false
		return v
	case "or", "filter", "sort", "sortBy", "reverse", "distinct", "slice":
		return v
	case "first", "last":
		v = v.each()
		v.optional = true
		return v
	case "min", "max":
		return v.each()
	case "map":
		out := body(1)
		return value{element: &out}
	case "transformList":
		out := body(2)
		return value{element: &out}
	case "optMap", "optFlatMap":
		out := body(1)
		out.optional = true
		return out
	}
	return value{}
}

// bind adds the variables of a macro whose arguments begin so.
func (a *author) bind(v value, macro string, args [][]layout.Token, in *bound) *bound {
	name := func(i int) string {
		if i < len(args) && len(args[i]) == 1 && args[i][0].Kind == layout.Identifier {
			return args[i][0].Text
		}
		return ""
	}
	switch vars := layout.Variables(macro, len(args)); {
	case vars == 0 || name(0) == "":
		return in
	case macro == "bind":
		return &bound{in, name(0), a.resolve(args[1], in)}
	case macro == "optMap" || macro == "optFlatMap":
		v.optional = false
		return &bound{in, name(0), v}
	case vars == 2 && name(1) != "":
		return &bound{&bound{in, name(0), value{}}, name(1), v.each()}
	}
	if len(v.spots) > 0 && v.spots[0].Type().Map != nil {
		return &bound{in, name(0), value{}} // a key
	}
	return &bound{in, name(0), v.each()}
}

// maxAround is how many brackets around a place are looked at.
const maxAround = 64

// around returns the variables of the macros around the end of tokens.
func (a *author) around(tokens []layout.Token) (in *bound) {
	var open []int
	for i, t := range tokens {
		switch {
		case isSign(t, "(") || isSign(t, "[") || isSign(t, "{"):
			open = append(open, i)
		case (isSign(t, ")") || isSign(t, "]") || isSign(t, "}")) && len(open) > 0:
			open = open[:len(open)-1]
		}
	}
	for _, i := range open[max(0, len(open)-maxAround):] {
		if i < 3 || !isSign(tokens[i], "(") || !isSign(tokens[i-2], ".") {
			continue
		}
		if args := arguments(tokens[i+1:]); len(args) > 1 {
			receiver := tokens[receiver(tokens, i-2) : i-2]
			in = a.bind(a.resolve(receiver, in), tokens[i-1].Text, args, in)
		}
	}
	return in
}

func isSign(t layout.Token, sign string) bool { return t.Kind == layout.Sign && t.Text == sign }

// closing returns the index of the bracket that closes the one at an index, -1 if there is
// none.
func closing(tokens []layout.Token, open int) int {
	depth := 0
	for i := open; i < len(tokens); i++ {
		switch t := tokens[i]; {
		case isSign(t, "(") || isSign(t, "[") || isSign(t, "{"):
			depth++
		case isSign(t, ")") || isSign(t, "]") || isSign(t, "}"):
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// receiver returns where the operand of the dot at an index begins.
func receiver(tokens []layout.Token, dot int) int {
	i := dot
	for i > 0 {
		t := tokens[i-1]
		switch {
		case isSign(t, ")") || isSign(t, "]"):
			depth := 0
			j := i - 1
			for ; j >= 0; j-- {
				switch t := tokens[j]; {
				case isSign(t, ")") || isSign(t, "]") || isSign(t, "}"):
					depth++
				case isSign(t, "(") || isSign(t, "[") || isSign(t, "{"):
					depth--
				}
				if depth == 0 {
					break
				}
			}
			if j < 0 {
				return dot
			}
			if i = j; isSign(t, "]") || i > 0 && tokens[i-1].Kind == layout.Identifier {
				continue // what is indexed or called
			}
			return i
		case t.Kind == layout.Identifier:
			i--
			if i > 0 && isSign(tokens[i-1], "?") && i > 1 && isSign(tokens[i-2], ".") {
				i -= 2
				continue
			}
			if i > 0 && isSign(tokens[i-1], ".") {
				i--
				continue
			}
			return i
		case t.Kind == layout.String || t.Kind == layout.Number:
			return i - 1
		default:
			return i
		}
	}
	return i
}

// arguments cuts tokens at commas.
func arguments(tokens []layout.Token) (out [][]layout.Token) {
	depth, from := 0, 0
	for i, t := range tokens {
		switch {
		case isSign(t, "(") || isSign(t, "[") || isSign(t, "{"):
			depth++
		case isSign(t, ")") || isSign(t, "]") || isSign(t, "}"):
			depth--
		case isSign(t, ",") && depth == 0:
			out = append(out, tokens[from:i])
			from = i + 1
		}
	}
	return append(out, tokens[from:])
}

// conditional cuts a conditional into its branches.
func conditional(tokens []layout.Token) (is bool, yes, no []layout.Token) {
	depth, mark := 0, -1
	for i, t := range tokens {
		switch {
		case isSign(t, "(") || isSign(t, "[") || isSign(t, "{"):
			depth++
		case isSign(t, ")") || isSign(t, "]") || isSign(t, "}"):
			depth--
		case depth == 0 && isSign(t, "?") && i > 0 && !isSign(tokens[i-1], ".") && mark < 0:
			mark = i
		case depth == 0 && isSign(t, ":") && mark >= 0:
			return true, tokens[mark+1 : i], tokens[i+1:]
		}
	}
	return false, nil, nil
}
