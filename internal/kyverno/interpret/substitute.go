package interpret

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	// variables matches {{ … }} with the character before it, which must not be a backslash.
	variables = regexp.MustCompile(`(^|[^\\])(\{\{(?:\{[^{}]*\}|[^{}])*\}\})`)
	// references matches $( … ), which stands for the value at another place in the policy.
	references = regexp.MustCompile(`^\$\(.[^\ ]*\)|[^\\]\$\(.[^\ ]*\)`)
	escaped    = regexp.MustCompile(`\\\$\(.[^\ \)]*\)`)
)

// substitute fills in the variables in all texts and names of fields of v. A text that is one
// variable becomes its value, of whatever type.
func (s *scope) substitute(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range keysOf(v) {
			name, err := s.fill(key)
			if err != nil {
				return nil, err
			}
			value, err := s.substitute(v[key])
			if err != nil {
				return nil, err
			}
			if name == nil {
				name = key
			}
			field, ok := name.(string)
			if !ok {
				return nil, fmt.Errorf("the name of a field is no text after the variables of %q are filled in", key)
			}
			if field != key && (strings.Contains(text(value), "{{") || strings.Contains(field, "{{")) {
				// Kyverno adds the new field to the map while it iterates over it, so it may or
				// may not visit the field.
				unknown("variables in the name of a field and in what its value becomes")
			}
			if _, twice := out[field]; twice {
				unknown("a variable in the name of a field that makes it the name of another one")
			}
			out[field] = value
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			var err error
			if out[i], err = s.substitute(e); err != nil {
				return nil, err
			}
		}
		return out, nil
	case string:
		out, err := s.fill(v)
		if err == nil && container(out) {
			return s.substitute(out) // the value may contain variables, too
		}
		return out, err
	}
	return v, nil
}

// fill fills in the variables of one text, and those in their values.
func (s *scope) fill(value string) (any, error) {
	if !strings.ContainsAny(value, "{$") {
		return value, nil
	}
	if references.MatchString(value) {
		unknown("a reference $(…)")
	}
	value = escaped.ReplaceAllStringFunc(value, func(m string) string { return m[1:] })
	for found := variables.FindAllStringSubmatch(value, -1); len(found) > 0; {
		whole, once := value, false
		for _, m := range found {
			before, v := m[1], m[2]
			if len(before) > 1 {
				unknown("a variable after the character %s", before)
			}
			var name string
			if name, once = inBraces(v); name == "@" {
				unknown("the variable @")
			}
			out, err := s.query(name)
			if err != nil {
				return nil, err
			}
			if whole == v {
				return out, nil
			}
			if once && out != nil {
				t, ok := out.(string)
				if !ok {
					unknown("{{- }} of what is no text")
				}
				out = strings.ReplaceAll(t, "{{", `\{{`)
			}
			value = strings.Replace(value, before+v, before+text(out), 1)
			if len(value) > maxText {
				unknown("a text of more than %d bytes", maxText)
			}
		}
		if found = nil; !once {
			found = variables.FindAllStringSubmatch(value, -1)
		}
	}
	return strings.ReplaceAll(value, `\{{`, "{{"), nil
}

// inBraces returns the expression of a variable. once is set if variables in its value must not
// be filled in.
func inBraces(v string) (expression string, once bool) {
	v = strings.ReplaceAll(v, "{{", "")
	v = strings.TrimSpace(strings.ReplaceAll(v, "}}", ""))
	if rest, ok := strings.CutPrefix(v, "-"); ok {
		return strings.TrimSpace(rest), true
	}
	return v, false
}
