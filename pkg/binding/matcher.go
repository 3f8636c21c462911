package binding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// namespaceNameLabel is the label that every Namespace carries with its own name.
const namespaceNameLabel = "kubernetes.io/metadata.name"

// matcher is one MatchResources with its selectors and resource names parsed.
// Equal MatchResources have one matcher, see matcherOf.
type matcher struct {
	// err is returned for every request. It says that the object was not defaulted.
	err        error
	namespaces selector
	objects    selector
	rules      *ruleset // nil if err
	// needs lists the labels without which the matcher cannot match a request. It is
	// empty if the matcher is fallible.
	needs []lookup.Need
}

// ruleset holds the resource rules of a MatchResources. Equal rules share one.
type ruleset struct {
	rules      []rule
	exclude    []rule
	any        bool // no resourceRules: every resource
	equivalent bool
	// names, if not nil, are the only names of objects that the rules accept.
	names []string
}

// selector is a parsed label selector, or the error of parsing it.
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

var (
	matchers shared[matcher]
	rulesets shared[ruleset]
)

// matcherOf returns the matcher of a MatchResources, nil for a policy without.
func matcherOf(m *admissionregistrationv1.MatchResources) *matcher {
	switch {
	case m == nil:
		return &matcher{err: errors.New("policy contained no match constraints, a required field")}
	case m.NamespaceSelector == nil:
		return &matcher{err: errors.New("a nil namespace selector was passed, please ensure selectors are initialized properly")}
	case m.ObjectSelector == nil:
		return &matcher{err: errors.New("a nil object selector was passed, please ensure selectors are initialized properly")}
	}
	return matchers.of(m, func() *matcher {
		rules := *m
		rules.NamespaceSelector, rules.ObjectSelector = nil, nil
		out := &matcher{
			namespaces: newSelector(m.NamespaceSelector),
			objects:    newSelector(m.ObjectSelector),
			rules:      rulesets.of(&rules, func() *ruleset { return newRuleset(m) }),
		}
		if !out.fallible() {
			out.needs = lookup.Needs(out.needs, lookup.Namespace, out.namespaces.Selector)
			out.needs = lookup.Needs(out.needs, lookup.Object, out.objects.Selector)
			if names := out.rules.names; names != nil {
				out.needs = append(out.needs, lookup.Need{Place: lookup.Name, Values: names})
			}
		}
		return out
	})
}

func newRuleset(m *admissionregistrationv1.MatchResources) *ruleset {
	out := &ruleset{
		rules:   newRules(m.ResourceRules),
		exclude: newRules(m.ExcludeResourceRules),
		any:     len(m.ResourceRules) == 0,
		// A nil matchPolicy, which defaulting never leaves, is Exact on the server.
		equivalent: m.MatchPolicy != nil && *m.MatchPolicy != admissionregistrationv1.Exact,
	}
	for i := range out.rules {
		if len(out.rules[i].names) == 0 {
			out.names = nil
			break
		}
		out.names = append(out.names, out.rules[i].names...)
	}
	return out
}

