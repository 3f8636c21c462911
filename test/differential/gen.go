// Package differential asks "does mapd decide as Kubernetes does, on policies
// and objects that nobody thought of?".
//
// A scenario is made from a string of bytes: policies with rules, selectors,
// conditions, variables, params and both kinds of patches, and one request.
// Most of it fits the kind it is about; some of it is wrong on purpose. Each
// scenario runs through the in-tree dispatcher (test/oracle) and through mapd;
// the object, the class of error and the number of rounds must agree.
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
	kind     kind
	policies []any
	params   []any
	request  map[string]any
}

func (g *gen) scenario() scenario {
	k := kinds[g.n(len(kinds))]
	s := scenario{kind: k}
	obj := g.object(k)
	operation := g.pick("CREATE", "UPDATE")
	s.request = map[string]any{"operation": operation, "object": obj}
	if operation == "UPDATE" {
		s.request["oldObject"] = g.object(k)
	}
	for i := range 1 + g.n(3) {
		s.policy(g, fmt.Sprintf("p%d", i))
	}
	for _, n := range []string{"pa", "pb"} {
		s.params = append(s.params, map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": n, "namespace": "default", "labels": map[string]any{"sel": "1"}},
			"data":     map[string]any{"k": n, "n": "3"},
		})
	}
	return s
}

func (g *gen) object(k kind) map[string]any {
	obj, _ := g.value(k.root, 0).(map[string]any)
	meta, _ := obj["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"], meta["namespace"] = "x", "default"
	obj["metadata"] = meta
	obj["apiVersion"], obj["kind"] = k.apiVersion, k.name
	return obj
}

// value makes JSON data of the given shape.
func (g *gen) value(s *shape, depth int) any {
	switch s.kind {
	case "struct":
		m := map[string]any{}
		for _, f := range s.fields {
			if slices.Contains(s.must, f.name) || depth < 6 && g.chance(30) {
				m[f.name] = g.value(f.of, depth+1)
			}
		}
		return m
	case "map":
		m := map[string]any{}
		for range g.n(3) {
			m[g.pick("a", "b", "c", "x.io/y", "cpu")] = g.value(s.elem, depth+1)
		}
		return m
	case "list":
		var l []any
		seen := map[string]bool{}
		for range g.n(4) {
			v := g.value(s.elem, depth+1)
			id := identity(s, v)
			if seen[id] && !g.chance(5) {
				continue
			}
			seen[id] = true
			l = append(l, v)
		}
		if l == nil {
			return []any{}
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
		return g.pick("1", "500m", "1Gi", "2")
	case "intstr":
		return []any{int64(80), "25%", "http"}[g.n(3)]
	case "any":
		return []any{
			map[string]any{"a": map[string]any{"b": int64(1)}, "l": []any{int64(1)}},
			map[string]any{},
			map[string]any{"s": "t", "n": nil},
		}[g.n(3)]
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
		return fmt.Sprint(v)
	}
	return ""
}

func (s *scenario) policy(g *gen, name string) {
	k := s.kind
	spec := map[string]any{
		"reinvocationPolicy": g.pick("Never", "IfNeeded"),
		"failurePolicy":      g.pick("Fail", "Ignore"),
		"matchConstraints":   g.match(k, true),
	}
	hasParams := g.chance(30)
	if hasParams {
		spec["paramKind"] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}
	}
	e := &exprs{gen: g, kind: k, params: hasParams}
	var conditions, variables, mutations []any
	for i := range g.n(3) {
		conditions = append(conditions, map[string]any{"name": fmt.Sprintf("c%d", i), "expression": e.condition()})
	}
	for i := range g.n(3) {
		v := fmt.Sprintf("v%d", i)
		variables = append(variables, map[string]any{"name": v, "expression": e.scalar("")})
		e.variables = append(e.variables, v)
	}
	for range 1 + g.n(3) {
		if g.chance(50) {
			mutations = append(mutations, map[string]any{"patchType": "JSONPatch",
				"jsonPatch": map[string]any{"expression": e.jsonPatch()}})
		} else {
			mutations = append(mutations, map[string]any{"patchType": "ApplyConfiguration",
				"applyConfiguration": map[string]any{"expression": e.apply(k.root, "Object", 0)}})
		}
	}
	if conditions != nil {
		spec["matchConditions"] = conditions
	}
	if variables != nil {
		spec["variables"] = variables
	}
	spec["mutations"] = mutations
	s.policies = append(s.policies, map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
		"metadata": map[string]any{"name": name}, "spec": spec,
	})
	for i := range 1 + g.n(2) {
		b := map[string]any{"policyName": name}
		if hasParams && !g.chance(10) {
			ref := map[string]any{"parameterNotFoundAction": g.pick("Deny", "Allow")}
			if g.chance(50) {
				ref["name"] = g.pick("pa", "pb", "gone")
			} else {
				ref["selector"] = map[string]any{"matchLabels": map[string]any{"sel": g.pick("1", "1", "9")}}
			}
			if g.chance(50) {
				ref["namespace"] = g.pick("default", "default", "other")
			}
			b["paramRef"] = ref
		}
		if g.chance(30) {
			b["matchResources"] = g.match(k, g.chance(50))
		}
		s.policies = append(s.policies, map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
			"metadata": map[string]any{"name": fmt.Sprintf("%s-b%d", name, i)}, "spec": b,
		})
	}
}

