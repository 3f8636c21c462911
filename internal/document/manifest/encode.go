package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Encode returns a tree as YAML in kubectl's layout: sorted keys, an indent of two spaces, lists
// not indented. It returns nil for values that JSON cannot represent, such as NaN.
func Encode(v any) []byte { return (*Form)(nil).Encode(v) }

// A Form lays out objects as a person would write them: keys in a usual order,
// short lists on one line, long expressions as blocks, one kind of quotes. A nil
// Form is that of kubectl.
type Form struct {
	Order  []string // keys that come first, in this order; the others follow by name
	Free   []string // fields whose keys are the user's and all come by name
	Blocks []string // fields whose text is a block if one line would be long or need quotes
	List   int      // the longest list on one line, in bytes
	Line   int      // the longest text of Blocks on one line, in bytes
}

// Encode is the function Encode in this form.
func (f *Form) Encode(v any) []byte {
	return encodeTree(f.node("", v), v, layout{indent: 2, compact: true})
}

// layout is the indentation of a document.
type layout struct {
	indent  int
	compact bool // the "- " of an element is in the column of the list's key, not indented
}

// encodeTree encodes a node that represents v. If the encoder does not preserve the value, the
// result is JSON, which is valid YAML.
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

// encodeNode encodes a node, and decodes the result to compare it with v. Comments and styles are
// worth keeping, but not if that changes the value.
func encodeNode(n *yaml.Node, v any, l layout) (out []byte, ok bool) {
	defer func() {
		if recover() != nil {
			out, ok = nil, false // the encoder panics on what it cannot write
		}
	}()
	plain, restore := withoutAstral(n)
	defer restore()
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
	out = []byte(plain.Replace(b.String()))
	root, _, err := parseYAML(out)
	if err != nil || root == nil {
		return nil, false
	}
	back, err := convert(root)
	if err != nil || !tree.Equal(back, integral(v)) {
		return nil, false
	}
	return out, true
}

// withoutAstral replaces characters beyond U+FFFF, such as emoji, by characters of private use in
// the scalars of a node, because the encoder would write escapes for them, in quotes. back puts
// the original characters into the encoder's text, and restore puts them into the node. If there
// are more different characters than the private use area has, nothing is replaced.
func withoutAstral(n *yaml.Node) (back *strings.Replacer, restore func()) {
	var scalars []*yaml.Node
	astral, taken := map[rune]rune{}, map[rune]bool{}
	look := func(text string) (found bool) {
		for _, r := range text {
			switch {
			case r > 0xffff:
				astral[r], found = 0, true
			case unicode.Is(unicode.Co, r):
				taken[r] = true
			}
		}
		return found
	}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		for _, comment := range []string{n.HeadComment, n.LineComment, n.FootComment} {
			look(comment)
		}
		if look(n.Value) && n.Kind == yaml.ScalarNode {
			scalars = append(scalars, n)
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	walk(n)
	restore = func() {}
	if len(scalars) == 0 {
		return strings.NewReplacer(), restore
	}
	var there, andBack []string
	next := rune(0xe000)
	for r := range astral {
		for taken[next] {
			next++
		}
		if next > 0xf8ff {
			return strings.NewReplacer(), restore
		}
		there, andBack = append(there, string(r), string(next)), append(andBack, string(next), string(r))
		next++
	}
	replace, old := strings.NewReplacer(there...), make([]string, len(scalars))
	for i, s := range scalars {
		old[i] = s.Value
		s.Value = replace.Replace(s.Value)
	}
	return strings.NewReplacer(andBack...), func() {
		for i, s := range scalars {
			s.Value = old[i]
		}
	}
}

// integral returns v with floats that are whole numbers as integers, as YAML decodes them.
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

// newNode makes the node of a tree, as kubectl would print it.
func newNode(v any) *yaml.Node { return (*Form)(nil).node("", v) }

// node makes the node of a tree that is the value of a key.
func (f *Form) node(key string, v any) *yaml.Node {
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		keys := slices.Sorted(maps.Keys(v))
		if f != nil && !slices.Contains(f.Free, key) {
			slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(f.rank(a), f.rank(b)) })
		}
		for _, k := range keys {
			kn := keyNode(k)
			f.quote(kn)
			n.Content = append(n.Content, kn, f.node(k, v[k]))
		}
		if len(keys) == 0 {
			n.Style = yaml.FlowStyle
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, e := range v {
			n.Content = append(n.Content, f.node("", e))
		}
		if line := f.line(v); line != nil {
			return line
		}
		if len(v) == 0 {
			n.Style = yaml.FlowStyle
		}
		return n
	case string:
		n := stringNode(v)
		if text := f.quote(n); f != nil && blocky(v) && (strings.Contains(v, "\n") ||
			slices.Contains(f.Blocks, key) && (n.Style == yaml.DoubleQuotedStyle || text[0] == '"' || len(v) > f.Line)) {
			n.Style = yaml.LiteralStyle
		}
		return n
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}
	case int64:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v, 10)}
	case float64:
		return floatNode(v)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
}

// rank returns the index of a key in f.Order, or len(f.Order).
func (f *Form) rank(key string) int {
	if i := slices.Index(f.Order, key); i >= 0 {
		return i
	}
	return len(f.Order)
}

// quote returns a string on one line, and gives it double quotes if it needs any.
func (f *Form) quote(n *yaml.Node) string {
	if f == nil {
		return ""
	}
	if strings.ContainsFunc(n.Value, unicode.IsControl) {
		n.Style = yaml.DoubleQuotedStyle
	}
	text, ok := encodeNode(n, n.Value, layout{indent: 2})
	if !ok || text[0] == '\'' {
		n.Style = yaml.DoubleQuotedStyle
		return `"`
	}
	return string(text)
}

// word matches what needs no quotes within brackets either.
var word = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// line returns the node of a list that is short enough for one line, or nil.
func (f *Form) line(l []any) *yaml.Node {
	if f == nil {
		return nil
	}
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
	for _, e := range l {
		switch e.(type) {
		case map[string]any, []any:
			return nil
		}
		c := newNode(e)
		if s, ok := e.(string); ok {
			if f.quote(c); !word.MatchString(s) {
				c.Style = yaml.DoubleQuotedStyle
			}
		}
		n.Content = append(n.Content, c)
	}
	if text, ok := encodeNode(n, l, layout{indent: 2}); !ok || len(text) > f.List+1 {
		return nil
	}
	return n
}

// blocky reports whether a text can be written as a block scalar.
func blocky(s string) bool {
	return s != "" && !strings.HasSuffix(s, "\n") && s[0] != ' ' && s[0] != '\n' &&
		!strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && needsEscape(r) })
}

// needsEscape reports whether a character cannot stand in YAML as it is, or is better not to:
// it would break a line, or show the text around it in another order. Joiners, of which
// emoji and scripts are made, and characters that are newer than Go's tables do neither.
func needsEscape(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || strings.ContainsRune("\u2028\u2029\ufeff\ufffe\uffff", r)
}

// floatNode returns the node of a float, as an integer if it is a whole number that fits. Others
// are written so that they are decoded as floats without a tag: digits alone would be an integer.
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

// stringNode returns the node of a string, with quotes if a YAML 1.1 reader would not take it for
// a string.
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

// dated reports whether other YAML readers may take s for a date or a base 60 number.
func dated(s string) bool {
	if len(s) < 3 || s[0] < '0' || s[0] > '9' {
		return false
	}
	return strings.ContainsAny(s, "-:") && strings.Trim(s, "0123456789-:.tTzZ+ ") == ""
}
