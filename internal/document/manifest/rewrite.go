package manifest

import (
	"bytes"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Rewrite is the text of the document with its object changed to after: keys
// keep their order and comments stay, new keys come last. Only the layout of
// white space is the encoder's, and lines end as the first one does.
func Rewrite(d *Document, after map[string]any) []byte {
	crlf, lf := []byte("\r\n"), []byte("\n")
	if i := bytes.IndexByte(d.Raw, '\n'); d.JSON || i <= 0 || d.Raw[i-1] != '\r' {
		return rewrite(d, after)
	}
	// The parser takes the end of such a line for two, and a comment for one that stands alone.
	plain := *d
	if root, around, err := parseYAML(bytes.ReplaceAll(d.Raw, crlf, lf)); err == nil && root != nil {
		plain.node, plain.around = root, around
	}
	return bytes.ReplaceAll(rewrite(&plain, after), lf, crlf)
}

func rewrite(d *Document, after map[string]any) []byte {
	root := d.root()
	if root == nil {
		return Encode(after)
	}
	n := expand(root)
	l := layoutOf(root)
	if d.JSON || d.inJSON {
		l = layout{indent: 2, compact: true}
		unstyle(n)
	}
	for _, op := range tree.Diff(d.source, after) {
		tokens, err := tree.ParsePointer(op.Path)
		if err != nil || len(tokens) == 0 || !edit(n, tokens, op) {
			return Encode(after)
		}
	}
	for _, key := range []string{"kind", "apiVersion"} {
		if d.source[key] == nil {
			hoist(n, key) // what the List said for its items
		}
	}
	n = &yaml.Node{Kind: yaml.DocumentNode, HeadComment: d.around.head, FootComment: d.around.foot, Content: []*yaml.Node{n}}
	if out, ok := encodeNode(n, after, l); ok {
		return out
	}
	return Encode(after)
}

// hoist moves a key to the top of a mapping.
func hoist(n *yaml.Node, key string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			pair := slices.Clone(n.Content[i : i+2])
			n.Content = slices.Concat(pair, n.Content[:i], n.Content[i+2:])
			return
		}
	}
}

// layoutOf finds out how a document is indented.
func layoutOf(root *yaml.Node) layout {
	l := layout{indent: 2, compact: true}
	var indent, seq bool
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if indent && seq || n.Style&yaml.FlowStyle != 0 {
			return
		}
		if n.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(n.Content); i += 2 {
				k, v := n.Content[i], n.Content[i+1]
				if v.Style&yaml.FlowStyle != 0 || v.Line <= k.Line {
					continue
				}
				switch d := v.Column - k.Column; {
				case v.Kind == yaml.MappingNode && !indent && d >= 2 && d <= 8:
					l.indent, indent = d, true
				case v.Kind == yaml.SequenceNode && !seq:
					l.compact, seq = d == 0, true
				}
			}
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	walk(root)
	return l
}

// expand copies a tree of nodes with what its aliases name in their place, and
// what << keys merge as pairs of the mapping: an edit of one of several uses must
// not change the others.
func expand(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return expand(n.Alias)
	}
	c := *n
	c.Anchor = ""
	c.Content = make([]*yaml.Node, 0, len(n.Content))
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && isMerge(n.Content[i&^1]) {
			if i%2 == 1 {
				c.Content = append(c.Content, merged(n, child, c.Content)...)
			}
			continue
		}
		c.Content = append(c.Content, expand(child))
	}
	return &c
}

// merged returns the pairs that a << value adds to a mapping: those whose keys are
// neither in the mapping itself nor from an earlier <<.
func merged(mapping, value *yaml.Node, earlier []*yaml.Node) []*yaml.Node {
	taken := map[string]bool{}
	take := func(pairs []*yaml.Node) {
		for i := 0; i+1 < len(pairs); i += 2 {
			if key, err := resolveKey(pairs[i]); err == nil && !isMerge(pairs[i]) {
				taken[key] = true
			}
		}
	}
	take(mapping.Content)
	take(earlier)
	sources := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		sources = value.Content
	}
	var out []*yaml.Node
	for _, source := range sources {
		pairs := expand(source).Content
		for i := 0; i+1 < len(pairs); i += 2 {
			if key, err := resolveKey(pairs[i]); err == nil && !taken[key] {
				taken[key] = true
				out = append(out, pairs[i], pairs[i+1])
			}
		}
	}
	return out
}

// unstyle turns the nodes of a JSON text into such as a person would write in
// YAML.
func unstyle(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		if n.Tag == "!!str" {
			n.Style = stringNode(n.Value).Style
		}
		return
	}
	if len(n.Content) > 0 {
		n.Style = 0
	}
	for i, c := range n.Content {
		unstyle(c)
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.Style == yaml.LiteralStyle {
			c.Style = yaml.DoubleQuotedStyle
		}
	}
}

// edit applies one operation to a node.
func edit(n *yaml.Node, tokens []string, op tree.Op) bool {
	last := len(tokens) == 1
	switch n.Kind {
	case yaml.MappingNode:
		at := -1
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k, err := resolveKey(n.Content[i]); err == nil && k == tokens[0] {
				at = i
				break
			}
		}
		switch {
		case !last:
			return at >= 0 && edit(n.Content[at+1], tokens[1:], op)
		case op.Op == "remove":
			if at < 0 {
				return false
			}
			n.Content = slices.Delete(n.Content, at, at+2)
			if len(n.Content) == 0 {
				n.Style |= yaml.FlowStyle
			}
		case at >= 0:
			n.Content[at+1] = replacement(n.Content[at+1], op.Value)
		default:
			if len(n.Content) == 0 {
				n.Style &^= yaml.FlowStyle
			}
			n.Content = append(n.Content, keyNode(tokens[0]), newNode(op.Value))
		}
		return true
	case yaml.SequenceNode:
		i, err := strconv.Atoi(tokens[0])
		if tokens[0] == "-" {
			i, err = len(n.Content), nil
		}
		if err != nil || i < 0 || i > len(n.Content) || i == len(n.Content) && (!last || op.Op != "add") {
			return false
		}
		switch {
		case !last:
			return edit(n.Content[i], tokens[1:], op)
		case op.Op == "remove":
			n.Content = slices.Delete(n.Content, i, i+1)
			if len(n.Content) == 0 {
				n.Style |= yaml.FlowStyle
			}
		case op.Op == "add":
			if len(n.Content) == 0 {
				n.Style &^= yaml.FlowStyle
			}
			n.Content = slices.Insert(n.Content, i, newNode(op.Value))
		default:
			n.Content[i] = replacement(n.Content[i], op.Value)
		}
		return true
	}
	return false
}

// replacement keeps the comments of the node it replaces, and the quotes of a
// string.
func replacement(old *yaml.Node, v any) *yaml.Node {
	n := newNode(v)
	n.HeadComment, n.LineComment, n.FootComment = old.HeadComment, old.LineComment, old.FootComment
	const quotes = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && n.Style == 0 && old.Kind == yaml.ScalarNode {
		n.Style = old.Style & quotes
	}
	return n
}
