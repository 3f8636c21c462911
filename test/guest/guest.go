// Package guest makes small WebAssembly modules that speak waPC, for tests that are
// not about WebAssembly.
package guest

import "encoding/binary"

// Answers says what a module answers. A zero field has a default.
type Answers struct {
	// Validate is the answer to each request: {"accepted":true}.
	Validate string
	// Settings is the answer to validate_settings: {"valid":true}.
	Settings string
	// Trap makes each request end in a trap, Spin in an endless loop, Echo in a failure
	// with what the module was asked, and Fail in one with that text.
	Trap, Spin, Echo bool
	Fail             string
	// Call makes the module ask its host on each request, in the namespace kubernetes:
	// an operation and its payload. The module fails with what the host says.
	Call [2]string
}

// Addresses in the memory of a module.
const (
	atOperation = 16
	atCall      = 128
	atSettings  = 4 << 10
	atAnswer    = 8 << 10
	atHost      = 512 << 10
	atPayload   = 1 << 20
	pages       = 64 // of 64 KiB
)

// Module returns a module.
func Module(a Answers) []byte {
	if a.Validate == "" {
		a.Validate = `{"accepted":true}`
	}
	if a.Settings == "" {
		a.Settings = `{"valid":true}`
	}
	answer := a.Validate
	if a.Fail != "" {
		answer = a.Fail
	}
	var m []byte
	m = append(m, "\x00asm\x01\x00\x00\x00"...)
	const i32 = 0x7f
	m = section(m, 1, vector(
		[]byte{0x60, 2, i32, i32, 0},                                    // 0: (i32, i32)
		[]byte{0x60, 2, i32, i32, 1, i32},                               // 1: (i32, i32) -> i32
		[]byte{0x60, 8, i32, i32, i32, i32, i32, i32, i32, i32, 1, i32}, // 2: host call
		[]byte{0x60, 0, 1, i32},                                         // 3: () -> i32
		[]byte{0x60, 1, i32, 0},                                         // 4: (i32)
	))
	imported := func(name string, typ byte) []byte {
		return append(append(text("wapc"), text(name)...), 0, typ)
	}
	const request, response, failure, call, answerLen, answerInto, errorLen, errorInto = 0, 1, 2, 3, 4, 5, 6, 7
	m = section(m, 2, vector(
		imported("__guest_request", 0), imported("__guest_response", 0), imported("__guest_error", 0), imported("__host_call", 2),
		imported("__host_response_len", 3), imported("__host_response", 4), imported("__host_error_len", 3), imported("__host_error", 4),
	))
	m = section(m, 3, vector([]byte{1}))
	m = section(m, 5, vector(append([]byte{0}, uleb(pages)...)))
	m = section(m, 7, vector(append(text("memory"), 2, 0), append(text("__guest_call"), 0, 8)))

	var code []byte
	invoke := func(function byte, params ...int) {
		for _, p := range params {
			code = append(append(code, 0x41), sleb(p)...)
		}
		code = append(code, 0x10, function)
	}
	succeed := []byte{0x41, 1, 0x0f} // return 1
	fail := []byte{0x41, 0, 0x0f}
	invoke(request, atOperation, atPayload)
	code = append(code, 0x20, 0, 0x41, 17, 0x46, 0x04, 0x40) // if the operation has 17 bytes: validate_settings
	invoke(response, atSettings, len(a.Settings))
	code = append(append(code, succeed...), 0x0b)
	bound, scope, operation, payload := "kubewarden", "kubernetes", a.Call[0], a.Call[1]
	asked := bound + scope + operation + payload
	switch {
	case a.Trap:
		code = append(code, 0x00)
	case a.Spin:
		code = append(code, 0x03, 0x40, 0x0c, 0, 0x0b)
	case a.Echo:
		code = append(append(append(code, 0x41), sleb(atPayload)...), 0x20, 1, 0x10, failure)
		code = append(code, fail...)
	case operation != "":
		at := atCall
		var params []int
		for _, s := range []string{bound, scope, operation, payload} {
			params = append(params, at, len(s))
			at += len(s)
		}
		invoke(call, params...)
		code = append(code, 0x04, 0x40) // if it worked
		invoke(answerInto, atHost)
		code = append(append(code, 0x41), sleb(atHost)...)
		invoke(answerLen)
		code = append(code, 0x10, failure, 0x05) // else
		invoke(errorInto, atHost)
		code = append(append(code, 0x41), sleb(atHost)...)
		invoke(errorLen)
		code = append(code, 0x10, failure, 0x0b)
		code = append(code, fail...)
	case a.Fail != "":
		invoke(failure, atAnswer, len(answer))
		code = append(code, fail...)
	default:
		invoke(response, atAnswer, len(answer))
		code = append(code, succeed...)
	}
	code = append([]byte{0}, append(code, 0x00, 0x0b)...) // no locals; the end is not reached
	m = section(m, 10, vector(append(uleb(len(code)), code...)))
	return section(m, 11, vector(data(atCall, asked), data(atSettings, a.Settings), data(atAnswer, answer)))
}

func data(at int, s string) []byte {
	return append(append(append([]byte{0, 0x41}, sleb(at)...), 0x0b), text(s)...)
}

func section(m []byte, id byte, content []byte) []byte {
	return append(append(append(m, id), uleb(len(content))...), content...)
}

func vector(items ...[]byte) []byte {
	v := uleb(len(items))
	for _, i := range items {
		v = append(v, i...)
	}
	return v
}

func text(s string) []byte { return append(uleb(len(s)), s...) }

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// sleb encodes a number that is not negative.
func sleb(n int) []byte {
	b := uleb(n)
	if b[len(b)-1]&0x40 != 0 { // would be read as a sign
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}
