//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// TestRecordsAccess reads the records of a replica by port-forward, with the rights that
// docs/operate/observe.md names and without them, and looks at what replicas are sent.
func TestRecordsAccess(t *testing.T) {
	t.Parallel()
	a := &admin{cluster.Installed(t, cluster.InstallOptions{
		Cluster: cluster.Options{Users: map[string][]string{"jane": nil}}, Direct: true,
	})}
	a.NeedProcesses(t)
	replica := a.Replicas()[0]
	kubelet := startKubelet(t, replica.Addr)
	a.givePod(t, kubelet)
	jane := a.Kubeconfig(t, a.User(t, "jane"), "default")
	top := func(t *testing.T, kubeconfig string, code int, args ...string) string {
		t.Helper()
		out, got, err := a.Mapd.Mapd(t, kubeconfig, append([]string{"top", "-o", "json"}, args...)...)
		if err != nil || got != code {
			t.Fatalf("exit code %d instead of %d, %v\n%s", got, code, err, out)
		}
		return out
	}

	t.Run("rights", func(t *testing.T) {
		top(t, jane, 4)
		a.mustKubectl(t, "", "create", "clusterrolebinding", "jane-mapd-records", "--clusterrole=mapd-records", "--user=jane")
		top(t, jane, 4)
		a.mustKubectl(t, "", "-n", "mapd-system", "create", "rolebinding", "jane-mapd-records", "--role=mapd-records", "--user=jane")
		// An API server learns of a binding after it was written.
		cluster.Eventually(t, cluster.Patience, "the rights to count", func(context.Context) error {
			out, code, err := a.Mapd.Mapd(t, jane, "top", "-o", "json")
			if err != nil || code != 0 {
				return fmt.Errorf("exit code %d, %v: %s", code, err, out)
			}
			var top struct {
				Replicas []struct{ Name string }
			}
			if err := json.Unmarshal([]byte(out), &top); err != nil || len(top.Replicas) != 1 || top.Replicas[0].Name != kubeletPod {
				return fmt.Errorf("%v: %s", err, out)
			}
			return nil
		})
		if err := a.Client(t, a.User(t, "jane")).CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/mapd-system/secrets").Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
			t.Errorf("jane reads Secrets: %v", err)
		}
		// Proxies that let only one of the two protocols through.
		for _, refused := range []string{"websocket", "spdy/3.1"} {
			top(t, a.withoutUpgrade(t, refused, "jane"), 0)
		}
	})

	t.Run("tokens", func(t *testing.T) {
		a.mustKubectl(t, "", "-n", "mapd-system", "create", "serviceaccount", "stranger")
		const audience, server = "records.mapd.dev", "https://kubernetes.default.svc"
		for name, tt := range map[string]struct {
			token string
			code  int
		}{
			"for replicas":                 {a.token(t, "mapd-reader", audience), 200},
			"for replicas, without rights": {a.token(t, "stranger", audience), 403},
			"for API servers":              {a.token(t, "mapd-reader"), 401},
			"for both":                     {a.token(t, "mapd-reader", audience, server), 401},
			"for another":                  {a.token(t, "mapd-reader", "example.com"), 401},
			"the administrator's":          {a.Config.BearerToken, 401},
			"none":                         {"", 401},
			"forged":                       {forgedToken(a.token(t, "mapd-reader", audience)), 401},
		} {
			if code, body := records(t, replica.Addr, tt.token); code != tt.code {
				t.Errorf("%s: HTTP status %d: %s", name, code, body)
			}
		}
	})

	// Who may write the webhook configuration, such as mapd itself, has users ask another
	// host, and learns nothing that an API server would accept.
	t.Run("recorder", func(t *testing.T) {
		a.Remove(t, replica) // which would write its configuration again
		var mu sync.Mutex
		var sent []string
		recorder := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			for _, all := range r.Header {
				sent = append(sent, all...)
			}
			fmt.Fprint(w, `{"counts": []}`)
		}))
		defer recorder.Close()
		client, err := json.Marshal(map[string]any{
			"url":      recorder.URL + "/validate",
			"caBundle": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: recorder.Certificate().Raw}),
		})
		if err != nil {
			t.Fatal(err)
		}
		patch := fmt.Sprintf(`[{"op": "replace", "path": "/webhooks/0/clientConfig", "value": %s}]`, client)
		if _, err := a.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(t.Context(), "mapd.dev", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		admin := a.Kubeconfig(t, a.Config, "default")
		for _, command := range []string{"top --once", "rollout status", "blame namespace/default", "debug bundle --output-file -", "promote --all --dry-run"} {
			mu.Lock()
			sent = nil
			mu.Unlock()
			_, code, err := a.Mapd.Mapd(t, admin, strings.Fields(command)...)
			mu.Lock()
			if err != nil || len(sent) == 0 {
				t.Errorf("mapd %s asked nobody: exit code %d, %v", command, code, err)
			}
			for _, value := range sent {
				if strings.Contains(value, a.Config.BearerToken) {
					t.Errorf("mapd %s sends the administrator's token", command)
				}
				token, ok := strings.CutPrefix(value, "Bearer ")
				if !ok {
					continue
				}
				err := a.Client(t, a.WithToken(token)).CoreV1().RESTClient().Get().AbsPath("/api").Do(t.Context()).Error()
				if !apierrors.IsUnauthorized(err) {
					t.Errorf("mapd %s sends a token that the API server accepts: %v", command, err)
				}
			}
			mu.Unlock()
		}
	})
}

