package manifest

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Encode writes a tree as YAML: keys sorted, two spaces, lists not indented, as
// kubectl prints objects. It returns nil for what JSON cannot represent, such as NaN.
func Encode(v any) []byte {
	return encodeTree(newNode(v), v, layout{indent: 2, compact: true})
}

// layout is how a document is indented.
type layout struct {
	indent  int
	compact bool // "- " stands below the first letter of the key
}

// encodeTree prints a node that stands for v. What the encoder does not print
// faithfully is printed as JSON, which is YAML too.
func encodeTree(n *yaml.Node, v any, l layout) []byte {
	if out, ok := encodeNode(n, v, l); ok {
		return out
	}
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil // not a tree
	}
	return append(out, '\n')
}

// encodeNode prints a node and reads the result back: comments and styles that
// a person chose are worth keeping, but not at the price of another value.
func encodeNode(n *yaml.Node, v any, l layout) (out []byte, ok bool) {
	defer func() {
		if recover() != nil {
			out, ok = nil, false // the encoder panics on what it cannot write
		}
	}()
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(l.indent)
	if l.compact {
		enc.CompactSeqIndent()
	}
	if err := enc.Encode(n); err != nil {
		return nil, false
	}
	if err := enc.Close(); err != nil {
		return nil, false
	}
	root, _, err := parseYAML(b.Bytes())
	if err != nil || root == nil {
		return nil, false
	}
	back, err := convert(root)
	if err != nil || !tree.Equal(back, integral(v)) {
		return nil, false
	}
	return b.Bytes(), true
}

// integral is v with floats that are whole numbers as integers, which is what
// YAML makes of them.
func integral(v any) any {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return int64(v)
		}
	case map[string]any:
		for _, e := range v {
			if f := integral(e); !tree.Same(e, f) {
				c := make(map[string]any, len(v))
				for k, e := range v {
					c[k] = integral(e)
				}
				return c
			}
		}
	case []any:
		for i, e := range v {
			if f := integral(e); !tree.Same(e, f) {
				c := slices.Clone(v)
				for j := i; j < len(c); j++ {
					c[j] = integral(c[j])
				}
				return c
			}
		}
	}
	return v
}

// newNode makes the node of a tree.
func newNode(v any) *yaml.Node {
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			n.Content = append(n.Content, keyNode(k), newNode(v[k]))
		}
		if len(keys) == 0 {
			n.Style = yaml.FlowStyle
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, e := range v {
			n.Content = append(n.Content, newNode(e))
		}
		if len(v) == 0 {
			n.Style = yaml.FlowStyle
		}
		return n
	case string:
		return stringNode(v)
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}
	case int64:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v, 10)}
	case float64:
		return floatNode(v)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
}

// floatNode writes a float so that it reads as one without a tag: digits alone
// would be an integer, and are one where they fit.
func floatNode(f float64) *yaml.Node {
	if n, ok := integral(f).(int64); ok && !(n == 0 && math.Signbit(f)) {
		return newNode(n)
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if f == math.Trunc(f) {
		text = strconv.FormatFloat(f, 'e', -1, 64)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: text}
}

// stringNode quotes what a YAML 1.1 reader would not take for a string.
func stringNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	switch {
	case strings.Contains(s, "\n"):
		n.Style = yaml.LiteralStyle
	case !plainString(s) || s == "<<" || s == "=" || dated(s):
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func keyNode(s string) *yaml.Node {
	n := stringNode(s)
	if n.Style == yaml.LiteralStyle {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// dated tells what other YAML readers may take for a date or a base 60 number.
func dated(s string) bool {
	if len(s) < 3 || s[0] < '0' || s[0] > '9' {
		return false
	}
	return strings.ContainsAny(s, "-:") && strings.Trim(s, "0123456789-:.tTzZ+ ") == ""
}
