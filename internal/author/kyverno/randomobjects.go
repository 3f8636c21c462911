package kyverno

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/kyverno/convert"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Objects generates objects for a policy.
type Objects struct {
	*literals
	// ConfigMaps has the data of the ConfigMaps that the rules read, by namespace/name. Some are
	// missing.
	ConfigMaps map[string]map[string]string
}

// NewObjects returns a generator of objects of some kinds for a policy. The containers may also
// have the given images.
func NewObjects(p *policy.Policy, types *openapi.Types, kinds []schema.GroupVersionKind, images ...string) *Objects {
	l := literalsOf(p, types, kinds)
	l.images = append(l.images, images...)
	return &Objects{l, configMapsOf(p, l)}
}

// Object returns the object with number i, which is always the same for the same seed. It has
// none if a server would not accept it. It is not safe for concurrent use.
func (o *Objects) Object(seed uint64, i int) verify.Object { return o.object(seed, i) }

// literals has the texts, labels, names and fields in a policy. Generated objects have some of
// them.
type literals struct {
	types         *openapi.Types
	kinds         []schema.GroupVersionKind
	labels        map[string][]string // and annotations
	names         []string
	namespaces    []string // those that rules match or exclude
	images        []string
	users, groups []string
	patches       []map[string]any
	paths         [][]string // fields that expressions name
	values        []any      // what they are compared with

	keys           []string            // of labels, sorted
	choices        map[string][]string // what labels and annotations have
	containerNames []string
	otherNames     []string               // of namespaces
	scalars        map[scalarField]string // what scalarAt returned
	takes          map[string]bool        // whether a server takes a text as the value of a label
}

// scalarField is one of the paths, in a kind.
type scalarField struct {
	gvk  schema.GroupVersionKind
	path int
}

// literalsOf collects what a policy mentions. Kinds are those that objects may have.
func literalsOf(p *policy.Policy, types *openapi.Types, kinds []schema.GroupVersionKind) *literals {
	l := &literals{
		types: types, kinds: kinds, labels: map[string][]string{"app": {"web", "other"}},
		names: []string{"web", "default", "kube-system"}, users: []string{""},
		images: []string{
			"nginx", "nginx:1.27", "docker.io/library/nginx:latest", "localhost/x", "corp.example.com/app:1",
			"registry.example.com:5000/a/b@sha256:" + strings.Repeat("0", 64),
		},
		values:  []any{"", "other"},
		scalars: map[scalarField]string{}, takes: map[string]bool{},
	}
	if p.CEL != nil {
		l.collectCEL(p)
	} else {
		data, err := json.Marshal(p.Rules)
		var v any
		if err == nil && json.Unmarshal(data, &v) == nil {
			l.collect(v)
		}
	}
	l.keys = slices.Sorted(maps.Keys(l.labels))
	l.choices = map[string][]string{}
	for _, k := range l.keys {
		l.choices[k] = append([]string{"other", ""}, l.labels[k]...)
	}
	l.containerNames = append([]string{"web", "app", "a"}, l.names...)
	l.otherNames = append([]string{"default", "kube-system", "shop"}, l.names...)
	return l
}

// concrete turns a pattern into a text that matches it, or that just does not.
var concrete = pattern{strings.NewReplacer("?*", "any", "*", "x", "?", "y")}

type pattern struct{ wildcards *strings.Replacer }

func (p pattern) Replace(s string) string {
	first, _, _ := strings.Cut(s, "|")
	first, _, _ = strings.Cut(first, "&")
	return p.wildcards.Replace(strings.TrimPrefix(strings.TrimSpace(first), "!"))
}

// bare returns the name of a field without its anchor.
func bare(key string) string {
	if i := strings.IndexByte(key, '('); (i == 0 || i == 1) && strings.HasSuffix(key, ")") {
		return key[i+1 : len(key)-1]
	}
	return key
}

var (
	fieldPath   = regexp.MustCompile(`request\.object((?:\.(?:[A-Za-z][A-Za-z0-9]*|"[^"]*"))+)`)
	fieldStep   = regexp.MustCompile(`\.([A-Za-z][A-Za-z0-9]*|"[^"]*")`)
	rawText     = regexp.MustCompile(`'([^'{}]*)'`)
	hasVariable = func(s string) bool { return strings.Contains(s, "{{") }
)

