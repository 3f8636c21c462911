package policy

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
)

// expression is one mutation's expression and the names it is evaluated with.
type expression struct {
	scope   *cel.Scope
	program *cel.Program
}

// evaluate runs the expression on its own budget and variables (spec §5, §6.7);
// run is the method that gives the result the patch type wants.
func evaluate[T any](ctx context.Context, e expression, in Input, run func(*cel.Program, context.Context, *cel.Activation) (T, error)) (T, error) {
	room := in.room()
	room.budget.Remaining = cel.MutationBudget
	patch, err := run(e.program, ctx, e.scope.Rebind(&room.values, in.celInput(&room.vars), &room.budget))
	if in.Cost != nil {
		*in.Cost += spent(cel.MutationBudget, &room.budget)
	}
	if err == nil && in.Grown != nil {
		err = in.grow(room.values.ResultSize())
	}
	return patch, err
}

// maxObject bounds the object between two mutations, as JSON. A review of a larger one
// would be refused, and no server stores one.
const maxObject = 7 << 20

var errObject = fmt.Errorf("the object would take more than %d MiB of JSON", maxObject>>20)

// grow counts what a mutation is about to add. The object is looked at only when much
// was added since the last time.
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

// room is what one evaluation needs.
type room struct {
	vars   cel.Input
	values cel.Activation
	budget cel.Budget
}

// isConstant reports whether the expression reads nothing: its patch is then
// the same for every request (and evaluated by pkg/cel only once).
func (e expression) isConstant() bool { return e.program.Reads() == 0 }

// spent is what has been taken from a budget; all of it once it has run out.
func spent(full int64, b *cel.Budget) int64 { return full - max(b.Remaining, 0) }

// room returns what an evaluation can use until the next one begins.
func (in *Input) room() *room {
	if in.Draft != nil {
		return &in.Draft.room
	}
	return &room{}
}

// celInput makes vars the input as expressions see it.
func (in *Input) celInput(vars *cel.Input) *cel.Input {
	*vars = cel.Input{
		Object:     content(in.Object),
		OldObject:  content(in.OldObject),
		Params:     content(in.Params),
		Namespace:  content(in.Namespace),
		Authorizer: in.Authorizer,
		Turn:       in.Turn,
	}
	if r, kind, resource := in.Request, in.Kind, in.Resource; r != nil {
		vars.Memory = r.Memory
		if in.Draft != nil {
			vars.Request = in.Draft.request(r, kind, resource)
		} else {
			vars.Request = func() map[string]any { return r.celRequest(kind, resource) }
		}
		if in.Authorizer != nil {
			if in.Draft != nil {
				vars.User = in.Draft.user(r)
			} else {
				vars.User = r.User()
			}
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

// result wraps a mutation's outcome: the object itself if the trees are equal,
// so that "unchanged" is a comparison of pointers. The comparison follows only
// what is not shared, so it costs what the mutation touched.
func result(before *unstructured.Unstructured, after map[string]any) *unstructured.Unstructured {
	if tree.Equal(before.Object, after) {
		return before
	}
	return &unstructured.Unstructured{Object: after}
}

// settled is the part of the current object that settling need not look at
// again: all of it, with two exceptions. The defaults of another version, from
// which the object came, are not this one's (spec §2.3; k8s.io/apiserver
// …/mutating/dispatcher.go: dispatchOne fills in defaults after every
// mutation). And a nil list turns into null when it becomes text.
func (in *Input) settled() map[string]any {
	if r := in.Request; r != nil && (r.Kind != in.Kind || r.memo.textual.Load()) {
		return nil
	}
	return in.Object.Object
}

// unchanged is the outcome of a mutation that did nothing.
func (in *Input) unchanged(kind *openapi.Kind, from openapi.Decoding) (*unstructured.Unstructured, error) {
	if kind.Builtin() || in.settled() != nil {
		return in.Object, nil
	}
	after, err := kind.Settle(nil, in.Object.Object, from)
	if err != nil {
		return nil, err
	}
	return result(in.Object, after), nil
}
