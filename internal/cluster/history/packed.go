package history

import (
	"encoding/binary"
	"strings"
	"time"
)

// maxText bounds one name or path, in bytes. What is longer is cut.
const maxText = 512

// packed is a sequence of numbers and strings without pointers, so that the garbage
// collector has nothing to look at and nothing of a request is retained.
type packed []byte

func (p packed) number(n int64) packed { return binary.AppendVarint(p, n) }

func (p packed) string(s string) packed {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return append(binary.AppendUvarint(p, uint64(len(s))), s...)
}

// paths appends no more than most of them, no more that follow after so many bytes, and
// how many there are more.
func (p packed) paths(paths []string, most, bytes int) packed {
	n := 0
	for n < min(len(paths), most) && bytes > 0 {
		bytes -= min(len(paths[n]), maxText)
		n++
	}
	p = binary.AppendUvarint(p, uint64(n))
	for _, path := range paths[:n] {
		p = p.string(path)
	}
	return binary.AppendUvarint(p, uint64(len(paths)-n))
}

// reader reads what was packed.
type reader struct{ rest packed }

func (r *reader) number() int64 {
	v, n := binary.Varint(r.rest)
	r.rest = r.rest[n:]
	return v
}

func (r *reader) count() int {
	v, n := binary.Uvarint(r.rest)
	r.rest = r.rest[n:]
	return int(v)
}

func (r *reader) time() time.Time { return time.UnixMilli(r.number()).UTC() }

// raw returns a string in place.
func (r *reader) raw() []byte {
	n := r.count()
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *reader) string() string { return strings.ToValidUTF8(string(r.raw()), "\uFFFD") }

func (r *reader) paths() (paths []string, more int) {
	n := r.count()
	if n > 0 {
		paths = make([]string, n)
	}
	for i := range paths {
		paths[i] = r.string()
	}
	return paths, r.count()
}
