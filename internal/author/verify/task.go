package verify

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Written is a native policy with its binding, and the parameters that they read.
type Written struct {
	Policy  *admissionregistrationv1.MutatingAdmissionPolicy
	Binding *admissionregistrationv1.MutatingAdmissionPolicyBinding
	Params  []*unstructured.Unstructured
}

// Request is the creation or update of an object, as a server holds it when admission begins. What
// is in it must not be modified.
type Request struct {
	Operation   string
	Object, Old map[string]any
	Namespace   map[string]any // nil for what is in none
	User        string
	Groups      []string
}

// Reference is the engine that policies stand for. Its error says why it has no answer.
type Reference func(context.Context, Request) (Result, error)

// Task is a comparison of policies with the engine that they stand for. New prepares those for
// mutators of Gatekeeper by itself.
type Task struct {
	// Name is what the policies stand for.
	Name      string
	Reference Reference
	Policies  []Written
	// Generate returns the object at i of those to compare on, the same one for the same seed.
	Generate func(seed uint64, i int) Object
	// Allows reports whether a server lets an object through after admission. Others are not compared.
	Allows func(object map[string]any) bool
	// Ordered returns an object with those lists in the order of their text whose order may differ;
	// nil if none may.
	Ordered func(object map[string]any) map[string]any
	// Explains reports whether a difference for a request is one that is known. It must be set.
	Explains func(r Request, reference, native Result) bool
}

// Outcome is the outcome of a Task. Its Agreements include the objects of Reordered and Explained.
type Outcome struct {
	Comparison
	// Reordered is how many objects were equal but for the order of a list, and Explained for how
	// many the difference is known.
	Reordered, Explained int
	// NotVerified is how many objects the reference has no answer for, and Why says why not for the
	// first of them.
	NotVerified int
	Why         string
}

// NewTasks prepares comparisons. Types are the kinds that are known; nil means the built-in ones.
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

// engineSide is a webhook that answers with what an engine does.
type engineSide struct{ answer Reference }

func (s engineSide) run(ctx context.Context, r *request) Result {
	if r.gvk.Group == api.NativeGroup { // no webhook is called
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

// public is a request as others see it.
func (r *request) public() Request {
	return Request{r.operation, r.object, r.old, r.namespace, r.user, r.groups}
}

// allowed reports whether a request is one to compare on.
func (p *part) allowed(r *request) bool { return p.allows == nil || p.allows(r.object) }

// agreement is how two results compare.
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
		// A patch may write what a server fills in.
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
