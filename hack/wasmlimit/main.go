// Command wasmlimit bounds the memory of a WebAssembly program: wasmlimit FILE BYTES. The Go
// linker sets no bound, so a program could use 4 GiB in a browser. A program that needs more than
// BYTES ends like any Go program that is out of memory.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
)

const page = 64 << 10 // the unit in which WebAssembly counts memory, in bytes

func main() {
	log.SetFlags(0)
	log.SetPrefix("wasmlimit: ")
	if len(os.Args) != 3 {
		log.Fatal("usage: wasmlimit FILE BYTES")
	}
	bound, err := strconv.ParseUint(os.Args[2], 10, 32)
	if err != nil {
		log.Fatal(err)
	}
	program, err := os.ReadFile(os.Args[1])
	if err == nil {
		program, err = limit(program, bound/page)
	}
	if err == nil {
		err = os.WriteFile(os.Args[1], program, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// limit returns a program whose one memory has at most the given number of pages.
func limit(program []byte, most uint64) ([]byte, error) {
	const magic = "\x00asm\x01\x00\x00\x00"
	rest, ok := bytes.CutPrefix(program, []byte(magic))
	if !ok {
		return nil, errors.New("this is no WebAssembly program")
	}
	for len(rest) > 0 {
		at := len(program) - len(rest)
		id := rest[0]
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || size > uint64(len(rest)-1-n) {
			break
		}
		section := rest[1+n:][:size]
		if rest = rest[1+n+int(size):]; id != 5 {
			continue
		}
		// There must be one memory. It is written as 0 and its initial size, or as 1, its initial
		// size and its bound.
		if len(section) < 3 || section[0] != 1 || section[1] > 1 {
			return nil, fmt.Errorf("the memories are %x, want one", section)
		}
		first, n := binary.Uvarint(section[2:])
		if n <= 0 {
			break
		}
		if first > most {
			return nil, fmt.Errorf("the program starts with %d bytes, more than %d", first*page, most*page)
		}
		memory := binary.AppendUvarint(binary.AppendUvarint([]byte{1, 1}, first), most)
		out := append(bytes.Clone(program[:at]), 5)
		out = binary.AppendUvarint(out, uint64(len(memory)))
		return append(append(out, memory...), rest...), nil
	}
	return nil, errors.New("there is no section of memories, or it ends early")
}
