package wapc

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/mapd-project/mapd/internal/detach"
)

// Options bound what modules may use. A zero field means the default that its comment names.
type Options struct {
	// Memory is the most that one guest's memory may grow to, in bytes: 256 MiB.
	Memory int64
	// AllMemory bounds the memories of all guests at once, in bytes: 1 GiB.
	AllMemory int64
	// Timeout bounds making an instance, and a call whose context has no deadline: 2 s.
	Timeout time.Duration
	// Answer is the largest answer of a guest, and of a host to a guest, in bytes: 16 MiB.
	Answer int
	// CacheDir is a directory for compiled code that several processes share; empty: none. Only
	// trusted users may have write access, because its content is executed unchecked.
	CacheDir string
	// Log receives the log entries of modules; nil: they are discarded.
	Log *slog.Logger
}

// Runtime compiles and runs modules. It is safe for concurrent use.
type Runtime struct {
	options Options
	bounds  bounds
	engine  wazero.Runtime
	cache   wazero.CompilationCache
	log     *slog.Logger

	compiling *detach.Group
	memory    atomic.Int64 // of all guests
	spare     atomic.Int64 // memory of unused instances

	mu     sync.Mutex
	closed bool
	under  sync.WaitGroup // counts calls, compilations and instances made in advance
	ended  context.Context
	end    context.CancelFunc
}

// New returns a Runtime. It must be closed.
func New(ctx context.Context, o Options) (*Runtime, error) {
	if o.Memory == 0 {
		o.Memory = 256 << 20
	}
	if o.AllMemory == 0 {
		o.AllMemory = 1 << 30
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Answer == 0 {
		o.Answer = 16 << 20
	}
	pages := o.Memory / pageSize
	if pages < 1 || pages > 65536 {
		return nil, fmt.Errorf("a guest's memory is between 64 KiB and 4 GiB, not %d bytes", o.Memory)
	}
	config := wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2 | experimental.CoreFeaturesExtendedConst | experimental.CoreFeaturesTailCall).
		WithMemoryLimitPages(uint32(pages)).
		WithDebugInfoEnabled(false)
	r := &Runtime{options: o, bounds: defaultBounds(), log: o.Log, compiling: detach.New(1)}
	r.bounds.memoryPages = int(pages)
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if o.CacheDir != "" {
		cache, err := wazero.NewCompilationCacheWithDir(o.CacheDir)
		if err != nil {
			return nil, fmt.Errorf("cache of compiled modules: %w", err)
		}
		r.cache = cache
		config = config.WithCompilationCache(cache)
	}
	r.ended, r.end = context.WithCancel(context.WithoutCancel(ctx))
	r.engine = wazero.NewRuntimeWithConfig(ctx, config)
	if err := r.offer(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// begin counts the beginning of an operation. It returns false if the Runtime is closed.
func (r *Runtime) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.under.Add(1)
	}
	return !r.closed
}

// Close stops running calls, waits for the compiler, and frees all resources. Modules cannot be
// called afterwards.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end()
	r.under.Wait()
	err := r.engine.Close(context.WithoutCancel(r.ended))
	if r.cache != nil {
		err = errors.Join(err, r.cache.Close(context.WithoutCancel(r.ended)))
	}
	return err
}

var errClosed = &Error{Reason: NotInitialised, text: "the runtime of WebAssembly policies is closed"}

// Module is a policy that is ready to be called. It is safe for concurrent use.
type Module struct {
	name     string
	digest   [sha256.Size]byte
	runtime  *Runtime
	binary   *module
	metadata Metadata
	mode     Mode
	compiled wazero.CompiledModule
	ahead    chan *instance // instances made in advance
	wanted   atomic.Int32   // how many there should be
	filling  atomic.Bool    // fill is running
	begins   atomic.Int64   // bytes of memory that an instance has after initialisation

	mu     sync.Mutex
	users  int
	closed bool
}

// Refusal is the reason why a module can never run. It does not depend on the machine.
type Refusal struct{ Text string }

func (e *Refusal) Error() string { return e.Text }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// Compile prepares a module for calls: it checks the bytes, compiles them and makes a first
// instance. The name is used in messages only. A *Refusal says that the module can never run. If
// ctx is done earlier, Compile returns, but the compiler continues. It ends soon, because the
// module is bounded; until then nothing else is compiled.
func (r *Runtime) Compile(ctx context.Context, name string, wasm []byte) (*Module, error) {
	m, err := r.inspect(name, wasm)
	if err != nil {
		return nil, err
	}
	if err := m.runnable(); err != nil {
		return nil, err
	}
	metered, err := m.binary.metered(&r.bounds)
	if err != nil {
		return nil, &Refusal{err.Error()}
	}
	var compiled wazero.CompiledModule
	var compileErr error
	err = r.compiling.Do(ctx, string(m.digest[:]), func() {
		if !r.begin() {
			compileErr = errClosed
			return
		}
		defer r.under.Done()
		defer func() {
			if p := recover(); p != nil {
				compileErr = refuse("the compiler failed: %v", p)
			}
		}()
		if compiled, compileErr = r.engine.CompileModule(context.WithoutCancel(ctx), metered); compileErr != nil {
			compileErr = refuse("the module is not valid: %s", trapText(compileErr))
		} else if ctx.Err() != nil {
			compiled.Close(context.WithoutCancel(ctx)) // the caller has given up
		}
	})
	if err != nil {
		return nil, fmt.Errorf("module %s was not compiled: %w", name, err)
	}
	if compileErr != nil {
		return nil, compileErr
	}
	m.compiled = compiled
	if m.mode == ModeWaPC {
		ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
		defer cancel()
		first, err := m.newInstance(ctx, nil)
		if err != nil {
			return nil, errors.Join(err, compiled.Close(context.WithoutCancel(ctx)))
		}
		m.keep(first)
	}
	return m, nil
}

