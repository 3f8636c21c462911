package exceptions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
)

// soon is how long before its end an exception gets the condition Ending.
const soon = 7 * 24 * time.Hour

// Conditions of exceptions besides api.ExceptionActive, and reasons.
const (
	typeAllowed = "Allowed"
	typeEnding  = "Ending"

	reasonActive       = "Active"
	reasonNotYet       = "NotYet"
	reasonEnded        = "Ended"
	reasonNotAllowed   = "NotAllowed"
	reasonNoSuchPolicy = "NoSuchPolicy"
	reasonTooMany      = "TooMany"
)

// state is everything about one exception that does not depend on the time.
type state struct {
	*stored
	object  *object // nil if decoding has panicked
	err     error   // why it is not valid
	by      string  // the user who was allowed to write it
	refused error   // why it is not known to be allowed
	missing []string
	nothing bool // none of the policies exists
	late    bool // more exceptions than allowed come before it
}

// maxMessage bounds the text of a condition, in bytes.
const maxMessage = 1000

// conditions returns the conditions at a time, and when they will change next; zero if never.
func (s *state) conditions(now time.Time) (list []metav1.Condition, next time.Time) {
	condition := func(kind string, ok bool, reason, format string, args ...any) metav1.Condition {
		message := fmt.Sprintf(format, args...)
		if len(message) > maxMessage {
			message = strings.ToValidUTF8(message[:maxMessage], "") + " …"
		}
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, ObservedGeneration: s.Object.GetGeneration(), Reason: reason, Message: message}
		if ok {
			c.Status = metav1.ConditionTrue
		}
		return c
	}
	if s.err != nil {
		return []metav1.Condition{condition(api.ExceptionActive, false, api.ExceptionInvalid, "the exception does not hold: %s", text(s.err))}, next
	}
	x := s.object.program
	from, until := x.Times()
	var active metav1.Condition
	no := func(reason, format string, args ...any) {
		active = condition(api.ExceptionActive, false, reason, format, args...)
	}
	switch {
	case s.refused != nil:
		no(reasonNotAllowed, "the exception does not hold: %s", s.refused)
	case s.late:
		no(reasonTooMany, "the exception does not hold: %s", binding.TooManyExceptions)
	case x.Ended(now):
		no(reasonEnded, "the exception has ended, it held %s", binding.UntilText(until))
	case !x.Begun(now):
		no(reasonNotYet, "the exception begins at %s", from.UTC().Format(time.RFC3339))
	case s.nothing:
		no(reasonNoSuchPolicy, "the exception has no effect, because there is no %s", strings.Join(s.missing, ", no "))
	default:
		active = condition(api.ExceptionActive, true, reasonActive, "the exception holds %s", binding.UntilText(until))
		if len(s.missing) > 0 {
			active.Message += "; there is no " + strings.Join(s.missing, ", no ")
		}
	}
	is := condition(typeAllowed, true, "Checked", "%s might except the policies when the spec was written", s.by)
	if s.refused != nil {
		is = condition(typeAllowed, false, "NotChecked", "%s", s.refused)
	}
	ending := condition(typeEnding, false, "Later", "the exception does not end within %d days", int(soon.Hours()/24))
	switch {
	case active.Status != metav1.ConditionTrue:
		ending.Reason, ending.Message = "NotActive", "the exception does not hold"
	case !until.IsZero() && !now.Before(until.Add(-soon)):
		ending = condition(typeEnding, true, "EndsSoon", "%s: the policies %s apply again then", x, strings.Join(x.Object().Spec.Policies, ", "))
	}
	for _, t := range []time.Time{from, until.Add(-soon), until} {
		if !from.Equal(t) && until.IsZero() {
			continue
		}
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return []metav1.Condition{active, is, ending}, next
}

// longestPause bounds how late the status reflects a change of the clock.
const longestPause = 10 * time.Second

