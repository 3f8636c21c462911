package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/test/hammer"
)

// newKey returns a key and the name of a file with it.
func newKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, pemFile(t, "PRIVATE KEY", der)
}

func pemFile(t *testing.T, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A release with a key is signed: the checksums as openssl verifies them, by the commands that
// docs/operate/verify.md has, and the provenance, which names every file and the commit.
func TestSigned(t *testing.T) {
	hammer.Alone(t) // packing programs is most of it; TestReleaseRefuses has builds that run at once
	key, file := newKey(t)
	read1, err := readKey(file)
	if err != nil || !read1.Equal(key) {
		t.Fatal(err)
	}
	t.Chdir("../..")
	dir, err := makeRelease(t, "v1.2.3", key, siteFiles...)
	if err != nil {
		t.Fatal(err)
	}
	files := read(t, dir)
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(files["SHA256SUMS.sig"])))
	sum := sha256.Sum256(files["SHA256SUMS"])
	if err != nil || !ecdsa.VerifyASN1(&key.PublicKey, sum[:], sig) {
		t.Errorf("the signature of SHA256SUMS is not valid: %v", err)
	}
	text, err := open(&key.PublicKey, files["mapd_v1.2.3.intoto.jsonl"])
	if err != nil {
		t.Fatal(err)
	}
	var s statement
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	subjects := map[string]bool{
		"SHA256SUMS": true, "SHA256SUMS.sig": true, "SHA256SUMS.sigstore.json": true,
		"mapd_v1.2.3.intoto.jsonl": true, "mapd_v1.2.3.intoto.sigstore.json": true,
	}
	for _, a := range s.Subject {
		subjects[a.Name] = true
		if got := fmt.Sprintf("%x", sha256.Sum256(files[a.Name])); a.Digest["sha256"] != got {
			t.Errorf("provenance has another digest of %s", a.Name)
		}
	}
	if got, want := slices.Sorted(maps.Keys(subjects)), slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("provenance is about %q, want %q", got, want)
	}
	b := s.Predicate.BuildDefinition
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" || s.Predicate.RunDetails.Builder.ID != "https://example.com/builder" ||
		b.ExternalParameters["version"] != "v1.2.3" || len(b.ResolvedDependencies) != 2 || b.ResolvedDependencies[0].Digest["gitCommit"] != "0123456789012345678901234567890123456789" {
		t.Errorf("provenance: %s", text)
	}
	// The bundles have the same signatures.
	var ofSums, ofProvenance bundle
	if err := json.Unmarshal(files["SHA256SUMS.sigstore.json"], &ofSums); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(files["mapd_v1.2.3.intoto.sigstore.json"], &ofProvenance); err != nil {
		t.Fatal(err)
	}
	enclosed, err := line(ofProvenance.Envelope)
	if err != nil || !bytes.Equal(enclosed, files["mapd_v1.2.3.intoto.jsonl"]) || ofProvenance.Message != nil {
		t.Errorf("the provenance's bundle has another envelope: %s", enclosed)
	}
	if m := ofSums.Message; m == nil || !bytes.Equal(m.Signature, sig) || !bytes.Equal(m.Digest.Digest, sum[:]) || ofSums.Envelope != nil {
		t.Errorf("the bundle of the checksums: %s", files["SHA256SUMS.sigstore.json"])
	}
	// Neither another key nor another statement passes.
	other, _ := newKey(t)
	if _, err := open(&other.PublicKey, files["mapd_v1.2.3.intoto.jsonl"]); err == nil {
		t.Error("another key has signed the provenance")
	}
	var e envelope
	if err := json.Unmarshal(files["mapd_v1.2.3.intoto.jsonl"], &e); err != nil {
		t.Fatal(err)
	}
	e.Payload = base64.StdEncoding.EncodeToString(bytes.Replace(text, []byte("v1.2.3"), []byte("v1.2.4"), 1))
	forged, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(&key.PublicKey, forged); err == nil {
		t.Error("a forged provenance passes")
	}
	t.Run("openssl", func(t *testing.T) {
		verifyAsDocumented(t, key, dir, "openssl", "SHA256SUMS", "mapd.yaml", "mapd_v1.2.3.intoto.jsonl")
	})
	t.Run("cosign", func(t *testing.T) {
		verifyAsDocumented(t, key, dir, "cosign", "SHA256SUMS", "SHA256SUMS.sigstore.json", "mapd.yaml", "mapd_v1.2.3_image.tar", "mapd_v1.2.3.intoto.sigstore.json")
	})
	t.Run("layouts", func(t *testing.T) { testLayouts(t, dir) })
	if again, err := sign(key, files["SHA256SUMS"]); err != nil || again+"\n" != string(files["SHA256SUMS.sig"]) {
		t.Errorf("the same key and checksums give another signature: %v", err)
	}
}

