package replicas

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
)

// api is an API server that knows one installation of mapd, and forwards ports of Pods.
type api struct {
	*httptest.Server
	configuration *admissionregistrationv1.ValidatingWebhookConfiguration
	slices        []discoveryv1.EndpointSlice
	pods          map[string]string // the address that each Pod listens on

	mu        sync.Mutex
	tokens    int            // how many were made
	claims    string         // of tokens, if they are not those that were asked for
	status    *metav1.Status // the answer instead of a token
	ways      []string       // how ports were forwarded
	websocket bool
}

func tokenOf(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// reader is the token that users get.
var reader = tokenOf(`{"aud":["records.mapd.dev"],"exp":4102444800}`)

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
	mux.HandleFunc("GET /apis/discovery.k8s.io/v1/namespaces/own/endpointslices", func(w http.ResponseWriter, r *http.Request) {
		// One on each page.
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		list := discoveryv1.EndpointSliceList{Items: a.slices[min(from, len(a.slices)):min(from+1, len(a.slices))]}
		if from+1 < len(a.slices) {
			list.Continue = strconv.Itoa(from + 1)
		}
		answer(w, list)
	})
	mux.HandleFunc("POST /api/v1/namespaces/own/serviceaccounts/mapd-reader/token", func(w http.ResponseWriter, r *http.Request) {
		var asked authenticationv1.TokenRequest
		body, _ := io.ReadAll(r.Body)
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &asked); err != nil || asked.Spec.ExpirationSeconds == nil || *asked.Spec.ExpirationSeconds > 600 {
			t.Errorf("a request for a token: %v %+v", err, asked.Spec)
		}
		a.mu.Lock()
		a.tokens++
		a.mu.Unlock()
		if a.status != nil {
			w.WriteHeader(int(a.status.Code))
			answer(w, a.status)
			return
		}
		claims := a.claims
		if claims == "" {
			audiences, _ := json.Marshal(asked.Spec.Audiences)
			claims = fmt.Sprintf(`{"aud":%s,"exp":4102444800}`, audiences)
		}
		answer(w, authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: tokenOf(claims)}})
	})
	mux.HandleFunc("POST /api/v1/namespaces/own/pods/{name}/portforward", func(w http.ResponseWriter, r *http.Request) {
		a.forwards("SPDY")
		if _, err := httpstream.Handshake(r, w, []string{portForwardProtocol}); err != nil {
			return
		}
		streams := make(chan httpstream.Stream, 2)
		connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			streams <- s
			return nil
		})
		if connection != nil {
			a.forward(r, connection, streams)
		}
	})
	mux.HandleFunc("GET /api/v1/namespaces/own/pods/{name}/portforward", func(w http.ResponseWriter, r *http.Request) {
		a.forwards("WebSocket")
		if !a.websocket {
			w.WriteHeader(http.StatusForbidden) // as a proxy may say
			return
		}
		upgrader := websocket.Upgrader{Subprotocols: []string{"SPDY/3.1+" + portForwardProtocol}}
		tunnel, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		streams := make(chan httpstream.Stream, 2)
		connection, err := spdy.NewServerConnection(portforward.NewTunnelingConnection("server", tunnel), func(s httpstream.Stream, _ <-chan struct{}) error {
			streams <- s
			return nil
		})
		if err != nil {
			t.Error(err)
			return
		}
		a.forward(r, connection, streams)
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// forward is what a kubelet does.
func (a *api) forward(r *http.Request, connection httpstream.Connection, streams chan httpstream.Stream) {
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
}

// forwards notes how a port is forwarded.
func (a *api) forwards(way string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ways = append(a.ways, way)
}

// at makes API servers reach mapd at a URL, or at the Service if it is empty.
func (a *api) at(t *testing.T, url string) {
	client := admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle(t)}
	if url == "" {
		client.URL, client.Service = nil, &admissionregistrationv1.ServiceReference{Namespace: "own", Name: "mapd"}
	}
	a.configuration = &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "mapd.dev", Annotations: map[string]string{webhookconfig.InstallationAnnotation: "own/mapd"}},
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

func ask(t *testing.T, o *Finder) ([]Answer[answer], error) {
	t.Helper()
	s, err := o.Find(t.Context())
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
		if _, err := (&Finder{Config: config, URLs: urls}).Find(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fails("not installed", "mapd is not installed in this cluster")
	a.at(t, "")
	none, err := (&Finder{Config: config}).Find(t.Context())
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
	fails("not written", "mapd has not started in this cluster: no replica has written")
}

// The user's own credentials of any kind are not sent to replicas: only a token that nobody else
// accepts, which is requested once.
func TestTokens(t *testing.T) {
	forbidden := &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: `user "eve" cannot create resource "serviceaccounts/token"`}
	none := &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404, Message: "not found"}
	own := rest.Config{BearerToken: "mine"}
	for name, tt := range map[string]struct {
		config rest.Config
		claims string
		status *metav1.Status
		want   string // of the error
	}{
		"with a token":             {config: own},
		"with a password":          {config: rest.Config{Username: "me", Password: "mine"}},
		"without":                  {},
		"impersonating":            {config: rest.Config{BearerToken: "mine", Impersonate: rest.ImpersonationConfig{UserName: "eve"}}},
		"without the right":        {config: own, status: forbidden, want: "the Role mapd-records gives the right (create serviceaccounts/token, resourceName mapd-reader)"},
		"without the account":      {config: own, status: none, want: "ServiceAccount own/mapd-reader, which does not exist"},
		"audiences are ignored":    {config: own, claims: `{"aud":["https://kubernetes.default.svc"],"exp":4102444800}`, want: "so it is not sent"},
		"an audience is added":     {config: own, claims: `{"aud":["records.mapd.dev","https://kubernetes.default.svc"],"exp":4102444800}`, want: "so it is not sent"},
		"for nobody in particular": {config: own, claims: `{"exp":4102444800}`, want: "so it is not sent"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.claims, a.status = tt.claims, tt.status
			var mu sync.Mutex
			sent := map[string]bool{}
			s := server(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				for k, all := range r.Header {
					for _, v := range all {
						sent[k+" "+v] = true
						if strings.Contains(v, "mine") {
							t.Errorf("sent %s: %s", k, v)
						}
					}
				}
				said(w, r)
			})
			// The address is what somebody else has written into the configuration.
			a.at(t, s.URL+"/validate")
			a.configuration.Webhooks[0].ClientConfig.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
			config := tt.config
			config.Host = a.URL
			f := &Finder{Config: &config}
			for range 2 {
				set, err := f.Find(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if want := []string{s.Listener.Addr().String()}; !slices.Equal(set.Outside(), want) {
					t.Errorf("outside of the Service are %v instead of %v", set.Outside(), want)
				}
				got, err := Ask[answer](t.Context(), set, "counts", nil)
				switch {
				case tt.want != "":
					if err == nil || !strings.Contains(err.Error(), tt.want) || len(sent) > 0 {
						t.Errorf("%v, and sent %v", err, sent)
					}
				case err != nil || got[0].Value.Said != "/records/counts? Bearer "+reader:
					t.Errorf("%v %v", got, err)
				}
				if Read(t.Context(), set, "/metrics", func(string) bool { return true })[0].Err != nil {
					t.Error("a page without rights is not read")
				}
				clear(sent)
			}
			if tt.want == "" && a.tokens != 1 {
				t.Errorf("%d tokens were made", a.tokens)
			}
		})
	}
}

