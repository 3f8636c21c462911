package differential

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// crowded is a scenario whose many mutations meet at a few places of one object:
// they write next to each other, into what another one wrote, and put parts of
// the object elsewhere that are written to afterwards. mapd modifies the copies
// that it made of an object's parts in place, so who else holds them matters.
func (g *gen) crowded() scenario {
	s := scenario{kind: g.kind()}
	for s.kind.schemaless || s.kind.connect {
		s.kind = builtinKinds[g.n(8)]
	}
	if g.chance(75) {
		s.kind.other = ""
	}
	s.request = g.request(&s.kind)
	meta := s.request["object"].(map[string]any)["metadata"].(map[string]any)
	meta["labels"] = map[string]any{"a": "x", "b": "y"}
	if g.chance(60) {
		meta["annotations"] = map[string]any{"a": "note"}
	}
	s.params, s.namespaces = params, namespaces
	for i := range 1 + g.n(4) {
		s.crowd(g, fmt.Sprintf("p%d", i))
	}
	return s
}

// crowd adds a policy that matches; most of what fails in it is ignored.
func (s *scenario) crowd(g *gen, name string) {
	k := s.kind
	resource := k.plural
	if k.only != "" {
		resource += "/" + k.only
	}
	version := k.version
	if k.other != "" {
		version = k.other // for all policies or none, see rule
	}
	spec := map[string]any{
		"reinvocationPolicy": g.pick("IfNeeded", "Never"),
		"failurePolicy":      g.pick("Ignore", "Ignore", "Ignore", "Fail"),
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
			"apiGroups": []any{k.group}, "apiVersions": []any{version}, "resources": []any{resource}, "operations": []any{"*"}}}},
	}
	binding := map[string]any{"policyName": name}
	e := &exprs{gen: g, kind: k, live: s.request["object"]}
	if g.chance(30) {
		spec["paramKind"] = paramKinds[2]
		binding["paramRef"] = map[string]any{"name": "pa", "namespace": "default", "parameterNotFoundAction": "Deny"}
		e.params = true
	}
	var mutations []any
	for range 2 + g.n(5) {
		if expression, apply := e.meeting(); apply {
			mutations = append(mutations, map[string]any{"patchType": "ApplyConfiguration",
				"applyConfiguration": map[string]any{"expression": expression}})
		} else {
			mutations = append(mutations, map[string]any{"patchType": "JSONPatch",
				"jsonPatch": map[string]any{"expression": expression}})
		}
	}
	spec["mutations"] = mutations
	s.policies = append(s.policies,
		map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
			"metadata": map[string]any{"name": name}, "spec": spec},
		map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
			"metadata": map[string]any{"name": name}, "spec": binding})
}

// meeting is a mutation at a place where others are, too.
func (e *exprs) meeting() (expression string, apply bool) {
	where, key := e.pick("labels", "labels", "annotations"), e.pick("a", "b", "c", "x.io/y")
	path := "/metadata/" + where + "/" + strings.ReplaceAll(key, "/", "~1")
	value := e.pick(`"1"`, `"2"`, `object.metadata.name`, `object.metadata.?labels.?a.orValue("none")`, `string(size(object.metadata.?labels.orValue({})))`)
	switch e.n(14) {
	case 0, 1, 2:
		return fmt.Sprintf(`[JSONPatch{op: "add", path: %q, value: %s}]`, path, value), false
	case 3:
		return fmt.Sprintf(`[JSONPatch{op: "add", path: %q, value: %s}, JSONPatch{op: %q, path: "/metadata/labels/b", value: "z"}]`,
			path, value, e.pick("add", "replace", "test")), false
	case 4:
		return fmt.Sprintf(`[JSONPatch{op: "remove", path: %q}]`, path), false
	case 5:
		// One map in two places.
		from := e.pick("labels", "annotations")
		if e.chance(50) {
			return fmt.Sprintf(`Object{metadata: Object.metadata{%s: object.metadata.%s}}`, where, from), true
		}
		return fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/%s", value: object.metadata.%s}]`, where, from), false
	case 6:
		if e.params {
			if e.chance(50) {
				return `[JSONPatch{op: "add", path: "/metadata/annotations", value: params.data}]`, false
			}
			return e.pick(`Object{metadata: Object.metadata{labels: params.data}}`, `Object{metadata: Object.metadata{finalizers: params.list}}`), true
		}
		return fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/%s", value: %s}]`, where,
			e.pick(`{"a": "x", "own": "1"}`, "oldObject.metadata.labels", "namespaceObject.metadata.labels")), false
	case 7, 8:
		return fmt.Sprintf(`Object{metadata: Object.metadata{%s: {%q: %s}}}`, where, key, value), true
	case 9:
		return e.pick(`[JSONPatch{op: "add", path: "/metadata/labels/c", value: "1"}, JSONPatch{op: "remove", path: "/nosuch"}]`,
			`[JSONPatch{op: "add", path: "/metadata/labels/c", value: object.nosuch}]`,
			`[JSONPatch{op: "add", path: "/metadata/labels/c", value: 1}]`,
			`[JSONPatch{op: "add", path: "/metadata/labels/c", value: "1"}, JSONPatch{op: "test", path: "/metadata/name", value: "other"}]`), false
	case 10, 11:
		return e.moved(), false
	case 12:
		return e.jsonPatch(), false
	}
	return e.applyConfiguration(), true
}

// moved is a patch that puts a part of the object, or two of it, somewhere.
func (e *exprs) moved() string {
	parts := partsOf(e.live, part{expression: "object"}, nil)
	from := parts[e.n(len(parts))]
	op := e.pick("add", "replace")
	if e.kind.definition == nil {
		// What does not fit is refused when it is decoded, which says little.
		fit := []part{from}
		for _, p := range parts {
			if p.field == from.field && p.element == from.element {
				fit = append(fit, p)
			}
		}
		to := fit[e.n(len(fit))]
		if to.element && e.chance(60) {
			return fmt.Sprintf(`[JSONPatch{op: "add", path: "%s/-", value: %s}]`, to.pointer[:strings.LastIndexByte(to.pointer, '/')], from.expression)
		}
		return fmt.Sprintf(`[JSONPatch{op: %q, path: %q, value: %s}]`, op, to.pointer, from.expression)
	}
	to, _ := e.pointer()
	value, other := from.expression, parts[e.n(len(parts))].expression
	switch e.n(4) {
	case 0:
		value = "[dyn(" + value + "), dyn(" + other + ")]"
	case 1:
		value = `{"a": dyn(` + value + `), "b": dyn(` + other + `)}`
	}
	return fmt.Sprintf(`[JSONPatch{op: %q, path: %q, value: %s}]`, op, to, value)
}

// part is a map or list in the request's object, or the object.
type part struct {
	pointer, expression string
	field               string // the last name on the way
	element             bool   // of a list
}

func partsOf(v any, at part, out []part) []part {
	switch v := v.(type) {
	case map[string]any:
		out = append(out, at)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			token := strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
			out = partsOf(v[key], part{at.pointer + "/" + token, fmt.Sprintf("%s[%q]", at.expression, key), key, false}, out)
		}
	case []any:
		out = append(out, at)
		for i := range v {
			out = partsOf(v[i], part{fmt.Sprintf("%s/%d", at.pointer, i), fmt.Sprintf("%s[%d]", at.expression, i), at.field, true}, out)
		}
	}
	return out
}
