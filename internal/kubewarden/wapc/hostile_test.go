package wapc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// hostFunc is a Host of one function.
type hostFunc func(ctx context.Context, binding, namespace, operation string, payload []byte) ([]byte, error)

func (f hostFunc) HostCall(ctx context.Context, binding, namespace, operation string, payload []byte) ([]byte, error) {
	return f(ctx, binding, namespace, operation, payload)
}

const (
	say   = ` (data 256 "{\"accepted\":true}") (data 300 "kubewarden") (data 310 "kubernetes") (data 320 "can_i") (data 330 "\xff\xfe") (data 340 "tracing") (data 350 "log")`
	okay  = ` i32.const 256 i32.const 17 call $guest_response i32.const 1 `
	entry = `(func $entry (export "__guest_call") (param $op i32) (param $n i32) (result i32) (local $i i32) `
	canI  = ` i32.const 300 i32.const 10 i32.const 310 i32.const 10 i32.const 320 i32.const 5 i32.const 256 i32.const 17 call $host_call `
)

// Every guest is one call's failure, with the same text each time.
var hostile = []struct {
	name, wat string
	reason    Reason // empty: the call succeeds
	want      string
}{
	{"nothing said", `(memory 1)` + entry + `i32.const 1)`, Failed, "Guest call failure: No error message OR response set for call success"},
	{"zero, nothing said", `(memory 1)` + entry + `i32.const 0)`, Failed, "Guest call failure: No error message set for call failure"},
	{"zero, but an answer", `(memory 1)` + entry + okay + ` drop i32.const 0)`, Failed, "Guest call failure: No error message set for call failure"},
	{"an error", `(memory 1)` + say + entry + `i32.const 310 i32.const 10 call $guest_error i32.const 0)`, Failed, "Guest call failure: kubernetes"},
	{"an error, and success", `(memory 1)` + say + entry + `i32.const 310 i32.const 10 call $guest_error i32.const 1)`, Failed, "Guest call failure: kubernetes"},
	{"an error and an answer", `(memory 1)` + say + entry + `i32.const 310 i32.const 10 call $guest_error ` + okay + `)`, "", `{"accepted":true}`},
	{"two answers", `(memory 1)` + say + entry + `i32.const 310 i32.const 10 call $guest_response ` + okay + `)`, "", `{"accepted":true}`},
	{"two is success", `(memory 1)` + say + entry + okay + `drop i32.const 2)`, "", `{"accepted":true}`},
	{"an answer of no bytes, anywhere", `(memory 1)` + entry + `i32.const 0xfffffff0 i32.const 0 call $guest_response i32.const 1)`, "", ``},
	{"unreachable", `(memory 1)` + entry + `unreachable)`, Trapped, "Guest call failure: wasm error: unreachable"},
	{"division by zero", `(memory 1)` + entry + `i32.const 1 i32.const 0 i32.div_u)`, Trapped, "Guest call failure: wasm error: integer divide by zero"},
	{"beyond memory", `(memory 1)` + entry + `i32.const 0xfffffff0 i32.load8_u)`, Trapped, "Guest call failure: wasm error: out of bounds memory access"},
	{"an answer beyond memory", `(memory 1)` + entry + `i32.const 65530 i32.const 100 call $guest_response i32.const 1)`, Trapped,
		"Guest call failure: the answer is outside of the guest's memory"},
	{"an answer whose end wraps", `(memory 1)` + entry + `i32.const 0xffffffff i32.const 0x7fffffff call $guest_response i32.const 1)`, Trapped,
		"Guest call failure: the answer of 2147483647 bytes, more than 1048576"},
	{"an answer that is too large", `(memory 32)` + entry + `i32.const 0 i32.const 1048577 call $guest_response i32.const 1)`, Trapped,
		"Guest call failure: the answer of 1048577 bytes, more than 1048576"},
	{"an error beyond memory", `(memory 1)` + entry + `i32.const 65536 i32.const 1 call $guest_error i32.const 0)`, Trapped,
		"Guest call failure: the error is outside of the guest's memory"},
	{"an error that is not UTF-8", `(memory 1)` + say + entry + `i32.const 330 i32.const 2 call $guest_error i32.const 0)`, Trapped,
		"Guest call failure: the error is not valid UTF-8"},
	{"a log entry that is not UTF-8", `(memory 1)` + say + entry + `i32.const 330 i32.const 2 call $console_log i32.const 0)`, Trapped,
		"Guest call failure: the log entry is not valid UTF-8"},
	{"a request to nowhere", `(memory 1)` + entry + `i32.const 0 i32.const 65530 call $guest_request i32.const 1)`, Trapped,
		"Guest call failure: the request does not fit into the guest's memory at the place it named"},
	{"the request as often as it likes", `(memory 1)` + say + entry + `i32.const 0 i32.const 64 call $guest_request i32.const 0 i32.const 64 call $guest_request ` + okay + `)`,
		"", `{"accepted":true}`},
	{"a host call", `(memory 1)` + say + entry + canI + `drop i32.const 500 call $host_response i32.const 500 call $host_response_len call $guest_response i32.const 1)`,
		"", `kubewarden/kubernetes/can_i {"accepted":true}`},
	{"a host call that fails", `(memory 1)` + say + entry + `i32.const 300 i32.const 10 i32.const 310 i32.const 10 i32.const 320 i32.const 4 i32.const 0 i32.const 0 call $host_call
		drop i32.const 500 call $host_error i32.const 500 call $host_error_len call $guest_error i32.const 0)`, Failed, "Guest call failure: no can_"},
	{"a host call clears both slots", `(memory 1)` + say + entry + canI + `drop
		i32.const 300 i32.const 10 i32.const 310 i32.const 10 i32.const 320 i32.const 4 i32.const 0 i32.const 0 call $host_call drop
		call $host_response_len if unreachable end ` + okay + `)`, "", `{"accepted":true}`},
	{"a host call beyond memory", `(memory 1)` + say + entry + `i32.const 300 i32.const 10 i32.const 310 i32.const 10 i32.const 320 i32.const 5 i32.const 65000 i32.const 1000 call $host_call)`,
		Trapped, "Guest call failure: the payload of a host call is outside of the guest's memory"},
	{"a host call with a long name", `(memory 1)` + say + entry + `i32.const 300 i32.const 2000 i32.const 310 i32.const 10 i32.const 320 i32.const 5 i32.const 0 i32.const 0 call $host_call)`,
		Trapped, "Guest call failure: the binding of a host call of 2000 bytes, more than 1024"},
	{"a host call whose name is not UTF-8", `(memory 1)` + say + entry + `i32.const 300 i32.const 10 i32.const 330 i32.const 2 i32.const 320 i32.const 5 i32.const 0 i32.const 0 call $host_call)`,
		Trapped, "Guest call failure: the namespace of a host call is not valid UTF-8"},
	{"a host's answer to nowhere", `(memory 1)` + say + entry + canI + `drop i32.const 65530 call $host_response i32.const 1)`, Trapped,
		"Guest call failure: the host's answer does not fit into the guest's memory at the place it named"},
	{"tracing without JSON", `(memory 1)` + say + entry + `i32.const 300 i32.const 10 i32.const 340 i32.const 7 i32.const 350 i32.const 3 i32.const 330 i32.const 2 call $host_call
		i32.eqz if unreachable end ` + okay + `)`, "", `{"accepted":true}`},
	{"endless recursion", `(memory 1)` + entry + `local.get $op local.get $n call $entry i32.const 1 i32.add)`, Trapped,
		"Guest call failure: stack overflow"},
	{"abort", `(memory 1) (import "env" "abort" (func $abort (param i32 i32 i32 i32)))` + entry + `i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $abort i32.const 1)`,
		Trapped, "Guest call failure: the guest aborted"},
	{"exit", `(memory 1) (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))` + entry + `i32.const 0 call $exit i32.const 1)`,
		Trapped, "Guest call failure: module closed with exit_code(0)"},
	{"memory that cannot grow", `(memory 1)` + say + entry + `i32.const 1000 memory.grow i32.const 1 i32.add if unreachable end ` + okay + `)`, "", `{"accepted":true}`},
	{"memory that grows", `(memory 1)` + say + entry + `i32.const 10 memory.grow drop i32.const 700000 i32.const 7 i32.store8 ` + okay + `)`, "", `{"accepted":true}`},
	{"a table that cannot grow", `(memory 1) (table 1 0xffffffff) (func $nine)` + say + entry +
		`i32.const 0x7ffffff local.set $i table.grow $i i32.const 1 i32.add if unreachable end ` + okay + `)`, "", `{"accepted":true}`},
}

