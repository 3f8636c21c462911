package store

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/internal/parallel"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Snapshot is the state of all policies, bindings and features at one time. It is immutable.
type Snapshot struct {
	Policies []PolicyState  // by name
	Bindings []BindingState // by name
	// Entries are the webhook entries that the policies need.
	Entries []*webhookconfig.Entry
	// States are the states of Options.Features, in their order; nil for a state that is not
	// known yet.
	States []feature.State
}

// PolicyState is a policy with its state.
type PolicyState struct {
	// Object has the policy's stored metadata and status, without managedFields and the
	// annotation of kubectl apply. It must not be modified.
	Object *unstructured.Unstructured
	// Policy has the policy's name and spec. If Errs is not empty, it is a policy.Broken one.
	Policy *policy.Policy
	// Errs are all reasons why the policy cannot run.
	Errs []error
	// Warnings are about parts that compile but will not do what the author meant.
	Warnings []policy.Warning
	// ParamKind is nil for a policy that has none.
	ParamKind *ParamState
	// Bound: a binding that has an effect names the policy.
	Bound   bool
	Breaker BreakerState
}

// ParamState is the state of a kind of parameters.
type ParamState struct {
	GVK schema.GroupVersionKind
	// Found: the server serves the kind. Synced: its objects are in memory.
	Found, Synced bool
	// Err is the reason why Found or Synced is false.
	Err error
}

// BindingState is a binding with its state.
type BindingState struct {
	// Object has the binding's stored metadata and status, without managedFields and the
	// annotation of kubectl apply. It must not be modified.
	Object     *unstructured.Unstructured
	PolicyName string
	// PolicyFound: the policy exists, even if it is broken.
	PolicyFound bool
	// Err describes faults of the binding. An invalid binding may still have an effect, as in an
	// API server that has stored it.
	Err error
	// Binding has the binding's spec; nil if the binding has no effect.
	Binding *binding.Binding
	// Warnings are about selectors that select nothing.
	Warnings []policy.Warning
}

// joined has the policies and bindings of one webhook entry.
type joined struct {
	policies []*policy.Policy   // by name
	bindings []*binding.Binding // by name; the policies run in this entry because of these
	index    *binding.Index
}

// join returns the policies and bindings of each entry: every bound policy is in the entries of
// its bindings, and in those that also has for the bindings. It reuses unchanged Indexes of
// before, because they have cached which policies match which requests.
func join(c catalogue, src binding.Sources, before map[webhook.ID]*joined, also map[string][]webhook.ID) (map[webhook.ID]*joined, error) {
	shares := shares{catalogue: &c, of: map[webhook.ID]*share{}}
	for i, b := range c.bindings {
		shares.add(c.ids[i], i)
		if len(also) > 0 {
			for _, id := range also[b.key()] {
				shares.add(id, i)
			}
		}
	}
	next := map[webhook.ID]*joined{}
	for id, share := range shares.of {
		j := share.joined(&c)
		if old := before[id]; old != nil && slices.Equal(old.policies, j.policies) && slices.Equal(old.bindings, j.bindings) {
			next[id] = old
			continue
		}
		var err error
		if j.index, err = binding.NewIndex(j.policies, j.bindings, src); err != nil {
			return nil, err
		}
		next[id] = j
	}
	return next, nil
}

// shares distributes a catalogue over entries.
type shares struct {
	*catalogue
	of   map[webhook.ID]*share
	id   webhook.ID // of last
	last *share     // most consecutive bindings are in the same entry
}

type share struct {
	has      []bool // by the policy's index
	policies int
	bindings []*binding.Binding
}

// add adds the binding with index i and its policy to an entry, unless id is zero.
func (s *shares) add(id webhook.ID, i int) {
	if id == (webhook.ID{}) {
		return
	}
	if s.last == nil || s.id != id {
		s.id, s.last = id, s.of[id]
		if s.last == nil {
			s.last = &share{has: make([]bool, len(s.policies))}
			s.of[id] = s.last
		}
	}
	if at := s.named[i]; !s.last.has[at] {
		s.last.has[at] = true
		s.last.policies++
	}
	s.last.bindings = append(s.last.bindings, s.catalogue.bindings[i].binding)
}

func (s *share) joined(c *catalogue) *joined {
	j := &joined{policies: make([]*policy.Policy, 0, s.policies), bindings: s.bindings}
	for i, has := range s.has {
		if has {
			j.policies = append(j.policies, c.policies[i].policy)
		}
	}
	return j
}

// groupShare returns all policies and bindings of a group, as if the group had one entry.
func groupShare(c *catalogue, g webhook.Group) *joined {
	return shareOf(c, func(id webhook.ID) bool { return id.Group == g })
}

// wholeShare returns all policies and bindings that are in any entry, as if there were one entry.
func wholeShare(c *catalogue) *joined {
	return shareOf(c, func(id webhook.ID) bool { return id != webhook.ID{} })
}

// stage returns a stage that runs the policies of all entries.
func (c *catalogue) stage(sources binding.Sources) (engine.Stage, error) {
	j := wholeShare(c)
	index, err := binding.NewIndex(j.policies, j.bindings, sources)
	if err != nil {
		return engine.Stage{}, err
	}
	return engine.Policies(index), nil
}

