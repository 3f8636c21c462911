package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// GuestOptions say how Kubewarden's policies run.
type GuestOptions struct {
	Mode   api.Mode
	Loader kubewarden.Loader
}

const (
	// loadsAtOnce is how many modules are fetched and compiled at once.
	loadsAtOnce = 2
	// loadFirst and loadMost bound how long a module that could not be loaded is left
	// alone.
	loadFirst = 5 * time.Second
	loadMost  = 5 * time.Minute
)

// errNotLoaded is the error of a policy until its module is there.
var errNotLoaded = errors.New("the policy's module is not loaded yet")

// errTenantsFile keeps those who may write policies for one namespace from finding out
// which files mapd can read.
var errTenantsFile = errors.New("spec.module: only a ClusterAdmissionPolicy may name a file of mapd's")

// guests runs Kubewarden's policies. It reads them while the cluster has their kinds, has
// their modules loaded in the background, and publishes them to engines of its own: one
// for each path, see webhook.GuestPath.
type guests struct {
	log     *slog.Logger
	options GuestOptions
	deps    policy.Deps
	sources binding.Sources
	changed func()
	kinds   []*watch.Mirror[*storedGuest]
	engines map[guestPath]*engine.Engine

	slots   chan struct{}
	loading sync.WaitGroup

	// Only the goroutine of Store.Run uses the rest, but for what mu guards.
	list  []*storedGuest
	read  bool // the first list was published
	state *GuestsState
	// whole are the stages of all paths together.
	whole []engine.Stage
	aware []schema.GroupVersionKind // kinds that policies may read

	mu    sync.Mutex
	built bool
	loads map[loadKey]*load
	dirty bool // a load has ended
}

type guestPath struct {
	mutating      bool
	failurePolicy admissionregistrationv1.FailurePolicyType
}

// storedGuest is a policy as it is stored. policy is nil if it cannot be decoded, and
// then has no effect.
type storedGuest struct {
	object *unstructured.Unstructured // apiVersion, kind and a little metadata
	policy *kubewarden.Policy
	err    error
}

// loadKey identifies what a module was loaded for.
type loadKey struct {
	of *storedGuest
	id string
}

// load is a module that is loaded, or on its way.
type load struct {
	guest   policy.Mutator
	err     error
	ended   bool
	tries   int
	retry   time.Time
	program *policy.Policy // what was compiled with guest
}

func newGuests(client dynamic.Interface, o GuestOptions, deps policy.Deps, sources binding.Sources, convert engine.Options, log *slog.Logger, changed func()) *guests {
	g := &guests{
		log: log, options: o, deps: deps, sources: sources, changed: changed,
		engines: map[guestPath]*engine.Engine{}, slots: make(chan struct{}, loadsAtOnce), loads: map[loadKey]*load{},
	}
	for _, mutating := range []bool{true, false} {
		for _, failurePolicy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
			g.engines[guestPath{mutating, failurePolicy}] = engine.New(convert)
		}
	}
	for _, kind := range []string{kubewarden.ClusterPolicyKind, kubewarden.PolicyKind} {
		g.kinds = append(g.kinds, watch.New(watch.Options[*storedGuest]{
			Client: client, Log: log, Types: deps.Types, Kinds: versionsOf(kubewarden.Group, kind, kubewarden.Version),
			Keep: keepGuest, Changed: changed, StateChanged: changed,
		}))
	}
	return g
}

// keepGuest decodes a policy, unless old is the same version.
func keepGuest(u *unstructured.Unstructured, old *storedGuest) *storedGuest {
	if old != nil && sameSpec(u, old.object) {
		return old
	}
	now := &storedGuest{object: headOf(u)}
	now.err = guarded(func() error {
		text, err := json.Marshal(u.Object)
		if err != nil {
			return err
		}
		now.policy, err = kubewarden.Decode(text, u.GetNamespace())
		return err
	})
	return now
}

// run follows the policies until ctx is done.
func (g *guests) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, k := range g.kinds {
		all.Go(func() { k.Run(ctx) })
	}
	all.Wait()
	g.loading.Wait()
}

