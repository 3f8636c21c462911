package interpret

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// merged merges an overlay into an object as kustomize does: fields one by one, where null
// removes a field; lists with keys by these keys, with the elements of the overlay first; other
// lists are replaced.
func merged(object, patch map[string]any) (map[string]any, error) {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	m := merger{gvk: schema.FromAPIVersionAndKind(apiVersion, kind)}
	out, err := m.fields(object, patch, nil)
	if err != nil {
		return nil, err
	}
	result, ok := out.(map[string]any)
	if !ok {
		unknown("an overlay that removes the object")
	}
	return result, nil
}

type merger struct{ gvk schema.GroupVersionKind }

// absent is the value of a missing field; nil is null.
type absent struct{}

func missing(v any) bool {
	_, ok := v.(absent)
	return ok || v == nil
}

func at(m map[string]any, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	return absent{}
}

// value merges patch into value. Each is absent, null or a JSON value, and so is the result.
func (m merger) value(value, patch any, path []string) (any, error) {
	first := value
	if missing(first) {
		first = patch
	}
	switch first.(type) {
	case absent, nil:
		if _, ok := patch.(absent); ok {
			return value, nil // null stays
		}
		return absent{}, nil
	case map[string]any:
		return m.fields(value, patch, path)
	case []any:
		return m.list(value, patch, path)
	}
	if !missing(patch) && container(patch) {
		return nil, fmt.Errorf("%s: is no container", strings.Join(path, "."))
	}
	switch {
	case patch == nil:
		return absent{}, nil
	case patch == absent{}:
		return value, nil
	}
	if _, isText := value.(string); isText {
		return scalarText(patch), nil // a new value has the quotes of the old one
	}
	return patch, nil
}

func (m merger) fields(value, patch any, path []string) (any, error) {
	v, ok := value.(map[string]any)
	p, ok2 := patch.(map[string]any)
	if !ok && !missing(value) || !ok2 && !missing(patch) {
		return nil, fmt.Errorf("%s: one is an object and the other is not", strings.Join(path, "."))
	}
	if patch == nil {
		return absent{}, nil
	}
	if directive, ok := p["$patch"]; ok {
		switch directive {
		case "delete":
			return absent{}, nil
		default:
			unknown("the directive $patch: %v", directive)
		}
	}
	for name := range p {
		if strings.HasPrefix(name, "$") {
			unknown("the directive %s", name)
		}
	}
	if missing(value) {
		v = p // merging the value with itself removes nulls and joins elements with equal keys
	}
	out := map[string]any{}
	for _, name := range keysOf(v) {
		if _, both := p[name]; !both {
			m.untouched(v[name], append(slices.Clip(path), name))
			out[name] = v[name]
		}
	}
	for _, name := range keysOf(p) {
		next, err := m.value(at(v, name), p[name], append(slices.Clip(path), name))
		if err != nil {
			return nil, err
		}
		if _, gone := next.(absent); !gone {
			out[name] = next
		}
	}
	return out, nil
}

func (m merger) list(value, patch any, path []string) (any, error) {
	v, ok := value.([]any)
	p, ok2 := patch.([]any)
	if !ok && !missing(value) || !ok2 && !missing(patch) {
		return nil, fmt.Errorf("%s: one is a list and the other is not", strings.Join(path, "."))
	}
	switch {
	case patch == absent{}:
		return value, nil
	case patch == nil:
		return absent{}, nil
	}
	keys, keyed := keysAt(m.gvk, path)
	if !keyed {
		return patch, nil
	}
	if missing(value) {
		v = p
	}
	if len(keys) == 0 {
		return union(p, v), nil
	}
	return m.elements(v, p, keys, path)
}

