package binding

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/policy"
)

// Namespaces is where Namespace objects are looked up.
type Namespaces interface {
	// Namespace returns one Namespace; the error of a missing one is
	// apierrors.IsNotFound.
	Namespace(ctx context.Context, name string) (*unstructured.Unstructured, error)
}

// Equivalent is another group-version in which the server serves the objects of
// a resource.
type Equivalent struct {
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
}

// Sources are what an Index asks at request time. All must be safe for
// concurrent use. Without Params every paramKind is unknown, without Namespaces
// no namespace exists, and without Equivalents every matchPolicy is Exact.
type Sources struct {
	Params     Params
	Namespaces Namespaces
	// Equivalents returns the other served group-versions of a resource in the
	// order of the server's registry (spec §2.3). It is asked once for each
	// kind of request that an Index meets.
	Equivalents func(schema.GroupVersionResource) []Equivalent
}

// Invocation is one (policy, binding, parameter) to run on a request, or an
// error that kept it from being one.
type Invocation struct {
	Policy *policy.Policy
	// Binding is empty if PolicyError.
	Binding string
	// Kind and Resource are what the policy's rules matched. Under matchPolicy
	// Equivalent they may name another version than the request's.
	Kind     schema.GroupVersionKind
	Resource schema.GroupVersionResource
	// Params is nil where the expressions see null.
	Params *unstructured.Unstructured
	// HasParams says that the policy has a paramKind.
	HasParams bool
	// Err is a configuration error (spec §3.1, §9.5) without the words around
	// it; nothing is to be run then. A policy that does not compile is no
	// configuration error: see policy.Policy.Err.
	Err error
	// PolicyError says that Err is about the policy and not about a binding.
	PolicyError bool
}

// Index is one immutable snapshot of policies and bindings. It is safe for
// concurrent use.
type Index struct {
	src      Sources
	policies []*policy.Policy
	bindings []*Binding
	byPolicy []*Binding // the bindings by policy name, then by name
	entries  []*entry   // by policy name; only policies that are bound

	known    atomic.Pointer[map[key]*candidates]
	learning sync.Mutex
}

// entry is one policy with its bindings. It is immutable and may be part of any
// number of Indexes.
type entry struct {
	policy       *policy.Policy
	match        *matcher
	hasParams    bool
	paramKind    schema.GroupVersionKind
	paramKindErr error
	bindings     []*Binding // by name
}

func (e *entry) name() string { return e.policy.Name() }

// NewIndex joins policies and bindings. A policy without a binding and a binding
// to an unknown policy are kept but have no effect, as in a cluster. Policies
// that do not compile take part as policy.Broken ones. It is an error if two
// policies or two bindings share a name.
func NewIndex(policies []*policy.Policy, bindings []*Binding, src Sources) (*Index, error) {
	ix, _, err := newIndex(policies, bindings, src, &Index{})
	return ix, err
}

// Next is NewIndex with the sources of ix, whose Equivalents are taken to answer
// as they did. The fewer of the policies and bindings are not those of ix, the
// less it costs, and what ix has learned of the requests that it met is kept.
func (ix *Index) Next(policies []*policy.Policy, bindings []*Binding) (*Index, error) {
	next, entries, err := newIndex(policies, bindings, ix.src, ix)
	if err != nil {
		return nil, err
	}
	next.inherit(ix, entries)
	return next, nil
}

// newIndex also returns how the entries differ from those of old.
func newIndex(policies []*policy.Policy, bindings []*Binding, src Sources, old *Index) (*Index, difference[*entry], error) {
	bindings, ofBindings, twice := arrange(old.bindings, bindings, (*Binding).Name)
	if twice != "" {
		return nil, difference[*entry]{}, fmt.Errorf("binding %q is given twice", twice)
	}
	policies, ofPolicies, twice := arrange(old.policies, policies, (*policy.Policy).Name)
	if twice != "" {
		return nil, difference[*entry]{}, fmt.Errorf("policy %q is given twice", twice)
	}
	ix := &Index{src: src, policies: policies, bindings: bindings}
	ofBindings.sort(byPolicyName)
	ix.byPolicy = ofBindings.edit(old.byPolicy, byPolicyName)

	var names []string // of the policies whose entries may differ
	for _, list := range [][]*policy.Policy{ofPolicies.gone, ofPolicies.fresh} {
		for _, p := range list {
			names = append(names, p.Name())
		}
	}
	for _, list := range [][]*Binding{ofBindings.gone, ofBindings.fresh} {
		for _, b := range list {
			names = append(names, b.PolicyName())
		}
	}
	slices.Sort(names)
	entries := ix.compare(old, slices.Compact(names))
	ix.entries = entries.edit(old.entries, func(a, b *entry) int { return cmp.Compare(a.name(), b.name()) })
	ix.known.Store(&map[key]*candidates{})
	return ix, entries, nil
}