// fallible reports whether the matcher can return an error for a request whatever the
// request's labels are.
func (m *matcher) fallible() bool {
	return m.err != nil || m.namespaces.err != nil || m.objects.err != nil
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

// matches tests all criteria of a rule except its resourceNames, for requests of kind k that
// address resource (spec §2.2).
func (r *rule) matches(k *key, resource schema.GroupVersionResource) bool {
	return r.fails(k, resource) == Satisfied
}

// fails returns the first criterion of matches that does not hold. Since all have to hold,
// their order does not matter to the result; the resource comes first, for better messages.
func (r *rule) fails(k *key, resource schema.GroupVersionResource) Criterion {
	switch {
	case !oneOf(r.groups, resource.Group):
		return Group
	case !oneOf(r.versions, resource.Version):
		return Version
	case !slices.ContainsFunc(r.resources, func(rr resourceRule) bool {
		// A "*" after the slash matches the empty subresource too, so "pods/*" covers pods
		// themselves.
		return (rr.resource == "*" || rr.resource == resource.Resource) &&
			(rr.subresource == "*" || rr.subresource == k.subresource)
	}):
		return Resource
	case !slices.ContainsFunc(r.operations, func(op admissionregistrationv1.OperationType) bool {
		return op == admissionregistrationv1.OperationAll || string(op) == string(k.operation)
	}):
		return Operation
	case !r.inScope(k, resource):
		return Scope
	}
	return Satisfied
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

// answer is the result of a ruleset for all requests of one key. Only their names remain to be
// tested.
type answer struct {
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

// always is the answer of a ruleset without rules.
var always = []hit{{}}

// judge evaluates the criteria that depend on the key alone. It returns nil if no request of
// that key can match or fail.
func (r *ruleset) judge(k *key, equivalents []Equivalent) *answer {
	if r == nil {
		return &answer{}
	}
	v := &answer{excluded: r.hits(r.exclude, k, equivalents), matched: always}
	if !r.any {
		v.matched = r.hits(r.rules, k, equivalents)
	}
	if last, ok := final(v.excluded); ok && last.err == nil || !ok && len(v.matched) == 0 {
		return nil
	}
	return v
}

// fails reports whether the rules themselves return an error for some request.
func (v *answer) fails() bool {
	failing := func(h hit) bool { return h.err != nil }
	return slices.ContainsFunc(v.excluded, failing) || slices.ContainsFunc(v.matched, failing)
}

// final returns the hit that applies whatever the request's name is, false if there is none. It
// can only be the last one, because hits stops there.
func final(hits []hit) (hit, bool) {
	if len(hits) == 0 || len(hits[len(hits)-1].names) > 0 {
		return hit{}, false
	}
	return hits[len(hits)-1], true
}

// hits lists the rules that match, in the order in which the server tries them:
// all rules on the request's own resource, then each rule on each equivalent
// resource (spec §2.3). The first hit whose names fit decides.
func (r *ruleset) hits(rules []rule, k *key, equivalents []Equivalent) []hit {
	var out []hit
	for i := range rules {
		rule := &rules[i]
		if !rule.matches(k, k.resource) {
			continue
		}
		out = append(out, hit{names: rule.names})
		if len(rule.names) == 0 {
			return out
		}
	}
	if !r.equivalent {
		return out
	}
	for i := range rules {
		rule := &rules[i]
		for _, eq := range equivalents {
			if eq.Resource == k.resource || !rule.matches(k, eq.Resource) {
				continue
			}
			if eq.Kind.Empty() {
				return append(out, hit{err: fmt.Errorf("unable to convert to %v: unknown kind", eq.Resource)})
			}
			out = append(out, hit{names: rule.names, resource: eq.Resource, kind: eq.Kind})
			if len(rule.names) == 0 {
				return out
			}
		}
	}
	return out
}

// test reports whether m matches one request (spec §2.1), or returns the criterion that does
// not hold; v is the answer of m's rules for the request's key. If no rule matches, the
// criterion is Rules; nearest returns a more exact one. The server tests selectors first but
// reports their errors last. Here the cheap tests come first, with the same result, since one
// failed test decides.
func (m *matcher) test(t *target, v *answer) (hit, Criterion, error) {
	switch {
	case m.err != nil:
		return hit{}, Satisfied, m.err
	case v == nil:
		return hit{}, Rules, nil
	}
	var found hit
	var err error
	if h, ok := byName(v.excluded, t.req.Name); ok {
		if h.err == nil {
			return hit{}, Rules, nil
		}
		err = h.err
	} else {
		h, ok := byName(v.matched, t.req.Name)
		if !ok {
			return hit{}, Rules, nil
		}
		found, err = h, h.err
	}
	ok, nsErr := m.matchesNamespace(t)
	if !ok && nsErr == nil {
		return hit{}, NamespaceLabels, nil
	}
	ok, objErr := m.matchesObject(t)
	if !ok && objErr == nil {
		return hit{}, ObjectLabels, nil
	}
	for _, e := range [...]error{err, nsErr, objErr} {
		if e != nil {
			return hit{}, Satisfied, e
		}
	}
	return found, Satisfied, nil
}

func byName(hits []hit, name string) (hit, bool) {
	for _, h := range hits {
		if len(h.names) == 0 || slices.Contains(h.names, name) {
			return h, true
		}
	}
	return hit{}, false
}

// matchesNamespace reports whether the namespaceSelector holds (spec §2.5). As on the
// server, the plural name alone decides whether a request is about a Namespace.
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

// matchesObject reports whether the objectSelector holds for the object or the old
// one (spec §2.4).
func (m *matcher) matchesObject(t *target) (bool, error) {
	if m.objects.err != nil {
		return false, m.objects.err
	}
	if m.objects.Selector == nil {
		return true, nil
	}
	t.labels = true
	return hasLabels(t.object, m.objects.Selector) || hasLabels(t.req.OldObject, m.objects.Selector), nil
}

func hasLabels(u *unstructured.Unstructured, s labels.Selector) bool {
	set, ok := labelsOf(u)
	return ok && s.Matches(set)
}

// target is a request that is being matched. It fetches the namespace's labels at most once.
type target struct {
	ctx      context.Context
	ix       *Index
	req      *policy.Request
	resource schema.GroupVersionResource // as the client sent it
	object   *unstructured.Unstructured
	expected int // estimated number of invocations

	labels bool // a result depended on the labels of object
	others bool // a result depended on parameters, or was an error

	fetched  bool
	nsLabels lookup.Labels
	nsErr    error

	hashed bool
	hash   uint64 // see ShareHash

	erring  *entry // the entry whose errorMode is errorIs
	errorIs api.Mode

	excepting  bool // exceptions is set
	exceptions *Exceptions
	at         time.Time // time at which exceptions are evaluated; zero until the first one is
	judged     map[*ruleset]*answer
}

// namespaceLabels returns the labels that a namespaceSelector is tested against. The error is a
// *apierrors.StatusError, as the server's is.
func (t *target) namespaceLabels() (lookup.Labels, error) {
	if !t.fetched {
		t.fetched = true
		t.nsLabels, t.nsErr = t.fetchNamespaceLabels()
		t.others = t.others || t.nsErr != nil
	}
	return t.nsLabels, t.nsErr
}

func (t *target) fetchNamespaceLabels() (lookup.Labels, error) {
	if t.resource.Resource == "namespaces" && t.req.RequestSubResource == "" && t.req.SubResource == "" &&
		(t.req.Operation == admissionv1.Create || t.req.Operation == admissionv1.Update) {
		// The request's own object is the newest version.
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

// labelsOf returns an object's labels. It reports false for objects without
// metadata, such as the options of a CONNECT, which no selector matches.
func labelsOf(u *unstructured.Unstructured) (lookup.Labels, bool) {
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

// sameLabels reports whether two objects have the same labels.
func sameLabels(a, b *unstructured.Unstructured) bool {
	x, okX := labelsOf(a)
	y, okY := labelsOf(b)
	return okX == okY && tree.Equal(map[string]any(x), map[string]any(y))
}
