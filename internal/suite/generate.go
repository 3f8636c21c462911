package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/coverage"
	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/internal/suite/cases"
	"github.com/mapd-project/mapd/internal/verify"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Bounds of Generate, for each policy: the requests that are tried, the literals of its
// expressions that are used, and the kinds that it is tried on.
const maxTried, maxLiterals, maxKinds = 3000, 40, 8

// Generate returns the text of a suite for the policies of a file, which stands beside
// it. Its cases reach outcomes of the policies' expressions that no case before reaches:
// plain objects of the kinds that a policy is about, and objects that differ from them
// where the policy looks, with values that its expressions have. What comes out is what
// the cases expect. The same file gives the same text. The policies are returned with what
// they counted, if env observes.
func Generate(ctx context.Context, file string, env *cel.Env) ([]byte, *Loaded, error) {
	docs, errs := documents(file)
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	namespace := selectedNamespace(docs)
	spec := []cases.Field{{Name: "policies", Value: []any{filepath.Base(file)}}}
	all := docs
	if namespace != nil {
		for d, err := range mapd.Read("context", bytes.NewReader(manifest.Encode(namespace.Object))) {
			if err != nil {
				return nil, nil, err
			}
			all = append(slices.Clip(all), d)
		}
	}
	load := func(unbound bool) (*mapd.Policies, error) {
		return mapd.Load(mapd.Options{Documents: all, Env: env, Unbound: unbound})
	}
	policies, err := load(false)
	if err == nil && slices.ContainsFunc(policies.Notes(), func(n mapd.Note) bool { return n.Kind == mapd.Unbound }) {
		spec = append(spec, cases.Field{Name: "unbound", Value: true})
		policies, err = load(true)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(policies.Policies()) == 0 {
		return nil, nil, fmt.Errorf("%s: there is no MutatingAdmissionPolicy in it", file)
	}
	g := &generation{ctx: ctx, policies: policies, changed: map[string]bool{}}
	for _, d := range all {
		if u := d.Object(); u.GetKind() == "Namespace" && u.GetAPIVersion() == "v1" {
			g.namespaces = append(g.namespaces, u.GetName())
		}
	}
	g.namespaces = append(g.namespaces, mapd.DefaultNamespace)
	for _, p := range policies.Policies() {
		g.policy(p)
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
	found := g.cases()
	if len(found) == 0 {
		return nil, nil, fmt.Errorf("%s: no request was found that its policies match", file)
	}
	if namespace != nil && slices.ContainsFunc(found, func(c *candidate) bool {
		return (&unstructured.Unstructured{Object: c.object}).GetNamespace() == namespace.GetName()
	}) {
		spec = append(spec, cases.Field{Name: "context", Value: []any{namespace.Object}})
	}
	var list [][]cases.Field
	for _, c := range found {
		list = append(list, c.fields())
	}
	text := cases.Write(fmt.Sprintf("# mapd test --generate wrote these cases for %s: they expect what the policies do today.\n", filepath.Base(file)), spec, list)
	return text, &Loaded{Suite: file, Policies: policies, Documents: all, Counter: &g.counter}, nil
}

// Try calls f with the requests that Generate makes for policies, and what they give. An
// Env that observes must have compiled the policies.
func Try(ctx context.Context, policies *mapd.Policies, namespaces []string, f func(*mapd.Request, *mapd.Result)) {
	g := &generation{ctx: ctx, policies: policies, changed: map[string]bool{}, each: f}
	g.namespaces = append(slices.Clip(namespaces), mapd.DefaultNamespace)
	for _, p := range policies.Policies() {
		g.policy(p)
	}
}

// Offer calls f with an object as one that is created and as one that is updated, and what
// policies give. It skips what is no object that they can be asked about.
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

// selectedNamespace returns a Namespace with no more labels than the selectors of policies
// and bindings want, nil if they want none.
func selectedNamespace(docs []*mapd.Document) *unstructured.Unstructured {
	labels := map[string]string{}
	for _, d := range docs {
		u := d.Object()
		for _, field := range []string{"matchConstraints", "matchResources"} {
			if m, ok, _ := unstructured.NestedMap(u.Object, "spec", field, "namespaceSelector"); ok {
				var s metav1.LabelSelector
				if runtime.DefaultUnstructuredConverter.FromUnstructured(m, &s) == nil {
					maps.Copy(labels, selectedLabels(&s))
				}
			}
		}
	}
	if len(labels) == 0 {
		return nil
	}
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName("selected")
	if name, ok := labels["kubernetes.io/metadata.name"]; ok {
		ns.SetName(name)
	}
	if slices.ContainsFunc(docs, func(d *mapd.Document) bool {
		return d.Object().GetKind() == "Namespace" && d.Object().GetName() == ns.GetName()
	}) {
		return nil
	}
	ns.SetLabels(labels)
	return ns
}

// selectedLabels returns labels that a selector selects.
func selectedLabels(s *metav1.LabelSelector) map[string]string {
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

// generation is one call of Generate.
type generation struct {
	ctx        context.Context
	policies   *mapd.Policies
	namespaces []string
	changed    map[string]bool
	counter    coverage.Counter
	kept       []*candidate
	tried      int
	each       func(*mapd.Request, *mapd.Result) // called for every request, may be nil
}

// candidate is a request that may become a case.
type candidate struct {
	kind    string
	object  map[string]any
	old     map[string]any // nil: it is created
	how     []string       // how the object differs from a plain one
	name    string         // of the case
	reached map[string]bool
	result  *mapd.Result
}

// policy tries requests for one policy, and keeps those that reach something new.
func (g *generation) policy(p *policy.Policy) {
	g.tried = 0
	spec := &p.Object().Spec
	conditions, mutations := lint.Reads(spec)
	var places [][]string
	for _, r := range slices.Concat(conditions, mutations) {
		if len(r.Path) > 0 && r.Path[0] != "apiVersion" && r.Path[0] != "kind" && !slices.ContainsFunc(places, func(q []string) bool { return slices.Equal(q, r.Path) }) {
			places = append(places, r.Path)
		}
	}
	literals := lint.Literals(spec)
	literals = literals[:min(len(literals), maxLiterals)]
	kinds, _ := policy.Targets(spec.MatchConstraints, g.policies.Types())
	if len(kinds) == 0 {
		kinds = []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}, {Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "ConfigMap"}}
	}
	var last []*candidate
	for _, gvk := range kinds[:min(len(kinds), maxKinds)] {
		for _, ns := range g.namespaces {
			last = append(last, g.try(g.plain(gvk, ns, spec.MatchConstraints)))
		}
	}
	// Each round changes one place more.
	for range 3 {
		var next []*candidate
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
			if c.old == nil {
				for _, place := range append([][]string{nil}, places...) {
					before := *c
					if place != nil {
						before = *c.with(place, absent{})
					}
					if n := g.try(c.updates(before.object, place)); n != nil {
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

// absent is the value of a place that is not there.
type absent struct{}

func (g *generation) plain(gvk schema.GroupVersionKind, namespace string, m *admissionregistrationv1.MatchResources) *candidate {
	obj := verify.Skeleton(gvk)
	u := &unstructured.Unstructured{Object: obj}
	u.SetName("web")
	if res, ok := g.policies.Types().ResourceFor(gvk); ok && res.Namespaced {
		u.SetNamespace(namespace)
	}
	labels := selectedLabels(m.ObjectSelector)
	if gvk.Kind == "Namespace" && gvk.Group == "" {
		maps.Copy(labels, selectedLabels(m.NamespaceSelector))
	}
	if len(labels) > 0 {
		u.SetLabels(labels)
	}
	c := &candidate{kind: gvk.Kind, object: obj}
	if namespace != g.namespaces[0] && u.GetNamespace() != "" {
		c.how = []string{"in " + namespace}
	}
	return c
}

// values returns what a place may have.
func (g *generation) values(c *candidate, place []string, literals []any) (out []any) {
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

func (g *generation) place(c *candidate, place []string) (at openapi.Place, ok bool) {
	kind, err := g.policies.Types().Kind((&unstructured.Unstructured{Object: c.object}).GroupVersionKind())
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
func (c *candidate) with(place []string, v any) *candidate {
	n := &candidate{kind: c.kind, object: runtime.DeepCopyJSON(c.object), old: c.old}
	n.object, _ = put(n.object, place, v).(map[string]any)
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

func (c *candidate) updates(old map[string]any, place []string) *candidate {
	what := "updated"
	if place != nil {
		what = "updated, before without " + shownPlace(place)
	}
	return &candidate{kind: c.kind, object: c.object, old: old, how: append(slices.Clip(c.how), what)}
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
func (g *generation) try(c *candidate) *candidate {
	if g.tried++; g.tried > maxTried || c.object == nil || g.ctx.Err() != nil {
		return nil
	}
	opts := mapd.RequestOptions{}
	if c.old != nil {
		old, errs := g.policies.Objects("old", mapd.Read("old", bytes.NewReader(manifest.Encode(c.old))))
		if len(errs) > 0 {
			return nil
		}
		opts.Old = old
	}
	for d, err := range mapd.Read("object", bytes.NewReader(manifest.Encode(c.object))) {
		if err != nil {
			return nil
		}
		req, err := g.policies.Request(d, opts)
		if err != nil {
			return nil
		}
		before := g.hits()
		c.result = g.policies.Admit(g.ctx, req)
		g.counter.Count(c.result.Decision)
		if g.each != nil {
			g.each(req, c.result)
		}
		c.reached = map[string]bool{}
		more := false
		for key, n := range g.hits() {
			if n > before[key] {
				c.reached[key] = true
				more = more || before[key] == 0
			}
		}
		for _, s := range c.result.Decision.Steps {
			if m := fmt.Sprintf("%s %d", s.Policy, s.Mutation); s.Stage == engine.PolicyStage && s.Outcome == engine.Changed {
				c.reached[m] = true
				more = more || !g.changed[m]
				g.changed[m] = true
			}
		}
		if more {
			g.kept = append(g.kept, c)
			return c
		}
	}
	return nil
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

func (c *candidate) fields() []cases.Field {
	out := []cases.Field{{Name: "name", Value: c.name}, {Name: "object", Value: c.object}}
	if c.old != nil {
		out = append(out, cases.Field{Name: "old", Value: c.old})
	}
	return append(out, cases.Field{Name: "expect", Value: cases.From(c.result, nil)})
}

// cases returns the candidates without those whose outcomes others reach, too, and names
// them.
func (g *generation) cases() (out []*candidate) {
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
		c.name = strings.Join(append([]string{c.kind}, c.how...), ", ")
		if names[c.name]++; names[c.name] > 1 {
			c.name = fmt.Sprintf("%s (%d)", c.name, names[c.name])
		}
		out = append(out, c)
	}
	return out
}
