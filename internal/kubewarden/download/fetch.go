package download

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/mapd-project/mapd/pkg/kubewarden"
)

// Options configure a Fetcher. The zero value is usable.
type Options struct {
	// Dir is the directory for cached modules; empty: modules are not cached.
	Dir string
	// DirBytes bounds the modules in Dir: 512 MiB if it is 0.
	DirBytes int64
	// MaxBytes bounds one module: 64 MiB if it is 0.
	MaxBytes int64
	// Local maps texts of spec.module to files that are read instead.
	Local map[string]string
	// Credentials is a Docker config.json with the users of registries; empty: none.
	Credentials string
	// Insecure are registries, as host:port, from which modules are fetched over http.
	Insecure []string
	// Sources are the hosts, as host or host:port, from which modules may be fetched. If it is
	// empty, all hosts with public addresses are allowed. A host of Sources or Insecure may have
	// any address.
	Sources []string
	// Client is set by tests; if it is nil, the Fetcher makes its own client.
	Client *http.Client
}

// Fetcher fetches modules. It is safe for concurrent use.
type Fetcher struct {
	options Options
	sources *sources
	local   map[string]string // Options.Local, by the module with its scheme
	cache   *cache
}

// fetchTimeout bounds one download.
const fetchTimeout = 45 * time.Second

// New returns a Fetcher.
func New(o Options) (*Fetcher, error) {
	if o.DirBytes == 0 {
		o.DirBytes = 512 << 20
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
	sources := newSources(o.Sources, o.Insecure)
	if o.Client == nil {
		o.Client = sources.client()
	}
	f := &Fetcher{options: o, sources: sources, local: map[string]string{}}
	for module, path := range o.Local {
		f.local[withScheme(module)] = path
	}
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("directory for modules: %w", err)
		}
		f.cache = &cache{dir: o.Dir, limit: o.DirBytes}
	}
	return f, nil
}

// CheckRedirect refuses a redirect from https to another scheme, and more than five redirects.
func CheckRedirect(r *http.Request, via []*http.Request) error {
	switch {
	case len(via) > 5:
		return errors.New("more than 5 redirects")
	case r.URL.Scheme != "https" && via[0].URL.Scheme == "https":
		return fmt.Errorf("redirected from https to %s", r.URL.Scheme)
	}
	return nil
}

// Fetch returns the bytes of a module. Its errors name the module.
func (f *Fetcher) Fetch(ctx context.Context, s kubewarden.Source) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	wasm, err := f.fetch(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", s.URL, err)
	}
	if !bytes.HasPrefix(wasm, []byte("\x00asm")) {
		return nil, fmt.Errorf("module %s: not WebAssembly: it does not begin with \\0asm", s.URL)
	}
	return wasm, nil
}

func (f *Fetcher) fetch(ctx context.Context, s kubewarden.Source) ([]byte, error) {
	if path, ok := f.local[withScheme(s.URL)]; ok {
		return f.file(path)
	}
	switch s.Scheme {
	case "file":
		return f.file(s.Location)
	case "https":
		u, err := url.Parse(s.Location)
		if err != nil {
			return nil, err
		}
		if err := f.sources.unlisted(withPort(u)); err != nil { // even if the module is cached
			return nil, err
		}
		if wasm := f.cache.get(s.Digest, f.options.MaxBytes); wasm != nil {
			return wasm, nil
		}
		wasm, err := f.download(ctx, s)
		if err == nil {
			f.cache.put(s.Digest, wasm)
		}
		return wasm, err
	}
	return f.pull(ctx, s.Location)
}

// withScheme returns the text of spec.module with the default scheme if it has none.
func withScheme(module string) string {
	if strings.Contains(module, "://") {
		return module
	}
	return "registry://" + module
}

func (f *Fetcher) file(path string) ([]byte, error) {
	// The check comes before the file is opened, because opening a pipe waits for its writer.
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return f.read(file)
}

// read reads all of a module, unless it is too large.
func (f *Fetcher) read(r io.Reader) ([]byte, error) {
	wasm, err := io.ReadAll(io.LimitReader(r, f.options.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if int64(len(wasm)) > f.options.MaxBytes {
		return nil, fmt.Errorf("larger than %d MiB", f.options.MaxBytes>>20)
	}
	return wasm, nil
}

func (f *Fetcher) download(ctx context.Context, s kubewarden.Source) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Location, nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.options.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answers %s", resp.Status)
	}
	wasm, err := f.read(resp.Body)
	if err != nil {
		return nil, err
	}
	if got := digestOf(wasm); got != s.Digest {
		return nil, fmt.Errorf("has the digest sha256:%s instead of sha256:%s", got, s.Digest)
	}
	return wasm, nil
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
