package cel

import (
	"context"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/mapd-project/mapd/pkg/cel/quick"
)

// run evaluates a program whatever its result is.
func run(p *Program, ctx context.Context, a *Activation) (any, error) {
	switch p.want {
	case Bool:
		b, err := p.Bool(ctx, a)
		return present(b, err), err
	case Object:
		m, err := p.Object(ctx, a)
		return m, err
	case JSONPatch, TypedPatch:
		ops, err := p.JSONPatch(ctx, a)
		return append([]PatchOp{}, ops...), err
	}
	a.begin(ctx)
	if r := p.quickly(a); r != nil {
		if err := a.charge(r.Cost); err != nil {
			return nil, err
		}
		return toVal(r.Value), nil
	}
	v, err := p.evaluate(a)
	if _, ok := v.(ref.Val); !ok {
		return nil, err
	}
	return v, err
}

// present is a value if there is no error.
func present(v any, err error) any {
	if err != nil {
		return nil
	}
	return v
}

// runSlowly is run without the quick way, neither for the program nor for its
// variables.
func runSlowly(p *Program, ctx context.Context, a *Activation) (any, error) {
	for i := range a.scope.variables {
		a.memo(i).slow = true
	}
	a.begin(ctx)
	v, err := p.evaluate(a)
	switch p.want {
	case Bool:
		return v, err
	case Object:
		m, _ := v.(map[string]any)
		return m, err
	case JSONPatch, TypedPatch:
		ops, _ := v.([]PatchOp)
		return append([]PatchOp{}, ops...), err
	}
	return v, err
}

// runQuickly is run without cel-go for the program. done is false if that declined.
func runQuickly(p *Program, ctx context.Context, a *Activation) (v any, done bool, err error) {
	a.begin(ctx)
	r := p.quickly(a)
	if r == nil {
		return nil, false, nil
	}
	if p.want == JSONPatch || p.want == TypedPatch {
		r.Value = append([]PatchOp{}, r.Ops...)
	}
	return r.Value, true, a.charge(r.Cost)
}

func sameMap(a, b map[string]any) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// toVal makes a value of cel-go.
func toVal(v any) ref.Val {
	switch v := v.(type) {
	case quick.List:
		out := make([]ref.Val, len(v))
		for i, e := range v {
			out[i] = toVal(e)
		}
		return types.NewRefValList(types.DefaultTypeAdapter, out)
	case quick.Map:
		out := make(map[ref.Val]ref.Val, len(v))
		for k, e := range v {
			out[types.String(k)] = toVal(e)
		}
		return types.NewRefValMap(types.DefaultTypeAdapter, out)
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}
