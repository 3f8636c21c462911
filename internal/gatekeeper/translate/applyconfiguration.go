package translate

import (
	"math"
	"slices"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// unmergeable returns the reason why no apply configuration has the mutator's effect, or "".
func (w *plainWalk) unmergeable() string {
	switch {
	case w.m.Kind == legacy.ModifySet:
		return "an apply configuration cannot say which members of a list to add or remove"
	case w.m.Asks():
		return "a policy that looks its values up is a JSON patch"
	case len(w.known.kinds) == 0:
		return "an apply configuration needs the schema of a kind, and this is about any kind"
	case !w.known.schema:
		return "an apply configuration needs a schema that declares " + w.path.String()
	}
	for d, n := range w.path {
		last := d == len(w.path)-1
		// Elsewhere it is a key of a map.
		isField := n.List || d == 0 || w.path[d-1].List || !w.known.nodes[d].inMap
		switch {
		case w.known.nodes[d].atomic && !last:
			return w.path[:d+1].String() + " is atomic: an apply configuration may not go below it"
		case n.List && !w.known.nodes[d].merges:
			return w.path[:d].String() + " is not merged by " + n.Name + " alone"
		case isField && !isIdentifier(n.Name):
			return "an apply configuration cannot name the field " + quote(n.Name)
		}
	}
	if i := lastList(w.path); w.m.Image != nil && !w.allParts() && i >= 0 && !w.path[i].Glob && w.creates(i) {
		return "an apply configuration that may make an element cannot read its old image"
	}
	return w.unmergeableValue()
}

func (w *plainWalk) unmergeableValue() string {
	var value any = "" // a string, if it is not known
	if w.m.From != nil && w.m.From.Metadata == "" {
		value = w.m.From.Value
	}
	switch v := value.(type) {
	case []any:
		return "an apply configuration merges a list into what is there and does not replace it"
	case map[string]any:
		if last := w.path[len(w.path)-1]; last.List && v[last.Name] != last.Value {
			return "the value is not the element of that " + last.Name
		}
	}
	for _, p := range w.known.places {
		if _, why := configured(value, p, ""); why != "" {
			return why
		}
	}
	return ""
}

// configured writes a value in an apply configuration, or returns the reason why that is
// impossible. place is the schema of the value and typ the name of its type.
func configured(v any, place openapi.Place, typ string) (e expr, whyNot string) {
	const mistyped = "the value does not have the type that the schema wants"
	switch v := v.(type) {
	case map[string]any:
		return configuredObject(v, place, typ)
	case []any:
		at, ok := place.Element()
		switch {
		case !ok:
			return expr{}, mistyped
		case place.Atomic() || len(place.Keys()) == 0:
			return expr{}, "the value has a list that is atomic, or a set, which an apply configuration may not change"
		}
		elems := make([]expr, len(v))
		for i := range v {
			if elems[i], whyNot = configured(v[i], at, typ); whyNot != "" {
				return expr{}, whyNot
			}
		}
		return listOf(elems...), ""
	}
	want := "string"
	switch v := v.(type) {
	case nil:
		return expr{}, "an apply configuration takes null for missing"
	case bool:
		want = "boolean"
	case float64:
		want = "numeric"
		if v != math.Trunc(v) || math.Abs(v) > math.MaxInt32 {
			return expr{}, "a number that is no 32-bit integer can be cut in an apply configuration"
		}
	}
	if place.Scalar() != want {
		return expr{}, mistyped
	}
	return jsonConstant(v), ""
}

// configuredObject is configured for an object, which is a struct or a map of scalars.
func configuredObject(v map[string]any, place openapi.Place, typ string) (expr, string) {
	if place.Type().Map == nil {
		return expr{}, "the value does not have the type that the schema wants"
	}
	if place.Atomic() {
		return expr{}, "the value has an object that is atomic, which an apply configuration may not change"
	}
	var members []entry
	declared := 0
	for _, k := range fieldOrder(v) {
		at, ok := place.Field(k)
		if place.Declares(k) {
			declared++
		}
		switch {
		case !ok:
			return expr{}, "nothing is known of the field " + quote(k) + " of the value"
		case place.Declares(k) && !isIdentifier(k):
			return expr{}, "an apply configuration cannot name the field " + quote(k)
		case !place.Declares(k) && at.Scalar() == "":
			return expr{}, "the value has a map of objects or lists"
		}
		member, whyNot := configured(v[k], at, typ+"."+k)
		if whyNot != "" {
			return expr{}, whyNot
		}
		members = append(members, entry{Name: k, Value: member})
	}
	switch declared {
	case len(v):
		return message(typ, members...), ""
	case 0:
		return mapOf(members...), ""
	}
	return expr{}, "the value has fields and keys of a map in one object"
}

// mergesObject reports whether the value is an object, which an apply configuration
// merges into the one that is there.
func (w *plainWalk) mergesObject() bool {
	if w.m.From == nil {
		return false
	}
	_, ok := w.m.From.Value.(map[string]any)
	return ok
}

// mergesExactly reports whether the apply configuration has exactly the mutator's effect, for all
// objects that an API server admits. It differs in four cases. A list may hold a key twice: a
// merge joins such elements. The kind is a custom one: a merge takes its nulls for missing
// values. A list that lacks the element gets it: a merge adds it to a null list as well. The
// configuration leaves elements out: a merge joins the elements that it names with others of the
// same key, instead of refusing both.
func (w *plainWalk) mergesExactly() bool {
	if !w.known.builtin || w.terminal() || w.mergesObject() && w.mayFind(len(w.path)-1) {
		return false
	}
	for d, n := range w.path {
		if !n.List {
			continue
		}
		some := slices.ContainsFunc(w.m.Tests, func(t legacy.PathTest) bool { return t.Depth > d && !w.keeps(t.Depth) })
		if !w.known.nodes[d].unique || some || !n.Glob && w.creates(d) {
			return false
		}
	}
	return true
}

// keeps reports whether the path test at a depth keeps an existing value. An
// apply configuration then repeats that value, if it is a scalar: some servers cannot
// copy an object (Kubernetes spec, T1).
func (w *plainWalk) keeps(d int) bool {
	found, missing := w.allowed(d)
	return d == len(w.path)-1 && !found && missing && w.m.From != nil && !w.mergesObject()
}

// configuration is an apply configuration that applies if all conditions hold.
type configuration struct {
	conds []condition
	value expr
}

// apply returns the whole apply configuration.
func (w *plainWalk) apply() configuration {
	m, conds := w.mergeFrom(0, ident("object"), "Object", false)
	return configuration{conds, message("Object", m)}
}

// mergeFrom returns the entry for the location's node d in the object e of type typ. within means
// that e is an element in a loop: the policy then has no condition that keeps an existing value,
// so the entry repeats that value.
func (w *plainWalk) mergeFrom(d int, e expr, typ string, within bool) (entry, []condition) {
	s := w.stretch(d, e)
	conds := s.conds
	names := make([]string, s.last+1)
	for i, t := d, typ; i <= s.last; i++ {
		t += "." + w.path[i].Name
		names[i] = t
	}
	var value expr
	if s.last == len(w.path)-1 {
		value = w.assigned(s)
		if w.mergesObject() {
			value, _ = configured(w.m.From.Value, w.known.places[0], names[s.last])
		}
		if within && s.fresh == s.last && w.keeps(s.last) {
			value, conds = w.read(s, s.last, value), conds[:len(conds)-1]
		}
	} else {
		var more []condition
		value, more = w.mergeList(s, names[s.last])
		conds = append(conds, more...)
	}
	for i := s.last; i > d; i-- {
		m := entry{Name: w.path[i].Name, Value: value}
		if w.known.nodes[i].inMap {
			value = mapOf(m)
		} else {
			value = message(names[i-1], m)
		}
	}
	return entry{Name: w.path[d].Name, Value: value}, conds
}

// mergeList returns the list at the end of a stretch: all elements, the elements that have the
// key, or a new element if none has it.
func (w *plainWalk) mergeList(s stretch, typ string) (expr, []condition) {
	d := s.last + 1
	node := w.path[d]
	_, x := w.loop(d)
	created := !node.Glob && w.creates(d)
	if d == len(w.path)-1 {
		element, _ := configured(w.m.From.Value, w.known.places[0], typ)
		list, match := w.read(s, s.last, listOf()), w.selects(d, x)
		switch {
		case !w.mayFind(d):
			return listOf(element), []condition{w.lacks(s, x, match)}
		case !created:
			return listOf(element), []condition{{Name: "has-" + kebab(keyText(node)), Expr: macro(list, "exists", []string{x}, match)}}
		}
		return listOf(element), nil
	}
	next, conds := w.mergeFrom(d+1, ident(x), typ, !created)
	element := func(key expr) expr { return message(typ, entry{Name: node.Name, Value: key}, next) }
	if created {
		if len(conds) == 0 && w.mayFind(d) {
			return listOf(element(constant(node.Value))), nil
		}
		// Conditions on an element apply to an existing one.
		list, match := w.read(s, s.last, listOf()), w.selects(d, x)
		if !w.mayFind(d) {
			return listOf(element(constant(node.Value))), []condition{w.lacks(s, x, match)}
		}
		fine := macro(list, "all", []string{x}, anyOf(not(match), all(exprs(conds)...)))
		return listOf(element(constant(node.Value))), []condition{{Name: conds[0].Name, Expr: fine}}
	}
	list := w.fieldAt(s, s.last)
	some := []condition{}
	if w.canBeEmpty(s.last) {
		some = append(some, condition{Name: "has-" + kebab(w.path[s.last].Name), Expr: binary("!=", list, listOf())})
	}
	wanted := exprs(conds)
	if !node.Glob {
		wanted = append([]expr{w.selects(d, x)}, wanted...)
	}
	if len(wanted) > 0 {
		list = macro(list, "filter", []string{x}, all(wanted...))
	}
	return macro(list, "map", []string{x}, element(w.key(d, x))), some
}

// canBeEmpty reports whether the list at depth d can exist without an element.
// Merged with nothing it would become null, which other mutations refuse. Of
// built-in kinds only lists that always exist can be empty; a server drops all
// others, and refuses an object with an empty one of those that must have an element,
// unless a mutator adds it.
func (w *plainWalk) canBeEmpty(d int) bool {
	return !w.known.builtin || w.known.nodes[d].always && !(w.known.nodes[d].filled && !w.added(w.path[:d+1]))
}
