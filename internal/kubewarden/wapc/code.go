package wapc

// bounds limit the parts of a module. The compiler's time and memory grow faster than the module,
// and neither a deadline nor a memory limit can stop it, so its input is bounded.
type bounds struct {
	module       int // bytes
	items        int // types, globals, exports and segments, each
	imports      int
	arity        int // parameters of one function
	values       int // results of one function, parameters or results of a block
	functions    int
	tables       int
	tableEntries int
	elements     int // in all segments
	memoryPages  int
	body         int // bytes of one function
	locals       int // of one function, with parameters
	allLocals    int // of all functions
	depth        int // of nested blocks
	labels       int // of the br_tables of one function
	work         int // of one function, see function.work
	allWork      int // of all functions
}

// MaxModule is the largest size of a module, in bytes.
const MaxModule = 32 << 20

// defaultBounds allow more than any known module needs. The largest modules that we have seen
// have 3.3 MB, functions of 30 kB, 813 locals, blocks nested 549 deep, and an estimated work of
// 16 s; they compile in 1.3 s.
func defaultBounds() bounds {
	return bounds{
		module: MaxModule, items: 100_000, imports: 1000, arity: 1000, values: 32, functions: 100_000, tables: 16, tableEntries: 1 << 20,
		elements: 1 << 20, memoryPages: 65536, body: 256 << 10, locals: 10_000, allLocals: 2 << 20, depth: 5000, labels: 50_000,
		work: 16e9, allWork: 64e9,
	}
}

// readCode reads each function as far as the cost to compile it depends on it: locals, and blocks
// with their nesting.
func (m *module) readCode(r *reader, b *bounds) {
	m.bodies = r.count("functions with code", b.functions)
	if m.bodies != len(m.functions) {
		r.fail("%d functions are declared and %d have code", len(m.functions), m.bodies)
		return
	}
	var locals, work int
	for i := range m.bodies {
		size := r.u32()
		if int64(size) > int64(b.body) {
			r.fail("function %d has %d bytes, more than %d", i, size, b.body)
			return
		}
		f := function{reader: reader{b: r.skip(size), globals: r.globals}, module: m, params: m.types[m.functions[i]].params}
		f.read(b)
		if locals += f.locals; f.err == nil && locals > b.allLocals {
			f.fail("all functions so far have %d locals, more than %d", locals, b.allLocals)
		}
		if work += f.work(); f.err == nil && work > b.allWork {
			f.fail("all functions so far would keep the compiler busy for about %d s, more than %d", work/1e9, b.allWork/1e9)
		}
		if f.err != nil {
			r.fail("function %d: %w", i, f.err)
			return
		}
	}
	m.work = work
}

// function is one function while its code is read.
type function struct {
	reader
	module *module
	params int

	locals       int
	blocks       int // blocks and branches
	instructions int
	results      int   // results of calls, except the first of each
	nested       int   // the sum of the nesting depths of all loops
	loops        []int // number of instructions of each loop, in the order of their beginnings
}

func (f *function) read(b *bounds) {
	f.locals = f.params
	for range f.count("groups of locals", b.locals) {
		n := f.u32()
		f.byte() // type
		if int64(f.locals)+int64(n) > int64(b.locals) {
			f.fail("%d locals, more than %d", int64(f.locals)+int64(n), b.locals)
			return
		}
		f.locals += int(n)
	}
	open := []int{-1} // open blocks: the index of a loop, or -1
	within := 0       // number of open loops
	labels := 0
	for f.err == nil && len(open) > 0 {
		op := f.byte()
		f.instructions++
		switch op {
		case opBlock, opLoop, opIf:
			f.blockType(b)
			f.blocks++
			if len(open) >= b.depth {
				f.fail("blocks are nested more than %d deep", b.depth)
			}
			loop := -1
			if op == opLoop {
				loop, f.loops = len(f.loops), append(f.loops, -f.instructions)
				within++
				f.nested += within
			}
			open = append(open, loop)
		case opElse:
			f.blocks++
		case opEnd:
			if loop := open[len(open)-1]; loop >= 0 {
				f.loops[loop] += f.instructions
				within--
			}
			open = open[:len(open)-1]
		case opBrTable:
			n := f.count("labels of a br_table", b.labels)
			if labels += n; f.err == nil && labels > b.labels {
				f.fail("the br_tables have %d labels, more than %d", labels, b.labels)
			}
			for range n + 1 {
				f.u32()
				f.blocks++
			}
		case opBr, opBrIf:
			f.u32()
			f.blocks++
		case opCall, opCallBy:
			f.call(op)
		default:
			f.immediates(op)
		}
	}
	if f.err == nil && f.more() {
		f.fail("code follows its end")
	}
	if work := f.work(); f.err == nil && work > b.work {
		f.fail("%d instructions, %d locals and %d branches would keep the compiler busy for about %d s, more than %d",
			f.instructions, f.locals, f.blocks, work/1e9, b.work/1e9)
	}
}