func shareOf(c *catalogue, has func(webhook.ID) bool) *joined {
	s := shares{catalogue: c, of: map[webhook.ID]*share{}}
	all := webhook.ID{Group: webhook.Groups()[0]}
	for i, id := range c.ids {
		if has(id) {
			s.add(all, i)
		}
	}
	if s.of[all] == nil {
		return &joined{}
	}
	return s.of[all].joined(c)
}

// paramKinds returns the kinds of parameters that the policies of all entries need, sorted. A
// policy needs none if its bindings name no parameters.
func paramKinds(entries map[webhook.ID]*joined) []schema.GroupVersionKind {
	seen := map[schema.GroupVersionKind]bool{}
	for _, j := range entries {
		refers := map[string]bool{}
		for _, b := range j.bindings {
			if b.Object().Spec.ParamRef != nil {
				refers[b.PolicyName()] = true
			}
		}
		for _, p := range j.policies {
			if gvk, ok := paramKindOf(p); ok && refers[p.Name()] {
				seen[gvk] = true
			}
		}
	}
	var out []schema.GroupVersionKind
	for gvk := range seen {
		out = append(out, gvk)
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func paramKindOf(p *policy.Policy) (gvk schema.GroupVersionKind, ok bool) {
	kind := p.Object().Spec.ParamKind
	if kind == nil {
		return gvk, false
	}
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	return gv.WithKind(kind.Kind), err == nil
}

// publication is what a Store publishes at one time. A Snapshot is made from it on demand,
// because most replicas never need one.
type publication struct {
	catalogue
	env     *cel.Env
	types   *openapi.Types
	version uint64 // of the warnings
	params  func(schema.GroupVersionKind) ParamState
	states  []feature.State
	stages  []engine.Stage // of all features

	snapshot func() *Snapshot
}

func newPublication(p publication) *publication {
	p.snapshot = sync.OnceValue(p.build)
	return &p
}

func (p *publication) build() *Snapshot {
	s := &Snapshot{
		Policies: make([]PolicyState, len(p.policies)),
		Bindings: make([]BindingState, len(p.bindings)),
		Entries:  p.entries,
		States:   p.states,
	}
	for i, b := range p.bindings {
		s.Bindings[i] = BindingState{Object: b.object, PolicyName: b.policyName, PolicyFound: p.named[i] >= 0, Err: b.err, Binding: b.binding}
		if b.binding != nil && b.binding.Object().Spec.MatchResources != nil {
			s.Bindings[i].Warnings = lint.CertainOfBinding(context.Background(), b.binding.Object(), p.types)
		}
	}
	bound := p.bound()
	for i, c := range p.policies {
		s.Policies[i] = PolicyState{Object: c.object, Policy: c.policy, Errs: c.errs, Bound: bound[i], Breaker: c.breakerState()}
		if gvk, ok := paramKindOf(c.policy); ok {
			state := p.params(gvk)
			s.Policies[i].ParamKind = &state
		}
	}
	p.warn(s.Policies)
	return s
}

// warn computes the warnings, on all cores.
func (p *publication) warn(states []PolicyState) {
	parallel.Each(len(states), func(i int) {
		states[i].Warnings = p.policies[i].warnings.of(p.policies[i].policy, p.env, p.types, p.version)
	})
}

// warnInterval is the minimum time for which warnings are reused while kinds keep changing, for
// example while an operator is installed: computing those of 10,000 policies takes more than a
// second.
const warnInterval = 5 * time.Second

// warningsVersion numbers the states of the served kinds. Warnings are valid for one number.
type warningsVersion struct {
	number uint64
	due    time.Time // when the number may change next; it has to then, if stale is set
	stale  bool
}

// expire invalidates the present warnings. If warnInterval is not over, they stay valid for the
// rest of it, and again is called at its end.
func (v *warningsVersion) expire(again func()) {
	v.stale = true
	if wait := time.Until(v.due); wait > 0 {
		time.AfterFunc(wait, again)
	}
}

func (v *warningsVersion) current() uint64 {
	if v.stale && time.Until(v.due) <= 0 {
		v.number, v.due, v.stale = v.number+1, time.Now().Add(warnInterval), false
	}
	return v.number
}

// warnings caches the warnings of one policy.
type warnings struct {
	mu      sync.Mutex
	known   bool
	version uint64
	list    []policy.Warning
}

func (w *warnings) of(p *policy.Policy, env *cel.Env, types *openapi.Types, version uint64) []policy.Warning {
	if p.Err() != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.known || w.version != version {
		w.known, w.version, w.list = true, version, findWarnings(p, env, types)
	}
	return w.list
}

// findWarnings returns the warnings about a policy. It returns none instead of failing.
func findWarnings(p *policy.Policy, env *cel.Env, types *openapi.Types) (list []policy.Warning) {
	defer func() {
		if recover() != nil {
			list = nil
		}
	}()
	return lint.Certain(context.Background(), p, env, types)
}
