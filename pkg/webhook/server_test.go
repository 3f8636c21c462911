package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/servingcert"
	"github.com/mapd-project/mapd/test/hammer"
)

type admitFunc func(ctx context.Context, req *policy.Request) *engine.Decision

func (f admitFunc) Admit(ctx context.Context, req *policy.Request) *engine.Decision {
	return f(ctx, req)
}

// label sets a label as a policy would: on a copy of the path to it.
func label(value string) admitFunc {
	return func(_ context.Context, req *policy.Request) *engine.Decision {
		if req.Object == nil {
			return &engine.Decision{}
		}
		after := map[string]any{}
		for k, v := range req.Object.Object {
			after[k] = v
		}
		after["metadata"] = map[string]any{"labels": map[string]any{"team": value}}
		u := &unstructured.Unstructured{Object: after}
		policies := engine.Policies(nil)
		return staged(engine.Decision{Object: u, Changed: true}, engine.Record{Stage: &policies, Object: u, Changed: true, Rounds: 2, Steps: []engine.Step{
			{Policy: "labels", Binding: "all", Outcome: engine.Changed, Before: req.Object, After: u, Duration: time.Millisecond},
			{Policy: "other", Binding: "all", Outcome: engine.Unchanged, Before: u, After: u},
		}})
	}
}

// staged is a decision with the record of one stage.
func staged(d engine.Decision, r engine.Record) *engine.Decision {
	d.Stages = []engine.Record{r}
	if r.Stage.Mode == api.Enforce {
		d.Steps, d.Status = r.Steps, r.Status
	}
	return &d
}

// running is a server on a loopback port and a client that trusts it.
type running struct {
	url    string
	client *http.Client
	stop   context.CancelFunc
	done   chan error
}

func run(t *testing.T, h *Handler, get func(*tls.ClientHelloInfo) (*tls.Certificate, error), roots *x509.CertPool) *running {
	t.Helper()
	if get == nil {
		cert, caPEM, err := servingcert.SelfSigned([]string{"127.0.0.1", "mapd.mapd-system.svc"})
		if err != nil {
			t.Fatal(err)
		}
		get = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM(caPEM)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{url: "https://" + l.Addr().String(), stop: stop, done: make(chan error, 1)}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	r.client = &http.Client{Transport: transport}
	server := &Server{Handler: h, Certificate: get}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		r.done <- server.Run(ctx, l)
	}()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		<-finished
	})
	return r
}

func (r *running) do(t *testing.T, method, path, contentType string, body io.Reader) (*http.Response, string) {
	t.Helper()
	return r.send(t, method, path, contentType, body, nil)
}

func (r *running) send(t *testing.T, method, path, contentType string, body io.Reader, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

func TestServeMutate(t *testing.T) {
	r := run(t, NewHandler(Options{Admitter: label("blue")}), nil, nil)
	review := reviewOf(`"object": {"metadata": {}, "spec": {"replicas": 2}}`)
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8", `Application/JSON;charset="UTF-8"`} {
		resp, body := r.do(t, "POST", "/mutate?timeout=10s", contentType, strings.NewReader(review))
		if resp.StatusCode != 200 || resp.ProtoMajor != 1 || resp.TLS.Version != tls.VersionTLS13 {
			t.Fatalf("answer %d over %s with TLS %x: %s", resp.StatusCode, resp.Proto, resp.TLS.Version, body)
		}
		got := decodeResponse(t, []byte(body))
		if !got.Allowed || got.UID != "u1" || got.AuditAnnotations["mutated-by"] != "labels/all: /metadata/labels" {
			t.Errorf("response %s", body)
		}
		checkPatch(t, got.Patch, obj(t, `{"metadata": {}, "spec": {"replicas": 2}}`).Object,
			obj(t, `{"metadata": {"labels": {"team": "blue"}}, "spec": {"replicas": 2}}`).Object)
	}
}

