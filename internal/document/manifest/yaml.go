package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
)

// maxDepth bounds the nesting of collections, as in the JSON decoder of the API server.
const maxDepth = 10_000

// lineError is an error at a line of a text, 1-based.
type lineError struct {
	Pos
	err error
}

func (e *lineError) Error() string { return e.err.Error() }
func (e *lineError) Unwrap() error { return e.err }

func at(n *yaml.Node, err error) error {
	return &lineError{Pos{n.Line, n.Column}, err}
}

var (
	yamlLine    = regexp.MustCompile(`^yaml: line (\d+): `)
	yamlAnchor  = regexp.MustCompile(`^yaml: unknown anchor '(.*)' referenced$`)
	parserError = regexp.MustCompile(`^(did not find expected (<document start>|node content|key|'-' indicator|',' or )|found (undefined tag handle|duplicate %))`)
)

// parseYAML reads the one document in text. The root is nil when there are only
// comments; those that belong to the document and not to the root are returned
// as well.
func parseYAML(text []byte) (root *yaml.Node, around comments, err error) {
	// The parser panics on some malformed inputs instead of returning an error.
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, fmt.Errorf("not YAML: %v", r)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if err == io.EOF {
			return nil, comments{}, nil
		}
		return nil, comments{}, yamlError(err, text)
	}
	switch err := dec.Decode(&more); {
	case err == io.EOF:
	case err != nil:
		return nil, comments{}, yamlError(err, text)
	default:
		return nil, comments{}, at(&more, errors.New("there is more after the end of the document"))
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, comments{}, nil
	}
	return doc.Content[0], comments{doc.HeadComment, doc.FootComment}, nil
}

// comments stand before and after a document's root.
type comments struct{ head, foot string }

// yamlError returns an error with the line that the library's text names, and without it in the
// text. The library's parser counts lines from 0, its scanner from 1.
func yamlError(err error, text []byte) error {
	msg := err.Error()
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		line, _ := strconv.Atoi(m[1])
		msg = msg[len(m[0]):]
		if parserError.MatchString(msg) {
			line++
		}
		return &lineError{Pos{Line: line}, errors.New(msg)}
	}
	if m := yamlAnchor.FindStringSubmatch(msg); m != nil {
		if i := bytes.Index(text, []byte("*"+m[1])); i >= 0 {
			return &lineError{Pos{Line: 1 + bytes.Count(text[:i], []byte("\n"))}, errors.New(strings.TrimPrefix(msg, "yaml: "))}
		}
	}
	return errors.New(strings.TrimPrefix(msg, "yaml: "))
}

// maxAliases bounds the bytes to which the aliases of a document expand. Their targets are
// decoded once and shared, but code that walks or prints a tree visits every use. The bound is
// the size of the largest object that a server accepts.
const maxAliases = 3 << 20

// converter turns nodes into a tree.
type converter struct {
	budget int
	values map[*yaml.Node]any // of anchors
	sizes  map[*yaml.Node]extent
}

// extent is the size of a node with all its aliases expanded.
type extent struct{ bytes, height int }

func convert(n *yaml.Node) (any, error) {
	c := &converter{budget: maxAliases, values: map[*yaml.Node]any{}, sizes: map[*yaml.Node]extent{}}
	return c.value(n, 0)
}

func (c *converter) value(n *yaml.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, at(n, fmt.Errorf("nested deeper than %d levels", maxDepth))
	}
	switch n.Kind {
	case yaml.AliasNode:
		target, err := c.alias(n, depth)
		if err != nil {
			return nil, err
		}
		v, ok := c.values[target]
		if !ok {
			if v, err = c.value(target, depth); err != nil {
				return nil, err
			}
			c.values[target] = v
		}
		return v, nil
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			v, err := c.value(item, depth+1)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	case yaml.MappingNode:
		return c.mapping(n, depth)
	case yaml.ScalarNode:
		v, err := resolveScalar(n)
		if err != nil {
			return nil, at(n, err)
		}
		return v, nil
	}
	return nil, at(n, errors.New("not a value"))
}

