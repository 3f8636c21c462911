package openapi

import (
	"fmt"
	"maps"
	"slices"
)

// mayBeEmpty are fields of built-in kinds that are always encoded and may be empty. Their Go
// types look like those of required fields.
var mayBeEmpty = map[string]bool{
	"v1.HTTPHeader.value": true, "v1.Sysctl.value": true, "v1.EndpointSlice.endpoints": true, "v1.EndpointSlice.ports": true,
	"v1.Role.rules": true, "v1.ClusterRole.rules": true, "v1.PolicyRule.verbs": true, "v1.StatefulSetSpec.serviceName": true,
	"v1.TypedLocalObjectReference.apiGroup": true, "v1.TypedObjectReference.apiGroup": true, "v1.PodStatus.phase": true,
}

// Missing returns, in their order, the paths of required strings and lists that are empty in an
// object of a built-in kind, as Settle returns it. It does not validate: it knows only what the
// Go types say, and nothing of other kinds or of status.
func (k *Kind) Missing(obj map[string]any) []string {
	if k.goType == nil {
		return nil
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		if m := k.goType.root.shape.target().member(name); m != nil && name != "status" && name != "metadata" {
			missing(m.shape, obj[name], name, &out)
		}
	}
	return out
}

func missing(sh *shape, v any, path string, out *[]string) {
	sh = sh.target()
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			m := sh.member(name)
			if m == nil {
				continue
			}
			at := path + "." + name
			if sh.form == structure && m.always && isMissing(m.shape, v[name]) && !mayBeEmpty[sh.name+"."+name] {
				*out = append(*out, at)
				continue
			}
			missing(m.shape, v[name], at, out)
		}
	case []any:
		if sh.items == nil {
			return
		}
		for i, e := range v {
			missing(sh.items.shape, e, fmt.Sprintf("%s[%d]", path, i), out)
		}
	}
}

// isMissing reports whether a value that is always encoded is empty.
func isMissing(sh *shape, v any) bool {
	switch sh.form {
	case text:
		return v == ""
	case list:
		return v == nil
	case pointer:
		return v == nil && sh.target().form == structure
	}
	return false
}
