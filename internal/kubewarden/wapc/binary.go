package wapc

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Section ids of the WebAssembly binary format.
const (
	sectionCustom    = 0
	sectionType      = 1
	sectionImport    = 2
	sectionFunction  = 3
	sectionTable     = 4
	sectionMemory    = 5
	sectionGlobal    = 6
	sectionExport    = 7
	sectionStart     = 8
	sectionElement   = 9
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
)

const (
	kindFunction = 0
	kindTable    = 1
	kindMemory   = 2
	kindGlobal   = 3
)

var errEnd = errors.New("the module ends in the middle of something")

// reader reads the parts of a module. After the first error every read returns zero.
type reader struct {
	b   []byte
	at  int
	err error
	to  *writer // copies what is read; nil if the module is only checked

	globals uint32 // the number of globals
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.at = len(r.b)
}

func (r *reader) more() bool { return r.err == nil && r.at < len(r.b) }

func (r *reader) byte() byte {
	if r.at >= len(r.b) {
		if r.err == nil {
			r.err = errEnd
		}
		return 0
	}
	r.at++
	return r.b[r.at-1]
}

// leb reads a LEB128 number of at most the given number of bits, signed or unsigned. It returns
// the low 32 bits only.
func (r *reader) leb(bits int) uint32 {
	var v uint64
	for i := 0; i < (bits+6)/7; i++ {
		b := r.byte()
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return uint32(v)
		}
	}
	r.fail("a number is longer than its type allows")
	return 0
}

func (r *reader) u32() uint32 { return r.leb(32) }

// count reads the length of a list. Every element takes at least one byte, so the length is
// bounded by the bytes that are left.
func (r *reader) count(what string, limit int) int {
	n := r.u32()
	if int64(n) > int64(limit) {
		r.fail("%d %s, more than %d", n, what, limit)
		return 0
	}
	if int(n) > len(r.b)-r.at {
		r.fail("%d %s do not fit into the section", n, what)
		return 0
	}
	return int(n)
}

func (r *reader) skip(n uint32) []byte {
	if int64(n) > int64(len(r.b)-r.at) {
		r.fail("%w", errEnd)
		return nil
	}
	r.at += int(n)
	return r.b[r.at-int(n) : r.at]
}

func (r *reader) name() string {
	b := r.skip(r.u32())
	if !utf8.Valid(b) {
		r.fail("a name is not UTF-8")
		return ""
	}
	return string(b)
}

// signature is how many values a function takes and returns.
type signature struct {
	params, results int
	plain           bool // no parameter and no result
}

// Import is a function or another item that a module imports from its host.
type Import struct {
	Module string `json:"module"`
	Name   string `json:"name"`
	Kind   string `json:"kind"`
}

// section is one section of a module.
type section struct {
	id   byte
	body []byte
}

// module has what mapd reads from a module before it is compiled.
type module struct {
	size     int
	sections []section // without custom sections
	metadata []byte    // content of the metadata section; nil if there is none

	types           []signature
	imports         []Import
	importedTypes   []uint32 // of the functions
	importedGlobals int
	functions       []uint32          // type of each function defined here
	exports         map[string]uint32 // functions by name
	exportsMemory   bool
	exportsStarter  bool
	start           uint32 // index of the start function
	starts          bool   // there is a start function
	memoryPages     uint32 // initial size
	tableEntries    uint32 // initial entries of all tables
	globals         int
	bodies          int
	work            int
}

var header = []byte("\x00asm\x01\x00\x00\x00")

// readBinary reads a module. It returns an error if the module is broken or exceeds the bounds.
// Time and memory are proportional to the size of the module.
func readBinary(wasm []byte, bounds *bounds) (*module, error) {
	switch {
	case len(wasm) > bounds.module:
		return nil, fmt.Errorf("the module has %d bytes, more than %d", len(wasm), bounds.module)
	case !bytes.HasPrefix(wasm, header[:4]):
		return nil, errors.New(`not a WebAssembly module: it does not begin with "\0asm"`)
	case !bytes.HasPrefix(wasm, header):
		return nil, errors.New("not a WebAssembly module of version 1; components are not supported")
	}
	m := &module{size: len(wasm), exports: map[string]uint32{}}
	r := &reader{b: wasm, at: len(header)}
	last := 0
	for r.more() {
		id := r.byte()
		body := r.skip(r.u32())
		if r.err != nil {
			break
		}
		s := &reader{b: body, globals: uint32(m.importedGlobals)}
		if id > sectionGlobal {
			s.globals += uint32(m.globals)
		}
		if id == sectionCustom {
			if name := s.name(); s.err == nil && name == metadataSection && m.metadata == nil {
				m.metadata = body[s.at:]
			}
			if s.err != nil {
				return nil, fmt.Errorf("custom section: %w", s.err)
			}
			continue
		}
		place, ok := sectionOrder[id]
		if !ok {
			return nil, fmt.Errorf("section %d is not supported", id)
		}
		if place <= last {
			return nil, fmt.Errorf("section %d is out of order or there twice", id)
		}
		last = place
		m.read(id, s, bounds)
		if s.err == nil && s.at != len(s.b) {
			s.fail("%d bytes are left over", len(s.b)-s.at)
		}
		if s.err != nil {
			return nil, fmt.Errorf("section %d: %w", id, s.err)
		}
		m.sections = append(m.sections, section{id, body})
	}
	if r.err != nil {
		return nil, r.err
	}
	if m.bodies != len(m.functions) {
		return nil, fmt.Errorf("%d functions are declared and %d have code", len(m.functions), m.bodies)
	}
	return m, nil
}

