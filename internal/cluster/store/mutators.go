package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/gatekeeper/mutators"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// gatekeeper runs Gatekeeper's mutators in its place. It reads the five kinds that decide
// what they do while the cluster has them, and publishes a set of mutators to an engine
// of its own.
type gatekeeper struct {
	log       *slog.Logger
	metrics   Metrics // may be nil
	types     *openapi.Types
	mode      api.Mode
	namespace func(context.Context, string) (*unstructured.Unstructured, error)
	kinds     []*watch.Mirror[*storedMutator] // as legacy.Kinds
	configs   *watch.Mirror[*storedConfig]
	engine    *engine.Engine
	asks      bool // mutators may ask providers

	natives *natives // nil: none is moved into policies

	// Only the goroutine of Store.Run uses the rest, but for what mu guards.
	builder *mutators.Builder
	stale   bool // the next update builds even if no object has changed
	list    []*storedMutator
	config  *storedConfig
	state   *MutatorsState // nil before the first build

	mu    sync.Mutex
	built bool
}

// storedMutator is one mutator as it is stored, and as it applies.
type storedMutator struct {
	object *unstructured.Unstructured // apiVersion, kind and a little metadata
	// mutator is what applies: the object as it is stored or, if that is not valid,
	// the last one that was.
	mutator *legacy.Mutator
	err     error // why the stored one does not apply
}

func (m *storedMutator) kind() string { return m.object.GetKind() }
func (m *storedMutator) name() string { return m.object.GetName() }

// storedConfig is a storedMutator for a Config.
type storedConfig struct {
	object *unstructured.Unstructured
	config *legacy.Config
	err    error
}

// gatekeeperOptions say how to run Gatekeeper's mutators. Metrics and resolver may be nil.
type gatekeeperOptions struct {
	client    dynamic.Interface
	deps      policy.Deps
	mode      api.Mode
	namespace func(context.Context, string) (*unstructured.Unstructured, error)
	metrics   Metrics
	log       *slog.Logger
	changed   func() // called when there is something to publish
	resolver  engine.Resolver
}

func newGatekeeper(o gatekeeperOptions) *gatekeeper {
	g := &gatekeeper{
		log: o.log, metrics: o.metrics, types: o.deps.Types, mode: o.mode, namespace: o.namespace,
		engine: engine.New(engine.Options{Resolver: o.resolver}), builder: mutators.NewBuilder(o.deps), stale: true,
		asks: o.resolver != nil,
	}
	for _, kind := range legacy.Kinds() {
		g.kinds = append(g.kinds, watch.New(watch.Options[*storedMutator]{
			Client: o.client, Log: o.log, Types: o.deps.Types, Kinds: versionsOf(legacy.Group, string(kind), "v1", "v1beta1", "v1alpha1"),
			Keep: keepMutator, Changed: o.changed, StateChanged: o.changed,
		}))
	}
	g.configs = watch.New(watch.Options[*storedConfig]{
		Client: o.client, Log: o.log, Types: o.deps.Types, Kinds: versionsOf(legacy.ConfigGroup, "Config", "v1", "v1beta1", "v1alpha1"),
		Selection: watch.Named("", legacy.ConfigName), Keep: keepConfig, Changed: o.changed, StateChanged: o.changed,
	})
	return g
}

func versionsOf(group, kind string, versions ...string) []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for _, v := range versions {
		out = append(out, schema.GroupVersionKind{Group: group, Version: v, Kind: kind})
	}
	return out
}

// keepMutator decodes a mutator, unless old is the same version.
func keepMutator(u *unstructured.Unstructured, old *storedMutator) *storedMutator {
	if old != nil && sameSpec(u, old.object) {
		return old
	}
	now := &storedMutator{object: headOf(u)}
	now.err = guarded(func() (err error) {
		now.mutator, err = legacy.Decode(u)
		return err
	})
	if now.err != nil {
		now.mutator = nil
		// Gatekeeper keeps to the version before as well (Gatekeeper spec §1.8).
		if old != nil && old.object.GetUID() == u.GetUID() {
			now.mutator = old.mutator
		}
	}
	return now
}

