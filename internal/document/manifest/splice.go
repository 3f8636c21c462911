package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Edit is a document with the new object for it.
type Edit struct {
	Document *Document
	After    map[string]any
}

// Splice returns a text with the objects of edits changed, and everything else as it is,
// byte by byte. Documents keep their comments, the order of their keys and their form, YAML
// or JSON. Of a List the items without an edit stay byte by byte, too, unless an anchor,
// braces or Windows line ends stand in the way. The documents must be those of the text. The
// result was read again: it has exactly the objects that it should have.
func Splice(text []byte, edits []Edit) ([]byte, error) {
	byIndex := map[int][]Edit{}
	for _, e := range edits {
		byIndex[e.Document.Index] = append(byIndex[e.Document.Index], e)
	}
	var out bytes.Buffer
	var want []map[string]any
	rest := text
	var failed error
	chunks("", bytes.NewReader(text), ofFile, func(c chunk, err error) bool {
		var d *Document
		if err == nil {
			d, err = newDocument("", c)
		}
		if err != nil {
			failed = err
			return false
		}
		after := d.source
		if mine := byIndex[c.index]; len(mine) > 0 {
			delete(byIndex, c.index)
			if !bytes.Equal(mine[0].Document.text, c.text) {
				failed = errors.New("the file has changed since it was read")
				return false
			}
			after = whole(d, mine)
			i := bytes.Index(rest, c.text)
			changed := d.inForm(after)
			if i < 0 || changed == nil {
				failed = fmt.Errorf("document %d cannot be written", c.index)
				return false
			}
			out.Write(rest[:i])
			out.Write(changed)
			rest = rest[i+len(c.text):]
		} else if i := bytes.Index(rest, c.text); i >= 0 {
			out.Write(rest[:i+len(c.text)])
			rest = rest[i+len(c.text):]
		}
		want = append(want, after)
		return true
	})
	switch {
	case failed != nil:
		return nil, failed
	case len(byIndex) > 0:
		return nil, errors.New("the file has changed since it was read")
	}
	out.Write(rest)
	if err := has(out.Bytes(), want); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// has returns an error if a text has other objects than want.
func has(text []byte, want []map[string]any) error {
	var failed error
	n := 0
	chunks("", bytes.NewReader(text), ofFile, func(c chunk, err error) bool {
		var d *Document
		if err == nil {
			d, err = newDocument("", c)
		}
		if err == nil && (n >= len(want) || !tree.Equal(d.source, want[n])) {
			err = fmt.Errorf("document %d would not have the object that it should have", c.index)
		}
		n++
		failed = err
		return err == nil
	})
	if failed == nil && n != len(want) {
		failed = errors.New("the file would not have the documents that it should have")
	}
	return failed
}

// whole returns the tree of a document after edits of it, or of the items of its List.
func whole(d *Document, edits []Edit) map[string]any {
	after := d.source
	for _, e := range edits {
		if e.Document.parent == nil {
			after = e.After
			continue
		}
		var path []int
		for part := e.Document; part.parent != nil; part = part.parent {
			path = append(path, part.at)
		}
		slices.Reverse(path)
		after = withItem(after, path, untyped(e.After, e.Document.source))
	}
	return after
}

// withItem returns a List with another object at a path of indices, which may lead through nested
// Lists.
func withItem(list map[string]any, path []int, object map[string]any) map[string]any {
	items := slices.Clone(list["items"].([]any))
	if len(path) > 1 {
		object = withItem(items[path[0]].(map[string]any), path[1:], object)
	}
	items[path[0]] = object
	list = maps.Clone(list)
	list["items"] = items
	return list
}

// untyped removes from an item of a typed List the kind that it omitted originally.
func untyped(object, source map[string]any) map[string]any {
	for _, field := range []string{"kind", "apiVersion"} {
		if source[field] == nil {
			object = maps.Clone(object)
			delete(object, field)
		}
	}
	return object
}

// directives are lines such as %YAML 1.1, with the line that ends them.
var directives = regexp.MustCompile(`\A(?:%[^\n]*\n)+---[ \t\r]*\n`)

// inForm returns the text of a document with another tree, nil if it has none.
func (d *Document) inForm(after map[string]any) []byte {
	if !d.JSON {
		if _, list := d.source["items"].([]any); list {
			if text := d.inLines(after); text != nil {
				return text
			}
		}
		text := Rewrite(d, after)
		if m := directives.Find(d.text); text != nil && m != nil {
			return append(bytes.Clone(m), text...)
		}
		if text != nil && bytes.HasPrefix(d.text, []byte("---")) && !bytes.HasPrefix(text, []byte("---")) {
			text = append([]byte("---\n"), text...)
		}
		return text
	}
	inner := bytes.TrimSpace(d.text)
	i := bytes.Index(d.text, inner)
	n := orderedNode(d.root(), d.source, after)
	if n == nil {
		return nil
	}
	var b bytes.Buffer
	b.Write(d.text[:i])
	indent := jsonIndent(inner)
	if !writeJSON(&b, n, indent, "\n") {
		return nil
	}
	b.Write(d.text[i+len(inner):])
	if bytes.Contains(inner, []byte("\r\n")) && indent != "" {
		return bytes.ReplaceAll(bytes.ReplaceAll(b.Bytes(), []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
	}
	return b.Bytes()
}

// orderedNode returns the nodes of after, in the order of those of root as far as it has
// them. Without root, keys are sorted.
func orderedNode(root *yaml.Node, before, after map[string]any) *yaml.Node {
	if root == nil {
		return newNode(after)
	}
	n := expand(root)
	for _, op := range tree.Diff(before, after) {
		tokens, err := tree.ParsePointer(op.Path)
		if err != nil || len(tokens) == 0 || !edit(n, tokens, op) {
			return newNode(after)
		}
	}
	return n
}

// jsonIndent returns what a level of a JSON text is indented by, "" for a text on one line.
func jsonIndent(text []byte) string {
	_, after, ok := bytes.Cut(text, []byte("\n"))
	if !ok {
		return ""
	}
	return string(after[:len(after)-len(bytes.TrimLeft(after, " \t"))])
}

// writeJSON writes nodes as JSON. newline ends a line and indents the next one. It returns
// false for what JSON cannot represent.
func writeJSON(b *bytes.Buffer, n *yaml.Node, indent, newline string) bool {
	inner, colon, comma := newline+indent, ": ", ","
	if indent == "" {
		newline, inner, colon = "", "", ":"
	}
	begin, end, step := byte('['), byte(']'), 1
	switch n.Kind {
	case yaml.MappingNode:
		begin, end, step = '{', '}', 2
	case yaml.SequenceNode:
	default:
		v, err := resolveScalar(n)
		if err != nil {
			return false
		}
		if (n.Tag == "!!int" || n.Tag == "!!float") && json.Valid([]byte(n.Value)) {
			b.WriteString(n.Value) // as it was written
			return true
		}
		return jsonScalar(b, v)
	}
	b.WriteByte(begin)
	for i := 0; i+step-1 < len(n.Content); i += step {
		if i > 0 {
			b.WriteString(comma)
		}
		b.WriteString(inner)
		if step == 2 {
			key, err := resolveKey(n.Content[i])
			if err != nil || !jsonScalar(b, key) {
				return false
			}
			b.WriteString(colon)
		}
		if !writeJSON(b, n.Content[i+step-1], indent, inner) {
			return false
		}
	}
	if len(n.Content) > 0 {
		b.WriteString(newline)
	}
	b.WriteByte(end)
	return true
}

func jsonScalar(b *bytes.Buffer, v any) bool {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return false
	}
	b.Truncate(b.Len() - 1) // the newline
	return true
}