// Replicas that misbehave get an error with their name, the answers of the others are returned, and
// no token is sent to another host.
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
	got, err := ask(t, &Finder{Config: &rest.Config{Host: a.URL, BearerToken: "mine"}, URLs: urls})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(urls) {
		t.Fatalf("%d answers of %d replicas", len(got), len(urls))
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

// A token is sent only to a replica with the installation's certificate.
func TestAnotherCertificate(t *testing.T) {
	a := newAPI(t)
	a.at(t, "https://another.example.org/validate")
	heard := false
	s := server(t, func(http.ResponseWriter, *http.Request) { heard = true })
	if _, err := ask(t, &Finder{Config: &rest.Config{Host: a.URL, BearerToken: "mine"}, URLs: []string{s.URL}}); err == nil ||
		!strings.Contains(err.Error(), "not another.example.org") && !strings.Contains(err.Error(), "certificate") || heard {
		t.Errorf("%v, heard %v", err, heard)
	}
}

// The wait for a replica that hangs is bounded, and the error says whether the time of the replica
// or that of the command was over.
func TestHangingReplica(t *testing.T) {
	a := newAPI(t)
	a.at(t, "https://example.com/validate")
	over := make(chan func(), 1) // is called once a replica is asked
	s := server(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case end := <-over:
			end()
		default:
		}
		<-r.Context().Done()
	})
	f := &Finder{Config: &rest.Config{Host: a.URL}, URLs: []string{s.URL}}
	set, err := f.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fails := func(ctx context.Context, want string) {
		t.Helper()
		if _, err := Ask[answer](ctx, set, "counts", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v instead of %s", err, want)
		}
	}
	set.patience = 10 * time.Millisecond
	fails(t.Context(), "no answer within 10ms")
	set.patience = time.Hour
	ctx := timed{t.Context(), make(chan struct{})}
	over <- func() { close(ctx.over) }
	fails(ctx, "no answer before the time for the command was over")
	fails(ctx, "not asked: the time for the command was over before")
}

// timed is a context whose deadline is exceeded when over is closed.
type timed struct {
	context.Context
	over chan struct{}
}

func (c timed) Done() <-chan struct{} { return c.over }

