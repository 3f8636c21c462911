package binding

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Namespaces looks up Namespace objects.
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

// Sources are what an Index calls at request time. All must be safe for concurrent use. The
// zero value is usable: without Params every paramKind is unknown, without Namespaces each
// namespace exists and is what [StoredNamespace] returns for its name, and without Equivalents
// every matchPolicy is Exact.
type Sources struct {
	Params     Params
	Namespaces Namespaces
	// Equivalents returns the other served group-versions of a resource in the order of the
	// server's registry (spec §2.3). An Index calls it once for each kind of request.
	Equivalents func(schema.GroupVersionResource) []Equivalent
	// Deletions says that policies see DELETE requests, as webhooks do.
	Deletions bool
	// Mode overrides the mode of a policy by a binding. written is the mode that the two
	// objects have. NewIndex calls it for each pair. If it is nil, the written modes are used.
	Mode func(p *policy.Policy, b *Binding, written api.Mode) api.Mode
	// Whole makes bindings apply to all objects, whatever their Share is.
	Whole bool
	// Exceptions returns the present exceptions; it is called for every request that a policy
	// matches. Nil means that there are none.
	Exceptions func() *Exceptions
	// Excepted returns the name of a policy of the Index in exceptions. Nil means the policy's
	// own name.
	Excepted func(policy string) string
}

// Invocation is one (policy, binding, parameter) to run on a request, or the error that
// prevents that.
type Invocation struct {
	Policy *policy.Policy
	// Binding is empty if PolicyError is set.
	Binding string
	// Kind and Resource are what the policy's rules matched. Under matchPolicy
	// Equivalent they may name another version than the request's.
	Kind     schema.GroupVersionKind
	Resource schema.GroupVersionResource
	// Params is nil if expressions see params as null.
	Params *unstructured.Unstructured
	// HasParams says that the policy has a paramKind.
	HasParams bool
	// Err is a configuration error (spec §3.1, §9.5) without the server's prefix; the
	// invocation must not run then. A policy that does not compile is not a configuration
	// error: see policy.Policy.Err.
	Err error
	// PolicyError says that Err is about the policy and not about a binding.
	PolicyError bool
	// Mode says what happens with the result. With PolicyError it is the strictest mode of the
	// bindings whose shares include the request. It is never Off.
	Mode api.Mode
}

// Index is one immutable snapshot of policies and bindings. It is safe for
// concurrent use.
type Index struct {
	src      Sources
	policies []*policy.Policy
	bindings []*Binding
	entries  []entry // by policy name; only policies that are bound
	pairs    []pair  // in the order in which they run
	buckets  []*bucket

	known    atomic.Pointer[map[key]*candidates]
	learning sync.Mutex // also guards tables of buckets
}

// entry is one policy with its bindings, of which there is at least one.
type entry struct {
	policy   *policy.Policy
	match    *matcher
	params   paramKind
	bindings []*Binding // by name
	mode     api.Mode   // the strictest of the bindings' modes
	first    int        // index of the first binding's pair; the others' follow
	shares   bool       // some bindings have a share that is not the whole
}

// paramKind is a policy's paramKind as it is written.
type paramKind struct {
	given            bool
	apiVersion, kind string
}

// pair is one policy and one of its bindings, or the policy alone.
type pair struct {
	entry   *entry
	binding *Binding // nil: the policy alone
	mode    api.Mode
}

// group holds the pairs with equal matchers and paramKind. A request is matched once for all of
// them; only the parameters of its pairs differ.
type group struct {
	groupKey
	gvk    schema.GroupVersionKind // of params
	gvkErr error
	pairs  []int32 // ascending
}

type groupKey struct {
	policy  *matcher
	binding *matcher // nil: no restriction
	params  paramKind
	// alone says that the pairs have no binding. A request matches them only if matching
	// their policy returns an error.
	alone bool
}

// bucket holds the groups whose policies share one ruleset and whose bindings share
// another.
type bucket struct {
	bucketKey
	groups []*group
	// tables[0] ignores the labels that namespaceSelectors need, tables[1] includes them. Each
	// is built when a request first needs it.
	tables [2]*lookup.Table[*group]
}

