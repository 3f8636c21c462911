package translate

import (
	"slices"
	"strings"
)

// param returns spec.parameters.<names…> of the mutator, to which params refers.
func param(names ...string) expr {
	e := field(field(ident("params"), "spec"), "parameters")
	for _, n := range names {
		e = field(e, n)
	}
	e.Type = "dyn"
	return e
}

// value returns what an Assign or AssignMetadata assigns.
func (w *walk) value() expr {
	from := w.m.From
	switch {
	case from.Metadata == "name":
		return call(optional(w.metadata(), "name"), "orValue", constant(""))
	case from.Metadata == "namespace":
		return w.namespaceOf()
	case w.recorded != nil:
		return w.answer(w.missingKey())
	case w.params:
		return param("assign", "value")
	default:
		return w.repeats.say(w.valueName(), jsonConstant(from.Value))
	}
}

// namespaceOf returns the namespace of the request, and "" for a Namespace: its requests have its
// own name as their namespace.
func (w *walk) namespaceOf() expr {
	namespace := call(optional(ident("request"), "namespace"), "orValue", constant(""))
	if !mayBeNamespace(w.m) {
		return namespace
	}
	return cond(isNamespace(), constant(""), namespace)
}

// replaces reports whether the result does not depend on the old value.
func (w *walk) replaces() bool { return w.m.From != nil && w.recorded == nil }

// initial returns the value that a missing field or element gets.
func (w *walk) initial() (expr, outcome) {
	switch {
	case w.m.Image != nil:
		return w.image(nil), made
	case w.m.Set == nil:
		return w.value(), made
	case w.m.Set.Prune:
		return expr{}, nothing
	case len(w.m.Set.Values) == 0:
		return listOf(), made
	default:
		return w.members(), made
	}
}

// change returns the operations on the existing field e at p.
func (w *walk) change(e expr, p pointer) choice {
	d := len(w.path)
	switch {
	case w.m.Image != nil:
		c := operations(operation("replace", p, w.image(&e)))
		if i := w.m.Image; i.Domain != "" && i.Path != "" && i.Tag != "" {
			// If the mutator sets fewer parts, the expression reads the old image, and so fails by
			// itself if that is no string.
			return w.expect(d, e, "string", "a string", c)
		}
		return c
	case w.recorded != nil:
		key := &lookupKey{expr: e}
		if w.m.From.External.AlwaysUsername {
			key = w.missingKey()
		}
		return w.expect(d, e, "string", "a string", w.must(key, operations(operation("replace", p, w.answer(key)))))
	case w.m.Set == nil:
		return operations(operation("add", p, w.value()))
	case w.m.Set.Prune:
		return w.expect(d, e, "list", "a list", w.prune(e, p))
	default:
		return w.expect(d, e, "list", "a list", w.merge(e, p))
	}
}

// members returns the values of a set as a list.
func (w *walk) members() expr {
	if w.params {
		return param("values", "fromList")
	}
	return constant(w.m.Set.Values)
}

// merge appends the values that the list e at p lacks, each once.
func (w *walk) merge(e expr, p pointer) choice {
	values, v := w.m.Set.Values, ident("v")
	if len(values) == 0 {
		return choice{}
	}
	once := distinct(values)
	add := func(v expr) expr { return operation("add", p.key("-"), v) }
	if !w.params && len(once) == 1 {
		v := constant(once[0])
		return decide(tested(w.contains(e, v)), choice{}, operations(add(v)))
	}
	var loop expr
	switch lacks := not(w.contains(e, v)); {
	case !w.params:
		loop = macro(constant(once), "map", []string{"v"}, lacks, add(v))
	case len(once) == len(values):
		loop = macro(w.members(), "map", []string{"v"}, lacks, add(v))
	default:
		i := w.unused(indexes...)
		before := call(w.members(), "slice", constant(int64(0)), ident(i))
		loop = macro(w.members(), "transformList", []string{i, "v"}, all(lacks, not(w.contains(before, v))), add(v))
	}
	return choice{many: &loop}
}

