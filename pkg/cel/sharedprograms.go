package cel

import (
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"sync"
	"weak"

	"github.com/google/cel-go/common/types"
)

// shared holds the programs of an Env that are in use. Expressions with the same sum are
// compiled once and share one program: ten thousand policies seldom have ten thousand different
// conditions and variables. An entry is removed when nothing else refers to its program.
type shared struct {
	mu       sync.Mutex
	programs map[sum]sharedProgram
}

type sharedProgram struct {
	program  weak.Pointer[Program]
	declared *types.Type // type of the variable that the program computes
}

// sum is a hash of everything that a program is compiled from: what its scope declares, the
// wanted type, and the text.
type sum [sha256.Size]byte

// with returns a hash of s and texts.
func (s sum) with(kind byte, texts ...string) sum {
	var room [512]byte
	data := append(append(room[:0], s[:]...), kind)
	for _, t := range texts {
		data = append(binary.AppendUvarint(data, uint64(len(t))), t...)
	}
	return sha256.Sum256(data)
}

// get returns the program with a sum and the type of its variable; nil if there is none.
func (s *shared) get(of sum) (*Program, *types.Type) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.programs[of]
	return known.program.Value(), known.declared
}

// put adds a program, which stays for as long as something else refers to it, and returns the
// program to use. That is another one if another goroutine added it first.
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

// drop removes a program that was garbage collected, unless it was compiled again since.
func (s *shared) drop(of sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs[of].program.Value() == nil {
		delete(s.programs, of)
	}
}