// blockType reads the type of a block. It bounds the values of the block, because the compiler
// passes each of them through each branch.
func (f *function) blockType(b *bounds) {
	at := f.at
	if f.byte()&0xc0 == 0x40 {
		return // at most one result
	}
	f.at = at
	n := f.leb(33)
	switch {
	case f.err != nil:
	case int64(n) >= int64(len(f.module.types)):
		f.fail("a block has type %d, which does not exist", n)
	case f.module.types[n].params > b.values:
		f.fail("a block takes %d values, more than %d", f.module.types[n].params, b.values)
	case f.module.types[n].params > 0:
		f.blocks++ // measured: loops of 16 values take a third longer to compile
	}
}

// call counts the results of a call: the compiler loads each result except the first from the
// stack, even if it is not used.
func (f *function) call(op byte) {
	at := f.at
	index := f.u32()
	f.at = at
	var s signature
	if op == opCall {
		s, _ = f.module.signatureOf(index)
	} else if int64(index) < int64(len(f.module.types)) {
		s = f.module.types[index]
	}
	f.results += max(0, s.results-1)
	f.immediates(op)
}

// work estimates the worst-case time to compile the function, in nanoseconds. The compiler visits
// each local in each block, and once more for each loop around the block; the values that are
// live in each block; and each instruction. Real code needs a tenth of the estimate. The factors
// were measured with BenchmarkWorstModules. That of results stands for memory instead of time: up
// to 550 bytes each.
func (f *function) work() int {
	return 3000*f.locals*(f.blocks+f.nested+1) + 20*f.instructions*f.blocks + 6000*f.instructions + 32_000*f.results
}

// frame estimates the worst-case stack of a call of the function, in bytes: the compiler may
// store each local of each block, and each result, in a separate slot.
func (f *function) frame() int {
	return 8 * (f.locals*(f.blocks+1) + f.instructions + f.results)
}

// frameUnit is the number of stack bytes that are charged like one instruction. So between two
// ticks the stack grows by at most slice*frameUnit bytes, or by one frame.
const frameUnit = 40

const (
	opBlock    = 0x02
	opLoop     = 0x03
	opIf       = 0x04
	opElse     = 0x05
	opEnd      = 0x0b
	opBr       = 0x0c
	opBrIf     = 0x0d
	opBrTable  = 0x0e
	opCall     = 0x10
	opCallBy   = 0x11 // call_indirect
	opTailCall = 0x12
	opTailBy   = 0x13
	opGrow     = 0x40 // memory.grow
	opBulk     = 0xfc
	opRefFunc  = 0xd2

	opGlobalGet = 0x23
	opGlobalSet = 0x24
)

