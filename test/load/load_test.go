package load

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/test/bench/pods"
)

// serving starts a webhook on a loopback port and returns a client of it.
func serving(t *testing.T, h http.Handler, connections int) *Client {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	c, err := NewClient(Target{URL: s.URL, CA: ca, Connections: connections})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func podReview(t *testing.T) *Review {
	t.Helper()
	r, err := PodReview(pods.New(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func nothing() error { return nil }

// The floors answer, every request has another UID, and the protocol and the number of connections
// are the ones asked for.
func TestRun(t *testing.T) {
	for _, tt := range []struct {
		floor       string
		connections int
		protocol    string
		patch       string
	}{
		{"allow", 1, "HTTP/1.1", ""},
		{"patch", 4, "HTTP/1.1", `[{"op":"add","path":"/metadata/labels/floor","value":"v"}]`},
	} {
		t.Run(fmt.Sprintf("%s over %s", tt.floor, tt.protocol), func(t *testing.T) {
			var requests atomic.Int64
			seen := make(chan string, 1000)
			c := serving(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				seen <- r.Proto + " " + r.RemoteAddr
				Floors[tt.floor].ServeHTTP(w, r)
			}), tt.connections)
			response, err := c.Ask(t.Context(), podReview(t))
			if err != nil || !response.Allowed || string(response.Patch) != tt.patch {
				t.Fatalf("answer %+v, %v; want the patch %s", response, err, tt.patch)
			}
			before := int64(0)
			result, err := c.Run(t.Context(), podReview(t), Limits{Requests: 100, Time: time.Minute}, func() error {
				before = requests.Load()
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if result.Requests != 100 || result.Errors != 0 || result.Latency.Max < result.Latency.P50 {
				t.Errorf("result %+v, want 100 requests without errors", result)
			}
			if sent := requests.Load() - before; sent != 100 {
				t.Errorf("%d requests were sent after the first ones, want 100", sent)
			}
			close(seen)
			addresses := map[string]bool{}
			for s := range seen {
				protocol, address, _ := strings.Cut(s, " ")
				if protocol != tt.protocol {
					t.Fatalf("a request over %s, want %s", protocol, tt.protocol)
				}
				addresses[address] = true
			}
			if len(addresses) != tt.connections {
				t.Errorf("%d connections, want %d", len(addresses), tt.connections)
			}
		})
	}
}

// Whatever is wrong with an answer is an error, and many errors end a Run.
func TestRunWrong(t *testing.T) {
	good := func(uid string) string {
		return `{"response": {"uid": "` + uid + `", "allowed": true, "patch": "W10="}}`
	}
	for name, tt := range map[string]struct {
		answer func(uid string) string // from the fourth request on
		want   string                  // "" for no error
	}{
		"the same in other words": {func(uid string) string {
			return `{"response": {"allowed": true, "patch": "W10=", "uid": "` + uid + `"}}`
		}, ""},
		"another patch":      {func(uid string) string { return strings.Replace(good(uid), "W10=", "W3t9XQ==", 1) }, "another patch than before:\n[{}]\nand before\n[]"},
		"no patch":           {func(uid string) string { return strings.Replace(good(uid), "patch", "none", 1) }, "another patch than before"},
		"a refusal":          {func(uid string) string { return strings.Replace(good(uid), "true", "false", 1) }, "refused"},
		"to another request": {func(string) string { return good("x") }, `answer: it is to "x" and not to`},
		"no response":        {func(string) string { return `{}` }, "answer: it has no response"},
		"not JSON":           {func(string) string { return `x` }, "answer: invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			c := serving(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var review admissionv1.AdmissionReview
				if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
					t.Error(err)
				}
				answer := good
				if n.Add(1) > 3 {
					answer = tt.answer
				}
				_, _ = io.WriteString(w, answer(string(review.Request.UID)))
			}), 1)
			result, err := c.Run(t.Context(), podReview(t), Limits{Requests: 1000, Time: time.Minute}, nothing)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" {
				if result.Errors != 0 || result.Requests != 1000 {
					t.Errorf("result %+v, want 1000 requests without errors", result)
				}
				return
			}
			if result.Errors != maxErrors || result.Err == nil || !strings.Contains(result.Err.Error(), tt.want) {
				t.Errorf("%d errors, such as %v; want %d with %q", result.Errors, result.Err, maxErrors, tt.want)
			}
			if result.Requests != 1 {
				t.Errorf("%d good answers, want the one that was", result.Requests)
			}
		})
	}
}

