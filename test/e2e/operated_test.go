//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// TestOperated looks at two replicas as those do who operate them: traces that begin in
// the API server, a bundle for others, and metrics once policies are gone.
func TestOperated(t *testing.T) {
	t.Parallel()
	cluster.NotGiven(t, "it needs an API server that sends traces")
	spans := collectSpans(t)
	tracing := filepath.Join(t.TempDir(), "tracing.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: " + spans.grpc + "\nsamplingRatePerMillion: 1000000\n"
	if err := os.WriteFile(tracing, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &admin{cluster.Installed(t, cluster.InstallOptions{
		Cluster:  cluster.Options{Flags: []string{"--tracing-config-file=" + tracing}},
		Replicas: 2, Flags: []string{"--trace-sample=0"}, Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.http, "OTEL_BSP_SCHEDULE_DELAY=100"},
	})}
	o := &operated{admin: a, spans: spans}
	o.prepare(t)
	t.Run("traces", o.traces)
	t.Run("bundle", o.bundle)
	t.Run("series of what is gone", o.gone)
}

type operated struct {
	*admin
	spans *spanCollector
}

const (
	operatedNamespace = "e2e-operated"
	// planted is in every place of the cluster that holds a value; written is in the text of
	// a policy.
	planted = "planted-8c1f2e-value"
	written = "text-of-the-policy-41"
)

// operatedPolicies are one that is enforced and has a parameter, and two in shadow.
var operatedPolicies = []string{"e2e-operated", "e2e-operated-shadow", "e2e-operated-secret"}

// prepare makes policies that act on objects with planted values.
func (o *operated) prepare(t *testing.T) {
	o.namespace(t, operatedNamespace, map[string]string{"e2e": "operated"})
	o.mustKubectl(t, "", "-n", operatedNamespace, "create", "configmap", "param", "--from-literal=password="+planted)
	enforced := drawing{
		name: operatedPolicies[0], resources: "configmaps", namespaces: "e2e: operated", paramKind: "{apiVersion: v1, kind: ConfigMap}",
		paramRef:  "{name: param, namespace: " + operatedNamespace + ", parameterNotFoundAction: Deny}",
		mutations: []string{label("operated", `string(size(params.data.password))`)},
	}
	// Its result has the value of a parameter, of the object, and of its own text.
	shadow := drawing{
		name: operatedPolicies[1], resources: "configmaps", namespaces: "e2e: operated",
		mutations: []string{`Object{data: {"copied": object.data.value + "` + written + `"}}`},
	}
	secret := drawing{
		name: operatedPolicies[2], resources: "secrets", namespaces: "e2e: operated",
		mutations: []string{`Object{metadata: Object.metadata{annotations: {"copied": string(object.data["token"])}}}`},
	}
	for _, d := range []drawing{enforced, shadow, secret} {
		o.mustKubectl(t, d.yaml(), "apply", "-f", "-") // notes what was applied in an annotation
		o.mustKubectl(t, "", "annotate", "map", d.name, "example.com/note="+planted)
	}
	for _, name := range operatedPolicies[1:] {
		o.mustKubectl(t, "", "annotate", "map", name, "mapd.dev/mode=shadow", "mapd.dev/breaker=errors=100%")
	}
	// A Pod of the Deployment, which no node runs.
	deployment, err := o.Kubernetes.AppsV1().Deployments(cluster.Namespace).Get(t.Context(), cluster.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "mapd-e2e", Labels: deployment.Spec.Template.Labels, Annotations: map[string]string{"example.com/note": planted}},
		Spec:       deployment.Spec.Template.Spec,
	}
	c := &pod.Spec.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: "OTEL_EXPORTER_OTLP_HEADERS", Value: planted})
	if _, err := o.Kubernetes.CoreV1().Pods(cluster.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// An API server keeps its connection, so one replica may get all requests.
	cluster.Eventually(t, cluster.Patience, "the policies to act", func(ctx context.Context) error {
		if err := o.write(ctx); err != nil {
			return err
		}
		var all strings.Builder
		for _, r := range o.Replicas() {
			_, text, err := r.Get(ctx, "/metrics")
			if err != nil {
				return err
			}
			if !strings.Contains(text, "mapd_breaker_tripped{policy=\""+operatedPolicies[2]) {
				return fmt.Errorf("%s does not know the breakers", r.Name)
			}
			all.WriteString(text)
		}
		for metric, policy := range map[string]string{"mapd_decisions_total": operatedPolicies[0], "mapd_shadow_decisions_total": operatedPolicies[1]} {
			if n, err := sumMetric(all.String(), metric, fmt.Sprintf(`outcome="changed",policy=%q`, policy)); err != nil || n == 0 {
				return fmt.Errorf("%s has changed nothing (%v)", policy, err)
			}
		}
		if n, err := sumMetric(all.String(), "mapd_shadow_decisions_total", fmt.Sprintf("policy=%q", operatedPolicies[2])); err != nil || n == 0 {
			return fmt.Errorf("%s has seen no Secret (%v)", operatedPolicies[2], err)
		}
		return nil
	})
}

