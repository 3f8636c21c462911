//go:build !js

package manifest

import (
	"bytes"
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// packItems understands a List item by item, so that only one of them is in memory besides what
// pack leaves of it. It reports false, and has done nothing, if that does not give what understand
// gives: if the List is wrong somewhere, has aliases or Lists in it, or something that pack does not
// pack, which needs the List around it.
func (p *piece) packItems(pack func(*Document)) bool {
	c := p.chunk
	if c.err != nil || !bytes.Contains(c.text, []byte("items")) {
		return false
	}
	list := &Document{File: p.file, Index: c.index, Line: c.line, JSON: c.json, Explicit: c.explicit, text: c.text, first: c.line}
	list.list = &listText{text: c.text}
	var docs []*Document
	each := func(line int, m map[string]any) bool {
		d := &Document{
			parent: list, at: len(docs), File: p.file, Index: c.index, Line: line, Explicit: len(docs) > 0 || c.explicit,
			text: c.text, first: c.line, item: true, inJSON: c.json, list: list.list, Object: &unstructured.Unstructured{Object: m},
		}
		if check(d) != nil || strings.HasSuffix(d.Object.GetKind(), "List") {
			return false
		}
		pack(d)
		docs = append(docs, d)
		return d.packed != nil
	}
	items := yamlItems
	if c.json {
		items = jsonItems
	}
	rest, ok := items(&c, each)
	if !ok || len(docs) == 0 {
		return false
	}
	list.Object = &unstructured.Unstructured{Object: rest}
	if check(list) != nil || !strings.HasSuffix(list.Object.GetKind(), "List") {
		return false
	}
	p.docs, p.chunk = append(p.docs, docs...), chunk{}
	return true
}

// jsonItems calls each with the items of a List in JSON and their lines, and returns its other
// fields. ok is false if each says so, or if there is something else than that.
func jsonItems(c *chunk, each func(line int, m map[string]any) bool) (rest map[string]any, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(c.text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	rest = map[string]any{}
	line, counted := c.line, 0
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		field, _ := name.(string)
		if _, twice := rest[field]; twice {
			return nil, false
		}
		var text json.RawMessage
		if field != "items" {
			if dec.Decode(&text) != nil {
				return nil, false
			}
			if rest[field], err = decodeJSON(text); err != nil {
				return nil, false
			}
			continue
		}
		rest[field] = []any{}
		if t, err := dec.Token(); err != nil || t != json.Delim('[') {
			return nil, false
		}
		for dec.More() {
			at := int(dec.InputOffset())
			at += bytes.IndexByte(c.text[at:], '{')
			line, counted = line+bytes.Count(c.text[counted:at], []byte("\n")), at
			if dec.Decode(&text) != nil {
				return nil, false
			}
			v, err := decodeJSON(text)
			m, object := v.(map[string]any)
			if err != nil || !object || !each(line, m) {
				return nil, false
			}
		}
		if _, err := dec.Token(); err != nil {
			return nil, false
		}
	}
	return rest, true
}

// yamlItems is jsonItems for YAML. It cuts the text at the lines that begin an item. A scalar or a
// collection that such a line only seems to end does not end where it is cut, which is an error.
func yamlItems(c *chunk, each func(line int, m map[string]any) bool) (rest map[string]any, ok bool) {
	var others, item []byte
	const before, within, after = 0, 1, 2
	at, indent, line, first := before, -1, c.line-1, 0
	flush := func() bool {
		if len(item) == 0 {
			return true
		}
		m, down := yamlItem(item)
		item = item[:0]
		return m != nil && each(first+down, m)
	}
	for text := range bytes.Lines(c.text) {
		line++
		if at == before && bytes.Equal(bytes.TrimRight(text, " \r\n"), []byte("items:")) {
			at = within
			continue
		}
		if at != within {
			others = append(others, text...)
			continue
		}
		content := bytes.TrimLeft(text, " ")
		spaces := len(text) - len(content)
		switch blank := len(bytes.TrimSpace(content)) == 0 || content[0] == '#'; {
		case blank && indent < 0:
			continue
		case blank || indent >= 0 && spaces > indent:
			item = append(item, text...)
			continue
		}
		begins := content[0] == '-' && (len(content) == 1 || strings.ContainsRune(" \r\n", rune(content[1])))
		if indent < 0 && begins {
			indent = spaces
		}
		if !flush() {
			return nil, false
		}
		if begins && spaces == indent {
			item, first = append(item, text...), line
			continue
		}
		at, others = after, append(others, text...)
	}
	if at == before || !flush() {
		return nil, false
	}
	root, _, err := parseYAML(others)
	if err != nil || root == nil {
		return nil, false
	}
	v, err := convert(root)
	rest, object := v.(map[string]any)
	if _, twice := rest["items"]; err != nil || !object || twice || root.Style&yaml.FlowStyle != 0 {
		return nil, false
	}
	return rest, true
}

// yamlItem returns the object of a text that is a list of one, and how many lines down it begins;
// nil if it is something else, or if an alias has a share in it.
func yamlItem(text []byte) (m map[string]any, down int) {
	root, _, err := parseYAML(text)
	if err != nil || root == nil || root.Kind != yaml.SequenceNode || root.Style&yaml.FlowStyle != 0 || len(root.Content) != 1 {
		return nil, 0
	}
	c := &converter{budget: maxAliases, values: map[*yaml.Node]any{}, sizes: map[*yaml.Node]extent{}}
	v, err := c.value(root.Content[0], 2)
	if err != nil || c.budget != maxAliases {
		return nil, 0
	}
	m, _ = v.(map[string]any)
	return m, root.Content[0].Line - 1
}
