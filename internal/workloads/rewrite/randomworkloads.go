package rewrite

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// generator makes workloads for comparisons. Each field of a Pod that policies often read is set
// or not, to usual values or to values that the policy mentions.
type generator struct {
	*rand.Rand
	words []string // that the policy mentions
}

// mentioned returns the string literals of a policy's expressions, the last steps of
// those that are paths, and the labels that it selects.
func mentioned(p *unstructured.Unstructured) []string {
	var out []string
	spec, _ := p.Object["spec"].(map[string]any)
	var read func(v any)
	read = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if text, ok := v["expression"].(string); ok {
				all, _ := syntax.Strings(text) // it was parsed before
				for _, s := range all {
					out = append(out, s, s[strings.LastIndex(s, "/")+1:])
				}
			}
			for _, e := range v {
				read(e)
			}
		case []any:
			for _, e := range v {
				read(e)
			}
		}
	}
	for _, part := range []api.Part{api.MatchConditions, api.Variables, api.Mutations} {
		read(spec[string(part)])
	}
	selector, _, _ := unstructured.NestedMap(p.Object, "spec", "matchConstraints", "objectSelector")
	labels, _ := selector["matchLabels"].(map[string]any)
	for key, v := range labels {
		value, _ := v.(string)
		out = append(out, key, value)
	}
	requirements, _ := selector["matchExpressions"].([]any)
	for _, r := range requirements {
		r, _ := r.(map[string]any)
		key, _ := r["key"].(string)
		out = append(out, append(words(r["values"]), key)...)
	}
	slices.Sort(out) // the fields of a map have no order
	out = slices.DeleteFunc(slices.Compact(out), func(s string) bool { return len(s) > 200 || strings.ContainsAny(s, " \t\n{}[]") })
	return append(out, "web", "app")
}

// Namespace returns a Namespace that the selectors of a policy and its bindings select,
// as far as that is easy, and that has the labels which the policy mentions.
func Namespace(p *unstructured.Unstructured, bindings ...*unstructured.Unstructured) *unstructured.Unstructured {
	labels := map[string]any{}
	for _, word := range mentioned(p) {
		if len(validation.IsQualifiedName(word)) == 0 {
			labels[word] = "generated"
		}
	}
	for _, u := range append([]*unstructured.Unstructured{p}, bindings...) {
		for _, match := range []string{"matchConstraints", "matchResources"} {
			selector, _, _ := unstructured.NestedMap(u.Object, "spec", match, "namespaceSelector")
			requirements, _ := selector["matchExpressions"].([]any)
			for _, r := range requirements {
				r, _ := r.(map[string]any)
				key, _ := r["key"].(string)
				switch values := words(r["values"]); r["operator"] {
				case "In":
					labels[key] = values[0]
				case "Exists":
					labels[key] = "generated"
				case "NotIn", "DoesNotExist":
					delete(labels, key)
				}
			}
			exact, _ := selector["matchLabels"].(map[string]any)
			maps.Copy(labels, exact)
		}
	}
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"labels": labels}}}
	ns.SetName("selected")
	return ns
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// word returns a text that the policy may look for.
func (g *generator) word() string { return pick(g, g.words...) }

