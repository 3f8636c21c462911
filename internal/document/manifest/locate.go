package manifest

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// LineOf returns the position of the field that path names, in the form of field.Path:
// spec.mutations[0].jsonPatch.expression, metadata.labels[a.b/c]. Of a scalar it
// is the value's position, of anything else the key's. A field that is not there
// has the position of the nearest one around it.
func (d *Document) LineOf(path string) Pos {
	value, key := lookup(d.root(), path)
	n := value
	if key != nil && (value == nil || value.Kind != yaml.ScalarNode) {
		n = key
	}
	if n == nil {
		return Pos{Line: d.Line}
	}
	return Pos{d.first + n.Line - 1, n.Column}
}

// PosIn returns the position in the file of a character. line and column (1-based, in characters)
// are its position in text. text is the string that path names, possibly without the surrounding
// white space, because servers trim some expressions before they count columns.
func (d *Document) PosIn(path, text string, line, column int) Pos {
	value, _ := lookup(d.root(), path)
	if value != nil && value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	if value == nil || value.Kind != yaml.ScalarNode {
		return d.LineOf(path)
	}
	// before is the number of visible characters before the position.
	before := 0
	l, col := 1, 1
	for _, r := range text {
		if l > line || l == line && col >= column {
			break
		}
		if r == '\n' {
			l, col = l+1, 1
			continue
		}
		if !unicode.IsSpace(r) {
			before++
		}
		col++
	}
	pos, ok := d.visible(value, before)
	if !ok {
		return d.LineOf(path)
	}
	return pos
}

// visible returns the position of the n-th visible character (from 0) of a scalar. The styles of
// YAML fold, strip and indent white space only, and all other characters are in the file in the
// same order. So counting them finds the position in every style. If n is the number of visible
// characters, visible returns the position after the last one.
func (d *Document) visible(scalar *yaml.Node, n int) (Pos, bool) {
	text := string(d.text)
	line := scalar.Line
	for i := 1; i < line; i++ {
		_, rest, ok := strings.Cut(text, "\n")
		if !ok {
			return Pos{}, false
		}
		text = rest
	}
	offset := 0 // in bytes, of the scalar's first character
	for i := 1; i < scalar.Column && offset < len(text); i++ {
		_, size := utf8.DecodeRuneInString(text[offset:])
		offset += size
	}
	start := text
	rest := text[offset:]
	// Anchors and tags stand where the node begins.
	for len(rest) > 0 && (rest[0] == '&' || rest[0] == '!') {
		skip := strings.IndexAny(rest, " \t\n")
		if skip < 0 {
			return Pos{}, false
		}
		rest = strings.TrimLeft(rest[skip:], " \t")
	}
	style := scalar.Style &^ yaml.TaggedStyle
	switch style {
	case yaml.LiteralStyle, yaml.FoldedStyle:
		_, body, ok := strings.Cut(rest, "\n")
		if !ok {
			return Pos{}, false
		}
		rest = body
	case yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle:
		if rest == "" {
			return Pos{}, false
		}
		rest = rest[1:]
	}
	position := func(rest string) Pos {
		consumed := start[:len(start)-len(rest)]
		l := d.first + line - 1 + strings.Count(consumed, "\n")
		return Pos{l, utf8.RuneCountInString(consumed[strings.LastIndexByte(consumed, '\n')+1:]) + 1}
	}
	total := 0
	for _, r := range scalar.Value {
		if !unicode.IsSpace(r) {
			total++
		}
	}
	end := position(rest)
	for seen := 0; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		visible := !unicode.IsSpace(r)
		switch {
		case style == yaml.SingleQuotedStyle && strings.HasPrefix(rest, "''"):
			size = 2
		case style == yaml.DoubleQuotedStyle && r == '\\' && len(rest) > 1:
			size, visible = escape(rest)
		}
		if visible {
			if seen == n {
				return position(rest), true
			}
			seen++
		}
		rest = rest[size:]
		if visible {
			end = position(rest)
		}
		if seen == total {
			break
		}
	}
	return end, true
}

// escape returns the length of the escape sequence at the beginning of s, and whether it stands
// for a visible character.
func escape(s string) (size int, visible bool) {
	hex := map[byte]int{'x': 2, 'u': 4, 'U': 8}
	if n, ok := hex[s[1]]; ok && len(s) >= 2+n {
		v, err := strconv.ParseUint(s[2:2+n], 16, 32)
		return 2 + n, err == nil && !unicode.IsSpace(rune(v))
	}
	switch s[1] {
	case 't', '\t', 'n', 'v', 'f', 'r', ' ', 'N', '_', 'L', 'P', '\n', '\r':
		return 2, false
	}
	return 2, true
}

