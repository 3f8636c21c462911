// Package kustomize answers one question: which objects does the kustomization in this directory
// make?
//
// It runs kustomize itself, in the version of kubectl -k, without plugins, without Helm and
// without a network: a kustomization that would fetch something is refused. Start reading at
// Build.
package kustomize

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/mapd-project/mapd/internal/document/manifest"
)

const (
	// maxFile bounds the size of a file, maxRead all that is read, and maxResult the result.
	maxFile, maxRead, maxResult = 32 << 20, 256 << 20, 256 << 20
	// maxFiles bounds the number of reads: if several kustomizations each include the next one
	// twice, the number grows exponentially.
	maxFiles = 10_000
)

// building makes calls of Build run one at a time, because Build changes state of the whole
// process.
var building sync.Mutex

// Build returns the objects of the kustomization in a directory as YAML. While it runs, it
// replaces http.DefaultTransport, so nothing else in the process may use that.
func Build(dir string) (made []byte, err error) {
	building.Lock()
	defer building.Unlock()
	defer offline()()
	defer func() {
		if r := recover(); r != nil { // as the YAML parser does of some malformed files
			made, err = nil, fmt.Errorf("%s: kustomize panicked: %v", dir, r)
		}
	}()
	return build(dir)
}

func build(dir string) ([]byte, error) {
	files := &files{FileSystem: filesys.MakeFsOnDisk()}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, dir)
	if files.refused != nil {
		return nil, files.refused // kustomize may describe the cause less exactly
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	var out bytes.Buffer
	for i, r := range made.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", dir, r.CurId(), err)
		}
		if out.Len()+len(text) > maxResult {
			return nil, fmt.Errorf("%s: makes more than %d MiB", dir, maxResult>>20)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// offline prevents network access of kustomize that was not refused before: it blocks HTTP, and
// git for every protocol. It returns a function that undoes that.
func offline() func() {
	const protocols = "GIT_ALLOW_PROTOCOL"
	before, was := os.LookupEnv(protocols)
	transport := http.DefaultTransport
	http.DefaultTransport = refuse{}
	os.Setenv(protocols, "none")
	return func() {
		http.DefaultTransport = transport
		if was {
			os.Setenv(protocols, before)
		} else {
			os.Unsetenv(protocols)
		}
	}
}

type refuse struct{}

func (refuse) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, errNotFetched(r.URL.String())
}

func errNotFetched(what string) error {
	return fmt.Errorf("%s is not fetched: mapd builds kustomizations from files only; fetch it and name the copy, or pass what kustomize build prints with -f -", what)
}

// files is a file system that refuses files beyond the bounds, and kustomizations with remote
// parts.
type files struct {
	filesys.FileSystem
	files   int   // read
	read    int64 // bytes
	refused error
}

func (f *files) ReadFile(path string) ([]byte, error) {
	text, err := f.bounded(path)
	if err != nil {
		return nil, err
	}
	if err := manifest.CheckAliases(text); err != nil {
		f.refused = fmt.Errorf("%s: %w", path, err)
		return nil, f.refused
	}
	if slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(path)) {
		if what := remote(text); what != "" {
			f.refused = fmt.Errorf("%s: %w", path, errNotFetched(what))
			return nil, f.refused
		}
	}
	return text, nil
}

func (f *files) bounded(path string) ([]byte, error) {
	info, err := os.Stat(path) // before opening, because opening a pipe waits for its writer
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		f.refused = fmt.Errorf("%s: no plain file", path)
		return nil, f.refused
	}
	if f.files++; f.files > maxFiles {
		f.refused = fmt.Errorf("%s: more than %d files, one that is used twice counted twice", path, maxFiles)
		return nil, f.refused
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	f.read += int64(len(text))
	if len(text) > maxFile || f.read > maxRead {
		f.refused = fmt.Errorf("%s: more than %d MiB in a file, or %d MiB in all files", path, maxFile>>20, maxRead>>20)
		return nil, f.refused
	}
	return text, nil
}

// remote returns the first thing that a kustomization would fetch, "" if there is none.
func remote(text []byte) string {
	var k types.Kustomization
	if k.Unmarshal(text) != nil {
		return "" // which kustomize says
	}
	if len(k.HelmCharts)+len(k.HelmChartInflationGenerator) > 0 || k.HelmGlobals != nil {
		return "a Helm chart"
	}
	// These may be directories, so also repositories.
	//lint:ignore SA1019 old kustomizations have them
	bases, patches, merges := k.Bases, k.PatchesJson6902, k.PatchesStrategicMerge
	for _, entry := range slices.Concat(k.Resources, k.Components, bases, k.Generators, k.Transformers, k.Validators) {
		if !strings.Contains(entry, "\n") && (isURL(entry) || isRepository(entry)) { // or it is text in its place
			return entry
		}
	}
	paths := slices.Concat(k.Crds, k.Configurations)
	for _, p := range slices.Concat(k.Patches, patches) {
		paths = append(paths, p.Path)
	}
	for _, p := range merges {
		paths = append(paths, string(p))
	}
	for _, r := range k.Replacements {
		paths = append(paths, r.Path)
	}
	for _, g := range k.ConfigMapGenerator {
		paths = slices.Concat(paths, g.FileSources, g.EnvSources, []string{g.EnvSource})
	}
	for _, g := range k.SecretGenerator {
		paths = slices.Concat(paths, g.FileSources, g.EnvSources, []string{g.EnvSource})
	}
	paths = append(paths, k.OpenAPI["path"])
	for _, path := range paths {
		if _, file, ok := strings.Cut(path, "="); ok && isURL(file) {
			path = file
		}
		if isURL(path) {
			return path
		}
	}
	return ""
}

func isURL(s string) bool {
	s = strings.ToLower(s)
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

// isRepository reports whether kustomize would clone s.
func isRepository(s string) bool {
	s = strings.ToLower(s)
	host, path, _ := strings.Cut(s, "/")
	return strings.Contains(s, "://") || strings.HasPrefix(s, "git::") || strings.HasPrefix(s, "gh:") ||
		strings.Contains(host, "@") || strings.Contains(host, ":") || strings.Contains(path, "_git/") ||
		strings.HasSuffix(s, ".git") || strings.Contains(s, ".git/") || strings.Contains(s, ".git?") || strings.Contains(s, "?ref=") ||
		strings.HasPrefix(host, "github.com")
}
