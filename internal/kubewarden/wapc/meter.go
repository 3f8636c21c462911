package wapc

import (
	"encoding/binary"
	"slices"
)

// Why modules are rewritten: wazero can check in every loop iteration whether a guest must end,
// but each check leaves the compiled code, so guests with small loops take several times as long.
// And some guests are never stopped: a function that calls itself twice runs for years without a
// loop. Compiled code that does not return stops the garbage collector, and with it the process.
//
// So a module is rewritten before it is compiled. It gets a counter (a global), and code that
// subtracts the cost of the next instructions from it: at the beginning of a function and of each
// loop iteration, after calls in long functions, before operations on much memory and before host
// calls. When the counter is below zero, the code calls tick, which checks the context and adds
// the next slice.
const (
	meterModule = "mapd"
	meterName   = "tick"

	starter = "mapd start" // name of the export that replaces the start section

	slice     = 100_000 // number of instructions between two ticks
	costBulk  = 10_000  // cost of an operation that may touch the whole memory
	longAfter = 512     // a function with more instructions than this charges after its calls
)

// writer writes the rewritten module.
type writer struct {
	out  []byte
	from int // everything read before this offset is copied or replaced

	functions uint32 // index of tick; functions from this index on are renumbered
	charger   uint32 // index of the function that charges
	counter   uint32 // index of the global
}

func (w *writer) copy(b []byte) { w.out = append(w.out, b...) }

func (w *writer) u32(n uint32) { w.out = binary.AppendUvarint(w.out, uint64(n)) }

func (w *writer) index(n uint32) {
	if n >= w.functions {
		n++
	}
	w.u32(n)
}

// bytes appends a string of bytes with its length.
func (w *writer) bytes(b []byte) {
	w.u32(uint32(len(b)))
	w.copy(b)
}

// charge appends code that takes cost from the counter.
func (w *writer) charge(cost int) {
	w.take(func() {
		w.out = append(w.out, 0x41) // i32.const
		w.signed(min(cost, slice))
	})
}

// chargeByCall charges by calling a function. That is slower than charge, but has no branch:
// thousands of branches in one function need too much memory of the compiler.
func (w *writer) chargeByCall(cost int) {
	w.out = append(w.out, 0x41)
	w.signed(min(cost, slice))
	w.out = append(w.out, opCall)
	w.u32(w.charger)
}

// take appends code that subtracts from the counter the value that the code of cost leaves on the
// stack.
func (w *writer) take(cost func()) {
	w.out = append(w.out, opGlobalGet)
	w.u32(w.counter)
	cost()
	w.out = append(w.out, 0x6b, opGlobalSet) // i32.sub
	w.u32(w.counter)
	w.out = append(w.out, opGlobalGet)
	w.u32(w.counter)
	w.out = append(w.out, 0x41, 0, 0x48, opIf, 0x40, opCall) // i32.const 0 i32.lt_s
	w.u32(w.functions)
	w.out = append(w.out, opGlobalSet)
	w.u32(w.counter)
	w.out = append(w.out, opEnd)
}

// signed appends a number that is not negative as signed LEB128.
func (w *writer) signed(n int) {
	for ; n > 0x3f; n >>= 7 {
		w.out = append(w.out, byte(n)|0x80)
	}
	w.out = append(w.out, byte(n))
}

// metered returns the rewritten module, with the counter and without custom sections.
func (m *module) metered(b *bounds) ([]byte, error) {
	w := &writer{
		functions: uint32(len(m.importedTypes)),
		charger:   uint32(len(m.importedTypes) + 1 + len(m.functions)),
		counter:   uint32(m.importedGlobals + m.globals),
	}
	out := append(make([]byte, 0, m.size+m.size/2), header...)
	for _, s := range withSections(m.sections, sectionType, sectionImport, sectionFunction, sectionGlobal, sectionExport, sectionCode) {
		w.out, w.from = w.out[:0], 0
		r := &reader{b: s.body, to: w, globals: uint32(m.importedGlobals + m.globals)}
		switch s.id {
		case sectionType:
			w.list(s.body, len(m.types)+2, 0x60, 0, 1, 0x7f, 0x60, 1, 0x7f, 0) // () -> i32, i32 -> ()
		case sectionImport:
			w.list(s.body, len(m.imports)+1)
			w.bytes([]byte(meterModule))
			w.bytes([]byte(meterName))
			w.copy([]byte{kindFunction})
			w.u32(uint32(len(m.types)))
		case sectionFunction:
			w.list(s.body, len(m.functions)+1)
			w.u32(uint32(len(m.types) + 1))
		case sectionGlobal:
			r.u32()
			w.u32(uint32(m.globals + 1))
			w.from = r.at
			for range m.globals {
				r.skip(2)
				r.constant()
			}
			w.copy(r.b[w.from:])
			w.copy([]byte{0x7f, 1, 0x41, 0, opEnd}) // mutable i32, 0
		case sectionTable:
			w.u32(r.u32())
			for r.more() {
				w.copy([]byte{r.byte(), 1})
				low, high := r.limits()
				if high < 0 || high > int64(b.tableEntries) {
					high = int64(b.tableEntries)
				}
				w.u32(low)
				w.u32(uint32(high))
			}
		case sectionCode:
			m.meterCode(r, b)
		case sectionStart: // handled below
			continue
		case sectionElement:
			(&module{types: m.types}).read(s.id, r, b)
			w.copy(r.b[w.from:])
		case sectionExport:
			// tick must know the running function, so a start function is exported and called
			// like any other.
			more := uint32(0)
			if m.starts {
				more = 1
			}
			w.u32(r.u32() + more)
			w.from, r.at = r.at, 0
			(&module{types: m.types, exports: map[string]uint32{}}).read(s.id, r, b)
			w.copy(r.b[w.from:])
			if m.starts {
				w.bytes([]byte(starter))
				w.copy([]byte{kindFunction})
				w.index(m.start)
			}
		case sectionData:
			m.mergeData(r)
		default:
			w.copy(s.body)
		}
		if r.err != nil {
			return nil, r.err
		}
		out = append(out, s.id)
		out = binary.AppendUvarint(out, uint64(len(w.out)))
		out = append(out, w.out...)
	}
	return out, nil
}

