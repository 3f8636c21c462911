package api

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	validatecontent "k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// staticSuffix ends the names that belong to the manifest files of an API
// server (spec §1.5); nothing that comes through the API may use it.
const staticSuffix = ".static.k8s.io"

// The values of the API's enumerations, in the order in which a server lists them in errors.
var (
	matchPolicies = []admissionregistrationv1.MatchPolicyType{"Equivalent", "Exact"}
	scopes        = []admissionregistrationv1.ScopeType{"*", "Cluster", "Namespaced"}
	operations    = []admissionregistrationv1.OperationType{"*", "CONNECT", "CREATE", "DELETE", "UPDATE"}
	// Mutation of a DELETE would have no effect.
	mutableOperations = []admissionregistrationv1.OperationType{"*", "CONNECT", "CREATE", "UPDATE"}
)

// ValidateMeta checks the metadata of a cluster-scoped object whose name is a DNS subdomain.
// The server reports invalid labels in random order; here they are sorted.
func ValidateMeta(meta *metav1.ObjectMeta) field.ErrorList {
	return sorted(apivalidation.ValidateObjectMeta(meta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata")))
}

// ValidateReservedName rejects names that are reserved for manifest files.
func ValidateReservedName(name string) field.ErrorList {
	if !strings.HasSuffix(name, staticSuffix) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), name,
		fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", staticSuffix))}
}

// ValidateMatchResources checks a policy's matchConstraints or a binding's matchResources; m
// must not be nil. It does not check that a policy has at least one resource rule.
func ValidateMatchResources(m *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if m.MatchPolicy == nil {
		errs = append(errs, field.Required(path.Child("matchPolicy"), ""))
	} else {
		errs = append(errs, OneOf(path.Child("matchPolicy"), *m.MatchPolicy, matchPolicies)...)
	}
	errs = append(errs, requireSelector(m.NamespaceSelector, path.Child("namespaceSelector"))...)
	errs = append(errs, requireSelector(m.ObjectSelector, path.Child("objectSelector"))...)
	for i := range m.ResourceRules {
		errs = append(errs, ValidateRule(&m.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, ValidateRule(&m.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))...)
	}
	// A server names the field without the rule's index. DELETE passes ValidateRule and is
	// rejected only here, and not in exclusions.
	for _, rule := range m.ResourceRules {
		for _, op := range rule.Operations {
			errs = append(errs, OneOf(path.Child("resourceRules", "operations"), op, mutableOperations)...)
		}
	}
	return errs
}

func requireSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return ValidateSelector(s, path)
}

// ValidateSelector checks a label selector strictly, including its values. The server reports
// invalid matchLabels in random order; here they are sorted.
func ValidateSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return sorted(metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path))
}

// ValidateRule checks one rule, as a server checks those of policies and webhooks.
func ValidateRule(rule *admissionregistrationv1.NamedRuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, name := range rule.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		errs = append(errs, ValidatePathSegment(name, at)...)
		if names.Has(name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		names.Insert(name)
	}

	errs = append(errs, requireList(rule.Operations, "operations", path.Child("operations"))...)
	for i, op := range rule.Operations {
		errs = append(errs, OneOf(path.Child("operations").Index(i), op, operations)...)
	}
	// The empty string is valid: it is the core group.
	errs = append(errs, requireList(rule.APIGroups, "API groups", path.Child("apiGroups"))...)
	errs = append(errs, requireList(rule.APIVersions, "API versions", path.Child("apiVersions"))...)
	for i, version := range rule.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(rule.Resources, path.Child("resources"))...)
	if rule.Scope != nil {
		errs = append(errs, OneOf(path.Child("scope"), *rule.Scope, scopes)...)
	}
	return errs
}

// requireList requires at least one item, and that "*" is the only one.
func requireList[T ~string](list []T, noun string, path *field.Path) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(list) > 1 && slices.Contains(list, "*"):
		return field.ErrorList{field.Invalid(path, list, "if '*' is present, must not specify other "+noun)}
	}
	return nil
}

// validateResources rejects a resource that an earlier wildcard of the same list covers. As on
// a server, the order matters: "pods/log" before "pods/*" is accepted, and of the resources
// without a subresource only the last is compared with a lone "*".
func validateResources(list []string, path *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	allOf := sets.New[string]()  // resources seen as x/*
	anyHas := sets.New[string]() // subresources seen as */y
	lastIsPlain := false
	for i, item := range list {
		if item == "" {
			errs = append(errs, field.Required(path.Index(i), ""))
			continue
		}
		resource, sub, found := strings.Cut(item, "/")
		if !found {
			lastIsPlain = item != "*"
			continue
		}
		if allOf.Has(resource) {
			errs = append(errs, field.Invalid(path.Index(i), item, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, item)))
		}
		if anyHas.Has(sub) {
			errs = append(errs, field.Invalid(path.Index(i), item, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, item)))
		}
		if sub == "*" {
			allOf.Insert(resource)
		}
		if resource == "*" {
			anyHas.Insert(sub)
		}
	}
	if len(list) > 1 && slices.Contains(list, "*/*") {
		errs = append(errs, field.Invalid(path, list, "if '*/*' is present, must not specify other resources"))
	}
	if lastIsPlain && slices.Contains(list, "*") {
		errs = append(errs, field.Invalid(path, list, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// ValidatePathSegment checks a name that becomes a segment of a URL's path.
func ValidatePathSegment(name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range validatecontent.IsPathSegmentName(name) {
		errs = append(errs, field.Invalid(path, name, msg))
	}
	return errs
}

// OneOf returns an error for a value that is not one of allowed.
func OneOf[T ~string](path *field.Path, value T, allowed []T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

// sorted sorts neighbouring errors about the same map by their texts, since they are found in
// the random order of the map.
func sorted(errs field.ErrorList) field.ErrorList {
	for i := 0; i < len(errs); {
		j := i + 1
		for j < len(errs) && errs[j].Field == errs[i].Field {
			j++
		}
		if isMap(errs[i].Field) {
			slices.SortStableFunc(errs[i:j], func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
		}
		i = j
	}
	return errs
}

func isMap(path string) bool {
	return path == "metadata.labels" || path == "metadata.annotations" || strings.HasSuffix(path, ".matchLabels")
}
