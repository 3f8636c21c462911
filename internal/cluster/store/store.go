package store

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Metrics counts snapshots. *metrics.Metrics is one.
type Metrics interface {
	// SnapshotPublished reports how many policies and bindings are in use from now on, and
	// how many of the policies cannot run. changed is false if requests get the same decisions
	// as before.
	SnapshotPublished(policies, bindings, compileErrors int, changed bool)
	// BreakersPublished reports the policies that have a breaker, and which have tripped.
	BreakersPublished(tripped map[string]bool)
	// Prune drops the series of policies and bindings that no longer exist: those for which keep
	// returns false. binding is empty for series of a policy alone.
	Prune(keep func(policy, binding string) bool)
}

// Options configure a Store. Dynamic, Kubernetes and Env are required. The clients should have no
// rate limit, because requests wait for some of their calls.
type Options struct {
	Dynamic    dynamic.Interface
	Kubernetes kubernetes.Interface
	// Env is the CEL environment.
	Env *cel.Env
	Log *slog.Logger // nil: no log
	// Metrics may be nil.
	Metrics Metrics
	// Prune is called like Metrics.Prune; it may be nil.
	Prune func(keep func(policy, binding string) bool)
	// Exempt are the namespaces that webhook entries exclude.
	Exempt []string
	// Resolver answers what policies ask providers of external data. If it is nil, every answer
	// is an error.
	Resolver engine.Resolver
	// Features are run besides policies. mapd needs the rights to read their objects.
	Features []feature.Feature
}

// Store makes snapshots of a cluster's policies. It is safe for concurrent use.
type Store struct {
	log     *slog.Logger
	metrics Metrics
	prune   func(keep func(policy, binding string) bool) // may be nil

	policies   *watch.Mirror[*stored]
	bindings   *watch.Mirror[*stored]
	moves      *moves
	namespaces namespaces
	params     *params
	schemas    *schemas
	authorizer authorizer.Authorizer
	sources    binding.Sources
	engine     engine.Options
	features   []feature.Feature
	// served runs the policies of each entry; nil before the first snapshot.
	served atomic.Pointer[served]

	// changes is notified when there may be something new to publish.
	changes watch.Signal
	// kindsChanged asks for new Indexes, and stateChanged for a new Snapshot, even if no policy
	// and no binding has changed.
	kindsChanged, stateChanged atomic.Bool

	// Only the goroutine of Run uses the following fields, except published and listeners.
	compiler compiler
	entries  map[webhook.ID]*joined
	warnings warningsVersion
	forgetAt time.Time   // when to prune again; zero: not needed
	late     *time.Timer // notifies changes at forgetAt

	published atomic.Pointer[publication]
	listeners watch.Listeners
}

// goneAfter is how long the server may not know a resource that it served before, until its
// objects count as deleted.
const goneAfter = 3 * time.Second

// longestRequest is longer than any request takes. For that long after a publication, a request
// that began before it may still count for policies that are gone.
const longestRequest = time.Minute

// New returns a Store. It is empty until Run has read the cluster.
func New(o Options) *Store {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{log: log, metrics: o.Metrics, prune: o.Prune, changes: watch.NewSignal()}
	objects := watch.Options[*stored]{
		Client: o.Dynamic, Log: log, Keep: keepStored, Changed: s.changes.Notify, EmptyAfter: goneAfter, Names: true,
	}
	objects.Resource = api.OwnPolicies
	s.policies = watch.New(objects)
	objects.Resource = api.OwnBindings
	s.bindings = watch.New(objects)
	s.moves = newMoves(o.Dynamic, o.Exempt, log, s.refresh)
	s.namespaces = newNamespaces(o.Dynamic, log, s.changes.Notify)

	s.schemas = newSchemas(o.Dynamic, o.Kubernetes.Discovery(), log, s.servedKindsChanged)
	types := s.schemas.Types()
	s.params = newParams(o.Dynamic, types, log, s.refresh)
	s.authorizer = NewAuthorizer(o.Kubernetes)

	s.compiler.deps = policy.Deps{Env: o.Env, Types: types}
	s.compiler.slow = newSlow(s.changes.Notify)
	s.sources = binding.Sources{Params: s.params, Namespaces: s.namespaces, Equivalents: policyset.Equivalents(types)}
	s.engine = engine.Options{Authorizer: s.authorizer, Convert: policyset.Convert(types), Resolver: o.Resolver}
	s.features = o.Features
	for _, f := range s.features {
		if f, ok := f.(feature.Excepter); ok {
			s.sources.Exceptions = f.Exceptions
		}
	}
	deps := feature.Deps{
		Client: o.Dynamic, Log: log, Policy: s.compiler.deps, Sources: s.sources, Engine: s.engine, Authorizer: s.authorizer,
		Changed: s.changes.Notify, Own: own{s},
	}
	for _, f := range s.features {
		f.Start(deps)
	}
	return s
}

