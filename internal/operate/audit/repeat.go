package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/output/page"
	"github.com/mapd-project/mapd/internal/words"
)

// Repeater repeats audits in the background of a server, with the server's policies. All but Log
// are required.
type Repeater struct {
	// Every is the time from the end of an audit to the beginning of the next one.
	Every time.Duration
	// Config connects to the cluster, with a rate limit. Each audit discovers the served kinds
	// again.
	Config *rest.Config
	// Set returns the present policies; nil while they are not known.
	Set func() *Set
	Asking
	// Reports, if not nil, is called at the beginning of an audit, and returns the collector of
	// its results.
	Reports func() Reports
	// Existing, if not nil, receives the results of each audit, and fixes objects until the next
	// one begins.
	Existing Existing
	// Publish is called with the outcome of each audit, and with nil when Run returns.
	Publish func(*Finished)
	Log     *slog.Logger // nil: no log
}

// Reports takes the results of one audit.
type Reports interface {
	Add(r *Result)
	// Write stores the reports. said describes what was done, for the ConfigMap, without values
	// of objects.
	Write(ctx context.Context, c *Cluster, f *Finished) (said string, err error)
}

// Existing changes existing objects that an audit has found, as the policies would.
type Existing interface {
	// Begin is called at the beginning of an audit, Add with each of its results, and Fix after
	// its end. Fix returns at until, or soon after. End is called when Run returns.
	Begin()
	Add(r *Result)
	Fix(ctx context.Context, until time.Time)
	End()
}

// Finished is an audit that has ended.
type Finished struct {
	*Report
	Ended time.Time
	Took  time.Duration
}

const (
	// repeatDelay is the minimum wait before the first audit, and a random time of up to twice as
	// much is added: while a Deployment rolls out, the Lease has a new holder every few seconds.
	repeatDelay = 10 * time.Second
	// repeatRetry is the first wait after a failed audit.
	repeatRetry = time.Minute
	// maxData bounds the text of each table of Data, and maxRows its rows: a ConfigMap may
	// have 1 MiB.
	maxData = 200 << 10
	maxRows = 2000
)

// Run audits repeatedly until ctx is done, and returns soon after that. write stores the Data of
// an audit.
func (r *Repeater) Run(ctx context.Context, write func(ctx context.Context, data map[string]string) error) {
	defer r.Publish(nil)
	if r.Existing != nil {
		defer r.Existing.End()
	}
	log := r.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	wait, retry := repeatDelay+rand.N(2*repeatDelay), repeatRetry
	for Sleep(ctx, wait) == nil {
		f, publish, err := r.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			log.Error("the audit failed", "error", err)
			wait, retry = min(retry, r.Every), 2*min(retry, r.Every)
			continue
		}
		wait, retry = r.Every, repeatRetry
		log.Info("audit ended", "objects", f.Objects, "changed", f.Changed, "failed", f.Failed, "duration", f.Took)
		r.Publish(f)
		data := f.Data()
		if publish != nil {
			said, err := publish(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				log.Error("not all reports of the audit are written", "error", err)
				said = strings.TrimSpace(said + "\n" + short(page.OneLine(err.Error()), maxText))
			}
			data["reports"] = said + "\n"
		}
		for try := range tries {
			if err = write(ctx, data); err == nil || Sleep(ctx, time.Second<<try) != nil {
				break
			}
		}
		if err != nil && ctx.Err() == nil {
			log.Error("the report of the audit is not written", "error", err)
		}
		if r.Existing != nil {
			next := time.Now().Add(r.Every)
			r.Existing.Fix(ctx, next)
			wait = time.Until(next)
		}
	}
}

// once audits everything. publish writes reports of it; nil: there are none.
func (r *Repeater) once(ctx context.Context) (f *Finished, publish func(context.Context) (string, error), err error) {
	began := time.Now()
	set := r.Set()
	if set == nil {
		return nil, nil, errors.New("the policies have not been read yet")
	}
	c, err := Connect(ctx, r.Config)
	if err != nil {
		return nil, nil, err
	}
	o := Options{Cluster: c, Set: set, Asking: r.Asking, Background: true}
	var each []func(*Result)
	if r.Reports != nil {
		reports := r.Reports()
		each = append(each, reports.Add)
		publish = func(ctx context.Context) (string, error) { return reports.Write(ctx, c, f) }
	}
	if r.Existing != nil {
		r.Existing.Begin()
		each = append(each, r.Existing.Add)
	}
	o.Each = func(result *Result) error {
		for _, add := range each {
			add(result)
		}
		return nil
	}
	report, err := Run(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	f = &Finished{report, now, now.Sub(began)}
	return f, publish, nil
}

// Unreadable returns how many kinds could not be read, or not to their end.
func (r *Report) Unreadable() (n int) {
	for _, k := range r.Kinds {
		if k.Unreadable != "" {
			n++
		}
	}
	return n
}

// Data returns totals as text: the time, the numbers, and tables by kind, by policy and by field.
// It is bounded and contains no values of objects, so it also leaves out errors of policies.
func (f *Finished) Data() map[string]string {
	summary := fmt.Sprintf("%s, after %s: %s", f.Ended.UTC().Format(time.RFC3339), f.Took.Round(time.Millisecond), f.Summary())
	if n := f.Unreadable(); n > 0 {
		summary += fmt.Sprintf("; %s could not be read", words.Count(n, "kind", "kinds"))
	}
	data := map[string]string{"summary": summary}
	for _, t := range f.tables() {
		var b strings.Builder
		_ = t.WriteFirst(&b, maxRows) // a Builder takes everything
		data[strings.ToLower(t.title)] = cutLines(b.String(), 1+t.Len())
	}
	if text := f.drift(); text != "" {
		data["drift"] = text + "\n"
	}
	if problems := f.Gaps(); len(problems) > 0 {
		var b strings.Builder
		for _, p := range problems[:min(maxRows, len(problems))] {
			b.WriteString(page.OneLine(p) + "\n")
		}
		data["problems"] = cutLines(b.String(), len(problems))
	}
	return data
}

// cutLines returns the first lines of a text, at most maxData of it, and how many of all
// lines are missing.
func cutLines(text string, all int) string {
	if len(text) > maxData {
		text = text[:strings.LastIndexByte(text[:maxData], '\n')+1]
	}
	if missing := all - strings.Count(text, "\n"); missing > 0 {
		text += fmt.Sprintf("and %d more\n", missing)
	}
	return text
}
