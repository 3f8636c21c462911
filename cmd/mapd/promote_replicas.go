//go:build !server

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/operate/promote"
	"github.com/mapd-project/mapd/internal/operate/replicas"
)

// promotionReplicas asks replicas for what a promotion needs. Replicas may be added or removed
// meanwhile, so it finds them again for each call.
type promotionReplicas struct{ finder *replicaFinder }

// namespace returns the namespace that mapd runs in.
func (r *promotionReplicas) namespace(ctx context.Context) (string, error) {
	set, err := r.finder.find(ctx)
	if err != nil {
		return "", err
	}
	return set.Namespace(), nil
}

// askAll returns the answers of all replicas. It is an error if one does not answer.
func askAll[T any](ctx context.Context, r *promotionReplicas, name string, query url.Values) (map[string]T, error) {
	set, err := r.finder.find(ctx)
	if err != nil {
		return nil, err
	}
	answers, err := replicas.Ask[T](ctx, set, name, query)
	if err != nil { // of all replicas
		return nil, fmt.Errorf("%w\nreplicas are asked by port-forward or at the addresses of --replica, with the rights of the Role and the ClusterRole mapd-records", err)
	}
	out := map[string]T{}
	var missing []error
	for _, a := range answers {
		if a.Err != nil {
			missing = append(missing, fmt.Errorf("replica %s: %w", a.Replica, a.Err))
		}
		out[a.Replica] = a.Value
	}
	if len(missing) > 0 {
		return nil, unreachable(len(missing), len(answers), errors.Join(missing...))
	}
	return out, nil
}

// unreachable says what to do about replicas that cannot be asked.
func unreachable(missing, of int, err error) error {
	return fmt.Errorf(`%d of %d replicas of mapd cannot be asked, and may still answer API servers with an earlier version of the policy:
%w
delete the Pod of a replica that does not come back, or name the addresses of the others with --replica if it is switched off`, missing, of, err)
}

// Running implements promote.Replicas.
func (r *promotionReplicas) Running(ctx context.Context, policy string) (map[string]string, error) {
	answers, err := askAll[promote.RunningAnswer](ctx, r, promote.RunningName, url.Values{"policy": {policy}})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, a := range answers {
		if a.Broken != "" {
			return nil, fmt.Errorf("replica %s cannot run it: %s", name, a.Broken)
		}
		out[name] = a.Running
	}
	return out, nil
}

// Exempt implements promote.Replicas.
func (r *promotionReplicas) Exempt(ctx context.Context) ([]string, error) {
	answers, err := askAll[promote.RunningAnswer](ctx, r, promote.RunningName, nil)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		return a.Exempt, nil // all have the same flags
	}
	return nil, errors.New("no replica of mapd was found")
}

// Counts implements promote.Replicas.
func (r *promotionReplicas) Counts(ctx context.Context, policy string) (map[string]promote.Counts, error) {
	answers, err := askAll[history.CountsAnswer](ctx, r, history.CountsName, nil)
	if err != nil {
		return nil, err
	}
	out := map[string]promote.Counts{}
	for name, a := range answers {
		sum := promote.Counts{Since: a.Since}
		for _, c := range a.Counts {
			if c.Policy != policy {
				continue
			}
			sum.Seen, sum.Would, sum.Failed = sum.Seen+c.Seen, sum.Would+c.Would, sum.Failed+c.Failed
			if c.Last != nil && c.Would > 0 {
				sum.Example = exampleText(c.Last)
			}
		}
		out[name] = sum
	}
	return out, nil
}
