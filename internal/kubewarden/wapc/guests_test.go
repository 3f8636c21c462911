package wapc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/mapd-project/mapd/test/hammer"
)

var example = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", file, ".")
	cmd.Dir = "../../../examples/kubewarden/drop-capabilities/guest"
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(file)
})

// exampleGuest builds the example with the toolchain that runs the tests.
func exampleGuest(t testing.TB) []byte {
	t.Helper()
	wasm, err := example()
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

const bpfRequest = `{"settings":{"drop":["BPF"]},"request":{"operation":"CREATE","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"security-context-demo-4"},
"spec":{"containers":[{"name":"sec-ctx-4","image":"gcr.io/google-samples/node-hello:1.0","securityContext":{"capabilities":{"add":["NET_ADMIN","SYS_TIME"]}}}],"terminationGracePeriodSeconds":9007199254740993}}}}`

// The example of Kubewarden's documentation, by a guest of the stock Go toolchain.
func TestGoGuest(t *testing.T) {
	hammer.Alone(t)
	cache := t.TempDir()
	for range 2 { // the second time from the cache
		r := newRuntime(t, Options{CacheDir: cache})
		m := compile(t, r, exampleGuest(t))
		for _, c := range []struct{ operation, payload, want string }{
			{"validate", bpfRequest, `{"accepted":true,"mutated_object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"security-context-demo-4"},"spec":{` +
				`"containers":[{"image":"gcr.io/google-samples/node-hello:1.0","name":"sec-ctx-4","securityContext":{"capabilities":{"add":["NET_ADMIN","SYS_TIME"],"drop":["BPF"]}}}],` +
				`"terminationGracePeriodSeconds":9007199254740993}}}`},
			{"validate", `{"settings":{"drop":["BPF"]},"request":{"operation":"DELETE"}}`, `{"accepted":true}`},
			{"validate", `{"settings":{},"request":{"object":{"kind":"Service"}}}`, `{"accepted":false,"message":"the object is not a Pod","code":400}`},
			{"validate_settings", `{"drop":["BPF"]}`, `{"valid":true}`},
			{"validate_settings", `{}`, `{"valid":false,"message":"drop must name at least one capability"}`},
			{"protocol_version", ``, `"v1"`},
		} {
			got, err := m.Call(t.Context(), c.operation, []byte(c.payload), nil)
			if err != nil || string(got) != c.want {
				t.Errorf("%s %s: %s, %v; want %s", c.operation, c.payload, got, err, c.want)
			}
		}
		for operation, want := range map[string]string{
			"mutate":   "Guest call failure: unknown operation: mutate",
			"validate": "Guest call failure: unexpected EOF",
		} {
			if _, err := m.Call(t.Context(), operation, []byte(`{"request":`), nil); err == nil || err.Error() != want {
				t.Errorf("%s: error %v; want %s", operation, err, want)
			}
		}
	}
}

// program is a policy of execution mode wasi: it writes its input to stdout, asks its
// host once, and writes what it then reads from stdin.
const program = `(memory 2)
(import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
(import "host" "call" (func $call (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(data 300 "kubewarden") (data 310 "kubernetes") (data 320 "can_i") (data 400 "what happened\n")
(func $pass (local $n i32)
  i32.const 0 i32.const 1024 i32.store i32.const 4 i32.const 4096 i32.store
  i32.const 0 i32.const 0 i32.const 1 i32.const 8 call $fd_read if i32.const 70 call $exit end
  i32.const 8 i32.load local.set $n
  i32.const 4 local.get $n i32.store
  i32.const 1 i32.const 0 i32.const 1 i32.const 8 call $fd_write if i32.const 71 call $exit end)
(func $complain i32.const 0 i32.const 400 i32.store i32.const 4 i32.const 14 i32.store i32.const 2 i32.const 0 i32.const 1 i32.const 8 call $fd_write drop)
(func (export "_start") `

// asProgram gives a module the metadata of execution mode wasi.
func asProgram(wasm []byte) []byte {
	text := metadataSection + `{"rules":[],"mutating":true,"executionMode":"wasi","protocolVersion":"Unknown"}`
	body := slicesConcat(uleb(len(metadataSection)), []byte(text))
	return slicesConcat(wasm, []byte{sectionCustom}, uleb(len(body)), body)
}

func TestPrograms(t *testing.T) {
	r := newRuntime(t, Options{Answer: 4000, Memory: 4 << 20})
	ask := ` i32.const 300 i32.const 10 i32.const 310 i32.const 10 i32.const 320 i32.const 5 i32.const 300 i32.const 10 call $call `
	host := hostFunc(func(_ context.Context, _, _, operation string, payload []byte) ([]byte, error) {
		return nil, fmt.Errorf("no %s of %s", operation, payload)
	})
	for _, c := range []struct {
		code, want string
		reason     Reason
	}{
		{`call $pass)`, `{"a":1}`, ""},
		{`call $pass i32.const 0 call $exit)`, `{"a":1}`, ""},
		{`call $pass` + ask + `i32.eqz if unreachable end call $pass)`, `{"a":1}no can_i of kubewarden`, ""},
		{`call $complain)`, ``, ""},
		{`call $complain i32.const 3 call $exit)`, "what happened", Failed},
		{`i32.const 3 call $exit)`, "the policy ended with exit code 3 and wrote nothing to stderr", Failed},
		{`unreachable)`, "Guest call failure: wasm error: unreachable", Trapped},
		{`call $complain unreachable)`, "what happened", Failed},
		{`loop i32.const 1 i32.const 0 i32.const 1 i32.const 8 i32.const 4 i32.const 1000 i32.store call $fd_write drop br 0 end)`, "Guest call failure: the answer has more than 4000 bytes", Trapped},
	} {
		m := compile(t, r, asProgram(wat(t, program+c.code)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got, err := m.Call(ctx, "validate", []byte(`{"a":1}`), host)
		cancel()
		var e *Error
		switch {
		case c.reason == "" && (err != nil || string(got) != c.want):
			t.Errorf("%s: %q, %v; want %q", c.code, got, err, c.want)
		case c.reason != "" && (!errors.As(err, &e) || e.Reason != c.reason || e.Error() != c.want):
			t.Errorf("%s: error %v; want %s", c.code, err, c.want)
		}
	}
	m := compile(t, r, asProgram(wat(t, program+`call $pass)`)))
	if _, err := m.Call(t.Context(), "protocol_version", nil, nil); err == nil {
		t.Error("a program has no protocol version")
	}
}

// What wazero's own tests run does the same with the counter.
func TestMeteredModulesDoTheSame(t *testing.T) {
	hammer.Alone(t)
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "internal/integration_test/spectest/v2/testdata/*.wasm"))
	if err != nil || len(files) < 1000 {
		t.Fatalf("%d modules, %v", len(files), err)
	}
	r := newRuntime(t, Options{Memory: 4 << 20})
	r.bounds.memoryPages = 65536
	plain := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfig().WithMemoryLimitPages(64).WithDebugInfoEnabled(false).WithCloseOnContextDone(true).
		WithCoreFeatures(api.CoreFeaturesV2|experimental.CoreFeaturesExtendedConst|experimental.CoreFeaturesTailCall))
	defer plain.Close(context.WithoutCancel(t.Context()))
	const step = 8
	compared := 0
	for i := 0; i < len(files); i += step {
		wasm, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		want := results(t, plain, wasm)
		if want == nil {
			continue // not valid, or not on its own
		}
		b, err := readBinary(wasm, &r.bounds)
		if err != nil {
			if !strings.Contains(err.Error(), "labels of a br_table") {
				t.Errorf("%s is refused: %v", filepath.Base(files[i]), err)
			}
			continue
		}
		metered, err := b.metered(&r.bounds)
		if err != nil {
			t.Fatal(err)
		}
		got := results(t, r.engine, metered)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v; want %v", filepath.Base(files[i]), got, want)
		}
		compared += len(want)
	}
	if compared < 100 {
		t.Errorf("compared %d functions", compared)
	}
}