type bucketKey struct {
	policy, binding *ruleset
	bound           bool // the bindings have a ruleset
}

// NewIndex joins policies and bindings. As in a cluster, a policy without a binding and a
// binding to an unknown policy are kept and have no effect. Pass policies that do not compile as
// policy.Broken ones. It is an error if two policies or two bindings share a name.
func NewIndex(policies []*policy.Policy, bindings []*Binding, src Sources) (*Index, error) {
	policies, twice := sorted(policies, (*policy.Policy).Name)
	if twice != "" {
		return nil, fmt.Errorf("policy %q is given twice", twice)
	}
	bindings, twice = sorted(bindings, (*Binding).Name)
	if twice != "" {
		return nil, fmt.Errorf("binding %q is given twice", twice)
	}
	ix := &Index{src: src, policies: policies, bindings: bindings}
	ix.known.Store(&map[key]*candidates{})

	bound := slices.Clone(bindings) // by policy name, then by name
	slices.SortStableFunc(bound, func(a, b *Binding) int { return cmp.Compare(a.PolicyName(), b.PolicyName()) })
	ix.entries = make([]entry, 0, min(len(policies), len(bound)))
	for _, p := range policies {
		name := p.Name()
		for len(bound) > 0 && bound[0].PolicyName() < name {
			bound = bound[1:]
		}
		n := 0
		for n < len(bound) && bound[n].PolicyName() == name {
			n++
		}
		if n == 0 {
			continue
		}
		e := entry{policy: p, match: matcherOf(p.Object().Spec.MatchConstraints), bindings: bound[:n:n]}
		if kind := p.Object().Spec.ParamKind; kind != nil {
			e.params = paramKind{true, kind.APIVersion, kind.Kind}
		}
		ix.entries = append(ix.entries, e)
	}
	ix.group()
	return ix, nil
}

// sorted returns a sorted copy of a list, or a name that occurs in it twice.
func sorted[T any](list []T, name func(T) string) (_ []T, twice string) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(name(a), name(b)) })
	for i := 1; i < len(list); i++ {
		if n := name(list[i]); n == name(list[i-1]) {
			return nil, n
		}
	}
	return list, ""
}

// group builds the pairs of all entries, their groups and the buckets of the groups.
func (ix *Index) group() {
	type numbered struct {
		*group
		pairs int
	}
	var groups []numbered
	known, buckets := map[groupKey]int{}, map[bucketKey]*bucket{}
	of := make([]int, 0, len(ix.bindings)) // the group of each pair
	ix.pairs = make([]pair, 0, len(ix.bindings))
	add := func(k groupKey, e *entry, b *Binding) {
		i, ok := known[k]
		if !ok {
			i = len(groups)
			known[k] = i
			groups = append(groups, numbered{group: newGroup(k)})
			at := bucketKey{policy: k.policy.rules}
			if k.binding != nil {
				at.binding, at.bound = k.binding.rules, true
			}
			r := buckets[at]
			if r == nil {
				r = &bucket{bucketKey: at}
				buckets[at] = r
				ix.buckets = append(ix.buckets, r)
			}
			r.groups = append(r.groups, groups[i].group)
		}
		groups[i].pairs++
		ix.pairs, of = append(ix.pairs, pair{e, b, ix.mode(e, b)}), append(of, i)
	}
	for i := range ix.entries {
		e := &ix.entries[i]
		e.mode = api.Off
		for _, b := range e.bindings {
			e.mode = min(e.mode, ix.mode(e, b))
			e.shares = e.shares || b.rollout.Share != api.Whole && !ix.src.Whole
		}
		// The server resolves a paramKind when it receives a policy, so that an unknown one is
		// reported before any binding is matched (trap T46).
		if e.params.given || e.match.fallible() {
			add(groupKey{policy: e.match, params: e.params, alone: true}, e, nil)
		}
		e.first = len(ix.pairs)
		for _, b := range e.bindings {
			add(groupKey{policy: e.match, binding: b.match, params: e.params}, e, b)
		}
	}
	room := make([]int32, len(of)) // backing array of the lists of all groups
	for _, g := range groups {
		g.group.pairs, room = room[:0:g.pairs], room[g.pairs:]
	}
	for i, at := range of {
		g := groups[at].group
		g.pairs = append(g.pairs, int32(i))
	}
}

