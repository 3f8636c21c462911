package differential

import (
	"fmt"
	"slices"
	"strings"
)

// exprs writes CEL expressions about one kind. They compile, or nearly always
// do; what they do at run time is another matter.
type exprs struct {
	*gen
	kind      kind
	params    bool
	variables []string
}

func (e *exprs) condition() string {
	switch e.n(9) {
	case 0:
		return "true"
	case 1:
		return "has(object.metadata.labels)"
	case 2:
		return "object.metadata.labels.a == 'x'"
	case 3:
		return "request.operation == 'CREATE'"
	case 4:
		return "!has(object.metadata.annotations) || !('a' in object.metadata.annotations)"
	case 5:
		return "oldObject == null"
	case 6:
		return "size(object.metadata.?labels.orValue({})) < 2"
	case 7:
		if e.params {
			return "params != null && params.data.k == 'pa'"
		}
		return "object.nosuch == 1"
	}
	return "object.metadata.name.startsWith('x')"
}

// scalar is an expression for a value of the given kind; "" leaves the kind
// open.
func (e *exprs) scalar(want string) string {
	if want == "" {
		want = e.pick("string", "int", "bool")
	}
	if len(e.variables) > 0 && e.chance(15) {
		return "variables." + e.variables[e.n(len(e.variables))]
	}
	switch want {
	case "string", "quantity":
		switch e.n(9) {
		case 0:
			return `"x"`
		case 1:
			return `"y"`
		case 2:
			return "object.metadata.name"
		case 3:
			return `object.metadata.?labels.?a.orValue("none")`
		case 4:
			return `request.operation.lowerAscii()`
		case 5:
			if e.params {
				return "params.data.k"
			}
			return `"500m"`
		case 6:
			return `string(size(object.metadata.?labels.orValue({})))`
		case 7:
			return `namespaceObject.metadata.name`
		}
		return `object.metadata.labels.a`
	case "int":
		return e.pick("1", "0", "8080", "size(object.metadata.name)", "2 + 1", "-1", "int('3')")
	case "bool":
		return e.pick("true", "false", "has(object.metadata.labels)", "oldObject != null")
	case "double":
		return e.pick("1.5", "2.0", "1.0 / 3.0")
	case "intstr":
		return e.pick("80", `"25%"`)
	}
	return "null"
}

// apply is an apply configuration for the shape. path is the CEL type name of
// the place, which upstream checks against the place.
func (e *exprs) apply(s *shape, path string, depth int) string {
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
			if used[f.name] {
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
		var out []string
		used := map[string]bool{}
		for range 1 + e.n(2) {
			key := e.pick("a", "b", "x.io/y", "cpu")
			if used[key] {
				continue
			}
			used[key] = true
			if s.elem.kind == "struct" {
				out = append(out, fmt.Sprintf("%q: %s", key, e.apply(s.elem, path, depth+1)))
			} else {
				out = append(out, fmt.Sprintf("%q: dyn(%s)", key, e.apply(s.elem, path, depth+1)))
			}
		}
		return "{" + strings.Join(out, ", ") + "}"
	case "list":
		if e.chance(5) {
			return "[]"
		}
		var out []string
		for range 1 + e.n(3) {
			v := e.apply(s.elem, path, depth+1)
			if s.elem.kind != "struct" {
				v = "dyn(" + v + ")"
			}
			out = append(out, v)
		}
		return "[" + strings.Join(out, ", ") + "]"
	case "string":
		if e.chance(60) {
			return fmt.Sprintf("%q", e.pick(s.pool...))
		}
		return e.scalar("string")
	case "any":
		return e.pick(path+"{a: "+path+".a{b: 2}}", path+"{l: [2]}", `{"s": "u"}`, path+"{}")
	}
	return e.scalar(s.kind)
}

func (e *exprs) entry(f field, path string, depth int) string {
	sub := path + "." + f.name
	switch {
	case e.chance(3):
		return f.name + ": optional.none()"
	case e.chance(3):
		return "?" + f.name + ": optional.none()"
	case e.chance(5) && f.of.kind == "list" && path == "Object.spec" && f.of.elem.kind == "struct" && len(f.of.elem.fields) > 1:
		key := f.of.elem.fields[0].name
		return fmt.Sprintf("%s: object.spec.?%s.orValue([]).map(c, %s{%s: c.%s, %s})", f.name, f.name, sub, key, key,
			e.entry(f.of.elem.fields[1+e.n(len(f.of.elem.fields)-1)], sub, depth+2))
	case e.chance(5) && (f.of.kind == "list" || f.of.kind == "map") && strings.Count(path, ".") == 1:
		return fmt.Sprintf("?%s: object.?%s.?%s", f.name, strings.TrimPrefix(path, "Object."), f.name)
	}
	return f.name + ": " + e.apply(f.of, sub, depth+1)
}

