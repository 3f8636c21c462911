package layout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is the kind of a token.
type Kind uint8

// The kinds of tokens.
const (
	End        Kind = iota // after the last token
	Identifier             // also in backticks
	Number
	String // and bytes
	Sign   // operators, also in, and brackets
)

// A Token is a word or sign of an expression.
type Token struct {
	Kind Kind
	Text string
	// At is the offset of its first byte.
	At int

	// lead are the comments on lines of their own before the token, remark is the comment after
	// it on its line.
	lead   []string
	remark string
}

// Errors of Tokens. The tokens before them are returned, too.
var (
	errOpenText = errors.New("a text has no end")
	errSign     = errors.New("unknown sign")
)

// Tokens splits an expression into tokens, the last of which is an End. It also works for an
// expression that is being edited: a string without an end goes on to the end of the text, and
// the error says so.
func Tokens(expression string) ([]Token, error) {
	var out []Token
	var lead []string
	var failed error
	newLine := true // since the last token
	for i := 0; i < len(expression); {
		c := expression[i]
		switch {
		case c == '\n':
			newLine = true
			i++
			continue
		case strings.IndexByte(" \t\r\f", c) >= 0:
			i++
			continue
		case strings.HasPrefix(expression[i:], "//"):
			end := i + strings.IndexByte(expression[i:], '\n')
			if end < i {
				end = len(expression)
			}
			comment := strings.TrimRight(expression[i:end], " \t\r\f")
			if last := len(out) - 1; !newLine && last >= 0 && out[last].remark == "" {
				out[last].remark = comment
			} else {
				lead = append(lead, comment)
			}
			i = end
			continue
		}
		kind, n, err := scan(expression[i:])
		if failed == nil && err != nil {
			failed = fmt.Errorf("character %d: %w", i, err)
		}
		out = append(out, Token{Kind: kind, Text: expression[i : i+n], At: i, lead: lead})
		lead, newLine = nil, false
		i += n
	}
	return append(out, Token{At: len(expression), lead: lead}), failed
}

// scan returns the kind and the length of the token that s begins with.
func scan(s string) (Kind, int, error) {
	c := s[0]
	if n, err := scanString(s); n > 0 {
		return String, n, err
	}
	switch {
	case isLetter(c):
		n := 1
		for n < len(s) && (isLetter(s[n]) || isDigit(s[n])) {
			n++
		}
		if s[:n] == "in" {
			return Sign, n, nil
		}
		return Identifier, n, nil
	case c == '`':
		if end := strings.IndexAny(s[1:], "`\n"); end >= 0 && s[1+end] == '`' {
			return Identifier, end + 2, nil
		}
		return Identifier, len(s), errOpenText
	case isDigit(c), c == '.' && len(s) > 1 && isDigit(s[1]):
		return Number, scanNumber(s), nil
	}
	for _, sign := range []string{"==", "!=", "<=", ">=", "&&", "||"} {
		if strings.HasPrefix(s, sign) {
			return Sign, 2, nil
		}
	}
	if strings.IndexByte("<>[]{}().,-!?:+*/%", c) >= 0 {
		return Sign, 1, nil
	}
	n := 1
	for n < len(s) && s[n]&0xC0 == 0x80 { // the rest of a character
		n++
	}
	return Sign, n, errSign
}

func isLetter(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

func scanNumber(s string) int {
	n := 0
	digits := func() {
		for n < len(s) && isDigit(s[n]) {
			n++
		}
	}
	if len(s) > 2 && s[0] == '0' && s[1] == 'x' && isHex(s[2]) {
		for n = 2; n < len(s) && isHex(s[n]); n++ {
		}
	} else {
		digits()
		if n+1 < len(s) && s[n] == '.' && isDigit(s[n+1]) {
			n++
			digits()
		}
		if n < len(s) && s[n]|0x20 == 'e' {
			at := n
			n++
			if n < len(s) && (s[n] == '+' || s[n] == '-') {
				n++
			}
			if n < len(s) && isDigit(s[n]) {
				digits()
			} else {
				n = at
			}
		}
	}
	if n < len(s) && s[n]|0x20 == 'u' {
		n++
	}
	return n
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

// scanString returns the length of the string or bytes literal at the beginning of s, 0 if
// there is none.
func scanString(s string) (int, error) {
	n := 0
	if n < len(s) && s[n]|0x20 == 'b' {
		n++
	}
	raw := n < len(s) && s[n]|0x20 == 'r'
	if raw {
		n++
	}
	if n >= len(s) || s[n] != '"' && s[n] != '\'' {
		return 0, nil
	}
	quote := s[n : n+1]
	long := strings.HasPrefix(s[n:], strings.Repeat(quote, 3))
	if long {
		quote = s[n : n+3]
	}
	for i := n + len(quote); i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], quote):
			return i + len(quote), nil
		case s[i] == '\\' && !raw:
			i++
		case (s[i] == '\n' || s[i] == '\r') && !long:
			return i, errOpenText
		}
	}
	return len(s), errOpenText
}

// infix are the signs that stay at the end of a line if the operand after them is on the next
// one.
var infix = []string{"&&", "||", "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", ","}

// settleRemarks moves comments before infix signs behind them, so that "a // why" and "&& b"
// become "a && // why" and "b".
func settleRemarks(tokens []Token) {
	for i := 1; i+1 < len(tokens); i++ {
		before, t, after := &tokens[i-1], &tokens[i], &tokens[i+1]
		if t.Kind != Sign || !slices.Contains(infix, t.Text) || !endsOperand(*before) {
			continue
		}
		var all []string
		if before.remark != "" {
			all, before.remark = append(all, before.remark), ""
		}
		onLine := len(all) > 0
		all = append(all, t.lead...)
		onLine = onLine || len(all) == 0
		if t.remark != "" {
			all = append(all, t.remark)
		}
		t.lead, t.remark = nil, ""
		if onLine && len(all) > 0 {
			t.remark, all = all[0], all[1:]
		}
		after.lead = append(all, after.lead...)
	}
}

// endsOperand reports whether what follows the token is an operator and not a sign.
func endsOperand(t Token) bool {
	return t.Kind != Sign && t.Kind != End || t.Text == ")" || t.Text == "]" || t.Text == "}"
}

// Comments returns the comments of an expression in their order.
func Comments(expression string) (out []string) {
	tokens, _ := Tokens(expression)
	for _, t := range tokens {
		out = append(out, t.lead...)
		if t.remark != "" {
			out = append(out, t.remark)
		}
	}
	return out
}
