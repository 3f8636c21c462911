//go:build e2e

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/manifests"
)

const (
	// Namespace is the namespace of mapd, and Name the name of most of its objects.
	Namespace = "mapd-system"
	Name      = "mapd"
)

// InstallOptions describe a mapd in a cluster.
type InstallOptions struct {
	// Cluster has the options of the servers that Installed starts.
	Cluster Options
	// Replicas is how many processes are started; 0 means 1, -1 none.
	Replicas int
	// Flags are passed to `mapd serve` after the harness's own.
	Flags []string
	// Env is added to the environment of the replicas, as KEY=VALUE.
	Env []string
	// Manifest is applied; nil means manifests/install.yaml.
	Manifest []byte
	// Program is the program that replicas run; empty means Binary. Use changes it.
	Program string
	// Direct is for measurements: the API server reaches the replica that was started last without
	// Mapd.Proxy, and the harness does not probe that replica once it is ready.
	Direct bool
	// CutAPI puts the proxy Mapd.API between the replicas and the API server.
	CutAPI bool
}

// Mapd is a cluster with mapd in it.
type Mapd struct {
	*Cluster
	// Proxy stands for the Service; nil on a cluster that the test did not start.
	Proxy *Proxy
	// API is between the replicas and the API server if InstallOptions.CutAPI is set.
	API *Proxy

	options InstallOptions

	mu       sync.Mutex
	replicas []*Replica
	started  int
}

// Replica is one process `mapd serve`, which replaces a Pod.
type Replica struct {
	*Process
	// Addr is where it listens.
	Addr string
	// IP is its address in the EndpointSlice.
	IP string

	client *http.Client
}

// Installed returns a cluster in which mapd is installed and, if it has
// replicas, ready: that of MAPD_E2E_KUBECONFIG, or else one that it starts.
func Installed(t testing.TB, o InstallOptions) *Mapd {
	t.Helper()
	if c := external(t); c != nil {
		return &Mapd{Cluster: c, options: o}
	}
	return Install(t, Start(t, o.Cluster), o)
}

