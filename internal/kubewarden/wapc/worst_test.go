package wapc

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"syscall"
	"testing"
	"time"
)

// shape is a way to make a module that is hard to compile, of a size.
type shape struct {
	name string
	most int // size
	make func(n int) []byte
}

// parts of the modules below: the types () -> (), (i32) -> (), (wide) -> (wide).
func heavyModule(wide int, sections ...section) []byte {
	values := slices.Repeat([]byte{0x7f}, wide)
	w := slicesConcat([]byte{0x60}, uleb(wide), values, uleb(wide), values)
	all := append([]section{{sectionType, slicesConcat([]byte{3, 0x60, 0, 0, 0x60, 1, 0x7f, 0}, w)}}, sections...)
	out := slices.Clone(header)
	for _, s := range all {
		out = slicesConcat(out, []byte{s.id}, uleb(len(s.body)), s.body)
	}
	return out
}

// withCode returns the sections of functions of the type () -> ().
func withCode(bodies ...[]byte) []section {
	var code []byte
	for _, b := range bodies {
		code = slicesConcat(code, uleb(len(b)), b)
	}
	return []section{{sectionFunction, slicesConcat(uleb(len(bodies)), make([]byte, len(bodies)))}, {sectionCode, slicesConcat(uleb(len(bodies)), code)}}
}

func locals(n int) []byte { return slicesConcat([]byte{1}, uleb(n), []byte{0x7f}) }

// setAll gives each local another value, so that it must be kept.
func setAll(n int) (code []byte) {
	for i := range n {
		code = slicesConcat(code, []byte{0x20}, uleb((i+1)%n), []byte{0x41, 1, 0x6a, 0x21}, uleb(i))
	}
	return code
}

func times(n int, b ...byte) []byte { return slices.Repeat(b, n) }

// useAll uses each local.
func useAll(n int) (code []byte) {
	for i := range n {
		code = slicesConcat(code, []byte{0x20}, uleb(i), []byte{0x1a})
	}
	return code
}

