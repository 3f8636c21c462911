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
	// Object is nil if the document has only comments.
	Object *unstructured.Unstructured
	// File is the path as given, or "<stdin>".
	File string
	// Index is the number of the document in its file, from 1; Line the line of
	// its first key.
	Index int
	Line  int
	// Raw is the text of the document without the "---" before it, unless that line has more
	// text. For an item of a List, it is the text that the item would have as a document.
	Raw []byte
	// Explicit: a "---" preceded Raw.
	Explicit bool
	// JSON: Raw is JSON.
	JSON bool

	text  []byte // of the whole document, for source lines
	first int    // the line of text's first byte
	node  *yaml.Node
	// around has the comments before and after the root.
	around comments
	// source is the tree that node describes. It is the tree of Object, except that an item of a
	// List may omit its kind.
	source map[string]any
	item   bool      // an item of a List, or a part of a document
	parent *Document // the List of an item, or the whole document
	at     int       // index in parent's items
	inJSON bool      // the text of its List is JSON
	packed []byte    // the object as JSON, see Pack
	list   *listText // the text of the List of an item
	path   []int     // for a packed item: its indices in the Lists around it, the innermost first
}

// listText is the text of a List. It is parsed again if the position of a field in a packed item
// is needed.
type listText struct {
	text []byte
	once sync.Once
	node *yaml.Node
}

func (w *listText) root() *yaml.Node {
	w.once.Do(func() { w.node, _, _ = parseYAML(w.text) })
	return w.node
}

// Name returns the object's kind and name for messages, with the namespace if it has one.
func (d *Document) Name() string {
	if d.Object == nil {
		return "comments"
	}
	return Name(d.Object)
}

// Name returns the name of an object for messages: "Pod shop/web".
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

// Where returns the position of the document: "file.yaml: document 3, line 57".
func (d *Document) Where() string {
	return fmt.Sprintf("%s: document %d, line %d", d.File, d.Index, d.Line)
}

// Errorf returns an error at the document's first line.
func (d *Document) Errorf(format string, args ...any) *PositionError {
	return &PositionError{File: d.File, Document: d.Index, Line: d.Line, Err: fmt.Errorf(format, args...)}
}

// ErrorAt returns err with the position of the field that path names (in the form of field.Path),
// or of the nearest parent that exists.
func (d *Document) ErrorAt(path string, err error) *PositionError {
	pos := d.LineOf(path)
	return d.errorAt(pos, err)
}

// ErrorAtKey is ErrorAt for a field that should not exist: the position is that of its name, not
// of its value.
func (d *Document) ErrorAtKey(path string, err error) *PositionError {
	if _, key := lookup(d.root(), path); key != nil {
		return d.errorAt(Pos{d.first + key.Line - 1, key.Column}, err)
	}
	return d.ErrorAt(path, err)
}

// ErrorIn returns err with the position in the file of a character. line and column (1-based) are
// its position in text, the string that path names (see PosIn), however the file writes that
// string.
func (d *Document) ErrorIn(path, text string, line, column int, err error) *PositionError {
	return d.errorAt(d.PosIn(path, text, line, column), err)
}

func (d *Document) errorAt(pos Pos, err error) *PositionError {
	return &PositionError{File: d.File, Document: d.Index, Line: pos.Line, Column: pos.Column, Source: d.sourceLine(pos.Line), Err: err}
}

// saysSecret finds a Secret in a text, even if the text is no valid YAML or JSON. It does not
// find a kind that is written with an alias, a tag or an escape.
var saysSecret = regexp.MustCompile(`\bkind["']?\s*:\s*["']?Secret(List)?\b`)

// mayTell reports whether a line of the document may contain data of a Secret. That is also true
// for a List and for a document that cannot be read, because they may contain Secrets.
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

// root returns the document's syntax tree, nil if there is none (some JSON is not YAML).
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

// Part returns the object at a path of the document as a Document, whose errors have positions in
// the whole one. The caller may have replaced texts in the object.
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
