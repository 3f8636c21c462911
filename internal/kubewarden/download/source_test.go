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
// however a request comes to them.
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
