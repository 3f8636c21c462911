package mutators

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Options say how the mutators run.
type Options struct {
	// Shadow lets them look on and change nothing.
	Shadow bool
	// Namespace returns the Namespace of a request. Nil: there are none.
	Namespace func(ctx context.Context, name string) (*unstructured.Unstructured, error)
}

// Result is what some mutators come to.
type Result struct {
	Set *engine.Set
	// States has an entry for each mutator, in Gatekeeper's order.
	States []State
	// Shapes is how many programs the mutators that run share.
	Shapes int
	// Rules cover all that the mutators that run may change.
	Rules []admissionregistrationv1.RuleWithOperations
}

// State says what has become of one mutator.
type State struct {
	Mutator *legacy.Mutator
	Running bool
	// Conflict is set if other mutators see the object otherwise.
	Conflict *legacy.Conflict
	// Reason says why it does not run, "" if it does.
	Reason string
	Notes  []legacy.Note
}

// Builder builds Sets. It keeps the shapes that the last build used. One caller
// at a time.
type Builder struct {
	deps policy.Deps
}

// NewBuilder returns a Builder that has compiled nothing yet.
func NewBuilder(deps policy.Deps) *Builder { return &Builder{deps: deps} }

// Build puts mutators together. config may be nil. Of two mutators with one ID
// the later counts.
func (b *Builder) Build(crs []*legacy.Mutator, config *legacy.Config, types *openapi.Types, o Options) *Result {
	return &Result{Set: engine.NewSet(engine.SetOptions{})}
}
