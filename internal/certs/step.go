package certs

import (
	"crypto/x509"
	"slices"
	"strings"
	"time"
)

// terms are what is asked of the certificates.
type terms struct {
	hosts                []string
	validity, caValidity time.Duration
	rotate               string // the value of RotateAnnotation
}

// settle is how long after a bundle was applied every API server is taken to
// know it, and hurry the same when there is an outage to end: seconds do in
// practice, minutes cost nothing. Certificates that last shorter cannot wait
// that long.
func (t terms) settle() time.Duration { return min(5*time.Minute, t.validity/20, t.caValidity/20) }
func (t terms) hurry() time.Duration  { return min(10*time.Second, t.settle()) }

// poll is how often to look whether a bundle has been applied.
func (t terms) poll() time.Duration { return min(time.Second, t.settle()/4) }

// longest is how far ahead anything is looked at again: clocks may be set.
const longest = time.Minute

// step is the whole of a rotation: given what is stored, the time, and the
// authorities that the applied webhook configurations trust, it returns what to
// store, when to look again at the latest, and what it did. It is pure but for
// the keys that it draws.
//
// applied is nil if there is nothing that API servers would call, so that
// nobody has to trust us yet; it is empty, not nil, where they trust nobody.
//
// A rotation of the authority takes three steps, each of which may be the last
// one for a while:
//
//  1. A next authority joins the bundle. It signs nothing.
//  2. Once the applied bundle has held it for the settling time, it becomes the
//     authority and signs what is served. The old one stays in the bundle.
//  3. When the last certificate that the old one signed has ended, it leaves.
//
// So at every moment what a replica serves is trusted by what is applied, also
// if either is one step behind.
func step(s state, now time.Time, applied []*x509.Certificate, t terms) (state, time.Time, []string, error) {
	var did []string
	note := func(text string, args ...string) { did = append(did, text+strings.Join(args, " ")) }
	wake := now.Add(longest)
	look := func(at time.Time) {
		if at.After(now) && at.Before(wake) {
			wake = at
		}
	}
	caught := func(err error) (state, time.Time, []string, error) { return state{}, wake, nil, err }

	// Whatever has ended is of no use.
	if s.ca.cert != nil && !valid(s.ca.cert, now) {
		s.ca = pair{}
	}
	if s.next.cert != nil && !s.next.ok(now) {
		s.next = pair{}
	}
	// An authority that was put there by hand is nobody's yet.
	if s.ca.key != nil && s.next.cert == nil && len(s.bundle) > 0 && !contains(s.bundle, s.ca.cert) {
		s.ca, s.next = pair{}, s.ca
	}
	lost := s.ca.key == nil

	// Without an authority, or without those before it, nobody knows what other
	// replicas serve. Those whom the API servers trust now stay trusted for as long
	// as that can last.
	if lost || len(s.bundle) == 0 {
		for _, c := range applied {
			if c.IsCA && valid(c, now) && !contains(s.bundle, c) {
				s.bundle = append(slices.Clone(s.bundle), c)
			}
		}
	}

	// A rotation that is asked for during another one comes after it: whoever asks
	// again and again must not keep the present authority until it ends.
	var why string
	switch {
	case s.next.cert != nil:
	case lost:
		why = "there is none that can sign"
	case t.rotate != "" && t.rotate != s.rotated:
		why = "asked for"
	case !now.Before(s.ca.cert.NotAfter.Add(-t.caValidity / 3)):
		why = "the present one ends"
	case s.ca.cert.NotAfter.After(now.Add(t.caValidity + t.caValidity/10)):
		why = "the present one lasts longer than wanted"
	}
	if why != "" {
		var err error
		if s.next, err = newAuthority(now, t.caValidity); err != nil {
			return caught(err)
		}
		s.rotated, s.since = t.rotate, time.Time{}
		note("new authority "+fingerprint(s.next.cert)+": ", why)
	}

	// The next authority takes over once it is trusted.
	if s.next.cert != nil {
		settle := t.settle()
		if lost && !s.leaf.ok(now) {
			settle = t.hurry()
		}
		known := applied == nil || contains(applied, s.next.cert)
		look(now.Add(t.poll())) // it may be wiped as well
		switch {
		case !known:
			s.since = time.Time{}
		case s.since.IsZero() || s.since.After(now):
			s.since = now
		}
		if known && (lost && applied == nil || !now.Before(s.since.Add(settle))) {
			s.ca, s.next, s.since = s.next, pair{}, time.Time{}
			note("authority " + fingerprint(s.ca.cert) + " signs from now on")
		} else if known {
			look(s.since.Add(settle))
		}
	}

	if s.ca.key != nil {
		why, keep := leafDue(s, now, t)
		if why != "" {
			names := slices.Clone(t.hosts)
			for _, host := range keep {
				if !covers(names, []string{host}) {
					names = append(names, host)
				}
			}
			var err error
			if s.leaf, err = newLeaf(s.ca, names, now, t.validity); err != nil {
				return caught(err)
			}
			s.until = s.signed(s.ca.cert, s.leaf.cert)
			note("new certificate until "+s.leaf.cert.NotAfter.UTC().Format(time.RFC3339)+": ", why)
		}
		look(s.leaf.cert.NotAfter.Add(-t.validity / 3))
		look(s.ca.cert.NotAfter.Add(-t.caValidity / 3))
	}

	before := s.bundle
	s = trim(s, now, t)
	for _, c := range before {
		if !contains(s.bundle, c) {
			note("authority " + fingerprint(c) + " is no longer trusted")
		}
	}
	for _, c := range s.bundle {
		if end, ok := s.until[fingerprint(c)]; ok && !same(c, s.ca.cert) && !same(c, s.next.cert) {
			look(end.Add(time.Millisecond))
		}
		look(c.NotAfter.Add(time.Millisecond))
	}
	if soonest := now.Add(min(50*time.Millisecond, t.validity/100)); wake.Before(soonest) {
		wake = soonest
	}
	return s, wake, did, nil
}

