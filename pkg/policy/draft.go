package policy

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/policy/draft"
)

// Draft is the object of one request between its mutations, with state that evaluations share.
// See [draft.Draft].
type Draft struct {
	draft.Draft

	// buffers serves one evaluation at a time, and asked is the value of request in the last
	// one.
	buffers buffers
	asked   struct {
		request  *Request
		kind     schema.GroupVersionKind
		resource schema.GroupVersionResource
		value    func() map[string]any
		by       *Request // whose user this is
		user     user.Info
	}
}

// Trace has the evaluations of expressions, and what they read.
type Trace = cel.Trace

// TakeTrace returns the evaluations since its last call; nil if there are none, or without
// cel.Options.Observe.
func (d *Draft) TakeTrace() *Trace { return d.buffers.values.TakeTrace() }

// NewDraft returns a draft of obj. obj is never modified.
func NewDraft(obj *unstructured.Unstructured) *Draft {
	d := &Draft{}
	d.Draft.Reset(obj, 0)
	return d
}

// Reset starts again with obj, which is never modified, and allocates memory for about as many
// changes.
func (d *Draft) Reset(obj *unstructured.Unstructured, changes int) {
	d.Draft.Reset(obj, changes)
	d.buffers = buffers{values: d.buffers.values}
	d.buffers.values.ForgetTraces()
	d.asked.request, d.asked.value, d.asked.by, d.asked.user = nil, nil, nil, nil
}

// request returns the function that makes the variable request for an expression.
func (d *Draft) request(r *Request, kind schema.GroupVersionKind, resource schema.GroupVersionResource) func() map[string]any {
	a := &d.asked
	if a.request != r || a.kind != kind || a.resource != resource {
		a.request, a.kind, a.resource = r, kind, resource
		a.value = func() map[string]any { return r.celRequest(kind, resource) }
	}
	return a.value
}

// user returns the user who makes the request, converted once.
func (d *Draft) user(r *Request) user.Info {
	if d.asked.by != r {
		d.asked.by, d.asked.user = r, r.User()
	}
	return d.asked.user
}

// Converted returns a draft of obj, which is d's object in another version.
func (d *Draft) Converted(obj *unstructured.Unstructured) *Draft {
	c := NewDraft(obj)
	c.Textual = d.Textual
	return c
}
