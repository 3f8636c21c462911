package webhook

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/policy"
)

type validateFunc func(ctx context.Context, req *policy.Request) (*metav1.Status, []string)

func (f validateFunc) Validate(ctx context.Context, req *policy.Request) (*metav1.Status, []string) {
	return f(ctx, req)
}

// TestServeGroups: each path has its own admitter, and there are no others.
func TestServeGroups(t *testing.T) {
	ids := []ID{{Group: Groups()[0]}, {Group: Groups()[1]}, {Groups()[0], "0123abcd"}}
	entries := map[ID]Admitter{}
	for i, id := range ids {
		entries[id] = label(fmt.Sprint("team-", i))
	}
	h := NewHandler(Options{Entries: func(id ID) Admitter { return entries[id] }})
	for i, g := range ids {
		code, body := post(t, h, g.Path(), reviewOf(`"object": {}`))
		if code != 200 {
			t.Fatalf("%s: %d %s", g.Path(), code, body)
		}
		if want := fmt.Sprintf("team-%d", i); !strings.Contains(string(decodeResponse(t, []byte(body)).Patch), want) {
			t.Errorf("%s: the patch %s lacks %s", g.Path(), decodeResponse(t, []byte(body)).Patch, want)
		}
	}
	const all = "there are /mutate/fail/ifneeded, /mutate/fail/never, /mutate/ignore/ifneeded, /mutate/ignore/never, /healthz, /readyz and /metrics"
	for _, path := range []string{"/mutate", "/mutate/", Groups()[3].Path(), "/validate", "/mutate/fail/never/", "/mutate/fail/never/0123abc", "/mutate/fail/never/0123ABCD", "/mutate/fail/never0123abcd", "/mutate/fail/never/0123abcd/"} {
		if code, body := post(t, h, path, reviewOf("")); code != 404 || !strings.Contains(body, all) {
			t.Errorf("%s: %d %s, want 404 and %s", path, code, body, all)
		}
	}
	if _, body := get(t, h, "/metrics"); !strings.Contains(body, `mapd_http_requests_total{code="200",path="/mutate/fail/never"} 2`) ||
		!strings.Contains(body, `mapd_http_requests_total{code="404",path="other"} 6`) {
		t.Error("the metrics do not tell the paths apart, or know others")
	}
}

func TestServeValidate(t *testing.T) {
	const policies = `"resource": {"group": "admissionregistration.mapd.dev", "version": "v1", "resource": "mutatingadmissionpolicies"}`
	const deployments = `"resource": {"group": "apps", "version": "v1", "resource": "deployments"}`
	refused := &metav1.Status{
		Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid, Message: "it is invalid",
		Details: &metav1.StatusDetails{Name: "x", Causes: []metav1.StatusCause{{Type: "FieldValueInvalid", Field: "spec", Message: "no"}}},
	}
	tests := map[string]struct {
		status   *metav1.Status
		warnings []string
		resource string
		counted  string
	}{
		"allowed": {nil, nil, policies, `mapd_validations_total{resource="mutatingadmissionpolicies",result="allowed"} 1`},
		"warned":  {nil, []string{"a\nb", "c"}, policies, `mapd_validations_total{resource="mutatingadmissionpolicies",result="warned"} 1`},
		"refused": {refused, nil, policies, `mapd_validations_total{resource="mutatingadmissionpolicies",result="denied"} 1`},
		"others":  {nil, nil, deployments, `mapd_validations_total{resource="other",result="allowed"} 1`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := NewHandler(Options{Validator: validateFunc(func(context.Context, *policy.Request) (*metav1.Status, []string) {
				return tt.status, tt.warnings
			})})
			code, body := post(t, h, ValidatePath, strings.Replace(reviewOf(`"object": {}`), deployments, tt.resource, 1))
			if code != 200 {
				t.Fatalf("%d %s", code, body)
			}
			got := decodeResponse(t, []byte(body))
			if got.Allowed != (tt.status == nil) || got.UID != "u1" || len(got.Patch) > 0 {
				t.Errorf("response %s", body)
			}
			if tt.status != nil && (got.Result.Code != 422 || got.Result.Reason != "Invalid" || got.Result.Details.Causes[0] != tt.status.Details.Causes[0]) {
				t.Errorf("result %+v, want %+v", got.Result, tt.status)
			}
			if tt.warnings != nil && !slices.Equal(got.Warnings, []string{"a\uFFFDb", "c"}) {
				t.Errorf("warnings %q", got.Warnings)
			}
			if _, metrics := get(t, h, "/metrics"); !strings.Contains(metrics, tt.counted+"\n") {
				t.Errorf("the metrics lack %s", tt.counted)
			}
		})
	}
	panicking := NewHandler(Options{Validator: validateFunc(func(context.Context, *policy.Request) (*metav1.Status, []string) { panic("x") })})
	if code, body := post(t, panicking, ValidatePath, reviewOf("")); code != 500 {
		t.Errorf("a panic: %d %s", code, body)
	}
	// The clock of synctest goes on when all wait: in the validation and not before it.
	synctest.Test(t, func(t *testing.T) {
		late := NewHandler(Options{Validator: validateFunc(func(ctx context.Context, _ *policy.Request) (*metav1.Status, []string) {
			<-ctx.Done()
			return refused, nil
		})})
		if code, body := post(t, late, ValidatePath+"?timeout=10ms", reviewOf("")); code != 504 || !strings.Contains(body, "mapd: validation stopped: context deadline exceeded") {
			t.Errorf("what comes too late: %d %s, want 504", code, body)
		}
	})
}