// results calls each exported function with zeros, in order. It returns nil if there
// is no instance, or no time.
func results(t *testing.T, r wazero.Runtime, wasm []byte) []string {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	compiled, err := r.CompileModule(ctx, wasm)
	if err != nil {
		return nil
	}
	defer compiled.Close(ctx)
	m, err := r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil
	}
	defer m.Close(ctx)
	if f := m.ExportedFunction(starter); f != nil {
		if _, err := invoke(ctx, f); err != nil {
			return nil
		}
	}
	all := []string{}
	names := []string{}
	for name := range compiled.ExportedFunctions() {
		if name != starter {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		f := m.ExportedFunction(name)
		got, err := invoke(ctx, f, make([]uint64, len(f.Definition().ParamTypes()))...)
		if slices.Contains(f.Definition().ResultTypes(), api.ValueTypeExternref) || slices.Contains(f.Definition().ResultTypes(), 0x70) {
			got = nil // addresses
		}
		if ctx.Err() != nil {
			return append(all, name+" does not end")
		}
		text := fmt.Sprint(name, got)
		if err != nil {
			text += trapText(err)
		}
		all = append(all, text)
	}
	return all
}

// Modules that are small, and that no compiler should get.
func TestCompilerBombs(t *testing.T) {
	body := func(locals int, code ...byte) []byte {
		b := slicesConcat([]byte{1}, uleb(locals), []byte{0x7f}, code, []byte{opEnd})
		return slicesConcat(uleb(len(b)), b)
	}
	repeat := func(n int, b ...byte) []byte { return slices.Repeat(b, n) }
	module := func(n int, f []byte) []byte {
		m := slicesConcat(header, []byte{sectionType, 5, 1, 0x60, 1, 0x7f, 0})
		for _, s := range []section{{sectionFunction, slicesConcat(uleb(n), make([]byte, n))}, {sectionCode, slicesConcat(uleb(n), slices.Repeat(f, n))}} {
			m = slicesConcat(m, []byte{s.id}, uleb(len(s.body)), s.body)
		}
		return m
	}
	calls, many := body(0, repeat(50_000, opCall, 1)...), body(0, repeat(32, 0x41, 0)...)
	b := defaultBounds()
	for name, c := range map[string]struct {
		wasm []byte
		want string
	}{
		"locals":                {module(20_000, body(49_000)), "49001 locals, more than 10000"},
		"locals in all":         {module(20_000, body(9_000)), "all functions so far have 2097233 locals, more than 2097152"},
		"nested blocks":         {module(1, body(0, append(repeat(60_000, opBlock, 0x40), repeat(60_000, opEnd)...)...)), "blocks are nested more than 5000 deep"},
		"nested loops":          {module(1, body(500, append(repeat(500, opLoop, 0x40), repeat(500, 0x20, 0, opBrIf, 0, opEnd)...)...)), "would keep the compiler busy for about 189 s"},
		"branches":              {module(1, body(0, append(append([]byte{opBlock, 0x40}, repeat(50_000, 0x20, 0, opBrIf, 0)...), opEnd)...)), "would keep the compiler busy for about 100 s"},
		"work in all":           {module(90, body(300, append(append([]byte{opBlock, 0x40}, repeat(1000, 0x20, 0, opBrIf, 0)...), opEnd)...)), "all functions so far would keep the compiler busy for about 64 s, more than 64"},
		"straight":              {module(1, body(0, repeat(200_000, 0x20, 0, 0x1a)...)), "function 0 has 600004 bytes, more than 262144"},
		"blocks of many values": {heavyModule(33, withCode(slicesConcat(locals(1), repeat(33, 0x41, 0), repeat(900, opLoop, 2, 0x20, 0, opBrIf, 0, opEnd), repeat(33, 0x1a), []byte{opEnd}))...), "33 results, more than 32"},
		"labels in all": {heavyModule(0, withCode(slicesConcat(locals(1), []byte{0x20, 0, opBrTable}, uleb(30_000), labels(30_001, 1),
			[]byte{0x20, 0, opBrTable}, uleb(30_000), labels(30_001, 1), []byte{opEnd}))...), "the br_tables have 60000 labels, more than 50000"},
		"calls of many results": {slicesConcat(header, []byte{sectionType, 40, 2, 0x60, 0, 32}, repeat(32, 0x7f), []byte{0x60, 1, 0x7f, 0, sectionFunction, 3, 2, 1, 0, sectionCode},
			uleb(1+len(calls)+len(many)), []byte{2}, calls, many), "would keep the compiler busy for about 49 s"},
		"locals that overflow": {module(1, body(0xffffffff)), "4294967296 locals, more than 10000"},
	} {
		_, err := readBinary(c.wasm, &b)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v; want %s", name, err, c.want)
		}
	}
}

