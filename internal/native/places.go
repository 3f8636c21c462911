package native

import (
	"maps"
	"slices"
	"time"

	"github.com/mapd-project/mapd/pkg/policy"
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
	if group == policy.OwnGroup {
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
}

// Tracker follows mutators from place to place. The zero Tracker knows nothing:
// what it sees first it takes to have been so for as long as objects tell.
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
	old := t.tracks
	t.tracks = map[string]*track{}
	follow := func(id string) *track {
		k := old[id]
		if k == nil {
			k = &track{in: at, current: map[string]time.Time{}}
		}
		t.tracks[id] = k
		return k
	}
	covered := s.covered()
	places := Places{}
	for i := range w.Units {
		u := &w.Units[i]
		for _, o := range u.Owners {
			places[o.ID()] = t.unit(follow(o.ID()), u, s, covered[o.ID()], &c)
		}
	}
	for id := range w.Stay {
		k := follow(id)
		k.enter(at)
		k.late, k.current = time.Time{}, map[string]time.Time{}
		places[id] = Place{Known: t.known(k, &c)}
	}
	t.begun = true
	return places, c.wait
}

// covered are the mutators for which there is a policy of ours and its binding, in
// whatever version.
func (s Sight) covered() map[string]bool {
	out := map[string]bool{}
	for k, o := range s.Objects {
		if b := s.Objects[k.partner()]; k.Binding || !o.stands() || b == nil || !b.stands() {
			continue
		}
		for _, owner := range o.Owners {
			out[owner.ID()] = true
		}
	}
	return out
}

func (o *Object) stands() bool { return o.Ours && !o.Going }

// current says whether a unit is stored in a group as it should be, and acts;
// created is when the later part was.
func (s Sight) current(u *Unit, group string) (created time.Time, ok bool) {
	key := Key{Group: group, Name: u.Name}
	p, b := s.Objects[key], s.Objects[key.partner()]
	if p == nil || b == nil || !p.stands() || !b.stands() || p.Digest != u.Policy.Digest || b.Digest != u.Binding.Digest ||
		s.Acts != nil && !s.Acts(key) {
		return created, false
	}
	if p.Created.After(b.Created) {
		return p.Created, true
	}
	return b.Created, true
}

// unit is the place of a mutator that a unit stands for.
func (t *Tracker) unit(k *track, u *Unit, s Sight, covered bool, c *clock) Place {
	p := Place{Unit: u.Name}
	for _, group := range Groups() {
		created, ok := s.current(u, group)
		if !ok {
			delete(k.current, group)
			continue
		}
		since, known := k.current[group]
		if !known {
			since = c.at
			if !t.begun && created.Before(since) {
				since = created
			}
			k.current[group] = since
		}
		if c.past(since.Add(handoverOf(group))) {
			p.Settled = append(p.Settled, group)
		}
	}
	switch {
	case len(p.Settled) > 0:
		k.out, k.late = true, time.Time{}
	case len(k.current) > 0:
		k.late = time.Time{} // until it is settled, all stays as it is
	case covered:
		if k.late.IsZero() {
			k.late = c.at
		}
		// Who has just begun knows that others have moved it.
		k.out = k.out || !t.begun
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