func TestHostileGuests(t *testing.T) {
	r := newRuntime(t, Options{Memory: 4 << 20, Answer: 1 << 20})
	host := hostFunc(func(_ context.Context, binding, namespace, operation string, payload []byte) ([]byte, error) {
		if operation != "can_i" {
			return nil, errors.New("no " + operation)
		}
		return []byte(binding + "/" + namespace + "/" + operation + " " + string(payload)), nil
	})
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			m := compile(t, r, wat(t, c.wat))
			for range 3 {
				got, err := m.Call(t.Context(), "validate", []byte(`{"settings":{}}`), host)
				var e *Error
				switch {
				case c.reason == "" && (err != nil || string(got) != c.want):
					t.Fatalf("answer %q, %v; want %q", got, err, c.want)
				case c.reason != "" && (!errors.As(err, &e) || e.Reason != c.reason || e.Error() != c.want):
					t.Fatalf("error %v; want %s: %s", err, c.reason, c.want)
				}
			}
		})
	}
}

// Guests that never end, each in a way of its own.
var endless = map[string]string{
	"loop":            `loop br 0 end`,
	"loop of growing": `loop i32.const 1 memory.grow drop br 0 end`,
	"loop of logging": `loop i32.const 300 i32.const 10 call $console_log br 0 end`,
	"loop of calls":   `loop ` + canI + ` drop br 0 end`,
	"fills":           `loop` + strings.Repeat(` i32.const 0 i32.const 0 i32.const 0x3f0000 memory.fill`, 200) + ` br 0 end`,
	"two recursions":  `i32.const 60 call $twice`,
	"tail calls":      `i32.const 1 return_call $tail`,
	"by the table":    `i32.const 60 call $indirect`,
}

