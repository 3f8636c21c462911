package direct

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// Matches reports whether a mutator matches the current object, see Misses.
func Matches(m *legacy.Mutator, obj map[string]any, c Context) (bool, error) {
	failed, err := Misses(m, obj, c)
	return failed == "" && err == nil, err
}

// Misses returns the field of the first criterion of a mutator that the current object does not
// satisfy, such as "spec.match.scope"; "" if it satisfies all. It checks the criteria in
// Gatekeeper's order and stops at the first that fails, so an invalid criterion is an error
// only if all before it hold (Gatekeeper spec §7.2).
func Misses(m *legacy.Mutator, obj map[string]any, c Context) (field string, err error) {
	s := subject{Unstructured: unstructured.Unstructured{Object: obj}, source: c.Source}
	if c.Namespace != nil {
		s.in = &unstructured.Unstructured{Object: c.Namespace}
	}
	gvk := s.GroupVersionKind()
	switch {
	case !m.InApplyTo(gvk, c.Operation):
		return "spec.applyTo", nil
	case !m.InKinds(gvk):
		return "spec.match.kinds", nil
	case !s.inScope(m.Match.Scope):
		return "spec.match.scope", nil
	case !s.inNamespaces(&m.Match):
		return "spec.match.namespaces", nil
	case s.excluded(&m.Match):
		return "spec.match.excludedNamespaces", nil
	}
	for _, criterion := range []struct {
		field string
		holds func(*legacy.Match) (bool, error)
	}{
		{"spec.match.labelSelector", s.labels}, {"spec.match.namespaceSelector", s.namespaceLabels},
		{"spec.match.name", s.name}, {"spec.match.source", s.from},
	} {
		ok, err := criterion.holds(&m.Match)
		if err != nil {
			return "", fmt.Errorf("matching for mutator %s failed for %s: failed to run Match criteria: %w", m, describe(obj), err)
		}
		if !ok {
			return criterion.field, nil
		}
	}
	return "", nil
}

// subject is an object that a mutator may match.
type subject struct {
	unstructured.Unstructured
	in     *unstructured.Unstructured // the object's Namespace; nil if it is not known
	source string
}

func (s *subject) isNamespace() bool {
	return s.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Namespace"}
}

func (s *subject) inScope(scope string) bool {
	namespaced := !s.isNamespace() && (s.GetNamespace() != "" || s.in != nil)
	switch scope {
	case "Cluster":
		return !namespaced
	case "Namespaced":
		return namespaced
	default:
		return true
	}
}

// inNamespaces checks namespaces, and excluded checks excludedNamespaces. Both let objects
// without a namespace pass (Gatekeeper spec §7.3).
func (s *subject) inNamespaces(match *legacy.Match) bool {
	name, ok := s.home()
	return !ok || len(match.Namespaces) == 0 || among(match.Namespaces, name)
}

func (s *subject) excluded(match *legacy.Match) bool {
	name, ok := s.home()
	return ok && among(match.ExcludedNamespaces, name)
}

func among(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return legacy.Wildcard(pattern, name) })
}

// home returns the name of the object's namespace; for a Namespace object, its own name.
func (s *subject) home() (name string, ok bool) {
	switch {
	case s.isNamespace():
		return s.GetName(), true
	case s.in != nil:
		return s.in.GetName(), true
	}
	name = s.GetNamespace()
	return name, name != ""
}

func (s *subject) labels(match *legacy.Match) (bool, error) {
	return matchLabels(match.LabelSelector, s.GetLabels())
}

func (s *subject) namespaceLabels(match *legacy.Match) (bool, error) {
	switch {
	case match.NamespaceSelector == nil:
		return true, nil
	case s.isNamespace():
		return matchLabels(match.NamespaceSelector, s.GetLabels())
	case s.in != nil:
		return matchLabels(match.NamespaceSelector, s.in.GetLabels())
	case s.GetNamespace() == "":
		return true, nil // the selector is not parsed
	default:
		if _, err := matchLabels(match.NamespaceSelector, nil); err != nil {
			return false, err
		}
		return false, errors.New("namespace selector for namespace-scoped object but missing Namespace")
	}
}

func matchLabels(selector *metav1.LabelSelector, set map[string]string) (bool, error) {
	if selector == nil {
		return true, nil
	}
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	return compiled.Matches(labels.Set(set)), nil
}

func (s *subject) name(match *legacy.Match) (bool, error) {
	return match.Name == "" || legacy.Wildcard(match.Name, s.GetName()) ||
		legacy.WildcardPrefix(match.Name, s.GetGenerateName()), nil
}

// from checks match.source: whether the object comes from a request or an expansion.
func (s *subject) from(match *legacy.Match) (bool, error) {
	switch want := match.Source; {
	case want == "" || want == "All":
		return true, nil
	case want != "Original" && want != "Generated":
		return false, fmt.Errorf("invalid source field %q", want)
	case s.source == "":
		return false, fmt.Errorf("source field not specified for resource %s", s.GetName())
	case s.source != "All" && s.source != "Original" && s.source != "Generated":
		return false, fmt.Errorf("invalid source field %q", s.source)
	default:
		return s.source == want, nil
	}
}
