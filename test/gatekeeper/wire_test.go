package gatekeeper

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/open-policy-agent/frameworks/constraint/pkg/apis/externaldata/unversioned"
	frameworks "github.com/open-policy-agent/frameworks/constraint/pkg/externaldata"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// digestOfImages has a Provider replace the images of a Pod.
var digestOfImages = &unstructured.Unstructured{Object: map[string]any{
	"apiVersion": "mutations.gatekeeper.sh/v1", "kind": "Assign", "metadata": map[string]any{"name": "digests"},
	"spec": map[string]any{
		"applyTo":  []any{map[string]any{"groups": []any{""}, "versions": []any{"v1"}, "kinds": []any{"Pod"}}},
		"location": "spec.containers[name: *].image",
		"parameters": map[string]any{"assign": map[string]any{"externalData": map[string]any{
			"provider": "digests", "dataSource": "ValueAtLocation", "failurePolicy": "Fail",
		}}},
	},
}}

// wire is the sample provider as a process, and both who ask it.
type wire struct {
	dir     string
	program string
	outside *outside
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{dir: t.TempDir()}
	w.program = filepath.Join(w.dir, "external-data")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", w.program, "./examples/external-data")
	build.Dir = "../.."
	w.run(t, build)
	w.run(t, exec.CommandContext(t.Context(), w.program, "issue", "--dir", w.dir, "--host", "127.0.0.1"))
	var err error
	if w.outside, err = started(); err != nil {
		t.Fatal(err)
	}
	clients, err := base64.StdEncoding.DecodeString(w.outside.ca)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "clients.crt"), clients, 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *wire) run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// serve starts the provider, which asks its clients for the certificate of both sides.
func (w *wire) serve(t *testing.T, fault string) (url string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), w.program, "serve", "--certs", w.dir, "--client-ca", filepath.Join(w.dir, "clients.crt"),
		"--table", "../../examples/external-data/table.txt", "--fault", fault)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, _ := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("the provider did not start: %q", line)
	}
	return url
}

// answer is a Pod's images, or the classes of the errors in the place of them.
type answer struct {
	images []string
	errors string
}

