package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy/merge"
	"github.com/mapd-project/mapd/pkg/policy/patch"
)

// jsonPatchMutator is a mutation of type JSONPatch (spec §8).
type jsonPatchMutator struct {
	expr    expression
	types   *openapi.Types
	lenient bool // the result is not settled
}

// Mutate evaluates the patch, applies it and settles the result.
func (m *jsonPatchMutator) Mutate(ctx context.Context, in Input) (*unstructured.Unstructured, error) {
	if in.Object == nil {
		return nil, nil
	}
	d := in.draft()
	ops, err := evaluate(ctx, m.expr, in, (*cel.Program).JSONPatch)
	if err != nil {
		return nil, err
	}
	if m.lenient {
		err = patch.Lenient(&d.Draft, ops)
		return d.Object(), err
	}
	if in.Grown != nil && slices.ContainsFunc(ops, func(op cel.PatchOp) bool { return op.Op == "copy" }) {
		*in.Grown += patch.CopyLimit // the most that the patch can add
	}
	// Settling needs only the Go type, which Scale, Eviction and PodExecOptions have although
	// they have no schema (spec §2.6).
	kind, _ := m.types.Kind(in.Kind)
	err = patch.Apply(&d.Draft, kind, ops)
	return d.Object(), err
}

// applyMutator is a mutation of type ApplyConfiguration (spec §7).
type applyMutator struct {
	expr    expression
	types   *openapi.Types
	lenient bool // the result is not settled
	// checked is the result of checking a constant patch for the last kind.
	checked atomic.Pointer[checkedPatch]
}

// checkedPatch is the result of checking a patch against a kind's schema.
type checkedPatch struct {
	kind  *openapi.Kind
	patch map[string]any
	err   error
}

// Mutate evaluates the patch, merges it into the object and settles the result.
func (m *applyMutator) Mutate(ctx context.Context, in Input) (*unstructured.Unstructured, error) {
	if in.Object == nil {
		return nil, nil
	}
	d := in.draft()
	kind, kindErr := m.types.Kind(in.Kind)
	if kindErr != nil && noGroupVersion(kindErr) {
		// A missing schema fails the whole request, before anything is evaluated: upstream's
		// dispatcher looks up the group-version's schema first (k8s.io/apiserver
		// …/mutating/dispatcher.go: dispatchOne; spec §9.5b).
		return nil, noSchema(in.Kind)
	}
	if gvk := in.Object.GroupVersionKind(); kindErr == nil && gvk != in.Kind {
		// An earlier JSON Patch has changed the kind of a custom object: upstream looks up the
		// schema by the kind in the object.
		if kind, kindErr = m.types.Kind(gvk); kindErr != nil {
			kindErr = &openapi.NoKindError{GVK: gvk}
		}
	}
	configuration, err := evaluate(ctx, m.expr, in, (*cel.Program).Object)
	if err != nil {
		return nil, err
	}
	if kindErr != nil {
		return nil, fmt.Errorf("error applying patch: failed to convert patch object to typed object: %w", kindErr)
	}
	if configuration, err = m.check(kind, configuration); err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	if m.lenient {
		err = merge.Lenient(&d.Draft, kind, configuration)
	} else {
		err = merge.Apply(&d.Draft, kind, configuration)
	}
	return d.Object(), err
}

func noGroupVersion(err error) bool {
	var missing *openapi.NoGroupVersionError
	return errors.As(err, &missing)
}

// noSchema returns the error for a group-version for which the server has no schema yet.
func noSchema(kind schema.GroupVersionKind) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("Resource kind %s not found. There can be a delay between when CustomResourceDefinitions are created and when they are available.", kind))
}

// check returns the apply configuration in the form to merge, or why it is invalid.
func (m *applyMutator) check(kind *openapi.Kind, configuration map[string]any) (map[string]any, error) {
	if !m.expr.isConstant() {
		return merge.Check(kind, configuration)
	}
	if c := m.checked.Load(); c != nil && c.kind == kind {
		return c.patch, c.err
	}
	checked, err := merge.Check(kind, configuration)
	m.checked.Store(&checkedPatch{kind: kind, patch: checked, err: err})
	return checked, err
}
