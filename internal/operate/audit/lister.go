package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// query selects what is listed of a resource.
type query struct {
	namespace, labels, fields string
}

// cursor is a position in a list.
type cursor struct {
	// Continue is the server's token for the next page; empty at the start.
	Continue string `json:"continue,omitempty"`
	// Last is the key of the last object that was handled.
	Last string `json:"last,omitempty"`
	// Over: the server has no further page.
	Over bool `json:"-"`
}

// maxPage is how many objects a page has at most, as in kubectl. pageBytes is about how
// much text a page should have, and chunkBytes how much is handled at once.
const (
	maxPage    = 500
	firstPage  = 100
	pageBytes  = 16 << 20
	chunkBytes = 4 << 20
)

// lister reads a list page by page.
type lister struct {
	cluster *Cluster
	of      Resource
	query   query
	at      cursor
	limit   int
	restart bool // the token has expired: skip objects up to at.Last
}

func newLister(c *Cluster, r Resource, q query, at cursor) *lister {
	return &lister{cluster: c, of: r, query: q, at: at, limit: firstPage}
}

// tries is how often a page is asked for whose connection breaks, and between is how
// long to wait the first time.
const (
	tries   = 5
	between = 200 * time.Millisecond
)

// next reads a page, and calls handle with its objects in chunks. After the last page, at.Over is
// set. Each object is handled once, even if the page has to be read again.
//
// With an expired token, the list continues at the same position with the objects that the server
// has now. If the server returns no token for that, the list begins again and skips objects up to
// the last handled one: API servers list by namespace and name.
func (l *lister) next(ctx context.Context, handle func([]json.RawMessage) error) error {
	done := map[string]bool{}
	for try := 1; ; try++ {
		token, n, size, err := l.page(ctx, done, handle)
		var stop *handleError
		var status apierrors.APIStatus
		switch {
		case err == nil:
			l.at.Continue, l.at.Over = token, token == ""
			l.resize(n, size)
			return nil
		case errors.As(err, &stop):
			return stop.err
		case ctx.Err() != nil:
			return ctx.Err()
		case l.at.Continue != "" && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)):
			l.at.Continue = ""
			if errors.As(err, &status) {
				l.at.Continue = status.Status().Continue
			}
			l.restart = l.restart || l.at.Continue == ""
		case errors.As(err, &status) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err) && !apierrors.IsInternalError(err) && !apierrors.IsServiceUnavailable(err):
			return err
		}
		if try == tries {
			return err
		}
		l.limit = max(1, l.limit/2) // a smaller page helps if the server is slow
		if err := Sleep(ctx, between<<(try-1)); err != nil {
			return err
		}
	}
}

// Sleep waits for d, or returns the error of ctx when it ends earlier.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// resize adapts the limit so that the next page has about pageBytes.
func (l *lister) resize(n int, size int64) {
	if n == 0 {
		return
	}
	fits := int(pageBytes / max(1, size/int64(n)))
	l.limit = max(1, min(maxPage, 2*l.limit, fits))
}

// handleError wraps an error of the function that handles objects.
type handleError struct{ err error }

func (e *handleError) Error() string { return e.err.Error() }

// page reads one page. done has the keys of the objects that were handled already.
func (l *lister) page(ctx context.Context, done map[string]bool, handle func([]json.RawMessage) error) (token string, n int, size int64, err error) {
	path := "/apis/" + l.of.GVR.Group
	if l.of.GVR.Group == "" {
		path = "/api"
	}
	path += "/" + l.of.GVR.Version
	if l.query.namespace != "" {
		path += "/namespaces/" + l.query.namespace
	}
	req := l.cluster.client.Get().AbsPath(path, l.of.GVR.Resource).Param("limit", strconv.Itoa(l.limit))
	for name, value := range map[string]string{"continue": l.at.Continue, "labelSelector": l.query.labels, "fieldSelector": l.query.fields} {
		if value != "" {
			req = req.Param(name, value)
		}
	}
	body, err := req.Stream(ctx)
	if err != nil {
		return "", 0, 0, err
	}
	defer body.Close()
	var chunk []json.RawMessage
	var keys []string
	var held int64
	flush := func() error {
		if len(chunk) == 0 {
			return nil
		}
		if err := handle(chunk); err != nil {
			return &handleError{err}
		}
		for _, k := range keys {
			done[k] = true
		}
		l.at.Last = keys[len(keys)-1]
		chunk, keys, held = nil, nil, 0
		return nil
	}
	last := l.at.Last
	token, err = readList(body, func(item json.RawMessage) error {
		key, err := keyOf(item)
		if err != nil {
			return err
		}
		n, size = n+1, size+int64(len(item))
		if done[key] || l.restart && key <= last {
			return nil
		}
		chunk, keys, held = append(chunk, item), append(keys, key), held+int64(len(item))
		if held >= chunkBytes {
			return flush()
		}
		return nil
	})
	if err != nil {
		return "", 0, 0, err
	}
	if err := flush(); err != nil {
		return "", 0, 0, err
	}
	return token, n, size, nil
}

// keyOf returns the namespace and name of an object in the order in which servers list.
func keyOf(item json.RawMessage) (string, error) {
	var o struct {
		Metadata struct{ Namespace, Name string }
	}
	if err := json.Unmarshal(item, &o); err != nil {
		return "", fmt.Errorf("an object of the list: %w", err)
	}
	return o.Metadata.Namespace + "/" + o.Metadata.Name, nil
}

// readList calls each with the objects of a list as they arrive, and returns the token
// for the next page.
func readList(r io.Reader, each func(json.RawMessage) error) (token string, err error) {
	dec := json.NewDecoder(r)
	if err := want(dec, '{'); err != nil {
		return "", err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return "", err
		}
		switch name {
		case "metadata":
			var meta struct{ Continue string }
			if err := dec.Decode(&meta); err != nil {
				return "", err
			}
			token = meta.Continue
		case "items":
			first, err := dec.Token()
			if err != nil {
				return "", err
			}
			if first == nil { // a list in Go without an element
				continue
			}
			if first != json.Delim('[') {
				return "", fmt.Errorf("the items of a list are %v, want [", first)
			}
			for dec.More() {
				var item json.RawMessage
				if err := dec.Decode(&item); err != nil {
					return "", err
				}
				if err := each(item); err != nil {
					return "", err
				}
			}
			if err := want(dec, ']'); err != nil {
				return "", err
			}
		default:
			var other json.RawMessage
			if err := dec.Decode(&other); err != nil {
				return "", err
			}
		}
	}
	return token, want(dec, '}')
}

func want(dec *json.Decoder, delim json.Delim) error {
	t, err := dec.Token()
	if err == nil && t != delim {
		err = fmt.Errorf("a list has %v, want %v", t, delim)
	}
	return err
}

// all calls each with all objects that a query selects.
func (c *Cluster) all(ctx context.Context, r Resource, q query, each func(json.RawMessage) error) error {
	l := newLister(c, r, q, cursor{})
	for !l.at.Over {
		err := l.next(ctx, func(items []json.RawMessage) error {
			for _, item := range items {
				if err := each(item); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", r.GVR.GroupResource(), err)
		}
	}
	return nil
}
