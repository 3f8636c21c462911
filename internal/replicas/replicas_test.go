package replicas

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/mapd-project/mapd/pkg/webhook"
)

// api is an API server that knows one installation of mapd, and forwards ports of Pods.
type api struct {
	*httptest.Server
	configuration *admissionregistrationv1.ValidatingWebhookConfiguration
	slices        []discoveryv1.EndpointSlice
	pods          map[string]string // the address that each Pod listens on

	mu     sync.Mutex
	tokens int // how many were made
}

func newAPI(t *testing.T) *api {
	a := &api{pods: map[string]string{}}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/mapd.dev", func(w http.ResponseWriter, _ *http.Request) {
		if a.configuration == nil {
			w.WriteHeader(http.StatusNotFound)
			answer(w, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404})
			return
		}
		answer(w, a.configuration)
	})
	mux.HandleFunc("GET /apis/discovery.k8s.io/v1/namespaces/own/endpointslices", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, discoveryv1.EndpointSliceList{Items: a.slices})
	})
	mux.HandleFunc("POST /api/v1/namespaces/own/serviceaccounts/mapd-reader/token", func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		a.tokens++
		a.mu.Unlock()
		answer(w, authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "reader"}})
	})
	mux.HandleFunc("POST /api/v1/namespaces/own/pods/{name}/portforward", func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{portForwardProtocol}); err != nil {
			return
		}
		streams := make(chan httpstream.Stream, 2)
		connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			streams <- s
			return nil
		})
		if connection == nil {
			return
		}
		defer connection.Close()
		failures, data := <-streams, <-streams
		if data.Headers().Get(corev1.PortHeader) != "8443" {
			fmt.Fprint(failures, "another port")
			return
		}
		to, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", a.pods[r.PathValue("name")])
		if err != nil {
			fmt.Fprint(failures, "nobody listens")
			_ = failures.Close()
			<-connection.CloseChan()
			return
		}
		defer to.Close()
		go func() { _, _ = io.Copy(to, data) }()
		_, _ = io.Copy(data, to)
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// at makes API servers reach mapd at a URL, or at the Service if it is empty.
func (a *api) at(t *testing.T, url string) {
	client := admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle(t)}
	if url == "" {
		client.URL, client.Service = nil, &admissionregistrationv1.ServiceReference{Namespace: "own", Name: "mapd"}
	}
	a.configuration = &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "mapd.dev", Annotations: map[string]string{webhook.InstallationAnnotation: "own/mapd"}},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "policies.mapd.dev", ClientConfig: client}},
	}
}

// bundle trusts every server of httptest.
func bundle(t *testing.T) []byte {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// server is a replica.
func server(t *testing.T, f http.HandlerFunc) *httptest.Server {
	s := httptest.NewTLSServer(f)
	t.Cleanup(s.Close)
	return s
}

// said answers who with the token that they sent.
func said(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, `{"said": %q}`, r.URL.Path+"?"+r.URL.RawQuery+" "+r.Header.Get("Authorization"))
}

type answer struct {
	Said string `json:"said"`
}

func ask(t *testing.T, o Options) ([]Answer[answer], error) {
	t.Helper()
	s, err := Find(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return Ask[answer](t.Context(), s, "counts", map[string][]string{"a": {"b"}})
}

func TestFind(t *testing.T) {
	a := newAPI(t)
	config := &rest.Config{Host: a.URL, BearerToken: "mine"}
	fails := func(name, want string, urls ...string) {
		t.Helper()
		if _, err := Find(t.Context(), Options{Config: config, URLs: urls}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fails("not installed", "mapd is not installed in this cluster")
	a.at(t, "")
	none, err := Find(t.Context(), Options{Config: config})
	if err != nil || none.Namespace() != "own" {
		t.Fatalf("without Pods: %v", err)
	}
	if _, err := Ask[answer](t.Context(), none, "counts", nil); err == nil || err.Error() != "there is no Pod behind the Service own/mapd" {
		t.Errorf("without Pods: %v", err)
	}
	fails("a replica without TLS", "must be https://HOST", "http://localhost:1")
	fails("a replica with a query", "must be https://HOST", "https://localhost:1/?a=b")
	a.configuration.Webhooks[0].ClientConfig.CABundle = []byte("x")
	fails("a bundle without certificates", "has no certificate")
	a.configuration.Webhooks = nil
	fails("not written", "no replica of mapd has written")
}

// A user's token is used, and that of mapd-reader for users who have none, impersonate
// somebody, or are not known to the replica.
func TestTokens(t *testing.T) {
	for name, tt := range map[string]struct {
		config rest.Config
		known  string
		want   string
		tokens int
	}{
		"own token":                  {rest.Config{BearerToken: "mine"}, "mine", "mine", 0},
		"no token":                   {rest.Config{}, "reader", "reader", 1},
		"impersonating":              {rest.Config{BearerToken: "mine", Impersonate: rest.ImpersonationConfig{UserName: "eve"}}, "reader", "reader", 1},
		"a token that is not known":  {rest.Config{BearerToken: "mine"}, "reader", "reader", 1},
		"neither of them is allowed": {rest.Config{BearerToken: "mine"}, "nobody", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			s := server(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer "+tt.known {
					w.WriteHeader(http.StatusUnauthorized)
					_, _ = w.Write([]byte(`{"kind":"Status","message":"who?"}`))
					return
				}
				said(w, r)
			})
			a.at(t, "https://example.com/validate")
			config := tt.config
			config.Host = a.URL
			got, err := ask(t, Options{Config: &config, URLs: []string{s.URL, s.URL}})
			if tt.want == "" {
				if err == nil || !strings.Contains(err.Error(), "HTTP status 401: who?") {
					t.Errorf("%v", err)
				}
			} else if err != nil || got[0].Value.Said != "/records/counts?a=b Bearer "+tt.want || got[1].Value != got[0].Value {
				t.Errorf("%v %v", got, err)
			}
			if a.tokens != tt.tokens {
				t.Errorf("%d tokens were made", a.tokens)
			}
		})
	}
}

