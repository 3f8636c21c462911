package manifest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func document(i int) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c" + strconv.Itoa(i) + "\n"
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A writer that takes two seconds writes document by document. What it has written up to some
// point is a valid file at every moment, and is never read.
func TestSteadyWaitsForAWriter(t *testing.T) {
	for _, tt := range []struct {
		name  string
		count int
		gap   time.Duration
	}{{"a document each 20ms", 100, 20 * time.Millisecond}, {"a document each 400ms", 5, 400 * time.Millisecond}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "p.yaml")
				var whole strings.Builder
				for i := range tt.count {
					whole.WriteString(document(i))
				}
				write(t, file, whole.String())
				s := NewSteady([]string{file}, false)
				before, err := s.Read(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				write(t, file, "")
				go func() {
					for i := range tt.count {
						time.Sleep(tt.gap)
						f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
						if err == nil {
							_, err = f.WriteString(document(i))
						}
						if err != nil {
							t.Error(err)
						}
						f.Close()
					}
				}()
				now, err := s.Read(t.Context(), before)
				if err != nil {
					t.Fatal(err)
				}
				if !now.Same(before) {
					t.Errorf("read %q", now.files[0].Content)
				}
			})
		})
	}
}

// At the start a file that somebody writes waits, and one that is old does not.
func TestSteadyAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "p.yaml")
		write(t, file, document(0))
		// The clock of a test and that of the file system differ.
		touch := func(at time.Time) {
			if err := os.Chtimes(file, at, at); err != nil {
				t.Error(err)
			}
		}
		touch(time.Now().Add(-time.Minute))
		s := NewSteady([]string{file}, false)
		start := time.Now()
		if _, err := s.Read(t.Context(), nil); err != nil || time.Since(start) != 0 {
			t.Errorf("an old file took %s, %v", time.Since(start), err)
		}
		touch(time.Now())
		go func() {
			time.Sleep(300 * time.Millisecond)
			f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if _, err := f.WriteString(document(1)); err != nil {
				t.Error(err)
			}
		}()
		r, err := s.Read(t.Context(), nil)
		if err != nil || strings.Count(r.files[0].Content, "kind:") != 2 {
			t.Errorf("read %v, %v", r, err)
		}
	})
}

func TestSteadyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "p.yaml")
		write(t, file, document(0))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for i := 0; ; i++ {
				if err := os.WriteFile(file, []byte(document(i)), 0o644); err != nil {
					t.Error(err)
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		}()
		start := time.Now()
		_, err := NewSteady([]string{file}, false).Read(ctx, &Reading{})
		if err == nil || !strings.Contains(err.Error(), "kept changing for 10s") || time.Since(start) > 11*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestTorn(t *testing.T) {
	good := document(0) + document(1)
	for _, tt := range []struct{ name, before, now, want string }{
		{"the same", good, good, ""},
		{"one less", good, document(0), ""},
		{"another text", good, document(2), ""},
		{"emptied", good, "", "p.yaml: the file had 2 objects and has none now; to remove them, remove the file"},
		{"comments", good, "# no more\n", "p.yaml: the file had 2 objects and has none now; to remove them, remove the file"},
		{"it was empty", "# nothing\n", "", ""},
		{"the beginning of a word", good, "apiV", "p.yaml: the file had 2 objects and has none now; to remove them, remove the file"},
		{"cut off in a line", good, good[:len(good)-3], "p.yaml, line 10: the last line has no end, so the file seems to be cut off; end it with a newline"},
		{"another text, cut off", good, document(2) + document(33)[:50], "p.yaml, line 10: the last line has no end, so the file seems to be cut off; end it with a newline"},
		{"without the last newline", good, strings.TrimSuffix(good, "\n"), ""},
		{"neither had one", strings.TrimSuffix(good, "\n"), strings.TrimSuffix(document(2), "\n"), ""},
		{"cut off, and neither had one", strings.TrimSuffix(good, "\n"), good[:len(good)-4], "p.yaml, line 10: the last line has no end, so the file seems to be cut off; end it with a newline"},
		{"JSON", good, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "p.yaml")
			s := &Steady{Paths: []string{dir}}
			read := func(text string) *Reading {
				t.Helper()
				write(t, file, text)
				r, err := s.Read(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			before := read(tt.before)
			var got []string
			for _, err := range read(tt.now).Torn(before) {
				got = append(got, strings.TrimPrefix(err.Error(), dir+string(filepath.Separator)))
			}
			if text := strings.Join(got, "\n"); text != tt.want && !(tt.name == "the beginning of a word" && strings.HasPrefix(text, tt.want)) {
				t.Errorf("got  %q\nwant %q", text, tt.want)
			}
		})
	}
}

// A file that is removed is no torn one.
func TestRemoved(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p.yaml"), document(0))
	write(t, filepath.Join(dir, "q.yaml"), document(1))
	s := &Steady{Paths: []string{dir}}
	before, err := s.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "q.yaml")); err != nil {
		t.Fatal(err)
	}
	now, err := s.Read(t.Context(), before)
	if err != nil {
		t.Fatal(err)
	}
	if errs := now.Torn(before); len(errs) > 0 || !now.Removed(before) || before.Removed(before) {
		t.Errorf("torn %v, removed %v", errs, now.Removed(before))
	}
}
