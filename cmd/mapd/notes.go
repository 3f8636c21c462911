package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/mapd-project/mapd/internal/report"
)

// notes are the words on standard error. On a terminal a progress line stands
// below them.
type notes struct {
	w        io.Writer
	said     map[string]bool
	terminal bool
	quiet    bool // only errors
	objects  int
	shown    bool
	last     time.Time
}

// progressEvery is fast enough to look alive and slow enough to cost nothing.
const progressEvery = 100 * time.Millisecond

func newNotes(w io.Writer) *notes {
	return &notes{w: w, said: map[string]bool{}, terminal: isTerminal(w)}
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// say prints what is no error.
func (n *notes) say(format string, args ...any) {
	if !n.quiet {
		n.fail(format, args...)
	}
}

// fail prints an error, also if the others are not printed.
func (n *notes) fail(format string, args ...any) {
	n.clear()
	fmt.Fprint(n.w, report.Printable(fmt.Sprintf(format, args...)))
}

// once says what need not be said for every object.
func (n *notes) once(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !n.said[text] {
		n.said[text] = true
		n.say("%s", text)
	}
}

// count moves the progress line on.
func (n *notes) count() {
	n.objects++
	if !n.terminal || time.Since(n.last) < progressEvery {
		return
	}
	n.last = time.Now()
	fmt.Fprintf(n.w, "\r\x1b[Kobjects done: %d", n.objects-1)
	n.shown = true
}

func (n *notes) clear() {
	if n.shown {
		fmt.Fprint(n.w, "\r\x1b[K")
		n.shown = false
	}
}

func (n *notes) done() { n.clear() }
