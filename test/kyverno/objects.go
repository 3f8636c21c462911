package kyverno

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/author/verify"
)

// pool is what a policy is about: objects of its kinds have some of it.
type pool struct {
	kinds   []schema.GroupVersionKind
	labels  map[string][]string // and annotations
	names   []string
	patches []map[string]any
	images  []string
	configs []config
}

// config is a ConfigMap that a policy reads, with the keys that it asks for.
type config struct {
	namespace, name string // namespace may have a variable
	keys            []string
}

// poolOf collects what a policy mentions.
func poolOf(policy map[string]any, kinds []schema.GroupVersionKind) *pool {
	p := &pool{
		kinds: kinds, labels: map[string][]string{"app": {"web", "other"}},
		names:  []string{"web", "default", "kube-system"},
		images: []string{"nginx", "nginx:1.27", "docker.io/library/nginx:latest", "corp.reg.com/app:1", "registry.example.com:5000/a/b@sha256:0000000000000000000000000000000000000000000000000000000000000000", "localhost/x", "team/app:v2", "nginx:1@sha256:0000000000000000000000000000000000000000000000000000000000000000", "Host/a/b"},
	}
	p.collect(policy)
	data, err := json.Marshal(policy)
	if err != nil {
		return p
	}
	for i := range p.configs {
		c := &p.configs[i]
		entry := c.keys[0]
		c.keys = nil
		for _, m := range regexp.MustCompile(`\b`+regexp.QuoteMeta(entry)+`\.data\.(?:\\+"([^"\\]+)\\+"|(\w+))`).FindAllStringSubmatch(string(data), -1) {
			c.keys = append(c.keys, m[1]+m[2])
		}
	}
	return p
}

func bare(key string) string {
	if i := strings.IndexByte(key, '('); i >= 0 && i <= 1 && strings.HasSuffix(key, ")") {
		return key[i+1 : len(key)-1]
	}
	return key
}

func (p *pool) collect(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			switch bare(k) {
			case "matchLabels", "labels", "annotations":
				if m, ok := e.(map[string]any); ok {
					for key, value := range m {
						key = concrete(bare(key))
						if strings.Contains(key, "{{") || strings.Contains(fmt.Sprint(value), "{{") {
							continue // Kyverno evaluates {{ }} in objects, row kyverno-templates of compat.md
						}
						p.labels[key] = append(p.labels[key], concrete(fmt.Sprint(value)))
					}
				}
			case "matchExpressions":
				if l, ok := e.([]any); ok {
					for _, each := range l {
						m, _ := each.(map[string]any)
						key, _ := m["key"].(string)
						values, _ := m["values"].([]any)
						p.labels[key] = append(p.labels[key], "other")
						for _, value := range values {
							p.labels[key] = append(p.labels[key], fmt.Sprint(value))
						}
					}
				}
			case "names", "namespaces":
				if l, ok := e.([]any); ok {
					for _, each := range l {
						p.names = append(p.names, concrete(fmt.Sprint(each)))
					}
				}
			case "name":
				if s, ok := e.(string); ok && !strings.ContainsAny(s, "*?{ ") {
					p.names = append(p.names, s)
				}
			case "image":
				if s, ok := e.(string); ok && !strings.Contains(s, "{") {
					p.images = append(p.images, concrete(s))
				}
			case "configMap":
				if m, ok := e.(map[string]any); ok {
					entry, _ := v["name"].(string)
					namespace, _ := m["namespace"].(string)
					p.configs = append(p.configs, config{namespace, fmt.Sprint(m["name"]), []string{entry}})
				}
			case "patchStrategicMerge":
				if m, ok := e.(map[string]any); ok {
					p.patches = append(p.patches, m)
				}
			case "key", "list":
				if s, ok := e.(string); ok {
					p.mentioned(s)
				}
			}
			p.collect(e)
		}
	case []any:
		for _, e := range v {
			p.collect(e)
		}
	}
}

// concrete returns a text that a pattern matches, or just not: of alternatives the first.
func concrete(pattern string) string {
	first, _, _ := strings.Cut(pattern, "|")
	first, _, _ = strings.Cut(first, "&")
	return strings.NewReplacer("*", "x", "?", "y").Replace(strings.TrimPrefix(strings.TrimSpace(first), "!"))
}

