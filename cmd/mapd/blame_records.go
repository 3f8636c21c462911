package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/blame"
	"github.com/mapd-project/mapd/internal/ledger"
	"github.com/mapd-project/mapd/internal/replicas"
)

// records asks all replicas what they remember.
type records struct {
	set *replicas.Set
	// since is when the replica that began last did so, and answered how many replicas
	// have answered.
	since    time.Time
	answered int
}

// newRecords finds the replicas. An error says why there are no records.
func newRecords(ctx context.Context, config *rest.Config, urls []string) (*records, error) {
	set, err := replicas.Find(ctx, replicas.Options{Config: config, URLs: urls})
	if err != nil {
		return nil, err
	}
	return &records{set: set}, nil
}

// of returns the lines about an object, whose controller has the UID owner, and what keeps
// replicas from answering.
func (r *records) of(ctx context.Context, t *blame.Target, gk schema.GroupKind, owner types.UID) (lines []blame.Line, complaints []string) {
	answers, err := replicas.Ask[ledger.BlameAnswer](ctx, r.set, ledger.BlameName, url.Values{
		"group": {gk.Group}, "kind": {gk.Kind}, "namespace": {t.Namespace}, "name": {t.Name}, "uid": {string(t.UID)}, "owner": {string(owner)},
	})
	if err != nil {
		return nil, []string{fmt.Sprintf("records: %v", err)}
	}
	var entries []ledger.Entry
	answered := 0
	for _, a := range answers {
		if a.Err != nil {
			complaints = append(complaints, fmt.Sprintf("records of the replica %s: %v", a.Replica, a.Err))
			continue
		}
		answered++
		if a.Value.Since.After(r.since) {
			r.since = a.Value.Since
		}
		if a.Value.More > 0 {
			complaints = append(complaints, fmt.Sprintf("records of the replica %s: %d older entries about %s are left out", a.Replica, a.Value.More, t))
		}
		entries = append(entries, a.Value.Entries...)
	}
	r.answered = max(r.answered, answered)
	return blame.Recorded(t, entries), complaints
}