func shapes() []shape {
	var all []shape
	add := func(name string, most int, f func(n int) []byte) { all = append(all, shape{name, most, f}) }
	for _, n := range []int{0, 10, 100, 1000} {
		set := setAll(n)
		add(fmt.Sprintf("blocks in a row, %d locals", n), 80_000, func(k int) []byte {
			return heavyModule(0, withCode(slicesConcat(locals(max(n, 1)), set, times(k, opBlock, 0x40, 0x20, 0, opBrIf, 0, opEnd), useAll(n), []byte{opEnd}))...)
		})
		add(fmt.Sprintf("loops in a row, %d locals", n), 80_000, func(k int) []byte {
			return heavyModule(0, withCode(slicesConcat(locals(max(n, 1)), set, times(k, opLoop, 0x40, 0x20, 0, 0x41, 1, 0x6a, 0x22, 0, opBrIf, 0, opEnd), useAll(n), []byte{opEnd}))...)
		})
		add(fmt.Sprintf("loops in loops, %d locals", n), 4999, func(k int) []byte {
			return heavyModule(0, withCode(slicesConcat(locals(max(n, 1)), times(k, opLoop, 0x40), set, times(k, 0x20, 0, opBrIf, 0, opEnd), useAll(n), []byte{opEnd}))...)
		})
		add(fmt.Sprintf("ifs that set, %d locals", n), 40_000, func(k int) []byte {
			var code []byte
			for i := range k {
				code = slicesConcat(code, []byte{0x20, 0, opIf, 0x40, 0x41}, uleb(i&63), []byte{0x21}, uleb(i%max(n, 1)), []byte{opEnd})
			}
			return heavyModule(0, withCode(slicesConcat(locals(max(n, 1)), set, code, useAll(n), []byte{opEnd}))...)
		})
		add(fmt.Sprintf("a table of branches, %d locals", n), 49_999, func(k int) []byte {
			return heavyModule(0, withCode(slicesConcat(locals(max(n, 1)), set, times(50, opBlock, 0x40), []byte{0x20, 0, opBrTable}, uleb(k), labels(k+1, 50), times(50, opEnd), useAll(n), []byte{opEnd}))...)
		})
	}
	for _, wide := range []int{8, 16, 32} {
		push, drop := times(wide, 0x41, 0), times(wide, 0x1a)
		add(fmt.Sprintf("loops of %d values", wide), 60_000, func(k int) []byte {
			return heavyModule(wide, withCode(slicesConcat(locals(1), push, times(k, opLoop, 2, 0x20, 0, opBrIf, 0, opEnd), drop, []byte{opEnd}))...)
		})
		add(fmt.Sprintf("a table of branches with %d values", wide), 49_999, func(k int) []byte {
			return heavyModule(wide, withCode(slicesConcat(locals(1), push, times(50, opBlock, 2), []byte{0x20, 0, opBrTable}, uleb(k), labels(k+1, 50), times(50, opEnd), drop, []byte{opEnd}))...)
		})
		add(fmt.Sprintf("branches with %d values", wide), 80_000, func(k int) []byte {
			return heavyModule(wide, withCode(slicesConcat(locals(1), push, []byte{opBlock, 2}, times(k, 0x20, 0, opBrIf, 0), []byte{opEnd}, drop, []byte{opEnd}))...)
		})
	}
	add("straight", 60_000, func(k int) []byte {
		return heavyModule(0, withCode(slicesConcat(locals(2), times(k, 0x20, 0, 0x20, 1, 0x6a, 0x21, 0), []byte{opEnd}))...)
	})
	add("a deep stack of values", 60_000, func(k int) []byte {
		return heavyModule(0, withCode(slicesConcat(locals(1), times(k, 0x20, 0, 0x41, 3, 0x6c), times(k-1, 0x6a), []byte{0x1a, opEnd}))...)
	})
	add("bulk operations", 40_000, func(k int) []byte {
		s := withCode(slicesConcat(locals(1), times(k, 0x20, 0, 0x20, 0, 0x20, 0, opBulk, 11, 0), []byte{opEnd}))
		return heavyModule(0, s[0], section{sectionMemory, []byte{1, 0, 1}}, s[1])
	})
	add("loads and stores", 40_000, func(k int) []byte {
		s := withCode(slicesConcat(locals(1), times(k, 0x20, 0, 0x20, 0, 0x28, 0, 0, 0x36, 0, 0), []byte{opEnd}))
		return heavyModule(0, s[0], section{sectionMemory, []byte{1, 0, 1}}, s[1])
	})
	add("calls by the table", 40_000, func(k int) []byte {
		s := withCode(slicesConcat(locals(1), times(k, 0x20, 0, opCallBy, 0, 0), []byte{opEnd}))
		return heavyModule(0, s[0], section{sectionTable, []byte{1, 0x70, 0, 1}}, s[1])
	})
	add("calls", 80_000, func(k int) []byte {
		return heavyModule(0, withCode(slicesConcat(locals(1), times(k, opCall, 0), []byte{opEnd}))...)
	})
	for name, call := range map[string][]byte{"calls": {opCall, 1}, "calls by the table": {0x41, 0, opCallBy, 0, 0}} {
		add(name+" of 32 results", 130_000, func(k int) []byte {
			s := withCode(slicesConcat([]byte{0}, times(k, call...), []byte{0, opEnd}), slicesConcat([]byte{0}, times(32, 0x41, 0), []byte{opEnd}))
			types := slicesConcat([]byte{2, 0x60, 0, 32}, times(32, 0x7f), []byte{0x60, 0, 0})
			out := header
			for _, s := range []section{{sectionType, types}, {sectionFunction, []byte{2, 1, 0}}, {sectionTable, []byte{1, 0x70, 0, 1}}, s[1]} {
				out = slicesConcat(out, []byte{s.id}, uleb(len(s.body)), s.body)
			}
			return out
		})
	}
	add("vectors", 30_000, func(k int) []byte {
		return heavyModule(0, withCode(slicesConcat([]byte{1, 100, 0x7b}, times(k, 0x20, 0, 0x20, 1, 0xfd, 0x6e, 0x21, 0), []byte{opEnd}))...)
	})
	for _, each := range []int{10, 100, 1000} {
		add(fmt.Sprintf("functions of %d blocks", each), 100_000, func(k int) []byte {
			f := slicesConcat(locals(20), setAll(20), times(each, opBlock, 0x40, 0x20, 0, opBrIf, 0, opEnd), useAll(20), []byte{opEnd})
			return heavyModule(0, withCode(slices.Repeat([][]byte{f}, k)...)...)
		})
	}
	add("functions", 100_000, func(k int) []byte { return heavyModule(0, withCode(slices.Repeat([][]byte{{0, opEnd}}, k)...)...) })
	add("functions of many locals", 100_000, func(k int) []byte {
		return heavyModule(0, withCode(slices.Repeat([][]byte{slicesConcat(locals(200), setAll(200), useAll(200), []byte{opEnd})}, k)...)...)
	})
	add("elements", 1<<20, func(k int) []byte {
		s := withCode([]byte{0, opEnd})
		return heavyModule(0, s[0], section{sectionTable, slicesConcat([]byte{1, 0x70, 0}, uleb(k))},
			section{sectionElement, slicesConcat([]byte{1, 4, 0x41, 0, opEnd}, uleb(k), times(k, opRefFunc, 0, opEnd))}, s[1])
	})
	add("globals", 100_000, func(k int) []byte {
		return heavyModule(0, section{sectionGlobal, slicesConcat(uleb(k), times(k, 0x7f, 1, 0x41, 0, opEnd))})
	})
	add("data segments", 100_000, func(k int) []byte {
		return heavyModule(0, section{sectionMemory, []byte{1, 0, 1}}, section{sectionData, slicesConcat(uleb(k), times(k, 0, 0x41, 0, opEnd, 1, 1))})
	})
	add("types", 15_000, func(k int) []byte {
		t := slicesConcat([]byte{0x60}, uleb(1000), times(1000, 0x7f), uleb(0))
		body := uleb(k)
		for i := range k {
			t[3+i%1000] ^= 1
			body = append(body, t...)
		}
		return slicesConcat(header, []byte{sectionType}, uleb(len(body)), body)
	})
	add("exports", 100_000, func(k int) []byte {
		s := withCode([]byte{0, opEnd})
		body := uleb(k)
		for i := range k {
			body = fmt.Appendf(body, "\x08%08d\x00\x00", i)
		}
		return heavyModule(0, s[0], section{sectionExport, body}, s[1])
	})
	return all
}