func TestWarnOnMutation(t *testing.T) {
	admitter := label("blue")
	for warn, want := range map[bool][]string{
		false: nil,
		true:  {`mapd: policy "labels" with binding "all" changed metadata`},
	} {
		h := NewHandler(Options{Admitter: admitter, WarnOnMutation: warn})
		_, body := post(t, h, "/mutate", reviewOf(`"object": {"kind": "ConfigMap", "data": {"secret": "value"}}`))
		got := decodeResponse(t, []byte(body))
		if !slices.Equal(got.Warnings, want) || got.AuditAnnotations["mutated-by"] != "labels/all: /metadata" {
			t.Errorf("WarnOnMutation %t: warnings %q, want %q; annotations %q", warn, got.Warnings, want, got.AuditAnnotations)
		}
	}
	denied := NewHandler(Options{WarnOnMutation: true, Admitter: admitFunc(func(ctx context.Context, req *policy.Request) *engine.Decision {
		d := admitter(ctx, req)
		d.Object, d.Changed, d.Status = req.Object, false, &metav1.Status{Code: 403}
		return d
	})})
	_, body := post(t, denied, "/mutate", reviewOf(`"object": {}`))
	if got := decodeResponse(t, []byte(body)); len(got.Warnings) > 0 {
		t.Errorf("what is not stored is warned of: %q", got.Warnings)
	}
}