// write creates a ConfigMap and a Secret, both with a planted value, in a dry run.
func (o *operated) write(ctx context.Context) error {
	data := map[string]string{"value": planted}
	made, err := o.Kubernetes.CoreV1().ConfigMaps(operatedNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Annotations: map[string]string{"example.com/note": planted}}, Data: data,
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	if err := has(made, "operated", fmt.Sprint(len(planted))); err != nil {
		return err
	}
	_, err = o.Kubernetes.CoreV1().Secrets(operatedNamespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}, StringData: map[string]string{"token": planted},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// traces finds a review whose parent is a span of the API server's, in the trace of the
// request that a client sent.
func (o *operated) traces(t *testing.T) {
	cluster.Eventually(t, cluster.Patience, "a trace from the client's request to a policy", func(ctx context.Context) error {
		if err := o.write(ctx); err != nil {
			return err
		}
		server, own := o.spans.all()
		for _, review := range own {
			if review.Name != "review" {
				continue
			}
			call := byID(server, review.TraceId, review.ParentSpanId)
			if call == nil {
				continue // it is not sent yet
			}
			root := call
			for up := call; up != nil; up = byID(server, up.TraceId, up.ParentSpanId) {
				root = up
			}
			if len(root.ParentSpanId) > 0 || root == call {
				continue
			}
			var names []string
			for _, s := range own {
				if bytes.Equal(s.TraceId, review.TraceId) && !bytes.Equal(s.SpanId, review.SpanId) {
					names = append(names, s.Name)
				}
			}
			if !slices.Contains(names, "stage policies") || !slices.Contains(names, "policy "+operatedPolicies[0]) {
				continue
			}
			t.Logf("trace %s: %s › … › %s › review › %q", hex.EncodeToString(review.TraceId), root.Name, call.Name, names)
			if call.Kind != tracepb.Span_SPAN_KIND_CLIENT || review.StartTimeUnixNano < call.StartTimeUnixNano || review.EndTimeUnixNano > call.EndTimeUnixNano {
				t.Errorf("the review is not within the server's call of the webhook:\n%v\n%v", call, review)
			}
			return nil
		}
		return fmt.Errorf("%d spans of the API server, %d of mapd", len(server), len(own))
	})
	_, own := o.spans.all()
	for _, s := range own {
		if strings.Contains(s.String(), planted) {
			t.Errorf("a value is in %s", s)
		}
		// Without a caller's trace nothing is traced here.
		if s.Name == "review" && len(s.ParentSpanId) == 0 {
			t.Errorf("a review without a caller's trace: %s", s)
		}
	}
}

func byID(spans []*tracepb.Span, trace, id []byte) *tracepb.Span {
	for _, s := range spans {
		if bytes.Equal(s.SpanId, id) && bytes.Equal(s.TraceId, trace) {
			return s
		}
	}
	return nil
}

// bundle makes bundles and looks for what must not be in them.
func (o *operated) bundle(t *testing.T) {
	hidden := o.hidden(t)
	for _, noPolicies := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "bundle.tar.gz")
		args := []string{"debug", "bundle", "--output-file", file}
		if noPolicies {
			args = append(args, "--no-policies")
		}
		for _, r := range o.Replicas() {
			args = append(args, "--replica", "https://"+r.Addr)
		}
		out := o.mapd(t, args...)
		files := unpack(t, file)
		var manifest struct {
			Files   []struct{ Name string }
			Missing []struct{ What, Why string }
		}
		if err := json.Unmarshal([]byte(files["manifest.json"]), &manifest); err != nil || len(manifest.Files) != len(files)-1 {
			t.Errorf("manifest.json has %d files, the archive %d: %v", len(manifest.Files), len(files), err)
		}
		// The Pod has no address, and its log is empty.
		var missing []string
		for _, m := range manifest.Missing {
			missing = append(missing, m.What)
		}
		if want := []string{"mapd-e2e/metrics.txt", "mapd-e2e/readyz.txt"}; out.code != 5 || !slices.Equal(missing, want) {
			t.Errorf("missing %v, want %v: %s", manifest.Missing, want, out)
		}
		for what, secret := range hidden {
			for name, text := range files {
				if strings.Contains(text, secret) {
					t.Errorf("%s holds %s", name, what)
				}
			}
		}
		want := map[string][]string{
			"version.txt":                         {"mapd"},
			"server-version.json":                 {"gitVersion"},
			"doctor.txt":                          {"mapd"},
			"pods.yaml":                           {"name: mapd-e2e", "- OTEL_EXPORTER_OTLP_HEADERS"},
			"deployment.yaml":                     {"name: mapd"},
			"service.yaml":                        {"externalName"},
			"endpointslices.yaml":                 {"addresses"},
			"lease.yaml":                          {"holderIdentity"},
			"mutatingwebhookconfiguration.yaml":   {"clientConfig", "fail.never.mapd.dev"},
			"validatingwebhookconfiguration.yaml": {"clientConfig"},
			"policies.yaml":                       append([]string{"mapd.dev/mode: shadow", "reason: "}, operatedPolicies...),
			"bindings.yaml":                       operatedPolicies,
			"mapd-e2e/log.txt":                    nil,
			"events.yaml":                         nil,
			"events-of-policies.yaml":             nil,
		}
		for _, r := range o.Replicas() {
			dir := "https-" + strings.ReplaceAll(r.Addr, ":", "-") + "/"
			want[dir+"metrics.txt"] = []string{"mapd_breaker_tripped", "mapd_watch_connected"}
			want[dir+"readyz.txt"] = []string{"API server"}
			for _, name := range []string{"counts", "samples-1", "samples-2"} {
				want[dir+name+".json"] = []string{`"replica": `}
				files["all "+name] += files[dir+name+".json"]
			}
		}
		want["all counts"] = []string{`"policy": "e2e-operated"`, `"would": `}
		want["all samples-1"] = []string{`"how": "added"`}
		for name, texts := range want {
			text, there := files[name]
			if !there {
				t.Errorf("there is no %s", name)
			}
			for _, w := range texts {
				if !strings.Contains(text, w) {
					t.Errorf("%s lacks %q:\n%s", name, w, text)
				}
			}
		}
		for name, text := range files {
			if strings.Contains(text, written) && (noPolicies || name != "policies.yaml") {
				t.Errorf("%s has the text of a policy", name)
			}
		}
		if !noPolicies && !strings.Contains(files["policies.yaml"], written) {
			t.Errorf("policies.yaml lacks the texts:\n%s", files["policies.yaml"])
		}
	}
}

