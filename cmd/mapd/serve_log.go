package main

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// logWriter passes on the lines of a log without ever blocking: a pipe that nobody reads must
// not block reviews. Lines beyond its limit are dropped and counted.
type logWriter struct {
	to   io.Writer
	note func(w io.Writer, dropped int) // writes how many lines were dropped

	mu      sync.Mutex
	lines   [][]byte
	held    int // bytes of lines
	dropped int
	wake    chan struct{}
	done    chan struct{}
	closed  bool
}

// logBytes bounds the size of the queued lines.
const logBytes = 1 << 20

func newLogWriter(to io.Writer, note func(w io.Writer, dropped int)) *logWriter {
	w := &logWriter{to: to, note: note, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Write queues a line. It never fails.
func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held+len(line) > logBytes || w.closed {
		w.dropped++
		return len(line), nil
	}
	w.held += len(line)
	w.lines = append(w.lines, append([]byte(nil), line...))
	w.notify()
	return len(line), nil
}

// notify wakes run. w.mu is held.
func (w *logWriter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns the queued lines as one text, and whether there may be more.
func (w *logWriter) take() (text []byte, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out bytes.Buffer
	for _, line := range w.lines {
		out.Write(line)
	}
	if w.dropped > 0 {
		w.note(&out, w.dropped)
	}
	w.lines, w.held, w.dropped = nil, 0, 0
	return out.Bytes(), !w.closed
}

func (w *logWriter) run() {
	defer close(w.done)
	for more := true; more; {
		<-w.wake
		var text []byte
		text, more = w.take()
		_, _ = w.to.Write(text) // a failing log must not end the server
	}
}

// Close writes the queued lines, within a time limit.
func (w *logWriter) Close() error {
	w.mu.Lock()
	w.closed = true
	w.notify()
	w.mu.Unlock()
	select {
	case <-w.done:
	case <-time.After(2 * time.Second):
	}
	return nil
}
