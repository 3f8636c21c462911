package cel

import (
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"sync"
	"weak"

	"github.com/google/cel-go/common/types"
)

// shared are the programs of an Env that are in use somewhere. What compiles to
// the same program is compiled once and held once: ten thousand policies seldom
// have ten thousand different conditions and variables. A program goes when
// nothing outside holds it any longer.
type shared struct {
	mu       sync.Mutex
	programs map[sum]sharedProgram
}

type sharedProgram struct {
	program  weak.Pointer[Program]
	declared *types.Type // of a variable
}

// sum identifies everything that a program is compiled from: what its scope declares,
// the wanted type, and the text.
type sum [sha256.Size]byte

// with returns the sum of s and something more.
func (s sum) with(kind byte, texts ...string) sum {
	var room [512]byte
	data := append(append(room[:0], s[:]...), kind)
	for _, t := range texts {
		data = append(binary.AppendUvarint(data, uint64(len(t))), t...)
	}
	return sha256.Sum256(data)
}

// get returns the program with a sum, nil if there is none.
func (s *shared) get(of sum) (*Program, *types.Type) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.programs[of]
	return known.program.Value(), known.declared
}

// put adds a program for as long as something refers to it, and returns the one to
// use, which is another one if that was added in the meantime.
func (s *shared) put(of sum, p *Program, declared *types.Type) (*Program, *types.Type) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.programs[of]
	if other := known.program.Value(); other != nil {
		return other, known.declared
	}
	if s.programs == nil {
		s.programs = map[sum]sharedProgram{}
	}
	s.programs[of] = sharedProgram{weak.Make(p), declared}
	runtime.AddCleanup(p, s.drop, of)
	return p, declared
}

// drop removes a program that was collected, unless it was compiled again since.
func (s *shared) drop(of sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs[of].program.Value() == nil {
		delete(s.programs, of)
	}
}