const endlessHelpers = `(table 1 1)
(func $nine (param $n i32) local.get $n if local.get $n i32.const 1 i32.sub i32.const 0 call_indirect 9 local.get $n i32.const 1 i32.sub i32.const 0 call_indirect 9 end)
(func $twice (param $n i32) local.get $n if local.get $n i32.const 1 i32.sub call $twice local.get $n i32.const 1 i32.sub call $twice end)
(func $tail (param $n i32) (result i32) local.get $n return_call $tail)
(func $indirect (param $n i32) local.get $n call $nine)
`

func TestEndlessGuests(t *testing.T) {
	r := newRuntime(t, Options{Memory: 4 << 20})
	for name, code := range endless {
		t.Run(name, func(t *testing.T) {
			m := compile(t, r, wat(t, `(memory 63)`+endlessHelpers+say+entry+code+` i32.const 1)`))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			go runtime.GC() // waits for code that never leaves the guest
			_, err := m.Call(ctx, "validate", nil, nil)
			var e *Error
			if !errors.As(err, &e) || e.Reason != TimedOut || e.Error() != timedOut || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// An instance that is never ready makes the module unusable, not the process.
func TestGuestsThatAreNeverReady(t *testing.T) {
	r, short := newRuntime(t, Options{Memory: 4 << 20}), newRuntime(t, Options{Memory: 4 << 20, Timeout: 50 * time.Millisecond})
	for code, want := range map[string]string{
		`(memory 1) (func (export "_start") loop br 0 end)` + entry + `i32.const 1)`:                                                            timedOut,
		`(memory 1) (func $s loop br 0 end) (start $s)` + entry + `i32.const 1)`:                                                                timedOut,
		`(memory 1) (func (export "wapc_init") unreachable)` + entry + `i32.const 1)`:                                                           "the guest cannot be initialised: wasm error: unreachable",
		`(memory 1) (func (export "_start") i32.const 0 i32.const 0 call $guest_request)` + entry + `i32.const 1)`:                              "the guest cannot be initialised: __guest_request was called outside of a call",
		`(memory 65)` + entry + `i32.const 1)`:                                                                                                  "section 5: the memory begins with 65 pages of 64 KiB, more than 64",
		`(memory 1) (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32))) (export "__guest_call" $random)`: "__guest_call is a function of the host",
		`(memory 1) (start $host_response_len)` + entry + `i32.const 1)`:                                                                        "section 8: the start function takes or returns values",
		`(memory 1) (func (export "_start") (param i32))` + entry + `i32.const 1)`:                                                              "_start takes or returns values",
		`(memory 1) (func (export "__guest_call"))`:                                                                                             "__guest_call takes 0 values and returns 0, instead of 2 and 1",
		`(memory 1) (func (export "_initialize") unreachable)` + entry + `i32.const 1)`:                                                         "the guest cannot be initialised: wasm error: unreachable",
		`(memory 1) (func (export "mapd start"))` + entry + `i32.const 1)`:                                                                      `the module exports "mapd start", a name that mapd needs`,
		`(memory 1) (table 10000000 10000000)` + entry + `i32.const 1)`:                                                                         "section 4: tables of 10000000 entries, more than 1048576",
		`(memory 1) (data 65530 "beyond memory")` + entry + `i32.const 1)`:                                                                      "the guest cannot be initialised: data[0]: out of bounds memory access",
		`(memory 1) (data 65530 "abc") (data 65531 "beyond memory")` + entry + `i32.const 1)`:                                                   "the guest cannot be initialised: data[1]: out of bounds memory access",
		`(memory 1)`:                            "the module does not export __guest_call, which a policy of execution mode kubewarden-wapc needs",
		`(memory 1) (func (export "opa_eval"))`: "execution mode opa is Rego compiled to WebAssembly; mapd runs kubewarden-wapc and wasi",
		`(memory 1) (import "wasi_unstable" "fd_write" (func (param i32) (result i32)))` + entry + `i32.const 1)`: "the module imports what mapd does not offer: function wasi_unstable.fd_write",
		`(memory 1) (import "mapd" "tick" (func (result i32)))` + entry + `i32.const 1)`:                          "the module imports what mapd does not offer: function mapd.tick",
		`(memory 1) (import "wapc" "__console_log" (func (param i32)))` + entry + `i32.const 1)`:                  "the guest cannot be initialised: import func[wapc.__console_log]: signature mismatch: i32_v != i32i32_v",
		`(memory 1) (global i32 1)` + entry + `i32.const 0x7fffffff global.set 1 i32.const 1)`:                    "section 10: function 0: global 1 does not exist",
		`(memory 1)` + entry + `i32.const 1 i32.const 1)`:                                                         "the module is not valid: ",
	} {
		of := r
		if want == timedOut {
			of = short // on a busy machine others may take longer
		}
		_, err := of.Compile(t.Context(), "test", wat(t, code))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v; want %s", err, want)
		}
	}
}

// What a request pays for ends with the request's room, and all guests together have
// a bound as well.
func TestMemoryIsCharged(t *testing.T) {
	grow := `(memory 1)` + say + entry + `i32.const 20 memory.grow i32.const 1 i32.add i32.eqz if unreachable end ` + okay + `)`
	r := newRuntime(t, Options{})
	m := compile(t, r, wat(t, grow))
	for _, room := range []int64{1000, 100_000} {
		_, err := m.Call(t.Context(), "validate", nil, &purse{room: room})
		var e *Error
		if !errors.As(err, &e) || e.Reason != NoMemory || !errors.Is(err, errPurse) {
			t.Errorf("room for %d bytes: error %v", room, err)
		}
	}
	p := &purse{room: 10 << 20}
	if _, err := m.Call(t.Context(), "validate", nil, p); err != nil || p.room > 10<<20-21*pageSize {
		t.Errorf("error %v, %d bytes are left", err, p.room)
	}

	small := newRuntime(t, Options{AllMemory: 4 * pageSize})
	m = compile(t, small, wat(t, grow))
	var e *Error
	if _, err := m.Call(t.Context(), "validate", nil, nil); !errors.As(err, &e) || e.Reason != NoMemory {
		t.Errorf("error %v", err)
	}
}

var errPurse = errors.New("the purse is empty")

type purse struct {
	noHost
	room int64
}

func (p *purse) Charge(n int64) error {
	if n > p.room {
		return errPurse
	}
	p.room -= n
	return nil
}

// A guest may log what it likes; mapd keeps the beginning.
func TestLogIsBounded(t *testing.T) {
	var log bytes.Buffer
	r := newRuntime(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	m := compile(t, r, wat(t, `(memory 4)`+say+entry+`i32.const 5000 local.set $i loop i32.const 400 i32.const 3000 call $console_log
		local.get $i i32.const 1 i32.sub local.tee $i br_if 0 end `+okay+`)`))
	if _, err := m.Call(t.Context(), "validate", nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := log.Len(); n > 8*maxLog || strings.Count(log.String(), "logs too much") != 1 {
		t.Errorf("%d bytes of log, ending with %s", n, log.Bytes()[max(0, n-200):])
	}
}

// What a guest's stack takes is charged, and it ends long before wazero would end it.
func TestStack(t *testing.T) {
	r := newRuntime(t, Options{})
	var live strings.Builder // locals that a call must keep
	for i := range 200 {
		fmt.Fprintf(&live, " (local $l%d i32)", i)
	}
	for i := range 200 {
		fmt.Fprintf(&live, " local.get $n i32.const %d i32.mul local.set $l%d", i+3, i)
	}
	live.WriteString(" local.get $n i32.const 1 i32.sub call $deep")
	for i := range 200 {
		fmt.Fprintf(&live, " local.get $l%d i32.xor", i)
	}
	recursion := func(body string) string {
		return `(memory 1)` + say + `(func $deep (param $n i32) (result i32) ` + body + `)` + entry + `i32.const 0x7fffffff call $deep drop ` + okay + `)`
	}
	for name, code := range map[string]string{
		"small frames": recursion(`local.get $n call $deep local.get $n i32.add`),
		"large frames": recursion(live.String()),
		"at the start": strings.Replace(recursion(`local.get $n call $deep local.get $n i32.add`), entry, `(func $s i32.const 1 call $deep drop) (start $s)`+entry, 1),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := r.Compile(t.Context(), "test", wat(t, code))
		if err == nil {
			_, err = m.Call(t.Context(), "validate", nil, nil)
		}
		runtime.ReadMemStats(&after)
		if err == nil || !strings.HasSuffix(err.Error(), ": stack overflow") {
			t.Errorf("%s: error %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 8*maxStack {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
		if m == nil {
			continue
		}
		var e *Error
		if _, err := m.Call(t.Context(), "validate", nil, &purse{room: 1 << 20}); !errors.As(err, &e) || e.Reason != NoMemory {
			t.Errorf("%s: error %v", name, err)
		}
		m.Close()
	}
}

// What nobody uses yet leaves the memory to calls.
func TestSparesLeaveRoom(t *testing.T) {
	r := newRuntime(t, Options{AllMemory: 100 * pageSize})
	var modules []*Module
	for n := range 8 {
		modules = append(modules, compile(t, r, wat(t, fmt.Sprintf(`(memory 10) (global i32 %d)`, n)+say+entry+okay+`)`)))
	}
	if spare := r.spare.Load(); spare == 0 || spare > 100*pageSize/spareShare {
		t.Errorf("%d bytes are spare", spare)
	}
	var wg sync.WaitGroup
	for _, m := range modules[:6] {
		wg.Go(func() {
			if _, err := m.Call(t.Context(), "validate", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// Calls, compilations and ends of modules at once, of good guests and of hostile ones:
// no instance, memory or goroutine is left.
func TestManyAtOnce(t *testing.T) {
	before := runtime.NumGoroutine()
	r, err := New(t.Context(), Options{Memory: 4 << 20, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	grow := `i32.const 20 memory.grow drop `
	guests := []struct {
		wasm   []byte
		reason Reason // empty: it answers
	}{
		{unhex(t, validGuest), ""},
		{wat(t, `(memory 1)`+say+entry+grow+okay+`)`), ""},
		{wat(t, `(memory 1)`+entry+grow+`unreachable)`), Trapped},
		{wat(t, `(memory 1)`+entry+grow+`loop br 0 end i32.const 1)`), TimedOut},
	}
	var all []*Module
	var wg sync.WaitGroup
	for n := range 8 {
		g := guests[n%len(guests)]
		for range 5 {
			m, err := r.Compile(t.Context(), "test", g.wasm)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
			for range 4 {
				wg.Go(func() {
					ctx := t.Context()
					if g.reason == TimedOut {
						limited, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
						defer cancel()
						ctx = limited
					}
					_, err := m.Call(ctx, "validate", []byte("{}"), nil)
					var e *Error
					if errors.As(err, &e) && e.Reason == NotInitialised {
						return // closed before
					}
					if g.reason == "" && err != nil || g.reason != "" && (e == nil || e.Reason != g.reason) {
						t.Errorf("error %v; want %q", err, g.reason)
					}
				})
			}
			if n%3 > 0 {
				wg.Go(func() {
					if err := m.Close(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	wg.Wait()
	for _, m := range all {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for _, m := range all {
		if m.users != 0 || len(m.ahead) != 0 {
			t.Errorf("%d users and %d instances are left", m.users, len(m.ahead))
		}
	}
	if held, spare := r.memory.Load(), r.spare.Load(); held != 0 || spare != 0 {
		t.Errorf("%d bytes are held, %d of them spare", held, spare)
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
