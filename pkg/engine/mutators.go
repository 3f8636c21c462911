package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Member is one mutator of a Set: a policy with its one parameter.
type Member struct {
	// Name is the name of the member in Steps, such as "Assign/name".
	Name string
	// Policy should be compiled with policy.CompileLenient. Its expressions have
	// no authorizer.
	Policy *policy.Policy
	Params *unstructured.Unstructured
	// Applies reports whether the member can apply to objects of a kind at all; nil means
	// always. The Set calls it with the kind that the object itself has, once for each kind,
	// operation and source, so its result must not change. The operation is empty for a
	// generated object.
	Applies func(gvk schema.GroupVersionKind, op admissionv1.Operation, source policy.Source) bool
	// Match has the member's other criteria; nil matches every object. Members with
	// equal criteria should share one Match, which is then evaluated once.
	Match *Match
	// Wakes are the indices of the members that have to run again after this one has changed
	// the object, including its own if it is not idempotent. A superfluous index costs time, a
	// missing one gives a wrong result.
	Wakes []int
	// Asks says that the member may leave a tree.Pending in the object, which the Set resolves
	// with Admission.Ask after the last pass.
	Asks bool
}

// Match has criteria of members. Only NamespaceSelector decides whether a member matches. The
// others let a Set skip members whose policies would not match, so they must hold wherever a
// policy's conditions hold. A Match must not be modified.
type Match struct {
	// NamespaceSelector is matched against the labels of the object's Namespace, or of the
	// object itself if that is a Namespace; other cluster-scoped objects match. Nil matches
	// all.
	NamespaceSelector labels.Selector
	// Labels is matched against the object's labels. Nil matches all.
	Labels labels.Selector
	// Namespaces, if not nil, are the only namespaces of objects that match, and Namespace
	// reports whether objects of a namespace may match; nil means that all do. Neither applies
	// to Namespace objects. Namespaces does not apply to other cluster-scoped objects either,
	// for which Namespace is called with "".
	Namespaces []string
	Namespace  func(name string) bool
}

// SetOptions configure a Set.
type SetOptions struct {
	// Members are in the order in which they run.
	Members []Member
	// Bound is N of the at most N+1 passes. It must be at least the number of members.
	Bound int
	// Excludes reports whether the Set excludes objects of a namespace. It is called with the
	// name of a Namespace for that object, and with "" for other cluster-scoped objects. Nil
	// excludes none.
	Excludes func(namespace string) bool
	// Namespace returns the Namespace of a request; its error refuses the request. If it is
	// nil, no Namespace has a label.
	Namespace func(ctx context.Context, name string) (*unstructured.Unstructured, error)
	// Sources have the exceptions from members; beside them, only what the exceptions'
	// selectors need is used. Nil means no exceptions.
	Sources *binding.Sources
	// Explain returns the error with which a member refuses an object, with Gatekeeper's text;
	// if it is nil or returns nil, the engine's error is used. obj and selected, which is obj
	// as selectors see it, must not be modified.
	Explain func(member int, obj, selected *unstructured.Unstructured, req *policy.Request, ns *unstructured.Unstructured) error
	// WhyNot returns a description of the criterion of a member that an object does not
	// satisfy; "" if it matches. It may be nil. obj must not be modified.
	WhyNot func(member int, obj *unstructured.Unstructured, req *policy.Request, ns *unstructured.Unstructured) string
}

// A Set runs its members in order, again and again until none of them changes the object any
// more, as Gatekeeper runs its mutators (Gatekeeper spec §8). It is immutable and safe for
// concurrent use.
//
// As Gatekeeper does, it ignores operations other than CREATE and UPDATE, Gatekeeper's own
// kinds, and namespaces that are excluded or have api.IgnoreLabel. Any error refuses the
// request.
//
// After the first pass a member runs again only if another has woken it since. The result, the
// refusals and the number of passes are the same as if all members ran.
//
// Questions to external sources are asked after the last pass, in one call (Gatekeeper spec
// §11.4). For selectors, a label whose value is still pending does not exist.
//
// A Set is a Runner: see Mutators.
type Set struct {
	options SetOptions
	passes  int // largest number of passes

	known   sync.Map // kindKey → *candidates
	learnt  atomic.Int64
	buffers sync.Pool // of *setBuffers
}

// setBuffers has buffers for one run of a Set.
type setBuffers struct {
	awake []bool        // which members have to run again, by index; all false in the pool
	list  []int         // indices of the candidates that may match; ascending
	found []*matchGroup // the groups that addMatching found
}

// kindKey has the arguments of Applies, and whether the object has a namespace.
type kindKey struct {
	apiVersion, kind string
	operation        admissionv1.Operation
	source           policy.Source
	namespaced       bool
}

// candidates are the members that apply to objects of a kind.
type candidates struct {
	members []int // ascending
	table   *lookup.Table[*matchGroup]
	labels  bool // some group has a selector for the object's labels
}

// matchGroup has the members of one Match.
type matchGroup struct {
	match   *Match // nil: matches everything
	members []int  // ascending
}

// maxKnown bounds how many kinds a Set caches. A server has some hundreds, but an object may
// name any kind.
const maxKnown = 4096

// NewSet returns a Set, which keeps o's lists.
func NewSet(o SetOptions) *Set {
	s := &Set{options: o, passes: max(o.Bound, len(o.Members)) + 1}
	s.buffers.New = func() any { return &setBuffers{awake: make([]bool, len(o.Members))} }
	return s
}