// label returns a text that is valid in a label and as a name.
func (g *generator) label() string {
	for range 4 {
		if w := g.word(); w != "" && len(w) < 60 && strings.Trim(w, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && !strings.HasPrefix(w, "-") && !strings.HasSuffix(w, "-") {
			return w
		}
	}
	return pick(g, "web", "app", "x")
}

// kinds are those of the workloads that are generated.
var kinds = []struct{ apiVersion, kind string }{
	{"apps/v1", "Deployment"}, {"apps/v1", "StatefulSet"}, {"apps/v1", "DaemonSet"}, {"batch/v1", "Job"}, {"batch/v1", "CronJob"},
}

// workload makes the nth workload.
func (g *generator) workload(n int, namespace string) *unstructured.Unstructured {
	kind := kinds[n%len(kinds)]
	template := map[string]any{"spec": g.pod(kind.kind == "Job" || kind.kind == "CronJob")}
	meta := map[string]any{}
	for _, name := range []string{"labels", "annotations"} {
		if g.chance(65) {
			meta[name] = g.texts()
		}
	}
	if len(meta) > 0 {
		template["metadata"] = meta
	}
	selector := map[string]any{"matchLabels": map[string]any{"app": "web"}}
	spec := map[string]any{"template": template}
	switch kind.kind {
	case "Deployment", "DaemonSet":
		spec["selector"] = selector
	case "StatefulSet":
		spec["selector"], spec["serviceName"] = selector, "web"
	case "CronJob":
		spec = map[string]any{"schedule": "0 4 * * *", "jobTemplate": map[string]any{"spec": spec}}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": kind.apiVersion, "kind": kind.kind, "spec": spec}}
	u.SetName(fmt.Sprintf("generated-%d", n+1))
	u.SetNamespace(namespace)
	return u
}

// texts makes labels or annotations.
func (g *generator) texts() map[string]any {
	out := map[string]any{}
	for range g.IntN(4) {
		key := strings.ReplaceAll(g.word(), "~1", "/")
		if key == "" || len(key) > 60 || strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") != "" {
			key = "app"
		}
		out[key] = pick(g, g.label(), "true", "false", "")
	}
	return out
}

// maybe sets fields, each or not.
func (g *generator) maybe(percent int, to map[string]any, field string, values ...any) {
	if g.chance(percent) {
		to[field] = pick(g, values...)
	}
}

func (g *generator) pod(finishes bool) map[string]any {
	spec := map[string]any{"containers": g.containers(1 + g.IntN(3))}
	if finishes {
		spec["restartPolicy"] = pick(g, "Never", "OnFailure")
	}
	if g.chance(30) {
		spec["initContainers"] = g.containers(1 + g.IntN(2))
	}
	for _, field := range []string{"hostNetwork", "hostPID", "hostIPC", "automountServiceAccountToken", "enableServiceLinks", "shareProcessNamespace", "hostUsers"} {
		g.maybe(20, spec, field, true, false)
	}
	g.maybe(40, spec, "serviceAccountName", "default", g.label())
	g.maybe(30, spec, "nodeSelector", map[string]any{}, g.texts(), map[string]any{"kubernetes.io/os": "linux"})
	g.maybe(20, spec, "priorityClassName", "high", g.label())
	g.maybe(20, spec, "runtimeClassName", g.label())
	g.maybe(20, spec, "schedulerName", "default-scheduler", g.label())
	g.maybe(20, spec, "dnsPolicy", "ClusterFirst", "Default", "None")
	g.maybe(20, spec, "terminationGracePeriodSeconds", int64(0), int64(30), int64(120))
	g.maybe(20, spec, "imagePullSecrets", []any{}, []any{map[string]any{"name": g.label()}})
	g.maybe(30, spec, "tolerations", []any{}, []any{map[string]any{"key": g.label(), "operator": "Exists"}},
		[]any{map[string]any{"key": g.label(), "operator": "Equal", "value": g.label(), "effect": "NoSchedule"}})
	g.maybe(20, spec, "topologySpreadConstraints", []any{}, []any{map[string]any{
		"maxSkew": int64(1), "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}})
	g.maybe(20, spec, "affinity", map[string]any{}, map[string]any{"nodeAffinity": map[string]any{}})
	if g.chance(40) {
		spec["volumes"] = []any{map[string]any{"name": g.label(), "emptyDir": map[string]any{}}, map[string]any{"name": "host", "hostPath": map[string]any{"path": "/"}}}[g.IntN(2):]
	}
	if g.chance(50) {
		context := map[string]any{}
		g.maybe(50, context, "runAsNonRoot", true, false)
		g.maybe(40, context, "runAsUser", int64(0), int64(1000))
		g.maybe(30, context, "fsGroup", int64(0), int64(1000))
		g.maybe(30, context, "seccompProfile", map[string]any{"type": "RuntimeDefault"}, map[string]any{"type": "Unconfined"})
		spec["securityContext"] = context
	}
	return spec
}

func (g *generator) containers(n int) []any {
	var out []any
	for i := range n {
		c := map[string]any{"name": fmt.Sprintf("c%d", i), "image": pick(g, "nginx", "nginx:1.27", "nginx:latest", "registry.example/web@sha256:"+strings.Repeat("a", 64), g.label(), g.word()+"web:1")}
		if g.chance(25) {
			c["name"] = g.label()
		}
		g.maybe(40, c, "imagePullPolicy", "Always", "IfNotPresent", "Never")
		g.maybe(30, c, "command", []any{"sh"}, []any{})
		g.maybe(30, c, "args", []any{g.word()}, []any{"a", "b"})
		g.maybe(30, c, "ports", []any{map[string]any{"containerPort": int64(80)}}, []any{map[string]any{"name": "http", "containerPort": int64(8080), "protocol": "TCP"}})
		g.maybe(40, c, "env", []any{}, []any{map[string]any{"name": "A", "value": g.word()}}, []any{map[string]any{"name": pick(g, "TZ", strings.ToUpper(strings.ReplaceAll(g.label(), "-", "_"))), "value": "x"}})
		g.maybe(30, c, "volumeMounts", []any{}, []any{map[string]any{"name": g.label(), "mountPath": "/x"}})
		if g.chance(60) {
			resources := map[string]any{}
			g.maybe(60, resources, "limits", map[string]any{"cpu": "1"}, map[string]any{"cpu": "1", "memory": "1Gi"}, map[string]any{})
			g.maybe(60, resources, "requests", map[string]any{"cpu": "500m"}, map[string]any{"memory": "1Gi"}, map[string]any{})
			c["resources"] = resources
		}
		if g.chance(60) {
			context := map[string]any{}
			for _, field := range []string{"privileged", "allowPrivilegeEscalation", "readOnlyRootFilesystem", "runAsNonRoot"} {
				g.maybe(40, context, field, true, false)
			}
			g.maybe(30, context, "runAsUser", int64(0), int64(1000))
			g.maybe(40, context, "capabilities", map[string]any{}, map[string]any{"drop": []any{"ALL"}}, map[string]any{"add": []any{"NET_ADMIN", "NET_BIND_SERVICE"}})
			g.maybe(30, context, "seccompProfile", map[string]any{"type": "RuntimeDefault"}, map[string]any{"type": "Unconfined"})
			c["securityContext"] = context
		}
		out = append(out, c)
	}
	return out
}