// If the first answer is an error, Run fails before it measures.
func TestRunFirst(t *testing.T) {
	c := serving(t, http.NotFoundHandler(), 1)
	_, err := c.Run(t.Context(), podReview(t), Limits{Requests: 1, Time: time.Minute}, nothing)
	if want := "404 Not Found: 404 page not found\n"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	if _, err := c.Ask(t.Context(), podReview(t)); err == nil {
		t.Error("no error")
	}
}

func TestNewClientRefuses(t *testing.T) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"})
	for url, want := range map[string]string{
		"https://192.0.2.1:443/mutate":      "the host has to be a loopback address",
		"https://example.com/mutate":        "the host has to be a loopback address",
		"https://127.0.0.1.example.com/":    "the host has to be a loopback address",
		"https://0.0.0.0:443/":              "the host has to be a loopback address",
		"https://[::ffff:192.0.2.1]:443/":   "the host has to be a loopback address",
		"https:///mutate":                   "the host has to be a loopback address",
		"http://127.0.0.1:80/":              "must be https://HOST:PORT/PATH",
		"https://127.0.0.1@192.0.2.1:443/":  "must be https://HOST:PORT/PATH",
		"https://127.0.0.1:443/mutate":      "no certificate of an authority in PEM form",
		"https://[::1]:443/mutate":          "no certificate of an authority in PEM form",
		"https://[::ffff:127.0.0.1]/mutate": "no certificate of an authority in PEM form",
		"https://localhost/mutate":          "no certificate of an authority in PEM form",
	} {
		_, err := NewClient(Target{URL: url, CA: ca, Connections: 1})
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("NewClient(%s) error = %v, want %q", url, err, want)
		}
	}
	for _, n := range []int{0, -1, MaxConnections + 1} {
		if _, err := NewClient(Target{URL: "https://127.0.0.1/", CA: ca, Connections: n}); err == nil {
			t.Errorf("%d connections are not refused", n)
		}
	}
	// A name such as localhost may resolve to another address.
	if err := loopbackOnly("tcp", "192.0.2.1:443", nil); err == nil || err.Error() != "192.0.2.1:443 is not a loopback address" {
		t.Errorf("loopbackOnly: %v", err)
	}
	if err := loopbackOnly("tcp6", "[::1]:443", nil); err != nil {
		t.Errorf("loopbackOnly: %v", err)
	}
}

func TestLimits(t *testing.T) {
	for _, l := range []Limits{{}, {Requests: 1}, {Time: 1}, {MaxRequests + 1, 1}, {1, MaxTime + 1}, {-1, 1}, {1, -1}} {
		if l.check() == nil {
			t.Errorf("%+v are good", l)
		}
	}
	if err := (Limits{MaxRequests, MaxTime}).check(); err != nil {
		t.Error(err)
	}
}

