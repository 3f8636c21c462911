package certs

import (
	"crypto/x509"
	"slices"
	"time"

	"github.com/mapd-project/mapd/pkg/servingcert"
)

// terms are the requirements on the certificates.
type terms struct {
	hosts                []string
	validity, caValidity time.Duration
	rotate               string // the value of rotateAnnotation
}

// settle is how long after a bundle was applied every API server is assumed to use it; hurry is
// the same when certificates have already failed. In practice API servers need seconds; waiting
// for minutes costs nothing. With certificates of a shorter validity the wait is shorter.
func (t terms) settle() time.Duration { return min(5*time.Minute, t.validity/20, t.caValidity/20) }
func (t terms) hurry() time.Duration  { return min(10*time.Second, t.settle()) }

// poll is how often to check whether a bundle has been applied.
func (t terms) poll() time.Duration { return min(time.Second, t.settle()/4) }

// longest bounds the time to the next step, because the clock may be changed.
const longest = time.Minute

// step decides the whole rotation. From the stored state, the time, and the authorities that the
// applied webhook configurations trust, it returns the state to store, when to call it again at
// the latest, and a description of what it did. It depends on nothing else, except for the random
// keys that it creates.
//
// applied is nil if API servers have no entries of mapd, so that nobody has to trust mapd yet. It
// is empty, not nil, if there are entries without an authority.
//
// A rotation of the authority takes three steps, and any time may pass between them:
//
//  1. A next authority joins the bundle. It signs nothing.
//  2. Once the applied bundle has contained it for the settling time, it becomes the
//     authority and signs what is served. The old one stays in the bundle.
//  3. When the last certificate that the old one signed has expired, it leaves.
//
// So the applied bundle always trusts what a replica serves, even if either is one step behind.
func step(s state, now time.Time, applied []*x509.Certificate, t terms) (state, time.Time, []string, error) {
	r := &stepper{state: s, terms: t, now: now, applied: applied, wake: now.Add(longest)}
	r.dropUnusable()
	r.lost = r.ca.Key == nil
	r.trustApplied()
	if err := r.makeNext(); err != nil {
		return state{}, r.wake, nil, err
	}
	r.promoteNext()
	if err := r.renewLeaf(); err != nil {
		return state{}, r.wake, nil, err
	}
	r.trimBundle()
	if soonest := now.Add(min(50*time.Millisecond, t.validity/100)); r.wake.Before(soonest) {
		r.wake = soonest
	}
	return r.state, r.wake, r.did, nil
}

// stepper is the state of one call of step.
type stepper struct {
	state
	terms
	now     time.Time
	applied []*x509.Certificate
	lost    bool // no authority could sign when the step began
	wake    time.Time
	did     []string
}

// lookAt makes the next step come no later than at.
func (r *stepper) lookAt(at time.Time) {
	if at.After(r.now) && at.Before(r.wake) {
		r.wake = at
	}
}

// dropUnusable drops expired certificates. It also turns an authority that somebody has put into
// the Secret by hand into the next one, because nobody trusts it yet.
func (r *stepper) dropUnusable() {
	if r.ca.Cert != nil && !valid(r.ca.Cert, r.now) {
		r.ca = pair{}
	}
	if r.next.Cert != nil && !usable(r.next, r.now) {
		r.next = pair{}
	}
	if r.ca.Key != nil && r.next.Cert == nil && len(r.bundle) > 0 && !contains(r.bundle, r.ca.Cert) {
		r.ca, r.next = pair{}, r.ca
	}
}

// trustApplied adds the authorities that API servers trust now to the bundle if the authority, or
// former ones, were lost. Other replicas may serve certificates of them, so they stay trusted for
// as long as such certificates can be valid.
func (r *stepper) trustApplied() {
	if !r.lost && len(r.bundle) > 0 {
		return
	}
	for _, c := range r.applied {
		if c.IsCA && valid(c, r.now) && !contains(r.bundle, c) {
			r.bundle = append(slices.Clone(r.bundle), c)
		}
	}
}

// makeNext creates the next authority if there is a reason. A rotation that is requested during
// another one follows that one, so that repeated requests cannot delay the replacement of the
// present authority until it expires.
func (r *stepper) makeNext() (err error) {
	why := r.rotationDue()
	if why == "" {
		return nil
	}
	if r.next, err = servingcert.NewAuthority(r.now, r.caValidity); err != nil {
		return err
	}
	r.rotated, r.since = r.rotate, time.Time{}
	r.did = append(r.did, "new authority "+fingerprint(r.next.Cert)+": "+why)
	return nil
}

