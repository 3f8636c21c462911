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

// BreakerState is the breaker of a policy. A policy without the annotation has none, and
// may still have a void Trip in its status.
type BreakerState struct {
	// Trip is why the policy is not enforced; nil if its breaker has not tripped.
	Trip *breaker.Trip
	// Own is Trip if this replica counted and has not written it to the status. Written
	// takes in the version of the policy whose status has it.
	Own     *breaker.Trip
	Written func(version string)
	// Void says that the status has a Trip of another version of the policy, which has
	// no effect.
	Void bool
}

// withBreaker gives a compiled policy the Breaker that its author asked for.
func (r *policyResult) withBreaker(text []byte) *policyResult {
	limits := r.policy.Rollout().Breaker
	if limits == nil {
		return r
	}
	var object map[string]any
	if json.Unmarshal(text, &object) != nil {
		return r // it is not even JSON
	}
	r.breaker = breaker.New(*limits, breaker.DigestOf(object))
	return r
}

// trip returns what came of the same text, as it runs once its Breaker has tripped.
func (r *policyResult) trip() *policyResult {
	return &policyResult{
		policy: r.policy.Tripped(), group: r.group, errs: r.errs, nowhere: r.nowhere, breaker: r.breaker, closed: r,
	}
}

// storedTrip returns the Trip in the status of the policy, nil if there is none or it is void.
func (p *compiledPolicy) storedTrip() *breaker.Trip {
	if t := breaker.TripOf(p.object); p.breaker != nil && t != nil && t.Digest == p.breaker.Digest() {
		return t
	}
	return nil
}

// breakerState returns the state of the policy's Breaker.
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

// switchBreakers makes policies run as their Breakers and their statuses say, and reports
// whether any runs in another way than before.
func (c *catalogue) switchBreakers() (changed bool) {
	var next []*compiledPolicy
	for i, p := range c.policies {
		if p.breaker == nil {
			continue
		}
		stored := p.storedTrip()
		own, version := p.breaker.Own()
		if own != nil && stored == nil && version != "" && !watch.Older(p.object, &metav1.ObjectMeta{ResourceVersion: version}) {
			own = nil // somebody has deleted it from the status
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

// breakers returns the Breakers of all policies, nil if there are none, and by policy
// whether it has tripped.
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

// count counts what enforced policies with a Breaker did.
func (a *admitter) count(ctx context.Context, req *policy.Request, set breaker.Set, d *engine.Decision) {
	tripped := set.Count(d.Steps, ctx.Err() == nil && req.Memory.Refused() == nil)
	for name, trip := range tripped {
		a.store.log.Warn("the breaker of a policy has tripped, so it is not enforced any more", "policy", name, "reason", trip.Reason)
	}
	if tripped != nil {
		a.store.changes.Notify()
	}
}
