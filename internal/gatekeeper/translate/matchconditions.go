package translate

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// condition is one named match condition.
type condition struct {
	Name string
	Expr expr
	// names is a requirement on the name label of namespaces that is equivalent to the condition;
	// nil if there is none.
	names *metav1.LabelSelectorRequirement
}

// conditions returns what m.Match asks for beyond kinds, source and the namespace selector, in
// Gatekeeper's order; nil if it asks for nothing else. The expressions read only object, request
// and params, because match conditions can read nothing else.
//
// They apply to the new object, never to the old one (Gatekeeper spec §7.5), so none of them can
// be written as an objectSelector.
func (f form) conditions(m *legacy.Mutator) []condition {
	var out []condition
	add := func(name string, e expr) { out = append(out, condition{Name: name, Expr: e}) }
	switch m.Match.Scope {
	case "Cluster":
		add("scope", f.outside(m))
	case "Namespaced":
		add("scope", f.inside(m))
	}
	if entries := m.Match.Namespaces; len(entries) > 0 && !slices.ContainsFunc(entries, isEverything) {
		add("namespaces", f.namespace(m, func(name expr) expr { return f.oneOf(name, entries, "namespaces") }))
	}
	if entries := m.Match.ExcludedNamespaces; slices.ContainsFunc(entries, isEverything) {
		none := not(fn("has", field(ident("request"), "namespace")))
		if mayBeNamespace(m) {
			none = all(none, not(isNamespace()))
		}
		add("excluded-namespaces", none)
	} else if len(entries) > 0 {
		add("excluded-namespaces", f.namespace(m, func(name expr) expr {
			return not(f.oneOf(name, entries, "excludedNamespaces"))
		}))
	}
	if s := m.Match.LabelSelector; s != nil {
		labels := optional(f.metadata(), "labels")
		if e, ok := f.selects(s, labels, "labelSelector"); ok {
			add("labels", e)
		}
	}
	if p := m.Match.Name; p != "" && !isEverything(p) {
		add("name", f.named(p))
	}
	return out
}

// metadata returns the object's metadata, which a file may leave out.
func (f form) metadata() expr {
	if f.served {
		return field(ident("object"), "metadata")
	}
	return optional(ident("object"), "metadata")
}

// mayBeNamespace reports whether the mutator can apply to Namespaces, which
// Gatekeeper matches by their own name and labels (Gatekeeper spec §7.3).
func mayBeNamespace(m *legacy.Mutator) bool {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	return m.AppliesTo(gvk, "CREATE") || m.AppliesTo(gvk, "UPDATE")
}

func isNamespace() expr {
	object := ident("object")
	return all(equal(field(object, "kind"), constant("Namespace")), equal(field(object, "apiVersion"), constant("v1")))
}

// outside returns the condition that the object is in no namespace. A Namespace is in none,
// although its requests name one.
func (f form) outside(m *legacy.Mutator) expr {
	none := not(fn("has", field(ident("request"), "namespace")))
	if mayBeNamespace(m) {
		return anyOf(none, isNamespace())
	}
	return none
}

func (f form) inside(m *legacy.Mutator) expr {
	some := fn("has", field(ident("request"), "namespace"))
	if mayBeNamespace(m) {
		opposite := f.outside(m)
		some = all(some, not(isNamespace()))
		some = some.WithOpposite(opposite)
	}
	return some
}

// namespace returns the condition that test holds for the name of the object's namespace, or that
// the object has no namespace. For a Namespace test gets its own name.
func (f form) namespace(m *legacy.Mutator, test func(name expr) expr) expr {
	name := field(ident("request"), "namespace")
	e := anyOf(not(fn("has", name)), test(name))
	if mayBeNamespace(m) {
		return cond(isNamespace(), test(f.name("name")), e)
	}
	return e
}

// oneOf returns whether a name matches one of the entries.
func (f form) oneOf(name expr, entries []string, parameter string) expr {
	if f.params {
		return matchesParam(name, entries, field(field(field(ident("params"), "spec"), "match"), parameter))
	}
	return matches(name, entries)
}

// name returns the object's metadata.name or metadata.generateName, "" if it has
// none.
func (f form) name(which string) expr {
	return call(optional(f.metadata(), which), "orValue", constant(""))
}

// Patterns of names: one asterisk at either end is special (Gatekeeper spec §7.4).
type patternKind byte

const (
	exactly patternKind = iota
	prefix
	suffix
	infix
)

func kindOf(pattern string) patternKind {
	front, end := strings.HasPrefix(pattern, "*"), strings.HasSuffix(pattern, "*")
	switch {
	case front && end:
		return infix
	case end:
		return prefix
	case front:
		return suffix
	}
	return exactly
}

