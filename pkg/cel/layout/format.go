package layout

import (
	"errors"
	"fmt"
)

// Format lays out an expression that somebody wrote. It keeps words, signs and comments in
// their order, except that it removes trailing commas. It returns an error for a text that is
// no expression, but does not find every mistake.
func Format(expression string) (string, error) {
	tokens, err := Tokens(expression)
	if err != nil {
		return "", err
	}
	settleRemarks(tokens)
	p := &reader{tokens: tokens}
	n := p.expression()
	if p.failed == nil && p.next().Kind != End {
		p.fail()
	}
	if p.failed != nil {
		return "", p.failed
	}
	return Group(n.doc, comments(p.next().lead)).String(), nil
}

// reader reads tokens as an expression.
type reader struct {
	tokens []Token
	at     int
	depth  int
	failed error
}

// maxDepth exceeds the nesting that cel-go's parser accepts.
const maxDepth = 1000

var errDepth = errors.New("the expression is nested too deeply")

// node is a part of the expression.
type node struct {
	doc   Doc
	chain *Doc // of a conditional
	// operand is the form for a conditional in parentheses within a conditional.
	operand *Doc
	open    Doc
	end     Doc
	list    bool // a list literal
	name    bool // one identifier and nothing else
}

func (p *reader) next() Token { return p.tokens[min(p.at, len(p.tokens)-1)] }

// is reports whether the next token is that sign.
func (p *reader) is(signs ...string) bool {
	t := p.next()
	for _, s := range signs {
		if t.Kind == Sign && t.Text == s {
			return true
		}
	}
	return false
}

func (p *reader) fail() {
	if p.failed == nil {
		p.failed = fmt.Errorf("character %d: unexpected %q", p.next().At, p.next().Text)
	}
	p.at = len(p.tokens) - 1
}

// take returns the next token with its comments.
func (p *reader) take() Doc {
	t := p.next()
	if t.Kind == End {
		p.fail()
		return Doc{}
	}
	p.at++
	return spelt(t)
}

func spelt(t Token) Doc {
	if len(t.lead) == 0 && t.remark == "" {
		return Text(t.Text)
	}
	parts := []Doc{comments(t.lead), Text(t.Text)}
	if t.remark != "" {
		parts = append(parts, Doc{kind: remarkDoc, text: t.remark})
	}
	return Concat(parts...)
}

func comments(list []string) Doc {
	parts := make([]Doc, len(list))
	for i, c := range list {
		parts[i] = Doc{kind: lineDoc, text: c}
	}
	return Concat(parts...)
}

// sign returns the next token, which has to be s.
func (p *reader) sign(s string) Doc {
	if !p.is(s) {
		p.fail()
		return Doc{}
	}
	return p.take()
}

// closing is sign for a closing bracket. It returns separately the comments before it, which
// belong to the inside.
func (p *reader) closing(s string) (inside, end Doc) {
	if !p.is(s) {
		p.fail()
		return
	}
	t := p.next()
	p.at++
	inside = comments(t.lead)
	t.lead = nil
	return inside, spelt(t)
}

func (p *reader) expression() (n node) {
	if p.depth++; p.depth > maxDepth {
		p.failed = errDepth
		p.at = len(p.tokens) - 1
	}
	defer func() { p.depth-- }()
	if t := &p.tokens[p.at]; len(t.lead) > 0 {
		above := comments(t.lead)
		t.lead = nil
		n = p.expression()
		n.doc = Concat(above, Doc{kind: freshDoc}, n.doc)
		return node{doc: n.doc, list: n.list, name: n.name}
	}
	test := p.binary(0)
	if !p.is("?") {
		return test
	}
	mark := p.take()
	yes := p.binary(0)
	colon := p.sign(":")
	no := p.expression()
	chain := ConditionalChain(test.doc, mark, yes.doc, colon, no.doc, no.chain)
	return node{doc: Conditional(test.doc, mark, yes.doc, colon, no.doc, no.chain), chain: &chain}
}

