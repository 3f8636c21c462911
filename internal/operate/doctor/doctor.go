// Package doctor checks mapd's health in a cluster.
//
// It reads mapd's objects and metrics, and uses the probe of package install to try the connection
// that mapd depends on: from the API server to mapd. It writes nothing. If a check cannot be made,
// its result is Unknown, and its line names the missing permission or another reason; the other
// checks still run.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/operate/install"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/words"
)

// Options configure Run. Kubernetes and Dynamic are required.
type Options struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Now        func() time.Time // nil: time.Now
	// Each bounds the time of one check; 0 means checkLimit. The context bounds the time of all.
	Each time.Duration
	// Sample, if not nil, audits at most the first Sampled objects of each kind.
	Sample func(context.Context) (*audit.Report, error)
}

// Sampled is how many objects of each kind are enough for a sample: one page.
const Sampled = 100

// checkLimit is the time for one check. It is enough for a slow API server, and leaves time for
// the other checks if one of them waits for something that does not answer.
const checkLimit = 10 * time.Second

// Mark says how bad the result of a check is.
type Mark string

// The marks.
const (
	OK      Mark = "ok"
	Warning Mark = "warning" // may be intended
	Unknown Mark = "unknown" // could not be checked
	Bad     Mark = "bad"     // something does not work
)

// Line is the result of one check: what was checked, the fact, and what to do about it,
// which is "" if there is nothing to do.
type Line struct {
	Mark   Mark   `json:"mark"`
	Check  string `json:"check"`
	Fact   string `json:"fact"`
	Advice string `json:"advice,omitempty"`
}

// Report has the results of all checks, in the same order every time.
type Report struct {
	OK bool `json:"ok"` // nothing is Bad or Unknown
	// Reached is false if the API server did not answer at all.
	Reached bool   `json:"-"`
	Lines   []Line `json:"lines"`
}

// Has reports whether a line has the mark.
func (r Report) Has(m Mark) bool {
	return slices.ContainsFunc(r.Lines, func(l Line) bool { return l.Mark == m })
}

// Run checks a cluster.
func Run(ctx context.Context, o Options) Report {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Each <= 0 {
		o.Each = checkLimit
	}
	x := &examination{Options: o}
	r := Report{Reached: x.server(ctx)}
	if r.Reached {
		x.run(ctx)
	}
	r.Lines = x.lines
	r.OK = !r.Has(Bad) && !r.Has(Unknown)
	return r
}

// step is a check that asks the cluster.
type step struct {
	name string
	run  func(context.Context)
}

// each runs steps one after the other, each with its own time limit, so that a step that gets no
// answer leaves time for the others. It adds steps for which no time is left to unasked.
func (x *examination) each(ctx context.Context, steps ...step) {
	for _, s := range steps {
		if ctx.Err() != nil {
			x.unasked = append(x.unasked, s.name)
			continue
		}
		func() {
			ctx, cancel := context.WithTimeout(ctx, x.Each)
			defer cancel()
			s.run(ctx)
		}()
	}
}

// run makes all checks but the first.
func (x *examination) run(ctx context.Context) {
	installed := true
	x.each(ctx, step{"native policies", x.native})
	x.fetch(ctx)
	x.each(ctx, step{"Deployment", func(ctx context.Context) { installed = x.installed(ctx) }})
	if installed {
		x.owner()
		x.each(ctx, step{"installed objects", x.unrepaired})
		x.mutation()
		x.exemptUser()
		x.outage()
		x.validation()
		x.each(ctx, step{probeCheck, x.probe}, step{"certificate", x.certificate}, step{"senders of reviews", x.senders}, step{"memory of reviews", x.memory})
		x.neighbours()
	}
	x.policies()
	x.each(ctx, step{paramsCheck, x.parameters}, step{"policies in both groups", x.duplicatedPolicies}, step{mutatorsCheck, x.mutators}, step{driftCheck, x.drift})
	if len(x.unasked) > 0 {
		x.say(Unknown, "time", "over before these were checked: "+strings.Join(x.unasked, ", "), "a longer --timeout")
	}
}

var signs = map[Mark]struct{ sign, colour string }{
	OK:      {"√", "32"},
	Warning: {"‼", "33"},
	Unknown: {"?", "35"},
	Bad:     {"×", "31"},
}

// Write prints one line for each result, with the advice below it.
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

// oneLine returns text on one line and without control characters, so that text from a cluster's
// objects cannot be taken for other results.
func oneLine(s string) string {
	return report.Printable(strings.Join(strings.Fields(s), " "))
}

// examination has the state of one run, with the objects that several checks need.
type examination struct {
	Options
	lines []Line

	executes answer // whether the server runs native policies
	version  string // the best version of native policies that it serves; empty: none

	mutating   []admissionregistrationv1.MutatingWebhookConfiguration // all in the cluster, not only mapd's
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
	// Errors of reading the above.
	mutatingErr, validatingErr error

	own objects
	// unreached says that the probe has shown that the API server does not reach mapd.
	unreached bool
	unasked   []string // checks for which no time was left
	// live counts the policies that mapd writes for Gatekeeper's mutators (--legacy=native).
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

// unseen adds an Unknown line for something that could not be read.
func (x *examination) unseen(check, verb, resource string, err error) {
	x.say(Unknown, check, "not known: "+whyUnseen(verb, resource, err), howToSee(verb, resource, err))
}

// whyUnseen returns the reason why something could not be read.
func whyUnseen(verb, resource string, err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "this user may not " + verb + " " + resource
	case isTimeout(err):
		return verb + " " + resource + ": no answer in time"
	}
	return fmt.Sprintf("%s %s: %v", verb, resource, err)
}

// howToSee returns the advice for the reason that whyUnseen returns.
func howToSee(verb, resource string, err error) string {
	if apierrors.IsForbidden(err) {
		return "needs: " + verb + " " + resource
	}
	return "try again; see the API server's log"
}

// isTimeout reports whether a call timed out, here or at the server.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || os.IsTimeout(err)
}

// shortList returns at most five names, and how many more there are, as a text.
func shortList(names []string) string { return words.Some(names, 5) }

const namespace = install.Namespace
