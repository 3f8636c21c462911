package legacy

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mapd-project/mapd/pkg/api"
)

// SyntaxError is an error in a location.
type SyntaxError struct {
	Location string
	// Offset is in bytes, from 0. Line and Column are from 1; columns count code
	// points.
	Offset, Line, Column int
	// Message is Gatekeeper's text, which has no position.
	Message string
}

func (e *SyntaxError) Error() string { return e.Message }

// Render returns the message with the offending line of the location under it,
// and a caret under the offending column:
//
//	1:6: unexpected token: expected field name or eof, got: SEPARATOR: "."
//	 | spec..containers
//	 |      ^
func (e *SyntaxError) Render() string {
	return api.Issue{Line: e.Line, Column: e.Column, Message: e.Message}.Render(e.Location)
}

func newSyntaxError(location string, offset int, message string) *SyntaxError {
	before := location[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return &SyntaxError{
		Location: location,
		Offset:   offset,
		Line:     strings.Count(before, "\n") + 1,
		Column:   utf8.RuneCountInString(before[start:]) + 1,
		Message:  message,
	}
}

// ParsePath parses a location (Gatekeeper spec §2). Its error is a *SyntaxError for the first
// mistake, with Gatekeeper's text. An empty location is a path without nodes.
//
// Gatekeeper lets some integers beyond 64 bits overflow; ParsePath rejects them all.
func ParsePath(s string) (Path, error) {
	p := parser{scanner: scanner{in: s}}
	p.advance()
	path, err := p.path()
	if err != nil {
		return nil, err
	}
	return path, nil
}

// parser looks one token ahead.
type parser struct {
	scanner
	ahead token
}

func (p *parser) advance() token {
	t := p.ahead
	p.ahead = p.next()
	return t
}

func (p *parser) accept(typ tokenType) bool {
	if p.ahead.typ != typ {
		return false
	}
	p.advance()
	return true
}

func (p *parser) unexpected(expected string) *SyntaxError {
	return newSyntaxError(p.in, p.ahead.offset, "unexpected token: expected "+expected+", got: "+p.ahead.String())
}

func (p *parser) path() (Path, *SyntaxError) {
	var path Path
	for p.ahead.typ == tokenIdent {
		path = append(path, Node{Name: p.advance().text})
		if p.accept(tokenOpen) {
			node, err := p.selector()
			if err != nil {
				return nil, err
			}
			path = append(path, node)
		}
		if p.ahead.typ == tokenEOF {
			return path, nil
		}
		separator := p.ahead.offset
		if !p.accept(tokenSeparator) {
			return nil, p.unexpected("'.' or eof")
		}
		if p.ahead.typ == tokenEOF {
			return nil, newSyntaxError(p.in, separator, "trailing separators are forbidden")
		}
	}
	if p.ahead.typ != tokenEOF {
		return nil, p.unexpected("field name or eof")
	}
	return path, nil
}

// selector parses the part after an opening bracket.
func (p *parser) selector() (Node, *SyntaxError) {
	if p.ahead.typ != tokenIdent {
		return Node{}, p.unexpected("keyField in listSpec")
	}
	node := Node{List: true, Name: p.advance().text}
	if !p.accept(tokenColon) {
		return Node{}, p.unexpected("':' following keyField " + node.Name)
	}
	switch t := p.ahead; t.typ {
	case tokenGlob:
		node.Glob = true
	case tokenIdent:
		node.Value = t.text
	case tokenInt:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			return Node{}, newSyntaxError(p.in, t.offset,
				"invalid integer: overflow in integer string: "+t.text+": parsing key value for key: "+node.Name)
		}
		node.Value = n
	default:
		return Node{}, p.unexpected("key value or glob in listSpec")
	}
	p.advance()
	if !p.accept(tokenClose) {
		return Node{}, p.unexpected("']' following listSpec")
	}
	return node, nil
}

// String returns a path in a form that ParsePath accepts: fields joined by dots, selectors as
// [key: value], and quotes only where they are needed.
func (p Path) String() string { return p.write(bareWord) }

// Canonical returns a path as in Gatekeeper's messages. It differs from String where Gatekeeper
// leaves out quotes that parsing would need: for labels."a/b" it returns labels.a/b.
func (p Path) Canonical() string { return p.write(bareInGatekeeper) }

func (p Path) write(bare func(string) bool) string {
	var b strings.Builder
	for i, n := range p {
		if i > 0 && !n.List {
			b.WriteByte('.')
		}
		n.write(&b, bare)
	}
	return b.String()
}

func (n Node) write(b *strings.Builder, bare func(string) bool) {
	if !n.List {
		b.WriteString(quoteUnless(bare, n.Name))
		return
	}
	b.WriteString("[" + quoteUnless(bare, n.Name) + ": ")
	switch v := n.Value.(type) {
	case string:
		b.WriteString(quoteUnless(bare, v))
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	default:
		b.WriteByte('*')
	}
	b.WriteByte(']')
}

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoteUnless(bare func(string) bool, word string) string {
	if bare(word) {
		return word
	}
	return `"` + escaper.Replace(word) + `"`
}

func bareWord(s string) bool {
	if s == "" || isDigit(s[0]) {
		return false
	}
	for i := range len(s) {
		if !isWord(s[i]) {
			return false
		}
	}
	return true
}

func bareInGatekeeper(s string) bool {
	return s != "" && !isDigit(s[0]) && !strings.ContainsAny(s, "'\"\t\n \\*[]:.")
}
