package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/internal/cluster/election"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
)

const (
	// takeOver is how long a passive installation waits, after it last saw the configurations
	// belong to another one, before it writes them. If somebody deletes or changes them, the
	// other installation restores them within a second.
	takeOver = 10 * time.Second
	// lookAgain is how often a passive installation looks whether the other one still
	// exists.
	lookAgain = time.Second
)

// installation returns the installation to which this replica belongs.
func (w *Writer) installation() webhookconfig.Installation {
	return webhookconfig.Installation{Namespace: w.o.Namespace, Lease: w.o.Lease}
}

// Passive returns an error that names the other installation as long as this
// replica holds its Lease and the webhook configurations belong to another one.
func (w *Writer) Passive() error {
	if i := w.passive.Load(); i != nil {
		return fmt.Errorf("they belong to the installation %s, so this one (%s) writes nothing; uninstall either, or start this one with --adopt", i, w.installation())
	}
	return nil
}

// owner returns the installation that the configurations name, if any. The mutating configuration
// decides, so that two installations that begin at the same time agree.
func owner(configurations []*configuration) webhookconfig.Installation {
	var found webhookconfig.Installation
	for _, c := range configurations {
		meta, _, exists := c.get()
		if !exists {
			continue
		}
		if i := webhookconfig.InstallationOf(meta); i.Namespace != "" && (found.Namespace == "" || !c.validating) {
			found = i
		}
	}
	return found
}

// foreignOwner returns the installation that owns the configurations. ok is false if this
// installation may write them: they are its own, have no owner, belong to an installation whose
// namespace is gone, or are to be adopted. It adopts them only until it has owned them once, so
// that two installations with --adopt do not take them from each other.
func (w *Writer) foreignOwner(ctx context.Context, configurations []*configuration) (_ webhookconfig.Installation, ok bool) {
	found := owner(configurations)
	switch {
	case found.Namespace == "":
		return found, false
	case found.Is(w.installation()):
		w.owned = true
		return found, false
	case w.o.Adopt && !w.owned:
		return found, false
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	namespace, err := w.o.Kubernetes.CoreV1().Namespaces().Get(ctx, found.Namespace, metav1.GetOptions{})
	if err != nil {
		return found, !apierrors.IsNotFound(err) // if that is not certain, they are left alone
	}
	gone := namespace.DeletionTimestamp != nil || found.UID != "" && found.UID != namespace.UID
	return found, !gone
}

// waitUntilOwner returns when this installation may write the configurations, or when ctx is
// done.
func (t *term) waitUntilOwner(ctx context.Context) {
	var seen time.Time // when the configurations last belonged to another installation
	if t.passive.Load() != nil {
		seen = time.Now()
	}
	for ctx.Err() == nil {
		found, ok := t.foreignOwner(ctx, t.configurations)
		switch {
		case ctx.Err() != nil:
			return
		case ok:
			seen = time.Now()
			if last := t.passive.Swap(&found); last == nil || !last.Is(found) {
				text := t.Passive().Error()
				t.log.Warn("this installation is passive and writes nothing: the webhook configurations belong to another one", "reason", text)
				t.events.warn(t.leaseReference(), "ConfigurationsNotOwned", "Configure", "the webhook configurations: "+text)
			}
		case seen.IsZero() || time.Since(seen) > takeOver:
			if t.passive.Swap(nil) != nil {
				t.log.Info("taking over the webhook configurations: the other installation is gone")
			} else if found.Namespace != "" && !found.Is(t.installation()) {
				t.log.Info("taking over the webhook configurations of another installation", "installation", found.String(), "adopt", t.o.Adopt)
			}
			return
		}
		watch.Sleep(ctx, lookAgain, t.configurationsChanged, nil)
	}
}

// exemptOwnRequests makes the entries of this installation's configurations exclude its own
// requests, if somebody has changed that, and changes nothing else. It does not need the lease: a
// damaged entry can refuse the very requests that renew the lease, and then no replica could
// repair it.
func (w *Writer) exemptOwnRequests(ctx context.Context) {
	mutating, validating := w.webhookConfigurations(func() {})
	calling, cancel := context.WithTimeout(ctx, election.CallTimeout)
	defer cancel()
	client := w.o.Kubernetes.AdmissionregistrationV1()
	if c, err := client.MutatingWebhookConfigurations().Get(calling, mutating.Name(), metav1.GetOptions{}); err == nil {
		mutating.Observe(c)
	}
	if c, err := client.ValidatingWebhookConfigurations().Get(calling, validating.Name(), metav1.GetOptions{}); err == nil {
		validating.Observe(c)
	}
	configurations := w.configurations(mutating, validating)
	if i := owner(configurations); i.Namespace != "" && !i.Is(w.installation()) {
		return
	}
	for _, c := range configurations {
		meta, entries, exists := c.get()
		entries, changed := exempt(entries, w.o.Namespace, webhookconfig.NotItself(w.o.User))
		if !exists || !changed {
			continue
		}
		writing, cancel := context.WithTimeout(ctx, election.CallTimeout)
		err := c.replace(writing, meta, entries)
		cancel()
		if err != nil {
			w.log.Error("somebody changed the webhook configuration so that it matches mapd's own requests; these cannot be exempted again", "configuration", c.name, "error", err)
			continue
		}
		w.log.Warn("somebody changed the webhook configuration so that it matched mapd's own requests; these are exempt again", "configuration", c.name)
	}
}

// exempt makes entries exclude a namespace and the requests for which conditions are false. It
// leaves entries alone that do one of the two already.
func exempt(entries []entry, namespace string, conditions []admissionregistrationv1.MatchCondition) (_ []entry, changed bool) {
	entries = slices.Clone(entries)
	for i, e := range entries {
		if slices.ContainsFunc(e.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool { return slices.Contains(conditions, c) }) {
			continue
		}
		own := metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{namespace}}
		if s := e.NamespaceSelector; s != nil && slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
			return r.Key == own.Key && r.Operator == own.Operator && slices.Contains(r.Values, namespace)
		}) {
			continue
		}
		e = *e.DeepCopy()
		if e.NamespaceSelector == nil {
			e.NamespaceSelector = &metav1.LabelSelector{}
		}
		e.NamespaceSelector.MatchExpressions = append(e.NamespaceSelector.MatchExpressions, own)
		// The API server would refuse two conditions of the same name.
		e.MatchConditions = slices.DeleteFunc(e.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
			return slices.ContainsFunc(conditions, func(o admissionregistrationv1.MatchCondition) bool { return o.Name == c.Name })
		})
		e.MatchConditions = append(e.MatchConditions, conditions...)
		entries[i], changed = e, true
	}
	return entries, changed
}
