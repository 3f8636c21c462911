package certs

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/test/hammer"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	years = terms{hosts: []string{"mapd.mapd-system.svc"}, validity: defaultValidity, caValidity: defaultCAValidity}
)

const day = 24 * time.Hour

func mustStep(t *testing.T, s state, now time.Time, applied []*x509.Certificate, tt terms) (state, time.Time, []string) {
	t.Helper()
	s, wake, did, err := step(s, now, applied, tt)
	if err != nil {
		t.Fatal(err)
	}
	return s, wake, did
}

// words are notes without what differs from run to run.
func words(did []string) []string {
	var out []string
	for _, d := range did {
		for _, f := range strings.Fields(d) {
			if name := strings.TrimSuffix(f, ":"); len(name) == 16 && strings.Trim(name, "0123456789abcdef") == "" {
				d = strings.Replace(d, name, "X", 1)
			}
		}
		out = append(out, d)
	}
	return out
}

// A life is a list of the days on which something was done; the API servers trust
// the new bundle at once.
func TestStepOfALife(t *testing.T) {
	hammer.Alone(t)
	var s state
	var story []string
	applied := []*x509.Certificate(nil)
	tt := years
	for now := start; now.Before(start.Add(4 * 365 * day)); {
		var did []string
		var wake time.Time
		if now.Sub(start) >= 1000*day {
			tt.rotate = "please"
		}
		s, wake, did = mustStep(t, s, now, applied, tt)
		applied = s.bundle
		for _, d := range words(did) {
			if !strings.HasPrefix(d, "new certificate") || len(did) > 1 {
				story = append(story, fmt.Sprintf("day %.2f: %s", now.Sub(start).Hours()/24, d))
			}
		}
		if len(did) == 0 && s.next.Cert == nil {
			wake = now.Truncate(6 * time.Hour).Add(6 * time.Hour)
		}
		now = wake
	}
	want := []string{
		"day 0.00: new authority X: there is none that can sign",
		"day 0.00: authority X signs from now on",
		"day 0.00: new certificate until 2026-04-01T00:00:00Z: there is none that can be served",
		"day 1000.00: new authority X: asked for",
		"day 1000.00: authority X signs from now on",
		"day 1000.00: new certificate until 2028-12-26T00:05:01Z: the present one is of another authority",
		// Its last certificate was made on day 960.
		"day 1050.25: authority X is no longer trusted",
	}
	if diff := cmp.Diff(want, story); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
}