// Replicas that misbehave are named; the others are heard. No token goes elsewhere.
func TestHostileReplicas(t *testing.T) {
	a := newAPI(t)
	a.at(t, "https://example.com/validate")
	stolen := ""
	thief := server(t, func(_ http.ResponseWriter, r *http.Request) { stolen = r.Header.Get("Authorization") })
	handlers := map[string]http.HandlerFunc{
		"HTTP status 302":         func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, thief.URL, http.StatusFound) },
		"is longer than 33554432": func(w http.ResponseWriter, _ *http.Request) { flood(w) },
		"not what a replica":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"said": [}`)) },
		`HTTP status 403: \x1b[2J`: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(metav1.Status{Message: "\x1b[2J" + strings.Repeat("x", 1<<20)})
		},
		"HTTP status 500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	}
	urls, want := []string{server(t, said).URL}, []string{""}
	for text, f := range handlers {
		urls, want = append(urls, server(t, f).URL), append(want, text)
	}
	gone := server(t, said)
	gone.Close()
	urls, want = append(urls, gone.URL), append(want, "refused")
	got, err := ask(t, Options{Config: &rest.Config{Host: a.URL, BearerToken: "mine"}, URLs: urls})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range got {
		switch {
		case a.Replica != urls[i]:
			t.Errorf("answer %d is of %s", i, a.Replica)
		case want[i] == "":
			if a.Err != nil || a.Value.Said == "" {
				t.Errorf("the good one: %v", a)
			}
		case a.Err == nil || !strings.Contains(a.Err.Error(), want[i]) || len(a.Err.Error()) > 1000:
			t.Errorf("want %s: %v", want[i], a.Err)
		}
	}
	if stolen != "" {
		t.Errorf("the token went to another server")
	}
}

func flood(w io.Writer) {
	chunk := make([]byte, 1<<20)
	for i := 0; i <= maxAnswer; i += len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// Nobody but a replica with the installation's certificate is sent a token.
func TestAnotherCertificate(t *testing.T) {
	a := newAPI(t)
	a.at(t, "https://another.example.org/validate")
	heard := false
	s := server(t, func(http.ResponseWriter, *http.Request) { heard = true })
	if _, err := ask(t, Options{Config: &rest.Config{Host: a.URL, BearerToken: "mine"}, URLs: []string{s.URL}}); err == nil ||
		!strings.Contains(err.Error(), "not another.example.org") && !strings.Contains(err.Error(), "certificate") || heard {
		t.Errorf("%v, heard %v", err, heard)
	}
}

// A replica that hangs costs the user no more than a bounded time.
func TestHangingReplica(t *testing.T) {
	a := newAPI(t)
	a.at(t, "https://example.com/validate")
	s := server(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	set, err := Find(t.Context(), Options{Config: &rest.Config{Host: a.URL, BearerToken: "mine"}, URLs: []string{s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // askTimeout, in short
	defer cancel()
	if _, err := Ask[answer](ctx, set, "counts", nil); err == nil || !strings.Contains(err.Error(), "no answer within") {
		t.Errorf("%v", err)
	}
}

// Pods behind a Service are reached through the API server.
func TestPortForward(t *testing.T) {
	a := newAPI(t)
	a.at(t, "")
	a.configuration.Webhooks[0].ClientConfig.Service.Name = "example" // example.own.svc is no name of the certificate
	config := &rest.Config{Host: a.URL, BearerToken: "mine"}
	port := int32(8443)
	pod := func(name string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name}}
	}
	s := server(t, said)
	a.pods["mapd-a"], a.pods["mapd-b"] = s.Listener.Addr().String(), "127.0.0.1:1"
	a.slices = []discoveryv1.EndpointSlice{
		{Ports: []discoveryv1.EndpointPort{{Port: &port}}, Endpoints: []discoveryv1.Endpoint{pod("mapd-b"), pod("mapd-a"), {}}},
		{Ports: []discoveryv1.EndpointPort{{Port: &port}}, Endpoints: []discoveryv1.Endpoint{pod("mapd-a")}}, // of another family
		{Endpoints: []discoveryv1.Endpoint{pod("mapd-c")}},
	}
	set, err := Find(t.Context(), Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	if set.tls.ServerName != "example.own.svc" {
		t.Errorf("the name is %s", set.tls.ServerName)
	}
	set.tls.ServerName = "example.com"
	got, err := Ask[answer](t.Context(), set, "counts", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Replica != "mapd-a" || got[0].Err != nil || got[0].Value.Said != "/records/counts? Bearer mine" ||
		got[1].Replica != "mapd-b" || got[1].Err == nil || !strings.Contains(got[1].Err.Error(), "nobody listens") {
		t.Errorf("%v", got)
	}
}
