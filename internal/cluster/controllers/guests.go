package controllers

import "github.com/mapd-project/mapd/internal/cluster/store"

// GuestsName is the ConfigMap in mapd's namespace that says what has become of
// Kubewarden's policies. Their own status is Kubewarden's, which may be running.
const GuestsName = "mapd-kubewarden"

// What can be said of a policy of Kubewarden's.
const (
	guestRunning = "running"
	guestLoading = "loading" // its module is fetched and compiled; until then it is as if broken
	guestBroken  = "broken"  // requests that it meets fail by its failurePolicy
	guestRefused = "refused" // what it matches is not known, so it has no effect
)

var guestListing = listing{
	name: GuestsName, key: "policies", about: "Kubewarden's policies", one: "policy", many: "policies",
	states: []string{guestRunning, guestLoading, guestBroken, guestRefused},
	reason: "PolicyNotRunning", action: "Load",
	read: func(s *store.Snapshot) (out listed, ok bool) {
		if s.Guests == nil {
			return out, false
		}
		for i := range s.Guests.Policies {
			p := &s.Guests.Policies[i]
			out.lines = append(out.lines, listedObject{object: p.Object, id: p.ID, state: guestState(p), text: p.Text(), bad: p.Err != nil && !p.Loading})
		}
		return out, true
	},
}

func guestState(s *store.GuestState) string {
	switch {
	case s.Err == nil:
		return guestRunning
	case s.Loading:
		return guestLoading
	case s.Undecoded:
		return guestRefused
	}
	return guestBroken
}