// keepConfig is keepMutator for a Config.
func keepConfig(u *unstructured.Unstructured, old *storedConfig) *storedConfig {
	if old != nil && sameSpec(u, old.object) {
		return old
	}
	now := &storedConfig{object: headOf(u)}
	now.err = guarded(func() (err error) {
		now.config, err = legacy.DecodeConfig(u)
		return err
	})
	if now.err != nil {
		now.config = nil
		if old != nil && old.object.GetUID() == u.GetUID() {
			now.config = old.config
		}
	}
	return now
}

// sameSpec reports whether an object need not be decoded again. A running Gatekeeper
// writes statuses all the time, which leave the generation as it is.
func sameSpec(u, old *unstructured.Unstructured) bool {
	return u.GetUID() == old.GetUID() && u.GetGeneration() == old.GetGeneration() && u.GetGeneration() > 0
}

// headOf returns an object with only what identifies u.
func headOf(u *unstructured.Unstructured) *unstructured.Unstructured {
	head := &unstructured.Unstructured{Object: map[string]any{}}
	head.SetAPIVersion(u.GetAPIVersion())
	head.SetKind(u.GetKind())
	head.SetNamespace(u.GetNamespace())
	head.SetName(u.GetName())
	head.SetUID(u.GetUID())
	head.SetGeneration(u.GetGeneration())
	return head
}

// guarded returns a panic of f as an error: one object must not stop all others.
func guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %s", engine.PanicText(v))
		}
	}()
	return f()
}

// run follows all kinds until ctx is done.
func (g *gatekeeper) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, k := range g.kinds {
		all.Go(func() { k.Run(ctx) })
	}
	all.Go(func() { g.configs.Run(ctx) })
	if g.natives != nil {
		all.Go(func() { g.natives.run(ctx) })
	}
}

// look has all mirrors find out again whether the server has their kinds.
func (g *gatekeeper) look() {
	for _, k := range g.kinds {
		k.Look()
	}
	g.configs.Look()
	if g.natives != nil {
		g.natives.look()
	}
}

// ready returns nil once the first set is published, else what is missing.
func (g *gatekeeper) ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.built {
		return nil
	}
	if err := g.sourcesReady(); err != nil {
		return err
	}
	return errors.New("no mutators are published yet")
}

// sourcesReady returns nil once everything has been read, and otherwise what is missing.
func (g *gatekeeper) sourcesReady() error {
	errs := []error{g.configs.Settled()}
	for _, k := range g.kinds {
		errs = append(errs, k.Settled())
	}
	if g.natives != nil {
		errs = append(errs, g.natives.sourcesReady())
	}
	return errors.Join(errs...)
}

// update publishes what has changed, and reports whether the Snapshot has to change. The
// first set waits for all kinds; later ones include kinds as they appear.
func (g *gatekeeper) update(ctx context.Context, kindsChanged bool) bool {
	g.stale = g.stale || kindsChanged
	if g.state == nil && g.sourcesReady() != nil {
		return false
	}
	list, config := g.gather()
	problems := g.problems(config)
	moved, err := g.move(list, config)
	if err != nil {
		g.log.Error("it cannot be told which policies the mutators come to", "error", err)
		return false
	}
	if !moved && g.unchanged(list, config) {
		if slices.Equal(problems, g.state.Problems) {
			return false
		}
		state := *g.state
		state.Problems = problems
		g.state = &state
		return true
	}
	start := time.Now()
	result, err := g.build(list, config)
	if err != nil {
		g.log.Error("no new set of mutators, the one before stays", "error", err)
		return false
	}
	g.engine.Publish(engine.Mutators(result.Set, g.mode))
	state := stateOf(list, result, g.mode, problems)
	if g.natives != nil && !g.natives.Back {
		state.addMoved(g.natives.state.Load())
	}
	if g.metrics != nil {
		g.metrics.MutatorsPublished(counts(list, result), result.Shapes)
	}
	g.list, g.config, g.stale = list, config, false
	level := slog.LevelDebug // of no consequence for requests
	if before := g.state; before == nil && len(list) > 0 || before != nil && !slices.EqualFunc(before.Mutators, state.Mutators, sameEffect) {
		level = slog.LevelInfo
	}
	g.state = state
	g.mu.Lock()
	g.built = true
	g.mu.Unlock()
	g.log.Log(ctx, level, "mutators published", "mutators", len(list), "running", state.Running(), "shapes", result.Shapes,
		"shadow", g.mode == api.Shadow, "duration", time.Since(start))
	return true
}