// endless is a body of unknown length that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestRefusals(t *testing.T) {
	h := NewHandler(Options{Admitter: admitFunc(func(context.Context, *policy.Request) *engine.Decision {
		t.Error("a request that should have been refused was admitted")
		return &engine.Decision{}
	})})
	r := run(t, h, nil, nil)
	tests := map[string]struct {
		method, path, contentType, encoding string
		body                                io.Reader
		code                                int
		allow, reason                       string
	}{
		"wrong method":            {method: "GET", path: "/mutate", code: 405, allow: "POST", reason: "method GET is not allowed on /mutate, use POST"},
		"wrong method for health": {method: "POST", path: "/healthz", code: 405, allow: "GET, HEAD", reason: "method POST is not allowed on /healthz, use GET, HEAD"},
		"wrong method for ready":  {method: "DELETE", path: "/readyz", code: 405, allow: "GET, HEAD", reason: "method DELETE is not allowed on /readyz, use GET, HEAD"},
		"wrong method, metrics":   {method: "PUT", path: "/metrics", code: 405, allow: "GET, HEAD", reason: "method PUT is not allowed on /metrics, use GET, HEAD"},
		"wrong path":              {method: "POST", path: "/validate", code: 404, reason: `no path \"/validate\"; there are /mutate, /healthz, /readyz and /metrics`},
		"no content type":         {method: "POST", path: "/mutate", code: 415, reason: "the content type is missing, want application/json"},
		"wrong content type":      {method: "POST", path: "/mutate", contentType: "application/yaml", code: 415, reason: `content type \"application/yaml\", want application/json`},
		"broken content type":     {method: "POST", path: "/mutate", contentType: "application/json; charset", code: 415, reason: "mime: invalid media parameter"},
		"wrong charset":           {method: "POST", path: "/mutate", contentType: "application/json; charset=latin1", code: 415, reason: `charset \"latin1\", want utf-8`},
		"too large as announced":  {method: "POST", path: "/mutate", contentType: "application/json", body: bytes.NewReader(make([]byte, MaxBody+1)), code: 413, reason: "the body is larger than 7340032 bytes"},
		"too large in the end":    {method: "POST", path: "/mutate", contentType: "application/json", body: endless{}, code: 413, reason: "the body is larger than 7340032 bytes"},
		"as large as allowed":     {method: "POST", path: "/mutate", contentType: "application/json", body: bytes.NewReader(make([]byte, MaxBody)), code: 400, reason: `malformed AdmissionReview: offset 1: invalid character '\\x00'`},
		"malformed":               {method: "POST", path: "/mutate", contentType: "application/json", body: strings.NewReader(`{"kind":`), code: 400, reason: "malformed AdmissionReview: offset 8: unexpected end of JSON input"},
		"wrong version":           {method: "POST", path: "/mutate", contentType: "application/json", body: strings.NewReader(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1"}`), code: 400, reason: "want kind AdmissionReview of apiVersion admission.k8s.io/v1"},
		"no uid":                  {method: "POST", path: "/mutate", contentType: "application/json", body: strings.NewReader(badReviews["no uid"].in), code: 400, reason: "request.uid is missing"},
		"compressed":              {method: "POST", path: "/mutate", contentType: "application/json", encoding: "gzip", code: 415, reason: `content encoding \"gzip\", want none`},
		"broken timeout":          {method: "POST", path: "/mutate?timeout=soon", contentType: "application/json", code: 400, reason: `timeout \"soon\" is not a positive duration`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var header http.Header
			if tt.encoding != "" {
				header = http.Header{"Content-Encoding": {tt.encoding}}
			}
			resp, body := r.send(t, tt.method, tt.path, tt.contentType, tt.body, header)
			if resp.StatusCode != tt.code || !strings.Contains(body, tt.reason) || resp.Header.Get("Allow") != tt.allow {
				t.Errorf("%s %s = %d, Allow %q, %s; want %d, Allow %q, %q",
					tt.method, tt.path, resp.StatusCode, resp.Header.Get("Allow"), body, tt.code, tt.allow, tt.reason)
			}
			if !strings.Contains(body, `"kind":"Status"`) || !strings.Contains(body, fmt.Sprintf(`"code":%d`, tt.code)) {
				t.Errorf("body %s is not a Status with code %d", body, tt.code)
			}
		})
	}
}

