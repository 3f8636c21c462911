package manifest

import (
	"bytes"
	"encoding/json"
	"runtime"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Pack stores the object as JSON, which takes a tenth of the memory. Afterwards Object has only
// its kind and name, JSONText returns all of it, and Raw of an item of a List is empty. Documents
// that are to be rewritten must not be packed.
func (d *Document) Pack() {
	if d.Object == nil || d.item && d.parent == nil || d.packed != nil {
		return
	}
	text, err := json.Marshal(d.Object.Object)
	if err != nil {
		return
	}
	head := map[string]any{"apiVersion": d.Object.Object["apiVersion"], "kind": d.Object.Object["kind"]}
	if meta, ok := d.Object.Object["metadata"].(map[string]any); ok {
		names := map[string]any{}
		for _, field := range []string{"name", "namespace", "generateName"} {
			if v, ok := meta[field]; ok {
				names[field] = v
			}
		}
		head["metadata"] = names
	}
	d.packed, d.node, d.source = text, nil, nil
	if d.item {
		// A List would keep the syntax tree and the objects of all its items in memory.
		for p := d; p.parent != nil; p = p.parent {
			d.path = append(d.path, p.at)
		}
		d.parent, d.Raw = nil, []byte{}
	} else if cap(d.text) > len(d.text) {
		// A clone frees the unused capacity of the slice, which may be as large as the text.
		d.text = bytes.Clone(d.text)
		d.Raw = d.text
	}
	d.Object = &unstructured.Unstructured{Object: head}
}

// JSONText is the object as JSON.
func (d *Document) JSONText() ([]byte, error) {
	if d.packed != nil {
		return d.packed, nil
	}
	return json.Marshal(d.Object.Object)
}

// ReadAll is Read for documents that are needed together. It parses documents on all cores, and
// calls each for every one of them there, so each has to be safe for concurrent use. Documents and
// errors are in the order of Read. The items of a List are parsed one by one if each packs all of
// them. If it does not, the List is parsed again as a whole, and each is called again for all
// items; only these documents are returned.
func ReadAll(inputs []Input, each func(*Document)) ([]*Document, []error) {
	var all []*piece
	pieces := make(chan *piece, 64)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for p := range pieces {
				if !p.packItems(each) {
					p.understand(each)
				}
			}
		})
	}
	for _, in := range inputs {
		for p := range cut(in) {
			all = append(all, p)
			if p.err == nil {
				pieces <- p
			}
		}
	}
	close(pieces)
	workers.Wait()

	var docs []*Document
	var errs []error
	for _, p := range all {
		docs = append(docs, p.docs...)
		if errs = append(errs, p.errs...); p.err != nil {
			errs = append(errs, p.err)
		}
	}
	return docs, errs
}

// piece is a part of a file with the documents in it; err is an error of reading.
type piece struct {
	file  string
	chunk chunk
	err   error
	id    pieceID // in a Memory

	docs []*Document
	errs []error
}

// cut yields the pieces of an input.
func cut(in Input) func(yield func(*piece) bool) {
	return func(yield func(*piece) bool) {
		r, err := in.Open()
		if err != nil {
			yield(&piece{err: &ReadError{err}})
			return
		}
		defer r.Close()
		chunks(in.Name, r, ofFile, func(c chunk, err error) bool {
			return yield(&piece{file: in.Name, chunk: c, err: err})
		})
	}
}

func (p *piece) understand(each func(*Document)) {
	understand(p.file, p.chunk, func(d *Document, err error) bool {
		if err != nil {
			p.errs = append(p.errs, err)
			return true
		}
		each(d)
		p.docs = append(p.docs, d)
		return true
	})
	p.chunk = chunk{}
}
