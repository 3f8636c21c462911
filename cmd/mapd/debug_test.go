package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A bundle takes the place of the one before when it is whole, and not earlier.
func TestReplacing(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "bundle"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("before"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{link, filepath.Join(dir, "new")} {
		for _, keep := range []bool{false, true} {
			was, _ := os.ReadFile(name)
			w, done, err := replacing(name, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, "after"); err != nil {
				t.Fatal(err)
			}
			if now, _ := os.ReadFile(name); string(now) != string(was) {
				t.Errorf("%s: while it is written: %s", name, now)
			}
			if err := done(keep); err != nil {
				t.Fatal(err)
			}
			want := string(was)
			if keep {
				want = "after"
			}
			if now, _ := os.ReadFile(name); string(now) != want {
				t.Errorf("%s: %q instead of %q", name, now, want)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("%v %v", left, err)
	}
	if _, _, err := replacing(dir, 0o600); err == nil {
		t.Error("a directory is replaced")
	}
	w, done, err := replacing(os.DevNull, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "x"); err != nil || done(true) != nil {
		t.Errorf("%v", err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s was replaced: %v", os.DevNull, err)
	}
}
