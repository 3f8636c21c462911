// Package doctor answers one question: is mapd well in this cluster?
//
// It only reads, apart from the probe, which is a dry run. What it may not read
// is a warning that names the missing permission.
package doctor

import (
	"context"
	"io"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Options say what to look at.
type Options struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Now        func() time.Time // nil: time.Now
}

// Mark says how a line is to be taken.
type Mark string

// The marks.
const (
	OK      Mark = "ok"
	Warning Mark = "warning"
	Bad     Mark = "bad"
)

// Line is one finding.
type Line struct {
	Mark   Mark   `json:"mark"`
	Check  string `json:"check"`
	Fact   string `json:"fact"`
	Advice string `json:"advice,omitempty"`
}

// Report is what was found, in a fixed order.
type Report struct {
	Lines []Line `json:"lines"`
}

// Run looks at a cluster.
func Run(ctx context.Context, o Options) Report { return Report{} }

// OK tells that no line is Bad.
func (r Report) OK() bool { return true }

// Write prints the report, one finding a line.
func (r Report) Write(w io.Writer, colour bool) error { return nil }
