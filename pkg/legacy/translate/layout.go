package translate

import (
	"strings"
	"unicode/utf8"
)

// width is how many columns a line of an expression may have.
const width = 100

// doc is text that can be laid out over lines: a group stands on one line if it
// fits there; if not, all breaks that are directly in it become new lines. It is
// the usual way to print programs (Wadler, "A prettier printer").
type doc struct {
	kind  docKind
	text  string
	parts []doc
}

type docKind int

const (
	textDoc docKind = iota
	concatDoc
	groupDoc
	nestDoc // its lines stand two columns further in
	breakDoc
)

func text(s string) doc          { return doc{kind: textDoc, text: s} }
func concat(parts ...doc) doc    { return doc{kind: concatDoc, parts: parts} }
func group(parts ...doc) doc     { return doc{kind: groupDoc, parts: parts} }
func nest(parts ...doc) doc      { return doc{kind: nestDoc, parts: parts} }
func breakOr(instead string) doc { return doc{kind: breakDoc, text: instead} }

var (
	line     = breakOr(" ")
	softline = breakOr("")
)

// join puts a separator between documents.
func join(sep doc, docs []doc) doc {
	var parts []doc
	for i, d := range docs {
		if i > 0 {
			parts = append(parts, sep)
		}
		parts = append(parts, d)
	}
	return concat(parts...)
}

// placedDoc is a document that is yet to be printed.
type placedDoc struct {
	doc
	indent int
	flat   bool
}

// String lays the document out.
func (d doc) String() string {
	var b strings.Builder
	column := 0
	todo := []placedDoc{{doc: d}}
	for len(todo) > 0 {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch next.kind {
		case textDoc:
			b.WriteString(next.text)
			column += utf8.RuneCountInString(next.text)
			continue
		case breakDoc:
			if next.flat {
				b.WriteString(next.text)
				column += len(next.text)
			} else {
				b.WriteByte('\n')
				b.WriteString(strings.Repeat(" ", next.indent))
				column = next.indent
			}
			continue
		case groupDoc:
			next.flat = next.flat || fits(next, todo, width-column)
		case nestDoc:
			next.indent += 2
		}
		for i := len(next.parts) - 1; i >= 0; i-- {
			todo = append(todo, placedDoc{doc: next.parts[i], indent: next.indent, flat: next.flat})
		}
	}
	return b.String()
}

// fits reports whether a group, on one line, and what follows it up to the next
// possible new line need no more than so many columns.
func fits(g placedDoc, after []placedDoc, columns int) bool {
	g.flat = true
	todo := []placedDoc{g}
	for columns >= 0 {
		if len(todo) == 0 {
			if len(after) == 0 {
				return true
			}
			todo = append(todo, after[len(after)-1])
			after = after[:len(after)-1]
		}
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch {
		case next.kind == textDoc:
			columns -= utf8.RuneCountInString(next.text)
		case next.kind == breakDoc && !next.flat:
			return true
		case next.kind == breakDoc:
			columns -= len(next.text)
		default:
			for i := len(next.parts) - 1; i >= 0; i-- {
				todo = append(todo, placedDoc{doc: next.parts[i], flat: next.flat})
			}
		}
	}
	return false
}