// untouched ends the interpretation if the merge would change a value although the overlay does
// not name it: a list in which elements have equal keys, which kustomize joins.
func (m merger) untouched(v any, path []string) {
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			m.untouched(e, append(slices.Clip(path), name))
		}
	case []any:
		keys, keyed := keysAt(m.gvk, path)
		if !keyed {
			return
		}
		seen := map[string]bool{}
		for _, e := range v {
			id := ""
			for i, k := range keys {
				part, _ := fieldOf(e, k)
				if i == 0 && (part == nil || part == "") {
					unknown("an element of %s without %s", strings.Join(path, "."), k)
				}
				id += text(part) + "\x00"
			}
			if len(keys) == 0 {
				id = text(e)
			}
			if seen[id] {
				unknown("two elements of %s with the same %s", strings.Join(path, "."), cmp.Or(strings.Join(keys, " and "), "value"))
			}
			seen[id] = true
			m.untouched(e, append(slices.Clip(path), "[]"))
		}
	}
}

// union merges sets of scalars, with the elements of the overlay first.
func union(lists ...[]any) []any {
	var out []any
	seen := map[string]bool{}
	for _, l := range lists {
		for _, e := range l {
			if container(e) {
				unknown("a set of objects")
			}
			if t := scalarText(e); !seen[t] {
				seen[t] = true
				out = append(out, e)
			}
		}
	}
	return out
}

// elements merges lists by the keys of their elements.
func (m merger) elements(v, p []any, keys, path []string) (any, error) {
	if len(p) == 0 && len(v) == 0 {
		return []any{}, nil
	}
	keys = used(keys, v, p)
	var order []string
	place, seen := map[string]int{}, map[string]bool{} // index by id, of v if it is there; ids that are in order
	mine, theirs := map[string]map[string]any{}, map[string]map[string]any{}
	collect := func(l []any, into map[string]map[string]any) {
		for i, e := range l {
			obj, ok := e.(map[string]any)
			if !ok {
				unknown("an element of %s that is no object", strings.Join(path, "."))
			}
			id := ""
			for _, k := range keys {
				part, ok := obj[k]
				if !ok || part == nil || container(part) || part == "" {
					unknown("an element of %s without %s", strings.Join(path, "."), k)
				}
				id += scalarText(part) + "\x00"
			}
			if into[id] != nil && !same(into[id], obj) {
				unknown("two elements of %s with the same %s", strings.Join(path, "."), strings.Join(keys, " and "))
			}
			into[id] = obj
			place[id] = i
			if !seen[id] {
				seen[id] = true
				order = append(order, id)
			}
		}
	}
	collect(p, mine)
	collect(v, theirs)
	there := slices.SortedFunc(maps.Keys(theirs), func(a, b string) int { return place[a] - place[b] })
	if len(keys) > 1 {
		// Existing elements keep their order and follow the new ones.
		fresh := func(id string) bool { return theirs[id] == nil }
		order = slices.Concat(slices.DeleteFunc(slices.Clone(order), func(id string) bool { return !fresh(id) }), there)
	}
	out := []any{}
	for _, id := range order {
		var a, b any = absent{}, absent{}
		if e, ok := theirs[id]; ok {
			a = e
		}
		if e, ok := mine[id]; ok {
			b = e
		}
		next, err := m.value(a, b, append(slices.Clip(path), "[]"))
		if err != nil {
			return nil, err
		}
		if obj, ok := next.(map[string]any); ok && len(obj) > 0 {
			out = append(out, next)
		}
	}
	return out, nil
}

// used returns those keys of a list that its elements have. If only some elements have a key,
// kustomize matches elements by the keys that they have.
func used(keys []string, lists ...[]any) []string {
	if len(keys) == 1 {
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(k string) bool {
		with, without := false, false
		for _, l := range lists {
			for _, e := range l {
				obj, _ := e.(map[string]any)
				if v, ok := obj[k]; ok && v != nil && v != "" {
					with = true
				} else {
					without = true
				}
			}
		}
		if with && without {
			unknown("a list of which some elements have %s and others do not", k)
		}
		return !with
	})
}

// podSpecs has the path of the Pod spec in each kind.
var podSpecs = map[string][]string{
	"/v1/Pod": {"spec"}, "/v1/PodTemplate": {"template", "spec"}, "/v1/ReplicationController": {"spec", "template", "spec"},
	"apps/v1/Deployment": {"spec", "template", "spec"}, "apps/v1/StatefulSet": {"spec", "template", "spec"},
	"apps/v1/DaemonSet": {"spec", "template", "spec"}, "apps/v1/ReplicaSet": {"spec", "template", "spec"},
	"batch/v1/Job": {"spec", "template", "spec"}, "batch/v1/CronJob": {"spec", "jobTemplate", "spec", "template", "spec"},
}

