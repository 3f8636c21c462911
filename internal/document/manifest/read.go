package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReadError reports that a file could not be read at all, or not to its end.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

// An Input is a text with a name.
type Input struct {
	Name string
	Open func() (io.ReadCloser, error)
}

// Inputs returns files (as Files returns them) as inputs of at most MaxFile bytes.
func Inputs(files []string, stdin io.Reader) []Input { return inputs(files, stdin, MaxFile) }

// Streams is Inputs for files of which only one document at a time is in memory. They have at
// most MaxStream bytes.
func Streams(files []string, stdin io.Reader) []Input { return inputs(files, stdin, MaxStream) }

func inputs(files []string, stdin io.Reader, max int64) []Input {
	inputs := make([]Input, len(files))
	for i, file := range files {
		inputs[i] = Input{Name: file, Open: func() (io.ReadCloser, error) {
			f, err := Open(file, max)
			return f, fileError(err)
		}}
		if file == Stdin {
			inputs[i] = Input{Name: "<stdin>", Open: func() (io.ReadCloser, error) { return io.NopCloser(Bounded(stdin, max)), nil }}
		}
	}
	return inputs
}

// Read yields the documents of inputs one by one; only one is in memory. With a
// *PositionError that document is skipped and reading continues; with a *ReadError
// it continues with the next input.
func Read(inputs []Input) iter.Seq2[*Document, error] {
	return func(yield func(*Document, error) bool) {
		for _, in := range inputs {
			if !readInput(in, yield) {
				return
			}
		}
	}
}

func readInput(in Input, yield func(*Document, error) bool) bool {
	r, err := in.Open()
	if err != nil {
		return yield(nil, &ReadError{err})
	}
	defer r.Close()
	return readStream(in.Name, r, ofFile, yield)
}

// limits bound a stream.
type limits struct {
	document  int // bytes of one document
	documents int
}

var (
	ofFile   = limits{MaxDocument, MaxDocuments}
	ofStream = limits{MaxDocument, maxStreamed}
)

// ReadStream yields the documents of one stream, as Read does, but up to maxStreamed of them.
func ReadStream(name string, r io.Reader) iter.Seq2[*Document, error] {
	return func(yield func(*Document, error) bool) {
		readStream(name, r, ofStream, yield)
	}
}

// ReadWhole yields the documents of one stream with Lists as they are, and with what has no
// kind.
func ReadWhole(name string, r io.Reader) iter.Seq2[*Document, error] {
	return func(yield func(*Document, error) bool) {
		chunks(name, r, ofFile, func(c chunk, err error) bool {
			if err != nil {
				return yield(nil, err)
			}
			return yield(newDocument(name, c))
		})
	}
}

func readStream(name string, r io.Reader, limit limits, yield func(*Document, error) bool) bool {
	wrong, enough := 0, true
	done := chunks(name, r, limit, func(c chunk, err error) bool {
		if err != nil {
			return yield(nil, err)
		}
		return understand(name, c, func(d *Document, err error) bool {
			if err == nil {
				return yield(d, nil)
			}
			if wrong++; wrong > maxWrong {
				enough = false
				return false
			}
			return yield(nil, err)
		})
	})
	if !enough {
		return yield(nil, &ReadError{fmt.Errorf("%s: more than %d documents cannot be read, so the rest is not read", name, maxWrong)})
	}
	return done
}

// maxWrong is how many documents of a stream may be wrong before reading it ends: it is
// something else than manifests.
const maxWrong = 1000

// chunks yields the texts of a stream's documents; an error, of reading, is the
// last.
func chunks(name string, r io.Reader, limit limits, yield func(chunk, error) bool) bool {
	s := newSplitter(r, limit.document)
	for {
		c, err := s.next()
		if err == io.EOF {
			return true
		}
		if err == nil && c.index > limit.documents {
			err = tooMany(limit.documents)
		}
		if err != nil {
			return yield(chunk{}, &ReadError{withName(name, err)})
		}
		if !yield(c, nil) {
			return false
		}
	}
}

