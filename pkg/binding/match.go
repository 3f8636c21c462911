package binding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// namespaceNameLabel is the label that every Namespace carries with its own name.
const namespaceNameLabel = "kubernetes.io/metadata.name"

// matcher is one MatchResources with its selectors and resource names parsed.
type matcher struct {
	// err makes every request an error: the object was never defaulted.
	err        error
	namespaces selector
	objects    selector
	rules      []rule
	exclude    []rule
	any        bool // no resourceRules: every resource
	equivalent bool
	// pins, if not nil, are the only values of namespaceNameLabel that the
	// namespaceSelector can accept.
	pins []string
}

// selector is a parsed label selector, or the error that parsing gave.
type selector struct {
	labels.Selector // nil: matches everything
	err             error
}

// rule is one resource rule. The lists are the API object's own.
type rule struct {
	operations []admissionregistrationv1.OperationType
	groups     []string
	versions   []string
	resources  []resourceRule
	scope      admissionregistrationv1.ScopeType
	names      []string
}

type resourceRule struct{ resource, subresource string }

func newMatcher(m *admissionregistrationv1.MatchResources) *matcher {
	switch {
	case m == nil:
		return &matcher{err: errors.New("policy contained no match constraints, a required field")}
	case m.NamespaceSelector == nil:
		return &matcher{err: errors.New("a nil namespace selector was passed, please ensure selectors are initialized properly")}
	case m.ObjectSelector == nil:
		return &matcher{err: errors.New("a nil object selector was passed, please ensure selectors are initialized properly")}
	}
	out := &matcher{
		namespaces: newSelector(m.NamespaceSelector),
		objects:    newSelector(m.ObjectSelector),
		rules:      newRules(m.ResourceRules),
		exclude:    newRules(m.ExcludeResourceRules),
		any:        len(m.ResourceRules) == 0,
		// Defaulting fills Equivalent in; without it the server tests exactly.
		equivalent: m.MatchPolicy != nil && *m.MatchPolicy != admissionregistrationv1.Exact,
	}
	out.pins = out.namespaces.pins()
	return out
}

func newSelector(s *metav1.LabelSelector) selector {
	if len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		return selector{}
	}
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return selector{err: apierrors.NewInternalError(err)}
	}
	return selector{Selector: parsed}
}

// pins returns the values of namespaceNameLabel outside of which the selector
// surely does not match, nil if there is no such limit.
func (s selector) pins() []string {
	if s.Selector == nil {
		return nil
	}
	requirements, selectable := s.Requirements()
	if !selectable {
		return nil
	}
	for _, r := range requirements {
		if r.Key() != namespaceNameLabel {
			continue
		}
		switch r.Operator() {
		case "in", "=", "==":
			// A selector may name a value twice; a namespace is one nevertheless.
			return slices.Compact(slices.Sorted(slices.Values(r.ValuesUnsorted())))
		}
	}
	return nil
}

func newRules(in []admissionregistrationv1.NamedRuleWithOperations) []rule {
	if len(in) == 0 {
		return nil
	}
	out := make([]rule, len(in))
	for i := range in {
		r := &in[i]
		out[i] = rule{
			operations: r.Operations,
			groups:     r.APIGroups,
			versions:   r.APIVersions,
			resources:  make([]resourceRule, len(r.Resources)),
			scope:      admissionregistrationv1.AllScopes,
			names:      r.ResourceNames,
		}
		if r.Scope != nil {
			out[i].scope = *r.Scope
		}
		for j, s := range r.Resources {
			resource, subresource, _ := strings.Cut(s, "/")
			out[i].resources[j] = resourceRule{resource, subresource}
		}
	}
	return out
}

// matches applies everything of a rule but its resourceNames to requests of
// kind k that address resource (spec §2.2).
func (r *rule) matches(k *key, resource schema.GroupVersionResource) bool {
	return r.inScope(k, resource) &&
		slices.ContainsFunc(r.operations, func(op admissionregistrationv1.OperationType) bool {
			return op == admissionregistrationv1.OperationAll || string(op) == string(k.operation)
		}) &&
		oneOf(r.groups, resource.Group) &&
		oneOf(r.versions, resource.Version) &&
		slices.ContainsFunc(r.resources, func(rr resourceRule) bool {
			// A "*" behind the slash accepts the empty subresource too, so
			// "pods/*" covers pods themselves.
			return (rr.resource == "*" || rr.resource == resource.Resource) &&
				(rr.subresource == "*" || rr.subresource == k.subresource)
		})
}

