package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Steady reads files that others may be writing. Nothing signals the end of a write, so it
// waits until the files have stayed the same for some time. A duration of zero means no wait.
type Steady struct {
	Paths     []string
	Recursive bool
	// Settle is how long the files have to stay the same.
	Settle time.Duration
	// Shorter is the minimum wait if a file is shorter than before or gone: it may have been
	// truncated to be written again.
	Shorter time.Duration
	// Patience bounds the wait while the files keep changing.
	Patience time.Duration
}

// NewSteady returns a Steady for the policies of a server.
func NewSteady(paths []string, recursive bool) *Steady {
	return &Steady{Paths: paths, Recursive: recursive, Settle: 500 * time.Millisecond, Shorter: 2 * time.Second, Patience: 10 * time.Second}
}

// A Reading is the content of files at one time.
type Reading struct {
	files []readFile
	err   error
}

type readFile struct {
	Text
	path  string // cleaned
	shape string // size and time
	found bool   // in a directory
}

// Read returns the contents of the files when they have stayed the same for long enough. before
// is the Reading in use, nil at the start. At the start, files that have not changed recently are
// returned at once.
func (s *Steady) Read(ctx context.Context, before *Reading) (*Reading, error) {
	begin := time.Now()
	last, newest := s.look()
	since := begin
	if before == nil && newest.Before(begin) {
		since = newest
	}
	for {
		need := s.Settle
		if last.shorter(before) {
			need = max(need, s.Shorter)
		}
		left := need - time.Since(since)
		if left <= 0 {
			return last, last.err
		}
		if time.Since(begin) > s.Patience {
			return nil, fmt.Errorf("%s: the files have kept changing for %s; they are read when they stay the same for %s", strings.Join(s.Paths, ", "), s.Patience, need)
		}
		// A write in between changes the time of the file, or at least its content.
		timer := time.NewTimer(min(left, max(s.Settle/4, time.Millisecond)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
		if now, _ := s.look(); !now.untouched(last) {
			last, since = now, time.Now()
		}
	}
}

// look reads the files. newest is when one of them last changed.
func (s *Steady) look() (r *Reading, newest time.Time) {
	r = &Reading{}
	seen := map[string]bool{}
	err := eachFile(s.Paths, s.Recursive, func(file string, found bool) {
		path := filepath.Clean(file)
		if seen[path] || r.err != nil {
			return // the file is also named on its own
		}
		seen[path] = true
		text, err := ReadFile(file, MaxFile)
		if err != nil {
			r.err = fileError(err)
			return
		}
		info, err := os.Stat(file)
		if err != nil {
			r.err = fileError(err)
			return
		}
		changed := info.ModTime()
		if info.Size() != int64(len(text)) {
			changed = time.Now()
		}
		if newest.Before(changed) {
			newest = changed
		}
		shape := fmt.Sprint(info.Size(), info.ModTime().UnixNano())
		r.files = append(r.files, readFile{Text{file, string(text)}, path, shape, found})
	})
	r.err = cmp.Or(err, r.err)
	return r, newest
}

// Inputs returns the files that have objects, and counts the others.
func (r *Reading) Inputs() (inputs []Input, skipped Skipped) {
	skipped = Skipped{}
	for _, f := range r.files {
		if what := f.foreign(); what != "" {
			skipped[what]++
			continue
		}
		inputs = append(inputs, Input{Name: f.Name, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(f.Content)), nil
		}})
	}
	return inputs, skipped
}

// foreign returns what a file of a directory is, if it is none with objects.
func (f *readFile) foreign() string {
	if !f.found {
		return ""
	}
	return cmp.Or(foreignName(f.path), foreignText(f.path, []byte(f.Content)))
}

// Same reports whether two Readings have the same files with the same contents.
func (r *Reading) Same(other *Reading) bool {
	return fmt.Sprint(r.err) == fmt.Sprint(other.err) && slices.EqualFunc(r.files, other.files, func(a, b readFile) bool {
		return a.path == b.path && a.Content == b.Content
	})
}

// untouched reports whether nothing was written between two Readings.
func (r *Reading) untouched(other *Reading) bool {
	return r.Same(other) && slices.EqualFunc(r.files, other.files, func(a, b readFile) bool { return a.shape == b.shape })
}

// find returns a file, nil if it is not there.
func (r *Reading) find(path string) *readFile {
	for i := range r.files {
		if r.files[i].path == path {
			return &r.files[i]
		}
	}
	return nil
}

// shorter reports whether a file became shorter or is gone. At the start, before is nil and an
// empty file counts.
func (r *Reading) shorter(before *Reading) bool {
	if before == nil {
		return slices.ContainsFunc(r.files, func(f readFile) bool { return f.Content == "" })
	}
	return slices.ContainsFunc(before.files, func(f readFile) bool {
		now := r.find(f.path)
		return now == nil || len(now.Content) < len(f.Content)
	})
}

// Removed reports whether a file of before is gone.
func (r *Reading) Removed(before *Reading) bool {
	return slices.ContainsFunc(before.files, func(f readFile) bool { return r.find(f.path) == nil })
}

// Torn returns errors for files that seem to be incomplete: files that exist but have lost all
// their objects, and files that end within a line.
func (r *Reading) Torn(before *Reading) (errs []error) {
	for _, old := range before.files {
		now := r.find(old.path)
		if now == nil || now.Content == old.Content || old.foreign() != "" {
			continue
		}
		had, _ := objects(old.Text)
		left, bad := objects(now.Text)
		if had > 0 && left == 0 && (!bad || now.foreign() != "") {
			errs = append(errs, fmt.Errorf("%s: the file had %d objects and has none now; to remove them, remove the file", now.Name, had))
		}
		if cutOff(old.Content, now.Content) {
			line := 1 + strings.Count(now.Content, "\n")
			errs = append(errs, &PositionError{File: now.Name, Line: line, Err: errors.New("the last line has no end, so the file seems to be cut off; end it with a newline")})
		}
	}
	return errs
}

// objects returns the number of objects in a text. bad: a part of it cannot be read, which
// loading reports.
func objects(t Text) (n int, bad bool) {
	for d, err := range ReadStream(t.Name, strings.NewReader(t.Content)) {
		switch {
		case err != nil:
			bad = true
		case d.Object != nil:
			n++
		}
	}
	return n, bad
}

// cutOff reports whether a text ends within a line and the one before did not. It does not apply
// to JSON: incomplete JSON is invalid anyway, and complete JSON often has no final newline.
func cutOff(before, now string) bool {
	if now == "" || strings.HasSuffix(now, "\n") || strings.HasPrefix(strings.TrimSpace(now), "{") {
		return false
	}
	rest, prefix := strings.CutPrefix(before, now)
	return strings.HasSuffix(before, "\n") && !(prefix && rest == "\n") || prefix && rest != "" && rest[0] != '\n' && rest[0] != '\r'
}
