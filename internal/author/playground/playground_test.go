package playground

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const testPolicy = "default-src 'none'; script-src 'self'"

// small is a site of two pages, for a tree in which nobody ran "make web".
var small = fstest.MapFS{
	".keep":           {},
	"index.html":      {Data: []byte(`<!doctype html><meta http-equiv="Content-Security-Policy" content="` + testPolicy + `"><script src="main.js"></script>`)},
	"docs/index.html": {Data: []byte(`<!doctype html><meta http-equiv="Content-Security-Policy" content="` + testPolicy + `"><a href="../index.html#1.x">open</a>`)},
	"main.js":         {Data: []byte("1\n")},
	"mapd.wasm.gz":    {Data: []byte("\x1f\x8b\x08")},
	"odd.bin":         {Data: []byte("<html>")},
}

// sites are the small site and, if "make web" has run, the one of this program.
func sites() map[string]fs.FS {
	all := map[string]fs.FS{"small": small}
	if site := Site(); site != nil {
		all["embedded"] = site
	}
	return all
}

func get(h http.Handler, method, target string, header ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) []byte {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// names lists the files of a site that are served.
func names(t *testing.T, site fs.FS) []string {
	t.Helper()
	var out []string
	err := fs.WalkDir(site, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != ".keep" {
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Every file is served as it is, with its type, once, and with the same headers.
func TestFiles(t *testing.T) {
	for name, site := range sites() {
		t.Run(name, func(t *testing.T) {
			h, err := NewHandler(site, "localhost")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names(t, site) {
				want, err := fs.ReadFile(site, name)
				if err != nil {
					t.Fatal(err)
				}
				at := "http://localhost/" + (&url.URL{Path: name}).EscapedPath()
				r := get(h, "GET", at)
				if got := body(t, r); r.StatusCode != 200 || !bytes.Equal(got, want) {
					t.Errorf("%s: %d, %d bytes", name, r.StatusCode, len(got))
				}
				kind := types[path.Ext(name)]
				if kind == "" && name == "odd.bin" {
					kind = "application/octet-stream"
				}
				if got := r.Header.Get("Content-Type"); got != kind || r.Header.Get("Content-Encoding") != "" {
					t.Errorf("%s: type %q, want %q; encoding %q", name, got, kind, r.Header.Get("Content-Encoding"))
				}
				if again := get(h, "GET", at, "If-None-Match", r.Header.Get("ETag")); again.StatusCode != 304 || len(body(t, again)) > 0 {
					t.Errorf("%s again: %d", name, again.StatusCode)
				}
				if head := get(h, "HEAD", at); head.StatusCode != 200 || len(body(t, head)) > 0 || head.ContentLength != int64(len(want)) {
					t.Errorf("HEAD %s: %d, length %d", name, head.StatusCode, head.ContentLength)
				}
			}
			for _, at := range []string{"/", "/index.html", "/nosuch", "/.keep", "/site", "/main.js/", "//index.html", "/../go.mod", "/%2e%2e/go.mod"} {
				r := get(h, "GET", "http://localhost"+at)
				want := 404
				if at == "/" || at == "/index.html" {
					want = 200
				}
				if r.StatusCode != want {
					t.Errorf("%s: %d", at, r.StatusCode)
				}
				for header, want := range map[string]string{
					"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
				} {
					if got := r.Header.Get(header); got != want {
						t.Errorf("%s: %s: %q", at, header, got)
					}
				}
				if policy := r.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; ") || !strings.HasSuffix(policy, "; frame-ancestors 'none'") {
					t.Errorf("%s: %s", at, policy)
				}
				if r.Header.Get("Permissions-Policy") == "" || want == 200 && r.Header.Get("Cache-Control") != "no-cache" {
					t.Errorf("%s: %v", at, r.Header)
				}
			}
		})
	}
}

// A file that changed has another tag, whatever its time says.
func TestTags(t *testing.T) {
	tag := func(text string) string {
		h, err := NewHandler(fstest.MapFS{"index.html": small["index.html"], "main.js": {Data: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		return get(h, "GET", "/main.js").Header.Get("ETag")
	}
	one, same, two := tag("1"), tag("1"), tag("2")
	if one != same || one == two {
		t.Errorf("%s, %s, %s", one, same, two)
	}
}

func TestDirectories(t *testing.T) {
	h, err := NewHandler(small)
	if err != nil {
		t.Fatal(err)
	}
	if r := get(h, "GET", "http://anything/docs/"); r.StatusCode != 200 || !bytes.Equal(body(t, r), small["docs/index.html"].Data) {
		t.Errorf("/docs/: %d", r.StatusCode)
	}
	if r := get(h, "GET", "http://anything/docs"); r.StatusCode != 302 || r.Header.Get("Location") != "/docs/" {
		t.Errorf("/docs: %d, %v", r.StatusCode, r.Header)
	}
}

func TestMethods(t *testing.T) {
	h, err := NewHandler(small)
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"} {
		if r := get(h, method, "/"); r.StatusCode != 405 || r.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, %v", method, r.StatusCode, r.Header)
		}
	}
}

// A page from elsewhere whose name leads to a loopback address reads nothing.
func TestHosts(t *testing.T) {
	h, err := NewHandler(small, "localhost", "127.0.0.1", "::1")
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:1": 200, "127.0.0.1:6273": 200, "[::1]:6273": 200, "[::1]": 200,
		"evil.example:6273": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example:6273": 403, "192.0.2.1:6273": 403,
		"": 403, "[": 403, "localhost:1:2": 403, "127.0.0.1@evil.example": 403,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want || want == 403 && strings.Contains(w.Body.String(), "<script") {
			t.Errorf("%q: %d", host, w.Code)
		}
	}
}

func TestBrokenSites(t *testing.T) {
	if _, err := NewHandler(fstest.MapFS{"main.js": small["main.js"]}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := NewHandler(fstest.MapFS{"index.html": {Data: []byte("<!doctype html>")}}); err == nil || err.Error() != "index.html has no Content-Security-Policy" {
		t.Error(err)
	}
}

// The pages allow themselves no more than they need, and all the same.
func TestPolicyOfThePages(t *testing.T) {
	source, err := os.ReadFile("../../../web/app/src/index.html")
	if err != nil {
		t.Fatal(err)
	}
	want, err := policyOf(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, directive := range []string{
		"default-src 'none'", "script-src 'self' 'wasm-unsafe-eval'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'",
		"form-action 'none'", "require-trusted-types-for 'script'", "trusted-types mapd", "frame-ancestors 'none'",
	} {
		if !slices.Contains(strings.Split(want, "; "), directive) {
			t.Errorf("no directive %s in %s", directive, want)
		}
	}
	site := Site()
	if site == nil {
		return // the source is what the site would have
	}
	for _, name := range names(t, site) {
		if path.Ext(name) == ".html" {
			page, err := fs.ReadFile(site, name)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := policyOf(page); err != nil || got != want {
				t.Errorf("%s: %v (-index.html +%s)\n%s", name, err, name, cmp.Diff(want, got))
			}
		}
	}
}

var reference = regexp.MustCompile(`<(?:a|img|link|script|source)\b[^>]*\b(?:href|src)="([^"]*)"`)

// The folder works on any static host and below any path: its pages name files of the
// folder only, by relative names.
func TestForeignHost(t *testing.T) {
	for name, site := range sites() {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.StripPrefix("/deep/below/", http.FileServerFS(site)))
			defer server.Close()
			found := map[string]bool{}
			for _, name := range names(t, site) {
				if path.Ext(name) != ".html" {
					continue
				}
				page, err := fs.ReadFile(site, name)
				if err != nil {
					t.Fatal(err)
				}
				base, err := url.Parse(server.URL + "/deep/below/" + name)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range reference.FindAllSubmatch(page, -1) {
					ref, err := url.Parse(html.UnescapeString(string(m[1])))
					if err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					if ref.Scheme == "https" && bytes.HasPrefix(m[0], []byte("<a ")) {
						continue // a link to read on elsewhere
					}
					to := base.ResolveReference(ref)
					to.Fragment = ""
					if !strings.HasPrefix(to.String(), server.URL+"/deep/below/") {
						t.Errorf("%s leads out of the folder: %s", name, m[1])
						continue
					}
					if found[to.String()] {
						continue
					}
					found[to.String()] = true
					r, err := http.Get(to.String())
					if err != nil {
						t.Fatal(err)
					}
					r.Body.Close()
					if r.StatusCode != 200 {
						t.Errorf("%s: %s: %s", name, m[1], r.Status)
					}
				}
			}
			if len(found) == 0 {
				t.Error("no page names a file: they are not read as they are written")
			}
		})
	}
}

func TestListen(t *testing.T) {
	listeners, err := Listen("", 0)
	if err != nil {
		t.Fatal(err)
	}
	port := listeners[0].Addr().(*net.TCPAddr).Port
	for _, l := range listeners {
		defer l.Close()
		if a := l.Addr().(*net.TCPAddr); !a.IP.IsLoopback() || a.Port != port {
			t.Errorf("listens on %s", a)
		}
	}
	if again, err := Listen("", port); err == nil {
		t.Errorf("a port that is in use: %v", again)
	}
	one, err := Listen("127.0.0.1", 0)
	if err != nil || len(one) != 1 {
		t.Fatal(one, err)
	}
	one[0].Close()
}

// When its context ends the server lets answers under way finish, and then is gone.
func TestServeEnds(t *testing.T) {
	listeners, err := Listen("", 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	asked := make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		end()
		fmt.Fprint(w, "whole")
	})
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, h, listeners...) }()
	answer := make(chan string, 1)
	go func() {
		r, err := http.Get("http://" + listeners[0].Addr().String())
		if err != nil {
			answer <- err.Error()
			return
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		answer <- string(text)
	}()
	<-asked
	if got := <-answer; got != "whole" {
		t.Errorf("the answer under way: %s", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, l := range listeners {
		if err := l.Close(); err == nil {
			t.Errorf("%s is still listened on", l.Addr())
		}
	}
}

// A listener that fails ends the server with its error.
func TestServeFails(t *testing.T) {
	listeners, err := Listen("", 0)
	if err != nil {
		t.Fatal(err)
	}
	listeners[0].Close()
	if err := Serve(t.Context(), http.NotFoundHandler(), listeners...); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// stateOf reads a link as the page does.
func stateOf(t *testing.T, fragment string) (s State) {
	t.Helper()
	packed, ok := strings.CutPrefix(fragment, "1.")
	if !ok {
		t.Fatalf("version: %.10s", fragment)
	}
	data, err := base64.RawURLEncoding.DecodeString(packed)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(flate.NewReader(bytes.NewReader(data))).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFragment(t *testing.T) {
	for _, s := range []State{
		{Documents: []Text{}, Objects: []Text{}},
		{
			Documents: []Text{{"policy.yaml", "a: '<script>'\n# ü 😀 \u2028\r\n"}, {"b", ""}},
			Objects:   []Text{{"pod.yaml", strings.Repeat("kind: Pod\n", 30_000)}},
		},
	} {
		link, err := Fragment(s)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(s, stateOf(t, link)); d != "" {
			t.Errorf("-before +after\n%.1000s", d)
		}
		if u, err := url.Parse("http://localhost/#" + link); err != nil || u.EscapedFragment() != link {
			t.Errorf("%.50s is not what a URL has: %v", link, err)
		}
	}
}

// The page's links and those of this package are the same; web/app/test/link.test.ts is
// the other half of this test.
func TestLinksOfThePage(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	var want State
	if err := json.Unmarshal([]byte(read("state.json")), &want); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"page.link", "go.link"} {
		if d := cmp.Diff(want, stateOf(t, read(name))); d != "" {
			t.Errorf("%s (-state.json +link)\n%s", name, d)
		}
	}
	if link, err := Fragment(want); err != nil || link != read("go.link") {
		t.Errorf("go.link is not what is written now: %v\n%s", err, link)
	}
}

// A link that no browser would open is not made.
func TestFragmentBounds(t *testing.T) {
	_, err := Fragment(State{Objects: []Text{{"a", strings.Repeat("\n", MaxState/2)}}})
	if err == nil || !strings.HasSuffix(err.Error(), "bytes as JSON: at most 4194304 fit in a link") {
		t.Error(err)
	}
	_, err = Fragment(State{Objects: make([]Text, maxTexts+1)})
	if err == nil || err.Error() != "1001 files are too many: at most 1000 fit in a link" {
		t.Error(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, maxLink*5/4)
	for i := range noise {
		noise[i] = byte('0' + random.IntN(40))
	}
	_, err = Fragment(State{Objects: []Text{{"a", string(noise)}}})
	if err == nil || !strings.HasSuffix(err.Error(), "bytes: at most 2000000, since a browser opens none that is longer") {
		t.Error(err)
	}
}

// Other machines get texts packed, and the program as it is.
func TestPacked(t *testing.T) {
	text := strings.Repeat("one line of many\n", 100)
	h, err := NewHandler(fstest.MapFS{"index.html": small["index.html"], "main.js": {Data: []byte(text)}, "mapd.wasm.gz": {Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path, from, accept string) *http.Response {
		r := httptest.NewRequest("GET", "http://localhost"+path, nil)
		r.RemoteAddr = from
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	const far, near = "192.0.2.1:1234", "127.0.0.1:1234"
	plain := ask("/main.js", near, "gzip")
	for range 2 {
		got := ask("/main.js", far, "br, gzip")
		if got.Header.Get("Content-Encoding") != "gzip" || got.Header.Get("ETag") == plain.Header.Get("ETag") || got.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("headers %v", got.Header)
		}
		if packed := body(t, got); len(packed) > len(text)/4 {
			t.Errorf("%d bytes of %d", len(packed), len(text))
		} else if r, err := gzip.NewReader(bytes.NewReader(packed)); err != nil {
			t.Error(err)
		} else if unpacked, err := io.ReadAll(r); err != nil || string(unpacked) != text {
			t.Errorf("%.50q, %v", unpacked, err)
		}
	}
	for _, tt := range [][3]string{{"/main.js", near, "gzip"}, {"/main.js", "[::1]:1", "gzip"}, {"/main.js", far, "br"}, {"/main.js", far, "gzip;q=0"}, {"/mapd.wasm.gz", far, "gzip"}} {
		if got := ask(tt[0], tt[1], tt[2]); got.Header.Get("Content-Encoding") != "" || string(body(t, got)) != text {
			t.Errorf("%v: headers %v", tt, got.Header)
		}
	}
}
