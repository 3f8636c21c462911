//go:build !server

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/output/report"
)

// notes prints messages to standard error. On a terminal a progress line is below them.
type notes struct {
	w        io.Writer
	said     map[string]bool
	terminal bool // a progress line may be shown
	quiet    bool // only errors
	colour   bool
	comments bool // see beside
	objects  int
	shown    bool
	last     time.Time
}

// progressEvery is the time between two updates of the progress line.
const progressEvery = 100 * time.Millisecond

func newNotes(w io.Writer) *notes {
	return &notes{w: w, said: map[string]bool{}, terminal: isTerminal(w) && os.Getenv("TERM") != "dumb", colour: coloured(w)}
}

func isTerminal(w any) bool {
	if out, ok := w.(*written); ok {
		w = out.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// coloured reports whether text on w may have colours.
func coloured(w any) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// hintKeyboard prints that mapd waits for input, if one of paths is standard input and that is
// a terminal.
func hintKeyboard(s streams, paths ...string) {
	if slices.Contains(paths, manifest.Stdin) && isTerminal(s.in) {
		fmt.Fprintln(s.err, "reading standard input from the keyboard; Ctrl-D ends it")
	}
}

// beside prefixes messages with "#" if both they and YAML on out go to a terminal, so that text
// copied from the terminal is valid YAML.
func (n *notes) beside(out io.Writer, format string) {
	n.comments = isTerminal(n.w) && isTerminal(out) && (format == "yaml" || format == blameFormat)
}

// say prints a message that is neither an error nor a warning.
func (n *notes) say(format string, args ...any) {
	if !n.quiet {
		n.print("", format, args...)
	}
}

// warn prints a warning about a probable mistake.
func (n *notes) warn(format string, args ...any) {
	if !n.quiet {
		n.print(yellow, "warning: "+format, args...)
	}
}

// fail prints an error or a denial, also with quiet.
func (n *notes) fail(format string, args ...any) { n.print(red, format, args...) }

const red, yellow = "31", "33"

// print prints a message, the first line of it in a colour.
func (n *notes) print(colour, format string, args ...any) {
	n.clear()
	text := report.Printable(fmt.Sprintf(format, args...))
	if n.colour && colour != "" {
		first, rest, more := strings.Cut(text, "\n")
		text = "\x1b[" + colour + "m" + first + "\x1b[0m"
		if more {
			text += "\n" + rest
		}
	}
	if n.comments {
		text = "# " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n# ") + "\n"
	}
	fmt.Fprint(n.w, text)
}

// once prints a message unless it was printed before.
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

// audited shows the progress of an audit.
func (n *notes) audited(p audit.Progress) {
	if time.Since(n.last) < progressEvery {
		return
	}
	n.last = time.Now()
	fmt.Fprintf(n.w, "\r\x1b[Kkind %d of %d, %s: %d objects, %d would change", p.Done+1, p.Kinds, report.Line(p.Kind), p.Objects, p.Changed)
	n.shown = true
}

// waiting shows the progress of a workload's rollout.
func (n *notes) waiting(title, progress string) {
	fmt.Fprintf(n.w, "\r\x1b[K%s: waiting for its rollout: %s", report.Line(title), report.Line(progress))
	n.shown = true
}

func (n *notes) clear() {
	if n.shown {
		fmt.Fprint(n.w, "\r\x1b[K")
		n.shown = false
	}
}

func (n *notes) done() { n.clear() }
