// Command release builds the files of a release of mapd: for each platform an archive with the
// static binary; images of the program for clusters, also with Go's FIPS 140-3 module, and the
// Helm chart, each as an OCI layout; bills of materials of the programs; the manifest for krew;
// and provenance (in-toto, SLSA) and checksums of all of these, signed if there is a key. The same
// commit, version, Go and key give the same bytes.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/version"
)

const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

func main() {
	var r release
	only := flag.String("platforms", platforms, "GOOS/GOARCH, separated by commas")
	flag.StringVar(&r.version, "version", "", "of the release, such as v1.2.3")
	flag.StringVar(&r.out, "out", "dist", "directory for the files, which must not exist or be empty")
	flag.BoolVar(&r.chartOnly, "chart-only", false, "make the chart and nothing else")
	key := flag.String("key", "", "file with a private key (PEM, ECDSA on P-256, no passphrase) that signs SHA256SUMS and the provenance")
	flag.StringVar(&r.builder, "builder", "https://github.com/mapd-project/mapd/hack/release", "who builds, for the provenance")
	flag.Parse()
	r.platforms = strings.Split(*only, ",")
	r.build, r.time, r.head, r.site = build, time.Now, head, "internal/author/playground/site"
	if *key != "" {
		var err error
		if r.key, err = readKey(*key); err != nil {
			fmt.Fprintln(os.Stderr, "release: -key:", err)
			os.Exit(1)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release has the options of one run of the command.
type release struct {
	version, out string
	platforms    []string
	chartOnly    bool
	builder      string            // in the provenance
	key          *ecdsa.PrivateKey // nil: nothing is signed
	// build writes the binary for a target to a file.
	build func(ctx context.Context, version string, t target, file string) error
	time  func() time.Time                      // of the files in the archives
	head  func(context.Context) (string, error) // the commit
	site  string                                // the folder with the playground's site
}

// target is what a binary is built for.
type target struct {
	goos, goarch string
	// server: the program for clusters, which has only the command serve. fips: it uses Go's FIPS
	// 140-3 module.
	server, fips bool
}

// fipsModule is the version of Go's Cryptographic Module: https://go.dev/doc/security/fips140.
const fipsModule = "v1.0.0"

// description is the description of images and of the chart.
const description = "MutatingAdmissionPolicies for clusters whose API server does not run them"

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
	if r.chartOnly {
		charts, err := chart(r.version, modified)
		for _, f := range charts {
			err = errors.Join(err, os.WriteFile(filepath.Join(r.out, f.name), f.data, 0o666))
		}
		return err
	}
	playground := map[string][]byte{}
	for _, name := range siteFiles {
		if playground[name], err = os.ReadFile(filepath.Join(r.site, name)); err != nil {
			return fmt.Errorf("%w: run make web", err)
		}
	}
	commit, err := r.head(ctx)
	if err != nil && r.key != nil {
		return err // a signed statement must name the commit that was built
	}
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	built, err := r.buildAll(ctx, func(t target, binary []byte) (*program, error) {
		if t.server {
			return r.server(t, binary, licence, modified)
		}
		return r.archive(t, binary, playground, modified)
	})
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	var subjects []artifact
	add := func(f file) error {
		sum := fmt.Sprintf("%x", sha256.Sum256(f.data))
		fmt.Fprintf(&sums, "%s  %s\n", sum, f.name)
		subjects = append(subjects, artifact{f.name, map[string]string{"sha256": sum}})
		return os.WriteFile(filepath.Join(r.out, f.name), f.data, 0o666)
	}
	var archives []archive
	for _, p := range built {
		if p.server {
			continue
		}
		archives = append(archives, archive{p.goos, p.goarch, p.files[0].name, sha256.Sum256(p.files[0].data)})
		for _, f := range p.files {
			if err := add(f); err != nil {
				return err
			}
		}
	}
	for _, fips := range []bool{false, true} {
		name, tag := r.image(fips)
		var programs []*program
		for _, p := range built {
			if !p.server || p.fips != fips {
				continue
			}
			programs = append(programs, p)
			for _, f := range p.files {
				if err := add(f); err != nil {
					return err
				}
			}
		}
		data, err := image(r.version, tag, programs, modified)
		if err != nil {
			return err
		}
		if err := add(file{name: name + ".tar", data: data}); err != nil {
			return err
		}
	}
	charts, err := chart(r.version, modified)
	if err != nil {
		return err
	}
	for _, f := range charts {
		if err := add(f); err != nil {
			return err
		}
	}
	manifest, err := krew(r.version, archives)
	if err != nil {
		return err
	}
	if err := add(file{name: "mapd.yaml", data: manifest}); err != nil {
		return err
	}
	origin, err := r.provenance(subjects, commit)
	if err != nil {
		return err
	}
	enclosed, err := enclose(r.key, origin)
	if err != nil {
		return err
	}
	text, err := line(enclosed)
	if err != nil {
		return err
	}
	if err := add(file{name: "mapd_" + r.version + ".intoto.jsonl", data: text}); err != nil {
		return err
	}
	if r.key != nil {
		signed, err := r.signatures(sums.Bytes(), enclosed)
		if err != nil {
			return err
		}
		for name, data := range signed {
			if err := os.WriteFile(filepath.Join(r.out, name), data, 0o666); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums.Bytes(), 0o666)
}

// program is the result of one build.
type program struct {
	target
	files []file // for the release: the archive, if there is one, and the bill of materials
	layer layer  // for the image, if there is one
}

// builds is how many builds run at once. While one links and packs, which uses one processor, the
// other compiles.
const builds = 2

// buildAll builds all targets and returns the results of use, in the order of the release: by
// platform, then by architecture of each image. Builds of one platform share compiled packages, so
// they run one after the other; those with the FIPS 140-3 module share less and come last.
func (r *release) buildAll(ctx context.Context, use func(target, []byte) (*program, error)) ([]*program, error) {
	var targets []target
	var chains [][]int
	for _, p := range r.platforms {
		goos, goarch, _ := strings.Cut(p, "/")
		chains = append(chains, []int{len(targets)})
		targets = append(targets, target{goos: goos, goarch: goarch})
	}
	for _, fips := range []bool{false, true} {
		for i, t := range targets[:len(r.platforms)] {
			switch {
			case t.goos != "linux":
				continue
			case fips:
				chains = append(chains, []int{len(targets)})
			default:
				chains[i] = append(chains[i], len(targets))
			}
			targets = append(targets, target{t.goos, t.goarch, true, fips})
		}
	}
	built := make([]*program, len(targets))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(builds)
	for _, chain := range chains {
		group.Go(func() error {
			for _, i := range chain {
				binary, err := r.binary(ctx, targets[i])
				if err == nil {
					built[i], err = use(targets[i], binary)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", targets[i], err)
				}
			}
			return nil
		})
	}
	return built, group.Wait()
}

func (t target) String() string {
	text := t.goos + "/" + t.goarch
	if t.server {
		text = "image for " + text
	}
	if t.fips {
		text += " with the FIPS 140-3 module"
	}
	return text
}

// archive returns the archive that a user downloads, and its bill of materials.
func (r *release) archive(t target, binary []byte, playground map[string][]byte, modified time.Time) (*program, error) {
	for _, name := range siteFiles {
		if !bytes.Contains(binary, playground[name]) {
			return nil, fmt.Errorf("the binary has no playground: it lacks %s", name)
		}
	}
	base := "mapd_" + r.version + "_" + t.goos + "_" + t.goarch
	name, data, err := pack(base, t.goos, binary, modified)
	if err != nil {
		return nil, err
	}
	bill, err := materials(binary, r.version, true)
	return &program{target: t, files: []file{{name: name, data: data}, {name: base + ".cdx.json", data: bill}}}, err
}

// server returns the layer of an image, and its bill of materials.
func (r *release) server(t target, binary, licence []byte, modified time.Time) (*program, error) {
	l, err := newLayer([]file{{"LICENSE", 0o644, licence}, {"mapd", 0o755, binary}}, modified)
	if err != nil {
		return nil, err
	}
	name, _ := r.image(t.fips)
	bill, err := materials(binary, r.version, false)
	return &program{target: t, files: []file{{name: name + "_" + t.goos + "_" + t.goarch + ".cdx.json", data: bill}}, layer: l}, err
}

// image returns the prefix of the names of an image's files, and its tag.
func (r *release) image(fips bool) (name, tag string) {
	name, tag = "mapd_"+r.version+"_image", r.version
	if fips {
		name, tag = name+"-fips", tag+"-fips"
	}
	return name, tag
}

func (r *release) binary(ctx context.Context, t target) ([]byte, error) {
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "mapd")
	if err := r.build(ctx, r.version, t, file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

func build(ctx context.Context, version string, t target, file string) error {
	args := []string{"build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w -X main.release=" + version, "-o", file}
	if t.server {
		args = append(args, "-tags", "server")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/mapd")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.goos, "GOARCH="+t.goarch, "GOFIPS140=off")
	if t.fips {
		cmd.Env = append(cmd.Env, "GOFIPS140="+fipsModule)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	fmt.Fprintln(os.Stderr, "release: built", t) // shows progress: without a build cache, all builds take half an hour
	if !t.fips {
		return nil
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "GOFIPS140" && strings.HasPrefix(s.Value, fipsModule+"-")
	}) {
		return errors.New("the program does not say that it has Go's FIPS 140-3 module")
	}
	return nil
}

// commitTime returns the time of the commit that is checked out.
func commitTime(ctx context.Context) (time.Time, error) {
	out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}
