package binding

import (
	"crypto/sha256"
	"encoding/json"
	"runtime"
	"sync"
	"weak"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// shared returns the same value for equal MatchResources, so that policies and bindings with
// equal criteria have the same pointer. It keeps a value for as long as something else refers
// to it.
type shared[T any] struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]weak.Pointer[T]
}

// of returns the value for m, and calls make if there is none yet.
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

// drop removes a value that was garbage collected, unless it was made again since.
func (s *shared[T]) drop(sum [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[sum].Value() == nil {
		delete(s.known, sum)
	}
}