// levels are the binary operators, those that bind least first.
var levels = [][]string{{"||"}, {"&&"}, {"<", "<=", ">=", ">", "==", "!=", "in"}, {"+", "-"}, {"*", "/", "%"}}

func (p *reader) binary(level int) node {
	if level == len(levels) {
		return p.unary()
	}
	first := p.binary(level + 1)
	if !p.is(levels[level]...) {
		return first
	}
	nodes, operators := []node{first}, []Doc(nil)
	lists := first.list || first.operand != nil
	for p.is(levels[level]...) {
		lists = lists && p.is("+")
		operators = append(operators, p.take())
		nodes = append(nodes, p.binary(level+1))
	}
	docs := make([]Doc, len(nodes))
	for i, n := range nodes {
		docs[i] = n.doc
		if lists && n.operand != nil {
			docs[i] = Tight(n.open, *n.operand, n.end)
		}
	}
	if level < 2 || lists {
		return node{doc: Joined(docs, operators)}
	}
	return node{doc: Sum(docs, operators)}
}

func (p *reader) unary() node {
	if !p.is("!", "-") {
		return p.member()
	}
	var parts []Doc
	for p.is("!", "-") {
		parts = append(parts, p.take())
	}
	return node{doc: Concat(append(parts, p.member().doc)...)}
}

// manyCalls is from how many member calls on a chain is broken before its dots.
const manyCalls = 3

func (p *reader) member() node {
	n, name := p.primary()
	base := n.doc
	var calls []Doc // behind base, and with them what is selected from their results
	add := func(parts ...Doc) {
		if at := len(calls) - 1; at >= 0 {
			calls[at] = Concat(append([]Doc{calls[at]}, parts...)...)
		} else {
			base = Concat(append([]Doc{base}, parts...)...)
		}
		n = node{}
	}
	selected := false
	for p.failed == nil {
		switch {
		case p.is("."):
			dot := p.take()
			if p.is("?") {
				dot = Concat(dot, p.take())
			}
			if p.next().Kind != Identifier {
				p.fail()
				return node{}
			}
			method := p.next().Text
			field := p.take()
			if p.is("(") {
				calls, name = append(calls, p.call(Concat(dot, field), method)), false
			} else {
				add(dot, field)
			}
		case p.is("["):
			open := p.take()
			if p.is("?") {
				open = Concat(open, p.take())
			}
			index := p.expression()
			inside, end := p.closing("]")
			add(Index(Doc{}, open, Concat(index.doc, inside), end))
			name = false
		case p.is("{") && name:
			base, name = p.enclosed(base, "}", true), false
		default:
			switch {
			case len(calls) >= manyCalls:
				return node{doc: Chain(base, calls)}
			case !selected:
				return n
			}
			return node{doc: Concat(append([]Doc{base}, calls...)...)}
		}
		selected = true
	}
	return node{}
}

// primary returns the beginning of a member expression. name says that it may be the name of a
// type.
func (p *reader) primary() (n node, name bool) {
	t := p.next()
	switch {
	case t.Kind == Identifier:
		word := p.take()
		if p.is("(") {
			return node{doc: p.call(word, t.Text)}, false
		}
		return node{doc: word, name: true}, true
	case t.Kind == Number, t.Kind == String:
		return node{doc: p.take()}, false
	case p.is("."):
		dot := p.take()
		if p.next().Kind != Identifier {
			p.fail()
			return node{}, false
		}
		word := p.take()
		if p.is("(") {
			return node{doc: p.call(Concat(dot, word), "")}, false
		}
		return node{doc: Concat(dot, word)}, true
	case p.is("("):
		open := p.take()
		inner := p.expression()
		inside, end := p.closing(")")
		body := Concat(inner.doc, inside)
		n = node{doc: Parens(open, body, end)}
		if inner.chain != nil {
			n.operand, n.open, n.end = &body, open, end
		}
		return n, false
	case p.is("["):
		return node{doc: p.enclosed(Doc{}, "]", false), list: true}, false
	case p.is("{"):
		return node{doc: p.enclosed(Doc{}, "}", true)}, false
	}
	p.fail()
	return node{}, false
}

