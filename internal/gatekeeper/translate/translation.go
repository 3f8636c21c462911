package translate

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// translation has the state of one call of Native.
type translation struct {
	Options
	types *openapi.Types
	form  form
	all   []*legacy.Mutator // in Gatekeeper's order
	fates map[string]fate
	// served caches the kinds of mutators: members of a group are compared with
	// all others.
	served map[*legacy.Mutator][]served
}

// fate is the outcome for a mutator.
type fate struct {
	verdict Verdict
	notes   []Note
	// idle: the mutator never changes an object of a request, so others do not have to wait for
	// it although it gets no policy.
	idle bool
}

func (f fate) movable() bool { return f.verdict == Exact || f.verdict == Differs }

func exact() fate { return fate{verdict: Exact} }

func (f *fate) differs(trap, text string) {
	f.verdict = Differs
	f.notes = append(f.notes, Note{trap, text})
}

func engineOnly(trap, text string) fate {
	return fate{verdict: EngineOnly, notes: []Note{{trap, text}}}
}
func refused(trap, text string) fate { return fate{verdict: Refused, notes: []Note{{trap, text}}} }

// idle is the fate of a mutator that never changes an object of a request.
func idle(trap, text string) fate {
	f := refused(trap, "never changes an object: "+text)
	f.idle = true
	return f
}

func newTranslation(ms []*legacy.Mutator, o Options) *translation {
	n := &translation{Options: o, types: o.Types, form: form{served: true},
		fates: map[string]fate{}, served: map[*legacy.Mutator][]served{}}
	if n.types == nil {
		n.types = openapi.New(openapi.Builtin())
	}
	n.all = slices.SortedFunc(slices.Values(ms), legacy.Compare)
	conflicts, reported := legacy.Conflicts(n.all), legacy.Reported(n.all)
	for _, m := range n.all {
		f := n.judge(m)
		if c, ok := conflicts[m.ID()]; ok {
			f = refused("T46", conflictText(m, c))
			f.idle = true
		} else if _, ok := reported[m.ID()]; ok && f.movable() {
			f.notes = append(f.notes, Note{"T46", "Gatekeeper's status calls it conflicting, and runs it"})
		}
		n.fates[m.ID()] = f
	}
	n.keepRecordedAlone()
	n.keepOrder()
	return n
}

func conflictText(m *legacy.Mutator, c legacy.Conflict) string {
	others := slices.DeleteFunc(slices.Clone(c.Members), func(s string) bool { return s == m.String() })
	for i, s := range others {
		kind, _, _ := strings.Cut(s, ".")
		_, name, _ := strings.Cut(s, " /")
		others[i] = kind + "/" + name
	}
	return "does not run: it is in conflict with " + enumerate(others, "and") +
		" about the shape of objects; change the location of one of them or delete it"
}

// movable returns the mutators that get policies.
func (n *translation) movable() []*legacy.Mutator {
	var out []*legacy.Mutator
	for _, m := range n.all {
		if n.fates[m.ID()].movable() {
			out = append(out, m)
		}
	}
	return out
}

// judge returns the fate of a mutator, regardless of the others.
func (n *translation) judge(m *legacy.Mutator) fate {
	if !m.Match.OfRequests() {
		f := engineOnly("", "is for what expansion templates generate, which is never requested; leave it to Gatekeeper")
		f.idle = true
		return f
	}
	if text, trap := n.never(m); text != "" {
		return idle(trap, text)
	}
	switch {
	case m.Asks() && !(n.Params && n.Recorded != nil):
		return engineOnly("", "asks the provider "+m.From.External.Provider+" for its value, and a policy cannot call anybody")
	case m.WritesKind():
		return engineOnly("T27", "changes what kind an object is, which servers do not let policies do")
	}
	if m.Asks() {
		if _, _, text := n.recordedOf(m); text != "" {
			return engineOnly("", text)
		}
	}
	if name, bad := unpointable(m.Location); bad {
		return engineOnly("", "the field "+quote(name)+" cannot be written in a policy's JSON patch")
	}
	if i, large := tooLarge(m); large {
		return engineOnly("T34", strconv.FormatInt(i, 10)+" is too large a number for a policy's JSON patch, which writes it as a string")
	}
	if _, unknown := Rules(m, n.types); len(unknown) > 0 {
		return refused("", "no resource is known for "+kindText(unknown[0])+"; give its CustomResourceDefinition")
	}
	k := n.known(m)
	if k.undeclared != "" {
		return refused("T49", "no object has the field "+undeclaredText(k.undeclared)+
			": servers drop it from what Gatekeeper sends and refuse it in a policy; correct the location")
	}
	w := n.walk(m, k, nil)
	if field := w.undeclaredValue(); field != "" {
		return refused("T49", "no object has the field "+field+
			" of its value: servers drop it from what Gatekeeper sends and refuse it in a policy; correct the value")
	}
	if d, ok := w.neverMissing(); ok {
		return idle("T31", "every object has "+m.Location[:d+1].String()+", which a path test wants missing; delete that test")
	}
	return n.compare(m, w)
}

