package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
)

// applyMutator is a mutation of type ApplyConfiguration (spec §7).
type applyMutator struct {
	expr    expression
	types   *openapi.Types
	lenient bool // the result is not settled
	// checked is the verdict on a constant patch for the kind it met last.
	checked atomic.Pointer[checkedPatch]
}

// checkedPatch is a patch that was held against a kind's schema.
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
	kind, kindErr := m.types.Kind(in.Kind)
	if kindErr != nil && noGroupVersion(kindErr) {
		// Before anything is evaluated, and for the whole request: upstream's
		// dispatcher asks for the group-version's schema first
		// (k8s.io/apiserver …/mutating/dispatcher.go: dispatchOne; spec §9.5b).
		return nil, noSchema(in.Kind)
	}
	if gvk := in.Object.GroupVersionKind(); kindErr == nil && gvk != in.Kind {
		// An earlier JSON Patch has given an object of a custom kind another
		// one: the schema is looked up by what the object says it is.
		if kind, kindErr = m.types.Kind(gvk); kindErr != nil {
			kindErr = &openapi.NoKindError{GVK: gvk}
		}
	}
	patch, err := evaluate(ctx, m.expr, in, (*cel.Program).Object)
	if err != nil {
		return nil, err
	}
	if kindErr != nil {
		return nil, fmt.Errorf("error applying patch: failed to convert patch object to typed object: %w", kindErr)
	}
	if patch, err = m.check(kind, patch); err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}

	return in.merged(kind, patch, m.lenient)
}

// merged merges a checked patch into the object and, if it is not for a lenient
// policy, settles the result.
func (in *Input) merged(kind *openapi.Kind, patch map[string]any, lenient bool) (*unstructured.Unstructured, error) {
	before := in.Object.Object
	if err := in.conforms(kind); err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	// What another kind was made of has not been settled as the one that it is now.
	usual := !lenient && in.settled() != nil && kind.GroupVersionKind() == in.Kind && (kind.Builtin() || !changesAsText(patch))
	if d := in.Draft; usual && d != nil && d.merge(kind, patch) {
		if d.object != in.Object && !kind.Builtin() {
			in.Request.forget(d.object.Object)
			in.Request.setValid(kind, d.object.Object)
		}
		return d.object, nil
	}
	after, err := merge(kind, before, patch)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	if lenient {
		return in.draft().replace(after), nil
	}
	if tree.Same(before, after) {
		return in.unchanged(kind, openapi.FromApply)
	}
	if after, err = kind.Settle(in.settled(), after, openapi.FromApply); err != nil {
		return nil, err
	}
	out := result(in.Object, after)
	if in.Request != nil && !kind.Builtin() {
		in.Request.setValid(kind, out.Object)
		if changesAsText(patch) {
			in.Request.memo.textual.Store(true)
		}
	}
	return out, nil
}

func noGroupVersion(err error) bool {
	var missing *openapi.NoGroupVersionError
	return errors.As(err, &missing)
}

// noSchema is the answer while the server has no schema for a group-version.
func noSchema(kind schema.GroupVersionKind) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("Resource kind %s not found. There can be a delay between when CustomResourceDefinitions are created and when they are available.", kind))
}

// check returns the patch in the form to merge, or why it cannot be.
func (m *applyMutator) check(kind *openapi.Kind, patch map[string]any) (map[string]any, error) {
	if !m.expr.isConstant() {
		return checkPatch(kind, patch)
	}
	if c := m.checked.Load(); c != nil && c.kind == kind {
		return c.patch, c.err
	}
	checked, err := checkPatch(kind, patch)
	m.checked.Store(&checkedPatch{kind: kind, patch: checked, err: err})
	return checked, err
}

// checkPatch validates an apply configuration and refuses atomic content in it
// (spec §7.1 steps 3 to 5). apiVersion and kind are the object's own whatever
// the author wrote, so they are left out of what is merged.
func checkPatch(kind *openapi.Kind, patch map[string]any) (map[string]any, error) {
	_, hasVersion := patch["apiVersion"]
	_, hasKind := patch["kind"]
	if hasVersion || hasKind {
		patch = maps.Clone(patch)
		delete(patch, "apiVersion")
		delete(patch, "kind")
	}
	s, tr := kind.Schema()
	c := checker{s}
	if c.sound(patch, tr) {
		return patch, representable(kind, patch)
	}
	if errs := c.validate(patch, tr); len(errs) > 0 {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", errs)
	}
	if found := c.atomics(nil, nil, patch, tr); len(found) > 0 {
		// Upstream's order is random; sorted is one of its outcomes.
		slices.Sort(found)
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s", strings.Join(found, ", "))
	}
	return patch, representable(kind, patch)
}

// representable refuses numbers that JSON cannot represent in a patch for an object of a
// custom kind. The Go types of built-in kinds do it themselves. In-tree such an object
// is an internal error once it is written (row decode-errors of docs/compat.md).
func representable(kind *openapi.Kind, patch map[string]any) error {
	if kind.Builtin() {
		return nil
	}
	place, number := unrepresentable(patch)
	if number == nil {
		return nil
	}
	return fmt.Errorf("%s: json: unsupported value: %v", place, *number)
}

// unrepresentable returns the first place of a number that JSON cannot represent, as
// .spec.list[2].n, and the number, nil if there is none.
func unrepresentable(v any) (place string, number *float64) {
	switch v := v.(type) {
	case map[string]any:
		var first string
		for key, e := range v {
			if at, n := unrepresentable(e); n != nil && (number == nil || key < first) {
				first, place, number = key, "."+key+at, n
			}
		}
	case []any:
		for i, e := range v {
			if at, n := unrepresentable(e); n != nil {
				return "[" + strconv.Itoa(i) + "]" + at, n
			}
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			number := v
			return "", &number
		}
	}
	return place, number
}

// conforms holds the live object against the schema, as upstream does. Built-in
// objects have been through their Go types, so they conform; an object of a
// custom kind is looked at once, unless it is itself the outcome of an apply.
func (in *Input) conforms(kind *openapi.Kind) error {
	object := in.Object.Object
	if kind.Builtin() || in.Request != nil && in.Request.isValid(kind, object) {
		return nil
	}
	if err := kind.Validate(object); err != nil {
		return fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	if in.Request != nil {
		in.Request.setValid(kind, object)
	}
	return nil
}

// merge merges a checked patch into an object that conforms.
func merge(kind *openapi.Kind, before, patch map[string]any) (map[string]any, error) {
	s, tr := kind.Schema()
	after, err := merger{s}.merge(before, patch, tr)
	if err != nil {
		// The patch was found valid, so it is the object that is not.
		if invalid := kind.Validate(before); invalid != nil {
			return nil, fmt.Errorf("failed to convert original object to typed object: %w", invalid)
		}
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	object, ok := after.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("failed to convert typed object to object: failed to convert value to unstructured for type %T", after)
	}
	return object, nil
}

// changesAsText reports whether an apply configuration holds what is not the
// same in the JSON text that a later JSON Patch works on: a list that is nil, as
// upstream's conversion makes empty ones.
func changesAsText(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if changesAsText(e) {
				return true
			}
		}
	case []any:
		return v == nil || slices.ContainsFunc(v, changesAsText)
	}
	return false
}