// Whatever the bytes are: an error or a module, and a module that wazero takes is one
// with the counter as well.
func FuzzModule(f *testing.F) {
	f.Add(unhex(f, validGuest))
	f.Add(unhex(f, exitingGuest))
	for _, c := range hostile {
		f.Add(wat(f, c.wat))
	}
	f.Add(asProgram(wat(f, program+`call $pass)`)))
	r := newRuntime(f, Options{Memory: 4 << 20})
	r.bounds.work, r.bounds.allWork = 2e8, 2e8
	plain := wazero.NewRuntimeWithConfig(context.Background(), wazero.NewRuntimeConfig().WithMemoryLimitPages(64).WithDebugInfoEnabled(false).
		WithCoreFeatures(api.CoreFeaturesV2|experimental.CoreFeaturesExtendedConst|experimental.CoreFeaturesTailCall))
	f.Fuzz(func(t *testing.T, wasm []byte) {
		b, err := readBinary(wasm, &r.bounds)
		if err != nil {
			return
		}
		_, _ = readMetadata(b.metadata)
		metered, err := b.metered(&r.bounds)
		if err != nil {
			t.Fatalf("read and then not rewritten: %v", err)
		}
		ctx := context.Background()
		compiled, err := plain.CompileModule(ctx, wasm)
		if err != nil {
			return
		}
		compiled.Close(ctx)
		if compiled, err = r.engine.CompileModule(ctx, metered); err != nil {
			t.Fatalf("valid, and not with the counter: %v", err)
		}
		compiled.Close(ctx)
	})
}

