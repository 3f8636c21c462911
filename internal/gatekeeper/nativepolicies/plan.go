package nativepolicies

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Action is one write or deletion.
type Action struct {
	Key
	// Part is what to apply; nil means to delete the stored object.
	Part *Part
	// Unit names the unit that is written; "" for a deletion.
	Unit string
	// Seen is the stored object that the action was decided on; nil if there is none.
	Seen *Object
}

func (a Action) String() string {
	kind, verb := "policy", "apply"
	if a.Binding {
		kind = "binding"
	}
	if a.Part == nil {
		verb = "delete"
	}
	return fmt.Sprintf("%s %s %s.%s", verb, kind, a.Name, a.Group)
}

// Placed is a unit and the group of its policy.
type Placed struct {
	Unit
	Group string
}

// Actions are the writes and deletions, in their order, and the units that
// cannot be written.
type Actions struct {
	List []Action
	// Foreign maps units that cannot be written to the reason: an object of that name belongs to
	// somebody else.
	Foreign map[string]string
}

// Plan compares the wanted with the stored objects. Policies are written before
// bindings and deleted after them. An object that a mutator depends on is
// deleted only when the mutator has another place.
func Plan(units []Placed, stored map[Key]*Object, places Places) Actions {
	out := Actions{Foreign: map[string]string{}}
	wanted := map[Key]bool{}
	for i := range units {
		u := &units[i]
		key := Key{Group: u.Group, Name: u.Name}
		policy, bound := stored[key], stored[key.partner()]
		if text := foreign(policy, bound); text != "" {
			out.Foreign[u.Name] = text
			continue
		}
		wanted[key], wanted[key.partner()] = true, true
		if places.dependOn(policy, u.Owners...) || places.dependOn(bound, u.Owners...) {
			continue
		}
		out.apply(u, key, &u.Policy, policy)
		out.apply(u, key.partner(), &u.Binding, bound)
	}
	out.prune(stored, wanted, places)
	return out
}

// foreign returns the reason why a unit cannot be written because somebody else has an object of
// its name, or "".
func foreign(policy, bound *Object) string {
	var kinds []string
	if policy != nil && !policy.Ours {
		kinds = append(kinds, "policy")
	}
	if bound != nil && !bound.Ours {
		kinds = append(kinds, "binding")
	}
	if len(kinds) == 0 {
		return ""
	}
	one := policy
	if policy == nil || policy.Ours {
		one = bound
	}
	return fmt.Sprintf("there is a %s %s of %s without the labels of mapd, which leaves it alone; delete or rename it",
		strings.Join(kinds, " and a "), one.Name, one.Group)
}

func (a *Actions) apply(u *Placed, key Key, part *Part, is *Object) {
	switch {
	case is == nil:
	case is.Going:
		return // written after the deletion has finished
	case is.Digest == part.Digest && is.hasMetadataOf(part, u.Owners):
		return
	}
	a.List = append(a.List, Action{Key: key, Part: part, Unit: u.Name, Seen: is})
}

// prune deletes objects that mapd keeps and that are no longer wanted.
func (a *Actions) prune(stored map[Key]*Object, wanted map[Key]bool, places Places) {
	var policies, bindings []Action
	for _, key := range slices.SortedFunc(maps.Keys(stored), compareKeys) {
		o := stored[key]
		if wanted[key] || !o.Ours || o.Going {
			continue
		}
		// A policy and its binding work only together, so both stay or both go.
		if places.dependOn(o) || places.dependOn(stored[key.partner()]) {
			continue
		}
		if act := (Action{Key: key, Seen: o}); key.Binding {
			bindings = append(bindings, act)
		} else {
			policies = append(policies, act)
		}
	}
	a.List = slices.Concat(a.List, bindings, policies)
}
