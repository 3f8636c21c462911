package interpret

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

// matches reports whether a rule applies to an object as the rules before it left it.
func (r *run) matches(rule *policy.Rule, object map[string]any) bool {
	m := &rule.Match
	switch {
	case len(m.Any) > 0:
		if !slices.ContainsFunc(m.Any, func(f policy.Filter) bool { return !emptyFilter(f) && r.selects(f, object) }) {
			return false
		}
	case len(m.All) > 0:
		if slices.ContainsFunc(m.All, func(f policy.Filter) bool { return emptyFilter(f) || !r.selects(f, object) }) {
			return false
		}
	default:
		if emptyFilter(m.Filter) || !r.selects(m.Filter, object) {
			return false
		}
	}
	excluded := func(f policy.Filter) bool { return !emptyFilter(f) && r.selects(f, object) }
	switch x := rule.Exclude; {
	case x == nil:
		return true
	case len(x.Any) > 0:
		return !slices.ContainsFunc(x.Any, excluded)
	case len(x.All) > 0:
		return slices.ContainsFunc(x.All, func(f policy.Filter) bool { return !excluded(f) })
	default:
		return !excluded(x.Filter)
	}
}

func emptyFilter(f policy.Filter) bool {
	r := f.Resources
	return f.Users.Empty() && len(r.Kinds) == 0 && r.Name == "" && len(r.Names) == 0 && len(r.Namespaces) == 0 &&
		len(r.Annotations) == 0 && r.Selector == nil && r.NamespaceSelector == nil && len(r.Operations) == 0
}

// selects reports whether all conditions of a filter hold.
func (r *run) selects(f policy.Filter, object map[string]any) bool {
	if len(f.Roles) > 0 || len(f.ClusterRoles) > 0 {
		unknown("the roles of a user")
	}
	u := &unstructured.Unstructured{Object: object}
	d := f.Resources
	if len(d.Operations) > 0 && !slices.Contains(d.Operations, r.request.Operation) {
		return false
	}
	if len(d.Kinds) > 0 && !slices.ContainsFunc(d.Kinds, func(k string) bool { return kindMatches(k, r.gvk) }) {
		return false
	}
	name := u.GetName()
	if name == "" {
		name = u.GetGenerateName()
	}
	if d.Name != "" && !like(d.Name, name) {
		return false
	}
	if len(d.Names) > 0 && !slices.ContainsFunc(d.Names, func(p string) bool { return like(p, name) }) {
		return false
	}
	namespace := u.GetNamespace()
	if u.GetKind() == "Namespace" {
		namespace = u.GetName()
	}
	if len(d.Namespaces) > 0 && !slices.ContainsFunc(d.Namespaces, func(p string) bool { return like(p, namespace) }) {
		return false
	}
	if !annotated(d.Annotations, u.GetAnnotations()) {
		return false
	}
	if d.Selector != nil && !labelled(d.Selector, u.GetLabels()) {
		return false
	}
	if d.NamespaceSelector != nil && (u.GetKind() == "Namespace" || !labelled(d.NamespaceSelector, r.request.NamespaceLabels)) {
		return false
	}
	return len(f.Subjects) == 0 || slices.ContainsFunc(f.Subjects, r.subject)
}

func (r *run) subject(s rbacv1.Subject) bool {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		return like("system:serviceaccount:"+s.Namespace+":"+s.Name, r.request.User)
	case rbacv1.GroupKind:
		return slices.ContainsFunc(r.request.Groups, func(g string) bool { return like(s.Name, g) })
	case rbacv1.UserKind:
		return like(s.Name, r.request.User)
	}
	return false
}

// annotated reports whether all wanted annotations exist. Keys and values may be patterns.
func annotated(want, have map[string]string) bool {
	for k, v := range want {
		found := false
		for key, value := range have {
			found = found || like(k, key) && like(v, value)
		}
		if !found {
			return false
		}
	}
	return true
}

// labelled reports whether a selector selects labels. Keys and values of matchLabels may be
// patterns. A pattern that no label matches counts as a label in which zeros replace the
// wildcards.
func labelled(want *metav1.LabelSelector, have map[string]string) bool {
	want = want.DeepCopy()
	plain := map[string]string{}
	for k, v := range want.MatchLabels {
		if !hasWildcard(k) && !hasWildcard(v) {
			plain[k] = v
			continue
		}
		key, value := zeros.Replace(k), zeros.Replace(v)
		for _, name := range slices.Sorted(maps.Keys(have)) {
			if like(k, name) && like(v, have[name]) {
				if hasWildcard(name) {
					unknown("a label with the name %s", name)
				}
				key, value = name, have[name]
				break
			}
		}
		plain[key] = value
	}
	want.MatchLabels = plain
	selector, err := metav1.LabelSelectorAsSelector(want)
	return err == nil && selector.Matches(labels.Set(have))
}

var zeros = strings.NewReplacer("*", "0", "?", "0")

var versionForm = regexp.MustCompile(`^(v\d+((alpha|beta)\d+)?|\*)$`)

// kindMatches reports whether a kind of a match block selects gvk. The pattern is
// [group/][version/]kind, with wildcards, and may have a subresource after a slash or a point.
func kindMatches(pattern string, gvk schema.GroupVersionKind) bool {
	group, version, kind, sub := selectorOf(pattern)
	return like(group, gvk.Group) && like(version, gvk.Version) && like(kind, gvk.Kind) && like(sub, "")
}

func selectorOf(s string) (group, version, kind, sub string) {
	parts := strings.Split(s, "/")
	parts = append(parts[:len(parts)-1], strings.Split(parts[len(parts)-1], ".")...)
	switch len(parts) {
	case 1:
		return "*", "*", parts[0], ""
	case 2:
		switch {
		case parts[0] == "*" && parts[1] == "*":
			return "*", "*", "*", "*"
		case parts[0] == "*" && strings.ToLower(parts[1]) == parts[1]:
			return "*", "*", parts[0], parts[1]
		case versionForm.MatchString(parts[0]):
			return "*", parts[0], parts[1], ""
		}
		return "*", "*", parts[0], parts[1]
	case 3:
		if versionForm.MatchString(parts[0]) {
			return "*", parts[0], parts[1], parts[2]
		}
		return parts[0], parts[1], parts[2], ""
	case 4:
		return parts[0], parts[1], parts[2], parts[3]
	}
	return "", "", "", ""
}
