package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/test/hammer"
)

// makeRelease makes a release with this test's program as the binary, and with the files of the
// site that embedded names.
func makeRelease(t *testing.T, version string, key *ecdsa.PrivateKey, embedded ...string) (string, error) {
	t.Helper()
	out, site := filepath.Join(t.TempDir(), "dist"), t.TempDir()
	for _, name := range siteFiles {
		if err := os.WriteFile(filepath.Join(site, name), []byte("text of "+name+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	r := &release{
		version: version, out: out, platforms: strings.Split(platforms, ","), site: site,
		builder: "https://example.com/builder", key: key,
		head: func(context.Context) (string, error) { return "0123456789012345678901234567890123456789", nil },
		build: func(_ context.Context, _ string, t target, file string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			binary, err := os.ReadFile(self)
			if err != nil {
				return err
			}
			if t.server { // each server gets other bytes
				binary = fmt.Appendf(binary, "%+v\n", t)
			}
			for _, name := range embedded {
				if !t.server {
					binary = append(binary, "text of "+name+"\n"...)
				}
			}
			return os.WriteFile(file, binary, 0o755)
		},
		time: func() time.Time { return time.Unix(1_700_000_000, 0) },
	}
	return out, r.run(t.Context())
}

// read returns the files of a directory.
func read(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// unpack returns the names and modes of the files in an archive.
func unpack(t *testing.T, name string, data []byte) []string {
	t.Helper()
	var out []string
	if strings.HasSuffix(name, ".zip") {
		r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.File {
			out = append(out, fmt.Sprintf("%s %s", f.Mode(), f.Name))
		}
		return out
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %s", h.FileInfo().Mode(), h.Name))
	}
}

func TestRelease(t *testing.T) {
	hammer.Alone(t) // packing programs is most of it; TestReleaseRefuses has builds that run at once
	t.Chdir("../..")
	dir, err := makeRelease(t, "v1.2.3-rc.1", nil, siteFiles...)
	if err != nil {
		t.Fatal(err)
	}
	files := read(t, dir)
	var names []string
	for _, p := range strings.Split(platforms, ",") {
		base := "mapd_v1.2.3-rc.1_" + strings.ReplaceAll(p, "/", "_")
		want := []string{"-rwxr-xr-x mapd", "-rwxr-xr-x kubectl_complete-mapd", "-rw-r--r-- LICENSE", "-rw-r--r-- README.md"}
		name := base + ".tar.gz"
		if strings.HasPrefix(p, "windows/") {
			name, want = base+".zip", []string{"-rwxr-xr-x mapd.exe", "-rw-r--r-- LICENSE", "-rw-r--r-- README.md"}
		}
		if got := unpack(t, name, files[name]); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
		names = append(names, name, base+".cdx.json")
	}
	var sums strings.Builder
	for _, image := range []string{"image", "image-fips"} {
		base := "mapd_v1.2.3-rc.1_" + image
		names = append(names, base+"_linux_amd64.cdx.json", base+"_linux_arm64.cdx.json", base+".tar")
	}
	names = append(names, "mapd-1.2.3-rc.1.tgz", "mapd_v1.2.3-rc.1_chart.tar", "mapd.yaml", "mapd_v1.2.3-rc.1.intoto.jsonl")
	for _, name := range names {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	if got := string(files["SHA256SUMS"]); got != sums.String() {
		t.Errorf("SHA256SUMS:\n%s\nwant\n%s", got, sums.String())
	}
	if want := append(names, "SHA256SUMS"); len(files) != len(want) {
		t.Errorf("files %q, want %q", slices.Sorted(maps.Keys(files)), want)
	}

	var bill struct {
		BOMFormat  string
		Metadata   struct{ Component struct{ Version string } }
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(files["mapd_v1.2.3-rc.1_linux_amd64.cdx.json"], &bill); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, c := range bill.Components {
		known[c.Name] = c.Version != "" && (c.Purl == "pkg:golang/"+c.Name+"@"+c.Version || c.Purl == "pkg:npm/%40codemirror/view@"+c.Version)
	}
	if !known["@codemirror/view"] || known["typescript"] {
		t.Errorf("packages of the playground: %v", known)
	}
	if bill.BOMFormat != "CycloneDX" || bill.Metadata.Component.Version != "v1.2.3-rc.1" || !known["std"] || !known["sigs.k8s.io/yaml"] {
		t.Errorf("bill of materials: %+v", bill)
	}

	var plugin struct {
		Spec struct {
			Version   string
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	if err := yaml.Unmarshal(files["mapd.yaml"], &plugin); err != nil {
		t.Fatal(err)
	}
	if n := len(plugin.Spec.Platforms); n != 6 || plugin.Spec.Version != "v1.2.3-rc.1" {
		t.Fatalf("krew: %+v", plugin)
	}
	for _, p := range plugin.Spec.Platforms {
		name := p.URI[strings.LastIndex(p.URI, "/")+1:]
		if fmt.Sprintf("%x", sha256.Sum256(files[name])) != p.SHA256 || !slices.ContainsFunc(unpack(t, name, files[name]), func(f string) bool { return strings.HasSuffix(f, " "+p.Bin) }) {
			t.Errorf("krew: %+v is not what %s is", p, name)
		}
	}

	if bytes.Contains(files["mapd_v1.2.3-rc.1_image_linux_amd64.cdx.json"], []byte("pkg:npm/")) {
		t.Error("the server's bill of materials has packages of the playground")
	}

	again, err := makeRelease(t, "v1.2.3-rc.1", nil, siteFiles...)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(files, read(t, again), bytes.Equal) {
		t.Error("the same release again has other bytes")
	}
}

func TestReleaseRefuses(t *testing.T) {
	t.Chdir("../..")
	for version, want := range map[string]string{
		"":      `version "": must be a semantic version such as v1.2.3`,
		"1.2.3": `version "1.2.3": must be a semantic version such as v1.2.3`,
		"v1.2":  `version "v1.2": must be a semantic version such as v1.2.3`,
		"devel": `version "devel": must be a semantic version such as v1.2.3`,
	} {
		if _, err := makeRelease(t, version, nil); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", version, err, want)
		}
	}
	// Of builds that run at once, any may be the first to fail.
	if _, err := makeRelease(t, "v1.2.3", nil, siteFiles[1:]...); err == nil || !strings.HasSuffix(err.Error(), ": the binary has no playground: it lacks index.html") {
		t.Error(err)
	}
	dir := t.TempDir()
	err := (&release{version: "v1.0.0", out: filepath.Join(dir, "dist"), site: dir, head: head}).run(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), "index.html: no such file or directory: run make web") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "old"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := (&release{version: "v1.0.0", out: dir}).run(t.Context()); err == nil || err.Error() != dir+": must be empty" {
		t.Error(err)
	}
}
