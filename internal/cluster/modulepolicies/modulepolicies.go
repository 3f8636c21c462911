package modulepolicies

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Options configure a Feature.
type Options struct {
	Mode   api.Mode
	Loader kubewarden.Loader
}

const (
	// loadsAtOnce bounds the modules that are fetched and compiled concurrently.
	loadsAtOnce = 2
	// loadFirst and loadMost bound the wait after a module could not be loaded.
	loadFirst = 5 * time.Second
	loadMost  = 5 * time.Minute
)

// errNotLoaded is the error of a policy until its module is loaded.
var errNotLoaded = errors.New("the policy's module is not loaded yet")

// errTenantsFile keeps users who may write policies in one namespace from finding out which files
// mapd can read.
var errTenantsFile = errors.New("spec.module: only a ClusterAdmissionPolicy may name a file of mapd's")

// Feature runs Kubewarden's policies. It reads them while the cluster has their kinds, loads
// their modules in the background, and publishes them to its own engines: one for each path, see
// webhook.ModulePath.
type Feature struct {
	feature.Base
	options Options
	log     *slog.Logger
	deps    policy.Deps
	objects binding.Sources
	changed func()
	kinds   []*watch.Mirror[*stored]
	sources feature.Sources
	engines map[path]*engine.Engine

	slots   chan struct{}
	loading sync.WaitGroup

	// Only Update uses the following fields, except those that mu guards and the atomic ones.
	list  []*stored
	state *State // nil before the first list was published
	// whole are the stages of all paths.
	whole []engine.Stage
	aware []schema.GroupVersionKind // kinds that policies may read
	built atomic.Bool

	mu    sync.Mutex
	loads map[loadKey]*load
	dirty bool // a load has ended since the last Update
}

type path struct {
	mutating      bool
	failurePolicy admissionregistrationv1.FailurePolicyType
}

var failurePolicies = []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore}

// stored is a stored policy. If it has no Value, it cannot be decoded, and has no effect.
type stored = feature.Decoded[kubewarden.Policy]

var decoder = feature.Decoder[kubewarden.Policy]{Decode: func(u *unstructured.Unstructured) (*kubewarden.Policy, error) {
	text, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	return kubewarden.Decode(text, u.GetNamespace())
}}

// loadKey identifies the policy version for which a module was loaded.
type loadKey struct {
	of *stored
	id string
}

// load is a module that is loaded or being loaded.
type load struct {
	module  policy.Mutator
	err     error
	ended   bool
	tries   int
	retry   time.Time
	program *policy.Policy // the policy, compiled with module
}

// New returns a Feature that has not started.
func New(o Options) *Feature {
	return &Feature{options: o, engines: map[path]*engine.Engine{}, slots: make(chan struct{}, loadsAtOnce), loads: map[loadKey]*load{}}
}

// Name implements feature.Feature.
func (g *Feature) Name() string { return "Kubewarden's policies" }

// Start implements feature.Feature.
func (g *Feature) Start(d feature.Deps) {
	g.log, g.deps, g.objects, g.changed = d.Log, d.Policy, d.Sources, d.Changed
	for _, mutating := range []bool{true, false} {
		for _, failurePolicy := range failurePolicies {
			g.engines[path{mutating, failurePolicy}] = engine.New(d.Engine)
		}
	}
	for _, kind := range []string{kubewarden.ClusterPolicyKind, kubewarden.PolicyKind} {
		m := feature.Watch(d, decoder.Keep, feature.Versions(kubewarden.Group, kind, kubewarden.Version))
		g.kinds, g.sources = append(g.kinds, m), append(g.sources, m)
	}
}

// Run implements feature.Feature.
func (g *Feature) Run(ctx context.Context) {
	g.sources.Run(ctx)
	g.loading.Wait()
}

// Look implements feature.Feature.
func (g *Feature) Look() { g.sources.Look() }