// mentioned finds annotations and labels in an expression.
func (p *pool) mentioned(s string) {
	for _, part := range []string{`annotations."`, `labels."`} {
		if _, rest, ok := strings.Cut(s, part); ok {
			key, _, _ := strings.Cut(rest, `"`)
			p.labels[key] = append(p.labels[key], "enabled", "x", "")
		}
	}
}

type generator struct {
	*rand.Rand
	*pool
}

func (g *generator) chance(p int) bool { return g.IntN(100) < p }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// object returns a random object that the policy may be about; nil if a server would refuse it.
func (p *pool) object(seed uint64, i int) *Request {
	g := &generator{rand.New(rand.NewPCG(seed, uint64(i))), p}
	gvk := pick(g, p.kinds...)
	if g.chance(3) {
		gvk = pick(g, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	}
	obj := verify.Skeleton(gvk)
	u := &unstructured.Unstructured{Object: obj}
	u.SetName(pick(g, p.names...))
	if g.chance(15) {
		u.SetGenerateName(u.GetName())
		u.SetName("")
	}
	u.SetLabels(g.some(u.GetLabels()))
	u.SetAnnotations(g.some(nil))
	for _, at := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}} {
		if t, ok, _ := unstructured.NestedMap(obj, at...); ok {
			tu := &unstructured.Unstructured{Object: t}
			tu.SetLabels(g.some(tu.GetLabels()))
			tu.SetAnnotations(g.some(nil))
			if spec, ok := t["spec"].(map[string]any); ok {
				g.pod(spec)
			}
			_ = unstructured.SetNestedMap(obj, t, at...)
		}
	}
	if spec, ok := obj["spec"].(map[string]any); ok && gvk.Kind == "Pod" {
		g.pod(spec)
	}
	for _, patch := range p.patches {
		if g.chance(50) {
			g.blend(obj, patch)
		}
	}
	if spec, ok := obj["spec"].(map[string]any); ok && gvk.Kind == "Ingress" {
		g.ingress(spec)
	}
	r := &Request{Operation: "CREATE", User: "alice", Groups: []string{"dev", "system:authenticated"}, NamespaceLabels: map[string]string{}}
	if g.chance(20) {
		r.User, r.Groups = "system:serviceaccount:shop:deployer", []string{"system:authenticated"}
	}
	res, ok := types.ResourceFor(gvk)
	if ok && res.Namespaced {
		u.SetNamespace(pick(g, append([]string{"default", "kube-system", "shop"}, p.names...)...))
		if labels := g.some(map[string]string{}); labels != nil {
			r.NamespaceLabels = labels
		}
		r.NamespaceLabels["kubernetes.io/metadata.name"] = u.GetNamespace()
	}
	for _, c := range p.configs {
		namespace := c.namespace
		if strings.Contains(namespace, "{{") {
			namespace = u.GetNamespace()
		}
		if !g.chance(95) {
			continue
		}
		data := map[string]string{}
		for _, key := range c.keys {
			if g.chance(85) {
				name := pick(g, p.names...)
				data[key] = pick(g, name, name, `["`+name+`", "x"]`, "")
			}
		}
		if r.ConfigMaps == nil {
			r.ConfigMaps = map[string]map[string]string{}
		}
		r.ConfigMaps[cmp.Or(namespace, "default")+"/"+c.name] = data
	}
	kind, err := types.Kind(gvk)
	if err != nil {
		return nil
	}
	obj, err = kind.Normalize(plain(obj))
	if err != nil {
		return nil
	}
	if !admissible(obj) {
		return nil
	}
	if g.chance(50) {
		obj = verify.Defaulted(obj)
	}
	r.Object = plain(obj)
	if g.chance(30) && metadataOf(obj)["name"] != nil { // what is updated has a name
		r.Operation, r.OldObject = "UPDATE", plain(obj)
	}
	return r
}

func metadataOf(obj map[string]any) map[string]any {
	m, _ := obj["metadata"].(map[string]any)
	return m
}

// keysOf are lists whose elements have a key. A server refuses some with equal or empty keys, and
// warns of others (env, ports); Kyverno joins those, row kyverno-same-keys of compat.md.
var keysOf = map[string]string{
	"containers": "name", "initContainers": "name", "ephemeralContainers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath", "imagePullSecrets": "name", "ports": "containerPort", "hostAliases": "ip", "topologySpreadConstraints": "topologyKey",
}