// servedKindsChanged is called when the server serves other kinds than before.
func (s *Store) servedKindsChanged() {
	s.kindsChanged.Store(true)
	s.changes.Notify()
	s.params.look()
	for _, f := range s.features {
		f.Look()
	}
}

// Run watches the cluster and publishes snapshots until ctx is done. A Store
// runs once.
func (s *Store) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for _, run := range []func(context.Context){s.policies.Run, s.bindings.Run, s.namespaces.Run, s.moves.configuration.Run} {
		all.Go(func() { run(ctx) })
	}
	for _, f := range s.features {
		all.Go(func() { f.Run(ctx) })
	}
	var failed error
	all.Go(func() {
		if failed = s.schemas.Run(ctx); failed != nil {
			stop()
		}
	})
	for last := (time.Time{}); s.changes.WaitQuietSince(ctx, last); last = time.Now() {
		s.update(ctx)
	}
	if s.late != nil {
		s.late.Stop()
	}
	all.Wait()
	s.params.running.Wait()
	return failed
}

// Ready returns nil once the first snapshot is published, and before that an error that names
// what is missing.
func (s *Store) Ready() error {
	if s.published.Load() == nil {
		if err := s.sourcesReady(); err != nil {
			return err
		}
		return errors.New("no snapshot is published yet")
	}
	var errs []error
	for _, f := range s.features {
		if !f.Advisory() {
			errs = append(errs, f.Ready())
		}
	}
	return errors.Join(errs...)
}

// sourcesReady returns nil once everything has been read, and before that an error that names
// what is missing.
func (s *Store) sourcesReady() error {
	errs := []error{s.policies.Ready(), s.bindings.Ready(), s.namespaces.Ready()}
	if !s.schemas.Ready() {
		errs = append(errs, errors.New("schemas: not read yet"))
	}
	return errors.Join(errs...)
}

// update compiles what has changed. Once all sources have been read, it publishes the result.
func (s *Store) update(ctx context.Context) {
	start := time.Now()
	kinds, state := s.kindsChanged.Swap(false), s.stateChanged.Swap(false)
	policies, bindings := changes(s.compiler.policies, s.policies), changes(s.compiler.bindings, s.bindings)
	work := s.compiler.update(policies, bindings)
	for _, name := range work.broken {
		// The error is in the policy's status, not in the log, because it quotes the policy.
		s.log.Error("the policy cannot run; its status says why", "policy", name)
	}
	// Features and policies do not wait for each other's sources.
	for _, f := range s.features {
		if f.Update(ctx, kinds) {
			state = true
		}
	}
	if s.sourcesReady() != nil {
		return
	}
	s.forgetLate()
	if s.entries != nil && !kinds && !state && !work.changed && len(bindings) == 0 {
		return
	}
	before := s.entries
	if err := s.rebuild(ctx, kinds); err != nil {
		s.log.Error("changed policies cannot be used; those of before stay in use", "error", err)
		return
	}
	level := slog.LevelDebug // requests are not affected
	if !maps.Equal(before, s.entries) {
		level = slog.LevelInfo
	}
	s.log.Log(ctx, level, "policies in use",
		"policies", len(s.compiler.policies), "bindings", len(s.compiler.bindings), "broken", s.compiler.broken(),
		"compiledPolicies", work.policies, "compiledBindings", work.bindings, "duration", time.Since(start))
}

