package verify

import (
	"fmt"
	"math/rand/v2"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// DefaultSeed is the seed to use without a reason for another one.
const DefaultSeed = 1

// Generate makes n objects for the mutators to work on, the same ones for the
// same seed. Each starts as a plain object of a kind that one of the mutators
// applies to, and is then perturbed where their locations and matches look:
// parents that are missing, empty, null or of another type; list elements that
// are selected, twice or not at all, without key, or no objects; values that
// are there already, and others; labels, names and namespaces that match and
// that do not; other kinds; updates. Every other object has the defaults of its
// kind.
//
// Generate tries again, a few times, if a server would not decode an object.
// Otherwise few objects of built-in kinds would be left.
func Generate(ms []*legacy.Mutator, types *openapi.Types, seed uint64, n int) []Object {
	return generate(ms, types, nil, seed, n)
}

// generate is Generate for mutators that ask providers. keys are what these know, by
// provider: objects and users have them.
func generate(ms []*legacy.Mutator, types *openapi.Types, keys map[string][]string, seed uint64, n int) []Object {
	if len(ms) == 0 {
		return nil
	}
	out := make([]Object, n)
	for i := range out {
		out[i] = generateOne(ms, types, keys, seed, i)
	}
	return out
}

// generateOne makes the object at i of those that generate makes.
func generateOne(ms []*legacy.Mutator, types *openapi.Types, keys map[string][]string, seed uint64, i int) (o Object) {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(i))), types: types, all: ms, keys: keys}
	const tries = 4
	for range tries {
		o = g.object(ms[i%len(ms)], i%2 == 1)
		o.Origin = fmt.Sprintf("generated object %d (seed %d)", i+1, seed)
		if requests(types, o)[0] != nil {
			break
		}
	}
	return o
}

// generator makes one object at a time.
type generator struct {
	*rand.Rand
	types *openapi.Types
	all   []*legacy.Mutator
	keys  map[string][]string
}

// chance returns true p times out of 100.
func (g *generator) chance(p int) bool { return g.IntN(100) < p }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// object returns an object, mostly for m.
func (g *generator) object(m *legacy.Mutator, defaulted bool) Object {
	kinds := kindsOf(m, g.types)
	if len(kinds) == 0 || g.chance(6) {
		kinds = common
	}
	gvk := pick(g, kinds...)
	o := Object{Operation: create, Object: g.perturbed(gvk, m)}
	namespaced := gvk != namespaceKind
	if res, ok := g.types.ResourceFor(gvk); ok {
		namespaced = res.Namespaced
	}
	u := &unstructured.Unstructured{Object: o.Object}
	if namespaced {
		u.SetNamespace(g.namespaceName(m))
		o.Namespace = map[string]any{"metadata": map[string]any{}}
		ns := &unstructured.Unstructured{Object: o.Namespace}
		ns.SetName(u.GetNamespace())
		g.label(ns, m.Match.NamespaceSelector)
		if g.chance(3) {
			setLabel(ns, api.IgnoreLabel, "yes")
		}
	}
	if gvk == namespaceKind {
		u.SetName(g.namespaceName(m))
		g.label(u, m.Match.NamespaceSelector)
	} else {
		g.setName(u, m)
	}
	if g.chance(35) {
		o.Operation = update
		o.Old = g.perturbed(gvk, m)
		old := &unstructured.Unstructured{Object: o.Old}
		old.SetNamespace(u.GetNamespace())
		if u.GetName() == "" {
			u.SetName(u.GetGenerateName() + "x7k2p") // what exists has a name
		}
		old.SetName(u.GetName())
		old.SetGenerateName(u.GetGenerateName())
	}
	if m.Asks() && m.From.External.DataSource == "Username" {
		o.User = g.key(m)
	}
	if defaulted {
		o.Object = Defaulted(o.Object)
		if o.Old != nil {
			o.Old = Defaulted(o.Old)
		}
	}
	return o
}

// key returns a key that the provider of a mutator knows, or another one.
func (g *generator) key(m *legacy.Mutator) string {
	if known := g.keys[m.From.External.Provider]; len(known) > 0 && g.chance(90) {
		return pick(g, known...)
	}
	return pick(g, "", "_", "other", "a b", "..", "é/x", "nginx_3a1", "x\ny")
}

