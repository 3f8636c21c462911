package store

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/pkg/policy"
)

// held compiles policies, but those that hold "HOLD" only after release.
type held struct {
	*compiler
	began, release, changed chan struct{}
	now                     map[string]*stored
}

func newHeld(t *testing.T) *held {
	h := &held{
		compiler: &compiler{deps: featuretest.Deps(t).Policy},
		began:    make(chan struct{}, 8), release: make(chan struct{}), changed: make(chan struct{}, 8),
		now: map[string]*stored{},
	}
	h.slow = newSlow(func() { h.changed <- struct{}{} })
	h.slow.patience = 50 * time.Millisecond // is waited for in vain where something is held
	h.slow.compile = func(ctx context.Context, name string, text []byte, deps policy.Deps) *policyResult {
		if strings.Contains(string(text), "HOLD") {
			h.began <- struct{}{}
			<-h.release
		}
		return compilePolicy(ctx, name, text, deps)
	}
	return h
}

// set replaces policies, and looks at what is not as it was taken in, as the Store
// does. It waits for what is not held.
func (h *held) set(policies map[string]*stored) compiled {
	maps.Copy(h.now, policies)
	changed := map[string]*stored{}
	for name, now := range h.now {
		if old, ok := find(h.policies, name); now == nil && ok || now != nil && (!ok || old.source() != now) {
			changed[name] = now
		}
	}
	out := h.update(changed, nil)
	for _, j := range h.slow.jobs {
		if !strings.Contains(string(j.of.text), "HOLD") { // the machine is busy
			<-j.ctx.Done()
			<-h.changed
			return h.set(nil)
		}
	}
	return out
}

// begins returns when the next policy that is held is being compiled. It cannot
// begin before the work on its version before has ended, which changed reports.
func (h *held) begins() {
	for {
		select {
		case <-h.began:
			return
		case <-h.changed:
			h.set(nil)
		}
	}
}

// says compares the policies, each with its label's value, or its error.
func (h *held) says(t *testing.T, step string, want ...string) {
	t.Helper()
	var got []string
	for _, p := range h.policies {
		text := p.stored.name + " "
		if len(p.errs) > 0 {
			text += p.errs[0].Error()
		} else {
			_, value, _ := strings.Cut(p.policy.Object().Spec.Mutations[0].ApplyConfiguration.Expression, `: "`)
			text += strings.TrimSuffix(value, `"}}}`)
		}
		got = append(got, text)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s: got\n%s\nwant\n%s", step, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A policy that takes long to compile keeps neither others nor its own next version
// from being taken in.
func TestSlowPolicy(t *testing.T) {
	h := newHeld(t)
	const compiling = "slow the policy is still being compiled"

	h.set(byName(testPolicy(t, "slow", "HOLD 1"), testPolicy(t, "a", "1")))
	h.begins()
	h.says(t, "new", "a 1", compiling)
	h.set(byName(testPolicy(t, "a", "2")))
	h.says(t, "meanwhile", "a 2", compiling)
	if work := h.set(nil); work.changed {
		t.Error("nothing changes and something has changed")
	}
	h.release <- struct{}{}
	<-h.changed
	h.set(nil)
	h.says(t, "compiled", "a 2", "slow HOLD 1")

	h.set(byName(testPolicy(t, "slow", "HOLD 2")))
	h.begins()
	h.says(t, "next version", "a 2", "slow HOLD 1")
	// Another one, while that is being compiled.
	h.set(byName(testPolicy(t, "slow", "3")))
	h.says(t, "the version after", "a 2", "slow HOLD 1")
	h.release <- struct{}{}
	for range 2 { // it is over, and its successor may begin
		<-h.changed
	}
	h.set(nil)
	h.says(t, "the version after, compiled", "a 2", "slow 3")

	h.set(byName(testPolicy(t, "slow", "HOLD 4")))
	h.begins()
	j := h.slow.jobs["slow"]
	h.set(gone("slow"))
	h.says(t, "deleted", "a 2")
	if <-j.ctx.Done(); len(h.slow.jobs) > 0 {
		t.Error("a deleted policy is still waited for")
	}
	close(h.release)
}

// A policy that takes too long is broken.
func TestSlowPolicyDeadline(t *testing.T) {
	h := newHeld(t)
	h.slow.patience, h.slow.deadline = time.Millisecond, 2*time.Millisecond
	h.set(byName(testPolicy(t, "slow", "HOLD")))
	<-h.changed
	h.set(nil)
	h.says(t, "too long", "slow the policy does not compile within 2ms")
	<-h.began
	close(h.release)
}

// What would take all memory there is breaks its own policy only, at once.
func TestBoundedPolicies(t *testing.T) {
	c := &compiler{deps: featuretest.Deps(t).Policy, slow: newSlow(func() {})}
	c.slow.patience = c.slow.deadline // however busy the machine is
	attack := func(name, value string) map[string]*stored {
		return byName(testPolicy(t, name, "", `"VALUE"`, value))
	}
	policies := byName(testPolicy(t, "good", "1"))
	maps.Copy(policies, attack("optmap", "string(optional.of(1)"+strings.Repeat(".optMap(x, x+x)", 24)+".orValue(1))"))
	maps.Copy(policies, attack("types", "string(size([1]"+strings.Repeat(".map(x, {x: x})", 40)+"))"))
	maps.Copy(policies, attack("matches", "string(object.kind.matches(\""+strings.Repeat(".{1000}", 1000)+"\"))"))
	c.update(policies, nil)
	for name, want := range map[string]string{
		"good": "", "optmap": "syntax-tree nodes", "types": "steps to be checked", "matches": "instructions",
	} {
		p, ok := find(c.policies, name)
		if !ok || len(p.errs) > 1 || (len(p.errs) == 1) != (want != "") || p.policy.Err() != nil && !strings.Contains(p.policy.Err().Error(), want) {
			t.Errorf("%s: %v", name, p.errs)
		}
	}
	if len(c.slow.jobs) > 0 {
		t.Error("something is still being compiled")
	}
}
