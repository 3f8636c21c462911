package main

import (
	"archive/zip"
	"bytes"
	"debug/buildinfo"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"sigs.k8s.io/yaml"
)

const repository = "https://github.com/mapd-project/mapd"

// completer is the program that kubectl runs to complete the words after "kubectl mapd".
//
//go:embed kubectl_complete-mapd
var completer []byte

// pack returns the archive of a platform: zip for Windows, tar and gzip for all others.
func pack(base, goos string, binary []byte, modified time.Time) (name string, data []byte, err error) {
	files := []file{{"mapd", 0o755, binary}, {"kubectl_complete-mapd", 0o755, completer}}
	if goos == "windows" {
		files = []file{{"mapd.exe", 0o755, binary}}
	}
	for _, name := range []string{"LICENSE", "README.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", nil, err
		}
		files = append(files, file{name, 0o644, text})
	}
	if goos == "windows" {
		var out bytes.Buffer
		w := zip.NewWriter(&out)
		for _, f := range files {
			header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: modified}
			header.SetMode(f.mode)
			entry, err := w.CreateHeader(header)
			if err != nil {
				return "", nil, err
			}
			if _, err := entry.Write(f.data); err != nil {
				return "", nil, err
			}
		}
		err := w.Close()
		return base + ".zip", out.Bytes(), err
	}
	if data, err = tarball(files, modified); err != nil {
		return "", nil, err
	}
	data, err = compress(data)
	return base + ".tar.gz", data, err
}

// packageLock names the npm packages of the playground.
const packageLock = "web/app/package-lock.json"

// npm returns the packages of a package-lock.json that are bundled into the playground's site, by
// name and version. It leaves out packages that are only used to build the site.
func npm(lock []byte) (map[string]string, error) {
	var f struct {
		Packages map[string]struct {
			Version string
			Dev     bool
		}
	}
	if err := json.Unmarshal(lock, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", packageLock, err)
	}
	out := map[string]string{}
	for path, p := range f.Packages {
		if i := strings.LastIndex(path, "node_modules/"); i >= 0 && !p.Dev {
			out[path[i+len("node_modules/"):]] = p.Version
		}
	}
	return out, nil
}

// materials returns a list, in CycloneDX, of the modules in a binary's build information, and of
// the playground's packages if the binary contains the playground.
func materials(binary []byte, version string, playground bool) ([]byte, error) {
	var packages map[string]string
	if playground {
		lock, err := os.ReadFile(packageLock)
		if err != nil {
			return nil, err
		}
		if packages, err = npm(lock); err != nil {
			return nil, err
		}
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	of := func(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
		url := "pkg:golang/" + path + "@" + version
		return cyclonedx.Component{BOMRef: url, Type: kind, Name: path, Version: version, PackageURL: url}
	}
	main := of(cyclonedx.ComponentTypeApplication, "github.com/mapd-project/mapd", version)
	components := []cyclonedx.Component{of(cyclonedx.ComponentTypeLibrary, "std", info.GoVersion)}
	needs := []string{components[0].BOMRef}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := of(cyclonedx.ComponentTypeLibrary, m.Path, m.Version)
		components, needs = append(components, c), append(needs, c.BOMRef)
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		url := "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + packages[name]
		components = append(components, cyclonedx.Component{
			BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: name, Version: packages[name], PackageURL: url,
		})
		needs = append(needs, url)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &needs}}
	var out bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return out.Bytes(), err
}

// krew returns the manifest with which `kubectl krew install` finds the archives.
func krew(version string, archives []archive) ([]byte, error) {
	var platforms []map[string]any
	for _, a := range archives {
		bin := "mapd"
		if a.goos == "windows" {
			bin += ".exe"
		}
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"os": a.goos, "arch": a.goarch}},
			"uri":      fmt.Sprintf("%s/releases/download/%s/%s", repository, version, a.name),
			"sha256":   fmt.Sprintf("%x", a.sum),
			"bin":      bin,
		})
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]any{"name": "mapd"},
		"spec": map[string]any{
			"version":          version,
			"homepage":         repository,
			"shortDescription": "Try, test and run mutating policies written in CEL",
			"description": "mapd runs Kubernetes MutatingAdmissionPolicies outside the API server: on\n" +
				"manifests, in tests, and as an admission webhook. It converts Gatekeeper's\nmutators to policies, too.\n",
			"platforms": platforms,
		},
	})
}