func (l *literals) collect(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			e := v[k]
			l.field(bare(k), e)
			l.collect(e)
		}
	case []any:
		for _, e := range v {
			l.collect(e)
		}
	case string:
		for _, m := range fieldPath.FindAllStringSubmatch(v, -1) {
			var path []string
			for _, step := range fieldStep.FindAllStringSubmatch(m[1], -1) {
				path = append(path, strings.Trim(step[1], `"`))
			}
			l.mentions(path)
		}
		for _, m := range rawText.FindAllStringSubmatch(v, -1) {
			l.values = append(l.values, m[1])
		}
	}
}

// mentions collects a field that an expression names.
func (l *literals) mentions(path []string) {
	known := slices.ContainsFunc(l.paths, func(p []string) bool { return slices.Equal(p, path) })
	if known || path[0] == "apiVersion" || path[0] == "kind" {
		return
	}
	l.paths = append(l.paths, path)
	if n := len(path); n >= 3 && path[n-3] == "metadata" {
		l.labels[path[n-1]] = append(l.labels[path[n-1]], "x", "")
	}
}

// field collects the literals in one field of a policy.
func (l *literals) field(name string, v any) {
	all, _ := v.([]any)
	m, _ := v.(map[string]any)
	s, isText := v.(string)
	switch name {
	case "matchLabels", "labels", "annotations":
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if key := bare(k); !hasVariable(key) {
				key = concrete.Replace(key)
				value := fmt.Sprint(m[k])
				if hasVariable(value) {
					value = "x" // Kyverno evaluates what an object has
				}
				l.labels[key] = append(l.labels[key], concrete.Replace(value))
			}
		}
	case "matchExpressions":
		for _, e := range all {
			m, _ := e.(map[string]any)
			key, _ := m["key"].(string)
			values, _ := m["values"].([]any)
			l.labels[key] = append(l.labels[key], "other")
			for _, value := range values {
				l.labels[key] = append(l.labels[key], fmt.Sprint(value))
			}
		}
	case "names", "namespaces":
		for _, e := range all {
			l.names = append(l.names, concrete.Replace(fmt.Sprint(e)))
			if name == "namespaces" {
				l.namespaces = append(l.namespaces, concrete.Replace(fmt.Sprint(e)))
			}
		}
	case "name":
		if isText && !strings.ContainsAny(s, "*?{ ") {
			l.names = append(l.names, s)
		}
	case "image":
		if isText && !hasVariable(s) {
			l.images = append(l.images, concrete.Replace(s))
		}
	case "subjects":
		for _, e := range all {
			m, _ := e.(map[string]any)
			name := concrete.Replace(fmt.Sprint(m["name"]))
			switch m["kind"] {
			case "User":
				l.users = append(l.users, name)
			case "Group":
				l.groups = append(l.groups, name)
			case "ServiceAccount":
				l.users = append(l.users, fmt.Sprintf("system:serviceaccount:%v:%s", m["namespace"], name))
			}
		}
	case "patchStrategicMerge":
		if m != nil {
			l.patches = append(l.patches, m)
		}
	case "value", "key":
		for _, e := range append([]any{v}, all...) {
			switch e := e.(type) {
			case string:
				if !hasVariable(e) {
					l.values = append(l.values, concrete.Replace(e))
				}
			case float64:
				l.values = append(l.values, int64(e), int64(e)+1)
			case bool:
				l.values = append(l.values, e, !e)
			}
		}
	}
}

// kindsOf returns the kinds that the policies of a result are about.
func kindsOf(r *convert.Result, types *openapi.Types) (out []schema.GroupVersionKind) {
	known := types.Resources()
	for _, u := range r.Units {
		for _, rule := range u.Policy.Spec.MatchConstraints.ResourceRules {
			for _, k := range known {
				if slices.Contains(rule.APIGroups, k.GVR.Group) && slices.Contains(rule.APIVersions, k.GVR.Version) &&
					slices.Contains(rule.Resources, k.GVR.Resource) && !slices.Contains(out, k.Kind) {
					out = append(out, k.Kind)
				}
			}
		}
	}
	return out
}

// maker generates one object.
type maker struct {
	*rand.Rand
	*literals
}

func (g *maker) chance(p int) bool { return g.IntN(100) < p }

func pick[T any](g *maker, from ...T) T { return from[g.IntN(len(from))] }

// object returns the object with number i, which is always the same for the same seed. If a
// server would not accept it, object tries again a few times.
func (l *literals) object(seed uint64, i int) (o verify.Object) {
	g := &maker{rand.New(rand.NewPCG(seed, uint64(i))), l}
	for range 4 {
		if o = g.object(); o.Object != nil {
			break
		}
	}
	o.Origin = fmt.Sprintf("generated object %d (seed %d)", i+1, seed)
	return o
}