// immediates reads the operands of an instruction that is neither a block nor a branch.
func (r *reader) immediates(op byte) {
	switch {
	case op == 0x00, op == 0x01, op == 0x0f, op == 0x1a, op == 0x1b, op >= 0x45 && op <= 0xc4, op == 0xd1:
	case op == opCall, op == opTailCall, op == opRefFunc:
		r.functionIndex()
	case op == opCallBy, op == opTailBy:
		r.u32()
		r.u32()
	case op == 0x1c: // select with types
		r.skip(uint32(r.count("types of a select", 1)))
	case op == opGlobalGet, op == opGlobalSet:
		r.globalIndex()
	case op >= 0x20 && op <= 0x26: // locals and tables
		r.u32()
	case op >= 0x28 && op <= 0x3e: // loads and stores
		r.memarg()
	case op == 0x3f, op == opGrow: // size and growth of the memory
		r.byte()
	case op == 0x41:
		r.leb(32)
	case op == 0x42:
		r.leb(64)
	case op == 0x43:
		r.skip(4)
	case op == 0x44:
		r.skip(8)
	case op == 0xd0:
		r.byte() // type of a null reference
	case op == opBulk:
		r.bulk()
	case op == 0xfd:
		r.vector()
	default:
		r.fail("instruction 0x%02x is not supported", op)
	}
}

func (r *reader) memarg() {
	r.u32()
	r.u32()
}

// functionIndex reads the index of a function, and adjusts it if the module is being rewritten.
func (r *reader) functionIndex() (index uint32) {
	start := r.at
	index = r.u32()
	if r.to != nil {
		r.to.copy(r.b[r.to.from:start])
		r.to.index(index)
		r.to.from = r.at
	}
	return index
}

// bulk reads the operands after the prefix of conversions and bulk operations.
func (r *reader) bulk() {
	switch op := r.u32(); {
	case op <= 7: // saturating conversions
	case op == 8: // memory.init
		r.u32()
		r.byte()
	case op == 9, op == 13, op >= 15 && op <= 17: // data.drop, elem.drop, table.grow, table.size, table.fill
		r.u32()
	case op == 10: // memory.copy
		r.byte()
		r.byte()
	case op == 11: // memory.fill
		r.byte()
	case op == 12, op == 14: // table.init, table.copy
		r.u32()
		r.u32()
	default:
		r.fail("instruction 0xfc %d is not supported", op)
	}
}

// vector reads the operands after the prefix of vector instructions.
func (r *reader) vector() {
	switch op := r.u32(); {
	case op <= 11, op == 92, op == 93: // loads and a store
		r.memarg()
	case op == 12, op == 13: // a constant, a shuffle
		r.skip(16)
	case op >= 21 && op <= 34: // one lane
		r.byte()
	case op >= 84 && op <= 91: // one lane of memory
		r.memarg()
		r.byte()
	case op <= 255:
	default:
		r.fail("instruction 0xfd %d is not supported", op)
	}
}

// constant reads a constant expression, such as the initial value of a global.
func (r *reader) constant() {
	for r.err == nil {
		switch op := r.byte(); op {
		case opEnd:
			return
		case opGlobalGet, 0x41, 0x42, 0x43, 0x44, 0x6a, 0x6b, 0x6c, 0x7c, 0x7d, 0x7e, 0xd0, opRefFunc:
			r.immediates(op)
		case 0xfd:
			if r.u32() != 12 {
				r.fail("a constant is computed by an instruction that is not supported")
			}
			r.skip(16)
		default:
			r.fail("a constant is computed by instruction 0x%02x", op)
		}
	}
}

// elements reads the segments that fill tables.
func (r *reader) elements(b *bounds) {
	all := 0
	for range r.count("element segments", b.items) {
		flag := r.u32()
		if flag > 7 {
			r.fail("element segment of kind %d", flag)
			return
		}
		if flag&1 == 0 { // an active segment, copied when the instance starts
			if flag&2 != 0 {
				r.u32() // table
			}
			r.constant()
		}
		if flag&3 != 0 {
			r.byte() // kind or type
		}
		n := r.count("elements", b.elements)
		if all += n; all > b.elements {
			r.fail("%d elements, more than %d", all, b.elements)
			return
		}
		for range n {
			if flag&4 != 0 {
				r.constant()
			} else {
				r.functionIndex()
			}
		}
	}
}
