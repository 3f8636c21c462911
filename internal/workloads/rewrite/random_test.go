package rewrite

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
)

var (
	policies = flag.Int("policies", 60, "how many random policies to rewrite")
	first    = flag.Uint64("first", 0, "the first seed")
)

// author writes policies for Pods that can be rewritten: they read fields that templates
// have, in all ways in which an expression can, and write fields that they do not read.
type author struct{ *rand.Rand }

func (a author) one(from ...string) string { return from[a.IntN(len(from))] }

// fill replaces Ⓑ, Ⓢ and Ⓛ in a text by expressions of a bool, a string and a list of
// containers.
func (a author) fill(text string, depth int) string {
	var b strings.Builder
	for _, r := range text {
		switch r {
		case 'Ⓑ':
			b.WriteString(a.bool(depth - 1))
		case 'Ⓢ':
			b.WriteString(a.text(depth - 1))
		case 'Ⓛ':
			b.WriteString(a.list(depth - 1))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (a author) bool(depth int) string {
	if depth <= 0 {
		return a.one(`has(object.spec.hostNetwork)`, `.object.spec.?hostPID.orValue(false)`, `oldObject == null`, `null != object`, `request.operation == "CREATE"`,
			`request.kind.kind == "Pod"`, `object.kind == 'Pod'`, `"app" in object.metadata.?labels.orValue({})`, `namespaceObject.metadata.name == "shop"`,
			`object.metadata.namespace == request.namespace`, `variables.marked`, `has(object.spec.securityContext) && has(object.spec.securityContext.runAsNonRoot)`)
	}
	return a.fill(a.one(
		`!(Ⓑ)`, `Ⓑ && Ⓑ`, `Ⓑ || Ⓑ`, `(Ⓑ ? Ⓑ : Ⓑ)`, `Ⓢ == Ⓢ`, `Ⓢ in [Ⓢ, Ⓢ]`, `Ⓢ.startsWith("c")`, `size(Ⓛ) > 1`,
		`Ⓛ.all(object, has(object.image) && .object.spec.containers.size() > 0)`, `Ⓛ.exists(c, c.name == Ⓢ)`, `Ⓛ.exists_one(i, c, i == 0 && c.name != Ⓢ)`,
		`Ⓛ.map(c, c.name).exists(request, request == "c0")`, `[object.spec].exists(object, has(object.containers))`, `[object.spec].all(spec, Ⓑ && size(spec.containers) < 3)`,
		`object.?spec.?securityContext.optMap(object, has(object.runAsUser)).orValue(Ⓑ)`, `object.spec[?"tolerations"].hasValue()`,
		`[1, 2].all(x, [3].exists(object, object > x && Ⓑ))`, `{"a": Ⓑ}.all(k, {"b": 1}[?k].hasValue() || Ⓑ)`,
	), depth)
}

func (a author) text(depth int) string {
	if depth <= 0 {
		return a.one(`"a\"b\\c\n\té"`, `r'raw\d'`, `'''it's'''`, `object.spec.?serviceAccountName.orValue("none")`, `object.metadata.?labels[?"app"].orValue("")`,
			`string(object["spec"]["containers"][0].name)`, `request.resource.resource`, `string(object.spec.containers.size())`, `variables.word`, `object.spec.containers[0].image`)
	}
	return a.fill(a.one(`(Ⓢ + "/" + Ⓢ)`, `(Ⓑ ? Ⓢ : Ⓢ)`, `Ⓢ.replace("a", "b")`, `Ⓛ.map(c, c.name).join(",")`, `Ⓛ.filter(c, Ⓑ).map(c, Ⓑ, c.name).join("")`,
		`string(-(size(Ⓛ) - 5) * 2 - (1 - 3))`, `string(dyn({"k": Ⓢ}).k)`, `[Ⓢ, Ⓢ][1]`, `[Ⓢ].map(oldObject, oldObject + "x")[0]`), depth)
}

func (a author) list(depth int) string {
	if depth <= 0 {
		return a.one(`object.spec.containers`, `object.spec[?"initContainers"].orValue([])`, `(has(object.spec.initContainers) ? object.spec.initContainers : [])`, `variables.all`)
	}
	return a.fill(a.one(`Ⓛ.filter(c, Ⓑ)`, `Ⓛ.filter(object, object.name != Ⓢ)`, `(Ⓑ ? Ⓛ : Ⓛ)`), depth)
}

func (a author) mutation() (kind, expression string) {
	value := a.text(3)
	if a.IntN(2) == 0 {
		return "applyConfiguration", a.fill(a.one(
			`Object{metadata: Object.metadata{annotations: {"made": `+value+`}}}`,
			`Object{spec: Object.spec{subdomain: `+value+`, ?hostname: Ⓑ ? optional.of(Ⓢ) : optional.none()}}`,
			`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, workingDir: `+value+`})}}`,
			`Ⓑ ? Object{} : Object{spec: Object.spec{securityContext: Object.spec.securityContext{seLinuxOptions: Object.spec.securityContext.seLinuxOptions{level: `+value+`}}}}`,
		), 2)
	}
	return "jsonPatch", a.fill(a.one(
		`[JSONPatch{op: "add", path: "/spec/nodeName", value: `+value+`}]`,
		`[JSONPatch{op: "add", path: Ⓑ ? "/spec/subdomain" : "/spec/" + "hostname", value: `+value+`}]`,
		`(has(object.metadata.annotations) ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) + [JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("made/by~x"), value: `+value+`}]`,
		`["/spec/subdomain", "/spec/hostname"].map(object, JSONPatch{op: "add", path: object, value: `+value+`})`,
		`Ⓛ == object.spec.containers ? [JSONPatch{op: "add", path: "/spec/" + ["sub", "domain"].join(), value: `+value+`}] : []`,
		`object.spec.containers.map(i, c, JSONPatch{op: "add", path: ["", "spec", "containers", string(i), "workingDir"].join("/"), value: `+value+`})`,
	), 2)
}

func (a author) policy() *unstructured.Unstructured {
	kind, expression := a.mutation()
	item := func(name, expression string) any { return map[string]any{"name": name, "expression": expression} }
	types := map[string]string{"applyConfiguration": "ApplyConfiguration", "jsonPatch": "JSONPatch"}
	spec := map[string]any{
		"failurePolicy": a.one("Fail", "Ignore"), "reinvocationPolicy": "Never",
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
			"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"pods"}}}},
		"variables": []any{
			item("all", `object.spec.containers + object.spec.?initContainers.orValue([])`),
			item("marked", `object.spec.containers.exists(c, has(c.command))`),
			item("word", `object.spec.?schedulerName.orValue("")`),
		},
		"mutations": []any{map[string]any{"patchType": types[kind], kind: map[string]any{"expression": expression}}},
	}
	if a.IntN(3) == 0 {
		spec["matchConditions"] = []any{item("one", strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(a.bool(2), "variables.marked", "true"), "variables.word", "'w'"), "variables.all", "object.spec.containers"))}
	}
	if a.IntN(3) == 0 {
		selector := map[string]any{"matchExpressions": []any{map[string]any{"key": "app", "operator": a.one("Exists", "DoesNotExist")}}}
		spec["matchConstraints"].(map[string]any)["objectSelector"] = selector
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "spec": spec}}
	u.SetName("p")
	return u
}