func TestParseReview(t *testing.T) {
	const id = "00000000-0000-4000-8000-000000000001"
	for name, tt := range map[string]struct{ in, want, err string }{
		"as it is": {`{"request": {"uid": "abc"}}`, `{"request": {"uid": "` + id + `"}}`, ""},
		"the same characters before": {
			`{"abc": "abc", "request": {"name": "abc", "uid": "abc", "namespace": "abc"}}`,
			`{"abc": "abc", "request": {"name": "abc", "uid": "` + id + `", "namespace": "abc"}}`, "",
		},
		"escaped":    {`{"request": {"uid": "\u0061bc"}}`, "", `review: the uid "abc" is written in another way`},
		"no uid":     {`{"request": {}}`, "", "review: it has no request with a uid"},
		"no request": {`{}`, "", "review: it has no request with a uid"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := ParseReview([]byte(tt.in))
			if err != nil || tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if got, _ := r.next(nil, 1); string(got) != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestSummarize(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(200-i))
	}
	if got, want := Summarize(times), (Latency{P50: 101, P90: 181, P99: 199, Max: 200}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := Summarize(nil); got != (Latency{}) {
		t.Errorf("of nothing: %+v", got)
	}
	if got, want := Summarize([]time.Duration{7}), (Latency{7, 7, 7, 7}); got != want {
		t.Errorf("of one: %+v", got)
	}
}

func TestUsage(t *testing.T) {
	cpu, err := parseStat([]byte("7 (a) b) R 1 2 3 4 5 6 7 8 9 10 250 31 0 0 20"))
	if err != nil || cpu != 2810*time.Millisecond {
		t.Errorf("parseStat: %v, %v; want 2.81s", cpu, err)
	}
	for _, bad := range []string{"", "7 (a) R 1", "7 (a) R 1 2 3 4 5 6 7 8 9 10 x 31"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("parseStat(%q): no error", bad)
		}
	}
	rss, err := parseStatus("Name:\tx\nVmHWM:\t   900 kB\nVmRSS:\t   640 kB\n", "VmRSS")
	if err != nil || rss != 640<<10 {
		t.Errorf("parseStatus: %v, %v", rss, err)
	}
	if _, err := parseStatus("Name:\tx\n", "VmRSS"); err == nil {
		t.Error("parseStatus: no error without the field")
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		if _, err := ReadUsage(os.Getpid()); err == nil || !strings.HasPrefix(err.Error(), "not known") {
			t.Errorf("ReadUsage without a /proc: %v", err)
		}
		return
	}
	u, err := ReadUsage(os.Getpid())
	if err != nil || u.RSS == 0 || u.Peak < u.RSS {
		t.Errorf("ReadUsage: %+v, %v", u, err)
	}
}

// All policies of a Mix load and change objects, and do not change their own results again.
func TestMix(t *testing.T) {
	m := Mix{Group: api.OwnGroup, Policies: 60, Pods: 20, Tenants: 3}
	var docs []byte
	for _, o := range append(m.Context(), m.Objects()...) {
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(append(docs, "---\n"...), data...)
	}
	policies, err := mapd.Load(mapd.Options{}, mapd.File{Name: "mix.yaml", Data: docs})
	if err != nil {
		t.Fatal(err)
	}
	acting := map[string]bool{}
	for i := range m.Tenants {
		for _, kind := range []string{
			"v1 Pod", "apps/v1 Deployment", "apps/v1 ReplicaSet", "v1 ConfigMap", "batch/v1 Job", "v1 Service", "batch/v1 CronJob", "v1 ServiceAccount",
			"apps/v1 StatefulSet", "networking.k8s.io/v1 Ingress", "v1 PersistentVolumeClaim",
		} {
			version, kind, _ := strings.Cut(kind, " ")
			object := map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": "x", "namespace": Tenant(i)}}
			if kind == "Pod" {
				object["spec"] = pods.New(2, 1)["spec"]
			}
			once := evaluate(t, policies, object)
			for _, s := range once.Decision.Steps {
				acting[s.Policy] = true
			}
			if twice := evaluate(t, policies, once.Object()); twice.Changed() {
				t.Errorf("%s in %s changes twice:\n%s", kind, Tenant(i), twice.DiffText(false))
			}
		}
	}
	if len(acting) != m.Policies {
		t.Errorf("%d of %d policies act", len(acting), m.Policies)
	}
}

func evaluate(t *testing.T, policies *mapd.Policies, object map[string]any) *mapd.Result {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	for d, err := range mapd.Read("object", bytes.NewReader(data)) {
		if err != nil {
			t.Fatal(err)
		}
		result, err := policies.Eval(t.Context(), d, mapd.RequestOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if result.Denied() {
			t.Fatal(result.Summary())
		}
		return result
	}
	t.Fatal("no document")
	return nil
}
