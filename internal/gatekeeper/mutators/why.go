package mutators

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/direct"
	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/policy"
)

// whyNot returns the first of a mutator's criteria that does not hold for an object,
// with what it asks for and what the object has; "" if all hold, or one of them is
// broken, which is an error of the request.
func whyNot(m *legacy.Mutator, obj *unstructured.Unstructured, req *policy.Request, ns *unstructured.Unstructured) string {
	c := contextOf(req)
	if ns != nil {
		c.Namespace = ns.Object
	}
	field, err := direct.Misses(m, obj.Object, c)
	if err != nil || field == "" {
		return ""
	}
	want, got := "", ""
	gvk := obj.GroupVersionKind()
	namespace := obj.GetNamespace()
	if gvk.Kind == "Namespace" && gvk.Group == "" {
		namespace = obj.GetName()
	}
	switch field {
	case "spec.applyTo":
		want, got = applyTo(m.ApplyTo), fmt.Sprintf("is a %s of %s", gvk.Kind, gvk.GroupVersion())
		if m.InApplyTo(gvk, "CREATE") || m.InApplyTo(gvk, "UPDATE") {
			return fmt.Sprintf("%s %s; the operation is %s", field, want, c.Operation)
		}
	case "spec.match.kinds":
		want, got = kinds(m.Match.Kinds), fmt.Sprintf("is a %s of %s", gvk.Kind, gvk.GroupVersion())
	case "spec.match.scope":
		want, got = m.Match.Scope, "is namespaced"
		if namespace == "" || gvk.Kind == "Namespace" {
			got = "is cluster-scoped"
		}
	case "spec.match.namespaces":
		want, got = list(m.Match.Namespaces), "is in namespace "+namespace
	case "spec.match.excludedNamespaces":
		return fmt.Sprintf("spec.match.excludedNamespaces %s includes namespace %s", list(m.Match.ExcludedNamespaces), namespace)
	case "spec.match.labelSelector":
		want, got = unmet(m.Match.LabelSelector, obj)
		got = "has " + got
	case "spec.match.namespaceSelector":
		of := ns
		if gvk.Kind == "Namespace" {
			of = obj
		}
		want, got = unmet(m.Match.NamespaceSelector, of)
		return fmt.Sprintf("%s %s; Namespace %s has %s", field, want, namespace, got)
	case "spec.match.name":
		want, got = m.Match.Name, "has name "+obj.GetName()
	case "spec.match.source":
		want, got = m.Match.Source, "is "+c.Source
	}
	return fmt.Sprintf("%s %s; the object %s", field, want, got)
}

func unmet(s *metav1.LabelSelector, u *unstructured.Unstructured) (want, got string) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "", ""
	}
	set := lookup.Labels{}
	if u != nil {
		for k, v := range u.GetLabels() {
			set[k] = v
		}
	}
	return lookup.Unmet(selector, set)
}

func applyTo(all []legacy.ApplyTo) string {
	texts := make([]string, len(all))
	for i, a := range all {
		texts[i] = fmt.Sprintf("%s of groups %s, versions %s", list(a.Kinds), list(a.Groups), list(a.Versions))
		if len(a.Operations) > 0 {
			texts[i] += ", operations " + list(a.Operations)
		}
	}
	return strings.Join(texts, " or ")
}

func kinds(all []legacy.MatchKinds) string {
	texts := make([]string, len(all))
	for i, k := range all {
		texts[i] = list(k.Kinds) + " of groups " + list(k.APIGroups)
	}
	return strings.Join(texts, " or ")
}

// list writes names as a reader of YAML knows them; "" is the core group.
func list(names []string) string {
	names = slices.Clone(names)
	for i, n := range names {
		if n == "" {
			names[i] = `""`
		}
	}
	return "[" + strings.Join(names, ", ") + "]"
}
