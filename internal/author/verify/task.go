package verify

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Written is a native policy with its binding and the parameters that they use.
type Written struct {
	Policy  *admissionregistrationv1.MutatingAdmissionPolicy
	Binding *admissionregistrationv1.MutatingAdmissionPolicyBinding
	Params  []*unstructured.Unstructured
}

// Request is the creation or update of an object, as an API server has it when admission begins.
// Its contents must not be modified.
type Request struct {
	Operation   string
	Object, Old map[string]any
	Namespace   map[string]any // nil if the object has no namespace
	User        string
	Groups      []string
}

// Reference runs the engine that the policies have to match. It returns an error if it has no
// result for a request; then the request is not compared.
type Reference func(context.Context, Request) (Result, error)

// Task is a comparison of policies with the engine that they have to match. For mutators of
// Gatekeeper, New prepares the comparisons without Tasks.
type Task struct {
	// Name identifies what the policies were translated from.
	Name      string
	Reference Reference
	Policies  []Written
	// Generate returns the object number i to compare on. It must be the same for the same seed.
	Generate func(seed uint64, i int) Object
	// Allows reports whether a server lets an object through after admission. Others are not compared.
	Allows func(object map[string]any) bool
	// Ordered returns an object in which the lists whose order may differ are sorted. It is nil if
	// no list may have another order.
	Ordered func(object map[string]any) map[string]any
	// Explains reports whether a difference for a request is already known. It must not be nil.
	Explains func(r Request, reference, native Result) bool
}

// Outcome is the outcome of a Task. Its Agreements include the objects of Reordered and Explained.
type Outcome struct {
	Comparison
	// Reordered is the number of objects that differ only in the order of a list, and Explained the
	// number of those with a known difference.
	Reordered, Explained int
	// NotVerified is the number of objects for which the Reference has no result, and Why its reason
	// for the first of them.
	NotVerified int
	Why         string
}

// NewTasks prepares the comparisons of tasks. types are the known kinds; nil means the built-in
// ones.
func NewTasks(types *openapi.Types, tasks []Task) *Verifier {
	if types == nil {
		types = openapi.New(openapi.Builtin())
	}
	v := &Verifier{types: types}
	for _, t := range tasks {
		p := &part{Outcome: Outcome{Comparison: Comparison{Name: t.Name}}, reference: engineSide{t.Reference}, generate: t.Generate, allows: t.Allows, ordered: t.Ordered, explains: t.Explains}
		native, err := newPolicySide(types, t.Policies)
		if err != nil {
			p.Invalid = err.Error()
		}
		p.native = native
		v.parts = append(v.parts, p)
	}
	return v
}

// Outcomes returns the results of the tasks so far.
func (v *Verifier) Outcomes() []Outcome {
	out := make([]Outcome, len(v.parts))
	for i, p := range v.parts {
		out[i] = p.Outcome
	}
	return out
}

// engineSide is a side that treats the result of a Reference as that of a webhook.
type engineSide struct{ answer Reference }

func (s engineSide) run(ctx context.Context, r *request) Result {
	if r.gvk.Group == api.NativeGroup { // API servers call no webhook for this group
		return Result{Object: r.object}
	}
	out, err := s.answer(ctx, r.public())
	switch {
	case err != nil:
		return Result{unknown: err.Error()}
	case out.Refused != "":
		return Result{Refused: firstLine(out.Refused)}
	}
	after, err := r.lenient(out.Object)
	if err != nil {
		return Result{Refused: "the API server cannot decode the result: " + firstLine(err.Error())}
	}
	return Result{Object: after, Failed: out.Failed}
}

// public returns the Request for a request.
func (r *request) public() Request {
	return Request{r.operation, r.object, r.old, r.namespace, r.user, r.groups}
}

// allowed reports whether the sides are compared on a request (Task.Allows).
func (p *part) allowed(r *request) bool { return p.allows == nil || p.allows(r.object) }

// agreement is the outcome of comparing two results. A larger value is a worse one.
type agreement int

const (
	agree agreement = iota
	reordered
	explained
	disagree
)

// compare compares the results of both sides.
func (p *part) compare(r *request, ref, nat Result) agreement {
	if p.explains != nil && !r.same(ref, nat) {
		// A patch may write defaults that a server would set.
		ref.Object, nat.Object = Defaulted(ref.Object), Defaulted(nat.Object)
	}
	switch {
	case r.same(ref, nat):
		return agree
	case p.ordered != nil && ref.Refused == "" && nat.Refused == "" && r.same(Result{Object: p.ordered(plain(ref.Object))}, Result{Object: p.ordered(plain(nat.Object))}):
		return reordered
	case p.explains != nil && p.explains(r.public(), ref, nat):
		return explained
	}
	return disagree
}
