// Package fixproof answers one question: does a policy do the same after a fix of internal/lint
// as before?
//
// It runs both versions on generated requests. For requests for which the old version has a
// result, the new one must have the same. Where the old version fails, which is what fixes are
// for, the new one may do anything. This proves no more than the requests show: if they show no
// effect of the policy, Prove returns lint.ErrNotShown. Start reading at Prover.Prove.
package fixproof

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/mapd-project/mapd/internal/author/requests"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// tries is the number of requests for each of the two policies, and maxKnown the number of
// outcomes that a Prover caches.
const tries, maxKnown = 200, 256

// A Prover checks fixes, and caches the results, because an editor asks again with every key. The
// zero value is ready to use; it is safe for concurrent use.
type Prover struct {
	mu    sync.Mutex
	known map[[2]uint64]error
}

var seed = maphash.MakeSeed()

// Prove returns an error that says where two versions of a policy differ, or why that cannot be
// determined. The policies are objects as in a file. It implements Options.Prove of
// internal/lint.
func (p *Prover) Prove(ctx context.Context, before, after map[string]any) error {
	was, is := manifest.Encode(before), manifest.Encode(after)
	key := [2]uint64{maphash.Bytes(seed, was), maphash.Bytes(seed, is)}
	p.mu.Lock()
	err, ok := p.known[key]
	p.mu.Unlock()
	if ok {
		return err
	}
	err = compare(ctx, was, is)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= maxKnown {
		p.known = map[[2]uint64]error{}
	}
	p.known[key] = err
	return err
}

func compare(ctx context.Context, before, after []byte) error {
	was, err := load(before)
	if err != nil {
		return fmt.Errorf("the policy cannot be tried: %w", err)
	}
	is, err := load(after)
	if err != nil {
		return fmt.Errorf("the fixed policy cannot be tried: %w", err)
	}
	shown, matched := false, false
	var differs error
	// Requests that exercise the old policy may not exercise the new one, so requests are
	// generated for both.
	for _, of := range []*mapd.Policies{was, is} {
		requests.Sample(ctx, of, tries, func(r *mapd.Request, got *mapd.Result) {
			if differs != nil || ctx.Err() != nil {
				return
			}
			old, now := got.Decision, got.Decision
			if of == was {
				now = admit(ctx, is, r)
			} else {
				old = admit(ctx, was, r)
			}
			shown, matched = shown || gives(now), matched || len(now.Steps) > 0
			switch {
			case !gives(old):
			case !gives(now):
				differs = fmt.Errorf("%s of %s would fail or not be matched, and is not now", r.Admission.Operation, r.Name())
			case !tree.Equal(old.Object.Object, now.Object.Object):
				differs = fmt.Errorf("%s of %s would have another result than now", r.Admission.Operation, r.Name())
			}
		})
	}
	switch {
	case differs != nil:
		return differs
	case shown:
		return nil
	case matched && is.Policies()[0].Object().Spec.ParamKind == nil:
		return nil // the old policy failed on all that it matches, and not because a parameter was missing
	}
	return lint.ErrNotShown
}

func load(text []byte) (*mapd.Policies, error) {
	return mapd.Load(mapd.Options{Unbound: true}, mapd.File{Name: "policy", Data: text})
}

// admit lets policies decide a request that was generated for others.
func admit(ctx context.Context, policies *mapd.Policies, r *mapd.Request) *engine.Decision {
	q := r.Admission
	return policies.Engine().Admit(ctx, &policy.Request{
		UID: q.UID, Kind: q.Kind, Resource: q.Resource, SubResource: q.SubResource, RequestKind: q.RequestKind,
		RequestResource: q.RequestResource, RequestSubResource: q.RequestSubResource, Name: q.Name, Namespace: q.Namespace,
		Operation: q.Operation, UserInfo: q.UserInfo, DryRun: q.DryRun, Options: q.Options, Object: q.Object, OldObject: q.OldObject,
	})
}

// gives reports whether policies matched, and nothing failed, not even with failurePolicy Ignore.
func gives(d *engine.Decision) bool {
	if d.Status != nil || len(d.Steps) == 0 || d.Object == nil {
		return false
	}
	for _, s := range d.Steps {
		if s.Err != nil {
			return false
		}
	}
	return true
}
