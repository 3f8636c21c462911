//go:build e2e

package e2e

import (
	"archive/tar"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// layoutRegistry serves an OCI layout as a registry does for those who pull: its top by the tag,
// and all blobs by their digest.
func layoutRegistry(t *testing.T, file string) *httptest.Server {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	var index struct {
		Manifests []struct {
			MediaType, Digest string
			Annotations       map[string]string
		}
	}
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("index.json: %v: %s", err, files["index.json"])
	}
	top := index.Manifests[0]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, manifest := strings.CutPrefix(r.URL.Path, "/v2/charts/mapd/manifests/")
		if !manifest {
			path = strings.TrimPrefix(r.URL.Path, "/v2/charts/mapd/blobs/")
		}
		if path == top.Annotations["org.opencontainers.image.ref.name"] {
			path = top.Digest
		}
		data, ok := files["blobs/"+strings.Replace(path, ":", "/", 1)]
		switch {
		case r.URL.Path == "/v2/":
		case !ok:
			http.NotFound(w, r)
		default:
			if manifest {
				w.Header().Set("Content-Type", top.MediaType)
				w.Header().Set("Docker-Content-Digest", path)
			}
			_, _ = w.Write(data)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestChartArtifact has Helm pull the chart of a release from a registry, and render it: the
// objects are those of the chart in this tree, but for the version of the image.
func TestChartArtifact(t *testing.T) {
	cluster.NotGiven(t, "it asks no cluster")
	dir := t.TempDir()
	cmd := exec.Command("go", "run", "./hack/release", "-version", "v9.8.7", "-chart-only", "-out", dir)
	cmd.Dir = cluster.Root(t)
	output(t, cmd)
	s := layoutRegistry(t, filepath.Join(dir, "mapd_v9.8.7_chart.tar"))
	reference := "oci://" + strings.TrimPrefix(s.URL, "http://") + "/charts/mapd"
	text := Helm(t, "", "template", "mapd", reference, "--version", "9.8.7", "--plain-http", "--namespace=mapd-system")
	want := strings.ReplaceAll(string(Helm(t, "", "template", "mapd", manifests(t, "chart"), "--namespace=mapd-system")), ":v0.1.0", ":v9.8.7")
	if diff := cmp.Diff(rendered(t, []byte(want)), rendered(t, text)); diff != "" {
		t.Errorf("the pulled chart (- this tree's):\n%s", diff)
	}
	if !strings.Contains(string(text), "ghcr.io/mapd-project/mapd:v9.8.7") {
		t.Error("the pulled chart runs another image")
	}
}