// TestWarningsAreBounded: whatever changed, a server passes the warnings on as
// they are.
func TestWarningsAreBounded(t *testing.T) {
	before := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{}}}
	data := map[string]any{strings.Repeat("é", 1000): "v", "a\r\nb\"\\": "v"}
	for i := range 300 {
		data[fmt.Sprintf("key-%04d", i)] = "v"
	}
	after := &unstructured.Unstructured{Object: map[string]any{"data": data}}
	d := &engine.Decision{Object: after, Changed: true, Warnings: []string{strings.Repeat("ü", 3000), "\xff"}}
	for i := range 100 {
		d.Steps = append(d.Steps, engine.Step{Policy: fmt.Sprintf("%03d-%s", i, strings.Repeat("p", i*3)), Binding: strings.Repeat("b", i+1), Outcome: engine.Changed, Before: before, After: after})
	}
	policies := engine.Policies(nil)
	d = staged(*d, engine.Record{Stage: &policies, Object: after, Changed: true, Steps: d.Steps})
	body, err := encodeResponse(&policy.Request{UID: "u", Object: before}, d, true)
	if err != nil {
		t.Fatal(err)
	}
	got := decodeResponse(t, body).Warnings
	sum := 0
	for _, w := range got {
		if _, err := utilnet.NewWarningHeader(299, "", w); err != nil || len(w) > maxWarning || !utf8.ValidString(w) {
			t.Errorf("%d bytes, %v: %q", len(w), err, w)
		}
		sum += len(w)
	}
	if sum > maxWarnings || len(got) < maxWarnings/maxWarning {
		t.Errorf("%d warnings of %d bytes", len(got), sum)
	}
	if last, want := got[len(got)-1], fmt.Sprintf("mapd: and %d more warnings", 102-(len(got)-1)); last != want {
		t.Errorf("the last is %q, want %q", last, want)
	}
	if w := got[2]; !strings.HasPrefix(w, `mapd: policy "000-" with binding "b" changed "data[a\r\nb\"\\]", data.key-0000, `) || !strings.Contains(w, " more") {
		t.Errorf("the first of ours is %q", w)
	}
	if fits := boundWarnings([]string{strings.Repeat("a", 10), "b"}); len(fits) != 2 {
		t.Errorf("two short ones became %q", fits)
	}
	exact := slices.Repeat([]string{strings.Repeat("a", maxWarning)}, maxWarnings/maxWarning)
	if got := boundWarnings(exact); !slices.Equal(got, exact) {
		t.Errorf("what just fits became %d warnings, the last %q", len(got), got[len(got)-1])
	}
}

// authority makes client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) pool() *x509.CertPool { return pool(a.cert) }

