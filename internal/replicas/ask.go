package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/parallel"
	"github.com/mapd-project/mapd/internal/report"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// maxAnswer bounds the answer of one replica, in bytes.
const maxAnswer = 32 << 20

// Answer is what one replica says, or why it says nothing.
type Answer[T any] struct {
	Replica string
	Value   T
	Err     error
}

// Ask asks all replicas for the records of that name, and returns their answers sorted by
// the names of the replicas. The error says that none has answered, and why.
func Ask[T any](ctx context.Context, s *Set, name string, query url.Values) ([]Answer[T], error) {
	if s.missing != nil {
		return nil, s.missing
	}
	out := make([]Answer[T], len(s.all))
	parallel.Each(len(s.all), func(i int) {
		a := &out[i]
		a.Replica = s.all[i].name
		body, err := s.ask(ctx, s.all[i], name, query)
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

// Read reads a page that needs no rights, such as /metrics, of all replicas whose names
// keep has, and returns what they answer, whatever its HTTP status.
func Read(ctx context.Context, s *Set, page string, keep func(replica string) bool) []Answer[[]byte] {
	var out []Answer[[]byte]
	var from []replica
	for _, r := range s.all {
		if keep(r.name) {
			from, out = append(from, r), append(out, Answer[[]byte]{Replica: r.name})
		}
	}
	parallel.Each(len(from), func(i int) {
		out[i].Value, _, out[i].Err = s.get(ctx, from[i], page, func(_ context.Context, t http.RoundTripper) (http.RoundTripper, error) { return t, nil })
	})
	return out
}

// ask asks one replica, and once more with another token if it does not know the user's.
func (s *Set) ask(ctx context.Context, r replica, name string, query url.Values) ([]byte, error) {
	path := webhook.RecordsPath + name + "?" + query.Encode()
	body, code, err := s.get(ctx, r, path, s.auth.asUser)
	if err == nil && code == http.StatusUnauthorized && s.auth.own {
		body, code, err = s.get(ctx, r, path, s.auth.asReader)
	}
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

// bounded cuts a text of a replica that is printed.
func bounded(s string) string {
	const most = 500
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + " …"
	}
	return s
}

// get asks a replica once, for a path and perhaps a query. as returns a transport that
// authenticates.
func (s *Set) get(ctx context.Context, r replica, path string, as func(context.Context, http.RoundTripper) (http.RoundTripper, error)) (body []byte, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return nil, 0, err
	}
	transport := s.transport(r)
	defer transport.CloseIdleConnections()
	authorized, err := as(ctx, transport)
	if err != nil {
		return nil, 0, err
	}
	// A token goes to no other place than the replica.
	client := &http.Client{Transport: authorized, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v", askTimeout)
		}
		return nil, 0, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("the answer cannot be read to its end: %w", err)
	case len(body) > maxAnswer:
		return nil, 0, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return body, response.StatusCode, nil
}