// mode returns the mode of a policy by one of its bindings; for a nil binding, the strictest
// mode of the bindings.
func (ix *Index) mode(e *entry, b *Binding) api.Mode {
	if b == nil {
		return e.mode
	}
	mode := e.policy.Rollout().With(b.rollout)
	if ix.src.Mode != nil {
		mode = ix.src.Mode(e.policy, b, mode)
	}
	return mode
}

// inShare reports whether a request is in the share of a binding.
func (t *target) inShare(b *Binding) bool {
	share := b.rollout.Share
	return share == api.Whole || t.ix.src.Whole || share.Has(t.shareHash())
}

// errorMode returns the mode of a policy's error: the strictest mode of the bindings whose
// shares include the request and that no exception excludes; Off if there is none.
func (t *target) errorMode(e *entry) api.Mode {
	if !e.shares && !t.excepts() {
		return e.mode
	}
	if t.erring != e { // cached, since all pairs of a policy call this one after the other
		t.erring, t.errorIs = e, api.Off
		for i := range t.ix.pairs[e.first:][:len(e.bindings)] {
			if p := &t.ix.pairs[e.first+i]; t.inShare(p.binding) && t.exception(e.policy.Name(), p.binding.Name()) == nil {
				t.errorIs = min(t.errorIs, p.mode)
			}
		}
	}
	return t.errorIs
}

func newGroup(k groupKey) *group {
	g := &group{groupKey: k}
	if k.params.given {
		gv, err := schema.ParseGroupVersion(k.params.apiVersion)
		if err != nil {
			g.gvkErr = fmt.Errorf("failed to parse paramKind APIVersion: %w", err)
		}
		g.gvk = gv.WithKind(k.params.kind)
	}
	return g
}

// table returns one of the bucket's tables and builds it first if necessary. The caller
// must hold ix.learning.
func (r *bucket) table(namespaces bool) *lookup.Table[*group] {
	i := 0
	if namespaces {
		i = 1
	}
	if r.tables[i] == nil {
		r.tables[i] = newTable(r.groups, namespaces)
	}
	return r.tables[i]
}

// selectsNamespaces reports whether a policy or a binding of the bucket has a
// namespaceSelector.
func (r *bucket) selectsNamespaces() bool {
	return slices.ContainsFunc(r.groups, func(g *group) bool {
		return g.policy.namespaces.Selector != nil || g.binding != nil && g.binding.namespaces.Selector != nil
	})
}

// newTable returns a Table of groups. If namespaces is false, it ignores the labels that
// namespaceSelectors need.
func newTable(groups []*group, namespaces bool) *lookup.Table[*group] {
	return lookup.New(groups, func(needs []lookup.Need, g *group) []lookup.Need {
		if g.policy.fallible() {
			return needs // the policy's errors do not depend on its bindings
		}
		for _, m := range [...]*matcher{g.policy, g.binding} {
			if m == nil {
				continue
			}
			for _, n := range m.needs {
				if namespaces || n.Place != lookup.Namespace {
					needs = append(needs, n)
				}
			}
		}
		return needs
	})
}

// Policies returns all policies of the snapshot, by name. The list must not be
// modified.
func (ix *Index) Policies() []*policy.Policy { return ix.policies }

// Bindings returns all bindings of the snapshot, by name. The list must not be
// modified.
func (ix *Index) Bindings() []*Binding { return ix.bindings }

