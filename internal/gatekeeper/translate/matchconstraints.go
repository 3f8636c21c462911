package translate

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// subresources are the subresources for which the rules of Gatekeeper's chart call its webhook
// (Gatekeeper spec §9.1), except those that are never created or updated.
var subresources = []struct {
	resource schema.GroupVersionResource
	name     string
}{
	{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "binding"},
	{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "ephemeralcontainers"},
	{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "eviction"},
	{schema.GroupVersionResource{Version: "v1", Resource: "replicationcontrollers"}, "scale"},
	{schema.GroupVersionResource{Version: "v1", Resource: "services"}, "status"},
	{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "scale"},
	{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, "scale"},
	{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}, "scale"},
}

// Rules returns rules for the kinds of a mutator: for their resources, and for the subresources
// that carry one of these kinds and for which Gatekeeper's webhook is called. The rules match no
// request for another kind. types may be nil.
//
// A mutator names all combinations of its groups and kinds, and many of them do not exist. A
// combination without a resource in types is returned as unknown only if its group or its kind
// occurs in no other combination that exists.
//
// The rules are sorted, and each is for one group and version.
func Rules(m *legacy.Mutator, types *openapi.Types) (rules []admissionregistrationv1.NamedRuleWithOperations, unknown []schema.GroupVersionKind) {
	c := ruleCollector{}
	groups, kinds := map[string]bool{}, map[string]bool{}
	var missing []Target
	for _, t := range Targets(m) {
		if c.add(t, types) {
			groups[t.Group], kinds[t.Kind] = true, true
		} else {
			missing = append(missing, t)
		}
	}
	for _, t := range missing {
		if !groups[t.Group] || !kinds[t.Kind] {
			unknown = append(unknown, schema.GroupVersionKind{Group: t.Group, Version: t.Version, Kind: t.Kind})
		}
	}
	return c.rules(), unknown
}

// groupVersion is the group and version of one rule.
type groupVersion struct{ group, version string }

// ruleCollector collects resources and their operations.
type ruleCollector map[groupVersion]map[string]during

type during struct{ create, update bool }

func (c ruleCollector) put(group, version, resource string, t Target) {
	p := groupVersion{group, version}
	if c[p] == nil {
		c[p] = map[string]during{}
	}
	ops := c[p][resource]
	c[p][resource] = during{ops.create || t.Create, ops.update || t.Update}
}

// add adds the resources of a target, and reports whether there are any.
func (c ruleCollector) add(t Target, types *openapi.Types) bool {
	found := t.Kind == "*"
	if found {
		// For all kinds, the rule covers all resources of the group.
		c.put(t.Group, t.Version, "*", t)
	}
	for _, r := range t.resources(types) {
		found = true
		c.put(r.GVR.Group, r.GVR.Version, r.GVR.Resource, t)
	}
	for _, s := range subresources {
		if t.Group == "*" && t.Kind == "*" {
			c.put("*", t.Version, s.resource.Resource+"/"+s.name, t)
			continue
		}
		if types == nil {
			continue
		}
		if kind, ok := types.KindFor(s.resource, s.name); ok && t.covers(kind) {
			found = true
			c.put(s.resource.Group, s.resource.Version, s.resource.Resource+"/"+s.name, t)
		}
	}
	return found
}

// resources returns the resources of a target with a kind.
func (t Target) resources(types *openapi.Types) []openapi.Resource {
	switch {
	case types == nil || t.Kind == "*":
		return nil
	case t.Group != "*" && t.Version != "*":
		r, ok := types.ResourceFor(schema.GroupVersionKind{Group: t.Group, Version: t.Version, Kind: t.Kind})
		if !ok {
			return nil
		}
		return []openapi.Resource{r}
	}
	return slices.DeleteFunc(types.Resources(), func(r openapi.Resource) bool { return !t.covers(r.Kind) })
}

func (t Target) covers(k schema.GroupVersionKind) bool {
	return (t.Group == "*" || t.Group == k.Group) && (t.Version == "*" || t.Version == k.Version) &&
		(t.Kind == "*" || t.Kind == k.Kind)
}

func (c ruleCollector) rules() []admissionregistrationv1.NamedRuleWithOperations {
	places := make([]groupVersion, 0, len(c))
	for p := range c {
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b groupVersion) int {
		return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.version, b.version))
	})
	var rules []admissionregistrationv1.NamedRuleWithOperations
	for _, p := range places {
		for _, ops := range []during{{true, true}, {true, false}, {false, true}} {
			var resources []string
			for r, o := range c[p] {
				if o == ops {
					resources = append(resources, r)
				}
			}
			if slices.Contains(resources, "*") {
				resources = slices.DeleteFunc(resources, func(r string) bool { return r != "*" && !strings.Contains(r, "/") })
			}
			if len(resources) > 0 {
				slices.Sort(resources)
				rules = append(rules, rule(p, ops, resources))
			}
		}
	}
	return rules
}

func rule(p groupVersion, ops during, resources []string) admissionregistrationv1.NamedRuleWithOperations {
	scope := admissionregistrationv1.AllScopes
	r := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{
		APIGroups: []string{p.group}, APIVersions: []string{p.version}, Resources: resources, Scope: &scope,
	}}
	if ops.create {
		r.Operations = append(r.Operations, admissionregistrationv1.Create)
	}
	if ops.update {
		r.Operations = append(r.Operations, admissionregistrationv1.Update)
	}
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r}
}