// gatekeepers lets Gatekeeper's system, with its own client, mutate a Pod.
func (w *wire) gatekeepers(t *testing.T, spec unversioned.ProviderSpec, request Request) answer {
	t.Helper()
	cache := frameworks.NewCache()
	provider := &unversioned.Provider{Spec: spec}
	provider.Name = "digests"
	if err := cache.Upsert(provider); err != nil {
		t.Fatal(err)
	}
	system := mutation.NewSystem(mutation.SystemOpts{ProviderCache: cache, ClientCertWatcher: w.outside.client, NewUUID: func() uuid.UUID { return uuid.Nil }})
	m, err := decode(digestOfImages)
	if err == nil {
		err = system.Upsert(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := mutate(request, func(m *mutationtypes.Mutable) (int, error) {
		_, err := system.Mutate(t.Context(), m)
		return 1, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return answerOf(t, r, func(text string) string {
		for _, class := range []struct{ text, class string }{
			{"failed to send external data request", "call"}, {"non-empty system error", "system"}, {"non-idempotent", "not idempotent"},
			{"failed to find external data item", "missing"}, {"failed to retrieve external data item", "key"}, {"failed to convert external data item", "no string"},
		} {
			if strings.Contains(text, class.text) {
				return class.class
			}
		}
		return text
	})
}

// mapds lets mapd's engine, with its client, mutate a Pod.
func (w *wire) mapds(t *testing.T, spec unversioned.ProviderSpec, request Request) answer {
	t.Helper()
	provider, err := externaldata.DecodeProvider(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "externaldata.gatekeeper.sh/v1beta1", "kind": "Provider", "metadata": map[string]any{"name": "digests"},
		"spec": map[string]any{"url": spec.URL, "timeout": int64(spec.Timeout), "caBundle": spec.CABundle},
	}})
	if err != nil {
		t.Fatal(err)
	}
	client := externaldata.New(externaldata.Options{Certificate: func() (*tls.Certificate, error) { return w.outside.client.GetCertificate(nil) }})
	defer client.Close()
	client.Set([]*legacy.Provider{provider}, 0)
	m, err := legacy.Decode(digestOfImages)
	if err != nil {
		t.Fatal(err)
	}
	last := &remembering{from: client}
	r := NewShapes().NewRuntime([]*legacy.Mutator{m}, nil)
	r.engine = engine.New(engine.Options{Resolver: last})
	r.engine.Publish(engine.Mutators(r.Built.Set, api.Enforce))
	got, err := r.Mutate(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return answerOf(t, got, func(text string) string {
		for _, a := range last.answers {
			if a.Err == nil {
				continue
			}
			var e *externaldata.Error
			if !errors.As(a.Err, &e) {
				return a.Err.Error()
			}
			switch e.Reason {
			case externaldata.System:
				return "system"
			case externaldata.NotIdempotent:
				return "not idempotent"
			case externaldata.Missing:
				return "missing"
			case externaldata.Key:
				return "key"
			case externaldata.NoString:
				return "no string"
			case externaldata.Duplicate:
				return "duplicate"
			}
			return "call"
		}
		return text
	})
}

// remembering is a Resolver that keeps the last answers.
type remembering struct {
	from    engine.Resolver
	answers []engine.Answer
}

func (r *remembering) Resolve(ctx context.Context, questions []engine.Question, dryRun bool) []engine.Answer {
	r.answers = r.from.Resolve(ctx, questions, dryRun)
	return r.answers
}

func answerOf(t *testing.T, r Result, class func(text string) string) answer {
	t.Helper()
	if r.Error != "" {
		return answer{errors: class(r.Error)}
	}
	var a answer
	containers, _, err := unstructured.NestedSlice(r.Object, "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers {
		a.images = append(a.images, c.(map[string]any)["image"].(string))
	}
	return a
}

// pod asks for the images.
func pod(images ...string) Request {
	var containers []any
	for i, image := range images {
		containers = append(containers, map[string]any{"name": string(rune('a' + i)), "image": image})
	}
	return Request{Operation: "CREATE", Source: "Original", Namespace: "shop", NamespaceObject: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"},
	}, Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web", "namespace": "shop"},
		"spec": map[string]any{"containers": containers},
	}}
}

// The same process is asked for the same keys by Gatekeeper's client and by mapd's, each
// within its own system: the Pods are the same, or the errors are of the same kind.
func TestWire(t *testing.T) {
	w := newWire(t)
	ca, err := os.ReadFile(filepath.Join(w.dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	spec := func(url string) unversioned.ProviderSpec {
		return unversioned.ProviderSpec{URL: url, Timeout: 60, CABundle: base64.StdEncoding.EncodeToString(ca)}
	}
	const digest = "nginx@sha256:9f6d3a1f4a8e1f36b1f4b3c52a55f9a1f7a3a1c7b60d54e8a0d2f2d9b1d1f9aa"
	check := func(t *testing.T, spec unversioned.ProviderSpec, request Request, gatekeeper, mapd answer) {
		t.Helper()
		for name, of := range map[string]struct{ got, want answer }{
			"Gatekeeper": {w.gatekeepers(t, spec, request), gatekeeper}, "mapd": {w.mapds(t, spec, request), mapd},
		} {
			if d := cmp.Diff(of.want, of.got, cmp.AllowUnexported(answer{})); d != "" {
				t.Errorf("%s (-want +got):\n%.2000s", name, d)
			}
		}
	}

	good := spec(w.serve(t, ""))
	odd := []string{"nginx:1.25", digest, "nginx:1.25", "@", "\"\\<&>\u2028\x00\x7f@é😀", strings.Repeat("k", 100_000) + "@"}
	replaced := append([]string{digest, digest, digest}, odd[3:]...)
	check(t, good, pod(odd...), answer{images: replaced}, answer{images: replaced})
	for _, unknown := range []string{"", "unknown:1", "NGINX:1.25", "nginx:1.25 ", "\"\\<&>\u2028\x00\x7fé😀"} {
		check(t, good, pod("nginx:1.25", unknown), answer{errors: "key"}, answer{errors: "key"})
	}

	call := answer{errors: "call"}
	stranger := good
	stranger.CABundle = w.outside.ca
	check(t, stranger, pod("nginx:1.25"), call, call)
	check(t, spec("https://127.0.0.1:1/"), pod("nginx:1.25"), call, call)

	zero := good // docs/reference/compat.md: gk-provider-timeout
	zero.Timeout = 0
	check(t, zero, pod("nginx:1.25"), call, answer{images: []string{digest}})

	for fault, want := range map[string]answer{
		"slow": call, "cut": call, "garbage": call, "huge": call, "status": call, "redirect": call,
		"system-error": {errors: "system"}, "not-idempotent": {errors: "not idempotent"}, "missing": {errors: "missing"}, "number": {errors: "no string"},
		"duplicate": {errors: "duplicate"},
	} {
		t.Run(fault, func(t *testing.T) {
			spec := spec(w.serve(t, fault))
			if fault == "slow" {
				spec.Timeout = 1
			}
			gatekeeper := want
			if fault == "duplicate" { // docs/reference/compat.md: gk-provider-answers
				gatekeeper = answer{images: []string{digest}}
			}
			check(t, spec, pod("nginx:1.25"), gatekeeper, want)
		})
	}
}

// A Provider is accepted, or refused with the same words, by both. What Gatekeeper
// accepts and mapd does not is the row gk-provider-refused of docs/reference/compat.md.
func TestProviders(t *testing.T) {
	server, err := started()
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.StdEncoding.DecodeString(server.ca)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	bundle := func(kind string, content []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	bundles := []string{
		"", "!!!", "aGVsbG8=", server.ca, server.ca + "=", bundle("CERTIFICATE", []byte("x")), bundle("TRUSTED CERTIFICATE", block.Bytes),
		base64.StdEncoding.EncodeToString(append([]byte("of ours:\n"), text...)),
		base64.StdEncoding.EncodeToString(append(append([]byte{}, text...), "-----BEGIN CERTIFICATE-----\nrest"...)),
	}
	accepted, ours := 0, 0
	for _, url := range []string{"", "x", "http://x", "ftp://x", "https://x", "HTTPS://x", "https://x:y", "https://x:8090/%zz", "https:///x", "https:x", " https://x", "https://[::1]:8090/a?b#c"} {
		for _, timeout := range []int{-1, 0, 1, 1 << 40} {
			for _, ca := range bundles {
				for _, name := range []string{"", "p"} {
					p := &unversioned.Provider{Spec: unversioned.ProviderSpec{URL: url, Timeout: timeout, CABundle: ca}}
					p.Name = name
					theirs := frameworks.NewCache().Upsert(p)
					_, err := externaldata.DecodeProvider(&unstructured.Unstructured{Object: map[string]any{
						"apiVersion": "externaldata.gatekeeper.sh/v1beta1", "kind": "Provider", "metadata": map[string]any{"name": name},
						"spec": map[string]any{"url": url, "timeout": int64(timeout), "caBundle": ca},
					}})
					var refused *legacy.Error
					switch {
					case theirs == nil && err == nil:
						accepted++
					case theirs == nil && errors.As(err, &refused) && (strings.HasSuffix(err.Error(), " has no host") || strings.HasSuffix(err.Error(), "caBundle has no block of the type CERTIFICATE")):
						ours++
					case theirs == nil || !errors.As(err, &refused) || !strings.HasSuffix(err.Error(), ": "+theirs.Error()):
						t.Errorf("url %q, timeout %d, name %q, caBundle %.20q: Gatekeeper %v, mapd %v", url, timeout, name, ca, theirs, err)
					}
				}
			}
		}
	}
	if accepted == 0 || ours == 0 {
		t.Errorf("%d are accepted by both, %d by Gatekeeper alone", accepted, ours)
	}
	t.Logf("%d are accepted by both, %d by Gatekeeper alone", accepted, ours)
}