// rebuild publishes the compiled policies and bindings.
func (s *Store) rebuild(ctx context.Context, kinds bool) error {
	before := s.entries
	if kinds {
		before = nil // Indexes cache which resources are equivalent
		s.warnings.expire(s.refresh)
	}
	var last *catalogue
	if p := s.published.Load(); p != nil {
		last = &p.catalogue
	}
	also, wait := s.moves.update(last, s.compiler.catalogue, time.Now())
	if wait > 0 {
		time.AfterFunc(wait, s.refresh)
	}
	entries, err := join(s.compiler.catalogue, s.sources, before, also)
	if err != nil {
		return err
	}
	// The watches start before the first request needs the parameters.
	s.params.Use(ctx, s.kindsInUse(entries))
	if s.metrics != nil {
		s.metrics.SnapshotPublished(len(s.compiler.policies), len(s.compiler.bindings), s.compiler.broken(), !maps.Equal(before, entries))
	}
	s.publish(entries)
	return nil
}

// kindsInUse returns the kinds that policies and features read during a request.
func (s *Store) kindsInUse(entries map[webhook.ID]*joined) []schema.GroupVersionKind {
	kinds := paramKinds(entries)
	for _, f := range s.features {
		kinds = append(kinds, f.ParamKinds()...)
	}
	return kinds
}

// refresh asks for a new Snapshot of the same policies and bindings.
func (s *Store) refresh() {
	s.stateChanged.Store(true)
	s.changes.Notify()
}

// publish replaces the Indexes of all entries together. A client's request arrives as one call
// per entry, so an earlier call for the same request may have used an older Index.
func (s *Store) publish(entries map[webhook.ID]*joined) {
	last, now := s.served.Load(), &served{entries: map[webhook.ID]*admitter{}, groups: map[webhook.Group]func() *admitter{}}
	breakers, tripped := s.compiler.breakers()
	for id, j := range entries {
		var a *admitter
		if last != nil {
			a = last.entries[id]
		}
		if a == nil {
			a = &admitter{store: s, engine: engine.New(s.engine)}
		}
		a.engine.Publish(engine.Policies(j.index))
		a.breakers.Store(j.counting(breakers))
		now.entries[id] = a
	}
	for _, g := range webhook.Groups() {
		c := s.compiler.catalogue
		now.groups[g] = sync.OnceValue(func() *admitter { return s.wholeGroup(c, g) })
	}
	s.served.Store(now)
	s.entries = entries
	s.forgetGone()
	s.forgetAt = time.Now().Add(longestRequest)
	if s.late == nil {
		s.late = time.AfterFunc(longestRequest, s.changes.Notify)
	} else {
		s.late.Reset(longestRequest)
	}
	if s.metrics != nil {
		s.metrics.BreakersPublished(tripped)
	}
	next := publication{catalogue: s.compiler.catalogue, env: s.compiler.deps.Env, types: s.compiler.deps.Types, version: s.warnings.current(), params: s.params.State}
	for _, f := range s.features {
		next.states = append(next.states, f.State())
		next.stages = append(next.stages, f.Stages()...)
	}
	s.tellFollowers()
	s.published.Store(newPublication(next))
	s.listeners.Notify()
}

// tellFollowers passes the stages of all policies to the features that use them.
func (s *Store) tellFollowers() {
	for i, f := range s.features {
		follower, ok := f.(feature.Follower)
		if !ok {
			continue
		}
		stage, err := s.compiler.catalogue.stage(s.sources)
		if err != nil { // only for two objects of one name, which a cluster cannot have
			s.log.Error("the policies of before stay in use", "for", f.Name(), "error", err)
			continue
		}
		var others []engine.Stage
		for j, other := range s.features {
			if j != i {
				others = append(others, other.Stages()...)
			}
		}
		follower.Published(stage, others)
	}
}

// forgetGone prunes the metrics and records of policies and bindings that are gone.
func (s *Store) forgetGone() {
	if s.metrics != nil {
		s.metrics.Prune(s.holds)
	}
	if s.prune != nil {
		s.prune(s.holds)
	}
}

// forgetLate prunes again when no request from before the last publication can be running,
// because such a request may have counted something after the first pruning.
func (s *Store) forgetLate() {
	if !s.forgetAt.IsZero() && !time.Now().Before(s.forgetAt) {
		s.forgetAt = time.Time{}
		s.forgetGone()
	}
}

// holds reports whether a policy exists and, if bindingName is not empty, its binding.
func (s *Store) holds(policyName, bindingName string) bool {
	return s.compiler.holds(policyName, bindingName) ||
		slices.ContainsFunc(s.features, func(f feature.Feature) bool { return f.Holds(policyName) })
}