// object returns an object that the policy may be about, or none if a server would refuse it.
func (g *maker) object() verify.Object {
	gvk := pick(g, g.kinds...)
	if g.chance(3) {
		gvk = pick(g, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	}
	obj := verify.Skeleton(gvk)
	u := &unstructured.Unstructured{Object: obj}
	u.SetName(pick(g, g.names...))
	if g.chance(15) {
		u.SetGenerateName(u.GetName())
		u.SetName("")
	}
	u.SetLabels(g.valid(g.some(u.GetLabels())))
	u.SetAnnotations(g.some(nil))
	for _, at := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}} {
		template := below(obj, at...)
		if template == nil {
			continue
		}
		t := &unstructured.Unstructured{Object: template}
		t.SetLabels(g.valid(g.some(t.GetLabels())))
		t.SetAnnotations(g.some(nil))
		if spec, ok := template["spec"].(map[string]any); ok {
			g.pod(spec)
		}
	}
	if spec, ok := obj["spec"].(map[string]any); ok && gvk.Kind == "Pod" {
		g.pod(spec)
	}
	for _, patch := range g.patches {
		if g.chance(50) {
			g.blend(obj, patch)
		}
	}
	for i := range g.paths {
		if g.chance(40) {
			g.set(gvk, obj, i)
		}
	}
	o := verify.Object{Operation: "CREATE", User: pick(g, g.users...)}
	for _, group := range g.groups {
		if g.chance(50) {
			o.Groups = append(o.Groups, group)
		}
	}
	if res, ok := g.types.ResourceFor(gvk); ok && res.Namespaced {
		u.SetNamespace(pick(g, g.otherNames...))
		if len(g.namespaces) > 0 && g.chance(60) { // or few objects are changed
			u.SetNamespace(pick(g, g.namespaces...))
		}
		ns := &unstructured.Unstructured{Object: map[string]any{}}
		ns.SetName(u.GetNamespace())
		ns.SetLabels(g.valid(g.some(map[string]string{})))
		o.Namespace = ns.Object
	}
	if kind, err := g.types.Kind(gvk); err == nil {
		if _, err = kind.Normalize(obj); err != nil {
			return o
		}
	}
	if !allowed(obj) {
		return o
	}
	if g.chance(50) {
		obj = verify.Defaulted(obj)
	}
	o.Object = obj
	if g.chance(30) {
		o.Operation, o.Old = "UPDATE", o.Object
	}
	return o
}

// keyOf has, by the name of a list, the field that identifies its elements.
var keyOf = map[string]string{
	"containers": "name", "initContainers": "name", "ephemeralContainers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath",
	"imagePullSecrets": "name", "ports": "containerPort", "hostAliases": "ip", "topologySpreadConstraints": "topologyKey",
}

// allowed reports whether all elements of a list have a key, each another one, and whether Pods
// have containers. Servers refuse most other objects, but only after admission.
func allowed(obj map[string]any) bool {
	kind, _ := obj["kind"].(string)
	for _, at := range [][]string{{"spec"}, {"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}} {
		if len(at) == 1 && kind != "Pod" || len(at) == 3 && !runsPods[kind] || len(at) == 5 && kind != "CronJob" {
			continue
		}
		if containers, ok := below(obj, at...)["containers"].([]any); !ok || len(containers) == 0 {
			return false
		}
	}
	return distinct(obj)
}

// runsPods are kinds with the template of a Pod in spec.template.
var runsPods = map[string]bool{"Deployment": true, "StatefulSet": true, "DaemonSet": true, "ReplicaSet": true, "ReplicationController": true, "Job": true}

func distinct(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if list, ok := e.([]any); ok && keyOf[k] != "" {
				seen := make(map[string]bool, len(list))
				for _, each := range list {
					m, _ := each.(map[string]any)
					key, isText := m[keyOf[k]].(string)
					if !isText {
						key = fmt.Sprint(m[keyOf[k]])
					}
					if m[keyOf[k]] == nil || key == "" || k == "topologySpreadConstraints" && (m["whenUnsatisfiable"] == nil || m["whenUnsatisfiable"] == "") || seen[key] {
						return k == "ports" && m["containerPort"] == nil // of a Service
					}
					seen[key] = true
				}
			}
			if !distinct(e) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !distinct(e) })
	}
	return true
}

