package download

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mapd-project/mapd/internal/atomicfile"
)

// cache stores modules by their SHA-256 in a directory, and the digests of artifacts by their
// reference. Errors of the cache are never reported: what cannot be read from it is fetched
// again. Several processes may use one directory. A nil cache stores nothing.
type cache struct {
	dir   string
	limit int64 // bytes of all files

	mu sync.Mutex
}

const (
	moduleSuffix = ".wasm"
	nameSuffix   = ".name"
)

func (c *cache) path(digest string) string {
	return filepath.Join(c.dir, "sha256-"+digest+moduleSuffix)
}

// get returns the module with a digest, nil if the cache does not have it. A file whose content
// has another digest is removed.
func (c *cache) get(digest string, limit int64) []byte {
	if c == nil {
		return nil
	}
	path := c.path(digest)
	if info, err := os.Stat(path); err != nil || info.Size() > limit {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	if digestOf(b) != digest {
		os.Remove(path)
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now)
	return b
}

func (c *cache) put(digest string, b []byte) {
	if c == nil || int64(len(b)) > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(c.path(digest), b)
	c.trim()
}

// named returns the digest that the module of an artifact had when it was pulled.
func (c *cache) named(reference string) string {
	if c == nil {
		return ""
	}
	b, err := os.ReadFile(c.namePath(reference))
	digest := strings.TrimSpace(string(b))
	if err != nil || len(digest) != 64 || strings.Trim(digest, "0123456789abcdef") != "" {
		return ""
	}
	return digest
}

func (c *cache) name(reference, digest string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(c.namePath(reference), []byte(digest+"\n"))
}

func (c *cache) namePath(reference string) string {
	return filepath.Join(c.dir, digestOf([]byte(reference))+nameSuffix)
}

// write replaces a file. It ignores errors: a module that is not cached is fetched again.
func (c *cache) write(path string, b []byte) { _ = atomicfile.Write(path, b, 0o600) }

// trim removes the files that have not been used for longest, until the others are within the
// limit.
func (c *cache) trim() {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	var files []os.FileInfo
	var size int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		old := time.Since(info.ModTime()) > time.Hour
		switch name := e.Name(); {
		case strings.HasPrefix(name, "fetching-") && old: // left by a process that was killed
			os.Remove(filepath.Join(c.dir, name))
		case strings.HasSuffix(name, moduleSuffix), strings.HasSuffix(name, nameSuffix):
			files, size = append(files, info), size+max(info.Size(), 512)
		}
	}
	slices.SortFunc(files, func(a, b os.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, f := range files {
		if size <= c.limit {
			return
		}
		if os.Remove(filepath.Join(c.dir, f.Name())) == nil {
			size -= max(f.Size(), 512)
		}
	}
}