func (g *guests) look() {
	for _, k := range g.kinds {
		k.Look()
	}
}

func (g *guests) sourcesReady() error {
	var errs []error
	for _, k := range g.kinds {
		errs = append(errs, k.Settled())
	}
	return errors.Join(errs...)
}

// ready returns nil once policies are published, be their modules loaded or not.
func (g *guests) ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.built {
		return nil
	}
	return cmp.Or(g.sourcesReady(), errors.New("no policies of Kubewarden are published yet"))
}

// admitter returns what runs the policies of a path.
func (g *guests) admitter(mutating bool, failurePolicy admissionregistrationv1.FailurePolicyType) webhook.Admitter {
	return guestAdmitter{g, guestPath{mutating, failurePolicy}}
}

type guestAdmitter struct {
	guests *guests
	path   guestPath
}

// Admit implements webhook.Admitter.
func (a guestAdmitter) Admit(ctx context.Context, req *policy.Request) *engine.Decision {
	e := a.guests.engines[a.path]
	if len(e.Stages()) == 0 { // not published yet
		return unread{a.path.failurePolicy == admissionregistrationv1.Ignore || a.guests.options.Mode != api.Enforce}.Admit(ctx, req)
	}
	return e.Admit(ctx, req)
}

// update publishes what has changed, and reports whether the Snapshot has to change.
func (g *guests) update(ctx context.Context, kindsChanged bool) bool {
	if !g.read && g.sourcesReady() != nil {
		return false
	}
	list := g.gather()
	g.mu.Lock()
	stale := g.dirty || kindsChanged || !g.read || !slices.Equal(list, g.list)
	g.dirty = false
	g.mu.Unlock()
	if !stale {
		return false
	}
	var policies []*kubewarden.Policy
	of := map[kubewarden.Key]*storedGuest{}
	for _, s := range list {
		if s.policy != nil {
			policies = append(policies, s.policy)
			of[s.policy.Key()] = s
		}
	}
	policies = kubewarden.Unique(policies)
	state := &GuestsState{}
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
		if s.policy == nil {
			state.Policies = append(state.Policies, GuestState{Object: s.object, ID: nameOf(s.object), Err: s.err, Undecoded: true})
		}
	}
	if err := g.publish(policies, programs); err != nil {
		g.log.Error("Kubewarden's policies are not published, the ones before stay", "error", err)
		return false
	}
	g.mu.Lock()
	for key := range g.loads {
		if !current[key] {
			delete(g.loads, key)
		}
	}
	g.built = true
	g.mu.Unlock()
	g.list, g.read, g.state = list, true, state
	g.aware = g.aware[:0:0]
	for gvk := range aware {
		g.aware = append(g.aware, gvk)
	}
	g.log.Info("Kubewarden's policies published", "policies", len(list), "running", state.Running(), "shadow", g.options.Mode == api.Shadow)
	return true
}

func nameOf(u *unstructured.Unstructured) string {
	if ns := u.GetNamespace(); ns != "" {
		return ns + "/" + u.GetName()
	}
	return u.GetName()
}

// program returns a policy as an engine runs it: a broken one, with the reason, until its
// module is loaded.
func (g *guests) program(ctx context.Context, key loadKey, p *kubewarden.Policy) (*policy.Policy, error) {
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
	guest, err, ended := l.guest, l.err, l.ended
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
	program, err := p.Compile(deps, guest)
	if err != nil {
		return p.Broken(err), err
	}
	l.program = program
	return program, nil
}

// begin loads a module in the background. The caller holds g.mu.
func (g *guests) begin(ctx context.Context, l *load, p *kubewarden.Policy) {
	g.loading.Go(func() {
		select {
		case g.slots <- struct{}{}:
			defer func() { <-g.slots }()
		case <-ctx.Done():
			return
		}
		var guest policy.Mutator
		err := guarded(func() (err error) {
			guest, err = g.options.Loader.Load(ctx, p, g.deps, g.sources.Params)
			return err
		})
		if ctx.Err() != nil {
			return
		}
		g.mu.Lock()
		l.ended, g.dirty = true, true
		if err == nil {
			l.guest, l.err = guest, nil
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
			g.log.Error("the policy cannot run", "policy", p.ID(), "error", err)
		}
		g.changed()
	})
}

