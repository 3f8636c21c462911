package binding

import (
	"crypto/sha256"
	"encoding/json"
	"runtime"
	"sync"
	"weak"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// shared holds what is made from a MatchResources once for all that are equal, so
// that a pointer stands for its content: policies and bindings that match alike can
// be found out by comparing pointers. A value is held for as long as somebody uses
// it.
type shared[T any] struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]weak.Pointer[T]
}

// of returns the value that is made from m.
func (s *shared[T]) of(m *admissionregistrationv1.MatchResources, make func() *T) *T {
	text, err := json.Marshal(m)
	if err != nil {
		return make()
	}
	sum := sha256.Sum256(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.known[sum].Value(); t != nil {
		return t
	}
	if s.known == nil {
		s.known = map[[sha256.Size]byte]weak.Pointer[T]{}
	}
	t := make()
	s.known[sum] = weak.Make(t)
	runtime.AddCleanup(t, s.drop, sum)
	return t
}

// drop forgets a value that is gone, unless there is another one by now.
func (s *shared[T]) drop(sum [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[sum].Value() == nil {
		delete(s.known, sum)
	}
}
