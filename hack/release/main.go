// Command release builds what a release of mapd consists of: for each platform an
// archive with the static binary and a bill of materials of what it is made from,
// the checksums of all of these, and the manifest for krew. The same commit, version
// and Go give the same bytes.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

func main() {
	var r release
	only := flag.String("platforms", platforms, "GOOS/GOARCH, separated by commas")
	flag.StringVar(&r.version, "version", "", "of the release, such as v1.2.3")
	flag.StringVar(&r.out, "out", "dist", "directory for the files, which must not exist or be empty")
	flag.Parse()
	r.platforms = strings.Split(*only, ",")
	r.build, r.time, r.site = build, time.Now, "internal/author/playground/site"
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one run of the command.
type release struct {
	version, out string
	platforms    []string
	// build writes the binary for a platform to a file.
	build func(ctx context.Context, version, goos, goarch, file string) error
	time  func() time.Time // of the files in the archives
	site  string           // the folder with the playground's site
}

// siteFiles are files of the site that each binary must have: the page, the names and the
// hash of all files, and mapd for a browser.
var siteFiles = []string{"index.html", "sw.js", "mapd.wasm.gz"}

// archive is one file that a user downloads.
type archive struct {
	goos, goarch, name string
	sum                [sha256.Size]byte
}

func (r *release) run(ctx context.Context) error {
	if v, err := version.ParseSemantic(r.version); err != nil || "v"+v.String() != r.version {
		return fmt.Errorf("version %q: must be a semantic version such as v1.2.3", r.version)
	}
	if err := os.MkdirAll(r.out, 0o777); err != nil {
		return err
	}
	if there, err := os.ReadDir(r.out); err != nil || len(there) > 0 {
		return fmt.Errorf("%s: must be empty", r.out)
	}
	modified, err := commitTime(ctx)
	if err != nil {
		modified = r.time()
	}
	playground := map[string][]byte{}
	for _, name := range siteFiles {
		if playground[name], err = os.ReadFile(filepath.Join(r.site, name)); err != nil {
			return fmt.Errorf("%w: run make web", err)
		}
	}
	var archives []archive
	var sums bytes.Buffer
	add := func(name string, data []byte) ([sha256.Size]byte, error) {
		sum := sha256.Sum256(data)
		fmt.Fprintf(&sums, "%x  %s\n", sum, name)
		return sum, os.WriteFile(filepath.Join(r.out, name), data, 0o666)
	}
	for _, p := range r.platforms {
		goos, goarch, _ := strings.Cut(p, "/")
		base := "mapd_" + r.version + "_" + goos + "_" + goarch
		binary, err := r.binary(ctx, goos, goarch)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		for _, name := range siteFiles {
			if !bytes.Contains(binary, playground[name]) {
				return fmt.Errorf("%s: the binary has no playground: it lacks %s", p, name)
			}
		}
		name, data, err := pack(base, goos, binary, modified)
		if err != nil {
			return err
		}
		sum, err := add(name, data)
		if err != nil {
			return err
		}
		archives = append(archives, archive{goos, goarch, name, sum})
		bill, err := materials(binary, r.version)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if _, err := add(base+".cdx.json", bill); err != nil {
			return err
		}
	}
	manifest, err := krew(r.version, archives)
	if err != nil {
		return err
	}
	if _, err := add("mapd.yaml", manifest); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums.Bytes(), 0o666)
}

func (r *release) binary(ctx context.Context, goos, goarch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "mapd")
	if err := r.build(ctx, r.version, goos, goarch, file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

func build(ctx context.Context, version, goos, goarch, file string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w -X main.release="+version, "-o", file, "./cmd/mapd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// commitTime is when the commit of this tree was made.
func commitTime(ctx context.Context) (time.Time, error) {
	out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}
