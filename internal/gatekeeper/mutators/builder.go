package mutators

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/direct"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Options say how the mutators run.
type Options struct {
	// Moved reports whether policies run the mutator with an ID instead of the Set. If Moved is
	// nil, the Set runs all mutators.
	Moved func(id string) bool
	// Namespace returns the Namespace of a request. If it is nil, no Namespace exists.
	Namespace func(ctx context.Context, name string) (*unstructured.Unstructured, error)
	// Sources are passed on as engine.SetOptions.Sources.
	Sources *binding.Sources
	// External says that the Engine has a Resolver, which asks Providers. Without one,
	// mutators with external data do not run.
	External bool
}

// Result is the outcome of building a set of mutators.
type Result struct {
	Set *engine.Set
	// States has an entry for each mutator, in Gatekeeper's order.
	States []State
	// Shapes is the number of compiled programs that run the mutators; mutators of one shape
	// share a program.
	Shapes int
	// Rules match every request of a client that a running mutator may change. They are sorted,
	// without duplicates.
	Rules []admissionregistrationv1.RuleWithOperations
}

// State describes how one mutator runs, or why it does not.
type State struct {
	Mutator *legacy.Mutator
	// Running: the mutator is in the Set and runs on requests of clients. Moved: policies run it
	// instead.
	Running, Moved bool
	// Generated: the mutator is in the Set, but only for objects that workloads create; it runs
	// when workloads are expanded.
	Generated bool
	// Conflict is set if the mutator and others disagree about the schema of an object, for
	// example whether a field is a list.
	Conflict *legacy.Conflict
	// Reason is why it does not run, "" if it does.
	Reason string
	Notes  []legacy.Note
}

// The results of State.Kind.
const (
	Running     = "running"
	Conflicting = "conflict"
	Moved       = "native"
	NotRun      = "not-run"
)

// Kind is the state in a word: Running, Conflicting, Moved or NotRun.
func (s *State) Kind() string {
	switch {
	case s.Running:
		return Running
	case s.Conflict != nil:
		return Conflicting
	case s.Moved:
		return Moved
	}
	return NotRun
}

// Builder builds Sets. It reuses the programs that the last build compiled. It is not safe for
// concurrent use.
type Builder struct {
	deps   policy.Deps
	shapes map[string]*policy.Policy
	// compiled counts the programs that were compiled.
	compiled int
}

// NewBuilder returns a Builder that has compiled nothing yet.
func NewBuilder(deps policy.Deps) *Builder { return &Builder{deps: deps} }

// Again returns a Builder for another goroutine. It starts with the programs that the last build
// of b used.
func (b *Builder) Again() *Builder { return &Builder{deps: b.deps, shapes: b.shapes} }

// Build builds a Set from mutators. config may be nil. If two mutators have the same ID, the
// later one is used.
func (b *Builder) Build(crs []*legacy.Mutator, config *legacy.Config, types *openapi.Types, o Options) *Result {
	r, set := b.build(crs, config, types, o)
	r.Set = engine.NewSet(set)
	return r
}

// build does the work of Build, and returns the options for the Set instead of the Set.
func (b *Builder) build(crs []*legacy.Mutator, config *legacy.Config, types *openapi.Types, o Options) (*Result, engine.SetOptions) {
	all := inOrder(crs)
	conflicts := legacy.Conflicts(all)
	r := &Result{States: make([]State, len(all))}
	used, matches := map[string]*policy.Policy{}, map[string]*engine.Match{}
	var running []*legacy.Mutator
	var members []engine.Member
	for i, m := range all {
		s := &r.States[i]
		*s = State{Mutator: m, Notes: legacy.Notes(m)}
		if c, ok := conflicts[m.ID()]; ok {
			s.Conflict = &c
		}
		if s.Reason = notRun(s, o); s.Reason != "" {
			continue
		}
		if s.Moved = o.Moved != nil && o.Moved(m.ID()); s.Moved {
			continue
		}
		member, err := b.member(m, used, matches)
		if err != nil {
			s.Reason = "cannot be run: " + err.Error()
			continue
		}
		if s.Running = m.Match.OfRequests(); !s.Running {
			s.Generated = true
			s.Reason = "match.source is Generated: it runs on what expansion generates, and on no request"
		}
		running, members = append(running, m), append(members, member)
	}
	noteRefusals(r.States)
	b.shapes = used
	r.Shapes = len(used)
	r.Rules = rules(slices.DeleteFunc(slices.Clone(running), func(m *legacy.Mutator) bool { return !m.Match.OfRequests() }), types)
	for i, w := range wakes(running) {
		members[i].Wakes = w
	}
	return r, engine.SetOptions{
		Members: members, Bound: len(all), Namespace: o.Namespace, Sources: o.Sources,
		Excludes: func(namespace string) bool { return config.Excludes(api.GatekeeperProcess, namespace) },
		Explain: func(member int, obj, selected *unstructured.Unstructured, req *policy.Request, ns *unstructured.Unstructured) error {
			return explain(running[member], obj, selected, req, ns)
		},
		WhyNot: func(member int, obj *unstructured.Unstructured, req *policy.Request, ns *unstructured.Unstructured) string {
			return whyNot(running[member], obj, req, ns)
		},
	}
}

// maxAsking is the largest number of mutators with external data that noteRefusals checks.
const maxAsking = 64

