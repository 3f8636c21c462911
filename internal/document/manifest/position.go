package manifest

import (
	"fmt"
	"strings"
)

// PositionError is an error with the place in a file where its cause stands.
// Line and Column are 1-based; 0 means that they are not known.
type PositionError struct {
	File     string
	Document int
	Line     int
	Column   int
	// Source is the text of the line, for Render; it may be empty.
	Source string
	Err    error
}

// Error is one line: file, document, line, and what is wrong.
func (e *PositionError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Document > 0 {
		fmt.Fprintf(&b, ": document %d", e.Document)
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, ", line %d", e.Line)
	}
	if e.Line > 0 && e.Column > 0 {
		fmt.Fprintf(&b, ", column %d", e.Column)
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

func (e *PositionError) Unwrap() error { return e.Err }

// sourceWidth is how much of a long line Render shows, in characters: more does
// not fit a terminal beside the caret.
const sourceWidth = 110

// Render is Error, and below it the source line with a caret under the column
// if both are known.
func (e *PositionError) Render() string {
	if e.Source == "" || e.Column <= 0 {
		return e.Error()
	}
	return e.Error() + "\n" + caret(e.Source, e.Column)
}

// caret returns a line of text and below it a caret under a column, both indented.
func caret(text string, column int) string {
	line := []rune(strings.TrimRight(text, "\r\n"))
	at := min(column-1, len(line))
	if at > sourceWidth {
		cut := at - sourceWidth/2
		line = append([]rune("…"), line[cut:]...)
		at -= cut - 1
	}
	if len(line) > sourceWidth {
		line = append(line[:sourceWidth:sourceWidth], '…')
	}
	pad := make([]rune, at)
	for i := range pad {
		pad[i] = ' '
		if i < len(line) && line[i] == '\t' {
			pad[i] = '\t' // or the caret would stand somewhere else
		}
	}
	return "  " + string(line) + "\n  " + string(pad) + "^"
}

// Pos is a 1-based position in a file; columns count characters.
type Pos struct{ Line, Column int }