// verifyAsDocumented runs the commands of a section of docs/operate/verify.md in the release's
// directory. It checks that they succeed, and that they fail after each of the files in about was
// changed.
func verifyAsDocumented(t *testing.T, key *ecdsa.PrivateKey, dir, program string, about ...string) {
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(program, "is not there")
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mapd.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o666); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/operate/verify.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "## With "+program+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var script []string
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			script = append(script, strings.ReplaceAll(command, "VERSION", "v1.2.3"))
		}
	}
	if !ok || len(script) < 3 {
		t.Fatalf("docs/operate/verify.md has %q", script)
	}
	run := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.Join(script, ""))
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(); err != nil || strings.Count(out, "Verified OK") != 2 || !strings.Contains(out, "mapd.yaml: OK") {
		t.Errorf("%v:\n%s", err, out)
	}
	for _, name := range about {
		was, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		// The change is in the middle of the payload, so that the envelope can still be read.
		changed := slices.Clone(was)
		if at := len(was) / 2; changed[at] == 'A' {
			changed[at] = 'B'
		} else {
			changed[at] = 'A'
		}
		if err := os.WriteFile(filepath.Join(dir, name), changed, 0o666); err != nil {
			t.Fatal(err)
		}
		if out, err := run(); err == nil {
			t.Errorf("%s was changed, and the commands say\n%s", name, out)
		}
		if err := os.WriteFile(filepath.Join(dir, name), was, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// With a key, a tree with uncommitted changes is refused, and so is a key of another kind.
func TestSignedRefuses(t *testing.T) {
	key, _ := newKey(t)
	t.Chdir("../..")
	site := t.TempDir()
	for _, name := range siteFiles {
		if err := os.WriteFile(filepath.Join(site, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	r := &release{version: "v1.0.0", out: filepath.Join(t.TempDir(), "dist"), site: site, key: key, head: func(context.Context) (string, error) { return "", errors.New("not clean") }}
	if err := r.run(t.Context()); err == nil || err.Error() != "not clean" {
		t.Error(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	for want, file := range map[string]string{
		"want an ECDSA key on the curve P-256":             pemFile(t, "PRIVATE KEY", der),
		"a ENCRYPTED SIGSTORE PRIVATE KEY: want a private": pemFile(t, "ENCRYPTED SIGSTORE PRIVATE KEY", der),
		"not in PEM form": "LICENSE",
		"no such file":    "no-such-file",
	} {
		if _, err := readKey(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// testLayouts checks that the images and the chart are OCI layouts that oras can read: an index of
// two platforms with the server for each, and the artifact that `helm push` would upload.
func testLayouts(t *testing.T, dir string) {
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	store := func(name string) oras.ReadOnlyTarget {
		t.Helper()
		s, err := oci.NewFromTar(t.Context(), filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	fetch := func(from oras.ReadOnlyTarget, d ocispec.Descriptor) []byte {
		t.Helper()
		data, err := content.FetchAll(t.Context(), from, d)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	decode := func(data []byte, into any) {
		t.Helper()
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	for _, fips := range []bool{false, true} {
		name, tag := "mapd_v1.2.3_image.tar", "v1.2.3"
		if fips {
			name, tag = "mapd_v1.2.3_image-fips.tar", "v1.2.3-fips"
		}
		s := store(name)
		top, err := s.Resolve(t.Context(), tag)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := top.Annotations["io.containerd.image.name"], "ghcr.io/mapd-project/mapd:"+tag; got != want {
			t.Errorf("%s is loaded as %q, want %q", name, got, want)
		}
		layout := untar(t, read(t, dir)[name])
		var docker []dockerImage
		decode(layout["manifest.json"], &docker)
		for i, arch := range []string{"amd64", "arm64"} {
			options := oras.ResolveOptions{TargetPlatform: &ocispec.Platform{OS: "linux", Architecture: arch}}
			d, err := oras.Resolve(t.Context(), s, tag, options)
			if err != nil {
				t.Fatal(err)
			}
			var m ocispec.Manifest
			decode(fetch(s, d), &m)
			var config ocispec.Image
			decode(fetch(s, m.Config), &config)
			if config.Architecture != arch || config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/mapd"}) || config.Config.Labels[ocispec.AnnotationVersion] != "v1.2.3" {
				t.Errorf("%s, %s: %+v", name, arch, config)
			}
			if len(docker) != 2 || !slices.Equal(docker[i].RepoTags, []string{"ghcr.io/mapd-project/mapd:" + tag + "-" + arch}) ||
				!bytes.Equal(layout[docker[i].Config], fetch(s, m.Config)) || len(docker[i].Layers) != 1 || !bytes.Equal(layout[docker[i].Layers[0]], fetch(s, m.Layers[0])) {
				t.Errorf("%s, %s: docker loads %s", name, arch, layout["manifest.json"])
			}
			plain := gunzip(t, fetch(s, m.Layers[0]))
			if got := fmt.Sprintf("sha256:%x", sha256.Sum256(plain)); len(config.RootFS.DiffIDs) != 1 || string(config.RootFS.DiffIDs[0]) != got {
				t.Errorf("%s, %s: diff IDs %q, want %s", name, arch, config.RootFS.DiffIDs, got)
			}
			in := untar(t, plain)
			if want := fmt.Sprintf("%+v\n", target{"linux", arch, true, fips}); len(in) != 2 || !bytes.HasSuffix(in["mapd"], []byte(want)) || !bytes.Equal(in["LICENSE"], licence) {
				t.Errorf("%s, %s has %q", name, arch, slices.Sorted(maps.Keys(in)))
			}
		}
	}
	s := store("mapd_v1.2.3_chart.tar")
	d, err := s.Resolve(t.Context(), "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var m ocispec.Manifest
	decode(fetch(s, d), &m)
	packed := fetch(s, m.Layers[0])
	if m.Config.MediaType != chartConfigType || m.Layers[0].MediaType != chartLayerType || !bytes.Equal(packed, read(t, dir)["mapd-1.2.3.tgz"]) {
		t.Errorf("the chart: %+v", m)
	}
	in := untar(t, gunzip(t, packed))
	var meta struct{ Name, Version, AppVersion string }
	if err := yaml.Unmarshal(in["mapd/Chart.yaml"], &meta); err != nil || meta.Name != "mapd" || meta.Version != "1.2.3" || meta.AppVersion != "v1.2.3" {
		t.Errorf("Chart.yaml: %+v, %v", meta, err)
	}
	for _, name := range []string{"mapd/values.yaml", "mapd/templates/deployment.yaml", "mapd/files/crd-policies.yaml"} {
		if len(in[name]) == 0 {
			t.Errorf("the chart has no %s", name)
		}
	}
}

func gunzip(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