// leafDue says why a new certificate is to be made, and which hosts of the old
// one it must not lose.
func leafDue(s state, now time.Time, t terms) (why string, keep []string) {
	c := s.leaf.cert
	switch {
	case !s.leaf.ok(now):
		return "there is none that can be served", nil
	case c.CheckSignatureFrom(s.ca.cert) != nil:
		return "the present one is of another authority", hosts(c)
	case !covers(hosts(c), t.hosts):
		// Configurations that name the old hosts are still applied.
		return "for other hosts", hosts(c)
	case c.NotAfter.After(now.Add(t.validity + t.validity/10)):
		return "the present one lasts longer than wanted", nil
	case !now.Before(c.NotAfter.Add(-t.validity/3)) && s.ca.cert.NotAfter.Sub(c.NotAfter) > time.Second:
		return "the present one ends", nil
	}
	return "", nil
}

// trim gives s the bundle that it needs: its authorities, and those older ones
// that may have signed something that somebody still serves.
func trim(s state, now time.Time, t terms) state {
	var bundle []*x509.Certificate
	until := map[string]time.Time{}
	add := func(c *x509.Certificate) {
		if c == nil || contains(bundle, c) {
			return
		}
		bundle = append(bundle, c)
		if end, ok := s.until[fingerprint(c)]; ok {
			until[fingerprint(c)] = end
		}
	}
	add(s.ca.cert)
	add(s.next.cert)
	for _, c := range s.bundle {
		end, known := s.until[fingerprint(c)]
		if !known {
			// Nothing is known of what it signed.
			end = now.Add(max(t.validity, DefaultValidity))
		}
		if contains(bundle, c) || !valid(c, now) || now.After(end) {
			continue
		}
		add(c)
		until[fingerprint(c)] = end
	}
	s.bundle, s.until = bundle, until
	return s
}