func TestPanic(t *testing.T) {
	var log bytes.Buffer
	h := NewHandler(Options{
		Admitter: admitFunc(func(context.Context, *policy.Request) *engine.Decision { panic("the value of a Secret") }),
		Log:      slog.New(slog.NewTextHandler(&log, nil)),
	})
	r := run(t, h, nil, nil)
	resp, body := r.do(t, "POST", "/mutate", "application/json", strings.NewReader(reviewOf("")))
	if want := `"message":"mapd: a panic while answering the review; the log has more","reason":"InternalError","code":500}`; resp.StatusCode != 500 || !strings.Contains(body, want) {
		t.Errorf("answer %d %s, want 500 and %s", resp.StatusCode, body, want)
	}
	if text := log.String(); strings.Contains(text, "Secret") || !strings.Contains(text, `level=ERROR msg="panic while answering a review" uid=u1 panic="a string"`) {
		t.Errorf("log %s, want the request and the sort of panic, and not its value", text)
	}
	if _, metrics := r.do(t, "GET", "/metrics", "", nil); !strings.Contains(metrics, "mapd_panics_total 1\n") || !strings.Contains(metrics, "mapd_requests_in_flight 0\n") {
		t.Error("the metrics do not show the panic, or a request that is still under way")
	}
}

func TestTimeout(t *testing.T) {
	var deadline time.Time
	h := NewHandler(Options{Admitter: admitFunc(func(ctx context.Context, _ *policy.Request) *engine.Decision {
		deadline, _ = ctx.Deadline()
		return &engine.Decision{Status: failure(500, "late")}
	})})
	for query, want := range map[string]time.Duration{"": 30 * time.Second, "?timeout=10s": 9 * time.Second, "?timeout=1h": 27 * time.Second} {
		before := time.Now()
		post(t, h, "/mutate"+query, reviewOf(""))
		if deadline.Before(before.Add(want)) || deadline.After(time.Now().Add(want)) {
			t.Errorf("with %q the deadline is %s away, want %s", query, deadline.Sub(before), want)
		}
	}
}

// TestInterrupted: what was not decided in time is no verdict, so that the
// failurePolicy of the webhook's configuration applies.
func TestInterrupted(t *testing.T) { synctest.Test(t, testInterrupted) }

