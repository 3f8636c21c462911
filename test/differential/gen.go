// Package differential asks "does mapd decide as Kubernetes does, on policies
// and objects that nobody thought of?".
//
// A scenario is made from a string of bytes: policies with rules, selectors,
// conditions, variables, params and both kinds of patches, and one request.
// Most of it fits the kind it is about; some of it is wrong on purpose. Each
// scenario runs through the in-tree dispatcher (test/oracle) and through mapd;
// the object, the texts of all errors and the number of rounds must agree.
package differential

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// gen turns bytes into decisions. When they run out every decision is the
// first choice, so a short input is a small scenario.
type gen struct {
	data []byte
}

func (g *gen) n(max int) int {
	if max <= 1 || len(g.data) == 0 {
		return 0
	}
	b := int(g.data[0])
	g.data = g.data[1:]
	return b % max
}

func (g *gen) chance(percent int) bool {
	if len(g.data) == 0 {
		return false
	}
	return g.n(100) >= 100-percent
}

func (g *gen) pick(from ...string) string { return from[g.n(len(from))] }

// scenario is everything one comparison needs, as plain JSON data.
type scenario struct {
	kind       kind
	policies   []any
	params     []any
	namespaces []any
	request    map[string]any
}

func (g *gen) scenario() scenario {
	s := scenario{kind: g.kind()}
	s.request = g.request(&s.kind)
	for i := range 1 + g.n(3) {
		s.policy(g, fmt.Sprintf("p%d", i))
	}
	s.params = params
	if !g.chance(2) {
		s.namespaces = namespaces
	}
	return s
}

// kind chooses what the request is about: half of the time a custom resource,
// and half of these have a schema that is made up on the spot.
func (g *gen) kind() kind {
	switch g.n(4) {
	case 0:
		return customKinds[g.n(len(customKinds))]
	case 1:
		root := root([]string{"spec"}, field{"spec", object(nil)})
		spec := root.fields[1].of
		for _, name := range []string{"a", "b", "c", "d"} {
			spec.fields = append(spec.fields, field{name, g.schema(1)})
		}
		return kind{apiVersion: "ex.io/v1", name: "Thing", group: "ex.io", version: "v1", plural: "things", root: root,
			definition: definition("ex.io", "Thing", "things", true, map[string]*shape{"v1": root})}
	}
	return builtinKinds[g.n(len(builtinKinds))]
}

// request makes a request about a kind, and sets the subresource it is for.
func (g *gen) request(k *kind) map[string]any {
	r := map[string]any{"operation": g.pick("CREATE", "UPDATE")}
	if k.only == "" && len(k.subresources) > 0 && g.chance(15) {
		k.only = g.pick(k.subresources...)
		r["operation"] = "UPDATE"
	}
	if k.only != "" {
		r["subresource"] = k.only
		r["resource"] = strings.TrimPrefix(k.group+"/"+k.version+"/"+k.plural, "/")
	}
	obj := g.object(*k)
	r["object"] = obj
	switch {
	case k.connect:
		r["operation"], r["name"], r["namespace"] = "CONNECT", "x", "default"
	case r["operation"] == "UPDATE":
		r["oldObject"] = g.object(*k)
	case g.chance(10):
		meta := obj["metadata"].(map[string]any)
		delete(meta, "name")
		meta["generateName"] = "x-"
	}
	if g.chance(10) {
		r["dryRun"] = true
	}
	if g.chance(10) && !k.connect {
		r["options"] = map[string]any{"fieldManager": "kubectl", "fieldValidation": "Strict"}
	}
	if g.chance(20) {
		r["user"] = map[string]any{"username": "system:serviceaccount:default:robot", "uid": "u-1",
			"groups": []any{"system:serviceaccounts"}, "extra": map[string]any{"scope.io/x": []any{"1", "2"}}}
	}
	return r
}

func (g *gen) object(k kind) map[string]any {
	obj, _ := g.value(k.root, 0).(map[string]any)
	obj["apiVersion"], obj["kind"] = k.apiVersion, k.name
	if k.connect {
		return obj
	}
	meta, _ := obj["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"] = "x"
	if !k.cluster {
		meta["namespace"] = "default"
	}
	obj["metadata"] = meta
	return obj
}

