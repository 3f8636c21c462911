package convert

import (
	"slices"
	"strings"

	jmespath "github.com/kyverno/go-jmespath"

	"github.com/mapd-project/mapd/internal/celgen"
)

// assembled is an object that an expression builds.
type assembled struct {
	// from is an object of the request whose members are copied, except those in others; nil if
	// nothing is copied.
	from *path
	// others are further members by name; nil stands for null.
	others map[string]*value
}

// members translates a multi-select hash: {a: x, b: y}.
func (s *scope) members(n jmespath.ASTNode) value {
	out := &assembled{others: map[string]*value{}}
	for _, pair := range n.Children {
		name, _ := pair.Value.(string)
		if inner := pair.Children[0]; inner.NodeType == jmespath.ASTField && inner.Value == "null" ||
			inner.NodeType == jmespath.ASTLiteral && inner.Value == nil {
			out.others[name] = nil // JMESPath reads a bare null as the name of a missing field
			continue
		}
		v := s.eval(pair.Children[0])
		out.others[name] = &v
	}
	return value{object: out}
}

// memberOf translates the selection of a member of an object of constants.
func (s *scope) memberOf(m map[string]any, n jmespath.ASTNode) value {
	name, _ := n.Value.(string)
	if n.NodeType != jmespath.ASTField {
		refuse("%s of a variable that is an object", strings.TrimPrefix(n.NodeType.String(), "AST"))
	}
	inner, ok := s.nested[name]
	if !ok {
		v, ok := m[name]
		if !ok {
			refuse("a variable of the context has no member %s", name)
		}
		return constantValue(v)
	}
	s.plainName(name)
	outside := *s
	outside.current = nil
	key := outside.plain(outside.query(inner))
	typ := ""
	for _, v := range m {
		is := literal(v).Type
		if typ != "" && typ != is || is != "string" && is != "int" && is != "bool" {
			refuse("a member by a variable of an object whose members are of several types")
		}
		typ = is
	}
	if key.Type != "string" || typ == "" {
		refuse("the member {{%s}} of a variable", inner)
	}
	all := literal(m).Within(celgen.BindMember)
	return value{expr: atom(all+"[?"+key.Text+"]", typ), optional: true, must: atom(all+"["+key.Text+"]", typ)}
}

// constantValue returns a value that is written out in a policy.
func constantValue(v any) value {
	switch v := v.(type) {
	case map[string]any:
		return value{members: v}
	case []any:
		out := value{expr: literal(v).As("list")}
		for i, e := range v {
			if typ := literal(e).Type; i == 0 {
				out.elem = typ
			} else if typ != out.elem {
				out.elem = ""
			}
		}
		return out
	}
	return value{expr: literal(v)}
}

// merged translates merge(a, b), where a is a map of the object and b is a literal whose members
// are all null and so remove members of a.
func (s *scope) merged(a, b value) value {
	if a.path == nil || s.shape.scalar(a.path.whole()) != "map" {
		refuse("merge() of what is no labels or annotations")
	}
	if b.object == nil || b.object.from != nil {
		refuse("merge() with what is not written out")
	}
	for _, v := range b.object.others {
		if v != nil {
			refuse("merge() with a value: only null, which takes a member away")
		}
	}
	return value{object: &assembled{from: a.path, others: b.object.others}}
}

// taken returns the names of the members that are null, sorted.
func (a *assembled) taken() []string {
	var out []string
	for name, v := range a.others {
		if v == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// texts returns v as an expression for a map of strings, such as labels that are copied, and the
// names that the expression leaves out. ok is false if v is no such map.
func (s *scope) texts(v value) (all expr, without []string, ok bool) {
	from := v.path
	if v.object != nil {
		from, without = v.object.from, v.object.taken()
	}
	if from == nil || s.shape.scalar(from.whole()) != "map" || s.shape.scalar(from.to("x").whole()) != "string" {
		return expr{}, nil, false
	}
	all = s.plain(value{path: from})
	if len(without) > 0 {
		k := atom("k", "string")
		keep := not(in(k, strs(without)))
		if len(without) == 1 {
			keep = not(equal(k, str(without[0])))
		}
		all = call(all, "transformMap", "map", k, atom("v", ""), keep, atom("v", ""))
	}
	all.Type = "map"
	return all, without, true
}

// json writes a value as the JSON text that Kyverno's to_string() returns for it.
func (s *scope) json(v value) expr {
	if v.object != nil {
		if v.object.from != nil {
			refuse("to_string() of merge()")
		}
		parts := []expr{}
		sep := "{"
		for _, name := range sortedKeys(v.object.others) {
			parts = append(parts, str(sep+quote(name)+":"))
			if member := v.object.others[name]; member == nil {
				parts = append(parts, str("null"))
			} else {
				parts = append(parts, s.json(*member))
			}
			sep = ","
		}
		if len(parts) == 0 {
			refuse("to_string() of an empty object")
		}
		e := sum(append(parts, str("}"))...)
		e.Type = "string"
		return e
	}
	e := s.plain(v)
	quoted := func(e expr) expr {
		s.note(Differs, escapesJSON, "Kyverno writes <, > and & of a text as \\u003c, \\u003e and \\u0026 in JSON")
		return fn("strings.quote", "string", e)
	}
	switch {
	case e.Type == "string":
		return quoted(e)
	case e.Type == "int" || e.Type == "bool":
		return fn("string", "string", e)
	case e.Type == "list" && s.elemOf(v) == "string":
		x := atom(elementOf(e), "string")
		texts := call(call(e, "map", "list", x, quoted(x)), "join", "string", str(","))
		out := sum(str("["), texts, str("]"))
		out.Type = "string"
		return out
	}
	refuse("to_string() of what is not known to be a text, a number, or a list of texts")
	return e
}

// elemOf returns the type of the elements of the list v.
func (s *scope) elemOf(v value) string {
	if v.path != nil {
		return s.shape.scalar(append(v.path.whole(), element))
	}
	return v.elem
}