// Entry returns an Admitter that runs the policies of one webhook entry. Before the first
// snapshot it answers by the entry's failurePolicy.
//
// An API server with an old configuration may call an entry that no longer exists.
// Which policies it expects is unknown, so Entry runs all policies of the group.
func (s *Store) Entry(id webhook.ID) webhook.Admitter {
	served := s.served.Load()
	if served == nil {
		return feature.Unread{Ignore: id.FailurePolicy == admissionregistrationv1.Ignore}
	}
	if a := served.entries[id]; a != nil {
		return a
	}
	return served.groups[id.Group]()
}

// served has an admitter for each entry and for each group.
type served struct {
	entries map[webhook.ID]*admitter
	groups  map[webhook.Group]func() *admitter
}

// wholeGroup returns an admitter that runs all policies of a group.
func (s *Store) wholeGroup(c catalogue, g webhook.Group) *admitter {
	j := groupShare(&c, g)
	// NewIndex fails only for two objects of one name, which a cluster cannot have.
	index, err := binding.NewIndex(j.policies, j.bindings, s.sources)
	if err != nil {
		s.log.Error("policies of entries that are gone cannot be run", "error", err)
		return &admitter{store: s, engine: engine.New(s.engine)}
	}
	a := &admitter{store: s, engine: engine.New(s.engine)}
	a.engine.Publish(engine.Policies(index))
	all, _ := c.breakers()
	a.breakers.Store(j.counting(all))
	return a
}

// Whole returns an Engine that runs all policies of the last snapshot and all stages of features,
// each in its mode; nil before the first snapshot. Its results do not count for breakers, and it
// calls no providers of external data. Its cost is proportional to the number of policies.
func (s *Store) Whole(a authorizer.Authorizer) *engine.Engine {
	p := s.published.Load()
	if p == nil {
		return nil
	}
	stage, err := p.catalogue.stage(s.sources)
	if err != nil { // only for two objects of one name
		s.log.Error("the policies of all entries cannot be run together", "error", err)
		return nil
	}
	e := engine.New(engine.Options{Authorizer: a, Convert: s.engine.Convert})
	e.Publish(append([]engine.Stage{stage}, p.stages...)...)
	return e
}

// Some is Whole, restricted to policies by the bindings for which keep returns true, and without
// features.
func (s *Store) Some(a authorizer.Authorizer, keep func(*binding.Binding) bool) *engine.Engine {
	p := s.published.Load()
	if p == nil {
		return nil
	}
	c := p.catalogue
	c.ids = slices.Clone(c.ids)
	for i, b := range c.bindings {
		if b.binding == nil || !keep(b.binding) {
			c.ids[i] = webhook.ID{}
		}
	}
	stage, err := c.stage(s.sources)
	if err != nil { // only for two objects of one name
		s.log.Error("policies cannot be run together", "error", err)
		return nil
	}
	e := engine.New(engine.Options{Authorizer: a, Convert: s.engine.Convert})
	e.Publish(stage)
	return e
}

type admitter struct {
	store  *Store
	engine *engine.Engine
	// breakers are the breakers of the policies that the engine runs; nil if there are none.
	breakers atomic.Pointer[breaker.Set]
}

// Admit implements webhook.Admitter.
func (a *admitter) Admit(ctx context.Context, req *policy.Request) *engine.Decision {
	set := a.breakers.Load()
	d := a.engine.Admit(ctx, req)
	if set != nil {
		a.count(ctx, req, *set, d)
	}
	return d
}

// Snapshot returns the last published snapshot, nil before the first. The first call for each
// snapshot costs time in proportion to the policies that have changed.
func (s *Store) Snapshot() *Snapshot {
	p := s.published.Load()
	if p == nil {
		return nil
	}
	return p.snapshot()
}

// Changed returns a new channel, which receives a value after a snapshot was published; several
// snapshots may be one value. The channel cannot be unregistered.
func (s *Store) Changed() <-chan struct{} {
	l := s.listeners.Add()
	if s.published.Load() != nil {
		l.Notify()
	}
	return l
}

// Types returns the kinds that the cluster serves, which the Store keeps up to date.
func (s *Store) Types() *openapi.Types { return s.schemas.Types() }

// Authorizer returns an authorizer that asks the API server.
func (s *Store) Authorizer() authorizer.Authorizer { return s.authorizer }

// Namespace returns a Namespace as policies see it. If it does not exist, apierrors.IsNotFound
// holds for the error.
func (s *Store) Namespace(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	return s.namespaces.Namespace(ctx, name)
}
