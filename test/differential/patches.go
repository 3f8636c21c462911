package differential

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func (e *exprs) jsonPatch() string {
	var ops []string
	for range 1 + e.n(3) {
		ops = append(ops, e.op())
	}
	patch := "[" + strings.Join(ops, ", ") + "]"
	if e.chance(15) {
		return e.pick(
			`["a", "b"].map(k, JSONPatch{op: "add", path: "/metadata/labels/" + k, value: k})`,
			`object.spec.containers.map(c, JSONPatch{op: "add", path: "/metadata/annotations/" + c.name, value: c.image})`,
			`object.spec.containers.transformList(i, c, c.name != "a", JSONPatch{op: "add", path: "/spec/containers/" + string(i) + "/image", value: "i"})`,
			`object.metadata.?labels.orValue({}).transformList(k, v, JSONPatch{op: "replace", path: "/metadata/labels/" + jsonpatch.escapeKey(k), value: v + "1"})`,
			`(has(object.metadata.annotations) ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) + `+patch,
			`[JSONPatch{op: "test", path: "/metadata/labels/a", value: "x"}] + `+patch,
			`[JSONPatch{op: "test", path: "/metadata/labels"}, JSONPatch{op: "add", path: "/metadata/labels", value: {"a": "x"}}] + `+patch,
			`[JSONPatch{op: "replace", path: "", value: object}]`,
			`[JSONPatch{op: dyn(`+e.scalar("")+`), path: "/metadata/labels/a", value: "x"}]`,
			`[JSONPatch{op: "add", path: "/" + object.metadata.name + "/`+e.pick("a", "b")+`", value: 1}]`,
		)
	}
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
	if e.chance(3) {
		if p := e.piece(); e.params || p[:6] != "params" {
			return p
		}
	}
	if s == nil {
		return e.scalar("")
	}
	switch s.kind {
	case "struct", "map", "list", "any", "embedded":
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
		for _, k := range slices.Sorted(maps.Keys(v)) {
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

// pointer walks the kind's shape to some place and returns its JSON pointer
// and shape; the shape is nil where the pointer has left it. Most of the time it
// follows what the object of the request has.
func (e *exprs) pointer() (string, *shape) {
	if e.chance(2) {
		return e.pick("", "/", "//", "metadata/labels", "/~2", "/metadata/labels/~01"), nil
	}
	s, live, path := e.kind.root, e.live, ""
	for {
		m, _ := live.(map[string]any)
		l, _ := live.([]any)
		switch s.kind {
		case "struct":
			f := s.fields[e.n(len(s.fields))]
			for range 3 {
				if _, ok := m[f.name]; !ok && e.chance(80) {
					f = s.fields[e.n(len(s.fields))]
				}
			}
			path, s, live = path+"/"+f.name, f.of, m[f.name]
		case "map":
			key := e.pick("a", "b", "x.io/y", "cpu")
			path, s, live = path+"/"+strings.ReplaceAll(key, "/", "~1"), s.elem, m[key]
		case "list":
			if len(l) > 0 && e.chance(70) {
				i := e.n(len(l))
				path, s, live = fmt.Sprintf("%s/%d", path, i), s.elem, l[i]
			} else {
				path, s, live = path+"/"+e.pick("-", "0", "-", "1", "2", "-1", "01", "x"), s.elem, nil
			}
		case "any", "embedded":
			return path + e.pick("", "/a", "/a/b", "/l/0", "/l/-", "/metadata/labels/a", "/metadata/name"), nil
		default:
			if e.chance(3) {
				return path + "/deeper", nil
			}
			return path, s
		}
		if live == nil && e.chance(60) || e.chance(20) {
			if e.chance(4) {
				return path + "/nosuch", nil
			}
			return path, s
		}
	}
}