// The clock of synctest goes on when all wait, so the time is up in the evaluation and not
// before it.
func testInterrupted(t *testing.T) {
	h := NewHandler(Options{Admitter: admitFunc(func(ctx context.Context, _ *policy.Request) *engine.Decision {
		<-ctx.Done()
		status := failure(504, "evaluation stopped")
		return &engine.Decision{Status: status, Steps: []engine.Step{{Policy: "slow", Binding: "b", Outcome: engine.Unchanged}}}
	})})
	code, body := post(t, h, "/mutate?timeout=1ms", reviewOf(""))
	if want := `"message":"mapd: evaluation stopped","reason":"Timeout","code":504}`; code != 504 || !strings.Contains(body, want) {
		t.Errorf("answer %d %s, want 504 and %s", code, body, want)
	}
	_, metrics := get(t, h, "/metrics")
	for _, want := range []string{
		`mapd_request_duration_seconds_count{operation="CREATE",result="timeout"} 1`,
		`mapd_decisions_total{binding="b",outcome="unchanged",policy="slow"} 1`,
		`mapd_http_requests_total{code="504",path="/mutate"} 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// failingBody is a body that breaks off.
type failingBody struct{ err error }

func (b failingBody) Read([]byte) (int, error) { return 0, b.err }

func TestBodyThatDoesNotCome(t *testing.T) {
	tests := map[string]struct {
		err    error
		code   int
		reason string
	}{
		"too slow":   {&net.OpError{Op: "read", Addr: &net.IPAddr{IP: net.IPv4(192, 0, 2, 7)}, Err: os.ErrDeadlineExceeded}, 408, "the body did not come in time"},
		"broken off": {&net.OpError{Op: "read", Addr: &net.IPAddr{IP: net.IPv4(192, 0, 2, 7)}, Err: io.ErrUnexpectedEOF}, 400, "the body cannot be read to its end"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), "POST", "/mutate", failingBody{tt.err})
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.ContentLength = MaxBody
			w := &recorder{header: http.Header{}}
			h := NewHandler(Options{Admitter: label("x")})
			h.ServeHTTP(w, req)
			if body := w.body.String(); w.code != tt.code || !strings.Contains(body, tt.reason) || strings.Contains(body, "192.0.2.7") {
				t.Errorf("answer %d %s, want %d %q and no address", w.code, body, tt.code, tt.reason)
			}
			if held, _ := h.bodies.state(); held != 0 {
				t.Errorf("%d bytes of the body are held after the answer", held)
			}
		})
	}
}

func TestReady(t *testing.T) {
	var snapshot, reload error
	h := NewHandler(Options{Admitter: label("x"), Checks: []Check{
		{Name: "snapshot", Run: func() error { return snapshot }},
		{Name: "reload", Run: func() error { return reload }, Advisory: true},
	}})
	tests := map[string]struct {
		snapshot, reload error
		path             string
		code             int
		want             string
	}{
		"ready":          {path: "/readyz", code: 200, want: "ready\n"},
		"ready, verbose": {path: "/readyz?verbose", code: 200, want: "[+] snapshot: ok\n[+] reload: ok\nready\n"},
		"a broken edit": {reload: errors.New("policies.yaml: document 2, line 14, column 9: undeclared reference\n  object.x\n  ^\n"), path: "/readyz?verbose", code: 200,
			want: "[+] snapshot: ok\n[!] reload: policies.yaml: document 2, line 14, column 9: undeclared reference\n      object.x\n      ^\nready\n"},
		"nothing published": {snapshot: errors.New("none published"), path: "/readyz", code: 503, want: "not ready: snapshot\n"},
		"nothing published, verbose": {snapshot: errors.New("none published"), reload: errors.New("a.yaml:1: bad"), path: "/readyz?verbose=1", code: 503,
			want: "[-] snapshot: none published\n[!] reload: a.yaml:1: bad\nnot ready: snapshot\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			snapshot, reload = tt.snapshot, tt.reload
			if code, body := get(t, h, tt.path); code != tt.code || body != tt.want {
				t.Errorf("GET %s = %d %q, want %d %q", tt.path, code, body, tt.code, tt.want)
			}
		})
	}
	if code, body := get(t, h, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("GET /healthz = %d %q", code, body)
	}
}

func TestDrain(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	h := NewHandler(Options{Admitter: admitFunc(func(ctx context.Context, req *policy.Request) *engine.Decision {
		close(started)
		<-release
		if ctx.Err() != nil {
			t.Errorf("the context of a request under way ended: %v", ctx.Err())
		}
		return &engine.Decision{Object: req.Object}
	})})
	r := run(t, h, nil, nil)
	answer := make(chan string, 1)
	go func() {
		resp, err := r.client.Post(r.url+"/mutate", "application/json", strings.NewReader(reviewOf("")))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answer <- string(body)
	}()
	<-started
	r.stop()
	// Wait until nobody can connect any more; the request is still under way.
	for {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "https://"))
		if err != nil {
			break
		}
		conn.Close()
	}
	if code, body := get(t, h, "/readyz?verbose"); code != 503 || !strings.Contains(body, "[-] shutdown: the server is shutting down\n") {
		t.Errorf("GET /readyz while draining = %d %q", code, body)
	}
	select {
	case err := <-r.done:
		t.Fatalf("Run returned %v with a request under way", err)
	default:
	}
	close(release)
	if body := <-answer; !strings.Contains(body, `"uid":"u1","allowed":true`) {
		t.Errorf("the request under way was answered %s", body)
	}
	if err := <-r.done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// TestDrainLosesNothing stops a server while clients use it without a pause, those
// that offer HTTP/1.1 only, as API servers do, and those that offer HTTP/2 too: a
// request that was sent is answered, also if it was on its way when the server was
// stopped.
func TestDrainLosesNothing(t *testing.T) {
	for name, protocols := range map[string]map[string]func(string, *tls.Conn) http.RoundTripper{"HTTP/1.1": {}, "HTTP/2 offered": nil} {
		t.Run(name, func(t *testing.T) {
			r := run(t, NewHandler(Options{Admitter: label("x")}), nil, nil)
			trusted := r.client.Transport.(*http.Transport).TLSClientConfig
			var clients sync.WaitGroup
			var answered atomic.Int64
			warm := make(chan struct{}, 16)
			for range cap(warm) {
				clients.Go(func() {
					transport := &http.Transport{TLSClientConfig: trusted.Clone(), ForceAttemptHTTP2: protocols == nil, TLSNextProto: protocols}
					defer transport.CloseIdleConnections()
					client := &http.Client{Transport: transport}
					for n := 0; ; n++ {
						var sent atomic.Bool
						ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
						req, err := http.NewRequestWithContext(ctx, "POST", r.url+"/mutate", strings.NewReader(reviewOf(`"object": {}`)))
						if err != nil {
							t.Error(err)
							return
						}
						req.Header.Set("Content-Type", "application/json")
						resp, err := client.Do(req)
						if err != nil {
							if sent.Load() {
								t.Errorf("a request was lost: %v", err)
							}
							return
						}
						body, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), `"allowed":true`) {
							t.Errorf("answer %d %s, %v", resp.StatusCode, body, err)
						}
						answered.Add(1)
						if n == 10 {
							warm <- struct{}{}
						}
					}
				})
			}
			for range cap(warm) {
				<-warm
			}
			r.stop()
			clients.Wait()
			if err := <-r.done; err != nil {
				t.Errorf("Run = %v", err)
			}
			if n := answered.Load(); n < int64(10*cap(warm)) {
				t.Errorf("%d answers", n)
			}
		})
	}
}

func TestDrainIsBounded(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	h := NewHandler(Options{Admitter: admitFunc(func(ctx context.Context, _ *policy.Request) *engine.Decision {
		close(started)
		<-ctx.Done() // ends when the connection is cut
		close(ended)
		return &engine.Decision{}
	})})
	cert, _, err := servingcert.SelfSigned([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	server := &Server{Handler: h, Drain: time.Millisecond, Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }}
	go func() { done <- server.Run(ctx, l) }()
	go func() {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(cert.Leaf)}}}
		if resp, err := client.Post("https://"+l.Addr().String()+"/mutate", "application/json", strings.NewReader(reviewOf(""))); err == nil {
			resp.Body.Close()
		}
	}()
	<-started
	stop()
	err = <-done
	if want := "requests were cut off after 1ms: context deadline exceeded"; errString(err) != want {
		t.Errorf("Run = %v, want %q", err, want)
	}
	<-ended
}

func TestRunWithoutAListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	server := &Server{Handler: NewHandler(Options{Admitter: label("x")}), Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none") }}
	if err := server.Run(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run = %v, want %v", err, net.ErrClosed)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	r := run(t, NewHandler(Options{Admitter: label("x")}), nil, nil)
	dial := func(version uint16) error {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(r.url, "https://"), &tls.Config{InsecureSkipVerify: true, MaxVersion: version})
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := dial(tls.VersionTLS12); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2: %v, want it refused for its version", err)
	}
	if err := dial(tls.VersionTLS13); err != nil {
		t.Errorf("TLS 1.3: %v", err)
	}
}

func pool(cert *x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(cert)
	return p
}

func TestMetrics(t *testing.T) {
	m := NewMetrics()
	failed := func(text string, ignored bool) engine.Step {
		return engine.Step{Policy: "bad", Binding: "b", Outcome: engine.Failed, Err: errors.New(text), Ignored: ignored}
	}
	decisions := []*engine.Decision{
		label("x")(t.Context(), &policy.Request{Object: obj(t, `{}`)}),
		{Steps: []engine.Step{{Policy: "cond", Binding: "b", Mutation: -1, Outcome: engine.Skipped}}},
		{Steps: []engine.Step{failed("expression 'x' resulted in error: no", true), failed("compilation failed: ERROR", true)}},
		{Status: &metav1.Status{Code: 403}, Steps: []engine.Step{
			failed("validation failed due to running out of cost budget, no further validation rules will be run", true),
			failed("expression 'x' resulted in error: no", false),
			{Policy: "bad", Binding: "b", Round: 2, Outcome: engine.Changed},
		}},
		{Status: &metav1.Status{Code: 403}, Steps: []engine.Step{{Policy: "config", Mutation: -1, Outcome: engine.Failed, Err: errors.New("x")}}},
	}
	var next atomic.Int64
	h := NewHandler(Options{Metrics: m, Admitter: admitFunc(func(_ context.Context, req *policy.Request) *engine.Decision {
		d := *decisions[next.Add(1)-1]
		d.Object = req.Object
		return &d
	})})
	for range decisions {
		post(t, h, "/mutate", reviewOf(`"object": {}`))
	}
	post(t, h, "/mutate", "{")
	get(t, h, "/nowhere")
	_, body := get(t, h, "/metrics")
	for _, want := range []string{
		`mapd_decisions_total{binding="all",outcome="changed",policy="labels"} 1`,
		`mapd_decisions_total{binding="all",outcome="unchanged",policy="other"} 1`,
		`mapd_decisions_total{binding="b",outcome="skipped",policy="cond"} 1`,
		`mapd_decisions_total{binding="b",outcome="ignored",policy="bad"} 1`,
		`mapd_decisions_total{binding="b",outcome="denied",policy="bad"} 1`,
		`mapd_decisions_total{binding="",outcome="denied",policy="config"} 1`,
		`mapd_mutating_admission_policy_check_total{error_type="no_error",policy="labels",policy_binding="all"} 1`,
		`mapd_mutating_admission_policy_check_total{error_type="no_error",policy="bad",policy_binding="b"} 1`,
		`mapd_mutating_admission_policy_check_total{error_type="invalid_error",policy="bad",policy_binding="b"} 2`,
		`mapd_mutating_admission_policy_check_total{error_type="compile_error",policy="bad",policy_binding="b"} 1`,
		`mapd_mutating_admission_policy_check_total{error_type="out_of_budget",policy="bad",policy_binding="b"} 1`,
		`mapd_mutating_admission_policy_check_duration_seconds_sum{error_type="no_error",policy="labels",policy_binding="all"} 0.001`,
		`mapd_request_duration_seconds_count{operation="CREATE",result="mutated"} 1`,
		`mapd_request_duration_seconds_count{operation="CREATE",result="allowed"} 2`,
		`mapd_request_duration_seconds_count{operation="CREATE",result="denied"} 2`,
		`mapd_http_requests_total{code="200",path="/mutate"} 5`,
		`mapd_http_requests_total{code="400",path="/mutate"} 1`,
		`mapd_http_requests_total{code="404",path="other"} 1`,
		`mapd_requests_in_flight 0`,
		`mapd_panics_total 0`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	for _, line := range strings.Split(body, "\n") {
		if strings.HasPrefix(line, `mapd_mutating_admission_policy_check_total{`) && strings.Contains(line, `"cond"`) {
			t.Errorf("a mutation that was skipped is counted: %s", line)
		}
	}
}

func TestUnencodableDecision(t *testing.T) {
	h := NewHandler(Options{Admitter: admitFunc(func(_ context.Context, req *policy.Request) *engine.Decision {
		return &engine.Decision{Object: &unstructured.Unstructured{Object: map[string]any{"x": make(chan int)}}, Changed: true}
	})})
	code, body := h.Review(t.Context(), []byte(reviewOf(`"object": {}`)))
	if got := decodeResponse(t, body); code != 200 || got.Allowed || got.UID != "u1" || got.Result.Code != 500 {
		t.Errorf("Review = %d %s, want a denial of u1 with code 500", code, body)
	}
}

// TestHammerReview swaps what is decided while requests run; every answer must
// be right for one of the snapshots and whole.
func TestHammerReview(t *testing.T) {
	var current atomic.Pointer[admitFunc]
	var swaps atomic.Int64
	m := NewMetrics()
	swap := func() {
		n := int(swaps.Add(1))
		f := label(fmt.Sprint("team-", n))
		current.Store(&f)
	}
	swap()
	h := NewHandler(Options{Metrics: m, Admitter: admitFunc(func(ctx context.Context, req *policy.Request) *engine.Decision {
		return (*current.Load())(ctx, req)
	})})
	r := run(t, h, nil, nil)
	hammer.Run(8, 50, func(c, i int) {
		swap()
		object := fmt.Sprintf(`{"metadata": {}, "data": {"c": %d, "i": %d}}`, c, i)
		resp, body := r.do(t, "POST", "/mutate", "application/json", strings.NewReader(reviewOf(`"object": `+object)))
		if resp.StatusCode != 200 {
			t.Errorf("answer %d: %s", resp.StatusCode, body)
			return
		}
		got := decodeResponse(t, []byte(body))
		if want := `[{"op":"add","path":"/metadata/labels","value":{"team":"team-`; !strings.HasPrefix(string(got.Patch), want) {
			t.Errorf("patch %s, want it to begin with %s", got.Patch, want)
		}
		if i%10 == 0 {
			r.do(t, "GET", "/metrics", "", nil)
		}
	})
}

func get(t *testing.T, h *Handler, path string) (int, string) {
	t.Helper()
	return call(t, h, "GET", path, "")
}

func post(t *testing.T, h *Handler, path, body string) (int, string) {
	t.Helper()
	return call(t, h, "POST", path, body)
}

// call hands a request to the handler without a network.
func call(t *testing.T, h *Handler, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	w := &recorder{header: http.Header{}}
	h.ServeHTTP(w, req)
	return w.code, w.body.String()
}

// recorder is a response writer that keeps what it is given.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
}
func (r *recorder) Write(p []byte) (int, error) { r.WriteHeader(200); return r.body.Write(p) }