func byPolicyName(a, b *Binding) int {
	return cmp.Or(cmp.Compare(a.PolicyName(), b.PolicyName()), cmp.Compare(a.Name(), b.Name()))
}

// compare makes the entries of the policies with these names, which are sorted, if
// they are not as they were.
func (ix *Index) compare(old *Index, names []string) (d difference[*entry]) {
	policies, bound, before := ix.policies, ix.byPolicy, old.entries
	for _, name := range names {
		own := take(&bound, name, (*Binding).PolicyName)
		p := take(&policies, name, (*policy.Policy).Name)
		was := take(&before, name, (*entry).name)
		now := len(p) == 1 && len(own) > 0
		if now && len(was) == 1 && was[0].policy == p[0] && slices.Equal(was[0].bindings, own) {
			continue
		}
		d.gone = append(d.gone, was...)
		if now {
			d.fresh = append(d.fresh, newEntry(p[0], own))
		}
	}
	return d
}

func newEntry(p *policy.Policy, bindings []*Binding) *entry {
	spec := &p.Object().Spec
	e := &entry{policy: p, match: newMatcher(spec.MatchConstraints), bindings: bindings}
	if kind := spec.ParamKind; kind != nil {
		e.hasParams = true
		gv, err := schema.ParseGroupVersion(kind.APIVersion)
		if err != nil {
			e.paramKindErr = fmt.Errorf("failed to parse paramKind APIVersion: %w", err)
		}
		e.paramKind = gv.WithKind(kind.Kind)
	}
	return e
}

// Policies returns all policies of the snapshot, by name. The list must not be
// modified.
func (ix *Index) Policies() []*policy.Policy { return ix.policies }

// Bindings returns all bindings of the snapshot, by name. The list must not be
// modified.
func (ix *Index) Bindings() []*Binding { return ix.bindings }

