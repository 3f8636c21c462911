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

// Servers returns the directory that holds etcd, kube-apiserver and kubectl. It
// builds them if nobody has, which takes minutes.
func Servers(t testing.TB) string {
	t.Helper()
	dir, err := servers()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var servers = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("MAPD_E2E_SERVERS"); dir != "" {
		return dir, nil
	}
	dir, err := root()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(dir, "test", "e2e", "servers", "build.sh"))
	cmd.Stderr = os.Stderr // tells what takes so long
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("test/e2e/servers/build.sh: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// Binary returns mapd, built from this tree once in the life of the test program.
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
	atEnd = append(atEnd, func() { os.RemoveAll(tmp) })
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

// atEnd is what Main does after all tests.
var atEnd []func()

// Main is the TestMain of packages that use this one: it removes what all their
// tests share. It returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	for _, f := range atEnd {
		f()
	}
	return code
}
