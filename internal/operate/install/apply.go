package install

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
)

// FieldManager is the field manager of Apply. mapd writes the webhook lists by another one, so
// that applying the manifest again does not remove them.
const FieldManager = "mapd-install"

// Result is the outcome for one object.
type Result struct {
	Object  string // as kubectl writes it: deployment.apps/mapd
	Outcome string // created, configured, unchanged; deleted, would be deleted; kept: why
}

func (r Result) String() string { return r.Object + " " + r.Outcome }

// OwnedError is returned if another installation of mapd owns the webhook configurations.
type OwnedError struct{ Installation webhookconfig.Installation }

func (e *OwnedError) Error() string {
	return "the webhook configurations belong to the installation " + e.Installation.String() + "; nothing was applied"
}

// ApplyOptions say what to apply. Dynamic, Objects and Report are required.
type ApplyOptions struct {
	Dynamic  dynamic.Interface
	Objects  []*unstructured.Unstructured
	Force    bool         // take over fields that other field managers own
	Adopt    bool         // take the webhook configurations from another installation
	Report   func(Result) // called for every object that was written
	Progress func(string) // called with what is waited for, whenever that changes
}

// Apply writes the objects by server-side apply: first the namespace and the
// CustomResourceDefinitions and, when those are established, the others. Each object is sent as a
// dry run before; if the server would refuse any, nothing is written. If a write fails
// nevertheless, Apply tries the others, as kubectl does, and returns all errors.
//
// If the webhook configurations belong to another installation and Adopt is not set, nothing is
// applied, and the error is an *OwnedError.
func Apply(ctx context.Context, o ApplyOptions) error {
	if i, ok := owner(ctx, o.Dynamic); ok && !o.Adopt {
		return &OwnedError{i}
	}
	if err := o.waitUntilGone(ctx); err != nil {
		return err
	}
	if err := o.check(ctx); err != nil {
		return err
	}
	var first, then []*unstructured.Unstructured
	for _, obj := range o.Objects {
		switch obj.GetKind() {
		case "Namespace", "CustomResourceDefinition":
			first = append(first, obj)
		default:
			then = append(then, obj)
		}
	}
	if err := o.applyAll(ctx, first); err != nil {
		return err
	}
	for _, obj := range first {
		if obj.GetKind() == "CustomResourceDefinition" {
			if err := o.waitUntilEstablished(ctx, refOf(obj)); err != nil {
				return err
			}
		}
	}
	return o.applyAll(ctx, then)
}

// check returns the errors that dry runs predict. Objects in a namespace that does not exist yet
// cannot be checked, but nobody owns fields of them.
func (o *ApplyOptions) check(ctx context.Context) error {
	var errs []error
	for _, obj := range o.Objects {
		r := refOf(obj)
		_, err := r.client(o.Dynamic).Apply(ctx, r.name, obj, metav1.ApplyOptions{FieldManager: FieldManager, Force: o.Force, DryRun: []string{metav1.DryRunAll}})
		switch {
		case ctx.Err() != nil:
			return errors.Join(append(errs, ctx.Err())...)
		case unreached(err):
			return errors.Join(append(errs, fmt.Errorf("%s: %w", r, err))...)
		case apierrors.IsConflict(err), apierrors.IsForbidden(err), apierrors.IsInvalid(err),
			err != nil && failedAt.MatchString(err.Error()): // a webhook that is asked for the write, too
			errs = append(errs, fmt.Errorf("%s: %w", r, err))
		}
		// Other errors may be specific to the dry run; the actual write will show.
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New("nothing was applied"))
	}
	return errors.Join(errs...)
}

// unreached reports whether no server answered: it is not the object's fault, and the next
// one would meet the same.
func unreached(err error) bool {
	var u *url.Error
	return errors.As(err, &u)
}

func (o *ApplyOptions) applyAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	var errs []error
	for _, obj := range objects {
		outcome, err := o.applyOne(ctx, obj)
		switch {
		case ctx.Err() != nil:
			return errors.Join(append(errs, ctx.Err())...)
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", refOf(obj), err))
			if unreached(err) {
				return errors.Join(errs...)
			}
		default:
			o.Report(Result{refOf(obj).String(), outcome})
		}
	}
	return errors.Join(errs...)
}

func (o *ApplyOptions) applyOne(ctx context.Context, obj *unstructured.Unstructured) (outcome string, err error) {
	r := refOf(obj)
	client := r.client(o.Dynamic)
	before, err := client.Get(ctx, obj.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		before = nil
	case err != nil:
		return "", err
	}
	after, err := client.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: FieldManager, Force: o.Force})
	switch {
	case err != nil:
		return "", err
	case before == nil:
		return "created", nil
	case before.GetResourceVersion() == after.GetResourceVersion():
		return "unchanged", nil
	}
	return "configured", nil
}

// waitUntilGone waits until no namespace and no CustomResourceDefinition is being deleted,
// because objects that are applied to them would be deleted as well.
func (o *ApplyOptions) waitUntilGone(ctx context.Context) error {
	for _, obj := range o.Objects {
		if obj.GetKind() != "Namespace" && obj.GetKind() != "CustomResourceDefinition" {
			continue
		}
		r := refOf(obj)
		err := poll(ctx, o.Progress, func() (string, error) {
			obj, err := r.client(o.Dynamic).Get(ctx, r.name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return "", nil
			case err != nil:
				return "", fmt.Errorf("%s: %w", r, err)
			case obj.GetDeletionTimestamp() == nil:
				return "", nil
			}
			return r.String() + ": being deleted", nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// waitUntilEstablished waits until the API server serves what a CustomResourceDefinition
// defines.
func (o *ApplyOptions) waitUntilEstablished(ctx context.Context, crd ref) error {
	return poll(ctx, o.Progress, func() (string, error) {
		obj, err := crd.client(o.Dynamic).Get(ctx, crd.name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("%s: %w", crd, err)
		}
		if names := condition(obj, "NamesAccepted"); names.Status == metav1.ConditionFalse {
			return "", fmt.Errorf("%s: %s", crd, describe(names))
		}
		if condition(obj, "Established").Status == metav1.ConditionTrue {
			return "", nil
		}
		return crd.String() + ": not established yet", nil
	})
}

// pollEvery is short beside the seconds that a Pod takes to start and costs an
// API server nothing.
const pollEvery = 500 * time.Millisecond

// poll calls f until nothing is left to wait for. An error of f ends it, unless f also returns
// what it waits for: then the error is only the reason for waiting.
func poll(ctx context.Context, progress func(string), f func() (waitingFor string, err error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last waitError
	for {
		text, err := f()
		switch {
		case ctx.Err() != nil:
			// What failed now did so for lack of time.
			last.ended = ctx.Err()
			return &last
		case text == "":
			return err
		case text != last.waitingFor && progress != nil:
			progress(text)
		}
		last.waitingFor, last.why = text, err
		select {
		case <-tick.C:
		case <-ctx.Done():
			last.ended = ctx.Err()
			return &last
		}
	}
}

// waitError is the end of a wait.
type waitError struct {
	waitingFor string
	why, ended error
}

func (e *waitError) Error() string {
	text := "interrupted"
	if errors.Is(e.ended, context.DeadlineExceeded) {
		text = "out of time"
	}
	if e.waitingFor != "" {
		text += " while waiting: " + e.waitingFor
	}
	return text
}

// Is tells why the wait ended, Unwrap why it was not over.
func (e *waitError) Is(target error) bool { return errors.Is(e.ended, target) }

func (e *waitError) Unwrap() error { return e.why }