// elements reads elements up to the closing sign.
func (p *reader) elements(end string, pairs bool) (nodes []node, commas []Doc) {
	if end != ")" && p.is(",") { // of no element, as in [,]
		comma, after := p.next(), &p.tokens[p.at+1]
		p.at++
		if comma.remark != "" {
			comma.lead = append(comma.lead, comma.remark)
		}
		after.lead = append(comma.lead, after.lead...)
		return nil, nil
	}
	for p.failed == nil && !p.is(end) {
		var mark Doc
		optional := end != ")" && p.is("?")
		if optional {
			mark = p.take()
		}
		n := p.expression()
		if pairs {
			colon := p.sign(":")
			n = node{doc: Concat(n.doc, colon, Text(" "), p.expression().doc)}
		}
		if optional {
			n = node{doc: Concat(mark, n.doc)}
		}
		nodes = append(nodes, n)
		if !p.is(",") {
			break
		}
		comma := p.next()
		p.at++
		if end != ")" && p.is(end) { // the comma is left out, and its comments are not
			last := &nodes[len(nodes)-1]
			if comma.remark != "" {
				last.doc = Concat(last.doc, Doc{kind: remarkDoc, text: comma.remark})
			}
			break
		}
		commas = append(commas, spelt(comma))
	}
	return nodes, commas
}

func docsOf(nodes []node) []Doc {
	docs := make([]Doc, len(nodes))
	for i, n := range nodes {
		docs[i] = n.doc
	}
	return docs
}

// enclosed reads a literal that begins with a bracket; typ is the type before it.
func (p *reader) enclosed(typ Doc, end string, pairs bool) Doc {
	bare := p.next().remark == ""
	open := Concat(typ, p.take())
	nodes, commas := p.elements(end, pairs)
	bare = bare && len(p.next().lead) == 0
	inside, last := p.closing(end)
	docs := docsOf(nodes)
	if len(docs) == 0 {
		return Concat(open, inside, last)
	}
	if len(docs) == 1 && end == "]" && bare {
		return Tight(open, docs[0], last)
	}
	docs[len(docs)-1] = Concat(docs[len(docs)-1], inside)
	return Enclosed(open, docs, commas, last)
}

// call reads arguments. function is the name with the dot before it.
func (p *reader) call(function Doc, name string) Doc {
	open := p.take()
	nodes, commas := p.elements(")", false)
	inside, end := p.closing(")")
	docs := docsOf(nodes)
	if len(docs) == 0 {
		return Concat(function, open, inside, end)
	}
	docs[len(docs)-1] = Concat(docs[len(docs)-1], inside)
	vars := Variables(name, len(docs))
	for i := range vars {
		if !nodes[i].name {
			vars = 0
			break
		}
	}
	if vars == 0 {
		return Concat(function, Enclosed(open, docs, commas, end))
	}
	begin := []Doc{function, open}
	for i := range vars {
		if i > 0 {
			begin = append(begin, Text(" "))
		}
		begin = append(begin, docs[i], commas[i])
	}
	return Macro(Doc{}, Concat(begin...), docs[vars:], commas[vars:], end)
}

// Variables returns how many of a macro's arguments are names of variables, if it is called as
// a member with that many arguments; 0 if there is no such macro.
func Variables(macro string, arguments int) int {
	vars := 0
	switch macro {
	case "all", "exists", "exists_one", "existsOne":
		vars = arguments - 1
	case "map", "filter", "optMap", "optFlatMap", "sortBy", "bind":
		vars = 1
	case "transformList", "transformMap", "transformMapEntry":
		vars = 2
	}
	if vars >= arguments {
		return 0
	}
	return min(vars, 2)
}
