// Package endpoints measures how an API server's webhook client divides reviews among
// replicas. The client and its resolvers are those of k8s.io/apiserver, with a Service and an
// EndpointSlice as a cluster has them; the replicas are mapd's server on addresses of this
// machine. docs/operate/scale.md has the figures. It is in this module because the resolvers
// import what mapd does not depend on.
package endpoints

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/proxy"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

const review = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
  "uid": "u1", "operation": "CREATE", "name": "web", "namespace": "shop",
  "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
  "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}}}}`

// replica is mapd's server with an engine without policies.
type replica struct {
	address  string
	reviews  atomic.Int64
	accepted atomic.Int64
	open     atomic.Int64
	hangs    atomic.Bool
	listener net.Listener
	mu       sync.Mutex
	conns    map[net.Conn]bool
	next     webhook.Admitter
}

func (r *replica) Admit(ctx context.Context, req *policy.Request) *engine.Decision {
	r.reviews.Add(1)
	if r.hangs.Load() {
		<-ctx.Done()
	}
	return r.next.Admit(ctx, req)
}

// Accept, Close and Addr are net.Listener.
func (r *replica) Accept() (net.Conn, error) {
	c, err := r.listener.Accept()
	if err != nil {
		return nil, err
	}
	r.accepted.Add(1)
	r.open.Add(1)
	counted := &counted{Conn: c, r: r}
	r.mu.Lock()
	r.conns[counted] = true
	r.mu.Unlock()
	return counted, nil
}
func (r *replica) Close() error   { return r.listener.Close() }
func (r *replica) Addr() net.Addr { return r.listener.Addr() }

// die closes what a killed process has open.
func (r *replica) die() {
	r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		go c.Close()
	}
}

type counted struct {
	net.Conn
	r    *replica
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() {
		c.r.open.Add(-1)
		c.r.mu.Lock()
		delete(c.r.conns, c)
		c.r.mu.Unlock()
	})
	return c.Conn.Close()
}

// service is a Service of three replicas, as an API server sees it.
type service struct {
	replicas []*replica
	services cache.Indexer
	mu       sync.Mutex
	ready    []bool
	port     int32
}

// GetEndpointSlices implements proxy.EndpointSliceGetter.
func (s *service) GetEndpointSlices(string, string) ([]*discoveryv1.EndpointSlice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, protocol := "https", corev1.ProtocolTCP
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &s.port, Protocol: &protocol}}}
	for i, r := range s.replicas {
		ready := s.ready[i]
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{r.address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	return []*discoveryv1.EndpointSlice{slice}, nil
}

func (s *service) unready(i int) {
	s.mu.Lock()
	s.ready[i] = false
	s.mu.Unlock()
}

// endpoints is the resolver with --enable-aggregator-routing.
type endpoints struct{ *service }

func (e endpoints) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return proxy.ResolveEndpoint(corelisters.NewServiceLister(e.services), e.service, namespace, name, port)
}

// clusterIP is the resolver without it.
type clusterIP struct{ *service }

func (c clusterIP) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return proxy.ResolveCluster(corelisters.NewServiceLister(c.services), namespace, name, port)
}

// kubeProxy sends each new connection to a ready replica by chance, as the rules of kube-proxy
// for a cluster IP do.
func (s *service) kubeProxy(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			s.mu.Lock()
			var ready []string
			for i, r := range s.replicas {
				if s.ready[i] {
					ready = append(ready, r.address)
				}
			}
			s.mu.Unlock()
			to, err := net.Dial("tcp", net.JoinHostPort(ready[rand.IntN(len(ready))], strconv.Itoa(int(s.port))))
			if err != nil {
				return
			}
			defer to.Close()
			go func() { io.Copy(to, c); to.Close() }()
			io.Copy(c, to)
		}()
	}
}

const clusterAddress = "127.0.1.1"

func newService(t *testing.T) (*service, []byte) {
	t.Helper()
	// A certificate for this test: that of httptest is for example.com and 127.0.0.1.
	h := httptest.NewTLSServer(nil)
	t.Cleanup(h.Close)
	certificate := h.TLS.Certificates[0]
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})

	s := &service{services: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
	front, err := net.Listen("tcp", clusterAddress+":0")
	if err != nil {
		t.Skipf("no second loopback address: %v", err)
	}
	t.Cleanup(func() { front.Close() })
	s.port = int32(front.Addr().(*net.TCPAddr).Port)
	for i := range 3 {
		r := &replica{address: fmt.Sprintf("127.0.1.%d", i+2), conns: map[net.Conn]bool{}, next: engine.New(engine.Options{})}
		if r.listener, err = net.Listen("tcp", net.JoinHostPort(r.address, strconv.Itoa(int(s.port)))); err != nil {
			t.Fatal(err)
		}
		server := &webhook.Server{
			Handler:     webhook.NewHandler(webhook.Options{Admitter: r}),
			Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil },
			Drain:       time.Millisecond,
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Run(ctx, r) }()
		t.Cleanup(func() { stop(); r.die(); <-done })
		s.replicas, s.ready = append(s.replicas, r), append(s.ready, true)
	}
	go s.kubeProxy(front)
	if err := s.services.Add(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "mapd", Namespace: "mapd-system"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: clusterAddress, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "https", Port: s.port}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	return s, ca
}