func (a *authority) issue(t *testing.T, usage x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestClientCertificates(t *testing.T) {
	known, strange := newAuthority(t), newAuthority(t)
	var trusted atomic.Pointer[x509.CertPool]
	trusted.Store(known.pool())
	h := NewHandler(Options{
		Admitter:  label("blue"),
		Entries:   func(ID) Admitter { return label("red") },
		Validator: validateFunc(func(context.Context, *policy.Request) (*metav1.Status, []string) { return nil, nil }),
		ClientCAs: trusted.Load,
	})
	r := run(t, h, nil, nil)
	transport := r.client.Transport.(*http.Transport)
	// try makes a new connection with a certificate and sends a request.
	try := func(cert *tls.Certificate, method, path string) (int, string, error) {
		own := transport.Clone()
		defer own.CloseIdleConnections()
		if cert != nil {
			// Sent whatever the server says it would trust.
			own.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
		}
		req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(reviewOf(`"object": {}`)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := (&http.Client{Transport: own}).Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		if resp.ProtoMajor != 1 {
			t.Errorf("%s came over %s", path, resp.Proto)
		}
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}
	good, bad, server := known.issue(t, x509.ExtKeyUsageClientAuth), strange.issue(t, x509.ExtKeyUsageClientAuth), known.issue(t, x509.ExtKeyUsageServerAuth)
	reviews := []string{"/mutate", Groups()[0].Path(), ValidatePath}
	for _, path := range reviews {
		if code, body, err := try(&good, "POST", path); err != nil || code != 200 {
			t.Errorf("%s with a certificate: %d %s %v", path, code, body, err)
		}
		if code, body, err := try(nil, "POST", path); err != nil || code != 403 || !strings.Contains(body, `"message":"a client certificate is required","reason":"Forbidden"`) {
			t.Errorf("%s without a certificate: %d %s %v, want 403", path, code, body, err)
		}
		for name, cert := range map[string]*tls.Certificate{"a stranger's": &bad, "a server's": &server} {
			if code, body, err := try(cert, "POST", path); err == nil {
				t.Errorf("%s with %s certificate: %d %s, want no connection", path, name, code, body)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if code, body, err := try(nil, "GET", path); err != nil || code != 200 {
			t.Errorf("%s without a certificate: %d %s %v", path, code, body, err)
		}
	}
	trusted.Store(strange.pool())
	if code, _, err := try(&bad, "POST", "/mutate"); err != nil || code != 200 {
		t.Errorf("after the authority was replaced: %d %v", code, err)
	}
	if code, _, err := try(&good, "POST", "/mutate"); err == nil {
		t.Errorf("the old authority is trusted still: %d", code)
	}
	trusted.Store(nil)
	if code, _, err := try(&bad, "POST", "/mutate"); err == nil {
		t.Errorf("without any authority: %d", code)
	}
	if code, body := post(t, h, "/mutate", reviewOf("")); code != 403 {
		t.Errorf("without TLS: %d %s", code, body)
	}
}

// TestTooMuchAtOnce: a review that does not fit beside another one is sent away for
// a while, and one that never fits is refused.
func TestTooMuchAtOnce(t *testing.T) {
	const room = 8 << 20 // of which a large review may have seven eighths
	large := `"object": {"a": "` + strings.Repeat("x", 4<<20) + `"}`
	entered, leave := make(chan bool), make(chan bool)
	h := NewHandler(Options{Memory: memory.New(room), Admitter: admitFunc(func(_ context.Context, req *policy.Request) *engine.Decision {
		if req.Name == "slow" {
			entered <- true
			<-leave
		}
		return &engine.Decision{Object: req.Object}
	})})
	done := make(chan int)
	go func() {
		code, _ := post(t, h, "/mutate", strings.Replace(reviewOf(large), `"uid"`, `"name": "slow", "uid"`, 1))
		done <- code
	}()
	<-entered
	req, err := http.NewRequestWithContext(t.Context(), "POST", "/mutate", strings.NewReader(reviewOf(large)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	w := &recorder{header: http.Header{}}
	h.ServeHTTP(w, req)
	if w.code != 429 || w.header.Get("Retry-After") != "1" || !strings.Contains(w.body.String(), `"message":"memory: other requests hold what requests may have together; try again","reason":"TooManyRequests"`) {
		t.Errorf("a second large review: %d, Retry-After %q, %s", w.code, w.header.Get("Retry-After"), w.body.String())
	}
	if code, body := post(t, h, "/mutate", reviewOf(`"object": {}`)); code != 200 {
		t.Errorf("a usual review beside the large one: %d %s", code, body)
	}
	leave <- true
	if code := <-done; code != 200 {
		t.Errorf("the first review: %d", code)
	}
	many := `"object": {"a": [` + strings.Repeat(`{"a":1},`, 1<<17) + `{}]}`
	if code, body := post(t, h, "/mutate", reviewOf(many)); code != 413 || !strings.Contains(body, `"reason":"RequestEntityTooLarge"`) {
		t.Errorf("a review of many nodes: %d %s", code, body)
	}
	for h.memory.Used() != 0 {
		if t.Context().Err() != nil {
			t.Fatalf("%d bytes are in use after all is done", h.memory.Used())
		}
		runtime.GC()
	}
}

func TestPrune(t *testing.T) {
	m := NewMetrics()
	h := NewHandler(Options{Metrics: m, Admitter: label("x")})
	post(t, h, "/mutate", reviewOf(`"object": {}`))
	m.Prune(func(policy, binding string) bool { return policy == "other" && binding == "all" })
	_, body := get(t, h, "/metrics")
	if strings.Contains(body, `policy="labels"`) {
		t.Error("a policy that is gone is counted still")
	}
	for _, want := range []string{
		`mapd_decisions_total{binding="all",outcome="unchanged",policy="other"} 1`,
		`mapd_mutating_admission_policy_check_duration_seconds_count{error_type="no_error",policy="other",policy_binding="all"} 1`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	post(t, h, "/mutate", reviewOf(`"object": {}`))
	if _, body := get(t, h, "/metrics"); !strings.Contains(body, `mapd_decisions_total{binding="all",outcome="changed",policy="labels"} 1`) {
		t.Error("a policy that came back is not counted from the start")
	}
}
