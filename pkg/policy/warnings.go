package policy

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// Warning is something in a policy that compiles and is nevertheless sure to
// fail.
type Warning struct {
	// Field is the expression's place, such as
	// spec.mutations[0].applyConfiguration.expression.
	Field string
	// Line and Column are 1-based places in the expression; columns count code
	// points.
	Line, Column int
	// Kind is the kind whose objects it fails for.
	Kind    schema.GroupVersionKind
	Message string
}

// Warnings holds the apply configurations of a policy against the schemas of
// the kinds that its rules name.
func Warnings(*Policy, *openapi.Types) []Warning { return nil }
