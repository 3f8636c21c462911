package main

import (
	"context"
	"fmt"

	"github.com/mapd-project/mapd/internal/author/ordercheck"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// orders runs the policies that match each object in other orders.
func (d *desk) orders(ctx context.Context, q OrdersQuestion) (*OrdersAnswer, error) {
	if q.Limit < 0 || q.Limit > maxOrders {
		return nil, fmt.Errorf("limit: want 1 to %d, or nothing", maxOrders)
	}
	r, wrong := d.read(ctx, &q.Question, false)
	if wrong != nil {
		return &OrdersAnswer{Errors: wrong}, nil
	}
	a := &OrdersAnswer{Errors: r.faults}
	for _, o := range r.objects {
		if o.fault != nil {
			a.Objects = append(a.Objects, Orders{Error: o.fault})
			continue
		}
		req, err := r.policies.Request(o.document, r.opts)
		if err != nil {
			a.Objects = append(a.Objects, Orders{Name: o.document.Name(), Error: &faults(err)[0]})
			continue
		}
		found, err := ordercheck.Check(ctx, r.policies, req, q.Limit)
		if err != nil {
			return nil, err
		}
		a.Objects = append(a.Objects, ordersOf(req.Name(), found))
	}
	return a, nil
}

func ordersOf(name string, r *ordercheck.Result) Orders {
	out := Orders{Name: name, Policies: r.Members, Touching: r.Touching, Run: r.Runs, Of: r.Orders.String(), Whole: r.Whole, Summary: r.Summary()}
	for i := range r.Differences {
		f := &r.Differences[i]
		difference := OrderDifference{Kind: string(f.Kind), Policies: f.Members, Other: f.Other, Next: f.Next, Text: f.Text()}
		for _, c := range f.Changes {
			difference.Changes = append(difference.Changes, mapd.Change(c))
		}
		if f.Refusals != [2]string{} {
			difference.Denied = f.Refusals[:]
		}
		out.Differences = append(out.Differences, difference)
	}
	return out
}
