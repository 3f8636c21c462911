package differential

import (
	"fmt"
	"slices"
	"strings"
)

// apply is an apply configuration for the shape. path is the CEL type name of
// the place, which upstream checks against the place.
func (e *exprs) apply(s *shape, path string, depth int) string {
	if depth > 6 {
		return e.scalar("")
	}
	if depth > 0 {
		if odd, ok := e.odd(); ok {
			return odd
		}
	}
	switch s.kind {
	case "struct":
		var out []string
		used := map[string]bool{}
		for range 1 + e.n(3) {
			f := s.fields[e.n(len(s.fields))]
			if used[f.name] || f.of.refused() && !e.chance(10) {
				continue
			}
			used[f.name] = true
			out = append(out, e.entry(f, path, depth))
		}
		for _, m := range s.must {
			if depth > 0 && !used[m] && !e.chance(10) {
				i := slices.IndexFunc(s.fields, func(f field) bool { return f.name == m })
				out = append(out, e.entry(s.fields[i], path, depth))
			}
		}
		if e.chance(3) {
			out = append(out, `nosuch: "1"`)
		}
		name := path
		if depth > 0 && e.chance(2) {
			name += ".wrong"
		}
		return name + "{" + strings.Join(out, ", ") + "}"
	case "map":
		keys := []string{"a", "b", "x.io/y", "cpu"}[e.n(3):]
		values := e.alike(e.list(1+e.n(2), func() string { return e.apply(s.elem, path, depth+1) }), path)
		for i := range values {
			values[i] = quoted(keys[i]) + ": " + values[i]
		}
		return "{" + strings.Join(values, ", ") + "}"
	case "list":
		return e.items(s, path, depth)
	case "string":
		if e.chance(70) {
			return fmt.Sprintf("%q", e.pick(s.pool...))
		}
		return e.scalar("string")
	case "any", "embedded":
		return e.pick(path+"{a: "+path+".a{b: 2}}", path+"{l: [2]}", `{"s": "u"}`, path+"{}",
			path+"{metadata: "+path+`.metadata{labels: {"b": "y"}}}`, path+"{a: "+path+".a{c: ["+path+`.a.c{name: "b"}]}}`)
	}
	return e.scalar(s.kind)
}

func (e *exprs) entry(f field, path string, depth int) string {
	sub := path + "." + f.name
	live := "object" + strings.TrimPrefix(sub, "Object")
	if depth < 3 && strings.HasPrefix(path, "Object.spec") && e.chance(10) {
		// Something of the object itself, changed or not.
		optional := strings.ReplaceAll(live, ".", ".?")
		switch {
		case e.chance(20) && depth < 2:
			return fmt.Sprintf("%s: %s", f.name, live)
		case f.of.kind == "list" && len(f.of.keys) > 0:
			key := f.of.keys[0]
			other := f.of.elem.fields[e.n(len(f.of.elem.fields))]
			mapped := fmt.Sprintf("%s.orValue([]).map(c, %s{%s: c.%s, %s})", optional, sub, key, key, e.entry(other, sub, depth+2))
			return f.name + ": " + e.pick(mapped, mapped+" + "+e.apply(f.of, sub, depth+2),
				optional+".orValue([]).filter(c, c."+key+" != 'a')", optional+".orValue([]) + [dyn("+e.apply(f.of.elem, sub, depth+2)+")]")
		case f.of.kind == "list":
			return f.name + ": " + e.pick(optional+".orValue([]).filter(c, c != 'x')", optional+".orValue([]) + [dyn('x')]", optional+".orValue([]).map(c, c)")
		case f.of.kind == "map":
			return f.name + ": " + e.pick(optional+".orValue({}).transformMap(k, v, v)", optional+".orValue({}).transformMap(k, v, k != 'a', v)")
		}
		return fmt.Sprintf("?%s: %s", f.name, optional)
	}
	switch {
	case e.chance(3):
		return f.name + ": optional.none()"
	case e.chance(3):
		return "?" + f.name + ": optional.none()"
	case e.chance(3):
		return fmt.Sprintf("?%s: %s ? optional.of(dyn(%s)) : optional.none()", f.name, e.condition(), e.apply(f.of, sub, depth+1))
	}
	return f.name + ": " + e.apply(f.of, sub, depth+1)
}

// items is an apply configuration for a list.
func (e *exprs) items(s *shape, path string, depth int) string {
	if e.chance(5) {
		return "[]"
	}
	out := e.alike(e.list(1+e.n(4), func() string { return e.apply(s.elem, path, depth+1) }), path)
	if len(out) > 1 && e.chance(10) {
		return "[" + out[0] + "] + [" + strings.Join(out[1:], ", ") + "]"
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// refused says whether an apply configuration must not name a shape, since it
// is atomic or has atomic items.
func (s *shape) refused() bool {
	return s.atomic || s.kind == "list" && (len(s.keys) == 0 && !s.set || s.elem.atomic)
}

// alike makes expressions that are not all of one type dyn, for only then can
// they be in one literal.
func (e *exprs) alike(all []string, path string) []string {
	other := func(v string) bool { return !strings.HasPrefix(v, path+"{") }
	if e.chance(20) || slices.ContainsFunc(all, other) {
		for i := range all {
			all[i] = "dyn(" + all[i] + ")"
		}
	}
	return all
}

// applyConfiguration is the expression of a whole mutation.
func (e *exprs) applyConfiguration() string {
	out := e.apply(e.kind.root, "Object", 0)
	if e.chance(5) {
		out = e.condition() + " ? " + out + " : " + e.pick("Object{}", e.apply(e.kind.root, "Object", 0))
	}
	return out
}