func (c timed) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Replicas are asked at once, however few cores there are.
func TestAskedAtOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	a := newAPI(t)
	a.at(t, "https://example.com/validate")
	var here atomic.Int32
	all := make(chan struct{})
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if here.Add(1) == atOnce {
			close(all)
		}
		select {
		case <-all:
			said(w, r)
		case <-r.Context().Done():
		}
	})
	got, err := ask(t, &Finder{Config: &rest.Config{Host: a.URL}, URLs: slices.Repeat([]string{s.URL}, atOnce)})
	if err != nil || len(got) != atOnce {
		t.Fatal(len(got), err)
	}
	for _, a := range got {
		if a.Err != nil {
			t.Error(a.Err)
		}
	}
}

// Pods behind a Service are reached through the API server, at mapd's port. Those that cannot
// be asked are named.
func TestPortForward(t *testing.T) {
	for name, tt := range map[string]struct {
		websocket bool
		ways      []string // for each of two Pods
	}{
		"SPDY alone": {false, []string{"SPDY", "SPDY", "WebSocket", "WebSocket"}},
		"WebSocket":  {true, []string{"WebSocket", "WebSocket"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.websocket = tt.websocket
			a.at(t, "")
			a.configuration.Webhooks[0].ClientConfig.Service.Name = "example" // example.own.svc is no name of the certificate
			ports := func(all ...any) (out []discoveryv1.EndpointPort) {
				for i := 0; i < len(all); i += 2 {
					name, port := all[i].(string), int32(all[i+1].(int))
					out = append(out, discoveryv1.EndpointPort{Name: &name, Port: &port})
				}
				return out
			}
			pod := func(name string) discoveryv1.Endpoint {
				return discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name}}
			}
			s := server(t, said)
			a.pods["mapd-a"], a.pods["mapd-b"] = s.Listener.Addr().String(), "127.0.0.1:1"
			a.slices = []discoveryv1.EndpointSlice{
				{Endpoints: []discoveryv1.Endpoint{pod("mapd-a")}}, // without ports
				{Ports: ports("metrics", 9090, "https", 8443), Endpoints: []discoveryv1.Endpoint{pod("mapd-b"), pod("mapd-a"), {}}},
				{Ports: ports("", 8443), Endpoints: []discoveryv1.Endpoint{pod("mapd-a")}}, // of another family
				{Endpoints: []discoveryv1.Endpoint{pod("mapd-c")}},
				{Ports: ports("metrics", 9090, "web", 8443), Endpoints: []discoveryv1.Endpoint{pod("mapd-d")}},
				{Ports: ports("https", 8443), Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.7"}}}},
			}
			set, err := (&Finder{Config: &rest.Config{Host: a.URL}}).Find(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if set.tls.ServerName != "example.own.svc" || len(set.Outside()) > 0 {
				t.Errorf("the name is %s, outside are %v", set.tls.ServerName, set.Outside())
			}
			set.tls.ServerName = "example.com"
			got, err := Ask[answer](t.Context(), set, "counts", nil)
			if err != nil {
				t.Fatal(err)
			}
			want := []struct{ name, err string }{
				{"192.0.2.7", "not asked: it is no Pod"}, {"mapd-a", ""}, {"mapd-b", "nobody listens"}, {"mapd-c", "names no port"},
				{"mapd-d", `none of the ports ["metrics" "web"] of the Service is called https`},
			}
			for i, w := range want {
				if len(got) != len(want) || got[i].Replica != w.name || (got[i].Err != nil) != (w.err != "") || w.err != "" && !strings.Contains(got[i].Err.Error(), w.err) {
					t.Fatalf("%d: %+v", i, got)
				}
			}
			if got[1].Value.Said != "/records/counts? Bearer "+reader {
				t.Error(got[1].Value.Said)
			}
			slices.Sort(a.ways)
			if !slices.Equal(a.ways, tt.ways) {
				t.Errorf("ports were forwarded by %v", a.ways)
			}
		})
	}
}

// More replicas than are asked are named.
func TestTooManyReplicas(t *testing.T) {
	a := newAPI(t)
	a.at(t, "")
	port := int32(8443)
	for i := range maxReplicas + 2 {
		a.slices = append(a.slices, discoveryv1.EndpointSlice{
			Ports:     []discoveryv1.EndpointPort{{Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("mapd-%03d", i)}}},
		})
	}
	set, err := (&Finder{Config: &rest.Config{Host: a.URL, QPS: -1}}).Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range set.all[:maxReplicas] {
		set.all[i].dial = func(context.Context) (net.Conn, error) { return nil, errors.New("asked") }
	}
	_, err = Ask[answer](t.Context(), set, "counts", nil)
	if err == nil || strings.Count(err.Error(), ": asked") != maxReplicas ||
		!strings.Contains(err.Error(), "replica mapd-501: not asked: there are 502 replicas, and at most 500 are asked") {
		t.Errorf("%.2000v", err)
	}
}