// Control implements feature.Controlled: it writes the status of exceptions, and an event about
// each that ends within soon.
func (f *Feature) Control(ctx context.Context, _ *corev1.Namespace) {
	changed := f.changed.Add()
	failed, written := "", map[types.UID]conditions{}
	for {
		pause := time.Hour // a change comes earlier
		if states := f.states.Load(); states != nil {
			now := f.now()
			counts, ending := map[string]int{}, 0
			before := written
			written = make(map[types.UID]conditions, len(*states)) // drops those of deleted exceptions
			var problem error
			var of string // the exception
			for i := range *states {
				s := &(*states)[i]
				list, next := s.conditions(now)
				counts[list[0].Reason]++
				if meta.IsStatusConditionTrue(list, typeEnding) {
					ending++
				}
				if !next.IsZero() {
					pause = min(pause, max(next.Sub(now), 0), longestPause)
				}
				if t, ok := before[s.Object.GetUID()]; ok {
					written[s.Object.GetUID()] = t
				}
				if err := f.write(ctx, s, list, written); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					problem, of, pause = err, s.Object.GetNamespace()+"/"+s.Object.GetName(), min(pause, retry)
				}
			}
			if f.options.Metrics != nil {
				f.options.Metrics.ExceptionsPublished(counts, ending)
			}
			if text := fmt.Sprint(problem); problem != nil && text != failed && ctx.Err() == nil {
				f.log.Warn("the status of a PolicyException is not written", "exception", of, "error", problem)
				failed = text
			}
		}
		if !watch.Sleep(ctx, pause, changed, nil) {
			return
		}
	}
}

// conditions are those that were last written into a status, which the watch may not have
// returned yet.
type conditions struct {
	version string // of the exception for which they were written
	list    []metav1.Condition
	ending  bool // the event about its end was made
}

// write writes the conditions of an exception if they differ from its status, and adds them to
// written.
func (f *Feature) write(ctx context.Context, s *state, list []metav1.Condition, written map[types.UID]conditions) error {
	var before struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	o := s.object
	if o == nil {
		return nil // decoding has panicked
	}
	if text, err := json.Marshal(o.Status); err == nil {
		_ = json.Unmarshal(text, &before) // an invalid list of conditions is replaced
	}
	was := map[string]metav1.Condition{}
	for _, c := range before.Conditions {
		was[c.Type] = c
	}
	same := len(was) == len(list)
	all := make([]any, 0, len(list))
	for _, c := range list {
		old, had := was[c.Type]
		same = same && had && old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message && old.ObservedGeneration == c.ObservedGeneration
		c.LastTransitionTime = metav1.NewTime(f.now().Truncate(time.Second))
		if had && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
		if err != nil {
			return err
		}
		all = append(all, u)
	}
	last := written[o.UID]
	if same || last.version == o.ResourceVersion && slices.Equal(last.list, list) {
		return nil
	}
	if err := f.applyStatus(ctx, o, statusManager, map[string]any{"observedGeneration": s.Object.GetGeneration(), "conditions": all}); err != nil {
		return err
	}
	now := meta.FindStatusCondition(list, typeEnding)
	ending := now != nil && now.Status == metav1.ConditionTrue
	if ending && !last.ending && was[typeEnding].Status != metav1.ConditionTrue {
		f.announce(ctx, o, now.Message)
	}
	written[o.UID] = conditions{o.ResourceVersion, list, ending}
	return nil
}

var events = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}

// announce makes an event about an exception that is about to end. The condition Ending records
// that the event was made, so it is made once, even if the lease moves.
func (f *Feature) announce(ctx context.Context, o *object, message string) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	event := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event",
		"metadata":  map[string]any{"name": fmt.Sprintf("%s.%x", o.Name[:min(len(o.Name), 200)], f.now().UnixNano()), "namespace": o.Namespace},
		"eventTime": f.now().UTC().Format(metav1.RFC3339Micro),
		"regarding": map[string]any{
			"apiVersion": api.ExceptionGroup + "/" + api.ExceptionVersion, "kind": api.ExceptionKind, "namespace": o.Namespace, "name": o.Name, "uid": string(o.UID),
		},
		"type": corev1.EventTypeWarning, "reason": "ExceptionEnds", "action": "End", "note": message,
		"reportingController": "mapd.dev/mapd", "reportingInstance": "mapd",
	}}
	if _, err := f.client.Resource(events).Namespace(o.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		f.log.Warn("the event about a PolicyException that ends soon is not written", "exception", o.Namespace+"/"+o.Name, "message", message, "error", err)
		return
	}
	f.log.Info("a PolicyException ends within a week", "exception", o.Namespace+"/"+o.Name, "message", message)
}
