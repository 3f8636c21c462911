package tree

import (
	"fmt"
	"strconv"
	"strings"
)

// Field returns a JSON pointer in the notation that people read in all output of mapd:
// names with dots between them, and in brackets the index of an element, or a name in which
// dots or other characters would mislead: metadata.labels[example.com/team],
// spec.containers[0].image. A name that brackets cannot hold is quoted in them, as in Go.
// ParseField is its inverse. A text that is not a pointer is returned as it is.
func Field(pointer string) string {
	tokens, err := ParsePointer(pointer)
	if err != nil {
		return pointer
	}
	field := ""
	for _, t := range tokens {
		field = JoinField(field, t)
	}
	return field
}

// JoinField appends a name or an index to a field in the notation of Field.
func JoinField(field, name string) string {
	switch {
	case name == "" || name[0] == '"' || strings.ContainsAny(name, "]="):
		return field + "[" + strconv.Quote(name) + "]"
	case !isSimple(name):
		return field + "[" + name + "]"
	case field == "":
		return name
	}
	return field + "." + name
}

// isSimple reports whether a name needs no brackets.
func isSimple(name string) bool {
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '$':
		case i > 0 && (c >= '0' && c <= '9' || c == '-'):
		default:
			return false
		}
	}
	return name != ""
}

// FieldStep is a part of a field.
type FieldStep struct {
	// Name is a name or the index of an element.
	Name string
	// Keys says that Name is not a name or an index but the keys of an element, as in
	// containers[name=web].
	Keys bool
}

// SplitField splits a field in the notation of Field, in which keys, too, may stand for an
// element of a list. A field has at least one step.
func SplitField(field string) (steps []FieldStep, err error) {
	for rest := field; rest != ""; {
		var s FieldStep
		switch {
		case strings.HasPrefix(rest, `["`):
			quoted, err := strconv.QuotedPrefix(rest[1:])
			if err == nil {
				s.Name, err = strconv.Unquote(quoted)
			}
			if err != nil || !strings.HasPrefix(rest[1+len(quoted):], "]") {
				return nil, fmt.Errorf("%q: a quoted name in brackets does not end with \"]", field)
			}
			rest = rest[len(quoted)+2:]
		case rest[0] == '[':
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				return nil, fmt.Errorf("%s: a bracket is open at the end", field)
			}
			if s.Name, rest = rest[1:end], rest[end+1:]; s.Name == "" {
				return nil, fmt.Errorf("%q: a name is missing in the path", field)
			}
			s.Keys = strings.Contains(s.Name, "=")
		default:
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if s.Name, rest = rest[:end], rest[end:]; s.Name == "" {
				return nil, fmt.Errorf("%q: a name is missing in the path", field)
			}
		}
		steps = append(steps, s)
		if dot, ok := strings.CutPrefix(rest, "."); ok {
			if rest = dot; rest == "" || rest[0] == '.' || rest[0] == '[' {
				return nil, fmt.Errorf("%q: a name is missing in the path", field)
			}
		} else if rest != "" && rest[0] != '[' {
			return nil, fmt.Errorf("%q: want a dot or a bracket before %q", field, rest)
		}
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("the path is empty")
	}
	return steps, nil
}

// ParseField returns the JSON pointer of a field that is written in the notation of Field, or
// as a pointer. If an element has keys instead of an index, as in spec.containers[name=web],
// the result is the pointer of its list, also for a field within the element.
func ParseField(field string) (pointer string, err error) {
	if field == "" || field[0] == '/' {
		_, err := ParsePointer(field)
		return field, err
	}
	steps, err := SplitField(field)
	if err != nil {
		return "", err
	}
	for _, s := range steps {
		if s.Keys {
			break
		}
		pointer += Pointer(s.Name)
	}
	return pointer, nil
}
