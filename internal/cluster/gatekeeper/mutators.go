package gatekeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/gatekeeper/mutators"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Feature runs Gatekeeper's mutators in Gatekeeper's place. It reads five kinds that determine
// what mutators do, as far as the cluster has them, and publishes a set of mutators to its own
// engine.
type Feature struct {
	feature.Base
	o       Options
	log     *slog.Logger
	types   *openapi.Types
	kinds   []*watch.Mirror[*storedMutator] // as legacy.Kinds
	configs *watch.Mirror[*storedConfig]
	sources feature.Sources
	engine  *engine.Engine
	asks    bool // a Resolver exists, so mutators may have external data
	deps    binding.Sources

	natives *natives // nil: no mutator moves into policies

	// Only Update uses the following fields, except the atomic ones.
	builder *mutators.Builder
	stale   bool // the next Update builds a set even if no object has changed
	list    []*storedMutator
	config  *storedConfig
	state   *State // nil before the first build
	built   atomic.Bool
}

// storedMutator is a stored mutator and the version of it that applies: the last valid one, as in
// Gatekeeper (Gatekeeper spec §1.8). storedConfig is the same for a Config.
type (
	storedMutator = feature.Decoded[legacy.Mutator]
	storedConfig  = feature.Decoded[legacy.Config]
)

var (
	mutatorDecoder = feature.Decoder[legacy.Mutator]{Decode: legacy.Decode, Last: true}
	configDecoder  = feature.Decoder[legacy.Config]{Decode: legacy.DecodeConfig, Last: true}
)

func idOf(m *storedMutator) string { return m.Object.GetKind() + "/" + m.Object.GetName() }

// Metrics counts mutators. *metrics.Metrics is one.
type Metrics interface {
	// MutatorsPublished reports the number of mutators by state, and the number of programs that
	// they share.
	MutatorsPublished(states map[string]int, shapes int)
}

// Options configure a Feature.
type Options struct {
	Mode    api.Mode
	Metrics Metrics // may be nil
	// Native moves mutators into policies, or back; nil leaves them where they are. It needs the
	// right to read the cluster's policies, and Mode has to be Enforce.
	Native *NativeOptions
}

// New returns a Feature that has not started.
func New(o Options) *Feature { return &Feature{o: o, stale: true} }

// Name implements feature.Feature.
func (g *Feature) Name() string { return "Gatekeeper's mutators" }

// Start implements feature.Feature.
func (g *Feature) Start(d feature.Deps) {
	g.log, g.types, g.asks = d.Log, d.Policy.Types, d.Engine.Resolver != nil
	g.deps = d.Sources
	g.engine, g.builder = engine.New(engine.Options{Resolver: d.Engine.Resolver}), mutators.NewBuilder(d.Policy)
	versions := []string{"v1", "v1beta1", "v1alpha1"}
	for _, kind := range legacy.Kinds() {
		m := feature.Watch(d, mutatorDecoder.Keep, feature.Versions(legacy.Group, string(kind), versions...))
		g.kinds, g.sources = append(g.kinds, m), append(g.sources, m)
	}
	g.configs = watch.New(watch.Options[*storedConfig]{
		Client: d.Client, Log: d.Log, Types: d.Policy.Types, Kinds: feature.Versions(legacy.ConfigGroup, "Config", versions...),
		Selection: watch.Named("", legacy.ConfigName), Keep: configDecoder.Keep, Changed: d.Changed, StateChanged: d.Changed,
	})
	g.sources = append(g.sources, g.configs)
	if g.o.Native != nil {
		g.natives = newNatives(d, *g.o.Native)
		g.sources = append(g.sources, g.natives.policies, g.natives.bindings)
	}
}

// Run implements feature.Feature.
func (g *Feature) Run(ctx context.Context) { g.sources.Run(ctx) }

// Look implements feature.Feature.
func (g *Feature) Look() { g.sources.Look() }

// Ready implements feature.Feature.
func (g *Feature) Ready() error {
	if g.built.Load() {
		return nil
	}
	if err := g.sources.Settled(); err != nil {
		return err
	}
	return errors.New("no mutators are published yet")
}

// sourcesReady returns nil once everything has been read, and otherwise an error that names what
// is missing.
func (g *Feature) sourcesReady() error {
	if g.natives == nil {
		return g.sources.Settled()
	}
	return errors.Join(g.sources.Settled(), g.natives.ownReady())
}

// Stages implements feature.Feature.
func (g *Feature) Stages() []engine.Stage { return g.engine.Stages() }

// Admitters implements feature.Feature. The Admitter changes nothing before mutators have been
// read.
func (g *Feature) Admitters() map[string]webhook.Admitter {
	return map[string]webhook.Admitter{webhook.LegacyPath: g.engine}
}

// Owns implements feature.Feature.
func (g *Feature) Owns(entry string) bool { return entry == EntryName }