// client is an API server's client of the webhook.
func (s *service) client(t *testing.T, ca []byte, resolver webhookutil.ServiceResolver) *rest.RESTClient {
	t.Helper()
	m, err := webhookutil.NewClientManager(nil)
	if err != nil {
		t.Fatal(err)
	}
	m.SetServiceResolver(resolver)
	m.SetAuthenticationInfoResolver(&webhookutil.AuthenticationInfoResolverDelegator{
		ClientConfigForServiceFunc: func(string, string, int) (*rest.Config, error) {
			return &rest.Config{TLSClientConfig: rest.TLSClientConfig{ServerName: "example.com"}}, nil
		},
	})
	c, err := m.HookClient(webhookutil.ClientConfig{
		Name: t.Name(), CABundle: ca,
		Service: &webhookutil.ClientConfigService{Name: "mapd", Namespace: "mapd-system", Path: "/mutate", Port: s.port},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends reviews, so many at once, and returns how many were not answered.
func ask(t *testing.T, c *rest.RESTClient, n, at int, timeout time.Duration) (failed int64) {
	t.Helper()
	var left, bad atomic.Int64
	left.Store(int64(n))
	var workers sync.WaitGroup
	for range at {
		workers.Go(func() {
			for left.Add(-1) >= 0 {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				_, err := c.Post().SetHeader("Content-Type", "application/json").Body([]byte(review)).Do(ctx).Raw()
				cancel()
				if err != nil {
					bad.Add(1)
				}
			}
		})
	}
	workers.Wait()
	return bad.Load()
}

// A review that meets a hanging replica takes short; long is more than any other needs.
const short, long = time.Second, time.Minute

// The client of 1.37 finds an endpoint anew for each review. With --enable-aggregator-routing
// that is a replica by chance; without it, as by default, it is the cluster IP, so kept
// connections stay where kube-proxy sent them, as in every minor before.
func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		name           string
		each, endpoint bool
	}{
		{"1.37 with --enable-aggregator-routing", true, true},
		{"1.37", true, false},
		{"1.36 with --enable-aggregator-routing", false, true},
		{"1.36", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			gate := func(on bool) {
				if err := utilfeature.DefaultMutableFeatureGate.Set(fmt.Sprintf("%s=%t", features.WebhookRoundTripLoadBalancing, on)); err != nil {
					t.Fatal(err)
				}
			}
			gate(tt.each)
			t.Cleanup(func() { gate(true) })
			s, ca := newService(t)
			var resolver webhookutil.ServiceResolver = clusterIP{s}
			if tt.endpoint {
				resolver = endpoints{s}
			}
			c := s.client(t, ca, resolver)
			counts := func() (text string, reviews [3]int64) {
				for i, r := range s.replicas {
					reviews[i] = r.reviews.Swap(0)
					text += fmt.Sprintf(" %d reviews, %d connections, %d of them open;", reviews[i], r.accepted.Load(), r.open.Load())
				}
				return text, reviews
			}

			const n = 600
			if failed := ask(t, c, n, 1, long); failed > 0 {
				t.Fatalf("%d of %d reviews failed", failed, n)
			}
			text, reviews := counts()
			t.Logf("one after the other:%s", text)
			// By chance a replica has 200 of 600 with a standard deviation of 12.
			if spread := tt.each && tt.endpoint; spread && min(reviews[0], reviews[1], reviews[2]) < 100 {
				t.Errorf("reviews are not spread: %v", reviews)
			} else if !spread && max(reviews[0], reviews[1], reviews[2]) < 500 {
				t.Errorf("reviews do not stay on a kept connection: %v", reviews)
			}

			if failed := ask(t, c, n, 20, long); failed > 0 {
				t.Fatalf("%d of %d reviews failed", failed, n)
			}
			text, reviews = counts()
			t.Logf("20 at once:%s", text)
			for i, r := range s.replicas {
				if open := r.open.Load(); open > 750 {
					t.Errorf("replica %d: %d connections from one address", i, open)
				}
			}

			// A replica hangs. Each review that reaches it takes its whole time.
			s.replicas[1].hangs.Store(true)
			t.Logf("one hangs: %d of 120 reviews, 20 at once, had no answer in %v", ask(t, c, 120, 20, short), short)
			s.unready(1)
			s.replicas[1].reviews.Store(0)
			failed := ask(t, c, 120, 20, short)
			t.Logf("it is not ready: %d of 120", failed)
			if got := s.replicas[1].reviews.Load(); tt.each && tt.endpoint && got > 0 {
				t.Errorf("%d reviews reach a replica that is not ready", got)
			}
			s.replicas[1].hangs.Store(false)

			// A replica dies, and for a while the Service still has it.
			s.replicas[2].die()
			t.Logf("one is dead and ready: %d of 120 failed", ask(t, c, 120, 20, long))
			s.unready(2)
			failed = ask(t, c, 120, 20, long)
			t.Logf("it is not ready: %d of 120", failed)
			if failed > 0 {
				t.Errorf("%d reviews failed after the dead replica was not ready any more", failed)
			}
		})
	}
}
