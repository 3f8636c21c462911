package webhook

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

type callersFunc func(from netip.Prefix, token, path string) (func(string) error, error)

func (f callersFunc) Authenticate(_ context.Context, from netip.Prefix, token, path string) (func(string) error, error) {
	return f(from, token, path)
}

// unread fails a test that reads it.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, errors.New("read")
}

func TestCallers(t *testing.T) {
	admitted := 0
	h := NewHandler(Options{
		Admitter: admitFunc(func(context.Context, *policy.Request) *engine.Decision { admitted++; return &engine.Decision{} }),
		Callers: callersFunc(func(from netip.Prefix, token, path string) (func(string) error, error) {
			if from.String() != "192.0.2.1/32" || path != "/mutate" {
				t.Errorf("from %s, path %s", from, path)
			}
			switch token {
			case "all":
				return nil, nil
			case "batch":
				return func(group string) error {
					if group == "batch" {
						return nil
					}
					return errors.New("not this group: " + group)
				}, nil
			case "forbidden":
				return nil, &ReviewError{Code: http.StatusForbidden, Reason: "not you"}
			}
			return nil, errors.New("a token is required")
		}),
	})
	send := func(token string, r *http.Request) (int, string, string) {
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String(), w.Header().Get("WWW-Authenticate")
	}
	for token, want := range map[string]struct {
		code         int
		text, scheme string
	}{
		"":                 {401, "a token is required", "Bearer"},
		"Basic YWxsOmFsbA": {401, "a token is required", "Bearer"},
		"Bearer forbidden": {403, "not you", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mutate", unread{t})
		if code, text, scheme := send(token, r); code != want.code || !strings.Contains(text, want.text) || scheme != want.scheme {
			t.Errorf("%q: %d %s %q", token, code, text, scheme)
		}
	}
	for token, want := range map[string]struct {
		code int
		text string
	}{"bearer all": {200, `"allowed":true`}, "Bearer batch": {403, "not this group: apps"}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mutate", strings.NewReader(reviewOf("")))
		if code, text, _ := send(token, r); code != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%q: %d %s", token, code, text)
		}
	}
	if admitted != 1 {
		t.Errorf("%d reviews were decided, want 1", admitted)
	}
}
