package wapc

import (
	"testing"
	"time"
)

// A guest that drops a capability from a Pod of one container: with an instance made
// ahead, as most requests find one, with an instance made for the call, and of an
// instance that is used again, which mapd never does.
func BenchmarkGuest(b *testing.B) {
	r := newRuntime(b, Options{Timeout: time.Minute})
	m := compile(b, r, exampleGuest(b))
	call := func(b *testing.B, i *instance) {
		c := &call{module: m, host: noHost{}, operation: "validate", payload: []byte(bpfRequest)}
		if _, err := m.run(b.Context(), c, i); err != nil {
			b.Fatal(err)
		}
	}
	fresh := func(b *testing.B) *instance {
		i, err := m.newInstance(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		return i
	}
	b.Run("warm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			i := fresh(b)
			b.StartTimer()
			call(b, i)
			i.close()
		}
	})
	b.Run("cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			i := fresh(b)
			call(b, i)
			i.close()
		}
	})
	b.Run("again", func(b *testing.B) {
		i := fresh(b)
		call(b, i)
		for b.Loop() {
			call(b, i)
		}
		i.close()
	})
}

// Compiling the same guest, which a request never waits for.
func BenchmarkCompile(b *testing.B) {
	wasm := exampleGuest(b)
	for b.Loop() {
		b.StopTimer()
		r := newRuntime(b, Options{Timeout: time.Minute})
		b.StartTimer()
		m, err := r.Compile(b.Context(), "bench", wasm)
		if err != nil {
			b.Fatal(err)
		}
		m.Close()
	}
}