// Copy copies a stream of documents. It ends with an error where reading them would, so that
// no more is copied of what is no such stream.
func Copy(w io.Writer, name string, r io.Reader) (failed error) {
	chunks(name, io.TeeReader(r, w), ofStream, func(_ chunk, err error) bool {
		failed = err
		return err == nil
	})
	return failed
}

// understand yields what is in a chunk: a document, the items of a List, or an
// error.
func understand(name string, c chunk, yield func(*Document, error) bool) bool {
	doc, err := newDocument(name, c)
	if err != nil {
		return yield(nil, err)
	}
	return doc.open(yield)
}

var errNoObject = errors.New("the document is not an object with apiVersion and kind")

// newDocument understands a chunk.
func newDocument(file string, c chunk) (*Document, error) {
	d := &Document{File: file, Index: c.index, Line: c.line, Raw: c.text, Explicit: c.explicit, JSON: c.json, text: c.text, first: c.line}
	fail := func(err error) error {
		e := &PositionError{File: file, Document: c.index, Line: c.line, Err: err}
		var le *lineError
		if errors.As(err, &le) && le.Line > 0 {
			e.Line, e.Column = c.line+le.Line-1, le.Column
			e.Source = d.sourceLine(e.Line)
		}
		return e
	}
	if c.err != nil {
		return nil, fail(c.err)
	}
	var v any
	if c.json {
		blank := len(c.text) - len(bytes.TrimLeft(c.text, " \t\r\n"))
		d.Line += bytes.Count(c.text[:blank], []byte("\n"))
		var err error
		if v, err = decodeJSON(c.text); err != nil {
			return nil, fail(err)
		}
	} else {
		root, around, err := parseYAML(c.text)
		if err != nil {
			return nil, fail(err)
		}
		if root == nil {
			return d, nil // comments
		}
		d.node, d.around = root, around
		d.Line = c.line + root.Line - 1
		if v, err = convert(root); err != nil {
			return nil, fail(err)
		}
		if v == nil {
			return d, nil // "---\n# nothing\nnull"
		}
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fail(errNoObject)
	}
	d.Object, d.source = &unstructured.Unstructured{Object: reviewOf(m)}, m
	return d, nil
}

// reviewOf returns the AdmissionReview for an AdmissionRequest that stands by itself or
// in a review without type, which are the request files of kwctl (Kubewarden spec
// §7.1). Anything else it returns as it is.
func reviewOf(m map[string]any) map[string]any {
	if _, typed := m["apiVersion"]; typed {
		return m
	}
	request, ok := m["request"].(map[string]any)
	if !ok {
		request = m
	}
	_, kind := request["kind"].(map[string]any)
	_, operation := request["operation"].(string)
	if !kind || !operation {
		return m
	}
	return map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
}

// check refuses what cannot be an object.
func check(d *Document) error {
	for _, field := range []string{"kind", "apiVersion"} {
		spelling := strings.Replace(field, "k", "K", 1) // as the server has it
		switch v, ok := d.Object.Object[field]; {
		case !ok || v == nil || v == "":
			return d.Errorf("Object '%s' is missing", spelling)
		case !isString(v):
			return d.ErrorAt(field, fmt.Errorf("%s must be a string, not %v", field, v))
		}
	}
	if _, err := schema.ParseGroupVersion(d.Object.GetAPIVersion()); err != nil {
		return d.ErrorAt("apiVersion", err)
	}
	meta, ok := d.Object.Object["metadata"]
	if !ok || meta == nil {
		return nil
	}
	m, ok := meta.(map[string]any)
	if !ok {
		return d.ErrorAt("metadata", errors.New("metadata must be an object"))
	}
	for _, field := range []string{"name", "namespace", "generateName"} {
		if v := m[field]; v != nil && !isString(v) {
			return d.ErrorAt("metadata."+field, fmt.Errorf("metadata.%s must be a string, not %v", field, v))
		}
	}
	return nil
}

func isString(v any) bool {
	_, ok := v.(string)
	return ok
}
