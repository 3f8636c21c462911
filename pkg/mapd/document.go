package mapd

import (
	"fmt"
	"io"
	"iter"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/policyset"
)

// A Document is one object of a text, and where it stands. It does not change.
type Document struct{ doc *manifest.Document }

// Read returns the documents of a text one by one, so that a stream of any length needs the
// memory of its largest document. It returns the items of a List as documents of their own.
// After an *Error, which is about one document, reading goes on; a *ReadError is the last
// element.
func Read(name string, r io.Reader) iter.Seq2[*Document, error] {
	return documents(manifest.ReadStream(name, r))
}

// ReadWhole is Read, but returns each List as one document, and documents without a kind too.
func ReadWhole(name string, r io.Reader) iter.Seq2[*Document, error] {
	return documents(manifest.ReadWhole(name, r))
}

func documents(read iter.Seq2[*manifest.Document, error]) iter.Seq2[*Document, error] {
	return func(yield func(*Document, error) bool) {
		for d, err := range read {
			if err != nil {
				if !yield(nil, located(err)) {
					return
				}
			} else if !yield(&Document{d}, nil) {
				return
			}
		}
	}
}

// A Memory reads texts that change little: it does not parse a document again that it returned
// in the Read before. The zero value is usable. It must not be used by two goroutines at once.
type Memory struct{ memory manifest.Memory }

// Read returns the documents of files, and the errors that the function Read would return. It
// drops the documents of files that are not passed any more.
func (m *Memory) Read(files ...File) (docs []*Document, errs []error) {
	texts := make([]manifest.Text, len(files))
	for i, f := range files {
		texts[i] = manifest.Text{Name: f.Name, Content: string(f.Data)}
	}
	read, errs := m.memory.Read(texts)
	for i, err := range errs {
		errs[i] = located(err)
	}
	for _, d := range read {
		docs = append(docs, &Document{d})
	}
	return docs, errs
}

// Object returns the object as it is written, nil for a document of nothing but
// comments. Callers must not modify it.
func (d *Document) Object() *unstructured.Unstructured { return d.doc.Object }

// Name returns kind and name, such as "Pod shop/web".
func (d *Document) Name() string { return d.doc.Name() }

// Where returns the position, such as "pods.yaml: document 3, line 57".
func (d *Document) Where() string { return d.doc.Where() }

// IsContext reports whether the object is one that says how others are evaluated: a
// policy, binding, mutator, definition or Namespace.
func (d *Document) IsContext() bool { return policyset.IsContext(d.Object().GroupVersionKind()) }

// Text returns the document as it is written. The "---" line before it is included only if that
// line has more than the dashes. Callers must not modify the text.
func (d *Document) Text() []byte { return d.doc.Raw }

// Separated reports whether a "---" stood before Text.
func (d *Document) Separated() bool { return d.doc.Explicit }

// JSON reports whether Text is JSON.
func (d *Document) JSON() bool { return d.doc.JSON }

// Errorf returns an error at the first line of the document.
func (d *Document) Errorf(format string, args ...any) *Error {
	return (*Error)(d.doc.Errorf(format, args...))
}

// Part returns the object at a path of the document, such as cases[0].object, as a document of
// its own. object is its content, in which the caller may have replaced texts. Errors of the
// new document have positions in the whole one.
func (d *Document) Part(path string, object map[string]any) (*Document, error) {
	part, err := d.doc.Part(path, object)
	if err != nil {
		return nil, located(err)
	}
	return &Document{part}, nil
}

// ErrorAt returns err with the position of the field at path, which has the form of field.Path.
// If there is no such field, the position is that of the nearest field that contains it.
func (d *Document) ErrorAt(path string, err error) *Error {
	return (*Error)(d.doc.ErrorAt(path, err))
}

// ErrorAtKey is ErrorAt with the position of the field's key, for a field that should not
// exist.
func (d *Document) ErrorAtKey(path string, err error) *Error {
	return (*Error)(d.doc.ErrorAtKey(path, err))
}

// PosIn returns the line and column in the file of a character of text, which is the string at
// path. line and column are the position of the character in text.
func (d *Document) PosIn(path, text string, line, column int) (int, int) {
	pos := d.doc.PosIn(path, text, line, column)
	return pos.Line, pos.Column
}

// Edit returns an edit that changes the document's object to after.
func (d *Document) Edit(after map[string]any) Edit {
	return Edit{manifest.Edit{Document: d.doc, After: after}}
}

// objectID identifies an object in all versions of its API group.
type objectID struct{ group, kind, namespace, name string }

func identify(u *unstructured.Unstructured, namespace string) objectID {
	gvk := u.GroupVersionKind()
	return objectID{gvk.Group, gvk.Kind, namespace, u.GetName()}
}

// Objects are the objects before an update, for RequestOptions.Old.
type Objects struct {
	name string
	docs map[objectID]*Document
}

// Objects collects documents. name is how errors call the collection. It returns the errors of
// docs, and one for each object that occurs twice.
func (p *Policies) Objects(name string, docs iter.Seq2[*Document, error]) (*Objects, []error) {
	o := &Objects{name: name, docs: map[objectID]*Document{}}
	var errs []error
	for d, err := range docs {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if d.Object() == nil {
			continue
		}
		res, known := p.loaded.Types.ResourceFor(d.Object().GroupVersionKind())
		id := identify(d.Object(), namespaceOf(d.Object(), res.Namespaced || !known, p.namespace))
		if first, ok := o.docs[id]; ok && id.name != "" {
			errs = append(errs, (*Error)(d.doc.ErrorAt("metadata.name", fmt.Errorf("%s is given twice, first in %s", d.Name(), first.Where()))))
			continue
		}
		o.docs[id] = d
	}
	return o, errs
}

// Len returns how many objects there are.
func (o *Objects) Len() int { return len(o.docs) }
