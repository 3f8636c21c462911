package manifest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watcher notifies of changes of files: edits in place, editors that rename a new file over the
// old one, new and deleted files, and the swap of the ..data link by which a mounted ConfigMap
// changes.
type Watcher struct {
	// Debounce is how long it has to be quiet after a change: a directory is
	// seldom changed by a single write.
	Debounce time.Duration
	// Patience bounds the wait for a quiet period while changes keep coming.
	Patience time.Duration
	// Poll is how often the files are checked without a notification, because network file
	// systems send none.
	Poll time.Duration

	paths     []string
	recursive bool
	events    *fsnotify.Watcher // nil if the system has no more watches
	last      string
	known     map[string]bool // the files, and what they are links to
}

// NewWatcher records the present state of the files. Run reports all changes from now on, even
// those before it is called.
func NewWatcher(paths []string, recursive bool) *Watcher {
	w := &Watcher{Debounce: 100 * time.Millisecond, Patience: time.Second, Poll: 5 * time.Second, paths: paths, recursive: recursive}
	if events, err := fsnotify.NewWatcher(); err == nil {
		w.events = events
	}
	w.subscribe()
	w.last, w.known = fingerprint(paths, recursive)
	return w
}

// Run calls changed after each change, one call at a time, until ctx is done.
func (w *Watcher) Run(ctx context.Context, changed func()) {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if w.events != nil {
		defer w.events.Close()
		events, errs = w.events.Events, w.events.Errors
	}
	poll := time.NewTicker(w.Poll)
	defer poll.Stop()
	quiet := time.NewTimer(w.Debounce) // there may be events already
	defer quiet.Stop()
	sawEvent, pending := false, true
	since := time.Now() // the first change that is not reported yet
	wait := func() {
		if !pending {
			pending, since = true, time.Now()
		}
		quiet.Reset(min(w.Debounce, time.Until(since.Add(w.Patience))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if e.Op == fsnotify.Chmod {
				continue
			}
			// Other files in the directory, such as a log with a line for every
			// reload, do not matter: files that came, went or were
			// replaced show in the fingerprint.
			sawEvent = sawEvent || w.known[filepath.Clean(e.Name)]
			wait()
		case _, ok := <-errs:
			// Some events were lost, so the files are checked.
			if !ok {
				errs = nil
				continue
			}
			sawEvent = true
			wait()
		case <-poll.C:
			if now, _ := fingerprint(w.paths, w.recursive); !pending && now != w.last {
				wait()
			}
		case <-quiet.C:
			pending = false
			// A file that is rewritten in the same instant with the same size looks
			// the same, so every event counts.
			now, known := fingerprint(w.paths, w.recursive)
			if !sawEvent && now == w.last {
				continue
			}
			sawEvent, w.last, w.known = false, now, known
			w.subscribe()
			changed()
		}
	}
}

// subscribe asks for the events of every directory that holds a file or a link
// on the way to one. A directory is watched rather than its files, because a
// file that is replaced takes its watch with it.
func (w *Watcher) subscribe() {
	if w.events == nil {
		return
	}
	add := func(dir string) { _ = w.events.Add(dir) } // what cannot be watched is polled
	for _, path := range w.paths {
		if path == Stdin {
			continue
		}
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() {
			add(filepath.Dir(path))
			if real, err := filepath.EvalSymlinks(path); err == nil {
				add(filepath.Dir(real))
			}
			continue
		}
		add(path)
		if !w.recursive {
			continue
		}
		_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil
			}
			if p != path && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			add(p)
			return nil
		})
	}
}

// fingerprint differs when a file does. It also returns the names of the files
// and of what they are links to.
func fingerprint(paths []string, recursive bool) (string, map[string]bool) {
	var b strings.Builder
	known := map[string]bool{}
	for _, path := range paths {
		var files []string
		err := eachFile([]string{path}, recursive, func(file string, _ bool) { files = append(files, file) })
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", path, err)
			continue
		}
		for _, f := range files {
			known[filepath.Clean(f)] = true
			real, err := filepath.EvalSymlinks(f)
			if err != nil {
				fmt.Fprintf(&b, "%s: %v\n", f, err)
				continue
			}
			known[real] = true
			info, err := os.Stat(real)
			if err != nil {
				fmt.Fprintf(&b, "%s: %v\n", f, err)
				continue
			}
			fmt.Fprintf(&b, "%s %s %d %d\n", f, real, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String(), known
}
