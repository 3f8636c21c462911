//go:build e2e

package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Root returns the directory of the module mapd.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var root = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/mapd-project/mapd").Output()
	return strings.TrimSpace(string(out)), err
})

// Program returns the path of etcd, kube-apiserver or kubectl. It builds the program if it is not
// in the cache, which takes minutes. For a given cluster, it returns the kubectl in $PATH if there
// is one.
func Program(t testing.TB, name string) string {
	t.Helper()
	programs.Lock()
	defer programs.Unlock()
	path, ok := programs.paths[name]
	if !ok {
		var err error
		if path, err = program(name); err != nil {
			t.Fatal(err)
		}
		programs.paths[name] = path
	}
	return path
}

var programs = struct {
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

func program(name string) (string, error) {
	if dir := os.Getenv("MAPD_E2E_SERVERS"); dir != "" {
		return filepath.Join(dir, name), nil
	}
	if given() != "" && name == "kubectl" {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	dir, err := root()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(dir, "test", "e2e", "servers", "build.sh"), name)
	cmd.Stderr = os.Stderr // shows the progress of the build
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("test/e2e/servers/build.sh %s: %w", name, err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), name), nil
}

// Binary returns the path of mapd, which it builds from this tree once for each test program.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var binary = sync.OnceValues(func() (string, error) {
	dir, err := root()
	if err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp("", "mapd-e2e-")
	if err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() error { return os.RemoveAll(tmp) })
	path := filepath.Join(tmp, "mapd")
	args := []string{"build", "-buildvcs=false", "-o", path}
	if os.Getenv("MAPD_E2E_RACE") != "" {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/mapd")...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build ./cmd/mapd: %w\n%s", err, out.String())
	}
	return path, nil
})

// atEnd has functions that Main calls after all tests.
var atEnd []func() error

// Main is called by TestMain of packages that use this one. It runs the tests, removes what they
// share, and prints which tests were skipped. It returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	for _, f := range atEnd {
		if err := f(); err != nil {
			fmt.Printf("after the tests: %v\n", err)
			code = max(code, 1)
		}
	}
	reportSkipped()
	return code
}
