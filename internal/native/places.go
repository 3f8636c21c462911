package native

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mapd-project/mapd/pkg/api"
)

const (
	// serverHandover is how long after we have seen a native policy it may take until
	// every API server runs it: they look for news once a second (k8s.io/apiserver
	// pkg/admission/plugin/policy/generic: policyRefreshInterval) and then compile.
	serverHandover = 5 * time.Second
	// ownHandover is how long it may take until other replicas run what this one
	// does, and until API servers know of an entry that we know of.
	ownHandover = 500 * time.Millisecond
	// patience is how long a policy of an earlier version stands for a mutator. When
	// the present one cannot be written, the set runs the mutator instead.
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
	Unit string // empty: it is not to be moved
	// Out says that the set does not run it, because policies do.
	Out bool
	// Settled are the groups in which its unit is stored as it should be, and known
	// to everybody who runs it.
	Settled []string
	// Known says that the set runs it and that servers call mapd for it.
	Known bool
}

func (p Place) equal(q Place) bool {
	return p.Unit == q.Unit && p.Out == q.Out && p.Known == q.Known && slices.Equal(p.Settled, q.Settled)
}

// Places are those of all mutators that are to run, by ID.
type Places map[string]Place

// Equal says that nothing has moved.
func (p Places) Equal(q Places) bool { return maps.EqualFunc(p, q, Place.equal) }

// need says that a mutator, other than some, has no place but an object.
func (p Places) need(o *Object, but ...Owner) bool {
	return o != nil && slices.ContainsFunc(o.Owners, func(w Owner) bool {
		return !p.free(w.ID(), o.Key) && !slices.ContainsFunc(but, func(b Owner) bool { return b.ID() == w.ID() })
	})
}

// free says that a mutator can do without what is stored under a key.
func (p Places) free(id string, k Key) bool {
	place, ok := p[id]
	return !ok || place.Known || slices.ContainsFunc(place.Settled, func(group string) bool {
		return group != k.Group || place.Unit != k.Name
	})
}

// Sight is what can be seen of a cluster at one time.
type Sight struct {
	Objects map[Key]*Object
	// Acts says that a policy of ours does what it says, or will within the handover;
	// nil: all do.
	Acts func(k Key) bool
	// Called says that servers call mapd for all that the set of now is for.
	Called bool
	// Hidden are the kinds whose mutators cannot be seen, as when mapd may not list
	// them.
	Hidden []string
}

// Tracker follows mutators from place to place. The zero Tracker knows nothing, and has
// the set run everything until it has seen for itself that policies do.
type Tracker struct {
	begun  bool
	tracks map[string]*track
	called time.Time // since when servers call mapd for the set
}

type track struct {
	out     bool
	in      time.Time            // since when the set runs it
	late    time.Time            // since when there is but an earlier version of the policy; zero: it is not so
	current map[string]time.Time // by group, since when the unit is as it should be
	alone   time.Time            // since when no other policy stands for a mutator of the unit; zero: one does
}

// Settle takes in what is wanted and what is there. It returns the places, and
// after which time to ask again: 0 if only news can change something.
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
				k.in = at.Add(patience) // as long as others may rely on that policy
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
		k.enter(at)
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

// policies are those of ours that are there for a mutator, by its ID, in whatever
// version.
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

// others says that a policy besides that of a unit is there for one of its mutators.
func (p policies) others(u *Unit) bool {
	return slices.ContainsFunc(u.Owners, func(w Owner) bool {
		return slices.ContainsFunc(p[w.ID()], func(o *Object) bool { return o.Name != u.Name })
	})
}

// covers says that a policy with its binding stands for a mutator.
func (s Sight) covers(id string, by policies) bool {
	return slices.ContainsFunc(by[id], func(o *Object) bool {
		b := s.Objects[o.partner()]
		return o.stands() && b != nil && b.stands()
	})
}

func (o *Object) stands() bool { return o.Ours && !o.Going }

// current says whether a unit is stored in a group as it should be, and acts.
func (s Sight) current(u *Unit, group string) bool {
	key := Key{Group: group, Name: u.Name}
	p, b := s.Objects[key], s.Objects[key.partner()]
	return p != nil && b != nil && p.stands() && b.stands() && p.Digest == u.Policy.Digest && b.Digest == u.Binding.Digest &&
		(s.Acts == nil || s.Acts(key))
}

// unit is the place of a mutator that a unit stands for.
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
		if c.past(since.Add(handoverOf(group))) {
			p.Settled = append(p.Settled, group)
		}
	}
	switch {
	case by.others(u):
		k.alone = time.Time{}
	case k.alone.IsZero():
		k.alone = c.at
	}
	switch {
	case len(p.Settled) > 0:
		// A policy of before that acts after the unit's would have the last word,
		// which the set has over both.
		k.late = time.Time{}
		k.out = k.out || !k.alone.IsZero() && c.past(k.alone.Add(serverHandover))
	case len(k.current) > 0:
		k.late = time.Time{} // until it is settled, all stays as it is
	case s.covers(id, by):
		if k.late.IsZero() {
			k.late = c.at
		}
		if k.out && c.past(k.late.Add(patience)) {
			k.enter(c.at)
		}
	default:
		k.late = time.Time{}
		k.enter(c.at)
	}
	p.Out = k.out
	p.Known = t.known(k, c)
	return p
}

// enter has the set run it again.
func (k *track) enter(at time.Time) {
	if k.out {
		k.out, k.in = false, at
	}
}

// known says that the set runs it and has been called for it long enough.
func (t *Tracker) known(k *track, c *clock) bool {
	if k.out || t.called.IsZero() {
		return false
	}
	since := k.in
	if t.called.After(since) {
		since = t.called
	}
	return c.past(since.Add(ownHandover))
}

// clock notes the next moment at which something is due.
type clock struct {
	at   time.Time
	wait time.Duration
}

func (c *clock) past(due time.Time) bool {
	left := due.Sub(c.at)
	if left <= 0 {
		return true
	}
	if c.wait == 0 || left < c.wait {
		c.wait = left
	}
	return false
}
