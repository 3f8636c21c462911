package download

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/kubewarden"
)

// Addresses of this machine and of private networks are asked only if their host is listed,
// whether a module, a redirect or a registry names them.
func TestSources(t *testing.T) {
	asked := false
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked = true }))
	defer inner.Close()
	innerURL, err := url.Parse(inner.URL)
	if err != nil {
		t.Fatal(err)
	}
	// A registry that sends its clients on, and one that sends them there for a token.
	redirects := httptest.NewServer(http.RedirectHandler(inner.URL+"/v2/", http.StatusTemporaryRedirect))
	defer redirects.Close()
	realm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+inner.URL+`/latest/meta-data",service="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer realm.Close()
	host := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	localhost := strings.Replace(host(inner), "127.0.0.1", "localhost", 1)

	for name, tt := range map[string]struct {
		module  string
		options Options
		want    string
		asks    bool
	}{
		"loopback":               {"registry://" + host(inner) + "/p:1", Options{}, "127.0.0.1 is an address of this machine", false},
		"a name of loopback":     {"registry://" + localhost + "/p:1", Options{}, "is an address of this machine", false},
		"https":                  {"https://" + host(inner) + "/p.wasm#sha256:" + strings.Repeat("0", 64), Options{}, "is an address of this machine", false},
		"link-local":             {"https://169.254.169.254/p.wasm#sha256:" + strings.Repeat("0", 64), Options{}, "169.254.169.254 is an address", false},
		"private":                {"registry://10.0.0.1/p:1", Options{}, "10.0.0.1 is an address", false},
		"IPv6":                   {"registry://[fd00::1]:443/p:1", Options{}, "fd00::1 is an address", false},
		"insecure is listed":     {"registry://" + host(inner) + "/p:1", Options{Insecure: []string{host(inner)}}, "", true},
		"NAT64":                  {"registry://[64:ff9b::a00:1]:443/p:1", Options{}, "64:ff9b::a00:1 is an address", false},
		"6to4":                   {"registry://[2002:a00:1::]:443/p:1", Options{}, "2002:a00:1:: is an address", false},
		"reserved":               {"registry://240.0.0.1/p:1", Options{}, "240.0.0.1 is an address", false},
		"not in the list":        {"registry://example.com/p:1", Options{Sources: []string{"ghcr.io"}}, "example.com is not among the sources of modules", false},
		"a redirect":             {"registry://" + host(redirects) + "/p:1", Options{Insecure: []string{host(redirects)}}, "is an address of this machine", false},
		"a realm":                {"registry://" + host(realm) + "/p:1", Options{Insecure: []string{host(realm)}}, "is an address of this machine", false},
		"a realm that is listed": {"registry://" + host(realm) + "/p:1", Options{Insecure: []string{host(realm)}, Sources: []string{innerURL.Host}}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			asked = false
			f, err := New(tt.options)
			if err != nil {
				t.Fatal(err)
			}
			s, err := kubewarden.ParseSource(tt.module)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Fetch(t.Context(), s)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if asked != tt.asks {
				t.Errorf("asked: %v", asked)
			}
		})
	}
}

// Through a proxy, addresses in URLs are decided on before the proxy is asked, and the proxy is
// no source itself.
func TestSourcesByProxy(t *testing.T) {
	asked := false
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer proxy.Close()
	t.Setenv("HTTPS_PROXY", proxy.URL)
	for module, want := range map[string]string{
		"registry://10.0.0.1/p:1": "10.0.0.1 is an address",
		"registry://" + strings.TrimPrefix(proxy.URL, "http://") + "/p:1": "is the proxy through which modules are fetched",
	} {
		f, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := kubewarden.ParseSource(module)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Fetch(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) || asked {
			t.Errorf("%s: %v, want %s; asked: %v", module, err, want, asked)
		}
	}
}

// What was fetched before is not used once its host is no longer listed.
func TestSourcesOfWhatIsKept(t *testing.T) {
	wasm := []byte("\x00asm")
	dir := t.TempDir()
	s, err := kubewarden.ParseSource("https://modules.example.com/p.wasm#sha256:" + digestOf(wasm))
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{"modules.example.com": "", "ghcr.io": "modules.example.com is not among the sources"} {
		f, err := New(Options{Dir: dir, Sources: []string{source}})
		if err != nil {
			t.Fatal(err)
		}
		f.cache.put(digestOf(wasm), wasm)
		if _, err := f.Fetch(t.Context(), s); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v, want %q", source, err, want)
		}
	}
}

func TestCheckSources(t *testing.T) {
	if err := CheckSources([]string{"ghcr.io", "localhost:5000", "[::1]:5000"}); err != nil {
		t.Error(err)
	}
	for _, l := range []string{"", "https://ghcr.io", "ghcr.io/team", "a b", ":5000", "user@ghcr.io"} {
		if err := CheckSources([]string{l}); err == nil || !strings.Contains(err.Error(), "must be a host or host:port") {
			t.Errorf("%q: %v", l, err)
		}
	}
}
