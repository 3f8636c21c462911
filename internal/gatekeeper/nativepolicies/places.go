package nativepolicies

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mapd-project/mapd/pkg/api"
)

const (
	// serverHandover is how long it may take, after mapd has seen a native
	// policy, until every API server runs it: they look for changes once a
	// second (k8s.io/apiserver pkg/admission/plugin/policy/generic:
	// policyRefreshInterval) and then compile.
	serverHandover = 5 * time.Second
	// ownHandover is how long it may take until other replicas run what this
	// one runs, and until API servers know an entry of the webhook
	// configuration that this replica knows.
	ownHandover = 500 * time.Millisecond
	// patience is how long an outdated version of a policy may stand in for a mutator. If the
	// present version cannot be written in that time, the set runs the mutator again.
	patience = 10 * time.Second
)

func handoverOf(group string) time.Duration {
	if group == api.OwnGroup {
		return ownHandover
	}
	return serverHandover
}

// Place is where a mutator runs.
type Place struct {
	Unit string // "" if the mutator gets no policy
	// Out: the set does not run the mutator, because policies do.
	Out bool
	// Settled lists the groups in which the mutator's unit is stored as wanted, for so long that
	// all API servers and replicas run it.
	Settled []string
	// Known: the set runs the mutator, and API servers call mapd for it.
	Known bool
}

func (p Place) equal(q Place) bool {
	return p.Unit == q.Unit && p.Out == q.Out && p.Known == q.Known && slices.Equal(p.Settled, q.Settled)
}

// Places maps the ID of every mutator that has to run to where it runs.
type Places map[string]Place

// Equal reports whether p and q are the same.
func (p Places) Equal(q Places) bool { return maps.EqualFunc(p, q, Place.equal) }

// dependOn reports whether a mutator that is not in but runs only in o: deleting o would leave it
// without a place to run.
func (p Places) dependOn(o *Object, but ...Owner) bool {
	return o != nil && slices.ContainsFunc(o.Owners, func(w Owner) bool {
		return !p.independentOf(w.ID(), o.Key) && !slices.ContainsFunc(but, func(b Owner) bool { return b.ID() == w.ID() })
	})
}

// independentOf reports whether the mutator with an ID also runs outside of the object with key
// k.
func (p Places) independentOf(id string, k Key) bool {
	place, ok := p[id]
	return !ok || place.Known || slices.ContainsFunc(place.Settled, func(group string) bool {
		return group != k.Group || place.Unit != k.Name
	})
}

// Sight is what a replica sees of the cluster at one time.
type Sight struct {
	Objects map[Key]*Object
	// Acts reports whether API servers or mapd run the policy with a key, or
	// will within the handover. If Acts is nil, they run all policies.
	Acts func(k Key) bool
	// Called: API servers call mapd for every mutator that is in the set now.
	Called bool
	// Hidden has the kinds whose mutators mapd cannot see, because it may not
	// list them, for example.
	Hidden []string
}

// Tracker remembers where each mutator runs. A new Tracker keeps every mutator in the set until
// it has seen a policy run it.
type Tracker struct {
	begun  bool
	tracks map[string]*track
	called time.Time // since when API servers call mapd for the set; zero: they do not
}

type track struct {
	out     bool
	in      time.Time            // since when the set runs the mutator
	late    time.Time            // since when only an outdated version of its policy is stored; zero: this is not so
	current map[string]time.Time // by group: since when the unit is stored as wanted
	alone   time.Time            // since when no other policy exists for a mutator of the unit; zero: one exists
}

// Settle compares the wanted with the stored policies at a time. It returns the places, and after
// which time to call it again if nothing changes before; 0 means never.
func (t *Tracker) Settle(w *Wanted, s Sight, at time.Time) (Places, time.Duration) {
	c := clock{at: at}
	switch {
	case !s.Called:
		t.called = time.Time{}
	case t.called.IsZero():
		t.called = at
	}
	by, old := s.policies(), t.tracks
	t.tracks = map[string]*track{}
	follow := func(id string) *track {
		k := old[id]
		if k == nil {
			k = &track{in: at, current: map[string]time.Time{}}
			if !t.begun && len(by[id]) > 0 {
				k.in = at.Add(patience) // other replicas may rely on the policy for so long
			}
		}
		t.tracks[id] = k
		return k
	}
	places := Places{}
	for i := range w.Units {
		u := &w.Units[i]
		for _, o := range u.Owners {
			places[o.ID()] = t.unit(follow(o.ID()), u, o.ID(), s, by, &c)
		}
	}
	for id := range w.Stay {
		k := follow(id)
		k.returnToSet(at)
		k.late, k.current = time.Time{}, map[string]time.Time{}
		places[id] = Place{Known: t.known(k, &c)}
	}
	for id := range by {
		kind, _, _ := strings.Cut(id, "/")
		if _, seen := places[id]; !seen && slices.Contains(s.Hidden, kind) {
			places[id] = Place{Out: true} // where else
		}
	}
	t.begun = true
	return places, c.wait
}

