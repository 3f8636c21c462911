package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mapd-project/mapd/internal/atomicfile"
)

// only fails unless a directory holds one file with a text and a mode.
func only(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil || string(got) != text {
		t.Errorf("%q, %v, want %q", got, err, text)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
		t.Errorf("%v, %v, want mode %v", info.Mode(), err, mode)
	}
	entries, err := os.ReadDir(filepath.Dir(name))
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

func TestWrite(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	for _, tt := range []struct {
		text string
		mode os.FileMode
	}{{"one", 0o640}, {"", 0o600}, {"three", 0o644}} {
		if err := atomicfile.Write(name, []byte(tt.text), tt.mode); err != nil {
			t.Fatal(err)
		}
		only(t, name, tt.text, tt.mode)
	}
}

func TestPending(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	begin := func() *atomicfile.Pending {
		p, err := atomicfile.Create(name, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.WriteString("new"); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != "old" {
			t.Errorf("before Commit: %q, %v", got, err)
		}
		return p
	}
	if err := begin().Discard(); err != nil {
		t.Error(err)
	}
	only(t, name, "old", 0o644)

	p := begin()
	if err := p.Commit(); err != nil {
		t.Error(err)
	}
	if err := p.Discard(); err != nil {
		t.Errorf("Discard after Commit: %v", err)
	}
	only(t, name, "new", 0o644)
}

// A Commit that fails leaves what was there, and nothing beside it.
func TestCommitFails(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	p, err := atomicfile.Create(name, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.Commit(); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if err := p.Discard(); err != nil {
		t.Errorf("Discard after Commit: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(name)); err != nil || len(entries) != 1 || !entries[0].IsDir() {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}