// unchanged says that the last build is up to date.
func (g *gatekeeper) unchanged(list []*storedMutator, config *storedConfig) bool {
	return !g.stale && slices.Equal(list, g.list) && config == g.config
}

// move reports whether mutators have moved into policies or back.
func (g *gatekeeper) move(list []*storedMutator, config *storedConfig) (bool, error) {
	if g.natives == nil {
		return false, nil
	}
	var rules []admissionregistrationv1.RuleWithOperations
	if g.state != nil {
		rules = g.state.Rules
	}
	var hidden []string
	for i, kind := range legacy.Kinds() {
		if s := g.kinds[i].State(); s.Served && !s.Read {
			hidden = append(hidden, string(kind))
		}
	}
	return g.natives.update(list, config, !g.unchanged(list, config), hidden, rules)
}

// counts returns the number of mutators by state. Those that were never valid count as
// not run.
func counts(list []*storedMutator, result *mutators.Result) map[string]int {
	out := map[string]int{mutators.Running: 0, mutators.Conflicting: 0, mutators.NotRun: len(list) - len(result.States)}
	for i := range result.States {
		out[result.States[i].Kind()]++
	}
	return out
}

func sameEffect(a, b MutatorState) bool {
	return a.mutator == b.mutator && a.Running == b.Running && a.Moved.equal(b.Moved)
}

// gather returns all mutators in Gatekeeper's order, and the Config.
func (g *gatekeeper) gather() (list []*storedMutator, config *storedConfig) {
	for _, k := range g.kinds {
		k.Each("", func(_ string, m *storedMutator) { list = append(list, m) })
	}
	slices.SortFunc(list, func(a, b *storedMutator) int {
		return cmp.Or(strings.Compare(a.kind(), b.kind()), strings.Compare(a.name(), b.name()))
	})
	return list, g.chosenConfig()
}

// chosenConfig returns the Config of Gatekeeper's namespace, nil if there is none. That
// namespace cannot be known: it is assumed to be the usual one or, if that has no Config,
// the first that has one.
func (g *gatekeeper) chosenConfig() *storedConfig {
	found := map[string]*storedConfig{}
	g.configs.EachNamespace(func(namespace string, items map[string]*storedConfig) {
		if c := items[legacy.ConfigName]; c != nil {
			found[namespace] = c
		}
	})
	if c := found[api.GatekeeperNamespace]; c != nil {
		return c
	}
	for _, namespace := range slices.Sorted(maps.Keys(found)) {
		return found[namespace]
	}
	return nil
}

// problems returns what concerns more than one mutator.
func (g *gatekeeper) problems(config *storedConfig) []string {
	var out []string
	for _, k := range g.kinds {
		if err := k.Problem(); err != nil {
			out = append(out, err.Error())
		}
	}
	if err := g.configs.Problem(); err != nil {
		out = append(out, err.Error())
	}
	if g.natives != nil {
		out = append(out, g.natives.problems()...)
	}
	if config != nil && config.err != nil {
		out = append(out, fmt.Sprintf("Config %s/%s is not valid: %v", config.object.GetNamespace(), legacy.ConfigName, config.err))
	}
	return out
}

