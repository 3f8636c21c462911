package policy

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/cel"
)

// expression is the expression of one mutation and the scope for evaluating it.
type expression struct {
	scope   *cel.Scope
	program *cel.Program
}

// evaluate runs the expression with its own budget and variables (spec §5, §6.7); run is the
// method of cel.Program for the type of patch.
func evaluate[T any](ctx context.Context, e expression, in Input, run func(*cel.Program, context.Context, *cel.Activation) (T, error)) (T, error) {
	buffers := &in.Draft.buffers
	buffers.budget.Remaining = cel.MutationBudget
	patch, err := run(e.program, ctx, e.scope.Rebind(&buffers.values, in.celInput(&buffers.vars), &buffers.budget))
	if in.Cost != nil {
		*in.Cost += spent(cel.MutationBudget, &buffers.budget)
	}
	if err == nil && in.Grown != nil {
		err = in.grow(buffers.values.ResultSize())
	}
	return patch, err
}

// maxObject bounds the JSON size of the object between two mutations. A review of a larger one
// would be refused, and no server stores one.
const maxObject = 7 << 20

var errObject = fmt.Errorf("the object would take more than %d MiB of JSON", maxObject>>20)

// grow counts the bytes that a mutation is about to add. The size of the object is computed
// only if much was added since the last time.
func (in *Input) grow(bytes int64) error {
	if *in.Grown += bytes; *in.Grown <= cel.MaxResult {
		return nil
	}
	*in.Grown = bytes
	if cel.Outweighs(in.Object.Object, maxObject-bytes) {
		return errObject
	}
	return nil
}

// buffers are the memory of one evaluation, which the next one reuses.
type buffers struct {
	vars   cel.Input
	values cel.Activation
	budget cel.Budget
}

// isConstant reports whether the expression reads nothing: its patch is then
// the same for every request (and evaluated by pkg/cel only once).
func (e expression) isConstant() bool { return e.program.Reads() == 0 }

// spent returns how much of a budget was used; all of it if it is exceeded.
func spent(full int64, b *cel.Budget) int64 { return full - max(b.Remaining, 0) }

// draft returns the draft that a step works on: a new one if Input has none.
func (in *Input) draft() *Draft {
	if in.Draft == nil {
		in.Draft = NewDraft(in.Object)
	}
	d, as := in.Draft, in.Kind
	if d.Textual || in.Request != nil && in.Request.Kind != in.Kind {
		as = schema.GroupVersionKind{}
	}
	if d.SettledAs != as { // rarely, and comparing costs less than writing pointers
		d.SettledAs = as
	}
	return d
}

// celInput converts the input to the form for package cel, in vars.
func (in *Input) celInput(vars *cel.Input) *cel.Input {
	*vars = cel.Input{
		Object:     content(in.Object),
		OldObject:  content(in.OldObject),
		Params:     content(in.Params),
		Namespace:  content(in.Namespace),
		Authorizer: in.Authorizer,
		Turn:       in.Turn,
		Outside:    in.Outside,
	}
	if r, kind, resource := in.Request, in.Kind, in.Resource; r != nil {
		vars.Memory = r.Memory
		vars.Request = in.Draft.request(r, kind, resource)
		if in.Authorizer != nil {
			vars.User = in.Draft.user(r)
			vars.Attributes = requestResource{r}
		}
	}
	return vars
}

func content(u *unstructured.Unstructured) map[string]any {
	if u == nil {
		return nil
	}
	return u.Object
}