// mergeData joins adjacent data segments: an instance needs time and memory for each, and the Go
// toolchain makes 37,000 of them.
func (m *module) mergeData(r *reader) {
	w := r.to
	type segment struct {
		at   int
		data []byte
	}
	plain := !slices.ContainsFunc(m.sections, func(s section) bool { return s.id == sectionDataCount }) // no segment is used after the start
	var all []segment
	for n := r.u32(); plain && n > 0; n-- {
		plain = r.u32() == 0 && r.byte() == 0x41 // i32.const
		at := int(r.leb(32))
		plain = plain && r.b[r.at-1]&0x40 == 0 && r.byte() == opEnd
		if plain {
			all = append(all, segment{at, slices.Clip(r.skip(r.u32()))})
		}
	}
	slices.SortStableFunc(all, func(a, b segment) int { return a.at - b.at })
	merged := all[:0]
	end := 0
	for _, s := range all {
		const gap = 64
		last := len(merged) - 1
		hole := s.at - end
		plain = plain && hole >= 0 // otherwise the order of the segments matters
		if plain && last >= 0 && hole <= gap {
			merged[last].data = append(append(merged[last].data, make([]byte, hole)...), s.data...)
		} else {
			merged = append(merged, s)
		}
		end = s.at + len(s.data)
	}
	if !plain || int64(end) > int64(m.memoryPages)*pageSize {
		w.copy(r.b)
		return
	}
	w.u32(uint32(len(merged)))
	for _, s := range merged {
		w.copy([]byte{0, 0x41})
		w.signed(s.at)
		w.copy([]byte{opEnd})
		w.bytes(s.data)
	}
}

// list appends a section's list with a new length and further elements.
func (w *writer) list(body []byte, n int, more ...byte) {
	r := reader{b: body}
	r.u32()
	w.u32(uint32(n))
	w.copy(body[r.at:])
	w.copy(more)
}

// withSections returns sections with empty sections added for the ids that are missing.
func withSections(sections []section, ids ...byte) []section {
	sections = slices.Clone(sections)
	for _, id := range ids {
		at, found := slices.BinarySearchFunc(sections, id, func(s section, id byte) int {
			return sectionOrder[s.id] - sectionOrder[id]
		})
		if !found {
			sections = slices.Insert(sections, at, section{id, []byte{0}})
		}
	}
	return sections
}

func (m *module) meterCode(r *reader, b *bounds) {
	w := r.to
	r.u32()
	w.u32(uint32(m.bodies + 1))
	body := *w
	body.out = nil
	for i := range m.bodies {
		f := function{reader: reader{b: r.skip(r.u32()), globals: r.globals}, module: m, params: m.types[m.functions[i]].params}
		f.read(b)
		if f.err != nil {
			r.fail("%w", f.err)
			return
		}
		body.out, body.from = body.out[:0], 0
		f.meter(&body)
		w.bytes(body.out)
	}
	body.out = append(body.out[:0], 0)                         // no locals
	body.take(func() { body.out = append(body.out, 0x20, 0) }) // local.get
	body.out = append(body.out, opEnd)
	w.bytes(body.out)
}

// meter writes the function with its charges. read has been called before.
func (f *function) meter(w *writer) {
	r := &reader{b: f.b, to: w, globals: f.globals}
	for range r.u32() {
		r.u32()
		r.byte()
	}
	// flush copies what was read, except the last bytes.
	flush := func(but int) {
		w.copy(r.b[w.from : r.at-but])
		w.from = r.at - but
	}
	flush(0)
	w.charge(f.instructions + f.frame()/frameUnit)
	loop := 0
	for n := 1; r.more(); n++ {
		switch op := r.byte(); op {
		case opLoop:
			r.leb(33)
			flush(0)
			w.charge(f.loops[loop])
			loop++
		case opBlock, opIf:
			r.leb(33)
		case opElse, opEnd:
		case opBr, opBrIf:
			r.u32()
		case opBrTable:
			for range int(r.u32()) + 1 {
				r.u32()
			}
		case opCall, opCallBy, opTailCall, opTailBy:
			if op == opCall || op == opTailCall {
				at := r.at
				index := r.u32()
				r.at = at
				if index < w.functions {
					flush(1)
					w.chargeByCall(slice)
				}
			}
			r.immediates(op)
			if f.instructions > longAfter && (op == opCall || op == opCallBy) {
				flush(0)
				w.chargeByCall(f.instructions - n)
			}
		case opGrow:
			flush(1)
			w.chargeByCall(costBulk)
			r.immediates(op)
		case opBulk:
			at := r.at
			sub := r.u32()
			r.at = at
			if sub > 7 {
				flush(1)
				w.chargeByCall(costBulk)
			}
			r.immediates(op)
		default:
			r.immediates(op)
		}
	}
	w.copy(r.b[w.from:])
}
