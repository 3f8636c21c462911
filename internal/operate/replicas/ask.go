package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// maxAnswer bounds the answer of one replica, in bytes.
const maxAnswer = 32 << 20

// Answer is the answer of one replica, or the error why there is none.
type Answer[T any] struct {
	Replica string
	Value   T
	Err     error
}

// Ask asks all replicas for the records of that name, and returns their answers in the order of
// the Set. It fails only if no replica has answered. The requests carry a token that only replicas
// accept, and none of the user's credentials.
func Ask[T any](ctx context.Context, s *Set, name string, query url.Values) ([]Answer[T], error) {
	if s.missing != nil {
		return nil, s.missing
	}
	token, err := s.tokens.of(ctx, s.kube, s.namespace)
	if err != nil {
		return nil, fmt.Errorf("no replica of mapd was asked: %w", err)
	}
	out := make([]Answer[T], len(s.all))
	s.each(ctx, s.all, func(i int, err error) {
		a := &out[i]
		a.Replica, a.Err = s.all[i].name, err
		if err != nil {
			return
		}
		body, err := s.ask(ctx, s.all[i], name, query, token)
		if err == nil {
			if err = json.Unmarshal(body, &a.Value); err != nil {
				err = errors.New("the answer is not what a replica of this version says")
			}
		}
		a.Err = err
	})
	var all []error
	for _, a := range out {
		if a.Err == nil {
			return out, nil
		}
		all = append(all, fmt.Errorf("replica %s: %w", a.Replica, a.Err))
	}
	return nil, errors.Join(append([]error{errNoReplica}, all...)...)
}

// Read reads a page that needs no token, such as /metrics, from all replicas for whose names keep
// returns true. It returns the bodies of the answers, whatever their HTTP status.
func Read(ctx context.Context, s *Set, page string, keep func(replica string) bool) []Answer[[]byte] {
	var out []Answer[[]byte]
	var from []replica
	for _, r := range s.all {
		if keep(r.name) {
			from, out = append(from, r), append(out, Answer[[]byte]{Replica: r.name})
		}
	}
	s.each(ctx, from, func(i int, err error) {
		if err == nil {
			out[i].Value, _, err = s.get(ctx, from[i], page, "")
		}
		out[i].Err = err
	})
	return out
}

// atOnce is how many replicas are asked at a time. It does not depend on the number of cores,
// because most of the time is spent waiting for replicas that do not answer.
const atOnce = 32

// each calls f for each replica, for up to atOnce of them concurrently. If err is not nil, f must
// not ask the replica, and err is the reason.
func (s *Set) each(ctx context.Context, all []replica, f func(i int, err error)) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range all {
		group.Go(func() error {
			switch {
			case all[i].skip != nil:
				f(i, all[i].skip)
			case ctx.Err() != nil:
				f(i, errors.New("not asked: the time for the command was over before"))
			default:
				f(i, nil)
			}
			return nil
		})
	}
	_ = group.Wait() // no f returns an error
}

// ask asks one replica for records.
func (s *Set) ask(ctx context.Context, r replica, name string, query url.Values, token string) ([]byte, error) {
	body, code, err := s.get(ctx, r, webhook.RecordsPath+name+"?"+query.Encode(), token)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		var status metav1.Status
		if json.Unmarshal(body, &status) != nil || status.Message == "" {
			return nil, fmt.Errorf("HTTP status %d", code)
		}
		return nil, fmt.Errorf("HTTP status %d: %s", code, bounded(report.Line(status.Message)))
	}
	return body, nil
}

// bounded cuts a text that a replica sent, so that it can be printed.
func bounded(s string) string {
	const most = 500
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + " …"
	}
	return s
}

// get sends one GET request to a replica. path may have a query; an empty token is not sent.
func (s *Set) get(whole context.Context, r replica, path, token string) (body []byte, code int, err error) {
	ctx, cancel := context.WithTimeout(whole, s.patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return nil, 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := s.client(r)
	defer client.CloseIdleConnections()
	response, err := client.Do(req)
	if err != nil {
		return nil, 0, s.failure(whole, err)
	}
	defer response.Body.Close()
	// When the context ends, the connection is closed, so the replica aborts the request. What it
	// writes then may still arrive here, and must not be taken for an answer.
	if err := ctx.Err(); err != nil {
		return nil, 0, s.failure(whole, err)
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("the answer cannot be read to its end: %w", s.failure(whole, err))
	case len(body) > maxAnswer:
		return nil, 0, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return body, response.StatusCode, nil
}

// failure returns the error to report for err. It has no URL, and says which time limit was
// exceeded: that of one replica or that of the whole command.
func (s *Set) failure(whole context.Context, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the URL
	}
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case whole.Err() != nil:
		return errors.New("no answer before the time for the command was over")
	}
	return fmt.Errorf("no answer within %v", s.patience)
}
