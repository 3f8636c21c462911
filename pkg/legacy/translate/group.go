package translate

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// What follows is about several mutators in one policy. Its rules and its binding
// are about all of them together, so each has to ask for itself what it alone asks
// for. It does so within its mutation, where what those before it did is seen.

// unshared are conditions for what rules and the binding say of all members of a
// group, and not of each.
func (d *draft) unshared(m *legacy.Mutator, ms []*legacy.Mutator) []condition {
	conds := append(d.kindGuards(m, ms), d.operationGuards(m, ms)...)
	if slices.ContainsFunc(ms, func(o *legacy.Mutator) bool { return d.scope(o) != d.scope(m) }) {
		switch d.scope(m) {
		case "Cluster":
			conds = append(conds, condition{"scope", d.form.outside(m)})
		case "Namespaced":
			conds = append(conds, condition{"scope", d.form.inside(m)})
		}
	}
	if e, ok := d.form.namespaceSelector(m); ok && !sameSelectors(ms) {
		conds = append(conds, condition{inMutation, e})
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

// kindGuards tell the kinds of a member from those of others, by as little as it
// takes.
func (d *draft) kindGuards(m *legacy.Mutator, ms []*legacy.Mutator) []condition {
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
	return []condition{{"kind", anyOf(terms...)}}
}

func (d *draft) unknownKindGuards(m *legacy.Mutator, ms []*legacy.Mutator) []condition {
	if slices.ContainsFunc(ms, func(o *legacy.Mutator) bool { return !slices.Equal(Targets(o), Targets(m)) }) {
		return d.form.kinds(m)
	}
	return nil
}

// operationGuards tell the operations of a member from those of others. A member
// that is about some kinds for one operation and about others for both says all
// that it is about.
func (d *draft) operationGuards(m *legacy.Mutator, ms []*legacy.Mutator) []condition {
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
			return []condition{{"operation", equal(field(ident("request"), "operation"), constant("CREATE"))}}
		case !create:
			return []condition{{"operation", equal(field(ident("request"), "operation"), constant("UPDATE"))}}
		}
	}
	return nil
}

// shared are the conditions that all members of a group have and none can change.
func (d *draft) shared(ms []*legacy.Mutator, guards [][]condition) []condition {
	var out []condition
	for _, c := range guards[0] {
		if len(ms) > 1 && (c.Name == "labels-match" || c.Name == inMutation) {
			continue
		}
		if !slices.ContainsFunc(guards, func(g []condition) bool { return !holds(g, c) }) {
			out = append(out, c)
		}
	}
	return out
}

func holds(conds []condition, c condition) bool {
	return slices.ContainsFunc(conds, func(o condition) bool { return o.Expr.String() == c.Expr.String() })
}
