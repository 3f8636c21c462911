package history

import (
	"encoding/binary"
	"strings"
	"time"
)

// maxText bounds a name or path, in bytes. Longer ones are cut.
const maxText = 512

// packed is a sequence of numbers and strings without pointers. So the garbage collector does not
// have to scan it, and it retains nothing of a request.
type packed []byte

func (p packed) number(n int64) packed { return binary.AppendVarint(p, n) }

func (p packed) string(s string) packed {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return append(binary.AppendUvarint(p, uint64(len(s))), s...)
}

// paths appends at most most paths, and no more after so many bytes, and then the number of paths
// left out.
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

// reader reads packed data.
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

// raw returns a string without copying it.
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