// labels returns the labels of a br_table: n of them, below a depth.
func labels(n, depth int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % depth)
	}
	return b
}

// BenchmarkWorstModules compiles the largest module of each shape that is within the
// bounds: what it takes, in time of processors and memory.
func BenchmarkWorstModules(b *testing.B) {
	for _, s := range shapes() {
		b.Run(s.name, func(b *testing.B) {
			bounds := defaultBounds()
			fits := func(n int) bool { _, err := readBinary(s.make(n), &bounds); return err == nil }
			low, high := 1, s.most
			for low < high {
				if mid := (low + high + 1) / 2; fits(mid) {
					low = mid
				} else {
					high = mid - 1
				}
			}
			if !fits(low) {
				b.Skip("beyond the bounds at any size")
			}
			wasm := s.make(low)
			m, _ := readBinary(wasm, &bounds)
			for b.Loop() {
				debug.FreeOSMemory()
				r, err := New(context.Background(), Options{})
				if err != nil {
					b.Fatal(err)
				}
				before, start := cpu(), heap()
				peak, stop := watch()
				metered, err := m.metered(&bounds)
				if err == nil {
					_, err = r.engine.CompileModule(context.Background(), metered)
				}
				stop()
				if err != nil {
					b.Log(err)
				}
				_ = r.Close()
				b.ReportMetric(float64(low), "size")
				b.ReportMetric(float64(len(wasm))/1000, "kB")
				b.ReportMetric((cpu() - before).Seconds(), "cpu-s")
				b.ReportMetric(float64(m.work)/1e9, "work-s")
				b.ReportMetric(float64(peak()-start)/(1<<20), "MiB")
			}
		})
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() - sample[1].Value.Uint64()
}

// watch returns how much memory there was at most before stop was called.
func watch() (peak func() uint64, stop func()) {
	var most uint64
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			most = max(most, heap())
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() uint64 { return most }, func() { close(end); <-ended; runtime.KeepAlive(most) }
}
