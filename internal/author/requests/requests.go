// Package requests answers one question: which requests show what a policy does?
//
// It generates plain objects of the kinds that a policy matches, and changes the fields that the
// policy reads to values in its expressions. Start reading at Telling.
package requests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/author/coverage"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Bounds for each policy: the requests that are tried, the literals of its
// expressions that are used, and the kinds that it is tried on.
const maxTried, maxLiterals, maxKinds = 3000, 40, 8

// Telling returns requests, with their results, that each reach an outcome of the policies'
// expressions that no earlier request reaches: plain objects of the kinds that a policy matches,
// and objects that differ from these in fields that the policy reads. The same policies give the
// same requests. The namespaces are used besides the default one. The policies must be compiled
// by an Env that observes, and the counter has their counts.
func Telling(ctx context.Context, policies *mapd.Policies, namespaces []string) ([]*Candidate, *coverage.Counter) {
	g := generate(ctx, policies, namespaces, nil)
	return g.cases(), &g.counter
}

func generate(ctx context.Context, policies *mapd.Policies, namespaces []string, each func(*mapd.Request, *mapd.Result)) *generation {
	g := &generation{ctx: ctx, policies: policies, changed: map[string]bool{}, each: each}
	g.namespaces = append(slices.Clip(namespaces), mapd.DefaultNamespace)
	for _, p := range policies.Policies() {
		g.policy(p)
	}
	return g
}

// Try calls f with all requests that Telling tries, and their results. The policies must be
// compiled by an Env that observes.
func Try(ctx context.Context, policies *mapd.Policies, namespaces []string, f func(*mapd.Request, *mapd.Result)) {
	generate(ctx, policies, namespaces, f)
}

// Sample calls f with n random requests for each policy, and their results. The requests are
// always the same for the same policies. A field that a policy reads has a value from the
// policy's expressions, another value, or none.
func Sample(ctx context.Context, policies *mapd.Policies, n int, f func(*mapd.Request, *mapd.Result)) {
	g := &generation{ctx: ctx, policies: policies, changed: map[string]bool{}, each: f, namespaces: []string{mapd.DefaultNamespace}}
	for _, p := range policies.Policies() {
		r := rand.New(rand.NewPCG(1, 2))
		spec := &p.Object().Spec
		places, literals, kinds := g.looks(spec)
		random := func(c *Candidate) *Candidate {
			for _, place := range places {
				// A missing field is as likely as all values together.
				if values := g.values(c, place, literals); r.IntN(2) > 0 {
					c = c.with(place, values[r.IntN(len(values))])
				}
			}
			return c
		}
		for range n {
			plain := g.plain(kinds[r.IntN(len(kinds))], g.namespaces[0], spec.MatchConstraints)
			c := random(plain)
			if r.IntN(3) == 0 {
				c = c.updates(random(plain).Object, nil)
			}
			if c.Object != nil && ctx.Err() == nil {
				g.admit(c)
			}
		}
	}
}

// Offer calls f with the creation and the update of an object, and the results. It skips objects
// for which no request can be made.
func Offer(ctx context.Context, policies *mapd.Policies, u *unstructured.Unstructured, f func(*mapd.Request, *mapd.Result)) {
	u = u.DeepCopy()
	u.SetManagedFields(nil)
	text := manifest.Encode(u.Object)
	for _, op := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
		for d, err := range mapd.Read("object", bytes.NewReader(text)) {
			if err != nil {
				return
			}
			opts := mapd.RequestOptions{Operation: op}
			if op == admissionv1.Update {
				old, errs := policies.Objects("old", mapd.Read("object", bytes.NewReader(text)))
				if len(errs) > 0 {
					return
				}
				opts.Old = old
			}
			if r, err := policies.Request(d, opts); err == nil {
				f(r, policies.Admit(ctx, r))
			}
		}
	}
}

// SelectedLabels returns labels that a selector selects.
func SelectedLabels(s *metav1.LabelSelector) map[string]string {
	labels := map[string]string{}
	if s == nil {
		return labels
	}
	maps.Copy(labels, s.MatchLabels)
	for _, r := range s.MatchExpressions {
		switch {
		case r.Operator == metav1.LabelSelectorOpExists:
			labels[r.Key] = "yes"
		case r.Operator == metav1.LabelSelectorOpIn && len(r.Values) > 0:
			labels[r.Key] = r.Values[0]
		}
	}
	return labels
}

// generation is one call of Telling or Try.
type generation struct {
	ctx        context.Context
	policies   *mapd.Policies
	namespaces []string
	changed    map[string]bool
	counter    coverage.Counter
	kept       []*Candidate
	tried      int
	each       func(*mapd.Request, *mapd.Result) // called for every request, may be nil
}

// Candidate is a request, and what the policies give.
type Candidate struct {
	// Name says how the object differs from others.
	Name string
	// Object is the one of the request, and Old that before an update, nil for a creation.
	Object, Old map[string]any
	// Result is what the policies give.
	Result *mapd.Result

	kind    string
	how     []string // how the object differs from a plain one
	reached map[string]bool
}

