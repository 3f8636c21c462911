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
	// Moved reports whether policies run the mutator with an ID in the place of the
	// Set. Nil: they run none.
	Moved func(id string) bool
	// Namespace returns the Namespace of a request. Nil: there are none.
	Namespace func(ctx context.Context, name string) (*unstructured.Unstructured, error)
	// Sources are those of engine.SetOptions.
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
	// Shapes is how many programs the mutators that run share.
	Shapes int
	// Rules cover all of clients' that the mutators that run may change, each once and
	// sorted.
	Rules []admissionregistrationv1.RuleWithOperations
}

// State describes how one mutator runs, or why it does not.
type State struct {
	Mutator *legacy.Mutator
	// Running means that it is in the Set and runs on requests of clients, and Moved
	// that policies run it instead.
	Running, Moved bool
	// Generated means that it is in the Set for objects that workloads create only, so
	// that it runs where they are expanded.
	Generated bool
	// Conflict is set if other mutators see the object otherwise.
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

// Builder builds Sets. It keeps the shapes that the last build used. One caller
// at a time.
type Builder struct {
	deps   policy.Deps
	shapes map[string]*policy.Policy
	// compiled counts the shapes that were compiled.
	compiled int
}

// NewBuilder returns a Builder that has compiled nothing yet.
func NewBuilder(deps policy.Deps) *Builder { return &Builder{deps: deps} }

// Again returns a Builder that has compiled what b used last, for another caller.
func (b *Builder) Again() *Builder { return &Builder{deps: b.deps, shapes: b.shapes} }

// Build puts mutators together. config may be nil. Of two mutators with one ID
// the later counts.
func (b *Builder) Build(crs []*legacy.Mutator, config *legacy.Config, types *openapi.Types, o Options) *Result {
	r, set := b.build(crs, config, types, o)
	r.Set = engine.NewSet(set)
	return r
}

// build is Build but for the Set, of which it returns the options.
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

// maxAsking is for how many mutators with external data noteRefusals looks.
const maxAsking = 64

// noteRefusals warns of mutators that refuse whatever another one asks a Provider for.
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

// inOrder sorts mutators as Gatekeeper runs them, each once.
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

// member makes a mutator a member. It compiles a program if there is none for the
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

// matchOf returns the criteria of a mutator that a Set can use. Mutators with equal
// criteria get the same Match.
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

// external is what a mutator with external data does: it notes what has to be asked.
// No expression can say that, so it is interpreted.
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