// State implements feature.Feature.
func (g *Feature) State() feature.State {
	if g.state == nil {
		return nil
	}
	return g.state
}

// Update implements feature.Feature. The first set is built when all kinds have been read; kinds
// that appear later are added to later sets.
func (g *Feature) Update(ctx context.Context, kindsChanged bool) bool {
	g.stale = g.stale || kindsChanged
	if g.state == nil && g.sourcesReady() != nil {
		return false
	}
	list, config := feature.Sorted(g.kinds...), g.chosenConfig() // in Gatekeeper's order
	problems := g.problems(config)
	moved, err := g.move(list, config)
	if err != nil {
		g.log.Error("the policies that replace mutators cannot be determined", "error", err)
		return false
	}
	report := g.natives.report()
	if !moved && g.unchanged(list, config) {
		if slices.Equal(problems, g.state.Problems) && report == g.state.report {
			return false
		}
		state := *g.state
		state.Problems, state.report = problems, report
		g.state = &state
		return true
	}
	start := time.Now()
	result, err := g.build(list, config)
	if err != nil {
		g.log.Error("changed mutators cannot be used; those of before stay in use", "error", err)
		return false
	}
	g.engine.Publish(engine.Mutators(result.Set, g.o.Mode))
	state := stateOf(list, result, g.o.Mode, problems)
	state.report = report
	if g.natives != nil && !g.natives.Back {
		state.addMoved(g.natives.state.Load())
	}
	if g.o.Metrics != nil {
		g.o.Metrics.MutatorsPublished(counts(list, result), result.Shapes)
	}
	g.list, g.config, g.stale = list, config, false
	level := slog.LevelDebug // requests are not affected
	if before := g.state; before == nil && len(list) > 0 || before != nil && !slices.EqualFunc(before.Mutators, state.Mutators, sameEffect) {
		level = slog.LevelInfo
	}
	g.state = state
	g.built.Store(true)
	g.log.Log(ctx, level, "mutators in use", "mutators", len(list), "running", state.Running(), "shapes", result.Shapes,
		"shadow", g.o.Mode == api.Shadow, "duration", time.Since(start))
	return true
}

// unchanged reports whether the last build is still valid.
func (g *Feature) unchanged(list []*storedMutator, config *storedConfig) bool {
	return !g.stale && slices.Equal(list, g.list) && config == g.config
}

// move reports whether mutators have moved into policies or back since the last call.
func (g *Feature) move(list []*storedMutator, config *storedConfig) (bool, error) {
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

// counts returns the number of mutators by state. Mutators that were never valid count as not
// run.
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

// chosenConfig returns the Config of Gatekeeper's namespace, nil if there is none. mapd does not
// know which namespace that is: it takes api.GatekeeperNamespace or, if that has no Config, the
// first one that has.
func (g *Feature) chosenConfig() *storedConfig {
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

// problems returns the problems that concern more than one mutator.
func (g *Feature) problems(config *storedConfig) []string {
	out := g.sources.Problems()
	if config != nil && config.Err != nil {
		out = append(out, fmt.Sprintf("Config %s/%s is not valid: %v", config.Object.GetNamespace(), legacy.ConfigName, config.Err))
	}
	return out
}

func (g *Feature) build(list []*storedMutator, config *storedConfig) (result *mutators.Result, err error) {
	var valid []*legacy.Mutator
	for _, m := range list {
		if m.Value != nil {
			valid = append(valid, m.Value)
		}
	}
	var exclusions *legacy.Config
	if config != nil {
		exclusions = config.Value
	}
	err = feature.Guarded(func() error {
		o := mutators.Options{Moved: g.moved(), External: g.asks, Sources: &g.deps}
		if g.deps.Namespaces != nil {
			o.Namespace = g.deps.Namespaces.Namespace
		}
		result = g.builder.Build(valid, exclusions, g.types, o)
		return nil
	})
	return result, err
}

// moved returns a function that reports whether policies run a mutator; nil if mutators
// do not move.
func (g *Feature) moved() func(id string) bool {
	places := g.natives.places()
	if places == nil {
		return nil
	}
	return func(id string) bool { return places[id].Out }
}

// Policies implements feature.Named.
func (g *Feature) Policies(f func(*unstructured.Unstructured)) {
	for _, m := range g.list {
		f(m.Object)
	}
}

// Holds implements feature.Feature. IDs have the form Assign/name.
func (g *Feature) Holds(id string) bool {
	kind, name, ok := strings.Cut(id, "/")
	if !ok {
		return false
	}
	_, found := slices.BinarySearchFunc(g.list, id, func(m *storedMutator, _ string) int {
		return cmp.Or(strings.Compare(m.Object.GetKind(), kind), strings.Compare(m.Object.GetName(), name))
	})
	return found
}
