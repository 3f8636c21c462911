package controllers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/cluster/list"
	"github.com/mapd-project/mapd/internal/cluster/watch"
)

// Each replica stores its newest records in its own ConfigMap, which outlives the replica. The
// holder of the lease deletes the ConfigMaps of replicas that are gone when they are too old or
// too many.
const (
	recordsName = "mapd-records"
	// recordsEvery is the minimum time between two writes of records, and recordsRenewed is how
	// often a replica writes even if nothing has changed.
	recordsEvery   = 30 * time.Second
	recordsRenewed = time.Hour
	// maxRecords bounds the data of a ConfigMap, which may have 1 MiB.
	maxRecords     = 512 << 10
	recordsTimeout = 10 * time.Second
	// recordsGone is after how long without a write a replica counts as gone, recordsKept how
	// long its ConfigMap is kept, and maxGone how many such ConfigMaps are kept.
	recordsGone = 2*recordsRenewed + 5*time.Minute
	recordsKept = 7 * 24 * time.Hour
	maxGone     = 16
	// recordsCleaned is how often the holder of the lease checks them.
	recordsCleaned = 10 * time.Minute
)

// storing is the state of storing a replica's records.
type storing struct {
	there bool // the ConfigMap probably exists
	mark  history.Mark
	at    time.Time // of the last write
}

// StoreRecords stores the entries of a Recorder regularly until ctx is done, and once more at the
// end. It needs no lease.
func (w *Writer) StoreRecords(ctx context.Context, l *history.Recorder) {
	s, tries := &storing{}, attempts{}
	attempt := func(ctx context.Context, timeout time.Duration, end bool) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		err := w.storeRecords(ctx, s, l, end)
		if _, news := tries.ended(err, recordsEvery); news {
			w.log.Warn("records of changes not stored", "error", err)
		}
	}
	for watch.Sleep(ctx, recordsEvery, nil, nil) {
		attempt(ctx, recordsTimeout, false)
	}
	attempt(context.WithoutCancel(ctx), 2*time.Second, true)
}

// storeRecords stores records if there are new ones, or if the last write is long ago. end: this
// is the replica's last write.
func (w *Writer) storeRecords(ctx context.Context, s *storing, l *history.Recorder, end bool) error {
	now := l.Mark()
	changed := now != s.mark
	if !changed && (!s.there || !end && time.Since(s.at) < recordsRenewed) {
		return nil
	}
	records, err := l.Store(maxRecords, s.mark)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(w.o.Identity))
	at := time.Now().UTC().Format(time.RFC3339)
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: recordsName + "-" + hex.EncodeToString(sum[:8]), Labels: labels(),
			Annotations: map[string]string{history.StoredReplica: w.o.Identity, renewedAnnotation: at},
		},
		BinaryData: map[string][]byte{history.StoredKey: records.Text},
	}
	m.Labels[history.StoredLabel] = "replica"
	if end {
		m.Annotations[closedAnnotation] = at
	}
	// No other process writes it. But a write whose answer was lost may have succeeded, and
	// somebody may have deleted the ConfigMap.
	update := func() error {
		_, err := w.configMaps().Update(ctx, m, metav1.UpdateOptions{})
		return err
	}
	create := func() error {
		_, err := w.configMaps().Create(ctx, m, metav1.CreateOptions{})
		return err
	}
	if s.there {
		if err = update(); apierrors.IsNotFound(err) {
			err = create()
		}
	} else if err = create(); apierrors.IsAlreadyExists(err) {
		err = update()
	}
	if err != nil {
		return err
	}
	l.Delivered(records.New, records.Missed)
	s.there, s.mark, s.at = true, records.Mark, time.Now()
	return nil
}

// cleanRecords deletes outdated ConfigMaps of replicas that are gone, until ctx is done.
func (w *Writer) cleanRecords(ctx context.Context) {
	var tries attempts
	for {
		err := w.deleteOldRecords(ctx)
		if _, news := tries.ended(err, recordsCleaned); news && ctx.Err() == nil {
			w.log.Warn("stored records of replicas that are gone not deleted", "error", err)
		}
		if !watch.Sleep(ctx, recordsCleaned, nil, nil) {
			return
		}
	}
}

func (w *Writer) deleteOldRecords(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	type gone struct {
		name    string
		uid     types.UID
		renewed string // RFC 3339 in UTC sorts as text
	}
	var all []gone
	now := time.Now()
	few := metav1.ListOptions{LabelSelector: history.StoredLabel, Limit: 4} // each has up to maxRecords
	if err := list.Each(ctx, w.configMaps().List, few, func(m *corev1.ConfigMap) error {
		if renewed := m.Annotations[renewedAnnotation]; m.Annotations[closedAnnotation] != "" || old(renewed, now, recordsGone) {
			all = append(all, gone{m.Name, m.UID, renewed})
		}
		return nil
	}); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b gone) int { return cmp.Compare(b.renewed, a.renewed) })
	var problem error
	for i, g := range all {
		if i < maxGone && !old(g.renewed, now, recordsKept) {
			continue
		}
		err := w.configMaps().Delete(ctx, g.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &g.uid}})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			problem = err
		}
	}
	return problem
}