// some returns m, with some of the labels in the policy added.
func (g *maker) some(m map[string]string) map[string]string {
	if m == nil && g.chance(40) {
		return nil
	}
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	for _, k := range g.keys {
		if k == "" || !g.chance(45) {
			continue
		}
		out[k] = pick(g, g.choices[k]...)
		if len(g.labels[k]) > 0 && g.chance(60) {
			out[k] = pick(g, g.labels[k]...)
		}
		if s, ok := pick(g, g.values...).(string); ok && g.chance(25) {
			out[k] = s // as a condition compares it
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// valid returns the labels that a server accepts.
func (l *literals) valid(labels map[string]string) map[string]string {
	maps.DeleteFunc(labels, func(_, v string) bool {
		takes, ok := l.takes[v]
		if !ok {
			takes = len(validation.IsValidLabelValue(v)) == 0
			l.takes[v] = takes
		}
		return !takes
	})
	return labels
}

// set sets a field that an expression reads, with index at in paths, to a value that it may be
// compared with, or removes it. The value has the type of the old one; without an old one it may
// have any type.
func (g *maker) set(gvk schema.GroupVersionKind, obj map[string]any, at int) {
	path := g.paths[at]
	typ, ok := g.scalars[scalarField{gvk, at}]
	if !ok {
		typ = g.scalarAt(gvk, path)
		g.scalars[scalarField{gvk, at}] = typ
	}
	if typ == "object" {
		return
	}
	for _, step := range path[:len(path)-1] {
		next, ok := obj[step].(map[string]any)
		if !ok {
			if obj[step] != nil || g.chance(50) {
				return
			}
			next = map[string]any{}
			obj[step] = next
		}
		obj = next
	}
	last := path[len(path)-1]
	if last == "containers" {
		return
	}
	if g.chance(25) {
		delete(obj, last)
		return
	}
	v := pick(g, g.values...)
	if typ != "" && typ != fmt.Sprintf("%T", v) {
		return
	}
	if have := obj[last]; have != nil && fmt.Sprintf("%T", have) != fmt.Sprintf("%T", v) {
		return
	}
	obj[last] = v
}

// scalarAt returns the Go type of the values of a field, "object" for objects and lists, and "" if
// it is not known.
func (g *maker) scalarAt(gvk schema.GroupVersionKind, path []string) string {
	kind, err := g.types.Kind(gvk)
	if err != nil || len(path) == 3 && path[0] == "metadata" {
		return ""
	}
	p, ok := kind.Root()
	for _, step := range path {
		if !ok {
			return ""
		}
		p, ok = p.Field(step)
	}
	if !ok {
		return ""
	}
	if t := p.Type(); t.List != nil || t.Map != nil {
		return "object"
	}
	return map[string]string{"string": "string", "numeric": "int64", "boolean": "bool"}[p.Scalar()]
}

// below returns the object that fields lead to, nil if there is none.
func below(obj map[string]any, fields ...string) map[string]any {
	for _, f := range fields {
		obj, _ = obj[f].(map[string]any)
	}
	return obj
}

// pod fills in the spec of a Pod.
func (g *maker) pod(spec map[string]any) {
	used := map[string]bool{}
	containers := []any{}
	for n := range 1 + g.IntN(3) {
		containers = append(containers, g.container(n, used))
	}
	spec["containers"] = containers
	if g.chance(50) {
		init := []any{g.container(5, used)}
		if g.chance(30) {
			init = append(init, g.container(6, used))
		}
		spec["initContainers"] = init
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
	g.maybe(spec, inPods)
}

// possible is a field with values that it has, p times out of 100.
type possible struct {
	p      int
	field  string
	values []any
}

type object = map[string]any

// What the specs of Pods and their containers have beside what rules ask for.
var (
	inPods = []possible{
		{30, "dnsPolicy", []any{"ClusterFirst", "Default", "None", "ClusterFirstWithHostNet"}},
		{30, "terminationGracePeriodSeconds", []any{int64(0), int64(30), int64(50), int64(300)}},
		{30, "nodeSelector", []any{object{"foo": "x"}, object{"disk": "ssd"}}},
		{30, "tolerations", []any{[]any{object{"key": "example.com/role", "operator": "Exists"}}, []any{object{"operator": "Exists"}}}},
		{30, "imagePullSecrets", []any{[]any{object{"name": "other"}}, []any{object{"name": "other"}, object{"name": "my-secret"}}}},
		{20, "hostNetwork", []any{true}},
		{30, "securityContext", []any{object{}, object{"runAsUser": int64(0)}, object{"runAsNonRoot": false, "fsGroup": int64(5)}}},
		{20, "dnsConfig", []any{object{}, object{"options": []any{object{"name": "ndots", "value": "5"}}}}},
		{20, "affinity", []any{object{}, object{"podAntiAffinity": object{}}, object{"nodeAffinity": object{}}}},
		{15, "priorityClassName", []any{"high"}},
		{15, "serviceAccountName", []any{"sa"}},
		{15, "automountServiceAccountToken", []any{true, false}},
	}
	inContainers = []possible{
		{30, "imagePullPolicy", []any{"Always", "IfNotPresent"}},
		{40, "env", []any{[]any{object{"name": "A", "value": "1"}}, []any{object{"name": "HTTP_PROXY", "value": "x"}, object{"name": "B", "value": "2"}}}},
		{20, "envFrom", []any{[]any{object{"configMapRef": object{"name": "old"}}}}},
		{50, "resources", []any{
			object{}, object{"requests": object{"memory": "1Gi", "cpu": "1"}}, object{"limits": object{"memory": "2Gi", "ephemeral-storage": "1Gi"}},
			object{"requests": object{"cpu": "1", "ephemeral-storage": "2Gi", "memory": "1Gi"}, "limits": object{"memory": "2Gi"}},
		}},
		{50, "securityContext", []any{
			object{}, object{"privileged": true}, object{"capabilities": object{}},
			object{"capabilities": object{"add": []any{"NET_ADMIN"}, "drop": []any{"SETUID"}}}, object{"capabilities": object{"drop": []any{"ALL"}}, "runAsNonRoot": true},
		}},
		{50, "volumeMounts", []any{
			[]any{object{"mountPath": "/data", "name": "data0"}}, []any{object{"mountPath": "/v", "name": "vol1"}, object{"mountPath": "/t", "name": "kube-api-access-x0"}},
			[]any{object{"mountPath": "/secret", "name": "x"}, object{"mountPath": "/etc/ssl/certs", "name": "y"}},
		}},
		{30, "ports", []any{[]any{object{"containerPort": int64(80)}}}},
	}
)

// maybe sets each field of an object with a given probability. The values are copies, because
// blend may change them.
func (g *maker) maybe(obj map[string]any, fields []possible) {
	for i := range fields {
		if f := &fields[i]; g.chance(f.p) {
			obj[f.field] = runtime.DeepCopyJSONValue(pick(g, f.values...))
		}
	}
}

func (g *maker) container(n int, used map[string]bool) map[string]any {
	name := pick(g, g.containerNames...)
	if used[name] {
		name = fmt.Sprintf("%s-%d", name, n)
	}
	used[name] = true
	c := map[string]any{"name": name, "image": pick(g, g.images...)}
	g.maybe(c, inContainers)
	return c
}

// blend copies parts of an overlay into an object, and changes some of them, so that the policy
// finds values to change.
func (g *maker) blend(obj, patch map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		name := bare(key)
		if hasVariable(name) || strings.HasPrefix(key, "=(") || strings.HasPrefix(key, "X(") || strings.HasPrefix(key, "^(") || !g.chance(70) {
			continue
		}
		switch v := patch[key].(type) {
		case map[string]any:
			inner, ok := obj[name].(map[string]any)
			if !ok && obj[name] != nil {
				continue
			}
			if inner == nil {
				inner = map[string]any{}
			}
			g.blend(inner, v)
			if len(inner) > 0 || g.chance(30) {
				obj[name] = inner
			}
		case []any:
			if have, _ := obj[name].([]any); have != nil || obj[name] == nil {
				if have = g.blendList(have, v); have != nil {
					obj[name] = have
				}
			}
		case string:
			if !hasVariable(v) {
				v = concrete.Replace(v)
				obj[name] = pick(g, v, v, v+"x")
			}
		case float64:
			obj[name] = pick(g, int64(v), int64(v), int64(v)+1)
		case bool:
			obj[name] = pick(g, v, v, !v)
		}
	}
}

func (g *maker) blendList(have, patch []any) []any {
	have = slices.Clone(have)
	for _, e := range patch {
		m, ok := e.(map[string]any)
		if !ok {
			if s, isText := e.(string); isText && g.chance(50) && !slices.Contains(have, e) && !hasVariable(s) {
				have = append(have, e)
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
		if g.blend(fresh, m); len(fresh) > 0 {
			have = append(have, fresh)
		}
	}
	return have
}
