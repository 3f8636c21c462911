//go:build !server

package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/cluster/list"
	"github.com/mapd-project/mapd/internal/operate/blame"
	"github.com/mapd-project/mapd/internal/operate/replicas"
)

// records reads the records of all replicas, and those that they have stored.
type records struct {
	kube kubernetes.Interface
	set  *replicas.Set
	// since is when the youngest replica started to record, and answered are the replicas that
	// have answered, by their own names.
	since    time.Time
	answered map[string]bool
	// stored are stored entries of replicas that have not answered; gone is the number of these
	// replicas. Both are valid once read is set.
	stored []history.Entry
	gone   int
	read   bool
}

// newRecords finds the replicas. It returns an error if there can be no records.
func newRecords(ctx context.Context, finder *replicaFinder) (*records, error) {
	kube, err := kubernetes.NewForConfig(finder.Config)
	if err != nil {
		return nil, err
	}
	set, err := finder.find(ctx)
	if err != nil {
		return nil, err
	}
	return &records{kube: kube, set: set, answered: map[string]bool{}}, nil
}

// of returns the lines about an object, whose controller has the UID owner, and why replicas
// did not answer.
func (r *records) of(ctx context.Context, t *blame.Target, gk schema.GroupKind, owner types.UID) (lines []blame.Line, complaints []string) {
	q := history.Query{GroupKind: metav1.GroupKind(gk), Namespace: t.Namespace, Name: t.Name, UID: string(t.UID), Owner: string(owner)}
	answers, err := replicas.Ask[history.BlameAnswer](ctx, r.set, history.BlameName, url.Values{
		"group": {q.Group}, "kind": {q.Kind}, "namespace": {q.Namespace}, "name": {q.Name}, "uid": {q.UID}, "owner": {q.Owner},
	})
	if err != nil {
		complaints = append(complaints, fmt.Sprintf("records: %v", err))
	}
	var entries []history.Entry
	stored := err != nil // without all answers, stored entries count too
	for _, a := range answers {
		if a.Err != nil {
			complaints = append(complaints, fmt.Sprintf("records of the replica %s: %v", a.Replica, a.Err))
			continue
		}
		r.answered[a.Value.Replica] = true
		if a.Value.Since.After(r.since) {
			r.since = a.Value.Since
		}
		if a.Value.More > 0 {
			complaints = append(complaints, fmt.Sprintf("records of the replica %s: %d older entries about %s are left out", a.Replica, a.Value.More, t))
		}
		entries = append(entries, a.Value.Entries...)
		stored = stored || a.Value.Stored != ""
	}
	if stored {
		complaints = append(complaints, r.readStored(ctx, t.Namespace)...)
		for i := range r.stored {
			if q.Wants(&r.stored[i]) {
				entries = append(entries, r.stored[i])
			}
		}
	}
	return blame.Recorded(t, entries), complaints
}

// readStored reads, once, the stored records about objects of a namespace and about
// cluster-scoped objects. It leaves out those of replicas that have answered.
func (r *records) readStored(ctx context.Context, namespace string) (complaints []string) {
	if r.read {
		return nil
	}
	r.read = true
	options := metav1.ListOptions{LabelSelector: history.StoredLabel, Limit: 10}
	if err := list.Each(ctx, r.kube.CoreV1().ConfigMaps(r.set.Namespace()).List, options, func(m *corev1.ConfigMap) error {
		if err := r.add(m, namespace); err != nil {
			complaints = append(complaints, fmt.Sprintf("records in the ConfigMap %s: %v", m.Name, err))
		}
		return nil
	}); err != nil {
		complaints = append(complaints, fmt.Sprintf("records that replicas have stored: %v", err))
	}
	return complaints
}

func (r *records) add(m *corev1.ConfigMap, namespace string) error {
	if r.answered[m.Annotations[history.StoredReplica]] {
		return nil
	}
	a, err := history.Unstore(m.BinaryData[history.StoredKey])
	if err != nil {
		return err
	}
	r.gone++
	for _, e := range a.Entries {
		if e.Namespace == namespace || e.Namespace == "" {
			r.stored = append(r.stored, e)
		}
	}
	return nil
}

// about returns a note for standard error about the origin of the records.
func (r *records) about() (text string) {
	if n := len(r.answered); n > 0 {
		text = fmt.Sprintf("records of %d replicas, complete since %s at most", n, r.since.UTC().Format(time.RFC3339))
	}
	if r.gone > 0 {
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("records that %d other replicas have stored", r.gone)
	}
	return text
}
