package manifest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWatcher(t *testing.T) {
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// configMap lays files out as a kubelet does.
	configMap := func(t *testing.T, dir string) {
		must(t, os.Mkdir(filepath.Join(dir, "..1"), 0o755))
		write(t, filepath.Join(dir, "..1", "p.yaml"), "a")
		must(t, os.Symlink("..1", filepath.Join(dir, "..data")))
		must(t, os.Symlink("..data/p.yaml", filepath.Join(dir, "p.yaml")))
	}
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, dir string)
		change  func(t *testing.T, dir string)
		file    bool // watch the file instead of the directory
	}{
		{"write", nil, func(t *testing.T, dir string) { write(t, filepath.Join(dir, "p.yaml"), "bb") }, false},
		{"new file", nil, func(t *testing.T, dir string) { write(t, filepath.Join(dir, "q.yaml"), "b") }, false},
		{"remove", nil, func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "p.yaml"))) }, false},
		{"rename over a file", nil, func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "tmp"), "cc")
			must(t, os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "p.yaml")))
		}, true},
		{"ConfigMap swap", configMap, func(t *testing.T, dir string) {
			must(t, os.Mkdir(filepath.Join(dir, "..2"), 0o755))
			write(t, filepath.Join(dir, "..2", "p.yaml"), "b")
			must(t, os.Symlink("..2", filepath.Join(dir, "..tmp")))
			must(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
		}, false},
	} {
		for _, how := range []string{"events", "poll"} {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				dir := t.TempDir()
				if tt.prepare != nil {
					tt.prepare(t, dir)
				} else {
					write(t, filepath.Join(dir, "p.yaml"), "a")
				}
				path := dir
				if tt.file {
					path = filepath.Join(dir, "p.yaml")
				}
				w := NewWatcher([]string{path}, false)
				w.Debounce, w.Poll = time.Millisecond, time.Hour
				if how == "poll" {
					w.Poll = 5 * time.Millisecond
					if w.events != nil {
						must(t, w.events.Close())
						w.events = nil
					}
				} else if w.events == nil {
					t.Skip("this system has no more watches")
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				changed := make(chan struct{}, 100)
				go w.Run(ctx, func() { changed <- struct{}{} })
				tt.change(t, dir)
				select {
				case <-changed:
				case <-ctx.Done():
					t.Error("the change was not noticed")
				}
			})
		}
	}
}

// Changes that never pause are reported all the same.
func TestWatcherPatience(t *testing.T) {
	dir := t.TempDir()
	w := NewWatcher([]string{dir}, false)
	if w.events == nil {
		t.Skip("this system has no more watches")
	}
	w.Debounce, w.Poll, w.Patience = time.Hour, time.Hour, time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changed := make(chan struct{}, 100)
	go w.Run(ctx, func() { changed <- struct{}{} })
	if err := os.WriteFile(filepath.Join(dir, "p.yaml"), []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-ctx.Done():
		t.Error("the change was never reported")
	}
}

// A log beside the policies that tells of every reload is no reason for one.
func TestWatcherOtherFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	write("p.yaml", "0")
	w := NewWatcher([]string{filepath.Join(dir, "p.yaml")}, false)
	if w.events == nil {
		t.Skip("this system has no more watches")
	}
	w.Debounce, w.Poll = time.Millisecond, time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changed := make(chan string, 1000)
	go w.Run(ctx, func() {
		data, err := os.ReadFile(filepath.Join(dir, "p.yaml"))
		if err != nil {
			t.Error(err)
		}
		write("serve.log", "loaded "+string(data))
		changed <- string(data)
	})
	for _, text := range []string{"1", "22", "333"} {
		write("p.yaml", text)
		for got, last := "", ""; got != text; last = got {
			select {
			case got = <-changed:
				// A write is two events, of which the first may find an empty file.
				if got == last && got != "" {
					t.Fatalf("loaded %q again although nothing but the log has changed", got)
				}
			case <-ctx.Done():
				t.Fatal("the change was not noticed")
			}
		}
	}
}