// policy tries requests for one policy, and keeps those that reach something new.
func (g *generation) policy(p *policy.Policy) {
	g.tried = 0
	spec := &p.Object().Spec
	places, literals, kinds := g.looks(spec)
	var last []*Candidate
	for _, gvk := range kinds {
		for _, ns := range g.namespaces {
			last = append(last, g.try(g.plain(gvk, ns, spec.MatchConstraints)))
		}
	}
	// Each round changes one more field.
	for range 3 {
		var next []*Candidate
		for _, c := range last {
			if c == nil {
				continue
			}
			for _, place := range places {
				for _, v := range g.values(c, place, literals) {
					if n := g.try(c.with(place, v)); n != nil {
						next = append(next, n)
					}
				}
			}
			if c.Old == nil {
				for _, place := range append([][]string{nil}, places...) {
					before := *c
					if place != nil {
						before = *c.with(place, absent{})
					}
					if n := g.try(c.updates(before.Object, place)); n != nil {
						next = append(next, n)
					}
				}
			}
		}
		if last = next; len(last) == 0 {
			return
		}
	}
}

// looks returns the places of the object that a policy looks at or writes to, the values that
// its expressions have, and the kinds that it is about.
func (g *generation) looks(spec *admissionregistrationv1.MutatingAdmissionPolicySpec) (places [][]string, literals []any, kinds []schema.GroupVersionKind) {
	conditions, mutations := lint.Reads(spec)
	for _, r := range slices.Concat(conditions, mutations) {
		if len(r.Path) > 0 && r.Path[0] != "apiVersion" && r.Path[0] != "kind" && !slices.ContainsFunc(places, func(q []string) bool { return slices.Equal(q, r.Path) }) {
			places = append(places, r.Path)
		}
	}
	literals = lint.Literals(spec)
	literals = literals[:min(len(literals), maxLiterals)]
	kinds, _ = policy.Targets(spec.MatchConstraints, g.policies.Types())
	if len(kinds) == 0 {
		kinds = []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}, {Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "ConfigMap"}}
	}
	return places, literals, kinds[:min(len(kinds), maxKinds)]
}

// absent is the value of a place that is not there.
type absent struct{}

func (g *generation) plain(gvk schema.GroupVersionKind, namespace string, m *admissionregistrationv1.MatchResources) *Candidate {
	obj := verify.Skeleton(gvk)
	u := &unstructured.Unstructured{Object: obj}
	u.SetName("web")
	if res, ok := g.policies.Types().ResourceFor(gvk); ok && res.Namespaced {
		u.SetNamespace(namespace)
	}
	labels := SelectedLabels(m.ObjectSelector)
	if gvk.Kind == "Namespace" && gvk.Group == "" {
		maps.Copy(labels, SelectedLabels(m.NamespaceSelector))
	}
	if len(labels) > 0 {
		u.SetLabels(labels)
	}
	c := &Candidate{kind: gvk.Kind, Object: obj}
	if namespace != g.namespaces[0] && u.GetNamespace() != "" {
		c.how = []string{"in " + namespace}
	}
	return c
}

// values returns what a place may have.
func (g *generation) values(c *Candidate, place []string, literals []any) (out []any) {
	out = append(out, absent{})
	at, known := g.place(c, place)
	scalar := ""
	if known {
		scalar = at.Scalar()
		if t := at.Type(); scalar == "" && t.List != nil {
			return append(out, []any{})
		} else if scalar == "" && t.Map != nil {
			return append(out, map[string]any{}, map[string]any{"other": "other"})
		}
	}
	if scalar == "boolean" || !known || scalar == "untyped" {
		out = append(out, true, false)
	}
	if scalar != "numeric" && scalar != "boolean" {
		out = append(out, "other", "")
	}
	for _, l := range literals {
		switch l := l.(type) {
		case string:
			if scalar == "string" || scalar == "untyped" || !known {
				out = append(out, l)
			}
		case int64:
			if scalar == "numeric" || scalar == "untyped" || !known {
				out = append(out, l, l+1, l-1)
			}
		}
	}
	if scalar == "numeric" {
		out = append(out, int64(0), int64(1))
	}
	return out
}

func (g *generation) place(c *Candidate, place []string) (at openapi.Place, ok bool) {
	kind, err := g.policies.Types().Kind((&unstructured.Unstructured{Object: c.Object}).GroupVersionKind())
	if err != nil {
		return at, false
	}
	at, ok = kind.Root()
	for _, step := range place {
		if !ok {
			return at, false
		}
		if step == lint.AnyElement {
			at, ok = at.Element()
		} else {
			at, ok = at.Field(step)
		}
	}
	return at, ok
}