func (g *gatekeeper) build(list []*storedMutator, config *storedConfig) (result *mutators.Result, err error) {
	var valid []*legacy.Mutator
	for _, m := range list {
		if m.mutator != nil {
			valid = append(valid, m.mutator)
		}
	}
	var exclusions *legacy.Config
	if config != nil {
		exclusions = config.config
	}
	err = guarded(func() error {
		result = g.builder.Build(valid, exclusions, g.types, mutators.Options{Namespace: g.namespace, Moved: g.moved(), External: g.asks})
		return nil
	})
	return result, err
}

// moved returns a function that reports whether policies run a mutator; nil if mutators
// do not move.
func (g *gatekeeper) moved() func(id string) bool {
	places := g.natives.places()
	if places == nil {
		return nil
	}
	return func(id string) bool { return places[id].Out }
}

// holds reports whether a mutator with that ID is stored, such as Assign/name.
func (g *gatekeeper) holds(id string) bool {
	kind, name, ok := strings.Cut(id, "/")
	if !ok {
		return false
	}
	_, found := slices.BinarySearchFunc(g.list, id, func(m *storedMutator, _ string) int {
		return cmp.Or(strings.Compare(m.kind(), kind), strings.Compare(m.name(), name))
	})
	return found
}

// MutatorsState is the state of all of Gatekeeper's mutators.
type MutatorsState struct {
	Mode api.Mode
	// Native says that they are moved into policies.
	Native bool
	// Mutators are in Gatekeeper's order.
	Mutators []MutatorState
	// Problems are what is wrong with more than one mutator: a kind that cannot be
	// read, a Config that is not valid.
	Problems []string
	// Rules cover all that those that run may change.
	Rules []admissionregistrationv1.RuleWithOperations
}

// MutatorState is one mutator and its state.
type MutatorState struct {
	// Object has the mutator's apiVersion, kind, name, uid and generation. It must
	// not be modified.
	Object *unstructured.Unstructured
	// Err is why the mutator is not valid as it is stored. Running then means that its last
	// valid version continues to run.
	Err     error
	Running bool
	// Conflict is set if it is off because others see the object otherwise.
	Conflict *legacy.Conflict
	// Reason says why it does not run although it is valid.
	Reason string
	Notes  []legacy.Note
	// Moved is nil if mutators are not moved into policies.
	Moved *Moved

	mutator *legacy.Mutator
}

// ID names the mutator for people: "Assign/name".
func (m *MutatorState) ID() string { return m.Object.GetKind() + "/" + m.Object.GetName() }

// Out says that policies run it, and mapd does not.
func (m *MutatorState) Out() bool { return m.Moved != nil && m.Moved.Out }

// Running counts those that run.
func (s *MutatorsState) Running() int {
	n := 0
	for i := range s.Mutators {
		if s.Mutators[i].Running {
			n++
		}
	}
	return n
}

// addMoved says of each valid mutator whether policies run it.
func (s *MutatorsState) addMoved(n *NativeState) {
	s.Native = true
	for i := range s.Mutators {
		if m := &s.Mutators[i]; m.mutator != nil {
			m.Moved = n.Of(m.ID())
		}
	}
}

func stateOf(list []*storedMutator, result *mutators.Result, mode api.Mode, problems []string) *MutatorsState {
	of := make(map[*legacy.Mutator]*mutators.State, len(result.States))
	for i := range result.States {
		of[result.States[i].Mutator] = &result.States[i]
	}
	out := &MutatorsState{Mode: mode, Problems: problems, Rules: result.Rules}
	for _, m := range list {
		state := MutatorState{Object: m.object, Err: m.err, mutator: m.mutator}
		if s := of[m.mutator]; s != nil {
			state.Running, state.Conflict, state.Reason, state.Notes = s.Running, s.Conflict, s.Reason, s.Notes
		}
		out.Mutators = append(out.Mutators, state)
	}
	return out
}
