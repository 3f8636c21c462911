package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxDocument is the size of one document in bytes. An object that a server
// takes has at most 3 MiB; a List of many may have more, and ten times that
// still fits the memory of a small machine.
const MaxDocument = 32 << 20

// endless is the size of a document after which its end is not searched any more.
const endless = 2 * MaxDocument

// chunk is the text of one document.
type chunk struct {
	text  []byte
	line  int // of the first byte of text, 1-based
	index int // of the document in its stream, 1-based
	// explicit: a line "---" that is not part of text stood before it.
	explicit bool
	json     bool
	err      error // why this document cannot be read; the next ones can
}

// splitter cuts a stream into documents without understanding them: YAML
// documents at markers (a line that begins with "---" or "..."), JSON ones
// where their braces close. A marker ends a document even inside a block scalar
// or a quoted string: YAML forbids the three characters there at the beginning
// of a line, and an indented "---" is not a marker.
type splitter struct {
	r     *bufio.Reader
	max   int
	line  int    // lines read
	index int    // documents begun
	carry []byte // a line that was read and belongs to the next document
}

func newSplitter(r io.Reader, limit int) *splitter {
	size := 64 << 10
	if text, ok := r.(interface{ Len() int }); ok { // in memory already, and often a few lines
		size = min(size, text.Len()+1)
	}
	return &splitter{r: bufio.NewReaderSize(r, size), max: limit}
}

var (
	utf8BOM   = []byte("\xef\xbb\xbf")
	utf16BE   = []byte("\xfe\xff")
	utf16LE   = []byte("\xff\xfe")
	errTooBig = fmt.Errorf("the document is larger than %d MiB", MaxDocument>>20)
	// errNoEnd ends reading, because searching for the end of such a document could take for
	// ever.
	errNoEnd   = fmt.Errorf("a document is larger than %d MiB and does not end", endless>>20)
	errNotUTF8 = errors.New("the text is UTF-16, not UTF-8")
)

// next returns the next document that is not blank, or io.EOF. Any other error
// is one of reading and ends the stream; what is wrong with one document stands
// in its chunk.
func (s *splitter) next() (chunk, error) {
	for {
		d := unfinished{chunk: chunk{line: s.line + 1}}
		err := s.fill(&d)
		if err != nil && err != io.EOF {
			return chunk{}, err
		}
		if d.content || d.begun {
			s.index++ // an empty document between two markers counts
		}
		if d.content {
			d.index = s.index
			return d.chunk, nil
		}
		if err == io.EOF {
			return chunk{}, io.EOF
		}
	}
}

// unfinished is a document while its lines are read.
type unfinished struct {
	chunk
	begun     bool // its marker was read
	content   bool // there is more than white space
	directive bool // a %directive waits for its marker
	braces    *braces
	size      int // of the text that was read, also of what is dropped
}

// fill reads lines up to the end of the document, and io.EOF if that is the end
// of the stream as well.
func (s *splitter) fill(d *unfinished) error {
	for {
		line, err := s.readLine()
		if d.size += len(line); err == errTooBig {
			d.size += s.max
		}
		if err == errNoEnd || d.size > endless {
			return errNoEnd
		}
		if err == errTooBig || (err == nil || err == io.EOF) && len(d.text)+len(line) > s.max {
			d.err, d.text, d.content, d.braces = errTooBig, nil, true, nil
		} else if err != nil && err != io.EOF {
			return err
		}
		if s.line == 1 {
			if bytes.HasPrefix(line, utf16BE) || bytes.HasPrefix(line, utf16LE) {
				d.err, d.content = errNotUTF8, true
				if _, err := io.Copy(io.Discard, s.r); err != nil {
					return err
				}
				return io.EOF
			}
			line = bytes.TrimPrefix(line, utf8BOM)
		}
		if s.add(d, line) {
			return nil
		}
		if err == io.EOF {
			return io.EOF
		}
	}
}

// add appends one more line to the unfinished document and reports whether it is
// complete.
func (s *splitter) add(d *unfinished, line []byte) (done bool) {
	rest, mark := marker(line)
	switch {
	case mark == '-' && d.directive:
		d.directive = false
	case mark != 0 && (d.begun || d.content):
		if mark == '-' {
			s.unread(line)
		}
		return true
	case mark == '.':
		return false
	case mark == '-':
		d.begun = true
		if len(bytes.TrimSpace(rest)) == 0 {
			d.explicit, d.line, d.text = true, s.line+1, d.text[:0]
			return false
		}
		// "--- # why" and "--- {a: b}": the line itself is text.
		d.line, d.text, d.content = s.line, d.text[:0], true
	default:
		trimmed := bytes.TrimSpace(line)
		if !d.content && len(trimmed) > 0 && trimmed[0] == '{' {
			d.braces = &braces{}
		}
		if len(line) > 0 && line[0] == '%' && !d.begun && onlyComments(d.text) {
			d.directive = true
		}
		d.content = d.content || len(trimmed) > 0
	}
	if d.err != nil {
		return false
	}
	start := len(d.text)
	d.text = append(d.text, line...)
	if d.braces == nil {
		return false
	}
	end, closed := d.braces.scan(d.text, start)
	if !closed {
		return false
	}
	if !json.Valid(d.text[:end]) {
		d.braces = nil // YAML in braces, which ends at a marker
		return false
	}
	d.json = true
	if rest := d.text[end:]; len(bytes.TrimSpace(rest)) > 0 {
		s.unread(rest)
		d.text = d.text[:end:end]
	}
	return true
}

func (s *splitter) unread(line []byte) {
	s.carry = bytes.Clone(line)
	s.line--
}

// readLine returns one line with its newline. A line that is longer than a
// document may be is read to its end and dropped.
func (s *splitter) readLine() ([]byte, error) {
	s.line++
	if s.carry != nil {
		line := s.carry
		s.carry = nil
		return line, nil
	}
	line, err := s.r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	long, size := bytes.Clone(line), len(line)
	for err == bufio.ErrBufferFull {
		line, err = s.r.ReadSlice('\n')
		if size += len(line); size > endless {
			return nil, errNoEnd
		}
		if len(long) <= s.max {
			long = append(long, line...)
		}
	}
	if len(long) > s.max && (err == nil || err == io.EOF) {
		return nil, errTooBig
	}
	return long, err
}

// marker returns '-' or '.' if the line is a document marker, and what follows it.
func marker(line []byte) (rest []byte, mark byte) {
	if len(line) < 3 || (line[0] != '-' && line[0] != '.') || line[1] != line[0] || line[2] != line[0] {
		return nil, 0
	}
	rest = line[3:]
	if len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' && rest[0] != '\n' && rest[0] != '\r' {
		return nil, 0
	}
	return rest, line[0]
}

// onlyComments reports whether text has no content yet, so that a line beginning
// with % is a directive.
func onlyComments(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// braces follows the nesting of a JSON text that grows.
type braces struct {
	depth            int
	inString, escape bool
}

// scan continues at start and returns the offset after the brace that closes the
// first one, if it is there.
func (b *braces) scan(text []byte, start int) (end int, closed bool) {
	for i := start; i < len(text); i++ {
		switch c := text[i]; {
		case b.escape:
			b.escape = false
		case b.inString:
			b.escape = c == '\\'
			b.inString = c != '"'
		case c == '"':
			b.inString = true
		case c == '{' || c == '[':
			b.depth++
		case c == '}' || c == ']':
			b.depth--
			if b.depth <= 0 {
				return i + 1, true
			}
		}
	}
	return 0, false
}
