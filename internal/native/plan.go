package native

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Action is one thing to do.
type Action struct {
	Key
	// Part is what to apply; nil: delete what is there.
	Part *Part
	// Unit names the unit that this is for, empty when something is deleted.
	Unit string
	// Seen is what was looked at; nil if nothing is stored under Key.
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

// Placed is a unit and the group in which its policy is to stand.
type Placed struct {
	Unit
	Group string
}

// Actions are what there is to do, in this order, and what cannot be done.
type Actions struct {
	List []Action
	// Foreign says which units have to do without because somebody else has an object
	// of that name.
	Foreign map[string]string
}

// Plan compares what should be stored with what is. Policies are written before
// bindings and deleted after them. What a mutator depends on is only taken away
// when it has another place.
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
		if places.need(policy, u.Owners...) || places.need(bound, u.Owners...) {
			continue
		}
		out.apply(u, key, &u.Policy, policy)
		out.apply(u, key.partner(), &u.Binding, bound)
	}
	out.prune(stored, wanted, places)
	return out
}

// foreign says that something under a unit's name is somebody else's.
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
		return // it is written when it has gone
	case is.Digest == part.Digest && is.wears(part, u.Owners):
		return
	}
	a.List = append(a.List, Action{Key: key, Part: part, Unit: u.Name, Seen: is})
}

// prune deletes what is ours and not wanted.
func (a *Actions) prune(stored map[Key]*Object, wanted map[Key]bool, places Places) {
	var policies, bindings []Action
	for _, key := range slices.SortedFunc(maps.Keys(stored), compareKeys) {
		o := stored[key]
		if wanted[key] || !o.Ours || o.Going {
			continue
		}
		// Either is nothing without the other, so both stay or both go.
		if places.need(o) || places.need(stored[key.partner()]) {
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
