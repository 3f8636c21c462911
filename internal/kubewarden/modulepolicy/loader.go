package modulepolicy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/mapd-project/mapd/internal/kubewarden/download"
	"github.com/mapd-project/mapd/internal/kubewarden/wapc"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Options configure a Loader.
type Options struct {
	// Modules fetches modules; it must not be nil.
	Modules *download.Fetcher
	// Runtime bounds what modules may use.
	Runtime wapc.Options
	Log     *slog.Logger
}

// loadTimeout bounds the time to fetch and compile one module and to check the settings.
const loadTimeout = time.Minute

// Loader implements kubewarden.Loader. Modules with the same bytes are compiled once, and closed
// when the last policy that uses them is closed.
type Loader struct {
	options Options
	runtime *wapc.Runtime
	slots   chan struct{} // bounds concurrent evaluations

	mu      sync.Mutex
	modules map[[sha256.Size]byte]*shared
}

var _ kubewarden.Loader = (*Loader)(nil)

// shared is a compiled module that several policies may use.
type shared struct {
	users  int           // guarded by Loader.mu
	ready  chan struct{} // closed when the module is compiled, or the compiler has failed
	module *wapc.Module
	err    error
}

// New returns a Loader, which must be closed.
func New(ctx context.Context, o Options) (*Loader, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Runtime.Log = o.Log
	r, err := wapc.New(ctx, o.Runtime)
	if err != nil {
		return nil, err
	}
	return &Loader{
		options: o, runtime: r, slots: make(chan struct{}, runtime.GOMAXPROCS(0)),
		modules: map[[sha256.Size]byte]*shared{},
	}, nil
}

// Close ends running calls. Later calls of the Loader's mutators fail.
func (l *Loader) Close() error { return l.runtime.Close() }

// Load implements kubewarden.Loader.
func (l *Loader) Load(ctx context.Context, p *kubewarden.Policy, deps policy.Deps, objects binding.Params) (policy.Mutator, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	wasm, err := l.options.Modules.Fetch(ctx, p.Module)
	if err != nil {
		return nil, err
	}
	settings, err := tree.AppendJSON(nil, p.Settings)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	digest := sha256.Sum256(wasm)
	s, err := l.compile(ctx, digest, p.Module.URL, wasm)
	if err != nil {
		l.release(digest)
		return nil, err
	}
	g := &guest{policy: p, settings: settings, module: s.module, types: deps.Types, objects: objects, slots: l.slots}
	runtime.AddCleanup(g, func(struct{}) { l.release(digest) }, struct{}{})
	if err := g.check(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// compile returns the module with a digest. The caller must release it even after an error.
func (l *Loader) compile(ctx context.Context, digest [sha256.Size]byte, name string, wasm []byte) (*shared, error) {
	l.mu.Lock()
	s := l.modules[digest]
	first := s == nil
	if first {
		s = &shared{ready: make(chan struct{})}
		l.modules[digest] = s
	}
	s.users++
	l.mu.Unlock()
	if first {
		s.module, s.err = l.runtime.Compile(ctx, name, wasm)
		if s.err == nil {
			s.err = runnable(s.module.Metadata())
		}
		close(s.ready)
	}
	select {
	case <-s.ready:
		return s, s.err
	case <-ctx.Done():
		return s, fmt.Errorf("module %s was not compiled: %w", name, context.Cause(ctx))
	}
}

// runnable returns the reason why mapd does not run a module although it can compile it.
func runnable(m wapc.Metadata) error {
	if m.PolicyType != nil && *m.PolicyType == "raw" {
		return &wapc.Refusal{Text: "the module is for raw requests (policyType raw), not for those of Kubernetes"}
	}
	return nil
}

// release removes one user of a module. A module without users is closed. If it could not be
// compiled, the next user tries again.
func (l *Loader) release(digest [sha256.Size]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.modules[digest]
	if s.users--; s.users > 0 {
		return
	}
	delete(l.modules, digest)
	if s.module != nil {
		_ = s.module.Close()
	}
}

// check lets the module check the policy's settings (Kubewarden spec §2.4).
func (g *guest) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(g.policy.Timeout, kubewarden.DefaultTimeout))
	defer cancel()
	text, err := g.module.Call(ctx, "validate_settings", g.settings, &host{policy: g.policy, objects: g.objects})
	if err != nil {
		return fmt.Errorf("validate_settings: %w", err)
	}
	return checkVerdict(text)
}