// sectionOrder has the required order of sections.
var sectionOrder = map[byte]int{
	sectionType: 1, sectionImport: 2, sectionFunction: 3, sectionTable: 4, sectionMemory: 5, sectionGlobal: 6,
	sectionExport: 7, sectionStart: 8, sectionElement: 9, sectionDataCount: 10, sectionCode: 11, sectionData: 12,
}

func (m *module) read(id byte, r *reader, b *bounds) {
	switch id {
	case sectionType:
		for range r.count("types", b.items) {
			m.types = append(m.types, r.functionType(b))
		}
	case sectionImport:
		for range r.count("imports", b.imports) {
			m.readImport(r)
		}
	case sectionFunction:
		m.functions = make([]uint32, r.count("functions", b.functions))
		for i := range m.functions {
			m.functions[i] = r.u32()
			if int(m.functions[i]) >= len(m.types) {
				r.fail("function %d has type %d, which does not exist", i, m.functions[i])
				return
			}
		}
	case sectionTable:
		for range r.count("tables", b.tables) {
			r.byte() // element type
			n, _ := r.limits()
			m.tableEntries = addCapped(m.tableEntries, n)
		}
		if int64(m.tableEntries) > int64(b.tableEntries) {
			r.fail("tables of %d entries, more than %d", m.tableEntries, b.tableEntries)
		}
	case sectionMemory:
		if n := r.count("memories", 1); n == 1 {
			m.memoryPages, _ = r.limits()
			if int64(m.memoryPages) > int64(b.memoryPages) {
				r.fail("the memory begins with %d pages of 64 KiB, more than %d", m.memoryPages, b.memoryPages)
			}
		}
	case sectionGlobal:
		m.globals = r.count("globals", b.items)
		for range m.globals {
			r.byte() // type
			r.byte() // mutable
			r.constant()
			r.globals++
		}
	case sectionExport:
		for range r.count("exports", b.items) {
			name, kind := r.name(), r.byte()
			m.exportsStarter = m.exportsStarter || name == starter
			switch kind {
			case kindFunction:
				m.exports[name] = r.functionIndex()
			case kindMemory:
				m.exportsMemory = m.exportsMemory || name == "memory"
				r.u32()
			case kindGlobal:
				r.globalIndex()
			default:
				r.u32()
			}
		}
	case sectionStart:
		m.start, m.starts = r.functionIndex(), true
		if s, ok := m.signatureOf(m.start); r.err == nil && ok && !s.plain {
			r.fail("the start function takes or returns values")
		}
	case sectionDataCount:
		r.u32()
	case sectionElement:
		r.elements(b)
	case sectionCode:
		m.readCode(r, b)
	case sectionData:
		for range r.count("data segments", b.items) {
			switch flag := r.u32(); flag {
			case 0:
				r.constant()
			case 1:
			case 2:
				r.u32()
				r.constant()
			default:
				r.fail("data segment of kind %d", flag)
			}
			r.skip(r.u32())
		}
	}
}

// globalIndex reads the index of a global, and refuses one that does not exist: in the rewritten
// module that would be the counter, see metered.
func (r *reader) globalIndex() {
	if n := r.u32(); r.err == nil && n >= r.globals {
		r.fail("global %d does not exist", n)
	}
}

// addCapped returns a+b, or the largest uint32 if the sum is larger.
func addCapped(a, b uint32) uint32 {
	if sum := a + b; sum >= a {
		return sum
	}
	return ^uint32(0)
}

func (r *reader) functionType(b *bounds) signature {
	if form := r.byte(); form != 0x60 {
		r.fail("type of form 0x%02x is not supported", form)
		return signature{}
	}
	var s signature
	s.params = r.count("parameters", b.arity)
	r.skip(uint32(s.params))
	s.results = r.count("results", b.values)
	r.skip(uint32(s.results))
	s.plain = s.params+s.results == 0
	return s
}

func (r *reader) limits() (low uint32, high int64) {
	flag := r.byte()
	if flag > 1 {
		r.fail("shared and 64-bit memories are not supported")
		return 0, 0
	}
	low, high = r.u32(), -1
	if flag == 1 {
		high = int64(r.u32())
	}
	return low, high
}

func (m *module) readImport(r *reader) {
	i := Import{Module: r.name(), Name: r.name()}
	switch kind := r.byte(); kind {
	case kindFunction:
		i.Kind = "function"
		typ := r.u32()
		if r.err == nil && int(typ) >= len(m.types) {
			r.fail("import %s.%s has type %d, which does not exist", i.Module, i.Name, typ)
		}
		m.importedTypes = append(m.importedTypes, typ)
	case kindTable:
		i.Kind = "table"
		r.byte()
		r.limits()
	case kindMemory:
		i.Kind = "memory"
		r.limits()
	case kindGlobal:
		i.Kind = "global"
		r.byte()
		r.byte()
		m.importedGlobals++
	default:
		r.fail("import of kind %d is not supported", kind)
	}
	m.imports = append(m.imports, i)
}

// signatureOf returns the signature of a function by its index, the imported ones
// included; ok is false if there is none.
func (m *module) signatureOf(index uint32) (s signature, ok bool) {
	n := int(index)
	of := m.importedTypes
	if n >= len(of) {
		n, of = n-len(of), m.functions
	}
	if n >= len(of) {
		return signature{}, false
	}
	return m.types[of[n]], true
}
