// Package result has the raw data of test/e2e/scale: how it is written and read, and the
// tables and the picture that are made from it and from nothing else.
package result

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Run says what was run. It is in the first line.
type Run struct {
	Time        time.Time     `json:"time"`
	Commit      string        `json:"commit"`
	Machine     string        `json:"machine"`
	Load        string        `json:"load"` // of the machine, before anything started
	Nodes       int           `json:"nodes"`
	Pods        int           `json:"pods"`
	Policies    int           `json:"policies"`
	PodPolicies int           `json:"podPolicies"`
	Replicas    int           `json:"replicas"`
	APIServers  int           `json:"apiServers"`
	Writes      int           `json:"writes"`   // a second, by the program itself
	Rollouts    int           `json:"rollouts"` // a minute
	Replaced    int           `json:"replaced"` // policies that are replaced at once
	Lease       int           `json:"lease"`    // seconds that the Lease of a node holds
	Duration    time.Duration `json:"duration"`
}

// A Line is one fact. T is when it was, or when it began, in seconds since the start; one
// of the other members is set.
type Line struct {
	T      float64 `json:"t"`
	Run    *Run    `json:"run,omitempty"`
	Phase  string  `json:"phase,omitempty"` // begins here, and the one before ends
	Write  *Write  `json:"write,omitempty"`
	Use    *Use    `json:"use,omitempty"`
	Fault  *Span   `json:"fault,omitempty"`
	Change *Change `json:"change,omitempty"`
	Audit  *Audit  `json:"audit,omitempty"`
	Check  *Check  `json:"check,omitempty"`
	// Note is for people: what did not go as it should have.
	Note string `json:"note,omitempty"`
}

// A Write is one request of the program's own stream.
type Write struct {
	What string  `json:"what"` // Pod, ConfigMap, update, Lease
	MS   float64 `json:"ms"`   // since it was due
	Code int     `json:"code"` // 0: there was no answer
}

// Use is what a process has used so far.
type Use struct {
	Who string  `json:"who"`
	PID int     `json:"pid"`
	CPU float64 `json:"cpu"` // seconds
	MiB float64 `json:"mib"` // RSS
}

// A Span is a fault, from when it was made to when it was undone.
type Span struct {
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"`
}

// A Change is a change of policies, and when the replica that was last acted by it.
type Change struct {
	What     string  `json:"what"`
	Policies int     `json:"policies"`
	Written  float64 `json:"written"` // seconds until the API server had taken the last one
	Acts     float64 `json:"acts"`    // seconds until the last replica acted; less than 0: not in time
}

// Audit is one run of mapd audit.
type Audit struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
	MiB     float64 `json:"mib"` // at its peak
	Code    int     `json:"code"`
	Objects int     `json:"objects"`
	Changed int     `json:"changed"`
}

// Check counts objects that were held against what the library makes of them.
type Check struct {
	What    string `json:"what"`
	Objects int    `json:"objects"`
	Wrong   int    `json:"wrong"`
	Lost    int    `json:"lost"`
}

// A Writer writes lines, compressed. It may be used by several goroutines.
type Writer struct {
	mu    sync.Mutex
	zip   *gzip.Writer
	start time.Time
	err   error
}

// NewWriter begins to write; T counts from now on.
func NewWriter(w io.Writer) *Writer {
	return &Writer{zip: gzip.NewWriter(w), start: time.Now()}
}

// At returns T of a moment.
func (w *Writer) At(t time.Time) float64 { return round(t.Sub(w.start).Seconds()) }

// round keeps milliseconds: more digits would only take space.
func round(seconds float64) float64 { return float64(int64(seconds*1000+.5)) / 1000 }

// Add writes a line. After an error it does nothing; Close returns that error.
func (w *Writer) Add(l Line) {
	data, err := json.Marshal(l)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = errors.Join(w.err, err); w.err == nil {
		_, w.err = w.zip.Write(append(data, '\n'))
	}
}

// Flush writes what was added, so that it is there if the program is killed.
func (w *Writer) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.zip.Flush()
	}
}

// Close ends the data. Nothing is written after it.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := errors.Join(w.err, w.zip.Close())
	if w.err == nil {
		w.err = errors.New("it is closed")
	}
	return err
}

// Read reads what a Writer has written. If that was not closed, because the program
// was killed, the lines before its end are returned.
func Read(r io.Reader) ([]Line, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	var all []Line
	lines := bufio.NewReader(zip)
	for n := 1; ; n++ {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var l Line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all = append(all, l)
	}
}
