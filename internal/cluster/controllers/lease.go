package controllers

import (
	"context"
	"sync"
)

// lead runs work whenever this replica holds the lease, until ctx is done. The
// context of work ends with the lease, and the lease is released only after work has
// returned.
func (w *Writer) lead(ctx context.Context, work func(context.Context)) error {
	var exempting sync.WaitGroup
	defer exempting.Wait()
	w.lease.Refused = func() {
		if w.exempting.CompareAndSwap(false, true) {
			exempting.Go(func() {
				defer w.exempting.Store(false)
				w.exemptOwnRequests(ctx)
			})
		}
	}
	for ctx.Err() == nil {
		held, err := w.lease.Hold(ctx, func(ctx context.Context) {
			w.log.Info("this replica holds the lease: it writes the webhook configurations, certificates and status")
			work(ctx)
		})
		if err != nil {
			return err
		}
		if held && ctx.Err() == nil {
			w.log.Warn("the lease is lost; another replica writes now, or this one later")
		}
	}
	return nil
}
