package translate

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// This file puts several mutators into one policy. The rules and the binding of
// the policy cover all of them, so each mutation has conditions for what its
// mutator alone asks for. They are part of the mutation, where the changes of
// the earlier ones are visible.

// unshared returns the conditions of member m that the rules and the binding cannot express,
// because they cover the whole group.
func (d *policyDraft) unshared(m *legacy.Mutator, ms []*legacy.Mutator) []condition {
	conds := append(d.kindGuards(m, ms), d.operationGuards(m, ms)...)
	if slices.ContainsFunc(ms, func(o *legacy.Mutator) bool { return d.scope(o) != d.scope(m) }) {
		switch d.scope(m) {
		case "Cluster":
			conds = append(conds, condition{Name: "is-cluster-scoped", Expr: d.form.outside(m)})
		case "Namespaced":
			conds = append(conds, condition{Name: "is-namespaced", Expr: d.form.inside(m)})
		}
	}
	if e, ok := d.form.namespaceSelector(m); ok && (!sameSelectors(ms) || relabelled(m, ms)) {
		conds = append(conds, condition{Name: inMutation, Expr: e})
	}
	return conds
}

// inMutation names a condition that reads namespaceObject, which match conditions
// cannot (Kubernetes spec §4.2).
const inMutation = "namespace-labels-match"

func sameSelectors(ms []*legacy.Mutator) bool {
	return !slices.ContainsFunc(ms, func(m *legacy.Mutator) bool {
		return !reflect.DeepEqual(m.Match.NamespaceSelector, ms[0].Match.NamespaceSelector)
	})
}

// relabelled reports whether a member writes a label of Namespaces by which m selects them. The
// binding's selector only sees the labels before the first mutation.
func relabelled(m *legacy.Mutator, ms []*legacy.Mutator) bool {
	selects := func(key string) bool {
		return slices.ContainsFunc(api.Requirements(m.Match.NamespaceSelector), func(r metav1.LabelSelectorRequirement) bool { return r.Key == key })
	}
	return mayBeNamespace(m) && slices.ContainsFunc(ms, func(o *legacy.Mutator) bool {
		return o != m && mayBeNamespace(o) && writesLabels(o) && (len(o.Location) < 3 || selects(o.Location[2].Name))
	})
}

// kindGuards returns the shortest conditions that tell the kinds of a member
// from those of others.
func (d *policyDraft) kindGuards(m *legacy.Mutator, ms []*legacy.Mutator) []condition {
	var own, others []schema.GroupVersionKind
	for _, o := range ms {
		kinds := d.kinds(o)
		if len(kinds) == 0 {
			return d.unknownKindGuards(m, ms)
		}
		for _, k := range kinds {
			if o == m {
				own = append(own, k.GroupVersionKind)
			} else {
				others = append(others, k.GroupVersionKind)
			}
		}
	}
	others = slices.DeleteFunc(others, func(k schema.GroupVersionKind) bool { return slices.Contains(own, k) })
	if len(others) == 0 {
		return nil
	}
	kind := field(ident("request"), "kind")
	var names []string
	var terms []expr
	for _, k := range own {
		namesake := slices.ContainsFunc(others, func(o schema.GroupVersionKind) bool { return o.Kind == k.Kind })
		switch {
		case namesake:
			terms = append(terms, all(equal(field(kind, "group"), constant(k.Group)),
				equal(field(kind, "version"), constant(k.Version)), equal(field(kind, "kind"), constant(k.Kind))))
		case !slices.Contains(names, k.Kind):
			names = append(names, k.Kind)
		}
	}
	if len(names) > 0 {
		terms = append([]expr{among(field(kind, "kind"), names)}, terms...)
	}
	return []condition{{Name: isKind(m), Expr: anyOf(terms...)}}
}

// isKind names the condition that an object is of a kind of the mutator.
func isKind(m *legacy.Mutator) string {
	kinds := kindNames(m)
	name := kebab(strings.Join(kinds, "-or-"))
	if name == "" || len(kinds) > 2 || slices.Contains(kinds, "*") {
		return "is-of-kind"
	}
	return "is-" + name
}

func (d *policyDraft) unknownKindGuards(m *legacy.Mutator, ms []*legacy.Mutator) []condition {
	if slices.ContainsFunc(ms, func(o *legacy.Mutator) bool { return !slices.Equal(Targets(o), Targets(m)) }) {
		return d.form.kinds(m)
	}
	return nil
}