// What Rust, TinyGo, Zig and C compile to, from the testdata of wazero's own module: all
// of it is within the bounds and runs as a policy of execution mode wasi. These programs
// know no policies, so they end by their own error, in their own words.
func TestOtherCompilers(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f={{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))
	r := newRuntime(t, Options{})
	const imports = "imports/wasi_snapshot_preview1/"
	for file, want := range map[string]string{
		imports + "testdata/print_args.wasm":                    "policy.wasm\x00validate\x00",
		imports + "testdata/cargo-wasi/wasi.wasm":               "unknown command: validate",
		imports + "testdata/zig-cc/wasi.wasm":                   "unknown command: validate",
		imports + "example/testdata/tinygo/cat.wasm":            "the policy ended with exit code 1 and wrote nothing to stderr",
		imports + "example/testdata/zig/cat.wasm":               "error: Unexpected",
		imports + "example/testdata/zig-cc/cat.wasm":            "error opening validate: -1",
		"internal/testing/dwarftestdata/testdata/zig/main.wasm": "Guest call failure: wasm error: unreachable",
	} {
		wasm, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		m := compile(t, r, asProgram(wasm))
		answer, err := m.Call(t.Context(), "validate", []byte(`{"request":{},"settings":{}}`), nil)
		got := string(answer)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}