// rotationDue returns the reason to create a next authority, "" if there is none.
func (r *stepper) rotationDue() string {
	switch {
	case r.next.Cert != nil:
		return ""
	case r.lost:
		return "there is none that can sign"
	case r.rotate != "" && r.rotate != r.rotated:
		return "asked for"
	case !r.now.Before(r.ca.Cert.NotAfter.Add(-r.caValidity / 3)):
		return "the present one ends"
	case r.ca.Cert.NotAfter.After(r.now.Add(r.caValidity + r.caValidity/10)):
		return "the present one lasts longer than wanted"
	}
	return ""
}

// promoteNext lets the next authority sign, once API servers trust it.
func (r *stepper) promoteNext() {
	if r.next.Cert == nil {
		return
	}
	settle := r.settle()
	if r.lost && !usable(r.leaf, r.now) {
		settle = r.hurry()
	}
	r.lookAt(r.now.Add(r.poll())) // check again, because the applied bundle may lose it
	if r.applied != nil && !contains(r.applied, r.next.Cert) {
		r.since = time.Time{}
		return
	}
	if r.since.IsZero() || r.since.After(r.now) {
		r.since = r.now
	}
	if trusted := r.since.Add(settle); r.now.Before(trusted) && !(r.lost && r.applied == nil) {
		r.lookAt(trusted)
		return
	}
	r.ca, r.next, r.since = r.next, pair{}, time.Time{}
	r.did = append(r.did, "authority "+fingerprint(r.ca.Cert)+" signs from now on")
}

// renewLeaf creates a new serving certificate if there is a reason.
func (r *stepper) renewLeaf() (err error) {
	if r.ca.Key == nil {
		return nil
	}
	if why, keep := leafDue(r.state, r.now, r.terms); why != "" {
		names := slices.Clone(r.hosts)
		for _, host := range keep {
			if !covers(names, []string{host}) {
				names = append(names, host)
			}
		}
		if r.leaf, err = servingcert.NewLeaf(r.ca, names, r.now, r.validity); err != nil {
			return err
		}
		r.until = r.signed(r.ca.Cert, r.leaf.Cert)
		r.did = append(r.did, "new certificate until "+r.leaf.Cert.NotAfter.UTC().Format(time.RFC3339)+": "+why)
	}
	r.lookAt(r.leaf.Cert.NotAfter.Add(-r.validity / 3))
	r.lookAt(r.ca.Cert.NotAfter.Add(-r.caValidity / 3))
	return nil
}

// trimBundle drops authorities that are no longer needed.
func (r *stepper) trimBundle() {
	before := r.bundle
	r.state = trim(r.state, r.now, r.terms)
	for _, c := range before {
		if !contains(r.bundle, c) {
			r.did = append(r.did, "authority "+fingerprint(c)+" is no longer trusted")
		}
	}
	for _, c := range r.bundle {
		if end, ok := r.until[fingerprint(c)]; ok && !same(c, r.ca.Cert) && !same(c, r.next.Cert) {
			r.lookAt(end.Add(time.Millisecond))
		}
		r.lookAt(c.NotAfter.Add(time.Millisecond))
	}
}

// leafDue returns the reason to create a new serving certificate, and the hosts that it has to
// keep from the old one.
func leafDue(s state, now time.Time, t terms) (why string, keep []string) {
	c := s.leaf.Cert
	switch {
	case !usable(s.leaf, now):
		return "there is none that can be served", nil
	case c.CheckSignatureFrom(s.ca.Cert) != nil:
		return "the present one is of another authority", hosts(c)
	case !covers(hosts(c), t.hosts):
		// Applied configurations may still use the old hosts.
		return "for other hosts", hosts(c)
	case c.NotAfter.After(now.Add(t.validity + t.validity/10)):
		return "the present one lasts longer than wanted", nil
	case !now.Before(c.NotAfter.Add(-t.validity/3)) && s.ca.Cert.NotAfter.Sub(c.NotAfter) > time.Second:
		return "the present one ends", nil
	}
	return "", nil
}

// trim reduces the bundle of s to its authorities and to the former ones that may have signed a
// certificate which somebody still serves.
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
	add(s.ca.Cert)
	add(s.next.Cert)
	for _, c := range s.bundle {
		end, known := s.until[fingerprint(c)]
		if !known {
			// It is not known what this authority signed.
			end = now.Add(max(t.validity, defaultValidity))
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
