// Package playground answers one question: how does the playground's site, which runs mapd in a
// browser, get into a browser on this machine?
//
// The site consists of static files that "make web" builds into the folder site, and which this
// package embeds. A mapd that was built without them has no playground. Only these files are
// served, and no request changes anything: a reader's texts stay in the browser, and a link to
// them is a text (Fragment). Start reading at NewHandler.
package playground

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"path"
	"regexp"
	"strings"
	"sync"
)

//go:embed all:site
var embedded embed.FS

// Site returns the files of the site, or nil if this program was built without them.
func Site() fs.FS {
	site, err := fs.Sub(embedded, "site")
	if err != nil {
		return nil
	}
	if _, err := fs.Stat(site, index); err != nil {
		return nil
	}
	return site
}

const index = "index.html"

// types are the content types by the end of a name. The program is gzip and no
// encoding of something else: the page unpacks it, so that it does on any server.
var types = map[string]string{
	".css":          "text/css; charset=utf-8",
	".descriptions": "application/octet-stream",
	".gz":           "application/gzip",
	".html":         "text/html; charset=utf-8",
	".ico":          "image/x-icon",
	".js":           "text/javascript; charset=utf-8",
	".json":         "application/json",
	".md":           "text/plain; charset=utf-8",
	".png":          "image/png",
	".schema":       "application/octet-stream",
	".svg":          "image/svg+xml",
	".txt":          "text/plain; charset=utf-8",
	".wasm":         "application/wasm",
	".webmanifest":  "application/manifest+json",
	".yaml":         "text/plain; charset=utf-8",
}

// Handler serves a site.
type Handler struct {
	site   fs.FS
	files  map[string]file // by path of the URL
	policy string          // the header Content-Security-Policy
	hosts  []string        // the names and addresses that requests may be for; none: any
	packed sync.Map        // by name, see pack
}

// file is what a path of a URL leads to.
type file struct {
	name, tag string
	to        string // if not empty, the path that has the file
}

// NewHandler returns a Handler for the files of site, which must not change. If there are hosts,
// it serves only requests for one of them. That matters on loopback addresses: a foreign page's
// host name could resolve to them, and that page would then have the same origin.
func NewHandler(site fs.FS, hosts ...string) (*Handler, error) {
	h := &Handler{site: site, hosts: hosts, files: map[string]file{}}
	err := fs.WalkDir(site, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		data, err := fs.ReadFile(site, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		f := file{name: name, tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`}
		at := "/" + name
		h.files[at] = f
		if d.Name() == index {
			dir := strings.TrimSuffix(at, index)
			h.files[dir] = f
			if dir != "/" {
				h.files[strings.TrimSuffix(dir, "/")] = file{to: dir}
			}
		}
		if name == index {
			h.policy, err = policyOf(data)
		}
		return err
	})
	if err == nil && h.policy == "" {
		err = fmt.Errorf("%s: %w", index, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

var policyMeta = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy" content="([^"]+)">`)

// policyOf returns the policy that a page has in itself, for the header. The worker
// and all other files get the same.
func policyOf(page []byte) (string, error) {
	m := policyMeta.FindSubmatch(page)
	if m == nil {
		return "", fmt.Errorf("%s has no Content-Security-Policy", index)
	}
	// A page cannot say this one in itself.
	return html.UnescapeString(string(m[1])) + "; frame-ancestors 'none'", nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", h.policy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), hid=(), microphone=(), midi=(), payment=(), serial=(), usb=()")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	if !h.answersTo(r.Host) {
		http.Error(w, "this server answers to localhost and loopback addresses only", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	f, ok := h.files[r.URL.Path]
	switch {
	case !ok:
		http.Error(w, "no such file", http.StatusNotFound)
		return
	case f.to != "":
		http.Redirect(w, r, f.to, http.StatusFound)
		return
	}
	content, err := h.site.Open(f.name)
	if err != nil {
		http.Error(w, "the file cannot be read", http.StatusInternalServerError)
		return
	}
	defer content.Close()
	seeker, ok := content.(io.ReadSeeker)
	info, err := content.Stat()
	if err != nil || !ok {
		http.Error(w, "the file cannot be read", http.StatusInternalServerError)
		return
	}
	kind := types[path.Ext(f.name)]
	if kind == "" {
		kind = "application/octet-stream"
	}
	header.Set("Content-Type", kind)
	header.Set("ETag", f.tag)
	// Each build of the site has the same names, so a browser asks each time whether
	// what it has is still right.
	header.Set("Cache-Control", "no-cache")
	if packs[path.Ext(f.name)] {
		header.Set("Vary", "Accept-Encoding")
		if elsewhere(r) && acceptsGzip(r.Header.Get("Accept-Encoding")) {
			packed, err := h.pack(f.name, seeker)
			if err != nil {
				http.Error(w, "the file cannot be read", http.StatusInternalServerError)
				return
			}
			header.Set("Content-Encoding", "gzip")
			header.Set("ETag", strings.TrimSuffix(f.tag, `"`)+`-gzip"`)
			seeker = bytes.NewReader(packed)
		}
	}
	http.ServeContent(w, r, f.name, info.ModTime(), seeker)
}

// packs are the ends of names of texts, which become a third of their size. The program is
// packed already.
var packs = map[string]bool{".css": true, ".descriptions": true, ".html": true, ".js": true, ".json": true, ".md": true, ".schema": true, ".svg": true, ".txt": true, ".yaml": true}

// pack returns a file in gzip, which is packed when it is first asked for.
func (h *Handler) pack(name string, content io.Reader) ([]byte, error) {
	if packed, ok := h.packed.Load(name); ok {
		return packed.([]byte), nil
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.Copy(w, content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	h.packed.Store(name, out.Bytes())
	return out.Bytes(), nil
}

// elsewhere reports whether a request comes from another machine: on this one, to unpack takes
// longer than to send.
func elsewhere(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && !from.Addr().Unmap().IsLoopback()
}

// acceptsGzip reports whether a header Accept-Encoding lets gzip in.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, params, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			q := strings.TrimSpace(params)
			return q != "q=0" && !strings.HasPrefix(q, "q=0.0")
		}
	}
	return false
}

// answersTo reports whether h serves requests that are for a host.
func (h *Handler) answersTo(host string) bool {
	if len(h.hosts) == 0 {
		return true
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil { // without a port
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	for _, h := range h.hosts {
		if strings.EqualFold(name, h) {
			return true
		}
	}
	return false
}