func (c *converter) mapping(n *yaml.Node, depth int) (map[string]any, error) {
	m := make(map[string]any, len(n.Content)/2)
	var merged map[string]bool // keys that came from << and may be overridden
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if isMerge(k) {
			if merged == nil {
				merged = map[string]bool{}
			}
			if err := c.merge(v, m, merged, depth); err != nil {
				return nil, err
			}
			continue
		}
		if k.Kind == yaml.AliasNode {
			target, err := c.alias(k, depth)
			if err != nil {
				return nil, err
			}
			k = target
		}
		key, err := resolveKey(k)
		if err != nil {
			return nil, at(n.Content[i], err)
		}
		if _, ok := m[key]; ok && !merged[key] {
			hint := ""
			if depth == 0 && (key == "apiVersion" || key == "kind") {
				hint = `; is a line "---" missing before it?`
			}
			return nil, at(n.Content[i], fmt.Errorf("key %q already set in map%s", key, hint))
		}
		delete(merged, key)
		if m[key], err = c.value(v, depth+1); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func isMerge(k *yaml.Node) bool {
	return k.Kind == yaml.ScalarNode && k.Value == "<<" && k.Style&^yaml.TaggedStyle == 0 && k.ShortTag() == "!!merge"
}

// merge adds the pairs of a << value that m does not have yet. Of several
// mappings the earlier wins.
func (c *converter) merge(v *yaml.Node, m map[string]any, merged map[string]bool, depth int) error {
	sources := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		sources = v.Content
	}
	for _, source := range sources {
		got, err := c.value(source, depth+1)
		if err != nil {
			return err
		}
		pairs, ok := got.(map[string]any)
		if !ok {
			return at(source, errors.New("map merge requires map or sequence of maps as the value"))
		}
		for k, v := range pairs {
			if _, ok := m[k]; !ok {
				m[k] = v
				merged[k] = true
			}
		}
	}
	return nil
}

// alias charges the expansion of n to the budget, and returns the node to which n refers.
func (c *converter) alias(n *yaml.Node, depth int) (*yaml.Node, error) {
	e, err := c.extent(n)
	if err != nil {
		return nil, err
	}
	c.budget -= e.bytes
	if c.budget < 0 {
		return nil, at(n, fmt.Errorf("the aliases of the document expand to more than %d MiB", maxAliases>>20))
	}
	if depth+e.height > maxDepth {
		return nil, at(n, fmt.Errorf("nested deeper than %d levels", maxDepth))
	}
	return n.Alias, nil
}

// CheckAliases returns an error if the aliases of a YAML document in text, or in a string in
// it, expand to more than those of an object may. Text that is not YAML has none.
func CheckAliases(text []byte) error { return checkAliases(text, maxNested) }

// maxNested bounds how deep YAML within strings of YAML is checked.
const maxNested = 3

func checkAliases(text []byte, nested int) (err error) {
	if nested == 0 || bytes.IndexByte(text, '&') < 0 || bytes.IndexByte(text, '*') < 0 {
		return nil
	}
	defer func() {
		if recover() != nil { // see parseYAML
			err = nil
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		if dec.Decode(&doc) != nil {
			return nil
		}
		c := &converter{budget: maxAliases, sizes: map[*yaml.Node]extent{}}
		if err := c.charge(&doc, nested); err != nil {
			return err
		}
	}
}

// charge charges the budget with all aliases in n.
func (c *converter) charge(n *yaml.Node, nested int) error {
	switch n.Kind {
	case yaml.AliasNode:
		_, err := c.alias(n, 0)
		return err
	case yaml.ScalarNode:
		return checkAliases([]byte(n.Value), nested-1)
	}
	for _, child := range n.Content {
		if err := c.charge(child, nested); err != nil {
			return err
		}
	}
	return nil
}

// extent measures a node. Sums stop growing at what no budget allows.
func (c *converter) extent(n *yaml.Node) (extent, error) {
	if n.Kind == yaml.AliasNode {
		if n.Alias == nil {
			return extent{}, at(n, fmt.Errorf("unknown anchor '%s' referenced", n.Value))
		}
		e, ok := c.sizes[n.Alias]
		if ok && e.bytes < 0 {
			return extent{}, at(n, fmt.Errorf("anchor '%s' value contains itself", n.Value))
		}
		if !ok {
			c.sizes[n.Alias] = extent{bytes: -1} // being measured
			var err error
			if e, err = c.extent(n.Alias); err != nil {
				return extent{}, err
			}
			c.sizes[n.Alias] = e
		}
		return e, nil
	}
	e := extent{bytes: len(n.Value) + 1}
	for _, child := range n.Content {
		ce, err := c.extent(child)
		if err != nil {
			return extent{}, err
		}
		e.bytes = min(e.bytes+ce.bytes, maxAliases+1)
		e.height = max(e.height, ce.height+1)
	}
	return e, nil
}

// decodeJSON reads one JSON value; a key given twice is an error.
func decodeJSON(text []byte) (any, error) {
	var v any
	strict, err := kjson.UnmarshalStrict(text, &v, kjson.DisallowDuplicateFields)
	if err != nil {
		if ok, offset := kjson.SyntaxErrorOffset(err); ok {
			return nil, &lineError{Pos{Line: 1 + bytes.Count(text[:min(int(offset), len(text))], []byte("\n"))}, err}
		}
		return nil, err
	}
	return v, errors.Join(strict...)
}
