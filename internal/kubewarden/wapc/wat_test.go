package wapc

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// wat assembles a module from the text format of WebAssembly, as much of it as the
// guests of these tests need: no folded instructions, no names but of functions and locals,
// i32 and i64 only. Every module gets the nine imports of waPC, under their own names
// ($guest_request and so on), and one memory that it exports.
//
//	(import "m" "f" (func $f (param i32) (result i32)))
//	(memory 1) (global i32 5) (table 1 10) (data 16 "text") (start $f) (export "h" $f)
//	(func $g (export "g") (param $a i32) (result i32) (local $b i32) local.get $a i32.const 1 i32.add)
func wat(t testing.TB, text string) []byte {
	t.Helper()
	a := &assembler{t: t, functions: map[string]int{}}
	a.tokens = tokenize(wapcImports + text)
	for len(a.tokens) > 0 {
		a.field()
	}
	return a.module()
}

const wapcImports = `
(import "wapc" "__guest_request" (func $guest_request (param i32 i32)))
(import "wapc" "__guest_response" (func $guest_response (param i32 i32)))
(import "wapc" "__guest_error" (func $guest_error (param i32 i32)))
(import "wapc" "__console_log" (func $console_log (param i32 i32)))
(import "wapc" "__host_call" (func $host_call (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(import "wapc" "__host_response_len" (func $host_response_len (result i32)))
(import "wapc" "__host_response" (func $host_response (param i32)))
(import "wapc" "__host_error_len" (func $host_error_len (result i32)))
(import "wapc" "__host_error" (func $host_error (param i32)))
`

func tokenize(text string) (tokens []string) {
	for text != "" {
		switch c := text[0]; {
		case unicode.IsSpace(rune(c)):
			text = text[1:]
		case c == ';':
			_, text, _ = strings.Cut(text, "\n")
		case c == '(' || c == ')':
			tokens, text = append(tokens, text[:1]), text[1:]
		case c == '"':
			q, _ := strconv.QuotedPrefix(text)
			tokens, text = append(tokens, q), text[len(q):]
		default:
			n := strings.IndexFunc(text, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("();\"", r) })
			if n < 0 {
				n = len(text)
			}
			tokens, text = append(tokens, text[:n]), text[n:]
		}
	}
	return tokens
}

type assembler struct {
	t         testing.TB
	tokens    []string
	functions map[string]int
	locals    map[string]int

	types, imports, defined, exports, code, globals, datas [][]byte
	table, memory, start, elements                         []byte
	bodies                                                 []func()
}

func (a *assembler) next() string {
	if len(a.tokens) == 0 {
		a.t.Fatal("the text ends in the middle")
	}
	token := a.tokens[0]
	a.tokens = a.tokens[1:]
	return token
}

// peek reports whether a list of that name follows, and enters it.
func (a *assembler) enter(name string) bool {
	if len(a.tokens) > 1 && a.tokens[0] == "(" && a.tokens[1] == name {
		a.tokens = a.tokens[2:]
		return true
	}
	return false
}

func (a *assembler) leave() {
	if token := a.next(); token != ")" {
		a.t.Fatalf("%q instead of )", token)
	}
}

func (a *assembler) text() []byte {
	s, err := strconv.Unquote(a.next())
	if err != nil {
		a.t.Fatal(err)
	}
	return append(uleb(len(s)), s...)
}

