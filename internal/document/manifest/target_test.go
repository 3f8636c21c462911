package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A link leads nowhere but to where the user wants files to be changed.
func TestTarget(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"repo/a/in.yaml", "repo/b/in.yaml", "repository/in.yaml", "out.yaml"} {
		must(os.MkdirAll(filepath.Dir(name), 0o700))
		must(os.WriteFile(name, nil, 0o600))
	}
	for name, to := range map[string]string{
		"repo/a/same.yaml": "in.yaml", "repo/a/other.yaml": "../b/in.yaml", "repo/a/out.yaml": "../../out.yaml",
		"repo/a/near.yaml": "../../repository/in.yaml", "repo/a/absolute.yaml": filepath.Join(dir, "out.yaml"),
		"repo/a/twice.yaml": "out.yaml", "repo/linked": "../repo/b", "repo/a/loop.yaml": "loop.yaml", "link": "repo/a",
	} {
		must(os.Symlink(to, name))
	}
	for _, tt := range []struct {
		name  string
		paths []string
		want  string // "" if it is refused
	}{
		{"repo/a/in.yaml", nil, "repo/a/in.yaml"},
		{"repo/a/same.yaml", nil, "repo/a/in.yaml"},
		{"repo/a/other.yaml", nil, ""},
		{"repo/a/other.yaml", []string{"repo"}, "repo/b/in.yaml"},
		{"repo/a/other.yaml", []string{"repo/a", "repo/b"}, "repo/b/in.yaml"},
		{"repo/a/other.yaml", []string{"-", "."}, "repo/b/in.yaml"},
		{"repo/a/out.yaml", []string{"repo", "repo/a/out.yaml"}, ""},
		{"repo/a/out.yaml", []string{"repo"}, ""},
		{"repo/a/near.yaml", []string{"repo"}, ""},
		{"repo/a/absolute.yaml", []string{"repo"}, ""},
		{"repo/a/twice.yaml", []string{"repo"}, ""},
		{"repo/a/loop.yaml", []string{"."}, ""},
		{"repo/linked/in.yaml", nil, "repo/b/in.yaml"},
		{"link/same.yaml", []string{"link"}, "repo/a/in.yaml"},
		{"out.yaml", []string{"repo"}, "out.yaml"},
	} {
		got, err := Target(tt.name, tt.paths)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s in %q: %q, %v; want %q", tt.name, tt.paths, got, err, tt.want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), tt.name+": ") && !strings.Contains(err.Error(), "too many links") {
			t.Error(err)
		}
	}
}
