package download_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mapd-project/mapd/internal/kubewarden/download"
	"github.com/mapd-project/mapd/pkg/kubewarden"
)

const module = "\x00asm\x01\x00\x00\x00"

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// registry serves modules and OCI artifacts, and counts what it is asked.
type registry struct {
	*httptest.Server
	asked atomic.Int64
	down  atomic.Bool
}

func newRegistry(t *testing.T) *registry {
	r := &registry{}
	manifest := func(layer, typ string, size int) string {
		return fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.wasm.config.v1+json","digest":"sha256:%s","size":2},"layers":[{"mediaType":%q,"digest":"sha256:%s","size":%d}]}`,
			digest("{}"), typ, digest(layer), size)
	}
	const wasm = "application/vnd.wasm.content.layer.v1+wasm"
	manifests := map[string]string{
		"good":  manifest(module, wasm, len(module)),
		"image": manifest(module, "application/vnd.oci.image.layer.v1.tar+gzip", len(module)),
		"huge":  manifest(module, wasm, 1<<30),
		"lying": manifest("something else", wasm, len(module)),
		"empty": `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","layers":[]}`,
	}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.asked.Add(1)
		path := req.URL.Path
		name := path[strings.LastIndex(path, "/")+1:]
		switch {
		case r.down.Load():
			w.WriteHeader(http.StatusInternalServerError)
		case path == "/p.wasm", path == "/text":
			fmt.Fprint(w, map[string]string{"/p.wasm": module, "/text": "hello"}[path])
		case path == "/away":
			http.Redirect(w, req, "http://example.invalid/p.wasm", http.StatusFound)
		case path == "/large":
			w.Write(make([]byte, 2<<20))
		case strings.HasPrefix(path, "/v2/a/b/manifests/"):
			for tag, text := range manifests {
				if name == tag || name == "sha256:"+digest(text) || name == "latest" && tag == "good" {
					w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
					w.Header().Set("Docker-Content-Digest", "sha256:"+digest(text))
					fmt.Fprint(w, text)
					return
				}
			}
			w.WriteHeader(http.StatusNotFound)
		case strings.HasPrefix(path, "/v2/a/b/blobs/"):
			fmt.Fprint(w, module)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func fetch(t *testing.T, f *download.Fetcher, url string) (string, error) {
	t.Helper()
	s, err := kubewarden.ParseSource(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Fetch(t.Context(), s)
	return string(b), err
}

func newFetcher(t *testing.T, o download.Options) *download.Fetcher {
	t.Helper()
	f, err := download.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFetch(t *testing.T) {
	r := newRegistry(t)
	host := strings.TrimPrefix(r.URL, "https://")
	dir := t.TempDir()
	for name, text := range map[string]string{"p.wasm": module, "text": "hello"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client := r.Client()
	f := newFetcher(t, download.Options{MaxBytes: 1 << 20, Client: client, Local: map[string]string{"ghcr.io/a/b:v1": filepath.Join(dir, "p.wasm")}})
	tests := map[string]struct{ url, err string }{
		"file":          {url: "file://" + dir + "/p.wasm"},
		"local":         {url: "registry://ghcr.io/a/b:v1"},
		"https":         {url: r.URL + "/p.wasm#sha256:" + digest(module)},
		"tag":           {url: host + "/a/b:good"},
		"no tag":        {url: host + "/a/b"},
		"no module":     {url: "file://" + dir + "/text", err: `not WebAssembly: it does not begin with \0asm`},
		"a directory":   {url: "file://" + dir, err: "not a regular file"},
		"no file":       {url: "file://" + dir + "/none", err: "no such file or directory"},
		"other bytes":   {url: r.URL + "/text#sha256:" + digest(module), err: "has the digest sha256:" + digest("hello") + " instead of sha256:" + digest(module)},
		"not there":     {url: r.URL + "/none#sha256:" + digest(module), err: "the server answers 404 Not Found"},
		"too large":     {url: r.URL + "/large#sha256:" + digest(module), err: "larger than 1 MiB"},
		"an image":      {url: host + "/a/b:image", err: `the first layer has type "application/vnd.oci.image.layer.v1.tar+gzip"`},
		"a huge layer":  {url: host + "/a/b:huge", err: "larger than 1 MiB"},
		"a lying layer": {url: host + "/a/b:lying", err: "mismatch"},
		"no layers":     {url: host + "/a/b:empty", err: "without layers"},
		"no artifact":   {url: host + "/a/b:none", err: "not found"},
		"no reference":  {url: host + "/A/b:none", err: "not the reference of an OCI artifact"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := fetch(t, f, tt.url)
			switch {
			case tt.err == "" && (err != nil || got != module):
				t.Errorf("%q, %v", got, err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.HasPrefix(err.Error(), "module "+tt.url)):
				t.Errorf("error %v, want %s", err, tt.err)
			}
		})
	}
}

// A redirect must not lead away from https.
func TestRedirect(t *testing.T) {
	r := newRegistry(t)
	f := newFetcher(t, download.Options{Client: &http.Client{Transport: r.Client().Transport, CheckRedirect: download.CheckRedirect}})
	_, err := fetch(t, f, r.URL+"/away#sha256:"+digest(module))
	if err == nil || !strings.Contains(err.Error(), "redirected from https to http") {
		t.Errorf("error %v", err)
	}
}

// What is in the directory needs no network, unless the tag is latest; bytes that are
// not what they were are fetched again, and the directory keeps within its bound.
func TestCache(t *testing.T) {
	r := newRegistry(t)
	host := strings.TrimPrefix(r.URL, "https://")
	dir := t.TempDir()
	f := newFetcher(t, download.Options{Dir: dir, Client: r.Client()})
	urls := []string{r.URL + "/p.wasm#sha256:" + digest(module), host + "/a/b:good"}
	for _, url := range append(urls, host+"/a/b") {
		if _, err := fetch(t, f, url); err != nil {
			t.Fatal(err)
		}
	}
	asked := r.asked.Load()
	r.down.Store(true)
	again := newFetcher(t, download.Options{Dir: dir, Client: r.Client()})
	for _, url := range urls {
		if got, err := fetch(t, again, url); err != nil || got != module {
			t.Errorf("%s: %q, %v", url, got, err)
		}
	}
	if n := r.asked.Load(); n != asked {
		t.Errorf("%d requests for what was there", n-asked)
	}
	if _, err := fetch(t, again, host+"/a/b"); err == nil {
		t.Error("latest was not asked for again")
	}

	path := filepath.Join(dir, "sha256-"+digest(module)+".wasm")
	if err := os.WriteFile(path, []byte("\x00asm, but another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(t, again, urls[0]); err == nil {
		t.Error("bytes with another digest were taken")
	}
	r.down.Store(false)
	if got, err := fetch(t, again, urls[0]); err != nil || got != module {
		t.Errorf("%q, %v", got, err)
	}

	tight := newFetcher(t, download.Options{Dir: dir, DirBytes: 1, Client: r.Client()})
	if _, err := fetch(t, tight, urls[1]); err != nil {
		t.Fatal(err)
	}
	small := newFetcher(t, download.Options{Dir: t.TempDir(), DirBytes: 600, Client: r.Client()})
	for _, url := range urls {
		if _, err := fetch(t, small, url); err != nil {
			t.Fatal(err)
		}
	}
}
