package differential

import "fmt"

func (s *scenario) policy(g *gen, name string) {
	k := s.kind
	spec := map[string]any{
		"reinvocationPolicy": g.pick("Never", "IfNeeded"),
		"failurePolicy":      g.pick("Fail", "Ignore"),
		"matchConstraints":   g.match(k, true),
	}
	e := &exprs{gen: g, kind: k, live: s.request["object"]}
	var ofParams map[string]any
	if g.chance(30) {
		ofParams = paramKinds[g.n(len(paramKinds))]
		spec["paramKind"] = ofParams
		e.params = true
	}
	var conditions, variables, mutations []any
	for i := range g.n(3) {
		conditions = append(conditions, map[string]any{"name": fmt.Sprintf("c%d", i), "expression": e.condition()})
	}
	for i := range g.n(4) {
		v := fmt.Sprintf("v%d", i)
		variables = append(variables, map[string]any{"name": v, "expression": e.variable()})
		e.variables = append(e.variables, v)
	}
	for range 1 + g.n(4) {
		if g.chance(50) || k.schemaless && g.chance(80) {
			mutations = append(mutations, map[string]any{"patchType": "JSONPatch",
				"jsonPatch": map[string]any{"expression": e.jsonPatch()}})
		} else {
			mutations = append(mutations, map[string]any{"patchType": "ApplyConfiguration",
				"applyConfiguration": map[string]any{"expression": e.applyConfiguration()}})
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
	for i := range 1 + g.n(3) {
		b := map[string]any{"policyName": name}
		if ofParams != nil && !g.chance(10) {
			b["paramRef"] = g.paramRef(ofParams["kind"] == "Profile")
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

func (g *gen) paramRef(cluster bool) map[string]any {
	ref := map[string]any{"parameterNotFoundAction": g.pick("Deny", "Allow")}
	if g.chance(50) {
		ref["name"] = g.pick("pa", "pb", "gone")
	} else {
		ref["selector"] = g.selector("sel", "1", "9")
	}
	if !cluster && g.chance(50) || g.chance(10) {
		ref["namespace"] = g.pick("default", "default", "other")
	}
	return ref
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
		m["namespaceSelector"] = g.selector("env", "prod", "test")
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

// rule fits the kind so many times in a hundred. Where there is another version
// it is the one that rules name: never both, for then changes get lost in-tree
// (lost-updates).
func (g *gen) rule(k kind, fits int) map[string]any {
	version, resource := k.version, k.plural
	if k.other != "" {
		version = k.other
	}
	if k.only != "" {
		resource += "/" + k.only
	}
	r := map[string]any{
		"apiGroups": []any{k.group}, "apiVersions": []any{version}, "resources": []any{resource},
		"operations": []any{"CREATE", "UPDATE", "CONNECT"},
	}
	if !g.chance(100 - fits) {
		return r
	}
	switch g.n(8) {
	case 0:
		r["apiGroups"] = []any{"*"}
	case 1:
		r["resources"] = []any{g.pick("*", "*/*", "*/scale", "*/status")}
	case 2:
		r["resources"] = []any{k.plural + "/*"}
	case 3:
		r["operations"] = []any{g.pick("CREATE", "UPDATE", "CONNECT", "*")}
	case 4:
		r["resourceNames"] = []any{g.pick("x", "z")}
	case 5:
		r["scope"] = g.pick("Namespaced", "Cluster", "*")
	case 6:
		r["resources"] = []any{k.plural}
	case 7:
		r["resources"] = []any{k.plural, k.plural + "/status", k.plural + "/scale"}
	}
	return r
}

// What every scenario has around it.
var (
	paramKinds = []map[string]any{
		{"apiVersion": "v1", "kind": "ConfigMap"},
		{"apiVersion": "v1", "kind": "Secret"},
		{"apiVersion": "params.io/v1", "kind": "Setting"},
		{"apiVersion": "params.io/v1", "kind": "Profile"},
		{"apiVersion": "nowhere.io/v1", "kind": "Nothing"},
	}
	param = root(nil, field{"data", dict(words)}, field{"list", list(words)}, field{"spec", anything})

	paramDefinitions = []any{
		definition("params.io", "Setting", "settings", true, map[string]*shape{"v1": param}),
		definition("params.io", "Profile", "profiles", false, map[string]*shape{"v1": param}),
	}
	params = func() (all []any) {
		for _, kind := range paramKinds[:4] {
			for _, name := range []string{"pa", "pb"} {
				meta := map[string]any{"name": name, "labels": map[string]any{"sel": "1"}}
				if kind["kind"] != "Profile" {
					meta["namespace"] = "default"
				}
				p := map[string]any{"apiVersion": kind["apiVersion"], "kind": kind["kind"], "metadata": meta,
					"data": map[string]any{"k": "eA==", "n": "MzM="}}
				if kind["apiVersion"] != "v1" {
					p["list"] = []any{"x", "y"}
					p["spec"] = map[string]any{"a": map[string]any{"b": int64(1), "f": 2.5}, "l": []any{map[string]any{"name": "a"}}}
				}
				all = append(all, p)
			}
		}
		return all
	}()

	namespaces = []any{
		map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "default",
			"labels": map[string]any{"env": "prod"}, "annotations": map[string]any{"note": "n"}}},
		map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "other"}},
	}
	roles = []any{
		map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "reader"},
			"rules": []any{map[string]any{"apiGroups": []any{"", "apps", "ex.io"}, "resources": []any{"pods", "deployments", "widgets"}, "verbs": []any{"list"}}}},
		map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "reader"},
			"subjects": []any{map[string]any{"kind": "Group", "name": "developers", "apiGroup": "rbac.authorization.k8s.io"}},
			"roleRef":  map[string]any{"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}},
	}
)

// builtinParams is how many params come before those of custom kinds.
const builtinParams = 4