// with returns c with another value at a place.
func (c *Candidate) with(place []string, v any) *Candidate {
	n := &Candidate{kind: c.kind, Object: runtime.DeepCopyJSON(c.Object), Old: c.Old}
	n.Object, _ = put(n.Object, place, v).(map[string]any)
	what := shownPlace(place)
	if _, ok := v.(absent); ok {
		what = "no " + what
	} else {
		what = fmt.Sprintf("%s %v", what, v)
		switch v := v.(type) {
		case string:
			what = fmt.Sprintf("%s %q", shownPlace(place), v)
		case []any:
			what = "empty " + shownPlace(place)
		case map[string]any:
			if what = "empty " + shownPlace(place); len(v) > 0 {
				what = "other keys in " + shownPlace(place)
			}
		}
	}
	n.how = append(slices.Clip(c.how), what)
	return n
}

func (c *Candidate) updates(old map[string]any, place []string) *Candidate {
	what := "updated"
	if place != nil {
		what = "updated, before without " + shownPlace(place)
	}
	return &Candidate{kind: c.kind, Object: c.Object, Old: old, how: append(slices.Clip(c.how), what)}
}

func shownPlace(place []string) string {
	text := ""
	for _, step := range place {
		switch {
		case step == lint.AnyElement:
			text += "[0]"
		case strings.ContainsAny(step, "./"):
			text += "[" + step + "]"
		default:
			text += "." + step
		}
	}
	return strings.TrimPrefix(text, ".")
}

// put returns a value with v at a place, for which it makes what is missing.
func put(at any, place []string, v any) any {
	if len(place) == 0 {
		return v
	}
	if place[0] == lint.AnyElement {
		list, _ := at.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		if len(place) > 1 && list[0] == nil {
			list[0] = map[string]any{}
		}
		next := put(list[0], place[1:], v)
		if _, gone := next.(absent); gone {
			return list[1:]
		}
		list[0] = next
		return list
	}
	m, _ := at.(map[string]any)
	if m == nil {
		if _, gone := v.(absent); gone {
			return at
		}
		m = map[string]any{}
	}
	next := put(m[place[0]], place[1:], v)
	if _, gone := next.(absent); gone || next == nil {
		delete(m, place[0])
	} else {
		m[place[0]] = next
	}
	return m
}

// try runs a candidate, and returns it if it reaches something that none before did.
func (g *generation) try(c *Candidate) *Candidate {
	if g.tried++; g.tried > maxTried || c.Object == nil || g.ctx.Err() != nil {
		return nil
	}
	before := g.hits()
	if !g.admit(c) {
		return nil
	}
	g.counter.Count(c.Result.Decision)
	c.reached = map[string]bool{}
	more := false
	for key, n := range g.hits() {
		if n > before[key] {
			c.reached[key] = true
			more = more || before[key] == 0
		}
	}
	for _, s := range c.Result.Decision.Steps {
		if m := fmt.Sprintf("%s %d", s.Policy, s.Mutation); s.Stage == engine.PolicyStage && s.Outcome == engine.Changed {
			c.reached[m] = true
			more = more || !g.changed[m]
			g.changed[m] = true
		}
	}
	if !more {
		return nil
	}
	g.kept = append(g.kept, c)
	return c
}

// admit has the policies decide a candidate, and returns false if it is no request.
func (g *generation) admit(c *Candidate) bool {
	opts := mapd.RequestOptions{}
	if c.Old != nil {
		old, errs := g.policies.Objects("old", mapd.Read("old", bytes.NewReader(encoded(c.Old))))
		if len(errs) > 0 {
			return false
		}
		opts.Old = old
	}
	for d, err := range mapd.Read("object", bytes.NewReader(encoded(c.Object))) {
		if err != nil {
			return false
		}
		req, err := g.policies.Request(d, opts)
		if err != nil {
			return false
		}
		c.Result = g.policies.Admit(g.ctx, req)
		if g.each != nil {
			g.each(req, c.Result)
		}
		return true
	}
	return false
}

// encoded returns the text of an object, which nobody reads.
func encoded(object map[string]any) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		return manifest.Encode(object) // a number that JSON does not have
	}
	return text
}

// hits returns how often each outcome of the policies' expressions was seen.
func (g *generation) hits() map[string]int64 {
	out := map[string]int64{}
	for _, p := range g.policies.Policies() {
		for i, covered := range p.Covered() {
			for n, point := range covered.Coverage.Points() {
				for o := range point.Outcomes {
					out[fmt.Sprintf("%s %d %d %d", p.Name(), i, n, o)] = covered.Coverage.Hits(n, o)
				}
			}
		}
	}
	return out
}

// cases returns the candidates without those whose outcomes others reach, too, and names
// them.
func (g *generation) cases() (out []*Candidate) {
	counts := map[string]int{}
	for _, c := range g.kept {
		for key := range c.reached {
			counts[key]++
		}
	}
	names := map[string]int{}
	for _, c := range g.kept {
		needed := false
		for key := range c.reached {
			needed = needed || counts[key] == 1
		}
		if !needed {
			for key := range c.reached {
				counts[key]--
			}
			continue
		}
		c.Name = strings.Join(append([]string{c.kind}, c.how...), ", ")
		if names[c.Name]++; names[c.Name] > 1 {
			c.Name = fmt.Sprintf("%s (%d)", c.Name, names[c.Name])
		}
		out = append(out, c)
	}
	return out
}
