package store

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// BreakerState is the state of a policy's breaker. A policy without the annotation has no
// breaker, but its status may still have a void Trip.
type BreakerState struct {
	// Trip is the reason why the policy is not enforced; nil if its breaker has not tripped.
	Trip *breaker.Trip
	// Own is Trip if this replica's own count tripped the breaker and the status does not have
	// the Trip yet. The caller that writes the status passes the new version of the policy to
	// Written.
	Own     *breaker.Trip
	Written func(version string)
	// Void: the status has a Trip of another version of the policy, which has no effect.
	Void bool
}

// withBreaker adds the Breaker that the policy's annotation asks for.
func (r *policyResult) withBreaker(text []byte) *policyResult {
	limits := r.policy.Rollout().Breaker
	if limits == nil {
		return r
	}
	var object map[string]any
	if json.Unmarshal(text, &object) != nil {
		return r // not JSON, so there are no annotations
	}
	r.breaker = breaker.New(*limits, breaker.DigestOf(object))
	return r
}

// trip returns the result for the same policy with a tripped breaker: not enforced.
func (r *policyResult) trip() *policyResult {
	return &policyResult{
		policy: r.policy.Tripped(), group: r.group, errs: r.errs, nowhere: r.nowhere, breaker: r.breaker, closed: r,
	}
}

// storedTrip returns the Trip in the policy's status, nil if there is none or it is void.
func (p *compiledPolicy) storedTrip() *breaker.Trip {
	if t := breaker.TripOf(p.object); p.breaker != nil && t != nil && t.Digest == p.breaker.Digest() {
		return t
	}
	return nil
}

// breakerState returns the state of the policy's breaker.
func (p *compiledPolicy) breakerState() BreakerState {
	s := BreakerState{Trip: p.storedTrip()}
	s.Void = s.Trip == nil && breaker.TripOf(p.object) != nil
	if p.breaker != nil && s.Trip == nil {
		own, version := p.breaker.Own()
		if s.Trip, s.Written = own, p.breaker.Written; version == "" {
			s.Own = own
		}
	}
	return s
}

// switchBreakers makes policies run as their breakers and statuses say, and reports whether that
// has changed for any policy.
func (c *catalogue) switchBreakers() (changed bool) {
	var next []*compiledPolicy
	for i, p := range c.policies {
		if p.breaker == nil {
			continue
		}
		stored := p.storedTrip()
		own, version := p.breaker.Own()
		if own != nil && stored == nil && version != "" && !watch.Older(p.object, &metav1.ObjectMeta{ResourceVersion: version}) {
			own = nil // somebody has removed it from the status
		}
		tripped := stored != nil || own != nil
		if tripped {
			p.breaker.Open(stored != nil)
		}
		if tripped == (p.closed != nil) {
			continue
		}
		if next == nil {
			next = slices.Clone(c.policies)
		}
		if tripped {
			next[i] = &compiledPolicy{p.stored, p.policyResult.trip()}
		} else {
			p.breaker.Reset()
			next[i] = &compiledPolicy{p.stored, p.closed}
		}
	}
	if next != nil {
		c.policies = next
	}
	return next != nil
}

// breakers returns the Breakers of all policies, nil if there are none, and for each of these
// policies whether its breaker has tripped.
func (c *catalogue) breakers() (all breaker.Set, tripped map[string]bool) {
	for _, p := range c.policies {
		if p.breaker == nil {
			continue
		}
		if all == nil {
			all, tripped = breaker.Set{}, map[string]bool{}
		}
		all[p.key()], tripped[p.key()] = p.breaker, p.closed != nil
	}
	return all, tripped
}

// counting returns the Breakers of an entry's policies, nil if it has none.
func (j *joined) counting(all breaker.Set) *breaker.Set {
	if all == nil {
		return nil
	}
	var own breaker.Set
	for _, p := range j.policies {
		if b := all[p.Name()]; b != nil {
			if own == nil {
				own = breaker.Set{}
			}
			own[p.Name()] = b
		}
	}
	if own == nil {
		return nil
	}
	return &own
}

// count passes the results of enforced policies to their Breakers.
func (a *admitter) count(ctx context.Context, req *policy.Request, set breaker.Set, d *engine.Decision) {
	tripped := set.Count(d.Steps, ctx.Err() == nil && req.Memory.Refused() == nil)
	for name, trip := range tripped {
		a.store.log.Warn("the breaker of a policy has tripped, so it is not enforced any more", "policy", name, "reason", trip.Reason)
	}
	if tripped != nil {
		a.store.changes.Notify()
	}
}
