package language

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// Position is a position in a text as editors count it: line and UTF-16 code unit, from 0.
type Position struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

// Range is the text from Start up to, but not including, End.
type Range struct {
	Start Position `json:"start"`
	End   Position `json:"end"`
}

// Edit replaces a range by a text.
type Edit struct {
	Range Range  `json:"range"`
	Text  string `json:"newText"`
}

// Change is a change of a text by an editor. Without a range, it replaces the whole text.
type Change struct {
	Range *Range `json:"range,omitempty"`
	Text  string `json:"text"`
}

var (
	errRange   = errors.New("the range ends before it begins")
	errTooLong = errors.New("the document is too large")
)

// Apply applies changes to a text, each to the result of the one before. A position after the end
// of a line stands for the end of the line, and one after the last line for the end of the text.
func Apply(text string, changes ...Change) (string, error) {
	for _, c := range changes {
		if c.Range == nil {
			text = c.Text
		} else {
			start, end := offsetOf(text, c.Range.Start), offsetOf(text, c.Range.End)
			if start > end {
				return "", errRange
			}
			if len(text)-(end-start)+len(c.Text) > MaxDocument {
				return "", errTooLong
			}
			text = text[:start] + c.Text + text[end:]
		}
		if len(text) > MaxDocument {
			return "", errTooLong
		}
	}
	return text, nil
}

// lineEnd returns where the line at the beginning of a text ends, and where the next one
// begins.
func lineEnd(text string) (end, next int) {
	i := strings.IndexAny(text, "\r\n")
	switch {
	case i < 0:
		return len(text), len(text)
	case strings.HasPrefix(text[i:], "\r\n"):
		return i, i + 2
	}
	return i, i + 1
}

// offsetOf returns the offset of a position in bytes.
func offsetOf(text string, p Position) int {
	at := 0
	for range max(p.Line, 0) {
		end, next := lineEnd(text[at:])
		if end == next {
			return len(text)
		}
		at += next
	}
	end, _ := lineEnd(text[at:])
	units := 0
	for i, r := range text[at : at+end] {
		if units >= p.Character {
			return at + i
		}
		if units++; r > 0xFFFF {
			units++
		}
	}
	return at + end
}

// positionOf is the reverse of offsetOf.
func positionOf(text string, offset int) (p Position) {
	offset = min(max(offset, 0), len(text))
	at := 0
	for {
		end, next := lineEnd(text[at:])
		if end == next || at+next > offset {
			break
		}
		at += next
		p.Line++
	}
	end, _ := lineEnd(text[at:])
	for i, r := range text[at : at+end] {
		if at+i >= offset {
			break
		}
		if p.Character++; r > 0xFFFF {
			p.Character++
		}
	}
	return p
}

// rangeOf is the range between two offsets.
func rangeOf(text string, start, end int) Range {
	return Range{positionOf(text, start), positionOf(text, end)}
}

// offsetAt returns the offset of a line and a column as errors count them: characters, from
// 1 on.
func offsetAt(text string, line, column int) int {
	at := 0
	for range line - 1 {
		i := strings.IndexByte(text[at:], '\n')
		if i < 0 {
			return len(text)
		}
		at += i + 1
	}
	for i := 1; i < column && at < len(text) && text[at] != '\n'; i++ {
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}

// difference returns the edits that change before to after: one edit, for the lines that differ.
func difference(before, after string) []Edit {
	if before == after {
		return nil
	}
	start := 0
	for i := 0; i < min(len(before), len(after)) && before[i] == after[i]; i++ {
		if before[i] == '\n' {
			start = i + 1
		}
	}
	b, a := len(before), len(after)
	for i := 1; b-i >= start && a-i >= start && before[b-i] == after[a-i]; i++ {
		if before[b-i] == '\n' && i > 1 {
			b, a, i = b-i+1, a-i+1, 0
			continue
		}
	}
	return []Edit{{rangeOf(before, start, b), after[start:a]}}
}