// policies maps the ID of a mutator to the policies, in any version, that mapd wrote for it.
type policies map[string][]*Object

func (s Sight) policies() policies {
	out := policies{}
	for k, o := range s.Objects {
		if k.Binding || !o.Ours {
			continue
		}
		for _, owner := range o.Owners {
			out[owner.ID()] = append(out[owner.ID()], o)
		}
	}
	return out
}

// hasOther reports whether a policy other than that of a unit exists for one of
// the unit's mutators.
func (p policies) hasOther(u *Unit) bool {
	return slices.ContainsFunc(u.Owners, func(w Owner) bool {
		return slices.ContainsFunc(p[w.ID()], func(o *Object) bool { return o.Name != u.Name })
	})
}

// hasPolicyFor reports whether a policy with its binding exists for a mutator.
func (s Sight) hasPolicyFor(id string, by policies) bool {
	return slices.ContainsFunc(by[id], func(o *Object) bool {
		b := s.Objects[o.partner()]
		return o.isLive() && b != nil && b.isLive()
	})
}

func (o *Object) isLive() bool { return o.Ours && !o.Going }

// current reports whether a unit is stored in a group as wanted, and runs.
func (s Sight) current(u *Unit, group string) bool {
	key := Key{Group: group, Name: u.Name}
	p, b := s.Objects[key], s.Objects[key.partner()]
	return p != nil && b != nil && p.isLive() && b.isLive() && p.Digest == u.Policy.Digest && b.Digest == u.Binding.Digest &&
		(s.Acts == nil || s.Acts(key))
}

// unit returns the place of a mutator that has a unit.
func (t *Tracker) unit(k *track, u *Unit, id string, s Sight, by policies, c *clock) Place {
	p := Place{Unit: u.Name}
	for _, group := range Groups() {
		if !s.current(u, group) {
			delete(k.current, group)
			continue
		}
		since, known := k.current[group]
		if !known {
			since = c.at
			k.current[group] = since
		}
		if c.reached(since.Add(handoverOf(group))) {
			p.Settled = append(p.Settled, group)
		}
	}
	switch {
	case by.hasOther(u):
		k.alone = time.Time{}
	case k.alone.IsZero():
		k.alone = c.at
	}
	switch {
	case len(p.Settled) > 0:
		// While another policy for the same mutator still runs, the set keeps running the mutator
		// too: the other policy may run after the unit's and overwrite its result, and the set
		// runs after both.
		k.late = time.Time{}
		k.out = k.out || !k.alone.IsZero() && c.reached(k.alone.Add(serverHandover))
	case len(k.current) > 0:
		k.late = time.Time{} // nothing moves until the policy is settled
	case s.hasPolicyFor(id, by):
		if k.late.IsZero() {
			k.late = c.at
		}
		if k.out && c.reached(k.late.Add(patience)) {
			k.returnToSet(c.at)
		}
	default:
		k.late = time.Time{}
		k.returnToSet(c.at)
	}
	p.Out = k.out
	p.Known = t.known(k, c)
	return p
}

// returnToSet has the set run the mutator again.
func (k *track) returnToSet(at time.Time) {
	if k.out {
		k.out, k.in = false, at
	}
}

// known reports whether the set runs the mutator and has been called for it
// long enough.
func (t *Tracker) known(k *track, c *clock) bool {
	if k.out || t.called.IsZero() {
		return false
	}
	since := k.in
	if t.called.After(since) {
		since = t.called
	}
	return c.reached(since.Add(ownHandover))
}

// clock holds the present time and the shortest time until a deadline that was not reached.
type clock struct {
	at   time.Time
	wait time.Duration
}

func (c *clock) reached(due time.Time) bool {
	left := due.Sub(c.at)
	if left <= 0 {
		return true
	}
	if c.wait == 0 || left < c.wait {
		c.wait = left
	}
	return false
}