func TestStep(t *testing.T) {
	fresh, _, _ := mustStep(t, state{}, start, nil, years)
	other, _, _ := mustStep(t, state{}, start, nil, years)
	next, _, _ := mustStep(t, fresh, start, fresh.bundle, terms{hosts: years.hosts, validity: years.validity, caValidity: years.caValidity, rotate: "1"})
	underWay, _, _ := mustStep(t, next, start.Add(time.Hour), next.bundle, years)
	tests := map[string]struct {
		s       state
		at      time.Duration
		applied []*x509.Certificate
		terms   func(*terms)
		want    []string // what was done
		bundle  int
		more    bool // to do at the same time
	}{
		"nothing is due": {s: fresh, at: time.Hour, applied: fresh.bundle, bundle: 1},
		"a certificate is renewed when two thirds are over": {s: fresh, at: 60 * day, applied: fresh.bundle, bundle: 1,
			want: []string{"new certificate until 2026-05-31T00:00:00Z: the present one ends"}},
		"not before": {s: fresh, at: 60*day - time.Second, applied: fresh.bundle, bundle: 1},
		"an authority is renewed when two thirds are over": {s: fresh, at: 365 * 5 * day * 2 / 3, applied: fresh.bundle, bundle: 2,
			want: []string{"new authority X: the present one ends", "new certificate until 2029-07-30T16:00:00Z: there is none that can be served"}},
		"another host": {s: fresh, at: time.Hour, applied: fresh.bundle, bundle: 1, terms: func(t *terms) { t.hosts = []string{"10.0.0.1", "::1"} },
			want: []string{"new certificate until 2026-04-01T01:00:00Z: for other hosts"}},
		"shorter validity": {s: fresh, at: time.Hour, applied: fresh.bundle, bundle: 2, terms: func(t *terms) { t.validity, t.caValidity = time.Hour, 3*time.Hour },
			want: []string{"new authority X: the present one lasts longer than wanted", "new certificate until 2026-01-01T02:00:00Z: the present one lasts longer than wanted"}},
		"asked for": {s: fresh, at: time.Hour, applied: fresh.bundle, bundle: 2, terms: func(t *terms) { t.rotate = "1" },
			want: []string{"new authority X: asked for"}},
		"asked for and done":                          {s: next, at: time.Hour, applied: fresh.bundle, bundle: 2, terms: func(t *terms) { t.rotate = "1" }},
		"asked for again waits for what is under way": {s: next, at: time.Hour, applied: next.bundle, bundle: 2, terms: func(t *terms) { t.rotate = "2" }},
		"and comes after it": {s: underWay, more: true, at: time.Hour + 5*time.Minute, applied: next.bundle, bundle: 2, terms: func(t *terms) { t.rotate = "2" },
			want: []string{"authority X signs from now on", "new certificate until 2026-04-01T01:05:00Z: the present one is of another authority"}},
		"no longer asked for": {s: next, at: time.Hour, applied: fresh.bundle, bundle: 2},
		"everything is lost while others may serve": {s: state{}, at: time.Hour, applied: other.bundle, bundle: 2,
			want: []string{"new authority X: there is none that can sign"}},
		"everything is lost and nobody is trusted": {s: state{}, at: time.Hour, applied: []*x509.Certificate{}, bundle: 1,
			want: []string{"new authority X: there is none that can sign"}},
		"the key of the authority is lost": {s: state{leaf: fresh.leaf, ca: pair{Cert: fresh.ca.Cert}, bundle: fresh.bundle, until: fresh.until}, at: time.Hour,
			applied: fresh.bundle, bundle: 2, want: []string{"new authority X: there is none that can sign"}},
		"the certificate is lost": {s: state{ca: fresh.ca, bundle: fresh.bundle}, at: time.Hour, applied: fresh.bundle, bundle: 1,
			want: []string{"new certificate until 2026-04-01T01:00:00Z: there is none that can be served"}},
		"the bundle is lost": {s: state{leaf: fresh.leaf, ca: fresh.ca}, at: time.Hour, applied: append(slices.Clone(fresh.bundle), other.ca.Cert), bundle: 2},
		"an authority put there by hand has to be known first": {s: state{leaf: fresh.leaf, ca: other.ca, bundle: fresh.bundle}, at: time.Hour,
			applied: fresh.bundle, bundle: 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			asked := years
			if tt.terms != nil {
				tt.terms(&asked)
			}
			now := start.Add(tt.at)
			got, _, did := mustStep(t, tt.s, now, tt.applied, asked)
			if diff := cmp.Diff(tt.want, words(did)); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
			if len(got.bundle) != tt.bundle {
				t.Errorf("bundle of %d, want %d", len(got.bundle), tt.bundle)
			}
			if got.leaf.Cert != nil && !trusted(got.leaf.Cert, got.bundle, now) {
				t.Error("what is served is not in the bundle")
			}
			if got.leaf.Cert != nil && tt.applied != nil && !trusted(got.leaf.Cert, tt.applied, now) {
				t.Error("what is served is not in the bundle that is applied")
			}
			if got.leaf.Cert != nil && !same(got.leaf.Cert, tt.s.leaf.Cert) && !covers(hosts(got.leaf.Cert), asked.hosts) {
				t.Errorf("certificate for %v, want %v", hosts(got.leaf.Cert), asked.hosts)
			}
			if tt.more {
				return
			}
			// Doing nothing is all that is left to do.
			_, wake, did := mustStep(t, got, now, tt.applied, asked)
			if len(did) > 0 {
				t.Errorf("again at the same time: %v", did)
			}
			if !wake.After(now) {
				t.Errorf("look again at %v, now is %v", wake, now)
			}
		})
	}
}