// Len returns the number of members.
func (s *Set) Len() int { return len(s.options.Members) }

// candidates returns the members that apply to objects of a kind.
func (s *Set) candidates(k kindKey) *candidates {
	if known, ok := s.known.Load(k); ok {
		return known.(*candidates)
	}
	c := &candidates{}
	gvk := schema.FromAPIVersionAndKind(k.apiVersion, k.kind)
	groups := map[*Match]*matchGroup{}
	var all []*matchGroup
	for i := range s.options.Members {
		m := &s.options.Members[i]
		if m.Applies != nil && !m.Applies(gvk, k.operation, k.source) {
			continue
		}
		g := groups[m.Match]
		if g == nil {
			g = &matchGroup{match: m.Match}
			groups[m.Match] = g
			all = append(all, g)
			c.labels = c.labels || m.Match != nil && m.Match.Labels != nil
		}
		g.members = append(g.members, i)
		c.members = append(c.members, i)
	}
	c.table = lookup.New(all, func(needs []lookup.Need, g *matchGroup) []lookup.Need {
		if g.match == nil {
			return needs
		}
		if k.namespaced && !k.isNamespace() {
			needs = lookup.Needs(needs, lookup.Namespace, g.match.NamespaceSelector)
			if g.match.Namespaces != nil {
				needs = append(needs, lookup.Need{Place: lookup.Name, Values: g.match.Namespaces})
			}
		}
		return lookup.Needs(needs, lookup.Object, g.match.Labels)
	})
	if s.learnt.Add(1) <= maxKnown {
		s.known.Store(k, c)
	}
	return c
}

// mayMeet reports whether any member can apply to objects of the kind of req.
func (s *Set) mayMeet(req *policy.Request) bool {
	return slices.ContainsFunc(s.options.Members, func(m Member) bool {
		return m.Applies == nil || m.Applies(req.Kind, req.Operation, req.Source)
	})
}

func keyOf(obj map[string]any, req *policy.Request, namespaced bool) kindKey {
	k := kindKey{operation: req.Operation, source: req.Source, namespaced: namespaced}
	if req.Source == policy.Generated {
		k.operation = "" // Gatekeeper's expansion has no operation
	}
	k.apiVersion, _ = obj["apiVersion"].(string)
	k.kind, _ = obj["kind"].(string)
	return k
}

// isNamespace reports whether an object is a Namespace, in any version.
func (k kindKey) isNamespace() bool {
	return k.kind == "Namespace" && !strings.Contains(k.apiVersion, "/")
}

// Run implements Runner.
func (s *Set) Run(ctx context.Context, a *Admission) (result Result, met bool) {
	if a.Object == nil || len(s.options.Members) == 0 {
		return Result{}, false
	}
	b, skip, err := s.begin(ctx, a.Request, a.Object)
	switch {
	case skip != "":
		return Result{}, false
	case err != nil:
		if status := interrupted(ctx, a.Request); status != nil {
			return Result{Status: status}, true
		}
		return Result{Status: refusedStatus(err)}, true
	}
	r := setRun{Admission: a, set: s, key: b.key, candidates: b.candidates, namespace: b.ns}
	r.excepting = s.options.Sources.Excepting(ctx, a.Request, a.Object)
	return r.decide(b.namespace), true
}

// beginning is what a Set determines about a request before it runs its members.
type beginning struct {
	key        kindKey
	candidates *candidates
	namespace  string // set in the object while members run
	ns         *unstructured.Unstructured
}

// noCandidates is why a Set that has no member for a kind does nothing.
const noCandidates = "no mutator applies to this kind"

// begin prepares a run. It returns in skip why the Set does nothing with a request, "" if it
// runs.
func (s *Set) begin(ctx context.Context, req *policy.Request, object *unstructured.Unstructured) (b beginning, skip string, err error) {
	if !mutable(req) {
		return b, "Gatekeeper mutates nothing but CREATE and UPDATE, and none of its own kinds", nil
	}
	b.key = keyOf(object.Object, req, req.Namespace != "")
	b.namespace = req.Namespace
	excluded := req.Namespace
	if b.key.isNamespace() {
		b.key.namespaced, b.namespace, excluded = false, "", object.GetName()
	}
	if b.candidates = s.candidates(b.key); len(b.candidates.members) == 0 {
		return b, noCandidates, nil
	}
	if s.options.Excludes != nil && s.options.Excludes(excluded) {
		return b, "Gatekeeper's Config excludes the namespace", nil
	}
	if b.namespace != "" && s.options.Namespace != nil {
		if b.ns, err = s.options.Namespace(ctx, b.namespace); err != nil {
			return b, "", err
		}
	}
	home := b.ns // the Namespace whose labels count
	if b.key.isNamespace() {
		home = object
	}
	if home != nil {
		if _, ignored := rawLabels(home.Object)[api.IgnoreLabel]; ignored {
			return b, "the Namespace has the label " + api.IgnoreLabel, nil
		}
	}
	return b, "", nil
}

// mutable reports whether Gatekeeper handles a request at all (Gatekeeper spec §9.2).
func mutable(req *policy.Request) bool {
	return (req.Operation == admissionv1.Create || req.Operation == admissionv1.Update) && !api.IsGatekeepers(req.Kind.Group)
}

// refusedStatus returns Gatekeeper's response to every error (Gatekeeper spec §9.4).
func refusedStatus(err error) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: err.Error()}
}
