package manifest

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Document is one object and its position. It must not be modified.
type Document struct {
	// Object is nil for a document of nothing but comments.
	Object *unstructured.Unstructured
	// File is the path as given, or "<stdin>".
	File string
	// Index is the number of the document in its file, from 1; Line the line of
	// its first key.
	Index int
	Line  int
	// Raw is the text of the document without the "---" before it, except where
	// that line says more. An item of a List has the text that it would have had
	// on its own.
	Raw []byte
	// Explicit: a "---" preceded Raw.
	Explicit bool
	// JSON: Raw is JSON.
	JSON bool

	text  []byte // of the whole document, for source lines
	first int    // the line of text's first byte
	node  *yaml.Node
	// around are the comments that the root does not have.
	around comments
	// source is the tree that node stands for: Object's, except that an item of
	// a List may have left its kind to the List.
	source map[string]any
	item   bool      // one of a List's, or a part of a document
	parent *Document // the List of an item
	at     int       // in parent's items
	inJSON bool      // the text of its List is JSON
	packed []byte    // the object as JSON, see Pack
	list   *listText // the text of the List of an item
	path   []int     // of a packed item: its places in the Lists around it, the innermost first
}

// listText is the text of a List. It is parsed again if an item that is packed has to say where
// something stands.
type listText struct {
	text []byte
	once sync.Once
	node *yaml.Node
}

func (w *listText) root() *yaml.Node {
	w.once.Do(func() { w.node, _, _ = parseYAML(w.text) })
	return w.node
}

// Name is how messages call the object: kind and name, with the namespace where
// there is one.
func (d *Document) Name() string {
	if d.Object == nil {
		return "comments"
	}
	return Name(d.Object)
}

// Name is how messages call an object: "Pod shop/web".
func Name(u *unstructured.Unstructured) string {
	name := u.GetName()
	if name == "" && u.GetGenerateName() != "" {
		name = u.GetGenerateName() + "…"
	}
	kind := u.GetKind()
	if kind == "" {
		kind = "object"
	}
	if name == "" {
		return kind
	}
	if ns := u.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return kind + " " + name
}

// Where is the position of the document: "file.yaml: document 3, line 57".
func (d *Document) Where() string {
	return fmt.Sprintf("%s: document %d, line %d", d.File, d.Index, d.Line)
}

// Errorf is an error at the document's first line.
func (d *Document) Errorf(format string, args ...any) *PositionError {
	return &PositionError{File: d.File, Document: d.Index, Line: d.Line, Err: fmt.Errorf(format, args...)}
}

// ErrorAt is err at the field that path names (as field.Path prints it), or at
// the nearest thing around it that the document has.
func (d *Document) ErrorAt(path string, err error) *PositionError {
	pos := d.LineOf(path)
	return d.errorAt(pos, err)
}

// ErrorAtKey is ErrorAt for a field that should not be there: its name is at
// fault, not its value.
func (d *Document) ErrorAtKey(path string, err error) *PositionError {
	if _, key := lookup(d.root(), path); key != nil {
		return d.errorAt(Pos{d.first + key.Line - 1, key.Column}, err)
	}
	return d.ErrorAt(path, err)
}

// ErrorIn is err at a line and column (1-based) of text, the string that path
// names (see PosIn): where in the file that character stands, whichever way the
// string is written.
func (d *Document) ErrorIn(path, text string, line, column int, err error) *PositionError {
	return d.errorAt(d.PosIn(path, text, line, column), err)
}

func (d *Document) errorAt(pos Pos, err error) *PositionError {
	return &PositionError{File: d.File, Document: d.Index, Line: pos.Line, Column: pos.Column, Source: d.sourceLine(pos.Line), Err: err}
}

// saysSecret finds a Secret in a text that need not be YAML or JSON. A kind that is written with
// an alias, a tag or an escape is not found.
var saysSecret = regexp.MustCompile(`\bkind["']?\s*:\s*["']?Secret(List)?\b`)

// mayTell reports whether a line of the document may be data of a Secret. A List, and what
// cannot be read, may be one with Secrets in it.
func (d *Document) mayTell() bool {
	if d.Object != nil && !strings.HasSuffix(d.Object.GetKind(), "List") {
		return d.Object.GetKind() == "Secret"
	}
	return saysSecret.Match(d.text)
}

// sourceLine returns a line of the file, "" if it may be data of a Secret.
func (d *Document) sourceLine(line int) string {
	if d.mayTell() {
		return ""
	}
	text := d.text
	for n := d.first; n < line; n++ {
		i := bytes.IndexByte(text, '\n')
		if i < 0 {
			return ""
		}
		text = text[i+1:]
	}
	if line < d.first {
		return ""
	}
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		text = text[:i]
	}
	return strings.TrimSuffix(string(text), "\r")
}

// root is the document's syntax tree, or nil if it has none (some JSON is not
// YAML).
func (d *Document) root() *yaml.Node {
	switch {
	case d.node != nil:
	case d.path != nil:
		n := d.list.root()
		for _, at := range slices.Backward(d.path) {
			if n = itemOf(n, at); n == nil {
				break
			}
		}
		d.node = n
	case !d.item && (d.JSON || d.packed != nil):
		d.node, _, _ = parseYAML(d.text)
	}
	return d.node
}

// itemOf returns an item of a List; nil if that has no such one.
func itemOf(list *yaml.Node, at int) *yaml.Node {
	n, _ := lookup(list, "items")
	if n == nil || n.Kind != yaml.SequenceNode || at >= len(n.Content) {
		return nil
	}
	return n.Content[at]
}

// Part returns the object at a path of the document, in the form of field.Path, as a
// document of its own whose errors have the positions of the whole one. The caller may
// have replaced texts in the object.
func (d *Document) Part(path string, object map[string]any) (*Document, error) {
	part := &Document{
		Object: &unstructured.Unstructured{Object: object}, File: d.File, Index: d.Index, Line: d.Line, Raw: Encode(object),
		text: d.text, first: d.first, source: object, item: true, inJSON: d.JSON || d.inJSON,
	}
	if n, _ := lookup(d.root(), path); n != nil {
		part.node, part.Line = n, d.first+n.Line-1
	}
	if err := check(part); err != nil {
		return nil, err
	}
	return part, nil
}
