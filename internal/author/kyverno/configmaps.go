package kyverno

import (
	"encoding/json"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/kyverno/convert"
)

// configMapsOf makes the ConfigMaps that policies read as their parameter, with the keys that the
// rules ask for: for each namespace that objects have, if it is that of the request. Some are
// missing, and some lack a key.
func configMapsOf(r *convert.Result, l *literals) (params []*unstructured.Unstructured, all map[string]map[string]string) {
	all = map[string]map[string]string{}
	keys := keysIn(r)
	for _, u := range r.Units {
		ref := u.Binding.Spec.ParamRef
		if ref == nil {
			continue
		}
		namespaces := []string{ref.Namespace}
		if ref.Namespace == "" {
			namespaces = append([]string{"default", "kube-system", "shop"}, l.names...)
		}
		for i, namespace := range namespaces {
			id := namespace + "/" + ref.Name
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
			values := map[string]any{}
			for k, v := range data {
				values[k] = v
			}
			params = append(params, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": ref.Name, "namespace": namespace}, "data": values,
			}})
		}
	}
	return params, all
}

var dataKey = regexp.MustCompile(`\.data\.(?:\\*"([^"\\{}]+)\\*"|([A-Za-z_]\w*))`)

// keysIn returns the keys of ConfigMaps that the rules of a policy mention.
func keysIn(r *convert.Result) (keys []string) {
	data, err := json.Marshal(r.Policy.Rules)
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