// noteRefusals adds a note to each mutator that refuses objects because another mutator asks a
// Provider for the value at its location.
func noteRefusals(states []State) {
	var asking []*legacy.Mutator
	for i := range states {
		if m := states[i].Mutator; m.Asks() && states[i].Conflict == nil && len(asking) < maxAsking {
			asking = append(asking, m)
		}
	}
	for i := range states {
		s := &states[i]
		at := slices.IndexFunc(asking, func(a *legacy.Mutator) bool { return legacy.RefusesPending(a, s.Mutator) })
		if at >= 0 && s.Conflict == nil {
			s.Notes = append(s.Notes, legacy.Note{Field: "spec.location", Message: fmt.Sprintf(
				"%s asks a Provider for the value here: objects that both match are refused", asking[at].ID())})
		}
	}
}

// inOrder returns the mutators in Gatekeeper's order, one for each ID.
func inOrder(crs []*legacy.Mutator) []*legacy.Mutator {
	byID := make(map[string]*legacy.Mutator, len(crs))
	for _, m := range crs {
		byID[m.ID()] = m
	}
	all := make([]*legacy.Mutator, 0, len(byID))
	for _, m := range byID {
		all = append(all, m)
	}
	slices.SortFunc(all, legacy.Compare)
	return all
}

// notRun returns why a mutator is not in the Set, "" if it is.
func notRun(s *State, o Options) string {
	switch {
	case s.Conflict != nil:
		return s.Conflict.Error()
	case s.Mutator.Asks() && !o.External:
		return "it needs external data, and no Provider can be asked here"
	}
	return ""
}

// member returns a mutator as a member of the Set. It compiles a program if none exists for the
// mutator's shape.
func (b *Builder) member(m *legacy.Mutator, used map[string]*policy.Policy, matches map[string]*engine.Match) (engine.Member, error) {
	match, err := matchOf(m, matches)
	if err != nil {
		return engine.Member{}, err
	}
	shape := translate.ShapeOf(m)
	p := used[shape]
	if p == nil {
		if p = b.shapes[shape]; p == nil {
			if p, err = policy.CompileLenient(translate.Runtime(m, shape), b.deps); err != nil {
				return engine.Member{}, err
			}
			b.compiled++
		}
		used[shape] = p
	}
	if m.Asks() {
		p = p.With(external{m})
	}
	return engine.Member{
		Name: m.ID(), Policy: p, Params: &unstructured.Unstructured{Object: m.Object}, Match: match, Asks: m.Asks(),
		Applies: func(gvk schema.GroupVersionKind, op admissionv1.Operation, source policy.Source) bool {
			return m.Match.FromSource(source.String()) && m.AppliesTo(gvk, string(op))
		},
	}, nil
}

// matchOf returns the match criteria of a mutator in the form that a Set uses. Mutators with
// equal criteria share a Match.
func matchOf(m *legacy.Mutator, known map[string]*engine.Match) (*engine.Match, error) {
	asks := m.Match
	asks.Kinds, asks.Name, asks.Source = nil, "", "" // Applies looks at kinds and source, the policy at the name
	text, err := json.Marshal(asks)
	if err != nil {
		return nil, err
	}
	if match, ok := known[string(text)]; ok {
		return match, nil
	}
	match := &engine.Match{}
	if s := asks.NamespaceSelector; s != nil {
		if match.NamespaceSelector, err = metav1.LabelSelectorAsSelector(s); err != nil {
			return nil, fmt.Errorf("spec.match.namespaceSelector: %w", err)
		}
	}
	if s := asks.LabelSelector; s != nil {
		if labels, err := metav1.LabelSelectorAsSelector(s); err == nil {
			match.Labels = labels
		}
	}
	if pattern := func(p string) bool { return strings.Contains(p, "*") }; len(asks.Namespaces) > 0 && !slices.ContainsFunc(asks.Namespaces, pattern) {
		match.Namespaces = asks.Namespaces
	}
	if asks.Scope != "" || len(asks.Namespaces) > 0 || len(asks.ExcludedNamespaces) > 0 {
		match.Namespace = asks.InNamespace
	}
	if match.NamespaceSelector == nil && match.Labels == nil && match.Namespace == nil {
		match = nil
	}
	known[string(text)] = match
	return match, nil
}

// explain returns why a mutator refuses an object by Gatekeeper's rules, nil if it
// does not.
func explain(m *legacy.Mutator, obj, selected *unstructured.Unstructured, req *policy.Request, ns *unstructured.Unstructured) error {
	c := contextOf(req)
	if ns != nil {
		c.Namespace = ns.Object
	}
	if _, err := direct.Matches(m, selected.Object, c); err != nil {
		return err
	}
	_, _, err := direct.Apply(m, obj.Object, c)
	return err
}

func contextOf(req *policy.Request) direct.Context {
	c := direct.Context{
		Operation: string(req.Operation), Source: req.Source.String(), UID: string(req.UID), Username: req.UserInfo.Username,
		Charge: func(bytes int) error { return req.Memory.Charge(int64(bytes)) },
	}
	if req.Source == policy.Generated {
		c.Operation = ""
	}
	return c
}

// external is the policy.Mutator of a mutator with external data. It records the keys that the
// provider has to be asked for. A CEL expression cannot do that, so the mutator is interpreted
// (pkg/legacy/direct).
type external struct{ *legacy.Mutator }

// Mutate implements policy.Mutator.
func (e external) Mutate(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
	c := contextOf(in.Request)
	charge := c.Charge
	c.Charge = func(bytes int) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		return charge(bytes)
	}
	next, touched, err := direct.Apply(e.Mutator, in.Object.Object, c)
	if err != nil || !touched {
		return in.Object, err
	}
	return &unstructured.Unstructured{Object: next}, nil
}
