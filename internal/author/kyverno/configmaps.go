package kyverno

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

// configMapsOf makes the ConfigMaps that the rules of a policy read, with the keys that the rules
// use. If the namespace contains a variable, there is one for each namespace of the generated
// objects. Some ConfigMaps are missing, and some lack a key.
func configMapsOf(p *policy.Policy, l *literals) map[string]map[string]string {
	all := map[string]map[string]string{}
	if p.Rules == nil {
		return all
	}
	keys := keysIn(p.Rules)
	for _, c := range contextsOf(p.Rules) {
		if c.ConfigMap == nil || hasVariable(c.ConfigMap.Name) {
			continue
		}
		namespaces := []string{cmp.Or(c.ConfigMap.Namespace, p.Namespace, "default")}
		if hasVariable(namespaces[0]) {
			namespaces = append([]string{"default", "kube-system", "shop"}, l.names...)
		}
		for i, namespace := range namespaces {
			id := namespace + "/" + c.ConfigMap.Name
			if _, ok := all[id]; ok || i%4 == 3 {
				continue
			}
			data := map[string]string{}
			for j, key := range keys {
				name := l.names[(i+j)%len(l.names)]
				switch {
				case i%3 == 2 && j%2 == 1:
				case (i+j)%5 == 4:
					data[key] = `["` + name + `", "x"]`
				default:
					data[key] = name
				}
			}
			all[id] = data
		}
	}
	return all
}

// contextsOf returns the contexts of all rules, including those within foreach.
func contextsOf(s *policy.Spec) (all []policy.Context) {
	var each func([]policy.ForEach)
	each = func(list []policy.ForEach) {
		for _, f := range list {
			all = append(all, f.Context...)
			each(f.ForEach)
		}
	}
	for _, r := range s.Rules {
		all = append(all, r.Context...)
		if r.Mutate != nil {
			each(r.Mutate.ForEach)
		}
	}
	return all
}

// parameters returns ConfigMaps as objects, sorted by namespace and name.
func parameters(all map[string]map[string]string) (params []*unstructured.Unstructured) {
	for _, id := range slices.Sorted(maps.Keys(all)) {
		namespace, name, _ := strings.Cut(id, "/")
		values := map[string]any{}
		for k, v := range all[id] {
			values[k] = v
		}
		params = append(params, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": namespace}, "data": values,
		}})
	}
	return params
}

var dataKey = regexp.MustCompile(`\.data\.(?:\\*"([^"\\{}]+)\\*"|([A-Za-z_]\w*))`)

// keysIn returns the keys of ConfigMaps that rules mention.
func keysIn(rules *policy.Spec) (keys []string) {
	data, err := json.Marshal(rules)
	if err != nil {
		return nil
	}
	seen := map[string]bool{}
	for _, m := range dataKey.FindAllStringSubmatch(string(data), -1) {
		if key := m[1] + m[2]; !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}
