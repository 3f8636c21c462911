package externaldata_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/servingcert"
)

// sample is the sample provider as a program, built once.
var sample struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if sample.dir != "" {
		_ = os.RemoveAll(sample.dir)
	}
	os.Exit(code)
}

func program(t *testing.T) string {
	t.Helper()
	sample.once.Do(func() {
		if sample.dir, sample.err = os.MkdirTemp("", "external-data-"); sample.err != nil {
			return
		}
		var out []byte
		out, sample.err = exec.Command("go", "build", "-o", filepath.Join(sample.dir, "external-data"), "../../examples/external-data").CombinedOutput()
		if sample.err != nil {
			t.Logf("%s", out)
		}
	})
	if sample.err != nil {
		t.Fatal(sample.err)
	}
	return filepath.Join(sample.dir, "external-data")
}

// authority makes ca.crt, tls.crt and tls.key in a directory.
type authority struct {
	ca  servingcert.Pair
	dir string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca, err := servingcert.NewAuthority(time.Now().Add(-2*time.Hour), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{ca, t.TempDir()}
	write(t, filepath.Join(a.dir, "ca.crt"), servingcert.Encode(ca.Cert))
	return a
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *authority) leaf(t *testing.T, host string, from time.Time, validity time.Duration) servingcert.Pair {
	t.Helper()
	leaf, err := servingcert.NewLeaf(a.ca, []string{host}, from, validity)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// serve starts the sample provider with a certificate and returns its URL.
func (a *authority) serve(t *testing.T, leaf servingcert.Pair, args ...string) string {
	t.Helper()
	certs := t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(leaf.Key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(certs, "tls.crt"), servingcert.Encode(leaf.Cert))
	write(t, filepath.Join(certs, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	cmd := exec.CommandContext(t.Context(), program(t), append([]string{"serve", "--certs", certs, "--table", "../../examples/external-data/table.txt"}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
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
		t.Fatalf("the provider did not start: %q %s", line, &said)
	}
	return url
}

func (a *authority) provider(url string, timeout time.Duration) *legacy.Provider {
	return &legacy.Provider{Name: "digests", URL: url, Timeout: timeout, CABundle: servingcert.Encode(a.ca.Cert)}
}

func ask(c *externaldata.Client, keys ...string) []string {
	var questions []engine.Question
	for _, k := range keys {
		questions = append(questions, engine.Question{Source: "digests", Key: k})
	}
	return resolve(c, questions...)
}

const digest = "nginx@sha256:9f6d3a1f4a8e1f36b1f4b3c52a55f9a1f7a3a1c7b60d54e8a0d2f2d9b1d1f9aa"

// Every way in which a real provider fails has an error of its own, and none harms
// the client.
func TestFaults(t *testing.T) {
	a := newAuthority(t)
	valid := a.leaf(t, "127.0.0.1", time.Now(), time.Hour)
	for _, c := range []struct {
		fault, want string
		short       bool
	}{
		{fault: "slow", want: "no complete answer within 100ms (spec.timeout)", short: true},
		{fault: "cut", want: "it closed the connection before its answer was complete"},
		{fault: "garbage", want: "its answer is not a ProviderResponse in JSON: invalid character '<' looking for beginning of value"},
		{fault: "huge", want: "its answer has more than 1048576 bytes"},
		{fault: "status", want: `it answers "503 Service Unavailable"; expected 200 OK`},
		{fault: "redirect", want: `it answers "307 Temporary Redirect" and points elsewhere; mapd follows no redirects, so spec.url must be the last address`},
		{fault: "system-error", want: "it reports an error for all keys (systemError): the table is away"},
		{fault: "not-idempotent", want: "its answer does not say response.idempotent: true, which mutation needs"},
		{fault: "missing", want: `key "nginx:1.25": its answer has no item for it`},
		{fault: "duplicate", want: `key "nginx:1.25": its answer has more than one item for it`},
		{fault: "number", want: `key "nginx:1.25": the value is not a string: 7`},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			timeout := time.Minute // as little as 5 seconds is what counts
			if c.short {
				timeout = 100 * time.Millisecond
			}
			client := externaldata.New(externaldata.Options{})
			defer client.Close()
			client.Set([]*legacy.Provider{a.provider(a.serve(t, valid, "--fault", c.fault), timeout)}, 0)
			for range 2 {
				if d := cmp.Diff([]string{"error: provider digests: " + c.want}, ask(client, "nginx:1.25")); d != "" {
					t.Errorf("-want +got\n%s", d)
				}
			}
		})
	}
}

func TestProcess(t *testing.T) {
	a := newAuthority(t)
	client := externaldata.New(externaldata.Options{})
	defer client.Close()
	set := func(p *legacy.Provider) { client.Set([]*legacy.Provider{p}, 0) }

	good := a.serve(t, a.leaf(t, "127.0.0.1", time.Now(), time.Hour))
	set(a.provider(good, time.Minute))
	want := []string{digest, `error: provider digests: key "x": no digest is known`, digest, "registry.example.com:5000/shop/web@sha256:1c5b0c1a0f5e7d9d3b3d0f8a6b9b3f5a7d2e4c6b8a0f1e3d5c7b9a1f3e5d7c9b"}
	if d := cmp.Diff(want, ask(client, "nginx:1.25", "x", digest, "registry.example.com:5000/shop/web:2.1")); d != "" {
		t.Errorf("-want +got\n%s", d)
	}

	starts := func(what string, p *legacy.Provider, want string) {
		t.Helper()
		set(p)
		if got := ask(client, "nginx:1.25")[0]; !strings.HasPrefix(got, "error: provider digests: "+want) {
			t.Errorf("%s: %s\nwant %s", what, got, want)
		}
	}
	expired := a.serve(t, a.leaf(t, "127.0.0.1", time.Now().Add(-time.Hour), time.Minute))
	starts("expired", a.provider(expired, time.Minute), "its certificate is not valid with spec.caBundle: x509: certificate has expired or is not yet valid")
	other := a.serve(t, a.leaf(t, "elsewhere.example", time.Now(), time.Hour))
	starts("other name", a.provider(other, time.Minute), "its certificate is not valid with spec.caBundle: x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs")
	starts("other authority", newAuthority(t).provider(good, time.Minute), "its certificate is not valid with spec.caBundle: x509: certificate signed by unknown authority")
	starts("name", a.provider("https://no-such-host.invalid/", time.Minute), "its host no-such-host.invalid does not resolve: ")
	starts("port", a.provider("https://127.0.0.1:1/", time.Minute), "no connection to 127.0.0.1:1: connect: connection refused")
	starts("no TLS", a.provider(strings.Replace(plain(t), "http:", "https:", 1), time.Minute), "it does not speak TLS")
}

// A provider that wants a client certificate gets mapd's, also after it was replaced.
func TestClientCertificate(t *testing.T) {
	a := newAuthority(t)
	url := a.serve(t, a.leaf(t, "127.0.0.1", time.Now(), time.Hour), "--client-ca", filepath.Join(a.dir, "ca.crt"))
	mine := a.leaf(t, "mapd.mapd-system.svc", time.Now(), time.Hour).Served()
	for want, certificate := range map[string]func() (*tls.Certificate, error){
		digest: func() (*tls.Certificate, error) { return mine, nil },
		"error: provider digests: mapd's client certificate cannot be used: open tls.crt: file does not exist": func() (*tls.Certificate, error) {
			return nil, &os.PathError{Op: "open", Path: "tls.crt", Err: os.ErrNotExist}
		},
		"error: provider digests: the TLS handshake failed: certificate required": nil,
	} {
		client := externaldata.New(externaldata.Options{Certificate: certificate})
		client.Set([]*legacy.Provider{a.provider(url, time.Minute)}, 0)
		if got := ask(client, "nginx:1.25"); got[0] != want {
			t.Errorf("%s, want %s", got[0], want)
		}
		client.Close()
	}
}

// A dry run asks only a provider that says that it has no side effects.
func TestDryRun(t *testing.T) {
	a := newAuthority(t)
	url := a.serve(t, a.leaf(t, "127.0.0.1", time.Now(), time.Hour))
	client := externaldata.New(externaldata.Options{})
	defer client.Close()
	p := a.provider(url, time.Minute)
	for _, c := range []struct {
		none bool
		want string
	}{
		{false, "error: provider digests: not asked in a dry run: it may have side effects; the annotation mapd.dev/side-effects: None on the Provider says that it has none"},
		{true, digest},
	} {
		q := *p
		q.NoSideEffects = c.none
		client.Set([]*legacy.Provider{&q}, 0)
		got := client.Resolve(context.Background(), []engine.Question{{Source: "digests", Key: "nginx:1.25"}}, true)
		if text(got[0]) != c.want {
			t.Errorf("%s, want %s", text(got[0]), c.want)
		}
	}
}

// plain is the URL of a server without TLS.
func plain(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return s.URL
}