// podLists has the lists with keys in the Pod spec of the Kubernetes version that kustomize
// knows. [] stands for an element.
var podLists = map[string][]string{
	"containers": {"name"}, "initContainers": {"name"}, "ephemeralContainers": {"name"}, "volumes": {"name"},
	"imagePullSecrets": {"name"}, "hostAliases": {"ip"}, "topologySpreadConstraints": {"topologyKey", "whenUnsatisfiable"},
}

// containerLists has the lists with keys in a container.
var containerLists = map[string][]string{
	"env": {"name"}, "ports": {"containerPort", "protocol"}, "volumeMounts": {"mountPath"}, "volumeDevices": {"devicePath"},
}

// otherLists has the lists with keys in other kinds; a list without keys is a set.
var otherLists = map[string][]string{
	"/v1/Service spec.ports":                                                  {"port", "protocol"},
	"/v1/ServiceAccount secrets":                                              {"name"},
	"/v1/Node spec.podCIDRs":                                                  {},
	"/v1/ComponentStatus conditions":                                          {"type"},
	"storage.k8s.io/v1/CSINode spec.drivers":                                  {"name"},
	"apps/v1/StatefulSet spec.volumeClaimTemplates.[].status.conditions":      {"type"},
	"admissionregistration.k8s.io/v1/MutatingWebhookConfiguration webhooks":   {"name"},
	"admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration webhooks": {"name"},
}

// builtin are the groups with kinds that kustomize knows. newer are kinds and groups among these
// that it does not know, because they are more recent than its schemas.
var (
	builtin = []string{"", "apps", "batch", "autoscaling", "policy"}
	newer   = []string{
		"resource.k8s.io", "lifecycle.k8s.io", "internal.apiserver.k8s.io", "storagemigration.k8s.io", "autoscaling/v2", "flowcontrol.apiserver.k8s.io/v1",
		"scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1beta1", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding", "SelfSubjectReview", "ClusterTrustBundle", "PodCertificateRequest", "LeaseCandidate", "IPAddress", "ServiceCIDR",
		"CSIStorageCapacity", "VolumeAttributesClass",
	}
)

// knownKind reports whether kustomize has a schema for a kind.
func knownKind(gvk schema.GroupVersionKind) bool {
	if !slices.Contains(builtin, gvk.Group) && !strings.HasSuffix(gvk.Group, ".k8s.io") {
		return false
	}
	return !slices.Contains(newer, gvk.Group) && !slices.Contains(newer, gvk.Group+"/"+gvk.Version) && !slices.Contains(newer, gvk.Kind)
}

// keysAt returns the keys of the list at a path. keyed is false if kustomize replaces the list; a
// keyed list without keys is a set.
func keysAt(gvk schema.GroupVersionKind, path []string) (keys []string, keyed bool) {
	if !knownKind(gvk) {
		return nil, false
	}
	id := gvk.Group + "/" + gvk.Version + "/" + gvk.Kind
	if keys, ok := otherLists[id+" "+strings.Join(path, ".")]; ok {
		return keys, true
	}
	if n := len(path); n >= 2 && path[n-2] == "metadata" {
		switch path[n-1] {
		case "finalizers":
			return nil, true
		case "ownerReferences":
			return []string{"uid"}, true
		}
	}
	spec, ok := podSpecs[id]
	if !ok || len(path) <= len(spec) || !slices.Equal(path[:len(spec)], spec) {
		return nil, false
	}
	switch rest := path[len(spec):]; {
	case len(rest) == 1:
		keys, keyed = podLists[rest[0]]
	case len(rest) == 3 && rest[1] == "[]" && (rest[0] == "containers" || rest[0] == "initContainers" || rest[0] == "ephemeralContainers" && rest[2] != "ports"):
		keys, keyed = containerLists[rest[2]]
	}
	return keys, keyed
}
