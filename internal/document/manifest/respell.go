package manifest

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
)

// Respell returns a text with other strings in the objects of its YAML documents, and
// everything else as it is, byte by byte. texts returns the strings of a document by their
// paths, in the form of field.Path; each is written in this form, also one that stays the same.
// A comment that stands behind a string stays behind it.
//
// Strings with a tag, in JSON and between brackets are left alone, and so is what has an anchor
// or is an alias. The result was read again: it has exactly the objects that it should have.
// Documents that cannot be read are left alone, too, and their errors are returned.
func (f *Form) Respell(name string, text []byte, texts func(*Document) map[string]string) ([]byte, []error) {
	var out bytes.Buffer
	var want []map[string]any
	var errs []error
	rest := text
	chunks(name, bytes.NewReader(text), ofFile, func(c chunk, err error) bool {
		if err != nil {
			errs = append(errs, err)
			return false
		}
		i := bytes.Index(rest, c.text)
		d, err := newDocument(name, c)
		if err != nil {
			errs = append(errs, err)
			return true
		}
		after := d.source
		if i >= 0 && d.Object != nil && !c.json {
			var changed []byte
			changed, after = f.respelt(d, texts(d))
			out.Write(rest[:i])
			out.Write(changed)
			rest = rest[i+len(c.text):]
		}
		want = append(want, after)
		return true
	})
	out.Write(rest)
	if len(errs) > 0 {
		return text, errs
	}
	if err := has(out.Bytes(), want); err != nil {
		return text, []error{&PositionError{File: name, Err: err}}
	}
	return out.Bytes(), nil
}

// span is a part of a text, and its replacement.
type span struct {
	start, end int
	text       string
}

// respelt returns the text and the tree of a document with other strings.
func (f *Form) respelt(d *Document, texts map[string]string) ([]byte, map[string]any) {
	var spans []span
	after, doc := d.source, string(d.text)
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		key, value := own(d.root(), path)
		if value == nil {
			continue
		}
		s, ok := f.span(d, doc, key, value, path, texts[path])
		if !ok {
			continue
		}
		if len(spans) == 0 {
			after = runtime.DeepCopyJSON(d.source)
		}
		if setText(after, Steps(path), texts[path]) {
			spans = append(spans, s)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var out bytes.Buffer
	at := 0
	for _, s := range spans {
		out.Write(d.text[at:s.start])
		out.WriteString(s.text)
		at = s.end
	}
	out.Write(d.text[at:])
	return out.Bytes(), after
}

// own returns the key and the value at a path, nil if a node on the way is an anchor or alias or
// within brackets.
func own(n *yaml.Node, path string) (key, value *yaml.Node) {
	value = n
	for _, step := range Steps(path) {
		if value.Anchor != "" || value.Style&yaml.FlowStyle != 0 {
			return nil, nil
		}
		var next *yaml.Node
		switch value.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(value.Content); i += 2 {
				if k := value.Content[i]; k.Kind == yaml.ScalarNode && k.Value == step {
					key, next = k, value.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(value.Content) {
				key, next = nil, value.Content[i]
			}
		}
		if next == nil {
			return nil, nil
		}
		value = next
	}
	if key == nil || value.Kind != yaml.ScalarNode || value.Anchor != "" || value.Style&yaml.TaggedStyle != 0 || value.ShortTag() != "!!str" {
		return nil, nil
	}
	return key, value
}

// setText replaces the string at a path of a tree, and reports whether there is one.
func setText(v any, path []string, text string) bool {
	for i, step := range path {
		last := i == len(path)-1
		switch parent := v.(type) {
		case map[string]any:
			if v = parent[step]; last {
				parent[step] = text
			}
		case []any:
			at, err := strconv.Atoi(step)
			if err != nil || at < 0 || at >= len(parent) {
				return false
			}
			if v = parent[at]; last {
				parent[at] = text
			}
		default:
			return false
		}
	}
	return len(path) > 0
}

// span returns the text after a key and its replacement; false if it must not be replaced.
func (f *Form) span(d *Document, doc string, key, value *yaml.Node, path, text string) (s span, ok bool) {
	newline := "\n"
	if i := strings.IndexByte(doc, '\n'); i > 0 && doc[i-1] == '\r' {
		newline = "\r\n"
	}
	at := offsetOf(doc, value.Line, value.Column)
	s.start = len(strings.TrimRight(doc[:at], " \t\r\n"))
	if s.start == 0 || doc[s.start-1] != ':' {
		return s, false // a comment stands between them
	}
	indent := strings.Repeat(" ", key.Column-1+2)
	var line string // what follows on the line of the value, or of its head
	if value.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		head, body, _ := strings.Cut(doc[at:], "\n")
		_, line, _ = strings.Cut(head, " ")
		n, deep := blockOf(body, key.Column-1)
		if n == 0 {
			return s, false
		}
		s.end, indent = at+len(head)+1+n, strings.Repeat(" ", deep)
	} else {
		if s.end = scalarEnd(d, doc, at, value); s.end < 0 {
			return s, false
		}
		line, _, _ = strings.Cut(doc[s.end:], "\n")
		s.end += len(line)
	}
	comment := strings.TrimSpace(line)
	if comment != "" && comment[0] != '#' {
		return s, false
	}
	if comment != "" {
		comment = " " + comment
	}
	n := f.node(path[strings.LastIndexByte(path, '.')+1:], text)
	if n.Style == yaml.LiteralStyle {
		s.text = " |-" + comment
		for line := range strings.SplitSeq(text, "\n") {
			s.text += newline
			if line != "" {
				s.text += indent + line
			}
		}
	} else {
		line, ok := encodeNode(n, text, layout{indent: 2})
		if !ok || bytes.Count(line, []byte("\n")) != 1 {
			return s, false
		}
		s.text = " " + strings.TrimSuffix(string(line), "\n") + comment
	}
	if s.end > 0 && doc[s.end-1] == '\r' {
		s.text += "\r"
	}
	return s, true
}

// offsetOf returns the offset of a line and a column, as the parser counts them.
func offsetOf(text string, line, column int) int {
	at := 0
	for range line - 1 {
		i := strings.IndexByte(text[at:], '\n')
		if i < 0 {
			return len(text)
		}
		at += i + 1
	}
	for i := 1; i < column && at < len(text); i++ {
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}

// blockOf returns the length of a block's text without the empty lines at its end, and how
// deep it is indented. outer is the indentation of its key.
func blockOf(text string, outer int) (length, indent int) {
	at := 0
	for line := range strings.Lines(text) {
		if content := strings.TrimLeft(line, " "); strings.TrimSpace(content) != "" {
			deep := len(line) - len(content)
			if deep <= outer || deep < indent {
				break
			}
			if indent == 0 {
				indent = deep
			}
			length = at + len(strings.TrimSuffix(line, "\n"))
		}
		at += len(line)
	}
	return length, indent
}

// scalarEnd returns where a plain or quoted scalar ends, -1 if that is not clear.
func scalarEnd(d *Document, text string, at int, value *yaml.Node) int {
	switch value.Style {
	case yaml.SingleQuotedStyle:
		for i := at + 1; i < len(text); i++ {
			if text[i] == '\'' {
				if !strings.HasPrefix(text[i:], "''") {
					return i + 1
				}
				i++
			}
		}
	case yaml.DoubleQuotedStyle:
		for i := at + 1; i < len(text); i++ {
			switch text[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
	case 0:
		if pos, ok := d.visible(value, len(value.Value)); ok {
			return offsetOf(text, pos.Line-d.first+1, pos.Column)
		}
	}
	return -1
}