// lookup returns the node at path and its key. If the path does not exist, it returns the last
// node on the way that does.
func lookup(n *yaml.Node, path string) (value, key *yaml.Node) {
	value = n
	for _, step := range Steps(path) {
		if value != nil && value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if value == nil {
			return value, key
		}
		switch value.Kind {
		case yaml.MappingNode:
			k, v := pair(value, step)
			if k == nil {
				return value, key
			}
			key, value = k, v
		case yaml.SequenceNode:
			i, err := strconv.Atoi(step)
			if err != nil {
				// Servers name some fields of list elements without an index. The field is found
				// if exactly one element has it.
				k, v := only(value, step)
				if k == nil {
					return value, key
				}
				key, value = k, v
				continue
			}
			if i < 0 || i >= len(value.Content) {
				return value, key
			}
			key, value = nil, value.Content[i]
		default:
			return value, key
		}
	}
	return value, key
}

// jsonKind is how encoding/json calls the kind of a value.
func jsonKind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.AliasNode:
		return jsonKind(n.Alias)
	case yaml.MappingNode:
		return "object"
	case yaml.SequenceNode:
		return "array"
	}
	v, err := resolveScalar(n)
	if err != nil {
		return ""
	}
	switch v.(type) {
	case bool:
		return "bool"
	case int64, float64:
		return "number"
	case string:
		return "string"
	}
	return ""
}

// only finds a key in the elements of a list if just one of them has it.
func only(list *yaml.Node, name string) (key, value *yaml.Node) {
	for _, e := range list.Content {
		if e.Kind != yaml.MappingNode {
			continue
		}
		if k, v := pair(e, name); k != nil {
			if key != nil {
				return nil, nil
			}
			key, value = k, v
		}
	}
	return key, value
}

// pair finds a key in a mapping, in the mappings that << merges too.
func pair(n *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Kind == yaml.ScalarNode && k.Value == name {
			return k, n.Content[i+1]
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if v := n.Content[i+1]; isMerge(n.Content[i]) && v.Kind == yaml.AliasNode && v.Alias != nil && v.Alias != n && v.Alias.Kind == yaml.MappingNode {
			for j := 0; j+1 < len(v.Alias.Content); j += 2 {
				if k := v.Alias.Content[j]; k.Value == name {
					return k, v.Alias.Content[j+1]
				}
			}
		}
	}
	return nil, nil
}

// Steps splits a field path at its dots and brackets.
func Steps(path string) []string {
	var out []string
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return append(out, path[1:])
			}
			out = append(out, path[1:end])
			path = path[end+1:]
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			out = append(out, path[:end])
			path = path[end:]
		}
	}
	return out
}

// Lines returns a function that finds the first and the last line of a field by keys and indices,
// counted in Raw from 1; ok is false if there is no such field.
func (d *Document) Lines() func(steps []string) (first, last int, ok bool) {
	lines := strings.Split(strings.TrimSuffix(string(d.text), "\n"), "\n")
	return func(steps []string) (first, last int, ok bool) { return linesOf(d.root(), lines, steps) }
}

func linesOf(n *yaml.Node, lines, steps []string) (first, last int, ok bool) {
	first, indent, next := 1, 0, 0 // next: where what is behind the field begins
	for _, step := range steps {
		if n != nil && n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if n == nil {
			return 0, 0, false
		}
		at := -1
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content) && at < 0; i += 2 {
				if n.Content[i].Value == step {
					at = i
				}
			}
			if at < 0 {
				return 0, 0, false
			}
			first, indent = n.Content[at].Line, n.Content[at].Column
			at += 2
		case yaml.SequenceNode:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(n.Content) {
				return 0, 0, false
			}
			first, indent, at = n.Content[i].Line, n.Content[i].Column-1, i+1
		default:
			return 0, 0, false
		}
		if at < len(n.Content) {
			next = n.Content[at].Line
		}
		n = n.Content[at-1]
	}
	last = len(lines)
	if next > 0 {
		last = min(next-1, last)
	}
	for last > first {
		line := strings.TrimLeft(lines[last-1], " \t\r")
		if line != "" && (line[0] != '#' || len(lines[last-1])-len(line) >= indent) {
			break // the value, or a comment in it
		}
		last--
	}
	return first, max(first, last), true
}
