package legacy

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// tokenType is named as Gatekeeper's messages name it.
type tokenType string

const (
	tokenEOF       tokenType = "EOF"
	tokenIdent     tokenType = "IDENT"
	tokenInt       tokenType = "INT"
	tokenSeparator tokenType = "SEPARATOR"
	tokenOpen      tokenType = "LBRACKET"
	tokenClose     tokenType = "RBRACKET"
	tokenGlob      tokenType = "GLOB"
	tokenColon     tokenType = "COLON"
	tokenError     tokenType = "ERROR"
)

type token struct {
	typ    tokenType
	text   string // without quotes and escapes
	offset int
}

func (t token) String() string { return string(t.typ) + ": " + strconv.Quote(t.text) }

// scanner splits a location into tokens (Gatekeeper spec §2.1).
type scanner struct {
	in  string
	pos int
}

func (s *scanner) next() token {
	for s.pos < len(s.in) && isSpace(s.in[s.pos]) {
		s.pos++
	}
	start := s.pos
	if start == len(s.in) {
		return token{tokenEOF, "", start}
	}
	switch c := s.in[start]; {
	case isDigit(c):
		return token{tokenInt, s.run(isDigit), start}
	case isWord(c):
		return token{tokenIdent, s.run(isWord), start}
	case c == '"' || c == '\'':
		return s.quoted()
	default:
		// Each byte that is not UTF-8 becomes one U+FFFD.
		r, size := utf8.DecodeRuneInString(s.in[start:])
		s.pos += size
		return token{punctuation(c), string(r), start}
	}
}

func punctuation(c byte) tokenType {
	switch c {
	case '.':
		return tokenSeparator
	case '[':
		return tokenOpen
	case ']':
		return tokenClose
	case '*':
		return tokenGlob
	case ':':
		return tokenColon
	default:
		return tokenError
	}
}

// run reads the bytes that are in a class.
func (s *scanner) run(class func(byte) bool) string {
	start := s.pos
	for s.pos < len(s.in) && class(s.in[s.pos]) {
		s.pos++
	}
	return s.in[start:s.pos]
}

// quoted reads a quoted word. A backslash stands for the character after it, so \n is the
// letter n. A word without a closing quote is an error.
func (s *scanner) quoted() token {
	start, quote := s.pos, rune(s.in[s.pos])
	var text strings.Builder
	escaped := false
	for i, r := range s.in[start+1:] {
		switch {
		case escaped:
			text.WriteRune(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == quote:
			s.pos = start + 1 + i + 1
			return token{tokenIdent, text.String(), start}
		default:
			text.WriteRune(r)
		}
	}
	s.pos = len(s.in)
	return token{tokenError, text.String(), start}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isWord reports whether a byte may follow the first byte of a bare word.
func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || isDigit(c) || c == '_' || c == '-'
}
