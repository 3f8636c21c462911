package webhook

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/policy"
)

// recorded counts what it is handed.
type recorded struct {
	answered, changed int
	panics            bool
}

func (r *recorded) Record(_ *policy.Request, d *engine.Decision, _ time.Duration) {
	if r.panics {
		panic("recording")
	}
	r.answered++
	if d.Changed {
		r.changed++
	}
}

func TestRecorder(t *testing.T) {
	r := &recorded{}
	h := NewHandler(Options{Admitter: label("a"), Recorder: r})
	review := podReview(t, 1, 1)
	for range 2 {
		if code, body := h.Review(t.Context(), review); code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
	}
	h.Review(t.Context(), []byte("{"))
	r.panics = true
	if code, _ := h.Review(t.Context(), review); code != http.StatusOK {
		t.Errorf("with a panic: %d", code)
	}
	if r.answered != 2 || r.changed != 2 {
		t.Errorf("recorded %+v", *r)
	}
	if _, body := get(t, h, "/metrics"); !strings.Contains(body, "mapd_panics_total 1") {
		t.Error("the panic is not counted")
	}
}

func TestRecords(t *testing.T) {
	const secret = "what nobody else may see"
	read := 0
	callers := map[netip.Prefix]bool{}
	options := Options{Admitter: label("a"), Records: &Records{
		Authorize: func(_ context.Context, from netip.Prefix, token, path string) error {
			callers[from] = true
			switch {
			case token == "":
				return &ReviewError{http.StatusUnauthorized, "who are you?"}
			case token == "down":
				return errors.New("cannot ask")
			case token != "good" || path != "/records/counts" && path != "/records/none" && path != "/records/broken":
				return &ReviewError{http.StatusForbidden, "not you"}
			}
			return nil
		},
		Get: func(name string, query url.Values) (any, error) {
			read++
			switch name {
			case "counts":
				return map[string]string{"is": secret, "of": query.Get("of")}, nil
			case "broken":
				return nil, errors.New("broken")
			}
			return nil, &ReviewError{http.StatusNotFound, "no such records"}
		},
	}}
	ask := func(h *Handler, method, path, authorization string) *recorder {
		req, err := http.NewRequestWithContext(t.Context(), method, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.RemoteAddr = "[2001:db8::7]:1234"
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		w := &recorder{header: http.Header{}}
		h.ServeHTTP(w, req)
		return w
	}
	h := NewHandler(options)
	for _, tt := range []struct {
		method, path, authorization string
		code                        int
		body                        string
		reads                       int
	}{
		{"GET", "/records/counts?of=x", "Bearer good", 200, `{"is":"` + secret + `","of":"x"}`, 1},
		{"GET", "/records/counts", "bearer good", 200, secret, 1},
		{"GET", "/records/none", "Bearer good", 404, "no such records", 1},
		{"GET", "/records/broken", "Bearer good", 500, "broken", 1},
		{"GET", "/records/counts", "", 401, "who are you?", 0},
		{"GET", "/records/counts", "Bearer ", 401, "who are you?", 0},
		{"GET", "/records/counts", "Bearer", 401, "who are you?", 0},
		{"GET", "/records/counts", "good", 401, "who are you?", 0},
		{"GET", "/records/counts", "Basic good", 401, "who are you?", 0},
		{"GET", "/records/counts", "Bearer bad", 403, "not you", 0},
		{"GET", "/records/counts", "Bearer good, Bearer bad", 403, "not you", 0},
		{"GET", "/records/counts", "Bearer down", 503, "cannot ask", 0},
		{"GET", "/records/", "Bearer good", 403, "not you", 0},
		{"GET", "/records/../records/counts", "Bearer good", 403, "not you", 0},
		{"GET", "/records", "Bearer good", 404, "no path", 0},
		{"POST", "/records/counts", "Bearer good", 405, "not allowed", 0},
		{"HEAD", "/records/counts", "Bearer good", 405, "not allowed", 0},
	} {
		read = 0
		w := ask(h, tt.method, tt.path, tt.authorization)
		if w.code != tt.code || !strings.Contains(w.body.String(), tt.body) || read != tt.reads || tt.code != 200 && strings.Contains(w.body.String(), secret) {
			t.Errorf("%s %s as %q: %d %s, and %d reads", tt.method, tt.path, tt.authorization, w.code, w.body.String(), read)
		}
		if challenge := w.header.Get("WWW-Authenticate"); (challenge != "") != (tt.code == 401) {
			t.Errorf("%s as %q: WWW-Authenticate %q", tt.path, tt.authorization, challenge)
		}
	}
	if want := netip.MustParsePrefix("2001:db8::/64"); len(callers) != 1 || !callers[want] {
		t.Errorf("the callers are %v instead of %v", callers, want)
	}
	if _, body := get(t, h, "/metrics"); !strings.Contains(body, `mapd_http_requests_total{code="403",path="/records/"} 4`) {
		t.Errorf("metrics:\n%s", body)
	}

	// No more than maxRecords at a time, and none without memory.
	for range maxRecords {
		h.recording <- struct{}{}
	}
	if w := ask(h, "GET", "/records/counts", "Bearer good"); w.code != http.StatusTooManyRequests || w.header.Get("Retry-After") == "" {
		t.Errorf("beside others: %d %s", w.code, w.body.String())
	}
	options.Memory = memory.New(recordsSize - 1)
	if w := ask(NewHandler(options), "GET", "/records/counts", "Bearer good"); w.code != http.StatusRequestEntityTooLarge {
		t.Errorf("without memory: %d %s", w.code, w.body.String())
	}
	if w := ask(NewHandler(Options{Admitter: label("a")}), "GET", "/records/counts", "Bearer good"); w.code != http.StatusNotFound {
		t.Errorf("without records: %d %s", w.code, w.body.String())
	}
}