// patternKinds returns which kinds of patterns there are, in order.
func patternKinds(patterns []string) []patternKind {
	var kinds []patternKind
	for _, p := range patterns {
		kinds = append(kinds, kindOf(p))
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// isEverything reports whether a pattern matches every name.
func isEverything(pattern string) bool { return pattern == "*" || pattern == "**" }

func core(pattern string) string {
	if pattern == "*" {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(pattern, "*"), "*")
}

var tests = [...]string{prefix: "startsWith", suffix: "endsWith", infix: "contains"}

// matches returns the condition that a name matches one of the patterns.
func matches(name expr, patterns []string) expr {
	var exact []any
	var terms []expr
	for _, p := range patterns {
		switch k := kindOf(p); k {
		case exactly:
			exact = append(exact, p)
		default:
			terms = append(terms, call(name, tests[k], constant(core(p))))
		}
	}
	switch len(exact) {
	case 0:
	case 1:
		terms = append([]expr{equal(name, constant(exact[0]))}, terms...)
	default:
		terms = append([]expr{binary("in", name, constant(exact))}, terms...)
	}
	return anyOf(terms...)
}

// matchesParam is matches for patterns of the same kinds in a parameter.
func matchesParam(name expr, patterns []string, parameter expr) expr {
	kinds := patternKinds(patterns)
	if len(kinds) == 1 && kinds[0] == exactly {
		return binary("in", name, parameter)
	}
	p := ident("p")
	return macro(parameter, "exists", []string{"p"}, matchesOne(name, p, kinds))
}

// matchesOne returns whether a name matches the pattern p, which is of one of
// the kinds.
func matchesOne(name, p expr, kinds []patternKind) expr {
	k := kinds[len(kinds)-1]
	var e, is expr
	front, end := call(p, "startsWith", constant("*")), call(p, "endsWith", constant("*"))
	one, last := constant(int64(1)), celgen.Joined("-", celgen.BindSum, call(p, "size"), constant(int64(1)))
	switch k {
	case exactly:
		e = equal(name, p)
	case prefix:
		e, is = call(name, tests[k], call(p, "substring", constant(int64(0)), last)), end
	case suffix:
		e, is = call(name, tests[k], call(p, "substring", one)), front
	case infix:
		e, is = call(name, tests[k], call(p, "substring", one, last)), all(front, end)
	}
	if len(kinds) == 1 {
		return e
	}
	return cond(is, e, matchesOne(name, p, kinds[:len(kinds)-1]))
}

// named returns whether the object's name, or its generateName, matches.
func (f form) named(pattern string) expr {
	k := kindOf(pattern)
	names := []expr{f.name("name")}
	if k == prefix || k == infix {
		names = append(names, f.name("generateName"))
	}
	var terms []expr
	for _, n := range names {
		if f.params {
			terms = append(terms, matchesOne(n, field(field(field(ident("params"), "spec"), "match"), "name"), []patternKind{k}))
		} else {
			terms = append(terms, matches(n, []string{pattern}))
		}
	}
	return anyOf(terms...)
}

// selects returns whether a selector selects labels, which may be an optional;
// false if it selects everything.
func (f form) selects(s *metav1.LabelSelector, labels expr, parameter string) (expr, bool) {
	var terms []expr
	if f.params {
		terms = f.selectsParam(s, labels, parameter)
	} else {
		for _, r := range api.Requirements(s) {
			terms = append(terms, requirement(labels, r))
		}
	}
	if len(terms) == 0 {
		return expr{}, false
	}
	return all(terms...), true
}

func requirement(labels expr, r metav1.LabelSelectorRequirement) expr {
	exists := call(optional(labels, r.Key), "hasValue")
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		return hasOneOf(labels, r.Key, r.Values)
	case metav1.LabelSelectorOpNotIn:
		return not(hasOneOf(labels, r.Key, r.Values))
	case metav1.LabelSelectorOpDoesNotExist:
		return not(exists)
	default:
		return exists
	}
}

// hasOneOf returns the condition that a label has one of the values. A missing label counts as
// "", unless "" is one of the values.
func hasOneOf(labels expr, key string, values []string) expr {
	label := optional(labels, key)
	absent := constant("")
	if slices.Contains(values, "") {
		if len(values) == 1 {
			return equal(label, fn("optional.of", constant("")))
		}
		absent = dyn(constant(nil))
	}
	return among(call(label, "orValue", absent), values)
}

// selectsParam is selects for a selector in a parameter with the same parts and
// the same operators.
func (f form) selectsParam(s *metav1.LabelSelector, labels expr, parameter string) []expr {
	selector := field(field(field(ident("params"), "spec"), "match"), parameter)
	var terms []expr
	label := func(key expr) expr {
		return celgen.OptionalItem(labels, key)
	}
	if len(s.MatchLabels) > 0 {
		want, k := field(selector, "matchLabels"), ident("k")
		terms = append(terms, macro(want, "all", []string{"k"},
			equal(call(label(k), "orValue", constant(nil)), item(want, k))))
	}
	ops := operators(s)
	if len(ops) == 0 {
		return terms
	}
	r := ident("r")
	key := label(field(r, "key"))
	in := binary("in", call(key, "orValue", constant(nil)), field(r, "values"))
	of := map[metav1.LabelSelectorOperator]expr{
		metav1.LabelSelectorOpIn:           in,
		metav1.LabelSelectorOpNotIn:        not(in),
		metav1.LabelSelectorOpExists:       call(key, "hasValue"),
		metav1.LabelSelectorOpDoesNotExist: not(call(key, "hasValue")),
	}
	body := of[ops[len(ops)-1]]
	for _, op := range slices.Backward(ops[:len(ops)-1]) {
		body = cond(equal(field(r, "operator"), constant(string(op))), of[op], body)
	}
	return append(terms, macro(field(selector, "matchExpressions"), "all", []string{"r"}, body))
}

// namespaceSelector returns match.namespaceSelector as a condition within a
// mutation, where namespaceObject can be read; false if it selects everything.
// It holds for objects without a namespace; a Namespace is selected by its own
// labels.
func (f form) namespaceSelector(m *legacy.Mutator) (expr, bool) {
	s := m.Match.NamespaceSelector
	if s == nil {
		return expr{}, false
	}
	namespace := ident("namespaceObject")
	e, ok := f.selects(s, optional(field(namespace, "metadata"), "labels"), "namespaceSelector")
	if !ok {
		return expr{}, false
	}
	known := binary("==", namespace, constant(nil))
	if !mayBeNamespace(m) {
		return anyOf(known, e), true
	}
	own, _ := f.selects(s, optional(f.metadata(), "labels"), "namespaceSelector")
	return cond(isNamespace(), own, anyOf(known, e)), true
}

// kinds returns the condition that a request is for one of the kinds of the
// mutator: applyTo, with its operations, and match.kinds. It is for policies
// whose rules cannot express that exactly.
func (f form) kinds(m *legacy.Mutator) []condition {
	var out []condition
	if len(m.ApplyTo) > 0 {
		out = append(out, condition{Name: "is-applied-to", Expr: f.applyTo(m.ApplyTo)})
	}
	if len(m.Match.Kinds) > 0 {
		if e, ok := f.matchKinds(m.Match.Kinds); ok {
			out = append(out, condition{Name: isKind(m), Expr: e})
		}
	}
	return out
}

func (f form) applyTo(entries []legacy.ApplyTo) expr {
	kind := field(ident("request"), "kind")
	operation := field(ident("request"), "operation")
	if f.params {
		a := ident("a")
		operations := field(a, "operations")
		return macro(field(field(ident("params"), "spec"), "applyTo"), "exists", []string{"a"}, all(
			binary("in", field(kind, "group"), field(a, "groups")),
			binary("in", field(kind, "version"), field(a, "versions")),
			binary("in", field(kind, "kind"), field(a, "kinds")),
			anyOf(
				not(has(a, "operations")),
				equal(operations, listOf()),
				binary("in", constant("*"), operations),
				binary("in", operation, operations),
			),
		))
	}
	var terms []expr
	for _, a := range entries {
		conds := []expr{
			among(field(kind, "group"), a.Groups),
			among(field(kind, "version"), a.Versions),
			among(field(kind, "kind"), a.Kinds),
		}
		if create := a.Covers("CREATE"); create != a.Covers("UPDATE") {
			op := "UPDATE"
			if create {
				op = "CREATE"
			}
			conds = append(conds, equal(operation, constant(op)))
		}
		terms = append(terms, all(conds...))
	}
	return anyOf(terms...)
}

func (f form) matchKinds(entries []legacy.MatchKinds) (expr, bool) {
	kind := field(ident("request"), "kind")
	any0 := func(list []string) bool { return len(list) == 0 || slices.Contains(list, "*") }
	if f.params {
		k := ident("k")
		listed := func(name string, e expr) expr {
			l := field(k, name)
			return anyOf(not(has(k, name)), equal(l, listOf()), binary("in", constant("*"), l), binary("in", e, l))
		}
		return macro(field(field(field(ident("params"), "spec"), "match"), "kinds"), "exists", []string{"k"}, all(
			listed("apiGroups", field(kind, "group")),
			listed("kinds", field(kind, "kind")),
		)), true
	}
	var terms []expr
	for _, k := range entries {
		var conds []expr
		if !any0(k.APIGroups) {
			conds = append(conds, among(field(kind, "group"), k.APIGroups))
		}
		if !any0(k.Kinds) {
			conds = append(conds, among(field(kind, "kind"), k.Kinds))
		}
		if len(conds) == 0 {
			return expr{}, false
		}
		terms = append(terms, all(conds...))
	}
	return anyOf(terms...), true
}