// prune removes the values from the list e at p, the last first, so that the
// indexes of the others stay valid.
func (w *walk) prune(e expr, p pointer) choice {
	if len(w.m.Set.Values) == 0 {
		return choice{}
	}
	i := w.unused(indexes...)
	found := macro(e, "transformList", []string{i, "o"}, w.contains(w.members(), ident("o")), ident(i))
	loop := macro(call(found, "reverse"), "map", []string{i}, operation("remove", p.index(i)))
	return choice{many: &loop}
}

// contains returns the condition that a list has an element equal to v. Gatekeeper distinguishes
// 1 and 1.0, CEL does not. The program distinguishes them where the values are numbers, but not
// inside of objects and lists.
func (w *walk) contains(list, v expr) expr {
	if !hasNumbers(w.m.Set.Values) {
		return binary("in", v, list)
	}
	x := w.unused("w", "x", "y", "z")
	w.used = w.used[:len(w.used)-1]
	o := ident(x)
	return macro(list, "exists", []string{x}, all(equal(o, v), equal(fn("type", o), fn("type", v))))
}

func hasNumbers(values []any) bool {
	return slices.ContainsFunc(values, isNumber)
}

// distinct removes duplicates, by the equality that contains uses.
func distinct(values []any) []any {
	var out []any
	for _, v := range values {
		if !slices.ContainsFunc(out, func(o any) bool { return sameMember(o, v) }) {
			out = append(out, v)
		}
	}
	return out
}

func sameMember(a, b any) bool {
	switch a.(type) {
	case int64, float64:
		return a == b // an int64 never equals a float64
	}
	return sameNested(a, b)
}

// sameNested is CEL's equality, which compares numbers by value.
func sameNested(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			if w, ok := b[k]; !ok || !sameNested(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameNested)
	case int64:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if n, ok := b.(int64); ok {
			return a == float64(n)
		}
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

// The parts of an image (Gatekeeper spec §6.1). The part before the first slash
// is a domain if it has a dot or a colon or is localhost; the tag begins with
// the first colon or at sign after it.
const (
	domainPattern = `^(?:[^/]*[.:][^/]*|localhost)/`
	pathPattern   = `^[^:@]*`
	tagPattern    = `[:@](?s:.*)$`
	untilTag      = `^(?:(?:[^/]*[.:][^/]*|localhost)/)?[^:@]*`
)

// image returns an image reference with some parts set. The others are those of
// old, if it is not nil.
func (w *walk) image(old *expr) expr {
	i := w.m.Image
	var r reference
	set := func(value, parameter string) {
		if w.params {
			r.add(param(parameter))
			return
		}
		name := strings.ToLower(strings.TrimPrefix(parameter, "assign"))
		if strings.HasPrefix(value, "@") {
			name = "digest"
		}
		r.value(value, w.repeats.say(name, constant(value)))
	}
	find := func(e expr, pattern string) expr { return call(e, "find", constant(pattern)) }
	behindDomain := func() expr {
		return call(*old, "substring", call(find(*old, domainPattern), "size"))
	}

	if i.Domain != "" {
		set(i.Domain, "assignDomain")
		r.text("/")
	}
	switch {
	case old == nil:
	case i.Domain == "" && i.Path == "":
		r.add(find(*old, untilTag))
	case i.Domain == "":
		r.add(find(*old, domainPattern))
	case i.Path == "" && i.Tag == "":
		r.add(behindDomain())
	case i.Path == "":
		r.add(find(behindDomain(), pathPattern))
	}
	if i.Path != "" {
		set(i.Path, "assignPath")
	}
	if i.Tag != "" {
		set(i.Tag, "assignTag")
	} else if old != nil && i.Path != "" {
		r.add(find(behindDomain(), tagPattern))
	}
	return r.expr()
}

// reference builds a string. It joins adjacent constants.
type reference struct {
	parts []expr
	tail  string
}

func (r *reference) text(s string) { r.tail += s }

// value adds a constant, or the variable that has it.
func (r *reference) value(s string, e expr) {
	if e.String() == quote(s) {
		r.text(s)
	} else {
		r.add(e)
	}
}

func (r *reference) add(e expr) {
	if r.tail != "" {
		r.parts = append(r.parts, constant(r.tail))
		r.tail = ""
	}
	r.parts = append(r.parts, e)
}

func (r *reference) expr() expr {
	if r.tail != "" {
		r.parts = append(r.parts, constant(r.tail))
	}
	return sum(r.parts...)
}