// admissible reports whether a server does not refuse the object for what matters here.
func admissible(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if l, ok := e.([]any); ok && keysOf[k] != "" {
				seen := map[string]bool{}
				for _, each := range l {
					m, _ := each.(map[string]any)
					if _, ok := m["image"].(string); !ok && (k == "containers" || k == "initContainers") {
						return false
					}
					key := fmt.Sprint(m[keysOf[k]])
					if m[keysOf[k]] == nil || key == "" || k == "topologySpreadConstraints" && m["whenUnsatisfiable"] == "" || seen[key] {
						return false
					}
					seen[key] = true
				}
			}
			if !admissible(e) {
				return false
			}
		}
	case []any:
		for _, e := range v {
			if !admissible(e) {
				return false
			}
		}
	}
	return true
}

// some returns labels with some of the pool.
func (g *generator) some(m map[string]string) map[string]string {
	if m == nil && g.chance(40) {
		return nil
	}
	out := map[string]string{}
	for k, v := range m {
		out[k] = v
	}
	keys := make([]string, 0, len(g.labels))
	for k := range g.labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if k == "" || !g.chance(45) {
			continue
		}
		v := pick(g, append([]string{"other", ""}, g.labels[k]...)...)
		if len(g.labels[k]) > 0 && g.chance(60) {
			v = pick(g, g.labels[k]...)
		}
		out[k] = v
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// pod fills in a Pod's spec at random.
func (g *generator) pod(spec map[string]any) {
	containers := []any{}
	used := map[string]bool{}
	for n := range 1 + g.IntN(3) {
		containers = append(containers, g.container(n, used))
	}
	spec["containers"] = containers
	if g.chance(50) {
		spec["initContainers"] = []any{g.container(5, used)}
		if g.chance(30) {
			spec["initContainers"] = append(spec["initContainers"].([]any), g.container(6, used))
		}
	}
	if g.chance(65) {
		volumes := []any{}
		for n := range 1 + g.IntN(4) {
			v := map[string]any{"name": pick(g, "kube-api-access-x", "data", "vol") + fmt.Sprint(n)}
			if g.chance(10) {
				v["name"] = pick(g, g.names...) + fmt.Sprint(n)
			}
			switch g.IntN(6) {
			case 0:
				v["emptyDir"] = map[string]any{}
			case 1:
				v["emptyDir"] = map[string]any{"sizeLimit": "1Gi", "medium": "Memory"}
			case 2:
				v["hostPath"] = map[string]any{"path": pick(g, "/", "/var/run", "")}
			case 3:
				v["persistentVolumeClaim"] = map[string]any{"claimName": "c"}
			case 4:
				v["projected"] = map[string]any{"sources": []any{map[string]any{"serviceAccountToken": map[string]any{"path": "token"}}}}
			default:
				v["configMap"] = map[string]any{"name": "cm"}
			}
			volumes = append(volumes, v)
		}
		spec["volumes"] = volumes
	}
	maybe := func(p int, field string, values ...any) {
		if g.chance(p) {
			spec[field] = pick(g, values...)
		}
	}
	maybe(30, "dnsPolicy", "ClusterFirst", "Default", "None", "ClusterFirstWithHostNet")
	maybe(30, "terminationGracePeriodSeconds", int64(0), int64(30), int64(50), int64(51), int64(300))
	maybe(30, "nodeSelector", map[string]any{"foo": "x"}, map[string]any{"disk": "ssd"})
	maybe(30, "tolerations", []any{map[string]any{"key": "org.com/role", "operator": "Exists"}}, []any{map[string]any{"operator": "Exists"}})
	maybe(30, "imagePullSecrets", []any{map[string]any{"name": "other"}}, []any{map[string]any{"name": "other"}, map[string]any{"name": "my-secret"}})
	maybe(20, "hostNetwork", true)
	maybe(30, "securityContext", map[string]any{}, map[string]any{"runAsUser": int64(0)}, map[string]any{"runAsNonRoot": false, "fsGroup": int64(5)})
	maybe(20, "dnsConfig", map[string]any{}, map[string]any{"options": []any{map[string]any{"name": "ndots", "value": "5"}}})
	maybe(20, "affinity", map[string]any{}, map[string]any{"podAntiAffinity": map[string]any{}}, map[string]any{"nodeAffinity": map[string]any{}})
	maybe(15, "priorityClassName", "high")
	maybe(15, "serviceAccountName", "sa")
	maybe(15, "automountServiceAccountToken", true, false)
}

func (g *generator) container(n int, used map[string]bool) map[string]any {
	name := pick(g, append([]string{"web", "app", "a", "vault-agent"}, g.names...)...)
	if used[name] {
		name = fmt.Sprintf("%s-%d", name, n)
	}
	used[name] = true
	c := map[string]any{"name": name, "image": pick(g, g.images...)}
	maybe := func(p int, field string, values ...any) {
		if g.chance(p) {
			c[field] = pick(g, values...)
		}
	}
	maybe(30, "imagePullPolicy", "Always", "IfNotPresent")
	maybe(40, "env", []any{map[string]any{"name": "A", "value": "1"}}, []any{map[string]any{"name": "HTTP_PROXY", "value": "x"}, map[string]any{"name": "B", "value": "2"}})
	maybe(20, "envFrom", []any{map[string]any{"configMapRef": map[string]any{"name": "old"}}})
	maybe(50, "resources", map[string]any{}, map[string]any{"requests": map[string]any{"memory": "1Gi", "cpu": "1"}}, map[string]any{"limits": map[string]any{"memory": "2Gi", "ephemeral-storage": "1Gi"}},
		map[string]any{"requests": map[string]any{"cpu": "1", "ephemeral-storage": "2Gi", "memory": "1Gi"}, "limits": map[string]any{"memory": "2Gi"}})
	maybe(50, "securityContext", map[string]any{}, map[string]any{"privileged": true}, map[string]any{"capabilities": map[string]any{}},
		map[string]any{"capabilities": map[string]any{"add": []any{"NET_ADMIN"}, "drop": []any{"SETUID"}}}, map[string]any{"capabilities": map[string]any{"drop": []any{"ALL"}}, "runAsNonRoot": true})
	maybe(50, "volumeMounts", []any{map[string]any{"name": "data0", "mountPath": "/data"}}, []any{map[string]any{"name": "vol1", "mountPath": "/v"}, map[string]any{"name": "kube-api-access-x0", "mountPath": "/t"}},
		[]any{map[string]any{"name": "x", "mountPath": "/secret"}, map[string]any{"name": "y", "mountPath": "/etc/ssl/certs"}})
	maybe(30, "ports", []any{map[string]any{"containerPort": int64(80)}})
	return c
}

func (g *generator) ingress(spec map[string]any) {
	if g.chance(80) {
		spec["rules"] = []any{map[string]any{"host": pick(g, "a.old.com", "b.new.com", "")}}
	}
	if g.chance(60) {
		spec["tls"] = []any{map[string]any{"hosts": []any{"a.old.com", "x"}, "secretName": "s.old.com"}}
	}
}

// blend puts parts of a patch into an object, some of them changed, so that the policy finds them
// there.
func (g *generator) blend(obj, patch map[string]any) {
	keys := make([]string, 0, len(patch))
	for k := range patch {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, key := range keys {
		name := bare(key)
		if strings.Contains(name, "{{") || strings.HasPrefix(key, "=(") || strings.HasPrefix(key, "X(") || strings.HasPrefix(key, "^(") || !g.chance(70) {
			continue
		}
		switch v := patch[key].(type) {
		case map[string]any:
			inner, ok := obj[name].(map[string]any)
			if !ok {
				if obj[name] != nil {
					continue
				}
				inner = map[string]any{}
			}
			g.blend(inner, v)
			if len(inner) > 0 || g.chance(30) {
				obj[name] = inner
			}
		case []any:
			have, _ := obj[name].([]any)
			for _, e := range v {
				m, ok := e.(map[string]any)
				if !ok {
					if g.chance(50) && !slices.Contains(have, e) {
						have = append(slices.Clone(have), e)
					}
					continue
				}
				if len(have) > 0 && g.chance(60) {
					if into, ok := have[g.IntN(len(have))].(map[string]any); ok {
						saved := into["name"]
						g.blend(into, m)
						if saved != nil {
							into["name"] = saved
						}
					}
					continue
				}
				fresh := map[string]any{}
				g.blend(fresh, m)
				if len(fresh) > 0 {
					have = append(slices.Clone(have), fresh)
				}
			}
			if have != nil {
				obj[name] = have
			}
		case string:
			if strings.Contains(v, "{{") {
				continue
			}
			v = concrete(v)
			obj[name] = pick(g, v, v, v+"x")
		case int64:
			obj[name] = pick(g, v, v, v+1)
		case bool:
			obj[name] = pick(g, v, v, !v)
		}
	}
}
