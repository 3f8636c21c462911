package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Bounds of a question.
const (
	maxParams    = 16 << 20 // bytes of JSON
	maxTexts     = 4 << 20  // bytes of all texts of a question
	maxLines     = 250_000  // lines and commas in them, which is roughly the number of their values
	maxDocuments = 1_000    // documents in them, and as many objects before an update
	maxObjects   = 200      // objects in them
	maxReasons   = 1_000    // reasons why policies did nothing, and marked lines, for an object
	maxOrders    = 10_000   // orders run for an object
	maxGenerated = 5_000    // objects generated for a comparison
)

// patience bounds the time of a call. The page waits a little longer; then it ends the program.
const patience = 8 * time.Second

// methods are the functions that a page may call. They take and return JSON.
var methods = map[string]func(ctx context.Context, d *desk, params []byte) (any, error){
	"evaluate":   method((*desk).evaluate),
	"orders":     method((*desk).orders),
	"suite":      method((*desk).suite),
	"migrate":    method((*desk).migrate),
	"verify":     method((*desk).verify),
	"diagnose":   method((*desk).diagnose),
	"complete":   method((*desk).complete),
	"hover":      method((*desk).hover),
	"definition": method((*desk).definition),
	"format":     method((*desk).format),
	"actions":    method((*desk).actions),
}

// method returns f as a method that reads its parameter from JSON.
func method[P, A any](f func(*desk, context.Context, P) (A, error)) func(context.Context, *desk, []byte) (any, error) {
	return func(ctx context.Context, d *desk, params []byte) (any, error) {
		var p P
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, fmt.Errorf("the parameters: %w", err)
		}
		if err := d.texts.resolve(any(&p).(interface{ texts() [][]Text }).texts()...); err != nil {
			return nil, err
		}
		return f(d, ctx, p)
	}
}

// call calls a method. If the method panics, call returns an error.
func (d *desk) call(ctx context.Context, name string, params []byte) (answer []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			answer, err = nil, fmt.Errorf("%s: this is a mistake of mapd: %v", name, r)
		}
	}()
	m, ok := methods[name]
	if !ok {
		return nil, fmt.Errorf("no method %q", name)
	}
	if len(params) > maxParams {
		return nil, fmt.Errorf("the parameters have %d bytes; at most %d are read", len(params), maxParams)
	}
	ctx, cancel := within(ctx, d.patience)
	defer cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	a, err := m(ctx, d, params)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%s: not done after %v", name, d.patience)
	case err != nil:
		return nil, err
	}
	return json.Marshal(a)
}

// within is like context.WithTimeout, but also works if the timer cannot fire: in a browser, a
// goroutine runs until it waits for something, and no other goroutine runs meanwhile.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	end := time.Now().Add(d)
	ctx, cancel := context.WithDeadline(ctx, end)
	return &watched{ctx, end}, cancel
}

// watched is a context whose Err compares the clock with the deadline.
type watched struct {
	context.Context
	end time.Time
}

func (w *watched) Err() error {
	if err := w.Context.Err(); err != nil {
		return err
	}
	if time.Now().After(w.end) {
		return context.DeadlineExceeded
	}
	return nil
}