// build compiles policies, in a cluster with a Namespace.
func build(t *testing.T, env *cel.Env, policies ...*unstructured.Unstructured) (*policyset.Snapshot, []error) {
	t.Helper()
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName("shop")
	var text bytes.Buffer
	for _, u := range append(policies, ns) {
		text.WriteString("---\n")
		text.Write(manifest.Encode(u.Object))
	}
	docs, errs := manifest.ReadAll(manifest.Inputs([]string{manifest.Stdin}, &text), func(*manifest.Document) {})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return policyset.Build(docs, policyset.Options{Env: env, Unbound: true, Mutators: api.Off})
}

// TestRandomPolicies rewrites policies that nobody wrote by hand, and compares what they
// and their results make of generated workloads.
func TestRandomPolicies(t *testing.T) {
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	changed, compared, invalid := 0, 0, 0
	for seed := range uint64(*policies) {
		a := author{rand.New(rand.NewPCG(*first+seed, 13))}
		p := a.policy()
		before, errs := build(t, env, p)
		if len(errs) > 0 { // such as a list of dyn and string, which has no type
			invalid++
			continue
		}
		out, _, err := Policy(p)
		if err != nil {
			t.Errorf("seed %d: %v\n%s", *first+seed, err, manifest.Encode(p.Object))
			continue
		}
		after, errs := build(t, env, out...)
		if len(errs) > 0 {
			t.Errorf("seed %d: the result does not compile: %v\n%s", *first+seed, errs[0], manifest.Encode(out[0].Object))
			continue
		}
		c, err := Verify(t.Context(), p, before, after, []string{"shop"}, seed, 10)
		if err != nil {
			t.Fatal(err)
		}
		if c.First != nil {
			diff := ""
			if d := c.First; d.Before != nil && d.After != nil {
				diff = fmt.Sprint(report.Diff(d.Before.Object, d.After.Object, nil))
			}
			t.Errorf("seed %d: again %t, refused %q and %q: %s\n%s%s", *first+seed, c.First.Again, c.First.Refused, c.First.RefusedAfter, diff, manifest.Encode(p.Object), manifest.Encode(out[0].Object))
		}
		changed += c.Changed
		compared += c.Workloads
	}
	if changed < compared/4 || invalid > *policies/2 {
		t.Errorf("%d of %d Pods were changed, and %d policies are not valid", changed, compared, invalid)
	}
	t.Logf("%d policies, %d not valid, %d Pods, %d changed", *policies, invalid, compared, changed)
}