// namespacesResource counts as cluster-scoped although requests for a Namespace
// carry its own name as their namespace.
var namespacesResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

func (r *rule) inScope(k *key, resource schema.GroupVersionResource) bool {
	namespaced := k.namespaced && resource != namespacesResource
	switch r.scope {
	case admissionregistrationv1.AllScopes:
		return true
	case admissionregistrationv1.NamespacedScope:
		return namespaced
	case admissionregistrationv1.ClusterScope:
		return !namespaced
	default:
		return false
	}
}

func oneOf(items []string, s string) bool {
	return slices.ContainsFunc(items, func(item string) bool { return item == "*" || item == s })
}

// narrowed is what is left of a matcher for the requests of one key: of the
// rules only the names, if any, and what a match means.
type narrowed struct {
	*matcher
	excluded []hit
	matched  []hit
}

// hit is one rule that matches all requests of a key whose name it lists.
type hit struct {
	names []string // empty: every name
	// resource and kind are the matched ones under Equivalent; zero means the
	// request's own.
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	err      error
}

// always is what matches without rules.
var always = []hit{{}}

// narrow evaluates all that depends on the key only. It reports false if no
// request of that key can match or fail.
func (m *matcher) narrow(k *key, equivalents []Equivalent) (narrowed, bool) {
	if m.err != nil {
		return narrowed{matcher: m}, true
	}
	n := narrowed{
		matcher:  m,
		excluded: m.hits(m.exclude, k, equivalents),
	}
	if m.any {
		n.matched = always
	} else {
		n.matched = m.hits(m.rules, k, equivalents)
	}
	if last, ok := final(n.excluded); ok {
		return n, last.err != nil
	}
	return n, len(n.matched) > 0
}

// final returns the hit that decides whatever the request's name is. It can only
// be the last, because hits stops there.
func final(hits []hit) (hit, bool) {
	if len(hits) == 0 || len(hits[len(hits)-1].names) > 0 {
		return hit{}, false
	}
	return hits[len(hits)-1], true
}

// hits lists the rules that match, in the order in which the server tries them:
// all rules on the request's own resource, then each rule on each equivalent
// resource (spec §2.3). The first hit whose names fit decides.
func (m *matcher) hits(rules []rule, k *key, equivalents []Equivalent) []hit {
	var out []hit
	for i := range rules {
		r := &rules[i]
		if !r.matches(k, k.resource) {
			continue
		}
		out = append(out, hit{names: r.names})
		if len(r.names) == 0 {
			return out
		}
	}
	if !m.equivalent {
		return out
	}
	for i := range rules {
		r := &rules[i]
		for _, eq := range equivalents {
			if eq.Resource == k.resource || !r.matches(k, eq.Resource) {
				continue
			}
			if eq.Kind.Empty() {
				return append(out, hit{err: fmt.Errorf("unable to convert to %v: unknown kind", eq.Resource)})
			}
			out = append(out, hit{names: r.names, resource: eq.Resource, kind: eq.Kind})
			if len(r.names) == 0 {
				return out
			}
		}
	}
	return out
}

// test decides whether one request matches (spec §2.1). The server asks the
// selectors first but reports their errors last; here the cheap questions come
// first, which gives the same answers because "no" from anyone is "no".
func (n *narrowed) test(t *target) (hit, bool, error) {
	if n.err != nil {
		return hit{}, false, n.err
	}
	var found hit
	var err error
	if h, ok := byName(n.excluded, t.req.Name); ok {
		if h.err == nil {
			return hit{}, false, nil
		}
		err = h.err
	} else {
		h, ok := byName(n.matched, t.req.Name)
		if !ok {
			return hit{}, false, nil
		}
		found, err = h, h.err
	}
	ok, nsErr := n.matchesNamespace(t)
	if !ok && nsErr == nil {
		return hit{}, false, nil
	}
	ok, objErr := n.matchesObject(t)
	if !ok && objErr == nil {
		return hit{}, false, nil
	}
	for _, e := range [...]error{err, nsErr, objErr} {
		if e != nil {
			return hit{}, false, e
		}
	}
	return found, true, nil
}

