package lint

import (
	"strings"

	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// operation is one JSONPatch{…} literal in an expression.
type operation struct {
	node *syntax.Node
	op   string // "" if it is computed
	// pieces are the operands of the path, if it is a chain of +.
	pieces []*syntax.Node
	from   []*syntax.Node // the operands of from, for copy and move
	value  *syntax.Node   // nil if there is none
	list   *syntax.Node   // the list literal that contains it, nil if none
	index  int            // its index in list
	// conditional: the operation is within a condition or a loop.
	conditional bool
	in          *names
}

// operations returns the operations of a patch in the order of the text.
func operations(p *subject, root *syntax.Node) (out []*operation) {
	r := resolver{policy: p}
	var walk func(n, list *syntax.Node, index int, conditional bool, in *names)
	walk = func(n, list *syntax.Node, index int, conditional bool, in *names) {
		switch {
		case n.Kind == syntax.Struct && n.Name == "JSONPatch":
			o := &operation{node: n, list: list, index: index, conditional: conditional, in: in}
			for i, name := range n.Names {
				switch a := n.Args[i]; name {
				case "op":
					o.op, _ = a.Value.(string)
				case "path":
					o.pieces = added(a)
				case "from":
					o.from = added(a)
				case "value":
					o.value = a
				}
			}
			out = append(out, o)
			for _, a := range n.Args {
				walk(a, nil, 0, conditional, in)
			}
		case n.Kind == syntax.List:
			for i, a := range n.Args {
				walk(a, n, i, conditional, in)
			}
		case n.Kind == syntax.Loop:
			below := r.inside(n, in)
			for i, a := range n.Args {
				if i < 2 {
					walk(a, nil, 0, conditional, in)
				} else {
					walk(a, nil, 0, true, below)
				}
			}
		case n.Kind == syntax.Call && n.Name == "_?_:_":
			walk(n.Args[0], nil, 0, conditional, in)
			walk(n.Args[1], nil, 0, true, in)
			walk(n.Args[2], nil, 0, true, in)
		default:
			for _, a := range n.Args {
				walk(a, nil, 0, conditional, in)
			}
		}
	}
	walk(root, nil, 0, false, nil)
	return out
}

// added returns the operands of a chain of +.
func added(n *syntax.Node) []*syntax.Node {
	if n.Kind == syntax.Call && n.Name == "_+_" {
		return append(added(n.Args[0]), added(n.Args[1])...)
	}
	return []*syntax.Node{n}
}

// literal returns the constant beginning of the path. whole is set if the whole path is constant.
func (o *operation) literal() (text string, whole bool) {
	for _, n := range o.pieces {
		s, ok := n.Value.(string)
		if n.Kind != syntax.Literal || !ok {
			return text, false
		}
		text += s
	}
	return text, true
}

// path returns the constant steps of the path. If whole is false, they end before the step that
// is computed.
func (o *operation) path() (steps path, whole bool) {
	text, whole := o.literal()
	if !strings.HasPrefix(text, "/") {
		return nil, false
	}
	tokens := strings.Split(text[1:], "/")
	if !whole {
		tokens = tokens[:len(tokens)-1]
	}
	for _, t := range tokens {
		steps = append(steps, unescape.Replace(t))
	}
	return steps, whole
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// inWords returns the steps of a JSON pointer in a form that prints as an expression, with
// indices of elements.
func inWords(steps path) path {
	out := inObject(steps)
	for i, s := range steps {
		if out[i+1] == anyElement && s != "-" {
			out[i+1] = "\x00[" + s + "]"
		}
	}
	return out
}

// inObject returns the steps of a JSON pointer as a path of object. A number or - becomes the
// step into an element.
func inObject(steps path) path {
	out := path{"object"}
	for _, s := range steps {
		if s == "-" || s != "" && strings.Trim(s, "0123456789") == "" {
			s = anyElement
		}
		out = append(out, s)
	}
	return out
}