// inspect reads a module without compiling it.
func (r *Runtime) inspect(name string, wasm []byte) (*Module, error) {
	b, err := readBinary(wasm, &r.bounds)
	if err != nil {
		return nil, &Refusal{err.Error()}
	}
	m := &Module{name: name, digest: sha256.Sum256(wasm), runtime: r, binary: b, ahead: make(chan *instance, runtime.GOMAXPROCS(0))}
	m.wanted.Store(1)
	if m.metadata, err = readMetadata(b.metadata); err != nil {
		return nil, &Refusal{err.Error()}
	}
	m.mode = b.mode(m.metadata)
	return m, nil
}

// Metadata returns the metadata that the module contains.
func (m *Module) Metadata() Metadata { return m.metadata }

// Mode returns the execution mode.
func (m *Module) Mode() Mode { return m.mode }

// Name returns the name that the module was compiled under.
func (m *Module) Name() string { return m.name }

// enter counts a user of the module. It returns false if the module or the Runtime is closed.
func (m *Module) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || !m.runtime.begin() {
		return false
	}
	m.users++
	return true
}

func (m *Module) leave() {
	m.mu.Lock()
	m.users--
	last := m.closed && m.users == 0
	m.mu.Unlock()
	if last {
		m.free()
	}
	m.runtime.under.Done()
}

// Close refuses further calls, and frees the module when the last running call has ended.
func (m *Module) Close() error {
	m.mu.Lock()
	again := m.closed
	m.closed = true
	last := !again && m.users == 0
	m.mu.Unlock()
	if last {
		return m.free()
	}
	return nil
}

func (m *Module) free() error {
	for {
		select {
		case i := <-m.ahead:
			m.runtime.spare.Add(-i.memory.held)
			i.close()
		default:
			return m.compiled.Close(context.WithoutCancel(m.runtime.ended))
		}
	}
}

// mode returns the execution mode of a module: the one in its metadata, otherwise the one that
// fits its exports.
func (b *module) mode(m Metadata) Mode {
	if m.ExecutionMode != nil {
		return Mode(*m.ExecutionMode)
	}
	for name := range b.exports {
		if len(name) > 4 && name[:4] == "opa_" {
			return ModeOPA
		}
	}
	return ModeWaPC
}

// runnable returns the reason why the module cannot run, or nil.
func (m *Module) runnable() error {
	switch m.mode {
	case ModeWaPC, ModeWASI:
	case ModeOPA, ModeGatekeeper:
		return refuse("execution mode %s is Rego compiled to WebAssembly; mapd runs %s and %s", m.mode, ModeWaPC, ModeWASI)
	default:
		return refuse("execution mode %q does not exist; mapd runs %s and %s", m.mode, ModeWaPC, ModeWASI)
	}
	if !m.binary.exportsMemory {
		return refuse("the module does not export its memory as memory")
	}
	entry, want := "__guest_call", signature{params: 2, results: 1}
	if m.mode == ModeWASI {
		entry, want = "_start", signature{plain: true}
	}
	index, ok := m.binary.exports[entry]
	if !ok {
		text := ""
		if _, program := m.binary.exports["_start"]; program && m.metadata.ExecutionMode == nil {
			text = fmt.Sprintf("; if it is a program, its metadata must name execution mode %s", ModeWASI)
		}
		return refuse("the module does not export %s, which a policy of execution mode %s needs%s", entry, m.mode, text)
	}
	if int(index) < len(m.binary.importedTypes) { // it would look for the memory of its own module, the host's
		return refuse("%s is a function of the host", entry)
	}
	if s, _ := m.binary.signatureOf(index); s != want {
		return refuse("%s takes %d values and returns %d, instead of %d and %d", entry, s.params, s.results, want.params, want.results)
	}
	for _, name := range initialisers {
		if index, ok := m.binary.exports[name]; ok && m.mode == ModeWaPC {
			if s, _ := m.binary.signatureOf(index); !s.plain {
				return refuse("%s takes or returns values", name)
			}
		}
	}
	if m.binary.exportsStarter {
		return refuse("the module exports %q, a name that mapd needs", starter)
	}
	var unknown []string
	for _, i := range m.binary.imports {
		if i.Kind != "function" || i.Module == meterModule || !m.runtime.offers(i) {
			unknown = append(unknown, i.Kind+" "+i.Module+"."+i.Name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		const most = 5
		if n := len(unknown) - most; n > 0 {
			unknown = append(unknown[:most], fmt.Sprintf("%d more", n))
		}
		return refuse("the module imports what mapd does not offer: %s", join(unknown))
	}
	return nil
}

// initialisers are the exports that are called, in this order, before the first call.
// policy-server does not call _initialize, which modules of the Go toolchain need.
var initialisers = []string{"_start", "_initialize", "wapc_init"}
