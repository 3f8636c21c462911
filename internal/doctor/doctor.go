// Package doctor answers one question: is mapd healthy in this cluster?
//
// It reads what the cluster says about mapd and tries, by the probe of package
// install, the one connection that has to work: from the API server to mapd. It
// writes nothing. What it may not read is a warning that names the missing
// permission; the other checks still run.
package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/install"
	"github.com/mapd-project/mapd/internal/report"
)

// Options name the cluster. Kubernetes and Dynamic are required.
type Options struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Now        func() time.Time // nil: time.Now
}

// Mark says how bad a finding is.
type Mark string

// The marks.
const (
	OK      Mark = "ok"
	Warning Mark = "warning" // may be meant so, or could not be seen
	Bad     Mark = "bad"     // something does not do what it is there for
)

// Line is one finding: what was checked, the fact, and what to do about it,
// which is "" if there is nothing to do.
type Line struct {
	Mark   Mark   `json:"mark"`
	Check  string `json:"check"`
	Fact   string `json:"fact"`
	Advice string `json:"advice,omitempty"`
}

// Report has all findings, in the same order every time.
type Report struct {
	OK    bool   `json:"ok"` // nothing is Bad
	Lines []Line `json:"lines"`
}

// Run checks a cluster.
func Run(ctx context.Context, o Options) Report {
	if o.Now == nil {
		o.Now = time.Now
	}
	x := &examination{Options: o}
	if x.server(ctx) {
		x.native(ctx)
		x.fetch(ctx)
		if x.installed(ctx) {
			x.owner()
			x.unrepaired(ctx)
			x.mutation()
			x.outage()
			x.validation()
			x.probe(ctx)
			x.certificate(ctx)
			x.reviews(ctx)
			x.neighbours()
		}
		x.policies()
		x.parameters(ctx)
		x.duplicatedPolicies(ctx)
		x.mutators(ctx)
	}
	r := Report{OK: true, Lines: x.lines}
	for _, l := range r.Lines {
		r.OK = r.OK && l.Mark != Bad
	}
	return r
}

var signs = map[Mark]struct{ sign, colour string }{
	OK:      {"√", "32"},
	Warning: {"‼", "33"},
	Bad:     {"×", "31"},
}

// Write prints one line for each finding, with the advice below it.
func (r Report) Write(w io.Writer, colour bool) error {
	var b strings.Builder
	for _, l := range r.Lines {
		s := signs[l.Mark]
		if colour {
			fmt.Fprintf(&b, "\x1b[%sm%s\x1b[0m", s.colour, s.sign)
		} else {
			b.WriteString(s.sign)
		}
		fmt.Fprintf(&b, " %s: %s\n", oneLine(l.Check), oneLine(l.Fact))
		if l.Advice != "" {
			fmt.Fprintf(&b, "  → %s\n", oneLine(l.Advice))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// oneLine keeps text from a cluster's objects from looking like findings.
func oneLine(s string) string {
	return report.Printable(strings.Join(strings.Fields(s), " "))
}

// examination is one run. It fetches objects that several checks need once.
type examination struct {
	Options
	lines []Line

	executes verdict // whether the server runs native policies
	version  string  // of the native policies that it serves best; empty: none

	mutating   []admissionregistrationv1.MutatingWebhookConfiguration // of everybody
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
	// Errors of reading the above.
	mutatingErr, validatingErr error

	own objects
	// live counts the policies that mapd keeps in the place of Gatekeeper's
	// mutators.
	live int
	// deployment is mapd's Deployment; nil if it could not be read.
	deployment *unstructured.Unstructured
}

// configuration returns mapd's MutatingWebhookConfiguration, or nil if it does
// not exist.
func (x *examination) configuration() *admissionregistrationv1.MutatingWebhookConfiguration {
	for i := range x.mutating {
		if x.mutating[i].Name == configurationName {
			return &x.mutating[i]
		}
	}
	return nil
}

func (x *examination) say(mark Mark, check, fact, advice string) {
	x.lines = append(x.lines, Line{mark, check, fact, advice})
}

// unseen reports that something could not be read. A missing permission is the
// reader's problem, anything else the cluster's.
func (x *examination) unseen(check, verb, resource string, err error) {
	switch {
	case apierrors.IsForbidden(err):
		x.say(Warning, check, "not known: this user may not "+verb+" "+resource, "needs: "+verb+" "+resource)
	default:
		x.say(Bad, check, fmt.Sprintf("%s %s: %v", verb, resource, err), "try again; see the API server's log")
	}
}

// shortList joins as many names as fit a line.
func shortList(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// count returns "1 policy" or "2 policies".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

const namespace = install.Namespace
