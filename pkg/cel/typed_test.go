package cel

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The values of a typed patch are what they were: numbers keep their type, in
// data, in literals and in what is put together of both.
func TestTypedPatch(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	params := map[string]any{
		"one": 1.0, "big": int64(1<<60 + 1), "null": nil,
		"list": []any{int64(1), 1.0, nil, map[string]any{"a": 2.0}},
	}
	tests := map[string]struct {
		expr string
		want any
	}{
		"a double":              {`params.one`, 1.0},
		"a large integer":       {`params.big`, int64(1<<60 + 1)},
		"null":                  {`params["null"]`, nil},
		"a literal":             {`1.0`, 1.0},
		"data":                  {`params.list`, params["list"]},
		"a list of literals":    {`dyn([dyn(1), dyn(1.0), dyn("s"), dyn(null)])`, []any{int64(1), 1.0, "s", nil}},
		"a map of literals":     {`{"a": dyn(1.0), "b": dyn([2.0])}`, map[string]any{"a": 1.0, "b": []any{2.0}}},
		"lists joined":          {`params.list + [dyn(3.0), dyn({"b": 4.0})]`, []any{int64(1), 1.0, nil, map[string]any{"a": 2.0}, 3.0, map[string]any{"b": 4.0}}},
		"a list that is picked": {`params.list.filter(e, type(e) == double)`, []any{1.0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			scope := env.Scope(Vars{Params: true, Variables: true})
			p, err := scope.Compile(`[JSONPatch{op: "add", path: "/x", value: `+tt.expr+`}]`, TypedPatch)
			if err != nil {
				t.Fatal(err)
			}
			ops, err := p.JSONPatch(t.Context(), scope.Bind(&Input{Params: params}, nil))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, ops[0].Value); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.expr, diff)
			}
		})
	}
}

// Without a meter an evaluation gives the same, costs nothing, and ends when its
// context does.
func TestUnmetered(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	list := make([]any, 300)
	for i := range list {
		list[i] = int64(i)
	}
	const all = `params.list.all(a, params.list.all(b, a + b >= 0))`
	in := &Input{Params: map[string]any{"list": list}}
	for _, unmetered := range []bool{false, true} {
		scope := env.Scope(Vars{Params: true, Unmetered: unmetered})
		p, err := scope.Compile(all, Bool)
		if err != nil {
			t.Fatal(err)
		}
		budget := &Budget{Remaining: 1}
		ok, err := p.Bool(t.Context(), scope.Bind(in, budget))
		if ok != unmetered || (err == nil) != unmetered {
			t.Errorf("unmetered %v: Bool = %v, %v", unmetered, ok, err)
		}
		if unmetered && budget.Remaining != 1 {
			t.Errorf("it cost %d", 1-budget.Remaining)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Bool(ctx, scope.Bind(in, nil)); err == nil {
			t.Errorf("unmetered %v: no error after the context's end", unmetered)
		}
	}
}