// A world is a cluster as far as certificates go: a Secret, replicas that read
// it late, one of which writes it, a configuration that is written late, and API
// servers that see it late.
type world struct {
	t          *testing.T
	r          *rand.Rand
	now        time.Time
	terms      terms
	secret     map[string][]byte // nil: there is none
	found      state             // what it holds
	version    int               // of it
	fault      time.Time         // when there may have been one
	fine       [2]int            // version and holder for which there was nothing to do
	replicas   []*replica
	holder     int
	since      time.Time
	config     []*x509.Certificate // applied
	configured int
	servers    [2][]*x509.Certificate
	serversSee [2]int // which version of config
	events     []event
	log        []string
	checks     int
	used       map[string]bool // authorities that have been trusted
	verdicts   map[[2]*x509.Certificate]verdict
}

type replica struct {
	seen    int // version
	held    state
	serving pair
}

type verdict struct {
	size  int
	until time.Time
}

type event struct {
	at time.Time
	do func()
}

func (w *world) after(most time.Duration, do func()) {
	w.events = append(w.events, event{w.now.Add(time.Duration(w.r.Int64N(int64(most) + 1))), do})
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, w.now.Format("2006-01-02T15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// lag is how late a replica sees the Secret, and the writer writes.
func (w *world) lag() time.Duration { return w.terms.settle() }

// write stores data; everybody hears of it in their own time.
func (w *world) write(data map[string][]byte) {
	w.secret = data
	w.found, _ = parse(data)
	w.version++
	for i := range w.replicas {
		w.after(w.lag(), func() { w.observe(i) })
	}
}

func (w *world) observe(i int) {
	r := w.replicas[i]
	if r.seen == w.version && usable(r.held.leaf, w.now) {
		return
	}
	r.seen = w.version
	r.held = merge(w.found, r.held, w.now)
	if usable(r.held.leaf, w.now) {
		r.serving = r.held.leaf
	}
}

// maintain is what the holder of the lease does.
func (w *world) maintain() time.Time {
	h := w.replicas[w.holder]
	w.observe(w.holder)
	s := h.held
	s.since = w.since
	s, wake, did, err := step(s, w.now, w.config, w.terms)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, d := range did {
		w.note("holder %d: %s", w.holder, d)
	}
	w.since = s.since
	if now := [2]int{w.version, w.holder}; len(did) == 0 && now == w.fine {
		// as it was
	} else if ok, err := s.stored(w.secret); err != nil {
		w.t.Fatal(err)
	} else if !ok {
		data, _ := s.data()
		w.write(data)
		h.seen, h.held = w.version, s
		if s.leaf.Cert != nil {
			h.serving = s.leaf
		}
	} else {
		w.fine = now
	}
	bundle := h.held.bundle
	if !slices.EqualFunc(bundle, w.config, same) {
		w.after(w.lag(), func() {
			if w.config = w.replicas[w.holder].held.bundle; w.config == nil {
				w.config = bundle
			}
			for _, c := range w.config {
				w.used[fingerprint(c)] = true
			}
			w.configured++
			seen, version := w.config, w.configured
			for i := range w.servers {
				w.after(w.terms.settle()/2, func() {
					if w.serversSee[i] < version { // a watch keeps the order
						w.servers[i], w.serversSee[i] = seen, version
					}
				})
			}
		})
	}
	return wake
}

// check is the promise: whatever is served is trusted.
func (w *world) check() {
	for i, server := range w.servers {
		for j, r := range w.replicas {
			if server == nil || r.serving.Cert == nil {
				continue
			}
			w.checks++
			// A verdict holds until the certificate ends or an authority does.
			key := [2]*x509.Certificate{r.serving.Cert, server[0]}
			if v, ok := w.verdicts[key]; ok && len(server) == v.size && w.now.Before(v.until) {
				continue
			}
			v := verdict{len(server), r.serving.Cert.NotAfter}
			for _, c := range server {
				if c.NotAfter.Before(v.until) {
					v.until = c.NotAfter
				}
			}
			w.verdicts[key] = v
			if !trusted(r.serving.Cert, server, w.now) {
				last := w.log[max(0, len(w.log)-12):]
				w.t.Fatalf("%v: server %d does not trust replica %d, whose certificate ends %v\n%s", w.now, i, j, r.serving.Cert.NotAfter, strings.Join(last, "\n"))
			}
		}
	}
}

func (w *world) damage() {
	w.secret = maps.Clone(w.secret)
	switch w.r.IntN(4) {
	case 0:
		w.note("the Secret is deleted")
		w.secret = nil
	case 1:
		key := ownKeys[w.r.IntN(len(ownKeys))]
		w.note("%s is emptied", key)
		delete(w.secret, key)
	case 2:
		key := ownKeys[w.r.IntN(len(ownKeys))]
		w.note("%s is cut", key)
		w.secret[key] = w.secret[key][:w.r.IntN(len(w.secret[key])+1)]
	case 3:
		key := ownKeys[w.r.IntN(len(ownKeys))]
		w.note("%s is rubbish", key)
		w.secret[key] = bytes.Repeat([]byte("rubbish "), w.r.IntN(9)+1)
	}
	w.write(w.secret)
}

func (w *world) chance(in int) bool { return w.r.IntN(in) == 0 }

func (w *world) run(until time.Time, faults bool) {
	rotations := 0
	for w.now.Before(until) {
		wake := w.maintain()
		w.check()
		// Jump over what is idle, now and then further than asked for.
		next := wake
		if len(w.events) == 0 && wake.Sub(w.now) >= min(longest, w.terms.validity/10) {
			next = w.now.Add(time.Duration(w.r.Int64N(int64(w.terms.validity / 20))))
		}
		slices.SortStableFunc(w.events, func(a, b event) int { return a.at.Compare(b.at) })
		if len(w.events) > 0 && !w.events[0].at.After(next) {
			e := w.events[0]
			w.events = w.events[1:]
			if e.at.After(w.now) {
				w.now = e.at
			}
			w.check()
			e.do()
			w.check()
			continue
		}
		w.now = next
		if !faults || w.now.Sub(w.fault) < w.terms.validity/40 {
			continue
		}
		w.fault = w.now
		if w.chance(40) {
			w.holder, w.since = w.r.IntN(len(w.replicas)), time.Time{}
			w.note("replica %d holds the lease", w.holder)
		}
		if w.chance(60) && len(w.events) == 0 {
			w.damage()
		}
		if w.chance(40) {
			rotations++
			w.terms.rotate = fmt.Sprint(rotations)
			w.note("a rotation is asked for")
		}
		if w.chance(100) {
			w.terms.hosts = []string{fmt.Sprintf("host-%d", w.r.IntN(3))}
		}
		if w.chance(100) {
			i := w.r.IntN(len(w.replicas))
			w.note("replica %d starts anew", i)
			w.replicas[i] = &replica{}
			w.after(w.lag(), func() { w.observe(i) })
		}
	}
}

func TestWorld(t *testing.T) {
	short := terms{hosts: []string{"127.0.0.1"}, validity: 20 * time.Second, caValidity: time.Minute}
	for name, tt := range map[string]struct {
		terms  terms
		span   time.Duration
		faults bool
		least  int // authorities
	}{
		"twelve years":              {years, 12 * 365 * day, false, 4},
		"four years with faults":    {years, 4 * 365 * day, true, 3},
		"short validities":          {short, 8 * time.Minute, false, 10},
		"short ones with faults":    {short, 8 * time.Minute, true, 10},
		"alike":                     {terms{hosts: short.hosts, validity: 30 * time.Second, caValidity: 30 * time.Second}, 8 * time.Minute, false, 20},
		"authorities end before":    {terms{hosts: short.hosts, validity: time.Hour, caValidity: 20 * time.Second}, 4 * time.Minute, false, 10},
		"an authority for one leaf": {terms{hosts: short.hosts, validity: time.Hour, caValidity: 2 * time.Hour}, 20 * time.Hour, true, 10},
	} {
		for seed := range uint64(hammer.Count(1)) {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				t.Parallel()
				w := &world{t: t, r: rand.New(rand.NewPCG(seed, 7)), now: start, terms: tt.terms, used: map[string]bool{}, verdicts: map[[2]*x509.Certificate]verdict{},
					replicas: []*replica{{}, {}, {}}}
				w.run(start.Add(tt.span), tt.faults)
				if len(w.used) < tt.least || w.checks < 100 {
					t.Errorf("%d authorities and %d checks, want at least %d and 100", len(w.used), w.checks, tt.least)
				}
				if n := len(w.config); n > 8 {
					t.Errorf("%d authorities are trusted in the end", n)
				}
				t.Logf("%d authorities, %d checks, %d trusted in the end", len(w.used), w.checks, len(w.config))
			})
		}
	}
}