// Ready implements feature.Feature. It does not wait for modules to be loaded.
func (g *Feature) Ready() error {
	if g.built.Load() {
		return nil
	}
	return cmp.Or(g.sources.Settled(), errors.New("no policies of Kubewarden are published yet"))
}

// State implements feature.Feature.
func (g *Feature) State() feature.State {
	if g.state == nil {
		return nil
	}
	return g.state
}

// Stages implements feature.Feature.
func (g *Feature) Stages() []engine.Stage { return g.whole }

// ParamKinds implements feature.Feature.
func (g *Feature) ParamKinds() []schema.GroupVersionKind { return g.aware }

// Owns implements feature.Feature.
func (g *Feature) Owns(entry string) bool { return IsEntry(entry) }

// Admitters implements feature.Feature.
func (g *Feature) Admitters() map[string]webhook.Admitter {
	out := map[string]webhook.Admitter{}
	for p := range g.engines {
		out[webhook.ModulePath(p.mutating, p.failurePolicy)] = admitter{g, p}
	}
	return out
}

type admitter struct {
	feature *Feature
	path    path
}

// Admit implements webhook.Admitter.
func (a admitter) Admit(ctx context.Context, req *policy.Request) *engine.Decision {
	e := a.feature.engines[a.path]
	if len(e.Stages()) == 0 { // not published yet
		return feature.Unread{Ignore: a.path.failurePolicy == admissionregistrationv1.Ignore || a.feature.options.Mode != api.Enforce}.Admit(ctx, req)
	}
	return e.Admit(ctx, req)
}

// Update implements feature.Feature.
func (g *Feature) Update(ctx context.Context, kindsChanged bool) bool {
	if g.state == nil && g.sources.Settled() != nil {
		return false
	}
	list := feature.Sorted(g.kinds...)
	g.mu.Lock()
	stale := g.dirty || kindsChanged || g.state == nil || !slices.Equal(list, g.list)
	g.dirty = false
	g.mu.Unlock()
	if !stale {
		return false
	}
	var policies []*kubewarden.Policy
	of := map[kubewarden.Key]*stored{}
	for _, s := range list {
		if s.Value != nil {
			policies = append(policies, s.Value)
			of[s.Value.Key()] = s
		}
	}
	policies = kubewarden.Unique(policies)
	state := &State{}
	programs := make([]*policy.Policy, len(policies))
	current := map[loadKey]bool{}
	aware := map[schema.GroupVersionKind]bool{}
	for i, p := range policies {
		s := of[p.Key()]
		key := loadKey{s, p.ID()}
		current[key] = true
		var err error
		programs[i], err = g.program(ctx, key, p)
		state.add(s, p, err)
		for _, gvk := range p.ContextAware {
			aware[gvk] = true
		}
	}
	for _, s := range list {
		if s.Value == nil {
			state.Policies = append(state.Policies, PolicyState{Object: s.Object, ID: nameOf(s.Object), Err: s.Err, Undecoded: true})
		}
	}
	if err := g.publish(policies, programs); err != nil {
		g.log.Error("changed policies of Kubewarden cannot be used; those of before stay in use", "error", err)
		return false
	}
	g.mu.Lock()
	for key := range g.loads {
		if !current[key] {
			delete(g.loads, key)
		}
	}
	g.mu.Unlock()
	g.built.Store(true)
	g.list, g.state = list, state
	g.aware = g.aware[:0:0]
	for gvk := range aware {
		g.aware = append(g.aware, gvk)
	}
	g.log.Info("Kubewarden's policies in use", "policies", len(list), "running", state.Running(), "shadow", g.options.Mode == api.Shadow)
	return true
}

func nameOf(u *unstructured.Unstructured) string {
	if ns := u.GetNamespace(); ns != "" {
		return ns + "/" + u.GetName()
	}
	return u.GetName()
}