// odd is now and then a value of a kind that does not belong here.
func (e *exprs) odd() (string, bool) {
	if !e.chance(4) {
		return "", false
	}
	return e.pick(`"odd"`, "3", "2.5", "true", "null", "[1, 2]", `{"k": "v"}`, "3u", "b'xx'", "duration('1s')",
		"optional.none()", "optional.of('o')", "object.metadata", "object.nosuch", "5.0", "9007199254740993"), true
}

func (e *exprs) jsonPatch() string {
	var ops []string
	for range 1 + e.n(3) {
		ops = append(ops, e.op())
	}
	patch := "[" + strings.Join(ops, ", ") + "]"
	if e.chance(10) {
		patch = e.condition() + " ? " + patch + " : []"
	}
	return patch
}

func (e *exprs) op() string {
	path, s := e.pointer()
	op := e.pick("add", "add", "add", "replace", "remove", "test", "copy", "move")
	if e.chance(2) {
		op = "Add"
	}
	fields := []string{fmt.Sprintf("op: %q", op)}
	if e.chance(10) {
		fields = append(fields, fmt.Sprintf("path: %q + jsonpatch.escapeKey(%q)", path+"/", e.pick("a/b", "a~b", "a")))
	} else {
		fields = append(fields, fmt.Sprintf("path: %q", path))
	}
	if op == "copy" || op == "move" {
		from, _ := e.pointer()
		fields = append(fields, fmt.Sprintf("from: %q", from))
	}
	if op == "add" || op == "replace" || op == "test" {
		if v := e.patchValue(s); !e.chance(5) {
			fields = append(fields, "value: "+v)
		}
	}
	return "JSONPatch{" + strings.Join(fields, ", ") + "}"
}

func (e *exprs) patchValue(s *shape) string {
	if odd, ok := e.odd(); ok {
		return odd
	}
	if s == nil {
		return e.scalar("")
	}
	switch s.kind {
	case "struct", "map", "list", "any":
		if e.chance(30) {
			return literal(e.value(s, 3))
		}
		return e.apply(s, "Object.v", 1)
	}
	return e.scalar(s.kind)
}

// literal writes JSON data as a CEL literal; dyn keeps mixed maps legal.
func literal(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var out []string
		for _, k := range sortedKeys(v) {
			out = append(out, fmt.Sprintf("%q: dyn(%s)", k, literal(v[k])))
		}
		return "{" + strings.Join(out, ", ") + "}"
	case []any:
		var out []string
		for _, x := range v {
			out = append(out, "dyn("+literal(x)+")")
		}
		return "[" + strings.Join(out, ", ") + "]"
	case string:
		return fmt.Sprintf("%q", v)
	case nil:
		return "null"
	case float64:
		return fmt.Sprintf("double(%q)", fmt.Sprint(v))
	}
	return fmt.Sprint(v)
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// pointer walks the kind's shape to some place and returns its JSON pointer
// and shape; the shape is nil where the pointer has left it.
func (e *exprs) pointer() (string, *shape) {
	if e.chance(2) {
		return e.pick("", "/", "//", "metadata/labels", "/~2", "/metadata/labels/~01"), nil
	}
	s, path := e.kind.root, ""
	for {
		switch s.kind {
		case "struct":
			f := s.fields[e.n(len(s.fields))]
			path, s = path+"/"+f.name, f.of
		case "map":
			path, s = path+"/"+e.pick("a", "b", "x.io~1y", "cpu"), s.elem
		case "list":
			path, s = path+"/"+e.pick("0", "-", "1", "2", "-1", "01", "x"), s.elem
		case "any":
			return path + e.pick("", "/a", "/a/b", "/l/0", "/l/-"), nil
		default:
			if e.chance(3) {
				return path + "/deeper", nil
			}
			return path, s
		}
		if e.chance(25) {
			if e.chance(4) {
				return path + "/nosuch", nil
			}
			return path, s
		}
	}
}
