package promote

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// An address that an EndpointSlice names gets the user's credentials only if its certificate
// is verified.
func TestConnectVerifies(t *testing.T) {
	var mu sync.Mutex
	sent := ""
	thief := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent += r.Header.Get("Authorization")
		fmt.Fprint(w, `{}`)
	}))
	defer thief.Close()
	host, port, err := net.SplitHostPort(thief.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	number := int32(n)
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{{
			Ports: []discoveryv1.EndpointPort{{Port: &number}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}}},
		}}})
	}))
	defer api.Close()
	config := &rest.Config{Host: api.URL, BearerToken: "mine", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	p := &Promoter{Config: config, Kubernetes: kube, Progress: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	if err := p.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(p.servers) != 1 || !p.servers[0].all || sent != "" || !strings.Contains(said[0], "insecure-skip-tls-verify") {
		t.Errorf("%v, sent %q, said %q", p.servers, sent, said)
	}
}