// compare returns the fate of a mutator whose policy may differ, with a note for each difference.
func (n *translation) compare(m *legacy.Mutator, w *plainWalk) fate {
	f := exact()
	if m.Asks() {
		f.notes = n.recordedNotes(m)
	}
	if rules, _ := Rules(m, n.types); isWild(rules) {
		f.notes = append(f.notes, Note{"", "limit me: it names no kinds, so the policy runs for every object; name them in match.kinds, or in the rules of the policy"})
	}
	if !legacy.Idempotent(m) {
		f.differs("T33", "an image that reads as another one once its path is set, such as a@b/c, can be refused by Gatekeeper; the policy sets the path twice")
	}
	if m.From != nil && contains(m.From.Value, isRough) {
		f.differs("T34", "an integer that is nearly the value, and the same as a float, stays as it is in Gatekeeper; the policy replaces it")
	}
	if m.Set == nil {
		return f
	}
	if m.Set.Prune && w.leavesParents() {
		f.differs("T21", "Gatekeeper creates what the location leads through even if there is nothing to remove; the policy does not")
	}
	for _, v := range m.Set.Values {
		switch v.(type) {
		case map[string]any, []any:
			if !w.trusted && contains(v, isNumber) {
				f.differs("T14", "within a value that is an object or a list, 1 and 1.0 are the same")
			}
		}
	}
	return f
}

// tooLarge returns an integer of the mutator that a JSON patch of a policy cannot write exactly.
// In the value of an Assign, such a number is a float already and is written as one.
func tooLarge(m *legacy.Mutator) (int64, bool) {
	var all []any
	for _, n := range m.Location {
		all = append(all, n.Value)
	}
	if m.Set != nil {
		all = append(all, m.Set.Values...)
	}
	return largeIn(all)
}

func largeIn(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, v > celgen.MaxSafeInt || v < -celgen.MaxSafeInt
	case []any:
		for _, e := range v {
			if i, ok := largeIn(e); ok {
				return i, true
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if i, ok := largeIn(v[k]); ok {
				return i, true
			}
		}
	}
	return 0, false
}

// contains reports whether the predicate is holds for v or for a value within it.
func contains(v any, is func(any) bool) bool {
	switch v := v.(type) {
	case map[string]any:
		return slices.ContainsFunc(slices.Sorted(maps.Keys(v)), func(k string) bool { return contains(v[k], is) })
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return contains(e, is) })
	}
	return is(v)
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
}

// isRough reports whether v is a float that stands for several integers.
func isRough(v any) bool {
	f, ok := v.(float64)
	return ok && math.Abs(f) > celgen.MaxSafeInt
}

// never returns why a mutator never changes an object of a request, and the
// trap.
func (n *translation) never(m *legacy.Mutator) (text, trap string) {
	for _, t := range m.Tests {
		node := m.Location[t.Depth]
		at := m.Location[:t.Depth+1].String()
		switch {
		case t.Condition != legacy.MustExist && t.Condition != legacy.MustNotExist:
			return "the path test on " + at + " has no condition; give it MustExist or MustNotExist", "T31"
		case t.Condition == legacy.MustNotExist && (node.Glob || !creates(m, t.Depth+1)):
			return "what the path test on " + at + " wants missing is what it works on; delete that test", "T31"
		}
	}
	if len(Targets(m)) == 0 {
		for _, a := range m.ApplyTo {
			if slices.Contains(slices.Concat(a.Groups, a.Versions, a.Kinds), "*") {
				return "applyTo knows no wildcards; name the kinds", "T38"
			}
		}
		if m.CreateOnly && !slices.ContainsFunc(m.ApplyTo, func(a legacy.ApplyTo) bool { return a.Covers("CREATE") }) {
			return "it is for updates, and policies are wanted for creations only", ""
		}
		return "match.kinds has nothing in common with applyTo", ""
	}
	return n.neverInScope(m)
}

func (n *translation) neverInScope(m *legacy.Mutator) (text, trap string) {
	kinds := n.kinds(m)
	if len(kinds) == 0 {
		return "", ""
	}
	some := func(namespaced bool) bool {
		return slices.ContainsFunc(kinds, func(k served) bool { return k.namespaced == namespaced })
	}
	switch {
	case m.Match.Scope == "Cluster" && !some(false):
		return "its scope is Cluster, and the objects are in namespaces", ""
	case m.Match.Scope == "Namespaced" && !some(true):
		return "its scope is Namespaced, and the objects are not in namespaces", ""
	case !some(false) && slices.ContainsFunc(m.Match.ExcludedNamespaces, isEverything):
		return "excludedNamespaces excludes all", ""
	}
	return "", ""
}

