// Package layout answers one question: how is an expression laid out on lines?
//
// It lays out generated expressions, such as those of policies that a migration makes, and
// expressions that people wrote, with their comments. It knows the syntax of CEL's tokens and
// not its meaning: a caller that changes the text of a policy has to check that the meaning is
// the same, as package syntax does.
package layout

import (
	"strings"
	"unicode/utf8"
)

// Width is the largest number of columns of a line.
const Width = 100

// A Doc is text that can be laid out over lines: a group is on one line if it fits; if not, all
// breaks directly in it become new lines. This is the usual way to format programs (Wadler, "A
// prettier printer").
type Doc struct {
	kind  docKind
	text  string
	parts []Doc
}

type docKind uint8

const (
	textDoc docKind = iota
	concatDoc
	groupDoc
	nestDoc // its lines are indented by two more columns
	breakDoc
	remarkDoc // a comment that ends its line
	lineDoc   // a comment that has a line of its own
	freshDoc  // the text after a comment, on a new line of the same depth
)

// Text returns a text without breaks.
func Text(s string) Doc { return Doc{kind: textDoc, text: s} }

// Concat returns parts one after the other.
func Concat(parts ...Doc) Doc { return Doc{kind: concatDoc, parts: parts} }

// Group returns parts one after the other, on one line if possible.
func Group(parts ...Doc) Doc { return Doc{kind: groupDoc, parts: parts} }

// Nest returns parts one after the other, with new lines indented by two more columns.
func Nest(parts ...Doc) Doc { return Doc{kind: nestDoc, parts: parts} }

// Line is a blank or a new line, Softline is nothing or a new line.
var (
	Line     = Doc{kind: breakDoc, text: " "}
	Softline = Doc{kind: breakDoc}
)

// placedDoc is a document that is still to be printed, with its indentation.
type placedDoc struct {
	Doc
	indent int
	flat   bool
}

// printer writes lines.
type printer struct {
	b      []byte
	column int
	// ended says that the line ends with a comment, so nothing may follow on it.
	ended bool
}

func (p *printer) newLine(indent int) {
	for len(p.b) > 0 && p.b[len(p.b)-1] == ' ' {
		p.b = p.b[:len(p.b)-1]
	}
	if len(p.b) > 0 {
		p.b = append(p.b, '\n')
	}
	for range indent {
		p.b = append(p.b, ' ')
	}
	p.column, p.ended = indent, false
}

func (p *printer) write(s string, indent int) {
	if p.ended && s != "" {
		p.newLine(indent)
		s = strings.TrimLeft(s, " ")
	}
	p.b = append(p.b, s...)
	p.column = columnAfter(p.column, s)
}

// columnAfter returns the column after a text that begins at a column.
func columnAfter(column int, s string) int {
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		return utf8.RuneCountInString(s[i+1:])
	}
	return column + utf8.RuneCountInString(s)
}

// String lays the document out.
func (d Doc) String() string {
	var p printer
	todo := []placedDoc{{Doc: d}}
	for len(todo) > 0 {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch next.kind {
		case textDoc:
			p.write(next.text, next.indent)
			continue
		case remarkDoc:
			p.write(" "+next.text, next.indent)
			p.ended = true
			continue
		case lineDoc:
			if p.ended || strings.TrimLeft(lastLine(p.b), " ") != "" {
				p.newLine(next.indent)
			}
			p.write(next.text, next.indent)
			p.ended = true
			continue
		case freshDoc:
			if p.ended {
				p.newLine(next.indent)
			}
			continue
		case breakDoc:
			if next.flat {
				if !p.ended {
					p.write(next.text, next.indent)
				}
			} else {
				p.newLine(next.indent)
			}
			continue
		case groupDoc:
			next.flat = next.flat || fits(next, todo, Width-p.column)
		case nestDoc:
			next.indent += 2
		}
		for i := len(next.parts) - 1; i >= 0; i-- {
			todo = append(todo, placedDoc{Doc: next.parts[i], indent: next.indent, flat: next.flat})
		}
	}
	return string(p.b)
}

func lastLine(b []byte) string {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] == '\n' {
			return string(b[i+1:])
		}
		if b[i] != ' ' {
			return "x" // there is something
		}
	}
	return string(b)
}

// fits reports whether a group, on one line, and the text after it up to the next possible new
// line fit into a number of columns. A group with a comment that is not at its end does not
// fit.
func fits(g placedDoc, after []placedDoc, columns int) bool {
	g.flat = true
	todo := []placedDoc{g}
	inside, begun, ended := true, false, false
	for columns >= 0 {
		if len(todo) == 0 {
			if len(after) == 0 || ended {
				return true
			}
			inside = false
			todo = append(todo, after[len(after)-1])
			after = after[:len(after)-1]
		}
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch {
		case next.kind == textDoc:
			if next.text == "" {
				continue
			}
			if ended {
				return false
			}
			begun = true
			first, _, lines := strings.Cut(next.text, "\n")
			if columns -= utf8.RuneCountInString(first); columns >= 0 && lines {
				columns = Width - columnAfter(0, next.text)
			}
		case next.kind == remarkDoc || next.kind == lineDoc:
			if !inside {
				return true
			}
			if next.kind == lineDoc && begun || next.kind == remarkDoc && ended {
				return false
			}
			ended = next.kind == remarkDoc
		case next.kind == breakDoc && !next.flat:
			return true
		case next.kind == breakDoc:
			if !ended {
				columns -= len(next.text)
			}
		default:
			for i := len(next.parts) - 1; i >= 0; i-- {
				todo = append(todo, placedDoc{Doc: next.parts[i], flat: next.flat})
			}
		}
	}
	return false
}
