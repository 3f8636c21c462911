package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// methods are what a page may call, from JSON to JSON.
var methods = map[string]func(ctx context.Context, params []byte) (any, error){
	"evaluate": method(func(ctx context.Context, q Question) (*Answer, error) { return answer(ctx, q), nil }),
}

// method returns f as a method that reads its parameter from JSON.
func method[P, A any](f func(context.Context, P) (A, error)) func(context.Context, []byte) (any, error) {
	return func(ctx context.Context, params []byte) (any, error) {
		var p P
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, fmt.Errorf("the parameters: %w", err)
		}
		return f(ctx, p)
	}
}

// call calls a method.
func call(ctx context.Context, name string, params []byte) ([]byte, error) {
	m, ok := methods[name]
	if !ok {
		return nil, fmt.Errorf("no method %q", name)
	}
	a, err := m(ctx, params)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}
