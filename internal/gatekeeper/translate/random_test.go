package translate_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/test/hammer"
)

// locations are in built-in kinds, whose policies are written without the tests
// of the runtime form. A list has its key and what keys there are: [name: a b].
var locations = map[string][]string{
	"/v1, Kind=Pod": {
		"spec.hostNetwork = bool",
		"spec.dnsPolicy = string",
		"spec.priority = int",
		"spec.dnsConfig = {nameservers: list}",
		"spec.securityContext.fsGroup = int",
		"spec.securityContext.seLinuxOptions.level = string",
		"spec.securityContext.supplementalGroups = ints",
		"spec.securityContext.sysctls[name: app b].value = string",
		"spec.containers[name: app other].image = image",
		"spec.containers[name: app other].imagePullPolicy = string",
		"spec.containers[name: app other].args = list",
		"spec.containers[name: app other].env[name: A B].value = string",
		"spec.containers[name: app other].env[name: A B].valueFrom.fieldRef.fieldPath = string",
		"spec.containers[name: app other].env[name: A B] = {name: key}",
		"spec.containers[name: app other].ports[containerPort: 80 8080].name = string",
		"spec.containers[name: app other].ports[name: http b].hostPort = int",
		"spec.containers[name: app other].securityContext.capabilities.add = list",
		"spec.containers[name: app other].securityContext.readOnlyRootFilesystem = bool",
		"spec.containers[name: app other].resources.limits.cpu = string",
		"spec.containers[name: app other].livenessProbe.httpGet.path = string",
		"spec.containers[name: app other] = {name: key, image: string}",
		"spec.initContainers[name: app b].volumeMounts[mountPath: /a /b].readOnly = bool",
		"spec.initContainers[name: app b].image = image",
		"spec.initContainers[name: app b].workingDir = string",
		"spec.initContainers[name: app b] = {name: key, image: string}",
		"spec.volumes[name: app b].emptyDir.medium = string",
		"spec.volumes[name: app b].configMap.items[key: k].path = string",
		"spec.tolerations[key: a b].operator = string",
		"spec.tolerations[key: a b] = {key: key, operator: string}",
		"spec.tolerations = {key: list}",
		"spec.nodeSelector.zone = string",
		"spec.hostAliases[ip: a b].hostnames = list",
	},
	"apps/v1, Kind=Deployment": {
		"spec.replicas = int",
		`spec.template.metadata.annotations."a/b~c" = string`,
		"spec.template.metadata.labels.app = string",
		"spec.template.spec.containers[name: app b].image = image",
		"spec.selector.matchLabels.app = string",
		"spec.strategy.rollingUpdate.maxSurge = string",
	},
	"/v1, Kind=Service": {
		"spec.externalIPs = list",
		"spec.ports[port: 80 8080].nodePort = int",
		"spec.ports[name: http b].targetPort = int",
		"spec.selector.app = string",
	},
	"/v1, Kind=ConfigMap": {"data.a = string", `data."a/b" = string`},
}

var kinds = []string{"/v1, Kind=Pod", "/v1, Kind=Pod", "/v1, Kind=Pod", "apps/v1, Kind=Deployment", "/v1, Kind=Service", "/v1, Kind=ConfigMap"}

// Mutators made at random from the same numbers every time, and each of their
// policies held against the direct interpreter. MAPD_SCENARIOS asks for another
// number of them.
func TestNativeRandom(t *testing.T) {
	hammer.Alone(t)
	n := hammer.Count(50)
	if s, err := strconv.Atoi(os.Getenv("MAPD_SCENARIOS")); err == nil {
		n = s
	}
	types := openapi.New(openapi.Builtin())
	exact, differ, behind := 0, 0, 0
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 4))
		var ms []*legacy.Mutator
		for i := range 1 + r.IntN(3) {
			if m, err := legacy.Decode(randomMutator(r, string(rune('a'+i)))); err == nil {
				ms = append(ms, m)
			}
		}
		units := translate.Native(ms, translate.Options{Types: types, Patch: []string{"auto", "auto", "json", "apply"}[r.IntN(4)], Readable: r.IntN(3) == 0})
		for _, u := range units {
			switch {
			case u.Policy == nil:
				behind++
			case strings.Contains(verdicts(units), ": differs"):
				differ++
			default:
				exact++
			}
		}
		v := verify.New(ms, units, verify.Options{Types: types})
		v.CheckGenerated(t.Context(), seed, 60)
		for _, c := range v.Comparisons() {
			if c.Invalid != "" || c.Unexpected() {
				t.Errorf("seed %d: %s: %s", seed, c.Name, c.Invalid)
				if c.First != nil {
					t.Log(migrate.Show(c.First))
				}
				for _, f := range migrate.Files(units, "") {
					t.Logf("%s", f.Data)
				}
				return
			}
		}
	}
	if t.Logf("%d policies are exact, %d differ, %d mutators or groups have none", exact, differ, behind); n >= 50 && exact == 0 {
		t.Error("no policy is exact")
	}
}