// operationGuards returns conditions that tell the operations of a member from
// those of others. A member with one operation for some kinds and both for
// others gets conditions for all its kinds.
func (d *policyDraft) operationGuards(m *legacy.Mutator, ms []*legacy.Mutator) []condition {
	create, update := runsOn(m)
	if slices.ContainsFunc(Targets(m), func(t Target) bool { return t.Create != create || t.Update != update }) {
		return d.form.kinds(m)
	}
	for _, o := range ms {
		if c, u := runsOn(o); c == create && u == update {
			continue
		}
		switch {
		case !update:
			return []condition{{Name: "is-create", Expr: equal(field(ident("request"), "operation"), constant("CREATE"))}}
		case !create:
			return []condition{{Name: "is-update", Expr: equal(field(ident("request"), "operation"), constant("UPDATE"))}}
		}
	}
	return nil
}

// shared returns the conditions that all members of a group have and that none
// can change.
func (d *policyDraft) shared(ms []*legacy.Mutator, guards [][]condition) []condition {
	var out []condition
	for _, c := range guards[0] {
		if len(ms) > 1 && (c.Name == "labels-match" && slices.ContainsFunc(ms, writesLabels) || c.Name == inMutation) {
			continue
		}
		if !slices.ContainsFunc(guards, func(g []condition) bool { return !holds(g, c) }) {
			out = append(out, c)
		}
	}
	return out
}

func writesLabels(m *legacy.Mutator) bool {
	return m.Location.Meets(legacy.Path{{Name: "metadata"}, {Name: "labels"}})
}

// sayOnce replaces conditions about kind, operation and scope that several members have by
// variables. That is safe because no mutation changes them.
func sayOnce(guards [][]condition, vars *variables) {
	count := map[string]int{}
	for _, c := range slices.Concat(guards...) {
		count[c.Expr.String()]++
	}
	said := map[string]expr{}
	for _, conds := range guards {
		for i, c := range conds {
			text := c.Expr.String()
			if count[text] < 2 || !strings.HasPrefix(c.Name, "is-") {
				continue
			}
			if _, ok := said[text]; !ok {
				said[text] = vars.add(camel(c.Name), c.Expr)
			}
			conds[i].Expr = said[text]
		}
	}
}

// camel turns the name of a condition into that of a variable: is-pod, "isPod".
func camel(name string) string {
	var b strings.Builder
	for i, word := range strings.Split(name, "-") {
		if i > 0 && word != "" {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		b.WriteString(word)
	}
	return b.String()
}

func holds(conds []condition, c condition) bool {
	return slices.ContainsFunc(conds, func(o condition) bool { return o.Expr.String() == c.Expr.String() })
}

// mindEmpties notes which members of a group see less than in Gatekeeper: between two mutations
// an API server decodes an object of a built-in kind, which drops empty values (Kubernetes spec
// §8.1).
func (n *translation) mindEmpties(ms []*legacy.Mutator) {
	for _, writes := range ms {
		for _, m := range ms {
			if m == writes || !looksAt(m, writes) || n.keeps(writes) {
				continue
			}
			f := n.fates[m.ID()]
			f.differs("", "does not see what "+writes.ID()+" leaves empty: a server drops that before the next mutation")
			n.fates[m.ID()] = f
		}
	}
}

// looksAt reports whether it matters to m that a value which other wrote empty is missing.
func looksAt(m, other *legacy.Mutator) bool {
	last := len(other.Location) - 1
	if len(m.Location) <= last || !m.Location.Meets(other.Location) {
		return false
	}
	return slices.ContainsFunc(m.Tests, func(t legacy.PathTest) bool { return t.Depth >= last }) ||
		m.Set != nil && len(distinct(m.Set.Values)) < len(m.Set.Values)
}

// keeps reports whether decoding keeps all values that a mutator writes.
func (n *translation) keeps(m *legacy.Mutator) bool {
	var v any = "x"
	path := m.Location
	switch {
	case m.Set != nil:
		v = []any{}
		if !m.Set.Prune && len(m.Set.Values) > 0 {
			return true
		}
	case m.From != nil && m.From.Metadata == "":
		v = m.From.Value
	case m.From != nil:
		v = "" // the name is generated by the server
	}
	for _, gvk := range n.known(m).kinds {
		kind, _ := n.types.Kind(gvk)
		if !kind.Builtin() {
			continue
		}
		if decoded, ok := spelled(kind, gvk, path, v); !ok || !keepsEmpty(v, decoded) {
			return false
		}
	}
	return true
}
