package kyverno

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/kyverno/convert"
)

// What random MutatingPolicies are made of.
var (
	celMatch = []string{
		`{resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]}`,
		`{resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]}`,
		`{resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}`,
		`{resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE, CREATE], resources: [pods]}], namespaceSelector: {matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}}`,
		`{resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}`,
		`{resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}], objectSelector: {matchLabels: {app: web}}}`,
		`{resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments, statefulsets]}]}`,
		`{resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], resourceNames: [web, default]}]}`,
		`{resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}], excludeResourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods]}]}`,
		`{resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}, {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}], matchPolicy: Exact}`,
	}
	celAutogen = []string{``, ``, ``, `{podControllers: {controllers: []}}`, `{podControllers: {controllers: [deployments, cronjobs]}}`, `{podControllers: {controllers: [jobs]}}`}
	// Each is the variable that has its number in the name.
	celVariables = []string{
		`object.metadata.?labels.?team.orValue("none")`, `"shop"`, `has(object.metadata.labels) ? object.metadata.labels : {}`, `object.spec.containers.size()`,
		`request.userInfo.username.startsWith("system:")`, `namespaceObject.metadata.name`, `object.spec.?priorityClassName.orValue("none")`,
	}
	celConditions = []string{
		`object.metadata.?labels.?app.orValue("") == "web"`, `has(object.metadata.labels) && "team" in object.metadata.labels`, `object.spec.containers.exists(c, c.image.startsWith("nginx"))`,
		`request.operation == "CREATE"`, `namespaceObject.metadata.labels["kubernetes.io/metadata.name"] != "kube-system"`, `request.userInfo.username != "alice"`,
		`object.metadata.labels.app == "web"`, `!has(object.spec.hostNetwork) || !object.spec.hostNetwork`, `object.metadata.name != ""`, `oldObject == null || oldObject.metadata.name != "x"`,
		`size(object.spec.containers) < 3`, `object.spec.containers.all(c, has(c.resources))`, `object.kind == "Pod"`, `request.namespace != "shop"`, `object.spec.?terminationGracePeriodSeconds.orValue(30) > 40`,
	}
	celApplied = []string{
		`Object{metadata: Object.metadata{labels: {"team": "shop"}}}`, `Object{metadata: Object.metadata{annotations: {"n": string(object.spec.containers.size())}}}`,
		`Object{metadata: Object.metadata{labels: Object.metadata.labels{team: "shop"}}}`,
		`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`,
		`Object{spec: Object.spec{terminationGracePeriodSeconds: 10}}`, `Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsNonRoot: true}}}`,
		`Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: "a", operator: "Exists"}]}}`, `Object{spec: Object.spec{nodeSelector: {"disk": "ssd"}}}`,
		`has(object.spec.priorityClassName) ? Object{} : Object{spec: Object.spec{priorityClassName: "high"}}`, `Object {spec: Object.spec {hostNetwork: false}}`,
		`Object{spec: Object.spec{?priorityClassName: object.spec.?priorityClassName.optMap(p, p + "-x")}}`, `Object{spec: Object.spec{nope: 1}}`,
		`Object{spec: Object.spec{initContainers: object.spec.?initContainers.orValue([]).map(c, Object.spec.initContainers{name: c.name, image: "r.io/" + c.image})}}`,
		`Object{metadata: Object.metadata{annotations: {"image": object.spec.containers[0].image}}, spec: Object.spec{dnsPolicy: "Default"}}`,
		`Object{spec: Object.spec{containers: object.spec.containers.filter(c, !has(c.securityContext)).map(c, Object.spec.containers{name: c.name, securityContext: Object.spec.containers.securityContext{allowPrivilegeEscalation: false}})}}`,
		`Object{metadata: Object.metadata{labels: {"old": object.metadata.?labels.?app.orValue("{")}}}`, `Object{spec: Object.spec{dnsConfig: Object.spec.dnsConfig{}}}`,
	}
	celPatches = []string{
		`[JSONPatch{op: "add", path: "/spec/priorityClassName", value: "high"}]`, `[JSONPatch{op: "test", path: "/spec/hostNetwork", value: true}, JSONPatch{op: "remove", path: "/spec/hostNetwork"}]`,
		`has(object.metadata.labels) ? [JSONPatch{op: "add", path: "/metadata/labels/team", value: "shop"}] : [JSONPatch{op: "add", path: "/metadata/labels", value: {"team": "shop"}}]`,
		`[JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("a/b"), value: "x"}]`, `[JSONPatch{op: "remove", path: "/spec/volumes"}]`,
		`[JSONPatch{op: "add", path: "/spec/tolerations", value: [Object.spec.tolerations{operator: "Exists"}]}]`, `[JSONPatch{op: "replace", path: "/spec/containers/0/imagePullPolicy", value: "Never"}]`,
		`[JSONPatch{op: "copy", from: "/metadata/name", path: "/spec/hostname"}]`, `object.spec.?volumes.orValue([]).size() > 0 ? [JSONPatch{op: "remove", path: "/spec/volumes/0"}] : []`,
		`[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "late", image: "late:1"}}]`,
	}
)