// Namespace returns a Namespace from the snapshot's source.
func (ix *Index) Namespace(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	if ix.src.Namespaces != nil {
		ns, err := ix.src.Namespaces.Namespace(ctx, name)
		if err != nil || ns != nil {
			return ns, err
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

// Select returns what a request meets, in order: configuration errors and
// invocations as they are found. It returns nil for a request that no policy
// wants, at a cost that does not depend on how many policies there are.
func (ix *Index) Select(ctx context.Context, req *policy.Request) []Invocation {
	return ix.SelectObject(ctx, req, req.Object)
}

// SelectObject is Select with another current object, which is how a second
// round selects (spec §9.2): selectors see what the first round made of the
// request's object.
func (ix *Index) SelectObject(ctx context.Context, req *policy.Request, object *unstructured.Unstructured) []Invocation {
	var s Selection
	ix.SelectInto(&s, ctx, req, object)
	return s.Invocations
}

// Selection is one answer of an Index, and room for the next one.
type Selection struct {
	Invocations []Invocation

	object *unstructured.Unstructured // what selectors saw
	labels bool                       // its labels were asked for
	others bool                       // so was what may change by itself, or there was an error
}

// Stands reports whether selecting again, with another current object, is sure
// to give the same: nothing but the labels of the object was asked for, and they
// are the same.
func (s *Selection) Stands(object *unstructured.Unstructured) bool {
	if s.others {
		return false
	}
	return !s.labels || s.object == object || sameLabels(s.object, object)
}

// Reset forgets everything but the room.
func (s *Selection) Reset() {
	clear(s.Invocations)
	*s = Selection{Invocations: s.Invocations[:0]}
}

// SelectInto is SelectObject that writes over a selection that nobody needs any
// more.
func (ix *Index) SelectInto(s *Selection, ctx context.Context, req *policy.Request, object *unstructured.Unstructured) {
	k := keyOf(req)
	c := ix.candidates(&k)
	clear(s.Invocations)
	*s = Selection{Invocations: s.Invocations[:0], object: object}
	if len(c.all) == 0 {
		return
	}
	t := target{ctx: ctx, ix: ix, req: req, resource: k.resource, object: object}
	s.Invocations = ix.selectFrom(s.Invocations, &t, c)
	s.labels, s.others = t.labels, t.others
}

func (ix *Index) selectFrom(out []Invocation, t *target, c *candidates) []Invocation {
	var set labelSet
	var err error
	if c.pins {
		set, err = t.namespaceLabels()
	}
	if !c.pins || err != nil {
		// Without labels the question has to be put to every policy, so that
		// each reports the error under its own failurePolicy.
		t.expected = min(len(c.all), maxExpected)
		for _, cand := range c.all {
			out = ix.selectPolicy(out, t, cand, view{full: true})
		}
		return out
	}

	var v view
	v.name, v.named = set.Lookup(namespaceNameLabel)
	var pinned []*candidate
	if v.named {
		pinned = c.pinned.in(v.name)
	}
	for i := range c.kinds {
		if _, err := t.paramScope(c.kinds[i].entry); err != nil {
			pinned = union(pinned, c.kinds[i].candidates)
		}
	}
	t.expected = min(len(c.open)+len(pinned), maxExpected)
	for open := c.open; len(open) > 0 || len(pinned) > 0; {
		var next *candidate
		if len(pinned) == 0 || len(open) > 0 && open[0].name() < pinned[0].name() {
			next, open = open[0], open[1:]
		} else {
			next, pinned = pinned[0], pinned[1:]
		}
		out = ix.selectPolicy(out, t, next, v)
	}
	return out
}

// view says which of a candidate's bindings a request can meet at all.
type view struct {
	full  bool   // all; otherwise open ones and those of
	name  string // this namespace,
	named bool   // if it has that label
}

func (ix *Index) selectPolicy(out []Invocation, t *target, c *candidate, v view) []Invocation {
	h, ok, err := c.match.test(t)
	if err != nil {
		t.others = true
		return append(t.grown(out), Invocation{Policy: c.entry.policy, HasParams: c.entry.hasParams, Err: err, PolicyError: true})
	}
	if !ok {
		return out
	}
	inv := Invocation{Policy: c.entry.policy, HasParams: c.entry.hasParams}
	inv.Resource, inv.Kind = t.resolve(h)

	// The server resolves a paramKind when it learns of a policy, so that an
	// unknown one is reported before any binding is looked at (trap T46).
	namespaced, err := t.paramScope(c.entry)
	if err != nil {
		inv.Err, inv.PolicyError = err, true
		return append(t.grown(out), inv)
	}
	if v.full {
		for i := range c.bindings.all {
			out = ix.selectBinding(out, t, inv, &c.bindings.all[i], namespaced)
		}
		return out
	}
	var pinned []*boundBinding
	if v.named {
		pinned = c.bindings.pinned[v.name]
	}
	for open := c.bindings.open; len(open) > 0 || len(pinned) > 0; {
		var next *boundBinding
		if len(pinned) == 0 || len(open) > 0 && open[0].order < pinned[0].order {
			next, open = open[0], open[1:]
		} else {
			next, pinned = pinned[0], pinned[1:]
		}
		out = ix.selectBinding(out, t, inv, next, namespaced)
	}
	return out
}

func (ix *Index) selectBinding(out []Invocation, t *target, inv Invocation, b *boundBinding, namespaced bool) []Invocation {
	if b.match.matcher != nil {
		_, ok, err := b.match.test(t)
		if err != nil {
			t.others = true
			inv.Binding, inv.Err = b.binding.Name(), err
			return append(t.grown(out), inv)
		}
		if !ok {
			return out
		}
	}
	inv.Binding = b.binding.Name()
	ref := &b.binding.params
	if !inv.HasParams || ref.ParamRef == nil {
		return append(t.grown(out), inv)
	}
	t.others = true
	params, err := ref.collect(t.ctx, ix.src.Params, b.paramKind, namespaced, t.req.Namespace)
	if err != nil {
		inv.Err = err
		return append(t.grown(out), inv)
	}
	for _, param := range params {
		inv.Params = param
		out = append(t.grown(out), inv)
	}
	return out
}

// paramScope says whether a policy's parameters have namespaces.
func (t *target) paramScope(e *entry) (namespaced bool, err error) {
	if !e.hasParams {
		return false, nil
	}
	switch {
	case e.paramKindErr != nil:
		err = e.paramKindErr
	case t.ix.src.Params == nil:
		err = unknownParamKind(e.paramKind)
	default:
		if namespaced, err = t.ix.src.Params.Kind(e.paramKind); err != nil {
			err = unknownParamKind(e.paramKind)
		}
	}
	if err != nil {
		t.others = true
		return false, err
	}
	return namespaced, nil
}

// maxExpected bounds for how many invocations there is room from the start.
const maxExpected = 128

// grown is a list with room for one more, and for all that are expected if it
// is the first.
func (t *target) grown(out []Invocation) []Invocation {
	if cap(out) == 0 {
		return make([]Invocation, 0, t.expected)
	}
	return out
}

// resolve fills in what a match on the request's own resource leaves open.
func (t *target) resolve(h hit) (schema.GroupVersionResource, schema.GroupVersionKind) {
	own := t.req.RequestKind
	if own.Empty() {
		own = t.req.Kind
	}
	switch {
	case h.resource.Empty():
		return t.resource, own
	case h.kind.Kind != own.Kind && t.req.SubResource != "":
		// A Scale or an Eviction is the same kind under every version of its
		// resource.
		return h.resource, own
	default:
		return h.resource, h.kind
	}
}

// key is all of a request that resource rules look at, but for its name.
type key struct {
	operation   admissionv1.Operation
	resource    schema.GroupVersionResource
	subresource string
	namespaced  bool
}

// keyOf takes the client's own resource where the server converted the object
// for us: that is what the server's rules are tested on.
func keyOf(req *policy.Request) key {
	k := key{
		operation:   req.Operation,
		resource:    req.RequestResource,
		subresource: req.RequestSubResource,
		namespaced:  req.Namespace != "",
	}
	if k.resource.Empty() {
		k.resource, k.subresource = req.Resource, req.SubResource
	}
	return k
}

// candidates are the policies that requests of one key can meet.
type candidates struct {
	all []*candidate
	// pins says that the lists below are in use: some policy or binding is
	// limited to namespaces that it names.
	pins   bool
	open   []*candidate // may meet requests in any namespace
	pinned *pinned      // may meet requests in this namespace only
	// kinds are the pinned policies with parameters. If their kind is unknown
	// they fail in every namespace, so that has to be asked.
	kinds []kindGroup
}

type kindGroup struct {
	entry      *entry // one of them, for its kind
	candidates []*candidate
}

type candidate struct {
	entry    *entry
	match    narrowed
	bindings boundBindings
}

func (c *candidate) name() string { return c.entry.name() }

func byOwnName(a, b *candidate) int { return cmp.Compare(a.name(), b.name()) }

type boundBindings struct {
	all    []boundBinding
	open   []*boundBinding
	pinned map[string][]*boundBinding
}

type boundBinding struct {
	order     int
	binding   *Binding
	match     narrowed // without a matcher: no restriction
	paramKind schema.GroupVersionKind
}

// maxKeys bounds the memory of an Index against clients that make up resources;
// a cluster has about a thousand keys. Beyond it every lookup pays in full.
const maxKeys = 4096

func (ix *Index) candidates(k *key) *candidates {
	if c, ok := (*ix.known.Load())[*k]; ok {
		return c
	}
	return ix.learn(*k)
}

// learn computes the candidates of a key and remembers them. Readers never wait:
// the map is replaced, not changed.
func (ix *Index) learn(k key) *candidates {
	ix.learning.Lock()
	defer ix.learning.Unlock()
	known := *ix.known.Load()
	if c, ok := known[k]; ok {
		return c
	}
	c := ix.compute(&k)
	if len(known) < maxKeys {
		next := make(map[key]*candidates, len(known)+1)
		for k, c := range known {
			next[k] = c
		}
		next[k] = c
		ix.known.Store(&next)
	}
	return c
}

func (ix *Index) compute(k *key) *candidates {
	c := &candidates{}
	if !admissible(k) {
		return c
	}
	equivalents, usePins := ix.equivalents(k), usesPins(k)
	for _, e := range ix.entries {
		if cand := newCandidate(e, k, equivalents, usePins); cand != nil {
			c.all = append(c.all, cand)
		}
	}
	if usePins {
		c.split()
	}
	return c
}

func (ix *Index) equivalents(k *key) []Equivalent {
	if ix.src.Equivalents == nil || len(ix.entries) == 0 {
		return nil
	}
	return ix.src.Equivalents(k.resource)
}

// usesPins is false where a namespaceSelector always matches, so that a pin says
// nothing.
func usesPins(k *key) bool { return k.namespaced || k.resource.Resource == "namespaces" }

const (
	// maxInherited bounds for how many pairs of a key and a policy inherit asks
	// anew, at about 0.1 µs each.
	maxInherited = 100_000
	// maxResplit bounds how many candidates it sorts anew, at about 0.5 µs each.
	maxResplit = 50_000
)

// inherit takes over what old has learned, with what has changed worked in. What
// would take long is left to be learned when a request asks.
func (ix *Index) inherit(old *Index, entries difference[*entry]) {
	learned := *old.known.Load()
	if len(learned)*(len(entries.gone)+len(entries.fresh)) > maxInherited {
		return
	}
	known := make(map[key]*candidates, len(learned))
	resplit := 0
	for k, c := range learned {
		d := ix.update(&k, c, entries)
		if len(d.gone) == 0 && len(d.fresh) == 0 {
			known[k] = c
			continue
		}
		next := &candidates{all: d.edit(c.all, byOwnName)}
		switch {
		case !usesPins(&k):
		case c.pins:
			next.splitAs(c, d)
		default:
			if resplit += len(next.all); resplit > maxResplit {
				continue
			}
			next.split()
		}
		known[k] = next
	}
	ix.known.Store(&known)
}

// update returns what the changes mean for requests of key k, whose candidates are c.
func (ix *Index) update(k *key, c *candidates, entries difference[*entry]) (d difference[*candidate]) {
	if !admissible(k) {
		return d
	}
	for _, e := range entries.gone {
		if i, ok := search(c.all, e.name(), (*candidate).name); ok {
			d.gone = append(d.gone, c.all[i])
		}
	}
	if len(entries.fresh) == 0 {
		return d
	}
	equivalents, usePins := ix.equivalents(k), usesPins(k)
	for _, e := range entries.fresh {
		if cand := newCandidate(e, k, equivalents, usePins); cand != nil {
			d.fresh = append(d.fresh, cand)
		}
	}
	return d
}

func newCandidate(e *entry, k *key, equivalents []Equivalent, usePins bool) *candidate {
	match, ok := e.match.narrow(k, equivalents)
	if !ok {
		return nil
	}
	c := &candidate{entry: e, match: match}
	c.bindings.all = make([]boundBinding, 0, len(e.bindings))
	for i, b := range e.bindings {
		bb := boundBinding{order: i, binding: b, paramKind: e.paramKind}
		if b.match != nil {
			if bb.match, ok = b.match.narrow(k, equivalents); !ok {
				continue
			}
		}
		c.bindings.all = append(c.bindings.all, bb)
	}
	if all := c.bindings.all; 2*len(all) < cap(all) {
		c.bindings.all = slices.Clone(all)
	}
	// A policy whose bindings cannot match is still asked where its own answer
	// may be an error: a namespace that a selector needs may be missing.
	if len(c.bindings.all) == 0 && !e.hasParams && !match.fallible() && match.namespaces.Selector == nil {
		return nil
	}
	if usePins {
		c.bindings.split()
	}
	return c
}

func (b *boundBindings) split() {
	for i := range b.all {
		bb := &b.all[i]
		if bb.match.matcher == nil || bb.match.pins == nil {
			b.open = append(b.open, bb)
			continue
		}
		for _, name := range bb.match.pins {
			if b.pinned == nil {
				b.pinned = make(map[string][]*boundBinding, len(b.all)-i)
			}
			b.pinned[name] = append(b.pinned[name], bb)
		}
	}
}

// fallible says that asking may give an error, so that no request may be spared
// the question.
func (n *narrowed) fallible() bool {
	failing := func(h hit) bool { return h.err != nil }
	return n.err != nil || n.namespaces.err != nil || n.objects.err != nil ||
		slices.ContainsFunc(n.excluded, failing) || slices.ContainsFunc(n.matched, failing)
}

// place is where a candidate can have an effect: in any namespace, or in those of
// the names only; kind says that everywhere else its paramKind has to be asked for.
func (c *candidate) place() (open bool, names iter.Seq[string], kind bool) {
	switch {
	case c.match.pins != nil:
		return false, slices.Values(c.match.pins), false
	case len(c.bindings.open) > 0 || c.match.fallible() || c.entry.paramKindErr != nil:
		return true, nil, false
	default:
		return false, maps.Keys(c.bindings.pinned), c.entry.hasParams
	}
}

// split sorts the candidates by the namespaces in which they can have an effect.
func (c *candidates) split() {
	var pinned pinned
	for _, cand := range c.all {
		open, names, kind := cand.place()
		if open {
			c.open = append(c.open, cand)
		} else {
			for name := range names {
				pinned.add(name, cand)
			}
		}
		if kind {
			c.addKind(cand)
		}
		c.pins = c.pins || cand.match.pins != nil || len(cand.bindings.pinned) > 0 || len(cand.bindings.open) == 0
	}
	if c.pins {
		c.pinned = &pinned
	}
}

// splitAs is split for candidates that differ from those of old, which use pins,
// by d only.
func (c *candidates) splitAs(old *candidates, d difference[*candidate]) {
	c.pins, c.kinds = true, old.kinds
	pinned := *old.pinned
	var own [len(pinned)]bool // shards that are not old's
	var open difference[*candidate]
	kinds := false
	sort := func(list []*candidate, open *[]*candidate, pin func(name string, cand *candidate)) {
		for _, cand := range list {
			anywhere, names, kind := cand.place()
			if kinds = kinds || kind; anywhere {
				*open = append(*open, cand)
				continue
			}
			for name := range names {
				if i := shard(name); !own[i] {
					own[i], pinned[i] = true, maps.Clone(pinned[i])
				}
				pin(name, cand)
			}
		}
	}
	sort(d.gone, &open.gone, pinned.remove)
	sort(d.fresh, &open.fresh, pinned.insert)
	c.open, c.pinned = open.edit(old.open, byOwnName), &pinned
	if !kinds {
		return
	}
	c.kinds = nil
	for _, cand := range c.all {
		if _, _, kind := cand.place(); kind {
			c.addKind(cand)
		}
	}
}

func (c *candidates) addKind(cand *candidate) {
	i := slices.IndexFunc(c.kinds, func(g kindGroup) bool { return g.entry.paramKind == cand.entry.paramKind })
	if i < 0 {
		i = len(c.kinds)
		c.kinds = append(c.kinds, kindGroup{entry: cand.entry})
	}
	c.kinds[i].candidates = append(c.kinds[i].candidates, cand)
}

// union merges two lists in order, without repetition, into a new one.
func union(a, b []*candidate) []*candidate {
	out := slices.Concat(a, b)
	slices.SortFunc(out, func(a, b *candidate) int { return cmp.Compare(a.name(), b.name()) })
	return slices.Compact(out)
}

// admissible says whether policies see requests of this key at all (spec §2.7):
// not deletions, not the reviews that authentication and authorization are made
// of, and not policies and bindings themselves, lest a bad policy could not be
// repaired. Our own group's policies are treated as the server treats its own.
func admissible(k *key) bool {
	switch k.operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Connect:
	default:
		return false
	}
	switch k.resource.Group {
	case "authentication.k8s.io":
		switch k.resource.Resource {
		case "selfsubjectreviews", "tokenreviews":
			return false
		}
	case "authorization.k8s.io":
		switch k.resource.Resource {
		case "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews":
			return false
		}
	case "admissionregistration.k8s.io", "admissionregistration.mapd.dev":
		switch k.resource.Resource {
		case "validatingadmissionpolicies", "validatingadmissionpolicybindings",
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings":
			return false
		}
	}
	return true
}
