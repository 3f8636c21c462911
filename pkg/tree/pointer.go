package tree

import (
	"fmt"
	"strings"
)

// ParsePointer splits an RFC 6901 JSON pointer into its reference tokens,
// unescaped. The empty pointer means the whole document and has no tokens. It
// is strict: a pointer that is not empty starts with "/", and "~" is followed
// by 0 or 1.
func ParsePointer(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' {
		return nil, fmt.Errorf("pointer %q: must be empty or start with \"/\"", s)
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		u, err := unescape(t)
		if err != nil {
			return nil, fmt.Errorf("pointer %q: %w", s, err)
		}
		tokens[i] = u
	}
	return tokens, nil
}

// Pointer joins reference tokens to a JSON pointer, escaping "~" and "/".
// Without tokens it is the pointer to the whole document, "".
func Pointer(tokens ...string) string {
	var b []byte
	for _, t := range tokens {
		b = appendToken(b, t)
	}
	return string(b)
}

// AppendToken appends "/" and an escaped token to a pointer.
func AppendToken(b []byte, token string) []byte { return appendToken(b, token) }

func appendToken(b []byte, token string) []byte {
	b = append(b, '/')
	for i := 0; i < len(token); i++ {
		switch c := token[i]; c {
		case '~':
			b = append(b, '~', '0')
		case '/':
			b = append(b, '~', '1')
		default:
			b = append(b, c)
		}
	}
	return b
}

func unescape(token string) (string, error) {
	at := strings.IndexByte(token, '~')
	if at < 0 {
		return token, nil
	}
	b := make([]byte, 0, len(token))
	b = append(b, token[:at]...)
	for i := at; i < len(token); i++ {
		if token[i] != '~' {
			b = append(b, token[i])
			continue
		}
		i++
		switch {
		case i < len(token) && token[i] == '0':
			b = append(b, '~')
		case i < len(token) && token[i] == '1':
			b = append(b, '/')
		default:
			return "", fmt.Errorf("token %q: \"~\" must be followed by 0 or 1", token)
		}
	}
	return string(b), nil
}