func byName(hits []hit, name string) (hit, bool) {
	for _, h := range hits {
		if len(h.names) == 0 || slices.Contains(h.names, name) {
			return h, true
		}
	}
	return hit{}, false
}

// matchesNamespace is spec §2.5. Whether a request is about namespaces is
// decided by the plural name alone, as the server does.
func (m *matcher) matchesNamespace(t *target) (bool, error) {
	if t.req.Namespace == "" && t.resource.Resource != "namespaces" {
		return true, nil
	}
	if m.namespaces.err != nil {
		return false, m.namespaces.err
	}
	if m.namespaces.Selector == nil {
		return true, nil
	}
	set, err := t.namespaceLabels()
	if err != nil {
		return false, err
	}
	return m.namespaces.Matches(set), nil
}

// matchesObject is spec §2.4.
func (m *matcher) matchesObject(t *target) (bool, error) {
	if m.objects.err != nil {
		return false, m.objects.err
	}
	if m.objects.Selector == nil {
		return true, nil
	}
	t.labels = true
	return hasLabels(t.object, m.objects) || hasLabels(t.req.OldObject, m.objects), nil
}

func hasLabels(u *unstructured.Unstructured, s labels.Selector) bool {
	set, ok := labelsOf(u)
	return ok && s.Matches(set)
}

// target is a request under selection, with the namespace's labels fetched at
// most once.
type target struct {
	ctx      context.Context
	ix       *Index
	req      *policy.Request
	resource schema.GroupVersionResource // as the client sent it
	object   *unstructured.Unstructured
	expected int // how many invocations, at a guess

	labels bool // some answer came from the labels of object
	others bool // from parameters, or was an error

	fetched  bool
	nsLabels labelSet
	nsErr    error
}

// namespaceLabels returns the labels that a namespaceSelector is tested on. The
// error is a *apierrors.StatusError, as the server's is.
func (t *target) namespaceLabels() (labelSet, error) {
	if !t.fetched {
		t.fetched = true
		t.nsLabels, t.nsErr = t.fetchNamespaceLabels()
		t.others = t.others || t.nsErr != nil
	}
	return t.nsLabels, t.nsErr
}

func (t *target) fetchNamespaceLabels() (labelSet, error) {
	if t.resource.Resource == "namespaces" && t.req.RequestSubResource == "" && t.req.SubResource == "" &&
		(t.req.Operation == admissionv1.Create || t.req.Operation == admissionv1.Update) {
		// The request's own object is the newest there is.
		t.labels = true
		set, ok := labelsOf(t.object)
		if !ok {
			return nil, apierrors.NewInternalError(errors.New("object does not implement the Object interfaces"))
		}
		return set, nil
	}
	ns, err := t.ix.Namespace(t.ctx, t.req.Namespace)
	if err != nil {
		var status *apierrors.StatusError
		if errors.As(err, &status) && apierrors.IsNotFound(err) {
			return nil, status
		}
		return nil, apierrors.NewInternalError(err)
	}
	set, _ := labelsOf(ns)
	return set, nil
}

// labelSet reads the labels of an object in place; it implements labels.Labels.
type labelSet map[string]any

// labelsOf returns an object's labels. It reports false for objects without
// metadata, such as the options of a CONNECT, which no selector matches.
func labelsOf(u *unstructured.Unstructured) (labelSet, bool) {
	if u == nil {
		return nil, false
	}
	meta, ok := u.Object["metadata"].(map[string]any)
	if !ok {
		return nil, false
	}
	set, _ := meta["labels"].(map[string]any)
	return set, true
}

// sameLabels reports whether selectors cannot tell two objects apart.
func sameLabels(a, b *unstructured.Unstructured) bool {
	x, okX := labelsOf(a)
	y, okY := labelsOf(b)
	return okX == okY && tree.Equal(map[string]any(x), map[string]any(y))
}

// Has implements labels.Labels.
func (s labelSet) Has(label string) bool { _, ok := s.Lookup(label); return ok }

// Get implements labels.Labels.
func (s labelSet) Get(label string) string { v, _ := s.Lookup(label); return v }

// Lookup implements labels.Labels. A null label is an empty one, which is what
// it becomes in the server's types.
func (s labelSet) Lookup(label string) (string, bool) {
	v, ok := s[label]
	if !ok {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case nil:
		return "", true
	default:
		return "", false
	}
}