// Install installs mapd into servers that Start has started, starts its
// replicas and waits for them as WaitReady does.
func Install(t testing.TB, c *Cluster, o InstallOptions) *Mapd {
	t.Helper()
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.Manifest == nil {
		o.Manifest = manifests.Install()
	}
	m := &Mapd{Cluster: c, Proxy: NewProxy(t), options: o}
	if o.CutAPI {
		host, err := url.Parse(c.Config.Host)
		if err != nil {
			t.Fatal(err)
		}
		m.API = NewProxy(t, host.Host)
	}
	if _, err := c.Kubectl(t, o.Manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	m.AggregateRoles(t)
	m.Expose(t)
	if !o.Direct {
		m.watchEndpoints(t)
	}
	m.Scale(t, max(0, o.Replicas))
	return m
}

// Expose makes the Service lead to the proxy. It must be called again after the Service was
// created again.
func (m *Mapd) Expose(t testing.TB) {
	t.Helper()
	m.expose(t, m.Port(t))
}

func (m *Mapd) expose(t testing.TB, port int) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": null, "clusterIPs": null, "selector": null,
		"ports": [{"$patch": "replace"}, {"name": "https", "port": %d}]}}`, port)
	if _, err := m.Kubernetes.CoreV1().Services(Namespace).Patch(t.Context(), Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatalf("the Service cannot become one of type ExternalName: %v", err)
	}
}

// Port returns the port of the Service.
func (m *Mapd) Port(t testing.TB) int {
	t.Helper()
	_, port, err := net.SplitHostPort(m.Proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Replicas returns the replicas that Install, AddReplica, Scale or Roll started, without those that
// Scale, Roll or Remove stopped. Some of them may have ended.
func (m *Mapd) Replicas() []*Replica {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.replicas)
}

// AddReplica starts one more replica, with additional flags, and does not wait until it is ready;
// see WaitReady.
func (m *Mapd) AddReplica(t testing.TB, flags ...string) *Replica {
	t.Helper()
	listen, service := FreePort(t), m.Port(t)
	if m.options.Direct {
		service = listen
		m.expose(t, service)
	}
	r := m.start(t, listen, append(append([]string{"--namespace", Namespace, "--service", Name, "--service-port", strconv.Itoa(service)},
		m.options.Flags...), flags...))
	m.mu.Lock()
	m.replicas = append(m.replicas, r)
	m.mu.Unlock()
	return r
}

// Use sets the program that replicas run that are started from now on.
func (m *Mapd) Use(program string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.options.Program = program
}

// Another starts a replica of another installation, which is in another namespace and is reached by
// a URL. Replicas does not return it.
func (m *Mapd) Another(t testing.TB, namespace string, flags ...string) *Replica {
	t.Helper()
	listen := FreePort(t)
	return m.start(t, listen, append([]string{"--namespace", namespace, "--url", fmt.Sprintf("https://localhost:%d", listen)}, flags...))
}

// start starts a process with the rights of mapd's ServiceAccount.
func (m *Mapd) start(t testing.TB, listen int, flags []string) *Replica {
	t.Helper()
	m.mu.Lock()
	m.started++
	n, program := m.started, m.options.Program
	m.mu.Unlock()
	if program == "" {
		program = Binary(t)
	}
	if n > 250 {
		t.Fatal("TEST-NET-1 has no more addresses for replicas")
	}
	addr := fmt.Sprintf("127.0.0.1:%d", listen)
	config := m.WithToken(m.serviceAccountToken(t))
	if m.API != nil {
		config.Host = "https://" + m.API.Addr
	}
	args := []string{"serve", "--kubeconfig", m.Kubeconfig(t, config, Namespace), "--listen", addr,
		// Like kube-proxy, the proxy needs some time to notice that a replica is ending.
		"--shutdown-delay", "500ms",
		// On a machine with other load, timeouts of the webhook must not fail tests of something
		// else. (30 s is the longest timeout that a server accepts.)
		"--webhook-timeout", "25s"}
	r := &Replica{
		Process: newProcess(m.test, m.Dir, fmt.Sprintf("mapd-%d", n), program, append(args, flags...), m.options.Env),
		Addr:    addr, IP: fmt.Sprintf("192.0.2.%d", n),
		client: probing(),
	}
	r.Start(t)
	return r
}

// probing returns a client for probes. Like a kubelet it does not verify certificates, and it opens
// a connection for each probe, so that it notices a server that has stopped listening.
func probing() *http.Client {
	return &http.Client{Timeout: Patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
}

// Scale starts replicas, or stops the newest ones, until there are n. It waits until the stopped
// ones have ended and the others are ready.
func (m *Mapd) Scale(t testing.TB, n int) {
	t.Helper()
	for _, r := range m.cut(n) {
		if r.Running() {
			r.Terminate()
			defer r.WaitEnd(t, stopTimeout)
		}
	}
	for len(m.Replicas()) < n {
		m.AddReplica(t)
	}
	m.WaitReady(t)
}

// Roll replaces every replica by a new one, one after the other. The new one is ready before the
// old one is stopped.
func (m *Mapd) Roll(t testing.TB) {
	t.Helper()
	for _, old := range m.Replicas() {
		m.AddReplica(t)
		m.WaitReady(t)
		m.Remove(t, old)
	}
}

// Remove stops a replica. Replicas does not return it afterwards.
func (m *Mapd) Remove(t testing.TB, r *Replica) {
	t.Helper()
	m.mu.Lock()
	m.replicas = slices.DeleteFunc(m.replicas, func(x *Replica) bool { return x == r })
	m.mu.Unlock()
	if r.Running() {
		r.Stop(t, stopTimeout)
	}
}

// stopTimeout is how long a replica may take to end.
const stopTimeout = Patience

// WaitReady waits until every replica is ready, connections reach them, and a replica has written
// the ValidatingWebhookConfiguration, which none does before one is ready. It does not wait until
// API servers have read that, nor for webhook entries of policies.
func (m *Mapd) WaitReady(t testing.TB) {
	t.Helper()
	Eventually(t, startTimeout, "the replicas of mapd", func(ctx context.Context) error {
		replicas := m.Replicas()
		for _, r := range replicas {
			if err := r.ended(); err != nil {
				t.Fatal(err)
			}
			if err := r.Probe(ctx); err != nil {
				return err
			}
		}
		if err := m.updateEndpoints(ctx); err != nil || len(replicas) == 0 {
			return err
		}
		return m.written(ctx)
	})
}

// written returns an error until a replica has written the ValidatingWebhookConfiguration, which
// has entries even if there are no policies.
func (m *Mapd) written(ctx context.Context) error {
	c, err := m.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, webhookconfig.ValidationName, metav1.GetOptions{})
	if err == nil && len(c.Webhooks) == 0 {
		err = fmt.Errorf("no replica has written the ValidatingWebhookConfiguration %s", c.Name)
	}
	return err
}

// Probe asks /readyz once, as a kubelet does.
func (r *Replica) Probe(ctx context.Context) error {
	code, body, err := r.Get(ctx, "/readyz?verbose")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s: /readyz: %d\n%s", r.Name, code, body)
	}
	return err
}

// Get reads a page of the replica: /metrics, /healthz.
func (r *Replica) Get(ctx context.Context, path string) (code int, body string, err error) {
	return r.do(ctx, http.MethodGet, path, nil)
}

// Ask sends an AdmissionReview to this replica, as an API server would for policies with
// failurePolicy Fail and reinvocationPolicy Never.
func (r *Replica) Ask(ctx context.Context, review []byte) (code int, body string, err error) {
	return r.do(ctx, http.MethodPost, "/mutate/fail/never", review)
}

func (r *Replica) do(ctx context.Context, method, path string, send []byte) (code int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+r.Addr+path, bytes.NewReader(send))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// cut removes all but the first n replicas from the list and returns those that it removed.
func (m *Mapd) cut(n int) []*Replica {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.replicas) <= n {
		return nil
	}
	gone := slices.Clone(m.replicas[n:])
	m.replicas = m.replicas[:n]
	return gone
}

// watchEndpoints probes the replicas until the test ends.
func (m *Mapd) watchEndpoints(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		// Kubelets usually probe every 10 s; that would make tests slow.
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			// Errors are ignored, because some tests stop the API server; the next tick tries again.
			_ = m.updateEndpoints(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
}

// probeTimeout is how long a replica may take to answer a probe. After that the proxy opens no new
// connections to it. The timeout is short enough for a paused replica, and long enough that a slow
// one still counts as ready.
const probeTimeout = 5 * time.Second

// updateEndpoints probes the replicas, sets those that are ready as the targets of the proxy, and
// writes the EndpointSlice.
func (m *Mapd) updateEndpoints(ctx context.Context) error {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: Name + "-e2e", Namespace: Namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: Name, discoveryv1.LabelManagedBy: "test-e2e"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(8443)), Protocol: new(corev1.ProtocolTCP)}},
	}
	replicas := m.Replicas()
	ready := make([]bool, len(replicas))
	var probes sync.WaitGroup
	for i, r := range replicas {
		probes.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			ready[i] = r.Running() && r.Probe(ctx) == nil
		})
	}
	probes.Wait()
	var targets []string
	for i, r := range replicas {
		if ready[i] {
			targets = append(targets, r.Addr)
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{r.IP},
			Conditions: discoveryv1.EndpointConditions{Ready: new(ready[i]), Serving: new(ready[i]), Terminating: new(false)},
		})
	}
	m.Proxy.Targets(targets...)

	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	slices := m.Kubernetes.DiscoveryV1().EndpointSlices(Namespace)
	old, err := slices.Get(ctx, slice.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = slices.Create(ctx, slice, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	case sameEndpoints(old.Endpoints, slice.Endpoints):
		return nil
	}
	_, err = slices.Update(ctx, slice, metav1.UpdateOptions{})
	return err
}

func sameEndpoints(a, b []discoveryv1.Endpoint) bool {
	return slices.EqualFunc(a, b, func(a, b discoveryv1.Endpoint) bool {
		return slices.Equal(a.Addresses, b.Addresses) && *a.Conditions.Ready == *b.Conditions.Ready
	})
}

// serviceAccountToken requests a token for mapd's ServiceAccount, as a kubelet does for a Pod.
func (m *Mapd) serviceAccountToken(t testing.TB) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}
	token, err := m.Kubernetes.CoreV1().ServiceAccounts(Namespace).CreateToken(t.Context(), Name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("token of the ServiceAccount %s: %v", Name, err)
	}
	return token.Status.Token
}

// DefaultServiceAccounts creates the ServiceAccount "default" in namespaces, as a controller of
// kube-controller-manager does; the admission plugin ServiceAccount requires it. In a given
// cluster, which has that controller, DefaultServiceAccounts does nothing.
func (c *Cluster) DefaultServiceAccounts(t testing.TB, namespaces ...string) {
	t.Helper()
	if c.APIServer == nil {
		return
	}
	for _, ns := range namespaces {
		if _, err := c.Kubernetes.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: "default"},
		}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// Mapd runs another command of mapd, such as doctor, with a kubeconfig, and returns its standard
// output and exit code. err is nil if the command could be run, whatever its exit code.
func (m *Mapd) Mapd(t testing.TB, kubeconfig string, args ...string) (stdout string, code int, err error) {
	t.Helper()
	out, err := run(t, m.Dir, nil, []string{"KUBECONFIG=" + kubeconfig, "HOME=" + m.Dir}, Binary(t), args...)
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) {
		t.Log(err)
		return out, exit.ExitCode(), nil
	}
	return out, 0, err
}

// Logs returns the output of all replicas, including those that have ended.
func (m *Mapd) Logs(t testing.TB) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.Dir, "mapd-*.log"))
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	return string(all)
}
