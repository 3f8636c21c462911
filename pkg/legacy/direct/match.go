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

// Matches reports whether a mutator applies to an object as it is now. It
// checks the criteria in Gatekeeper's order and stops at the first that fails,
// so a broken one is an error only if all before it hold (Gatekeeper spec
// §7.2).
func Matches(m *legacy.Mutator, obj map[string]any, c Context) (bool, error) {
	s := subject{Unstructured: unstructured.Unstructured{Object: obj}, source: c.Source}
	if c.Namespace != nil {
		s.in = &unstructured.Unstructured{Object: c.Namespace}
	}
	if !m.AppliesTo(s.GroupVersionKind(), c.Operation) || !s.inScope(m.Match.Scope) || !s.inNamespaces(&m.Match) {
		return false, nil
	}
	for _, criterion := range []func(*legacy.Match) (bool, error){s.labels, s.namespaceLabels, s.name, s.from} {
		ok, err := criterion(&m.Match)
		if err != nil {
			return false, fmt.Errorf("matching for mutator %s failed for %s: failed to run Match criteria: %w", m, describe(obj), err)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

// subject is an object that a mutator may match.
type subject struct {
	unstructured.Unstructured
	in     *unstructured.Unstructured // its Namespace, nil if none is known
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

// inNamespaces checks namespaces and excludedNamespaces. Both hold for objects
// without a namespace (Gatekeeper spec §7.3).
func (s *subject) inNamespaces(match *legacy.Match) bool {
	name := s.GetNamespace()
	switch {
	case s.isNamespace():
		name = s.GetName()
	case s.in != nil:
		name = s.in.GetName()
	case name == "":
		return true
	}
	matches := func(pattern string) bool { return legacy.Wildcard(pattern, name) }
	return (len(match.Namespaces) == 0 || slices.ContainsFunc(match.Namespaces, matches)) &&
		!slices.ContainsFunc(match.ExcludedNamespaces, matches)
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
		return true, nil // the selector is not even read
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

// from checks where the object comes from: a request or an expansion.
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