// withoutUpgrade returns the kubeconfig of a user who reaches the API server through a proxy
// that refuses a protocol.
func (a *admin) withoutUpgrade(t *testing.T, protocol, user string) string {
	t.Helper()
	to, err := url.Parse(a.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), protocol) {
			http.Error(w, "this proxy does not know "+protocol, http.StatusForbidden)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	config := a.User(t, user)
	config.Host = proxy.URL
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	return a.Kubeconfig(t, config, "default")
}

// token returns a token of a ServiceAccount in mapd's namespace.
func (a *admin) token(t *testing.T, account string, audiences ...string) string {
	t.Helper()
	got, err := a.Kubernetes.CoreV1().ServiceAccounts(cluster.Namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}

// forgedToken returns a token with another signature.
func forgedToken(token string) string {
	signed, signature, _ := strings.Cut(token[strings.Index(token, ".")+1:], ".")
	return token[:strings.Index(token, ".")] + "." + signed + "." + strings.Repeat("A", len(signature))
}

// records asks a replica for its counts.
func records(t *testing.T, addr, token string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+"/records/counts", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// kubeletPod is the Pod whose ports the kubelet of startKubelet forwards.
const kubeletPod = "mapd-0"

// startKubelet starts what a kubelet is to those who forward ports, for a Pod whose port is at
// an address.
func startKubelet(t *testing.T, addr string) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /portForward/mapd-system/"+kubeletPod, func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
			t.Error(err)
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
		_, data := <-streams, <-streams // for errors, and for data
		to, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		defer to.Close()
		go func() { _, _ = io.Copy(to, data) }()
		_, _ = io.Copy(data, to)
	})
	s := httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	return s
}

// givePod writes a Pod behind mapd's Service that runs on a node with a kubelet.
func (a *admin) givePod(t *testing.T, kubelet *httptest.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	node, err := a.Kubernetes.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(n)
	if _, err := a.Kubernetes.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.mustKubectl(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: mapd-system}
spec:
  nodeName: node
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: mapd
    image: mapd
    ports: [{name: https, containerPort: 8443}]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`, kubeletPod), "create", "-f", "-")
	// That of the harness names no Pods.
	if err := a.Kubernetes.DiscoveryV1().EndpointSlices(cluster.Namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Kubernetes.DiscoveryV1().EndpointSlices(cluster.Namespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "mapd-pods", Labels: map[string]string{discoveryv1.LabelServiceName: cluster.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("metrics"), Port: new(int32(9090))}, {Name: new("https"), Port: new(int32(8443))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: cluster.Namespace, Name: kubeletPod}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