func (g *gen) match(k kind, rules bool) map[string]any {
	m := map[string]any{}
	if rules {
		var rs []any
		for range 1 + g.n(2) {
			rs = append(rs, g.rule(k, 90))
		}
		m["resourceRules"] = rs
	}
	if g.chance(15) {
		m["excludeResourceRules"] = []any{g.rule(k, 30)}
	}
	if g.chance(15) {
		m["matchPolicy"] = g.pick("Exact", "Equivalent")
	}
	if g.chance(20) {
		m["objectSelector"] = g.selector("a", "x", "y")
	}
	if g.chance(20) {
		m["namespaceSelector"] = g.selector("kubernetes.io/metadata.name", "default", "other")
	}
	return m
}

func (g *gen) selector(key string, values ...string) map[string]any {
	switch g.n(4) {
	case 0:
		return map[string]any{"matchLabels": map[string]any{key: g.pick(values...)}}
	case 1:
		return map[string]any{"matchExpressions": []any{map[string]any{"key": key, "operator": g.pick("Exists", "DoesNotExist")}}}
	case 2:
		return map[string]any{"matchExpressions": []any{map[string]any{"key": key, "operator": g.pick("In", "NotIn"),
			"values": []any{g.pick(values...), g.pick(values...)}}}}
	}
	return map[string]any{}
}

func (g *gen) rule(k kind, fits int) map[string]any {
	r := map[string]any{
		"apiGroups": []any{k.group}, "apiVersions": []any{k.version}, "resources": []any{k.plural},
		"operations": []any{"CREATE", "UPDATE"},
	}
	if !g.chance(100 - fits) {
		return r
	}
	switch g.n(6) {
	case 0:
		r["apiGroups"] = []any{"*"}
	case 1:
		r["resources"] = []any{"*"}
	case 2:
		r["resources"] = []any{k.plural + "/*"}
	case 3:
		r["operations"] = []any{g.pick("CREATE", "UPDATE", "CONNECT", "*")}
	case 4:
		r["resourceNames"] = []any{g.pick("x", "z")}
	case 5:
		r["scope"] = g.pick("Namespaced", "Cluster", "*")
	}
	return r
}

// txtar writes the scenario in the form of test/cases, so that a finding can
// be kept as a case.
func (s scenario) txtar(story string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n-- policies.yaml --\n", story)
	for _, p := range s.policies {
		fmt.Fprintf(&b, "---\n%s\n", encode(p))
	}
	if s.usesParams() {
		b.WriteString("-- params.yaml --\n")
		for _, p := range s.params {
			fmt.Fprintf(&b, "---\n%s\n", encode(p))
		}
	}
	if !s.kind.typed {
		fmt.Fprintf(&b, "-- crds.yaml --\n%s", widgetCRD)
	}
	fmt.Fprintf(&b, "-- request.yaml --\n%s\n", encode(s.request))
	return []byte(b.String())
}

func (s scenario) usesParams() bool {
	return slices.ContainsFunc(s.policies, func(p any) bool {
		spec := p.(map[string]any)["spec"].(map[string]any)
		return spec["paramKind"] != nil
	})
}

func encode(v any) string {
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // plain JSON data encodes
	}
	return string(out)
}
