package audit

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/mapd-project/mapd/internal/words"
)

// Plan counts what is about to be written.
type Plan struct {
	// Objects are those to write, of which Workloads replace Pods. Unknown are workloads of
	// which the number of Pods is not known, AtOnce those that end all Pods before the first
	// new one begins, and Restarted Pods whose containers restart.
	Objects, Workloads, Pods, Unknown, AtOnce, Restarted int
}

// Add counts an object.
func (p *Plan) Add(r *Replacement) {
	p.Objects++
	switch {
	case r == nil:
		return
	case r.Restarts:
		p.Restarted++
		return
	case r.Pods < 0:
		p.Unknown++
	default:
		p.Pods += r.Pods
	}
	p.Workloads++
	if r.AtOnce {
		p.AtOnce++
	}
}

// PlanUndo counts what undoing all of these writes does.
func PlanUndo(all []*Undo) (p Plan) {
	for _, u := range all {
		p.Add(replacement(u.After, u.Before))
	}
	return p
}

// Requests that one object takes at least: to read it, to try the write, to write it, and for
// an undo to put back its managers.
const (
	requestsChecked = 2
	requestsWritten = 3
	requestsUndone  = 4
)

// Text says what is about to happen, in lines. It is for an undo if undo is set.
func (p *Plan) Text(w *Writer, qps float32, undo bool) string {
	if p.Objects == 0 {
		return ""
	}
	verb, requests := "to write", requestsWritten
	switch {
	case w.DryRun:
		verb, requests = "to check", requestsChecked
	case undo:
		verb, requests = "to put back", requestsUndone
	}
	// The first requests need not wait.
	takes := time.Duration((float64(p.Objects*requests) - math.Max(1, float64(qps))) / float64(qps) * float64(time.Second))
	text := fmt.Sprintf("%s %s, %s at --qps %g", words.Count(p.Objects, "object", "objects"), verb, about(takes), qps)
	pods := p.pods()
	switch {
	case pods == "":
		return text + "\n"
	case !w.ReplacePods:
		return text + "\n" + pods + "; these are left out without --replace-pods\n"
	case w.DryRun:
		return text + "\n" + pods + "\n"
	}
	return text + " and the time of the rollouts\n" + pods + "; each waits for the rollout before it\n"
}

// pods says which Pods are replaced, "" if none.
func (p *Plan) pods() string {
	var parts []string
	if p.Workloads > 0 {
		verb := "replace"
		if p.Workloads == 1 {
			verb = "replaces"
		}
		text := fmt.Sprintf("%s %s %s", words.Count(p.Workloads, "workload", "workloads"), verb, words.Count(p.Pods, "Pod", "Pods"))
		if p.Unknown > 0 {
			text += fmt.Sprintf(" and those of %s whose number is not known", words.Count(p.Unknown, "workload", "workloads"))
		}
		if p.AtOnce > 0 {
			text += fmt.Sprintf(" (of %s all at once, by the strategy Recreate)", words.Count(p.AtOnce, "Deployment", "Deployments"))
		}
		parts = append(parts, text)
	}
	switch {
	case p.Restarted == 1:
		parts = append(parts, "containers of 1 Pod restart")
	case p.Restarted > 1:
		parts = append(parts, fmt.Sprintf("containers of %d Pods restart", p.Restarted))
	}
	return strings.Join(parts, "; ")
}

// about rounds a time for people.
func about(d time.Duration) string {
	switch {
	case d < time.Second:
		return "about a second"
	case d < 90*time.Second:
		return "about " + words.Count(int(d.Round(time.Second)/time.Second), "second", "seconds")
	case d < 90*time.Minute:
		return "about " + words.Count(int(d.Round(time.Minute)/time.Minute), "minute", "minutes")
	}
	return "about " + words.Count(int(d.Round(time.Hour)/time.Hour), "hour", "hours")
}
