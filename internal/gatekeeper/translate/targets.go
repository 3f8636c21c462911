package translate

import (
	"cmp"
	"slices"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// Target is one combination of group, version, kind and operations that a
// mutator applies to. "*" means any.
type Target struct {
	Group, Version, Kind string
	Create, Update       bool
}

// Targets lists the requests that the mutator applies to by applyTo, match.kinds and
// match.source, each combination once, sorted.
func Targets(m *legacy.Mutator) []Target {
	var out []Target
	if !m.Match.OfRequests() {
		return nil
	}
	for _, t := range applied(m) {
		out = append(out, narrowed(t, m.Match.Kinds)...)
	}
	slices.SortFunc(out, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
	return merged(out)
}

// applied returns the combinations of applyTo.
func applied(m *legacy.Mutator) []Target {
	if m.Kind == legacy.AssignMetadata {
		return []Target{{Group: "*", Version: "*", Kind: "*", Create: true, Update: !m.CreateOnly}}
	}
	var out []Target
	for _, a := range m.ApplyTo {
		create, update := a.Covers("CREATE"), a.Covers("UPDATE") && !m.CreateOnly
		if !create && !update {
			continue
		}
		for _, g := range a.Groups {
			for _, v := range a.Versions {
				for _, k := range a.Kinds {
					if g == "*" || v == "*" || k == "*" {
						continue // applyTo knows no wildcard: no kind is named "*"
					}
					out = append(out, Target{g, v, k, create, update})
				}
			}
		}
	}
	return out
}

// narrowed returns the part of a target that match.kinds includes.
func narrowed(t Target, kinds []legacy.MatchKinds) []Target {
	if len(kinds) == 0 {
		return []Target{t}
	}
	var out []Target
	for _, k := range kinds {
		for _, g := range narrow(t.Group, k.APIGroups) {
			for _, kind := range narrow(t.Kind, k.Kinds) {
				out = append(out, Target{g, t.Version, kind, t.Create, t.Update})
			}
		}
	}
	return out
}

// narrow returns the names that name and list have in common. "*" and an empty list stand for all
// names.
func narrow(name string, list []string) []string {
	switch {
	case len(list) == 0 || slices.Contains(list, "*") || slices.Contains(list, name):
		return []string{name}
	case name == "*":
		return list
	}
	return nil
}

// merged merges adjacent targets that differ only in their operations.
func merged(sorted []Target) []Target {
	var out []Target
	for _, t := range sorted {
		if n := len(out); n > 0 {
			last := &out[n-1]
			if last.Group == t.Group && last.Version == t.Version && last.Kind == t.Kind {
				last.Create, last.Update = last.Create || t.Create, last.Update || t.Update
				continue
			}
		}
		out = append(out, t)
	}
	return out
}