// value makes JSON data of the given shape. Custom resources may be wrong: they
// are validated only after admission.
func (g *gen) value(s *shape, depth int) any {
	if s.nullable && g.chance(20) {
		return nil
	}
	switch s.kind {
	case "struct":
		m := map[string]any{}
		for _, f := range s.fields {
			if slices.Contains(s.must, f.name) || depth < 6 && g.chance(30) || f.name == "labels" && g.chance(50) {
				m[f.name] = g.value(f.of, depth+1)
			}
		}
		if s.open && g.chance(50) {
			m["unknown"] = g.value(anything, depth+1)
		}
		return m
	case "map":
		m := map[string]any{}
		for range g.n(3) {
			m[g.pick("a", "b", "c", "x.io/y", "cpu")] = g.value(s.elem, depth+1)
		}
		return m
	case "list":
		l := []any{}
		seen := map[string]bool{}
		for range g.n(4) {
			v := g.value(s.elem, depth+1)
			id := identity(s, v)
			if id != "" && seen[id] && !g.chance(5) {
				continue
			}
			seen[id] = true
			l = append(l, v)
		}
		return l
	case "string":
		return g.pick(s.pool...)
	case "int":
		return int64([]int{1, 0, 80, 8080, 3, -1}[g.n(6)])
	case "bool":
		return g.chance(50)
	case "double":
		return []any{int64(1), 1.5, 0.25}[g.n(3)]
	case "quantity":
		return g.pick("1", "500m", "1Gi", "2", "0.5", "1024Ki", "1e3")
	case "intstr":
		return []any{int64(80), "25%", "http"}[g.n(3)]
	case "bytes":
		return g.pick("", "eA==", "/wD+", "aGVsbG8=")
	case "any":
		return []any{
			map[string]any{"a": map[string]any{"b": int64(1)}, "l": []any{int64(1)}},
			map[string]any{},
			map[string]any{"s": "t", "n": nil},
			map[string]any{"a": map[string]any{"b": 1.5, "c": []any{map[string]any{"name": "a"}}}},
		}[g.n(4)]
	case "embedded":
		return map[string]any{"apiVersion": "v1", "kind": g.pick("Pod", "Any"),
			"metadata": map[string]any{"name": "e", "labels": map[string]any{"a": "x"}}, "data": g.value(anything, depth)}
	}
	panic("no shape " + s.kind)
}

// identity is what the items of a list must not share: all of the value of a
// set, the keys of a list map, nothing of an atomic list.
func identity(s *shape, v any) string {
	if len(s.keys) > 0 {
		m, _ := v.(map[string]any)
		id := ""
		for _, k := range s.keys {
			id += fmt.Sprintf("%v|", m[k])
		}
		return id
	}
	if s.set {
		return fmt.Sprintf("=%v", v)
	}
	return ""
}

// txtar writes the scenario in the form of test/cases, so that a finding can
// be kept as a case.
func (s scenario) txtar(story string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", story)
	section := func(name string, docs []any) {
		fmt.Fprintf(&b, "-- %s --\n", name)
		for _, d := range docs {
			fmt.Fprintf(&b, "---\n%s\n", encode(d))
		}
	}
	section("policies.yaml", s.policies)
	policies := encode(s.policies)
	definitions := []any{}
	if s.kind.definition != nil {
		definitions = append(definitions, s.kind.definition)
	}
	if strings.Contains(policies, `"paramKind"`) {
		if strings.Contains(policies, "params.io") {
			definitions = append(definitions, paramDefinitions...)
		} else {
			s.params = s.params[:builtinParams]
		}
		section("params.yaml", s.params)
	}
	section("namespaces.yaml", s.namespaces)
	section("crds.yaml", definitions)
	if strings.Contains(policies, "authorizer") {
		section("rbac.yaml", roles)
	}
	fmt.Fprintf(&b, "-- request.yaml --\n%s\n", encode(s.request))
	return []byte(b.String())
}

func encode(v any) string {
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // plain JSON data encodes
	}
	return string(out)
}
