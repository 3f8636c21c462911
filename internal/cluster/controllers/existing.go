package controllers

import (
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/api"
)

// typeExisting is the condition of a binding that says whether existing objects are as its policy
// would make them. Only bindings with the annotation mapd.dev/existing have it.
const typeExisting = "ExistingInLine"

// ExistingState is the part of a binding's status about existing objects.
type ExistingState struct {
	InLine          bool
	Reason, Message string
	// Wrong: somebody has to act, so there is an event, too.
	Wrong bool
}

// Existing has what this replica knows about existing objects.
type Existing struct {
	states  atomic.Pointer[map[types.UID]ExistingState] // nil: not known
	changed watch.Signal
	always  *ExistingState // for all bindings; nil: use states
	stop    string
}

// NewExisting returns an Existing without any knowledge.
func NewExisting() *Existing { return &Existing{changed: watch.NewSignal()} }

// AlwaysExisting returns an Existing with the same state for all bindings with the annotation. A
// status whose reason is stop is kept, because a replica that writes objects has to know it.
func AlwaysExisting(s ExistingState, stop string) *Existing {
	return &Existing{changed: watch.NewSignal(), always: &s, stop: stop}
}

// Publish sets the states of bindings, by their UIDs. The statuses of other bindings stay as they
// are; with nil, those of all bindings do.
func (e *Existing) Publish(states map[types.UID]ExistingState) {
	if states == nil {
		e.states.Store(nil)
		return
	}
	e.states.Store(&states)
	e.changed.Notify()
}

// condition returns the condition of a binding, nil if it has none. before is the binding's
// present status.
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

// wrong reports whether the state of a binding says that somebody has to act.
func (e *Existing) wrong(uid types.UID) bool {
	if e == nil {
		return false
	}
	states := e.states.Load()
	return states != nil && (*states)[uid].Wrong
}

// ExistingStopped returns the message in the status of a binding if writing was stopped for the
// given reason, otherwise "".
func ExistingStopped(b store.BindingState, reason string) string {
	if c := statusOf(b.Object).get(typeExisting); c != nil && c.Reason == reason {
		return c.Message
	}
	return ""
}