// Namespace returns a Namespace from the snapshot's source.
func (ix *Index) Namespace(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	if ix.src.Namespaces == nil {
		return StoredNamespace(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}), nil
	}
	ns, err := ix.src.Namespaces.Namespace(ctx, name)
	if err != nil || ns != nil {
		return ns, err
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

// key holds everything about a request that resource rules test, except the name.
type key struct {
	operation   admissionv1.Operation
	resource    schema.GroupVersionResource
	subresource string
	namespaced  bool
}

// keyOf returns the key of a request. If the server converted the object, rules are
// tested on the resource that the client addressed.
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

// candidates are the policies that requests of one key may match.
type candidates struct {
	// answers holds the rulesets under which requests may match or fail.
	answers map[*ruleset]*answer
	tables  []*lookup.Table[*group]
	// namespaces says that the labels of the request's namespace are needed.
	namespaces bool
	// all says that some rules are invalid for this key, so that every group must be
	// tested.
	all bool
}

// maxKeys bounds the memory of an Index against clients that invent resources; a cluster has
// about a thousand keys. Above it candidates are computed for each request.
const maxKeys = 4096

// maxTables bounds how many tables a request searches. A key that would need more, because its
// policies have more different lists of rules, gets a table of its own.
const maxTables = 4

func (ix *Index) candidates(k *key) *candidates {
	if c, ok := (*ix.known.Load())[*k]; ok {
		return c
	}
	return ix.learn(*k)
}

// learn computes the candidates of a key and caches them. Readers never wait, since the map is
// replaced and not modified.
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
		maps.Copy(next, known)
		next[k] = c
		ix.known.Store(&next)
	}
	return c
}

func (ix *Index) compute(k *key) *candidates {
	c := &candidates{}
	if !admissible(k, ix.src.Deletions) || len(ix.buckets) == 0 {
		return c
	}
	var equivalents []Equivalent
	if ix.src.Equivalents != nil {
		equivalents = ix.src.Equivalents(k.resource)
	}
	judged := map[*ruleset]*answer{}
	judge := func(r *ruleset) *answer {
		v, ok := judged[r]
		if !ok {
			v = r.judge(k, equivalents)
			judged[r] = v
		}
		return v
	}
	// For all other requests a namespaceSelector matches.
	namespaces := k.namespaced || k.resource.Resource == "namespaces"
	var met []*bucket
	for _, r := range ix.buckets {
		v := judge(r.policy)
		if v == nil {
			continue
		}
		c.all = c.all || v.fails()
		// A policy that needs the labels of a missing namespace returns an error even if none
		// of its bindings can match.
		c.namespaces = c.namespaces || namespaces && r.selectsNamespaces()
		if r.bound {
			if v = judge(r.binding); v == nil {
				continue
			}
			c.all = c.all || v.fails()
		}
		met = append(met, r)
	}
	c.answers = judged
	maps.DeleteFunc(c.answers, func(_ *ruleset, v *answer) bool { return v == nil })
	if len(met) > maxTables {
		var groups []*group
		for _, r := range met {
			groups = append(groups, r.groups...)
		}
		c.tables = []*lookup.Table[*group]{newTable(groups, namespaces)}
		return c
	}
	for _, r := range met {
		c.tables = append(c.tables, r.table(namespaces))
	}
	return c
}

// admissible reports whether policies see requests of this key at all (spec §2.7). They do not
// see deletions unless Sources say so, reviews of authentication and authorization, nor
// policies and bindings themselves, because nobody could repair a bad policy then. Policies and
// bindings of mapd's own group are treated like those of the server's, and so are exceptions.
func admissible(k *key, deletions bool) bool {
	switch k.operation {
	case admissionv1.Delete:
		if !deletions {
			return false
		}
	case admissionv1.Create, admissionv1.Update, admissionv1.Connect:
	default:
		return false
	}
	return !Unreviewed(k.resource.Group, k.resource.Resource)
}

// Unreviewed reports whether no policy sees requests for a resource, whatever its rules are.
// From 1.37 on, servers do not call webhooks for reviews of authentication and authorization
// either (ExcludeAdmissionWebhookVirtualResources).
func Unreviewed(group, resource string) bool {
	switch group {
	case "authentication.k8s.io":
		switch resource {
		case "selfsubjectreviews", "tokenreviews":
			return true
		}
	case "authorization.k8s.io":
		switch resource {
		case "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews":
			return true
		}
	case api.NativeGroup, api.OwnGroup:
		switch resource {
		case "validatingadmissionpolicies", "validatingadmissionpolicybindings",
			api.PolicyResource, api.BindingResource:
			return true
		}
	case api.ExceptionGroup:
		return resource == api.ExceptionResource
	}
	return false
}
