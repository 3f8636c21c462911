package legacy

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Wildcard reports whether a pattern of match.name, match.namespaces, match.excludedNamespaces
// or of a Config matches a name. One asterisk at the beginning and one at the end are
// wildcards, all others are literal (Gatekeeper spec §7.4).
func Wildcard(pattern, name string) bool {
	text, front := strings.CutPrefix(pattern, "*")
	// The asterisk of "*" is at both ends.
	end := strings.HasSuffix(pattern, "*")
	text = strings.TrimSuffix(text, "*")
	switch {
	case front && end:
		return strings.Contains(name, text)
	case front:
		return strings.HasSuffix(name, text)
	case end:
		return strings.HasPrefix(name, text)
	default:
		return name == pattern
	}
}

// WildcardPrefix reports whether a pattern of match.name matches a
// generateName. The end of the name is not known yet, so "start*" and "*mid*"
// may match, and "*end" and an exact name never do.
func WildcardPrefix(pattern, generateName string) bool {
	return strings.HasSuffix(pattern, "*") && Wildcard(pattern, generateName)
}

// AppliesTo reports whether applyTo and match.kinds include objects of a kind (Gatekeeper spec
// §7.1, §7.2). operation is CREATE or UPDATE; for "" an entry of applyTo has to include both.
// An AssignMetadata ignores operations.
func (m *Mutator) AppliesTo(gvk schema.GroupVersionKind, operation string) bool {
	return m.InApplyTo(gvk, operation) && m.InKinds(gvk)
}

// InApplyTo is the part of AppliesTo about applyTo.
func (m *Mutator) InApplyTo(gvk schema.GroupVersionKind, operation string) bool {
	if m.CreateOnly && operation != "CREATE" {
		return false
	}
	return m.Kind == AssignMetadata || slices.ContainsFunc(m.ApplyTo, func(a ApplyTo) bool {
		return slices.Contains(a.Groups, gvk.Group) &&
			slices.Contains(a.Versions, gvk.Version) &&
			slices.Contains(a.Kinds, gvk.Kind) &&
			a.Covers(operation)
	})
}

// OnCreate returns a copy of the mutator that only changes objects that are created.
func (m *Mutator) OnCreate() *Mutator {
	c := *m
	c.CreateOnly = true
	return &c
}

// InKinds is the part of AppliesTo about match.kinds.
func (m *Mutator) InKinds(gvk schema.GroupVersionKind) bool {
	return len(m.Match.Kinds) == 0 || slices.ContainsFunc(m.Match.Kinds, func(k MatchKinds) bool {
		return anyOf(k.Kinds, gvk.Kind) && anyOf(k.APIGroups, gvk.Group)
	})
}

func anyOf(list []string, s string) bool {
	return len(list) == 0 || slices.Contains(list, "*") || slices.Contains(list, s)
}

// FromSource reports whether match.source holds for objects of a source, "Original"
// or "Generated".
func (m *Match) FromSource(source string) bool {
	return m.Source == "" || m.Source == "All" || m.Source == source
}

// OfRequests reports whether match.source holds for objects in requests of clients, which are
// the only ones that webhooks and policies get.
func (m *Match) OfRequests() bool { return m.FromSource("Original") }

// InNamespace reports whether objects in a namespace, "" for none, satisfy scope, namespaces
// and excludedNamespaces. It must not be called for Namespace objects (Gatekeeper spec §7.3).
func (m *Match) InNamespace(name string) bool {
	if name == "" {
		return m.Scope != "Namespaced"
	}
	matches := func(pattern string) bool { return Wildcard(pattern, name) }
	return m.Scope != "Cluster" &&
		(len(m.Namespaces) == 0 || slices.ContainsFunc(m.Namespaces, matches)) &&
		!slices.ContainsFunc(m.ExcludedNamespaces, matches)
}

// operations is a set of the operations that Gatekeeper serves.
type operations uint8

const (
	create operations = 1 << iota
	update
)

func (a ApplyTo) operations() operations {
	if len(a.Operations) == 0 || slices.Contains(a.Operations, "*") {
		return create | update
	}
	var ops operations
	if slices.Contains(a.Operations, "CREATE") {
		ops |= create
	}
	if slices.Contains(a.Operations, "UPDATE") {
		ops |= update
	}
	return ops
}

// Covers reports whether the entry includes an operation, or both operations if
// it is "".
func (a ApplyTo) Covers(operation string) bool { return a.operations().covers(operation) }

func (o operations) covers(operation string) bool {
	switch operation {
	case "":
		return o == create|update
	case "CREATE":
		return o&create != 0
	case "UPDATE":
		return o&update != 0
	default:
		return false
	}
}