// gather returns all policies, in order.
func (g *guests) gather() (list []*storedGuest) {
	for _, k := range g.kinds {
		k.EachNamespace(func(_ string, items map[string]*storedGuest) {
			for _, s := range items {
				list = append(list, s)
			}
		})
	}
	slices.SortFunc(list, func(a, b *storedGuest) int {
		return cmp.Or(cmp.Compare(a.object.GetKind(), b.object.GetKind()), cmp.Compare(a.object.GetNamespace(), b.object.GetNamespace()),
			cmp.Compare(a.object.GetName(), b.object.GetName()))
	})
	return list
}

// publish gives each path its policies.
func (g *guests) publish(policies []*kubewarden.Policy, programs []*policy.Policy) error {
	type stages struct{ guests, validators *binding.Index }
	made := map[admissionregistrationv1.FailurePolicyType]stages{}
	for _, failurePolicy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
		var share []*kubewarden.Policy
		var compiled []*policy.Policy
		for i, p := range policies {
			if *p.Object().Spec.FailurePolicy == failurePolicy {
				share, compiled = append(share, p), append(compiled, programs[i])
			}
		}
		guests, validators, err := kubewarden.Indexes(share, compiled, g.sources)
		if err != nil {
			return err
		}
		made[failurePolicy] = stages{guests, validators}
	}
	guests, validators, err := kubewarden.Indexes(policies, programs, g.sources)
	if err != nil {
		return err
	}
	g.whole = []engine.Stage{engine.Guests(guests, g.options.Mode), engine.Validators(validators, g.options.Mode)}
	for path, e := range g.engines {
		s := made[path.failurePolicy]
		if path.mutating {
			e.Publish(engine.Guests(s.guests, g.options.Mode))
		} else {
			e.Publish(engine.Validators(s.validators, g.options.Mode))
		}
	}
	return nil
}

// holds reports whether a policy with that ID exists.
func (g *guests) holds(id string) bool {
	return g.state != nil && slices.ContainsFunc(g.state.Policies, func(s GuestState) bool { return s.ID == id })
}

// GuestsState is the state of all of Kubewarden's policies.
type GuestsState struct {
	Policies []GuestState
	// Guests and Validators say which requests those meet that may change objects, and
	// the others.
	Guests, Validators []*webhookconfig.Reach
}

// GuestState is one policy and its state.
type GuestState struct {
	// Object has the policy's apiVersion, kind, namespace, name, uid and generation. It
	// must not be modified.
	Object *unstructured.Unstructured
	ID     string
	// Err is why the policy does not run: requests that it meets are refused or let
	// through by its failurePolicy. If Undecoded is set nobody knows which these are,
	// so it has no effect.
	Err       error
	Undecoded bool
	// Loading says that the module is still being loaded.
	Loading bool
}

func (s *GuestsState) add(stored *storedGuest, p *kubewarden.Policy, err error) {
	s.Policies = append(s.Policies, GuestState{Object: stored.object, ID: p.ID(), Err: err, Loading: errors.Is(err, errNotLoaded)})
	reach := webhookconfig.GuestReach(p.Object())
	if reach == nil {
		return
	}
	if p.Mutating {
		s.Guests = append(s.Guests, reach)
	} else {
		s.Validators = append(s.Validators, reach)
	}
}

// Running counts those that run.
func (s *GuestsState) Running() int {
	n := 0
	for i := range s.Policies {
		if s.Policies[i].Err == nil {
			n++
		}
	}
	return n
}

// faultsText returns an error on one line.
func faultsText(err error) string {
	var faults api.Faults
	if errors.As(err, &faults) {
		return faults.ToAggregate().Error()
	}
	return err.Error()
}

// Text is why the policy does not run, on one line, empty if it does.
func (s *GuestState) Text() string {
	if s.Err == nil {
		return ""
	}
	return faultsText(s.Err)
}
