//go:build !server

package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mapd-project/mapd/internal/author/ordercheck"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// ordersFlags are the flags for other orders of policies.
type ordersFlags struct {
	on   bool
	most int
}

func (f *ordersFlags) add(fl *pflag.FlagSet) {
	fl.BoolVar(&f.on, "orders", false, "run policies that affect each other in every order, and once more on the results as updates; a difference is an error")
	fl.IntVar(&f.most, "max-orders", ordercheck.Usual, "with --orders, how many orders are run for an object at most")
}

func (f *ordersFlags) check() error {
	if f.on && f.most < 1 {
		return errors.New("--max-orders must be at least 1")
	}
	return nil
}

// limit returns how many orders are run, 0 without --orders.
func (f *ordersFlags) limit() int {
	if !f.on {
		return 0
	}
	return f.most
}

// reorder runs the policies on an object in other orders, and prints the differences.
func (e *evaluation) reorder(ctx context.Context, r *mapd.Result) {
	if !e.flags.orders.on {
		return
	}
	found, err := ordercheck.Check(ctx, e.policies, r.Request, e.flags.orders.most)
	if err != nil {
		e.failed = true
		e.notes.fail("%s: --orders: %s\n", report.Line(r.Request.Name()), report.Line(err.Error()))
		return
	}
	e.notes.say("  orders: %s\n", found.Summary())
	for i := range found.Differences {
		e.disordered = true
		lines := strings.ReplaceAll(strings.TrimSuffix(found.Differences[i].Text(), "\n"), "\n", "\n  ")
		e.notes.fail("  error: %s\n", lines)
	}
}