// randomMutating returns a MutatingPolicy. Its own labels are some that objects get, too.
func randomMutating(g *rand.Rand) string {
	one := func(parts []string) string { return parts[g.IntN(len(parts))] }
	quoted := func(expression string) string { return "'" + strings.ReplaceAll(expression, "'", "''") + "'" }
	var b strings.Builder
	b.WriteString("apiVersion: policies.kyverno.io/v1beta1\nkind: MutatingPolicy\nmetadata: {name: random, labels: {team: shop, app: web, env: prod}}\nspec:\n")
	fmt.Fprintf(&b, "  matchConstraints: %s\n", one(celMatch))
	if a := one(celAutogen); a != "" {
		fmt.Fprintf(&b, "  autogen: %s\n", a)
	}
	if g.IntN(4) == 0 {
		b.WriteString("  failurePolicy: Ignore\n")
	}
	variables := g.IntN(3)
	if g.IntN(2) == 0 {
		variables = 0
	}
	if variables > 0 {
		b.WriteString("  variables:\n")
	}
	for n := range variables {
		expression := one(celVariables)
		if n > 0 && g.IntN(3) == 0 {
			expression = `string(variables.v0) + "-"`
		}
		fmt.Fprintf(&b, "  - {name: v%d, expression: %s}\n", n, quoted(expression))
	}
	if n := g.IntN(3); n > 0 {
		b.WriteString("  matchConditions:\n")
		for i := range n {
			expression := one(celConditions)
			if variables > 0 && g.IntN(3) == 0 {
				expression = fmt.Sprintf(`string(variables.v%d) != "shop"`, g.IntN(variables))
			}
			fmt.Fprintf(&b, "  - {name: c%d, expression: %s}\n", i, quoted(expression))
		}
	}
	b.WriteString("  mutations:\n")
	for range 1 + g.IntN(5)/3 {
		if g.IntN(3) == 0 {
			fmt.Fprintf(&b, "  - {patchType: JSONPatch, jsonPatch: {expression: %s}}\n", quoted(one(celPatches)))
			continue
		}
		expression := one(celApplied)
		if variables > 0 && g.IntN(3) == 0 {
			expression = fmt.Sprintf(`Object{metadata: Object.metadata{annotations: {"v": string(variables.v%d)}}}`, g.IntN(variables))
		}
		fmt.Fprintf(&b, "  - {patchType: ApplyConfiguration, applyConfiguration: {expression: %s}}\n", quoted(expression))
	}
	return b.String()
}

// Random MutatingPolicies on random objects.
func TestRandomMutatingPolicies(t *testing.T) {
	var total tally
	converted, refused := 0, 0
	for i := range *policies {
		text := randomMutating(rand.New(rand.NewPCG(*seed, uint64(i))))
		var probe any
		if err := yaml.UnmarshalStrict([]byte(text), &probe); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, s := range read(t, fmt.Sprintf("policy %d", i), []byte(text)) {
			if r := convert.Policy(s.policy, convert.Options{Types: types}); len(r.Units) == 0 {
				refused++
				continue
			}
			converted++
			before := t.Failed()
			differ(t, s, *count/3, &total)
			if t.Failed() && !before {
				t.Logf("seed %d, policy %d:\n%s", *seed, i, text)
			}
		}
	}
	t.Logf("%d policies, of which %d are refused as a whole", converted+refused, refused)
	total.log(t)
	if converted == 0 || total.changed == 0 {
		t.Errorf("%d policies are compared, which change %d objects", converted, total.changed)
	}
}