// hidden are texts that no bundle may hold, by what they are.
func (o *operated) hidden(t *testing.T) map[string]string {
	hidden := map[string]string{
		"a planted value": planted, "a planted value, encoded": strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(planted)), "="),
		"the annotation of kubectl": "last-applied-configuration", "the administrator's token": o.Config.BearerToken,
	}
	kubeconfigs, err := filepath.Glob(filepath.Join(o.Dir, "kubeconfig-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range kubeconfigs {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*token: (\S+)$`).FindAllSubmatch(text, -1) {
			hidden["the token of "+filepath.Base(file)] = string(m[1])
		}
	}
	secret, err := o.Kubernetes.CoreV1().Secrets(cluster.Namespace).Get(t.Context(), "mapd-tls", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	keys := 0
	for name, data := range secret.Data {
		for rest := data; ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if strings.Contains(block.Type, "PRIVATE KEY") {
				keys++
				hidden["the key "+name] = strings.Split(strings.TrimSpace(string(pem.EncodeToMemory(block))), "\n")[1]
			}
		}
	}
	if keys < 2 || len(hidden) < 8 { // the server's and the CA's; two replicas'
		t.Fatalf("%d keys and %d texts: they are not found as they are stored", keys, len(hidden))
	}
	hidden["a private key"] = "PRIVATE KEY"
	return hidden
}