// perturbed returns a plain object, perturbed along the locations of mutators.
func (g *generator) perturbed(gvk schema.GroupVersionKind, m *legacy.Mutator) map[string]any {
	obj := Skeleton(gvk)
	u := &unstructured.Unstructured{Object: obj}
	for _, other := range g.all {
		if other == m || (other.AppliesTo(gvk, create) || other.AppliesTo(gvk, update)) && g.chance(70) {
			p := perturber{g, other}
			p.field(obj, 0)
		}
	}
	if _, ok := labelsOf(obj); ok {
		g.label(u, m.Match.LabelSelector)
	}
	return obj
}

// labelsOf returns the labels, unless the field holds something else.
func labelsOf(obj map[string]any) (map[string]any, bool) {
	meta, _ := obj["metadata"].(map[string]any)
	if meta["labels"] == nil {
		_, has := meta["labels"]
		return nil, !has
	}
	labels, ok := meta["labels"].(map[string]any)
	return labels, ok
}

func setLabel(u *unstructured.Unstructured, key, value string) {
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	u.SetLabels(labels)
}

func dropLabel(u *unstructured.Unstructured, key string) {
	labels := u.GetLabels()
	delete(labels, key)
	u.SetLabels(labels)
}

// label gives an object labels that a selector selects, or labels that it
// misses by one requirement.
func (g *generator) label(u *unstructured.Unstructured, sel *metav1.LabelSelector) {
	if sel == nil || g.chance(15) {
		return
	}
	reqs := api.Requirements(sel)
	failing := -1
	if len(reqs) > 0 && g.chance(40) {
		failing = g.IntN(len(reqs))
	}
	for i, r := range reqs {
		holds := i != failing
		other := "other"
		if len(r.Values) > 0 {
			other = r.Values[0] + "x"
		}
		switch r.Operator {
		case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
			if len(r.Values) == 0 {
				continue
			}
			value := pick(g, r.Values...)
			if holds == (r.Operator == metav1.LabelSelectorOpIn) {
				setLabel(u, r.Key, value)
			} else if g.chance(50) {
				setLabel(u, r.Key, other)
			} else {
				dropLabel(u, r.Key)
			}
		default:
			if holds == (r.Operator == metav1.LabelSelectorOpExists) {
				setLabel(u, r.Key, pick(g, "", "yes"))
			} else {
				dropLabel(u, r.Key)
			}
		}
	}
}

// namespaceName returns a namespace that the mutator names, or another one.
func (g *generator) namespaceName(m *legacy.Mutator) string {
	names := []string{"default", "team-a", "kube-system"}
	for range 2 { // these are what it is about
		for _, p := range m.Match.Namespaces {
			names = append(names, g.matchingName(p))
		}
		for _, p := range m.Match.ExcludedNamespaces {
			names = append(names, g.matchingName(p))
		}
	}
	return pick(g, names...)
}

// matchingName returns a name that a pattern matches.
func (g *generator) matchingName(pattern string) string {
	name := pattern
	if rest, ok := strings.CutPrefix(name, "*"); ok {
		name = pick(g, "", "a-", "x") + rest
	}
	if rest, ok := strings.CutSuffix(name, "*"); ok {
		name = rest + pick(g, "", "-a", "x")
	}
	if name = strings.Trim(name, "-"); name == "" {
		return "any"
	}
	return name
}

// setName gives an object a name, a generateName or, as a server does when it
// creates an object with a generateName, both.
func (g *generator) setName(u *unstructured.Unstructured, m *legacy.Mutator) {
	name, prefix := "web", "web-"
	if p := m.Match.Name; p != "" && g.chance(60) {
		name = g.matchingName(p)
		prefix = strings.Trim(p, "*") + pick(g, "", "-")
	}
	switch g.IntN(10) {
	case 0, 1:
		u.SetGenerateName(prefix)
	case 2:
		u.SetGenerateName(prefix)
		u.SetName(pick(g, name, "other"))
	default:
		u.SetName(name)
	}
}