// keepOrder gives no policy to mutators that would run too early: mutators without a policy run
// after all policies.
func (n *translation) keepOrder() {
	for changed := true; changed; {
		changed = false
		for _, behind := range n.all {
			b := n.fates[behind.ID()]
			if b.movable() || b.idle {
				continue
			}
			for _, m := range n.movable() {
				if legacy.Affects(behind, m) || legacy.Compare(behind, m) < 0 && !legacy.Commute(behind, m) {
					n.fates[m.ID()] = fate{verdict: b.verdict, notes: []Note{{"",
						"has to run after " + behind.ID() + ", of which no policy can be made"}}}
					changed = true
				}
			}
		}
	}
}

// served is a kind and its resource.
type served struct {
	schema.GroupVersionKind
	namespaced bool
}

// kinds returns the kinds that match the rules of a mutator; none if they are
// not all known.
func (n *translation) kinds(m *legacy.Mutator) []served {
	kinds, ok := n.served[m]
	if !ok {
		kinds = n.findKinds(m)
		n.served[m] = kinds
	}
	return kinds
}

func (n *translation) findKinds(m *legacy.Mutator) []served {
	rules, unknown := Rules(m, n.types)
	if isWild(rules) || len(unknown) > 0 {
		return nil
	}
	var out []served
	for _, r := range rules {
		for _, name := range r.Resources {
			resource, sub, _ := strings.Cut(name, "/")
			gvr := schema.GroupVersionResource{Group: r.APIGroups[0], Version: r.APIVersions[0], Resource: resource}
			kind, ok := n.types.KindFor(gvr, sub)
			main, _ := n.types.KindFor(gvr, "")
			of, known := n.types.ResourceFor(main)
			if !ok || !known {
				return nil
			}
			if s := (served{kind, of.Namespaced}); !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// known returns what is known about the location of a mutator.
func (n *translation) known(m *legacy.Mutator) known {
	var gvks []schema.GroupVersionKind
	for _, k := range n.kinds(m) {
		if !slices.Contains(gvks, k.GroupVersionKind) {
			gvks = append(gvks, k.GroupVersionKind)
		}
	}
	k := lookup(m.Location, gvks, n.types)
	for i, node := range m.Location {
		if node.List && n.replaced(m, i) {
			k.nodes[i].unique, k.nodes[i-1].filled = false, false
		}
	}
	return k
}

// replaced reports whether another mutator replaces the list that the node at a depth
// selects from, or what it is in. An API server then never validates the list that m found.
func (n *translation) replaced(m *legacy.Mutator, depth int) bool {
	return slices.ContainsFunc(n.all, func(o *legacy.Mutator) bool {
		return len(o.Location) <= depth && o.Location.Meets(m.Location) && !legacy.Commute(o, m)
	})
}

func (n *translation) walk(m *legacy.Mutator, k known, v *variables) *plainWalk {
	w := &plainWalk{walk: &walk{form: n.formOf(m), m: m, path: m.Location, used: []string{"o"}}, known: k, variables: v}
	w.namespaced, w.added = n.namespaced(m), n.added
	w.trusted = k.builtin || m.Kind == legacy.AssignMetadata
	if m.Kind == legacy.AssignMetadata && !k.builtin {
		w.known.nodes = metadataNodes
	}
	return w
}

// added reports whether a mutator adds an element to a list.
func (n *translation) added(list legacy.Path) bool {
	return slices.ContainsFunc(n.all, func(m *legacy.Mutator) bool {
		d := len(list)
		return d < len(m.Location) && m.Location[d].List && !m.Location[d].Glob && creates(m, d) && slices.Equal(m.Location[:d], list)
	})
}

// formOf returns the form of the program for a mutator.
func (n *translation) formOf(m *legacy.Mutator) form {
	f := n.form
	if m.Asks() {
		f.recorded, _, _ = n.recordedOf(m)
	}
	return f
}

func kindText(gvk schema.GroupVersionKind) string {
	switch {
	case gvk.Version != "*":
		return gvk.Kind + " of " + gvk.GroupVersion().String()
	case gvk.Group == "":
		return gvk.Kind + " of the core group"
	}
	return gvk.Kind + " of the group " + gvk.Group
}

func undeclaredText(s string) string {
	kind, path, _ := strings.Cut(s, ": ")
	return path + " of a " + kind
}
