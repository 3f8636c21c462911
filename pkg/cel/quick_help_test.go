package cel

import (
	"context"

	"github.com/google/cel-go/common/types/ref"
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
	if f := p.quick.begin(a); f != nil {
		if v, ok := p.quick.value(f); f.end(ok) {
			if err := a.charge(f.price()); err != nil {
				return nil, err
			}
			return p.quick.toVal(v), nil
		}
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

// runQuickly is run without cel-go for the program. done is false if it gave up.
func runQuickly(p *Program, ctx context.Context, a *Activation) (v any, done bool, err error) {
	a.begin(ctx)
	f := p.quick.begin(a)
	if f == nil {
		return nil, false, nil
	}
	var ok bool
	switch p.want {
	case Bool:
		v, ok = p.quick.condition(f)
	case JSONPatch, TypedPatch:
		ok = p.quick.patch(f)
		v = append([]PatchOp{}, f.ops...)
	default:
		v, ok = p.quick.value(f)
	}
	if !f.end(ok) {
		return nil, false, nil
	}
	return v, true, a.charge(f.price())
}
