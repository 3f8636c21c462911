package manifest

// A Memory reads inputs of which most stays as it is from one time to the next, such as
// texts while somebody writes. It keeps what it read last, and that is not read again. The
// zero value is usable.
type Memory struct{ last map[pieceID]*piece }

// pieceID is all that a document depends on.
type pieceID struct {
	file, text  string
	line, index int
	explicit    bool
}

// Read returns the documents and errors that Read yields.
func (m *Memory) Read(inputs []Input) (docs []*Document, errs []error) {
	now := map[pieceID]*piece{}
	for _, in := range inputs {
		for p := range cut(in) {
			if p.err != nil {
				errs = append(errs, p.err)
				continue
			}
			id := pieceID{p.file, string(p.chunk.text), p.chunk.line, p.chunk.index, p.chunk.explicit}
			if known, ok := m.last[id]; ok && p.chunk.err == nil {
				p = known
			} else {
				p.understand(func(*Document) {})
			}
			now[id] = p
			docs, errs = append(docs, p.docs...), append(errs, p.errs...)
		}
	}
	m.last = now
	return docs, errs
}