func randomMutator(r *rand.Rand, name string) *unstructured.Unstructured {
	of := kinds[r.IntN(len(kinds))]
	group, rest, _ := strings.Cut(of, "/")
	version, kind, _ := strings.Cut(rest, ", Kind=")
	gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	text := locations[of][r.IntN(len(locations[of]))]
	template, typ, _ := strings.Cut(text, " = ")
	location, key := "", any(nil)
	var prefixes []string
	for i, part := range strings.Split(template, "[") {
		if i > 0 {
			selector, after, _ := strings.Cut(part, "]")
			field, keys, _ := strings.Cut(selector, ": ")
			all := strings.Fields(keys)
			chosen := all[r.IntN(len(all))]
			key = chosen
			if r.IntN(2) == 0 && after != "" {
				chosen = "*"
			} else if _, err := strconv.Atoi(chosen); err != nil {
				chosen = strconv.Quote(chosen)
			}
			location += fmt.Sprintf("[%s: %s]", field, chosen)
			prefixes = append(prefixes, location)
			part = after
		}
		if strings.Contains(part, `"`) {
			location += part // a name with a dot or a slash: no prefixes below
			prefixes = append(prefixes, location)
			continue
		}
		for j, f := range strings.Split(part, ".") {
			if f == "" {
				continue
			}
			if location != "" && (j > 0 || i > 0) {
				location += "."
			}
			location += f
			prefixes = append(prefixes, location)
		}
	}
	parameters := map[string]any{}
	m := map[string]any{
		"apiVersion": "mutations.gatekeeper.sh/v1", "kind": "Assign", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"applyTo": []any{map[string]any{
				"groups": []any{gvk.Group}, "versions": []any{gvk.Version}, "kinds": []any{gvk.Kind},
			}},
			"location": location, "parameters": parameters, "match": randomMatch(r),
		},
	}
	var tests []any
	for range r.IntN(3) {
		tests = append(tests, map[string]any{
			"subPath": prefixes[r.IntN(len(prefixes))], "condition": []string{"MustExist", "MustNotExist"}[r.IntN(2)],
		})
	}
	if len(tests) > 0 {
		parameters["pathTests"] = tests
	}
	set := func(values ...any) {
		m["kind"] = "ModifySet"
		parameters["operation"] = []string{"merge", "prune"}[r.IntN(2)]
		parameters["values"] = map[string]any{"fromList": values[:1+r.IntN(len(values))]}
	}
	assign := func(v any) { parameters["assign"] = map[string]any{"value": v} }
	switch typ {
	case "bool":
		assign(r.IntN(2) == 0)
	case "int":
		assign(int64(r.IntN(3) * 1000))
	case "string":
		if r.IntN(5) == 0 {
			parameters["assign"] = map[string]any{"fromMetadata": map[string]any{"field": []string{"name", "namespace"}[r.IntN(2)]}}
		} else {
			assign([]string{"x", "a\"b", ""}[r.IntN(3)])
		}
	case "list":
		if r.IntN(2) == 0 {
			assign([]any{"x", "y"})
		} else {
			set("x", "y", "x")
		}
	case "ints":
		set(int64(1), int64(2))
	case "image":
		m["kind"], m["apiVersion"] = "AssignImage", "mutations.gatekeeper.sh/v1alpha1"
		for part, value := range map[string]string{"assignDomain": "my.reg", "assignPath": "a/b", "assignTag": ":v1"} {
			if r.IntN(2) == 0 {
				parameters[part] = value
			}
		}
	case "{nameservers: list}":
		assign(map[string]any{"nameservers": []any{"10.0.0.1"}, "options": []any{map[string]any{"name": "x"}}})
	case "{key: list}":
		set(map[string]any{"key": "a"}, map[string]any{"key": "b", "operator": "Exists"})
	case "{name: key}":
		assign(map[string]any{"name": key, "value": "v"})
	case "{name: key, image: string}":
		assign(map[string]any{"name": key, "image": "i", "args": []any{"x"}, "resources": map[string]any{"limits": map[string]any{"cpu": "1"}}})
	case "{key: key, operator: string}":
		assign(map[string]any{"key": key, "operator": "Exists"})
	}
	return &unstructured.Unstructured{Object: m}
}

func randomMatch(r *rand.Rand) map[string]any {
	m := map[string]any{}
	add := func(name string, values ...any) {
		if r.IntN(6) == 0 {
			m[name] = values[r.IntN(len(values))]
		}
	}
	add("scope", "Namespaced", "*", "namespaced")
	add("namespaces", []any{"team-a"}, []any{"team-*", "*-system"})
	add("excludedNamespaces", []any{"team-a", "*b*"}, []any{"kube-system"})
	add("name", "web", "w*", "*b", "*e*")
	add("labelSelector",
		map[string]any{"matchLabels": map[string]any{"app": "x", "example.com/t": ""}},
		map[string]any{"matchExpressions": []any{
			map[string]any{"key": "app", "operator": "NotIn", "values": []any{"x", ""}},
			map[string]any{"key": "other", "operator": "DoesNotExist"},
		}})
	add("namespaceSelector", map[string]any{"matchLabels": map[string]any{"env": "prod"}})
	return m
}