func (a *assembler) number() int64 {
	n, err := strconv.ParseInt(a.next(), 0, 64)
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func sleb(n int64) (b []byte) {
	for {
		c := byte(n & 0x7f)
		n >>= 7
		if n == 0 && c&0x40 == 0 || n == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

var valueTypes = map[string]byte{"i32": 0x7f, "i64": 0x7e}

// values reads the lists of that name, and names what has a name.
func (a *assembler) values(name string) (types []byte) {
	for a.enter(name) {
		for a.tokens[0] != ")" {
			token := a.next()
			if token[0] == '$' {
				a.locals[token] = len(a.locals)
				token = a.next()
			} else {
				a.locals["$"+strconv.Itoa(len(a.locals))] = len(a.locals)
			}
			types = append(types, valueTypes[token])
		}
		a.leave()
	}
	return types
}

// signature reads parameters and results, and returns the type's index.
func (a *assembler) signature() []byte {
	a.locals = map[string]int{}
	params := a.values("param")
	kept := a.locals
	a.locals = map[string]int{}
	results := a.values("result")
	a.locals = kept
	a.types = append(a.types, slicesConcat([]byte{0x60}, uleb(len(params)), params, uleb(len(results)), results))
	return uleb(len(a.types) - 1)
}

func slicesConcat(bs ...[]byte) (all []byte) {
	for _, b := range bs {
		all = append(all, b...)
	}
	return all
}

func (a *assembler) name() {
	if a.tokens[0][0] == '$' {
		a.functions[a.next()] = len(a.functions)
	} else {
		a.functions["#"+strconv.Itoa(len(a.functions))] = len(a.functions)
	}
}

func (a *assembler) field() {
	if a.next() != "(" {
		a.t.Fatal("no field")
	}
	switch field := a.next(); field {
	case "import":
		i := slicesConcat(a.text(), a.text())
		if !a.enter("func") {
			a.t.Fatal("only functions are imported")
		}
		a.name()
		a.imports = append(a.imports, slicesConcat(i, []byte{0}, a.signature()))
		a.leave()
	case "memory":
		a.memory = slicesConcat([]byte{1, 0}, uleb(int(a.number())))
	case "table": // its size, and how far it may grow; all of it is function 9
		a.table = slicesConcat([]byte{1, 0x70, 1}, uleb(int(a.number())), uleb(int(a.number())))
		a.elements = []byte{1, 0, 0x41, 0, 0x0b, 1, 9}
	case "global":
		a.globals = append(a.globals, slicesConcat([]byte{valueTypes[a.next()], 1, 0x41}, sleb(a.number()), []byte{opEnd}))
	case "data":
		a.datas = append(a.datas, slicesConcat([]byte{0, 0x41}, sleb(a.number()), []byte{opEnd}, a.text()))
	case "export":
		a.exports = append(a.exports, slicesConcat(a.text(), []byte{kindFunction}, uleb(a.functions[a.next()])))
	case "start":
		token := a.next()
		a.bodies = append(a.bodies, func() { a.start = uleb(a.functions[token]) })
	case "func":
		a.name()
		index := len(a.functions) - 1
		for a.enter("export") {
			a.exports = append(a.exports, slicesConcat(a.text(), []byte{kindFunction}, uleb(index)))
			a.leave()
		}
		a.defined = append(a.defined, a.signature())
		params := len(a.locals)
		var locals []byte
		if n := len(a.values("local")); n > 0 {
			locals = slicesConcat([]byte{1}, uleb(len(a.locals)-params), []byte{valueTypes["i32"]})
		} else {
			locals = []byte{0}
		}
		end := 0
		for depth := 0; depth >= 0; end++ {
			switch a.tokens[end] {
			case "(":
				depth++
			case ")":
				depth--
			}
		}
		body, names := a.tokens[:end-1], a.locals
		a.tokens = a.tokens[end-1:]
		a.bodies = append(a.bodies, func() { // when all functions have a number
			a.tokens, a.locals = body, names
			b := locals
			for len(a.tokens) > 0 {
				b = append(b, a.instruction()...)
			}
			b = append(b, opEnd)
			a.code = append(a.code, slicesConcat(uleb(len(b)), b))
		})
	default:
		a.t.Fatalf("field %q", field)
	}
	a.leave()
}

var plainInstructions = map[string][]byte{
	"unreachable": {0x00}, "else": {0x05}, "end": {0x0b}, "return": {0x0f}, "drop": {0x1a}, "i32.eqz": {0x45}, "i32.lt_s": {0x48},
	"i32.add": {0x6a}, "i32.sub": {0x6b}, "i32.mul": {0x6c}, "i32.xor": {0x73}, "i32.div_u": {0x6e}, "memory.grow": {0x40, 0}, "memory.size": {0x3f, 0},
	"memory.fill": {0xfc, 11, 0}, "i32.load8_u": {0x2d, 0, 0}, "i32.load": {0x28, 2, 0}, "i32.store": {0x36, 2, 0}, "i32.store8": {0x3a, 0, 0},
	"block": {0x02, 0x40}, "loop": {0x03, 0x40}, "if": {0x04, 0x40}, "table.grow": {0xd0, 0x70, 0xfc, 15, 0},
}

func (a *assembler) instruction() []byte {
	name := a.next()
	if b, ok := plainInstructions[name]; ok {
		if name == "table.grow" { // of null, by what the local after it says
			return slicesConcat(b[:2], []byte{0x20}, uleb(a.locals[a.next()]), b[2:])
		}
		return b
	}
	index := func(names map[string]int) []byte {
		token := a.next()
		if n, err := strconv.Atoi(token); err == nil {
			return uleb(n)
		}
		n, ok := names[token]
		if !ok {
			a.t.Fatalf("%s does not exist", token)
		}
		return uleb(n)
	}
	switch name {
	case "call":
		return append([]byte{opCall}, index(a.functions)...)
	case "return_call":
		return append([]byte{opTailCall}, index(a.functions)...)
	case "call_indirect": // a type's index
		return slicesConcat([]byte{opCallBy}, index(nil), []byte{0})
	case "local.get", "local.set", "local.tee":
		return append([]byte{byte(0x20 + strings.Index("gst", name[6:7]))}, index(a.locals)...)
	case "global.get", "global.set":
		return append([]byte{byte(0x23 + strings.Index("gs", name[7:8]))}, index(nil)...)
	case "br", "br_if":
		return append([]byte{byte(0x0c + strings.Count(name, "_"))}, index(nil)...)
	case "i32.const":
		n := a.number()
		if n > math.MaxInt32 {
			n = int64(int32(uint32(n)))
		}
		return append([]byte{0x41}, sleb(n)...)
	}
	a.t.Fatalf("instruction %q", name)
	return nil
}

func (a *assembler) module() []byte {
	for _, body := range a.bodies {
		body()
	}
	a.exports = append(a.exports, slicesConcat(append(uleb(6), "memory"...), []byte{kindMemory, 0}))
	list := func(items [][]byte) []byte { return append(uleb(len(items)), slicesConcat(items...)...) }
	m := append([]byte(nil), header...)
	for _, s := range []section{
		{sectionType, list(a.types)}, {sectionImport, list(a.imports)}, {sectionFunction, list(a.defined)}, {sectionTable, a.table},
		{sectionMemory, a.memory}, {sectionGlobal, list(a.globals)}, {sectionExport, list(a.exports)}, {sectionStart, a.start},
		{sectionElement, a.elements}, {sectionCode, list(a.code)}, {sectionData, list(a.datas)},
	} {
		if len(s.body) > 0 {
			m = append(append(append(m, s.id), uleb(len(s.body))...), s.body...)
		}
	}
	return m
}