// program returns the policy as an engine runs it. Until its module is loaded, that is a broken
// policy with the reason as its error.
func (g *Feature) program(ctx context.Context, key loadKey, p *kubewarden.Policy) (*policy.Policy, error) {
	if p.Unusable != nil {
		return p.Broken(p.Unusable), p.Unusable
	}
	if p.Namespace != "" && p.Module.Scheme == "file" {
		return p.Broken(errTenantsFile), errTenantsFile
	}
	g.mu.Lock()
	l := g.loads[key]
	if l == nil {
		l = &load{}
		g.loads[key] = l
		g.begin(ctx, l, p)
	} else if l.ended && l.err != nil && !time.Now().Before(l.retry) {
		l.ended = false
		g.begin(ctx, l, p)
	}
	module, err, ended := l.module, l.err, l.ended
	g.mu.Unlock()
	switch {
	case err != nil:
		return p.Broken(err), err
	case !ended:
		return p.Broken(errNotLoaded), errNotLoaded
	case l.program != nil:
		return l.program, nil
	}
	deps := g.deps
	deps.Env = deps.Env.Within(ctx)
	program, err := p.Compile(deps, module)
	if err != nil {
		return p.Broken(err), err
	}
	l.program = program
	return program, nil
}

// begin starts to load a module in the background. The caller holds g.mu.
func (g *Feature) begin(ctx context.Context, l *load, p *kubewarden.Policy) {
	g.loading.Go(func() {
		select {
		case g.slots <- struct{}{}:
			defer func() { <-g.slots }()
		case <-ctx.Done():
			return
		}
		var module policy.Mutator
		err := feature.Guarded(func() (err error) {
			module, err = g.options.Loader.Load(ctx, p, g.deps, g.objects.Params)
			return err
		})
		if ctx.Err() != nil {
			return
		}
		g.mu.Lock()
		l.ended, g.dirty = true, true
		if err == nil {
			l.module, l.err = module, nil
		} else {
			l.err = fmt.Errorf("spec.module: %w", err)
			wait := min(loadMost, loadFirst<<min(l.tries, 10))
			l.tries++
			l.retry = time.Now().Add(wait)
			time.AfterFunc(wait, func() {
				g.mu.Lock()
				g.dirty = true
				g.mu.Unlock()
				g.changed()
			})
		}
		g.mu.Unlock()
		if err != nil {
			g.log.Error("the policy of Kubewarden cannot run", "policy", p.ID(), "error", err)
		}
		g.changed()
	})
}

// publish passes the policies of each path to the path's engine.
func (g *Feature) publish(policies []*kubewarden.Policy, programs []*policy.Policy) error {
	type stages struct{ mutating, validating *binding.Index }
	made := map[admissionregistrationv1.FailurePolicyType]stages{}
	for _, failurePolicy := range failurePolicies {
		var share []*kubewarden.Policy
		var compiled []*policy.Policy
		for i, p := range policies {
			if *p.Object().Spec.FailurePolicy == failurePolicy {
				share, compiled = append(share, p), append(compiled, programs[i])
			}
		}
		mutating, validating, err := kubewarden.Indexes(share, compiled, g.objects)
		if err != nil {
			return err
		}
		made[failurePolicy] = stages{mutating, validating}
	}
	mutating, validating, err := kubewarden.Indexes(policies, programs, g.objects)
	if err != nil {
		return err
	}
	g.whole = []engine.Stage{engine.Modules(mutating, g.options.Mode), engine.Validators(validating, g.options.Mode)}
	for path, e := range g.engines {
		s := made[path.failurePolicy]
		if path.mutating {
			e.Publish(engine.Modules(s.mutating, g.options.Mode))
		} else {
			e.Publish(engine.Validators(s.validating, g.options.Mode))
		}
	}
	return nil
}

// Policies implements feature.Named.
func (g *Feature) Policies(f func(*unstructured.Unstructured)) {
	for _, s := range g.list {
		f(s.Object)
	}
}

// Holds implements feature.Feature.
func (g *Feature) Holds(id string) bool {
	return g.state != nil && slices.ContainsFunc(g.state.Policies, func(s PolicyState) bool { return s.ID == id })
}
