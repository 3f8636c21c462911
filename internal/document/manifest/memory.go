package manifest

import (
	"bytes"
	"io"
)

// A Memory reads texts repeatedly, of which most do not change between two calls, as in an
// editor. It reuses the documents of unchanged parts. The zero value is ready to use.
type Memory struct {
	texts  map[Text][]*piece
	pieces map[pieceID]*piece
}

// A Text is the content of a file.
type Text struct{ Name, Content string }

// pieceID has everything on which the result for a piece depends.
type pieceID struct {
	Text
	line, index int
	explicit    bool
}

// Read returns the documents and errors that Read yields.
func (m *Memory) Read(texts []Text) (docs []*Document, errs []error) {
	now := Memory{map[Text][]*piece{}, map[pieceID]*piece{}}
	for _, t := range texts {
		pieces, ok := m.texts[t]
		if !ok {
			pieces = m.cut(t)
		}
		now.texts[t] = pieces
		for _, p := range pieces {
			now.pieces[p.id] = p
			docs, errs = append(docs, p.docs...), append(errs, p.errs...)
			if p.err != nil {
				errs = append(errs, p.err)
			}
		}
	}
	*m = now
	return docs, errs
}

// cut returns the pieces of a text, and reuses unchanged ones.
func (m *Memory) cut(t Text) (out []*piece) {
	for p := range cut(Input{Name: t.Name, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte(t.Content))), nil
	}}) {
		c := &p.chunk
		p.id = pieceID{Text{t.Name, string(c.text)}, c.line, c.index, c.explicit}
		switch known, ok := m.pieces[p.id]; {
		case p.err != nil:
		case ok && c.err == nil && known.err == nil:
			p = known
		default:
			p.understand(func(*Document) {})
		}
		out = append(out, p)
	}
	return out
}
