package controllers

import (
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/api"
)

// typeExisting is the condition of a binding that says whether objects that exist are as its
// policy makes them. Only bindings with the annotation mapd.dev/existing have it.
const typeExisting = "ExistingInLine"

// ExistingState is what a binding's status says of objects that exist.
type ExistingState struct {
	InLine          bool
	Reason, Message string
	// Wrong says that somebody has to act: there is an event besides.
	Wrong bool
}

// Existing is what this replica knows of objects that exist.
type Existing struct {
	states  atomic.Pointer[map[types.UID]ExistingState] // nil: nothing is known
	changed watch.Signal
	always  *ExistingState // of all bindings; nil: states has them
	stop    string
}

// NewExisting returns what knows nothing.
func NewExisting() *Existing { return &Existing{changed: watch.NewSignal()} }

// AlwaysExisting returns what knows one thing, of all bindings with the annotation. A status with
// the reason stop keeps that: a replica that writes objects has to know it.
func AlwaysExisting(s ExistingState, stop string) *Existing {
	return &Existing{changed: watch.NewSignal(), always: &s, stop: stop}
}

// Publish has statuses say what is known of bindings from now on, by their UIDs. Those of others
// stay as they are; nil: those of all.
func (e *Existing) Publish(states map[types.UID]ExistingState) {
	if states == nil {
		e.states.Store(nil)
		return
	}
	e.states.Store(&states)
	e.changed.Notify()
}

// condition returns the condition of a binding, nil if it has none. before is the status that the
// binding has.
func (e *Existing) condition(b store.BindingState, before, now status) *metav1.Condition {
	own, _ := api.RolloutFor(api.BindingKind, b.Object.GetAnnotations())
	if own.Existing == api.Ignored {
		return nil
	}
	had := before.get(typeExisting)
	said := e.always
	if said != nil && had != nil && had.Reason == e.stop {
		return had
	}
	if states := e.states.Load(); said == nil && states != nil {
		if s, ok := (*states)[b.Object.GetUID()]; ok {
			said = &s
		}
	}
	if said == nil {
		return had
	}
	c := now.condition(typeExisting, said.InLine, said.Reason, bounded(said.Message))
	return &c
}

// wrong reports whether somebody has to act on what is said of a binding.
func (e *Existing) wrong(uid types.UID) bool {
	if e == nil {
		return false
	}
	states := e.states.Load()
	return states != nil && (*states)[uid].Wrong
}

// ExistingStopped returns why the status of a binding says that objects are no longer written for
// the reason, "" if it does not.
func ExistingStopped(b store.BindingState, reason string) string {
	if c := statusOf(b.Object).get(typeExisting); c != nil && c.Reason == reason {
		return c.Message
	}
	return ""
}