// unpack returns the files of a bundle.
func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "mapd-bundle/")] = string(text)
	}
}

// gone deletes the policies: no metric and no record of a replica names them any more.
func (o *operated) gone(t *testing.T) {
	o.erase(t, operatedPolicies...)
	cluster.Eventually(t, cluster.Patience, "the policies to leave what replicas say", func(ctx context.Context) error {
		for _, r := range o.Replicas() {
			_, text, err := r.Get(ctx, "/metrics")
			if err != nil {
				return err
			}
			for line := range strings.Lines(text) {
				if strings.Contains(line, operatedPolicies[0]) {
					return fmt.Errorf("%s: %s", r.Name, line)
				}
			}
		}
		return nil
	})
	args := []string{"top", "--once"}
	for _, r := range o.Replicas() {
		args = append(args, "--replica", "https://"+r.Addr)
	}
	cluster.Eventually(t, cluster.Patience, "the policies to leave the records of replicas", func(context.Context) error {
		if out := o.mapd(t, args...); out.code != 0 || strings.Contains(out.stdout, operatedPolicies[0]) {
			return errors.New(out.String())
		}
		return nil
	})
}

// spanCollector is an OpenTelemetry collector: for the API server, which sends by gRPC,
// and for mapd, which sends by HTTP.
type spanCollector struct {
	coltracepb.UnimplementedTraceServiceServer
	grpc, http string // addresses

	mu          sync.Mutex
	server, own []*tracepb.Span
}

func collectSpans(t *testing.T) *spanCollector {
	c := &spanCollector{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(s, c)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(listener) // until Stop
	}()
	h := httptest.NewServer(http.HandlerFunc(c.receive))
	t.Cleanup(func() {
		s.Stop()
		<-served
		h.Close()
	})
	c.grpc, c.http = listener.Addr().String(), h.URL
	return c
}

// Export implements the collector's gRPC service.
func (c *spanCollector) Export(_ context.Context, req *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	c.add(&c.server, req)
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

func (c *spanCollector) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req coltracepb.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &req) != nil {
		http.Error(w, "not spans", http.StatusBadRequest)
		return
	}
	c.add(&c.own, &req)
}

func (c *spanCollector) add(to *[]*tracepb.Span, req *coltracepb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range req.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			*to = append(*to, scope.Spans...)
		}
	}
}

// all returns the spans that have come, of the API server and of mapd.
func (c *spanCollector) all() (server, own []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.server), slices.Clone(c.own)
}
