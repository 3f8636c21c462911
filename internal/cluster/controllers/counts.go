package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
)

// Every replica writes its counts into its own ConfigMap, and the holder of the lease adds them
// up. When a replica is gone, the holder adds its counts to those of former replicas, in the
// ConfigMap countsName, and later deletes the replica's ConfigMap.
//
// Nothing may count twice, even if any process stops at any point. So the holder first closes the
// ConfigMap, by a write that fails if the replica has written meanwhile; from then on its content
// does not change. Then, in one write, it adds the content to the counts of former replicas and
// records the ConfigMap's UID as folded, so that the ConfigMap does not count any more. A replica
// that is still alive finds its ConfigMap closed, and starts another one for what it counts from
// then on.
const (
	countsName  = "mapd-counts"
	countsLabel = "mapd.dev/counts"
	// closedAnnotation has the time when a ConfigMap was closed, and renewedAnnotation that of
	// the replica's last write.
	closedAnnotation  = "mapd.dev/closed"
	renewedAnnotation = "mapd.dev/renewed"
	replicaAnnotation = "mapd.dev/replica"
	keyCounts         = "counts.json.gz"
	keyFolded         = "folded"

	// countsEvery is how often counts are written and added up.
	countsEvery = 30 * time.Second
	// countsRenewed is how often a replica writes even if nothing has changed.
	countsRenewed = 4 * time.Minute
	// countsGone is after how long without a write a replica counts as gone, and
	// countsKept how long a closed ConfigMap stays.
	countsGone = 15 * time.Minute
	countsKept = 15 * time.Minute
	// maxCounts bounds the data of a ConfigMap, which may have 1 MiB. The counts of 10,000
	// bindings are smaller; see TestCountsOfManyBindings.
	maxCounts = 900 << 10
	// maxCountStatuses is how many statuses may get new counts in each countsEvery.
	maxCountStatuses = 300
	countsTimeout    = 10 * time.Second
)

func (w *Writer) configMaps() corev1client.ConfigMapInterface {
	return w.o.Kubernetes.CoreV1().ConfigMaps(w.o.Namespace)
}

// publication is the state of publishing a replica's counts.
type publication struct {
	number int               // of the present ConfigMap
	live   *corev1.ConfigMap // as the server stores it; nil: not known or none
	tried  bool              // the server may have the ConfigMap although live is nil
	failed bool              // the last write may have failed
	// closed has the counts in closed ConfigMaps, and sent those that were last sent for the
	// present one.
	closed, sent map[history.Pair]history.Counts
	at           time.Time // of the last write
}

// publishCounts writes the counts of this replica until ctx is done, and closes its
// ConfigMap then.
func (w *Writer) publishCounts(ctx context.Context) {
	p := &publication{closed: map[history.Pair]history.Counts{}}
	var tries attempts
	for watch.Sleep(ctx, countsEvery, nil, nil) {
		err := w.publish(ctx, p, false)
		if _, news := tries.ended(err, countsEvery); news && ctx.Err() == nil {
			w.log.Warn("counts of requests not written to the ConfigMap of this replica", "error", err)
		}
	}
	if p.live == nil && len(w.o.Counts()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := w.publish(ctx, p, true); err != nil {
		w.log.Warn("counts of requests not written to the ConfigMap of this replica", "error", err)
	}
}

// publish writes the counts if they have changed, or if the last write is long ago. last: this is
// the replica's last write.
func (w *Writer) publish(ctx context.Context, p *publication, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, countsTimeout)
	defer cancel()
	for range 3 {
		now, counts := w.o.Counts(), map[history.Pair]history.Counts{}
		for i := range now {
			c := &now[i]
			counts[c.Pair] = c.Counts
			c.Counts = c.Since(p.closed[c.Pair])
		}
		if !last && !p.failed && p.live != nil && maps.Equal(counts, p.sent) && time.Since(p.at) < countsRenewed {
			return nil
		}
		if p.live == nil && !p.tried && len(now) == 0 {
			return nil
		}
		again, err := w.publishOnce(ctx, p, now, counts, last)
		if err != nil || !again {
			return err
		}
	}
	return nil // writes of others interfered; the next call may succeed
}

// publishOnce tries to write the counts. again: the caller has to compute the counts anew.
func (w *Writer) publishOnce(ctx context.Context, p *publication, now []history.Counted, counts map[history.Pair]history.Counts, last bool) (again bool, err error) {
	text, omitted, err := history.Pack(now, maxCounts)
	if err != nil {
		return false, err
	}
	if omitted > 0 {
		w.log.Warn("there are too many policies and bindings to write the counts of requests of all", "omitted", omitted)
	}
	sum := sha256.Sum256([]byte(w.o.Identity))
	name := fmt.Sprintf("%s-%s-%d", countsName, hex.EncodeToString(sum[:8]), p.number)
	at := time.Now().UTC().Format(time.RFC3339)
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: labels(), Annotations: map[string]string{replicaAnnotation: w.o.Identity, renewedAnnotation: at},
		},
		BinaryData: map[string][]byte{keyCounts: text},
	}
	m.Labels[countsLabel] = "replica"
	if last {
		m.Annotations[closedAnnotation] = at
	}
	p.sent, p.tried, p.failed = counts, true, true
	var stored *corev1.ConfigMap
	if p.live == nil {
		stored, err = w.configMaps().Create(ctx, m, metav1.CreateOptions{})
	} else {
		m.UID, m.ResourceVersion = p.live.UID, p.live.ResourceVersion
		stored, err = w.configMaps().Update(ctx, m, metav1.UpdateOptions{})
	}
	switch {
	case err == nil:
		p.live, p.at, p.failed = stored, time.Now(), false
		return false, nil
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return true, w.found(ctx, p, name)
	}
	return false, err
}

// found reads the ConfigMap of the replica after a write of it has failed.
func (w *Writer) found(ctx context.Context, p *publication, name string) error {
	live, err := w.configMaps().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		// It was closed and deleted long ago, or somebody has deleted it. Whether its counts were
		// added up is not certain; it is better to lose them than to count them twice.
		for pair, c := range p.sent {
			p.closed[pair] = c
		}
		p.live, p.tried = nil, false
		p.number++
		return nil
	case err != nil:
		return err
	case live.Annotations[closedAnnotation] == "" && live.Annotations[replicaAnnotation] == w.o.Identity:
		p.live = live
		return nil
	case live.Annotations[replicaAnnotation] == w.o.Identity:
		counts, err := history.Unpack(live.BinaryData[keyCounts])
		if err != nil {
			counts = nil // like the holder that adds it up
		}
		for i := range counts {
			c := &counts[i]
			sum := history.Counted{Counts: p.closed[c.Pair]}
			sum.Add(c)
			p.closed[c.Pair] = sum.Counts
		}
	}
	p.live, p.tried = nil, false
	p.number++
	return nil
}

// keepTotals adds up the counts of all replicas until ctx is done.
func (w *Writer) keepTotals(ctx context.Context) {
	var tries attempts
	for {
		if s := w.o.Store.Snapshot(); s != nil {
			err := w.addUp(ctx, s)
			if _, news := tries.ended(err, countsEvery); news && ctx.Err() == nil {
				w.log.Warn("counts of requests of all replicas not added up", "error", err)
			}
		}
		if !watch.Sleep(ctx, countsEvery, nil, nil) {
			return
		}
	}
}

// addUp adds up the counts of all replicas. For each replica that is gone, it takes the next step
// of folding its counts.
func (w *Writer) addUp(ctx context.Context, s *store.Snapshot) error {
	ctx, cancel := context.WithTimeout(ctx, countsTimeout)
	defer cancel()
	list, err := w.configMaps().List(ctx, metav1.ListOptions{LabelSelector: countsLabel})
	if err != nil {
		return err
	}
	earlier, live := &earlier{folded: map[types.UID]bool{}, counts: map[history.Pair]*history.Counted{}}, map[history.Pair]*history.Counted{}
	for i := range list.Items {
		if m := &list.Items[i]; m.Name == countsName {
			earlier.read(m)
		}
	}
	there, now := map[types.UID]bool{}, time.Now()
	var problem error
	for i := range list.Items {
		m := &list.Items[i]
		if m.Name == countsName {
			continue
		}
		there[m.UID] = true
		closed := m.Annotations[closedAnnotation]
		switch {
		case earlier.folded[m.UID]:
			if old(closed, now, countsKept) {
				problem = w.deleteCounts(ctx, m)
			}
			continue
		case closed != "":
			earlier.add(m)
			earlier.folded[m.UID], earlier.changed = true, true
			continue
		case old(m.Annotations[renewedAnnotation], now, countsGone):
			problem = w.closeCounts(ctx, m, now)
		}
		addCounts(live, m)
	}
	earlier.prune(there, s)
	if earlier.changed && !w.late() {
		if err := w.writeEarlier(ctx, earlier); err != nil {
			problem = err
		}
	}
	for p, c := range earlier.counts {
		if live[p] == nil {
			live[p] = &history.Counted{Pair: p}
		}
		live[p].Add(c)
	}
	w.totals.Store(&live)
	w.counted.Notify()
	return problem
}

// old reports whether a time is longer ago than after, or cannot be parsed.
func old(text string, now time.Time, after time.Duration) bool {
	at, err := time.Parse(time.RFC3339, text)
	return err != nil || now.Sub(at) > after
}

// addCounts adds the counts in a ConfigMap. Unreadable data counts as no counts.
func addCounts(to map[history.Pair]*history.Counted, m *corev1.ConfigMap) {
	counts, err := history.Unpack(m.BinaryData[keyCounts])
	if err != nil {
		return
	}
	for i := range counts {
		c := &counts[i]
		if to[c.Pair] == nil {
			to[c.Pair] = &history.Counted{Pair: c.Pair}
		}
		to[c.Pair].Add(c)
	}
}

func (w *Writer) closeCounts(ctx context.Context, m *corev1.ConfigMap, now time.Time) error {
	m = m.DeepCopy()
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[closedAnnotation] = now.UTC().Format(time.RFC3339)
	_, err := w.configMaps().Update(ctx, m, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the replica is alive, or another holder of the lease was faster
	}
	return err
}

func (w *Writer) deleteCounts(ctx context.Context, m *corev1.ConfigMap) error {
	err := w.configMaps().Delete(ctx, m.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID}})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// earlier has the counts of former replicas.
type earlier struct {
	live    *corev1.ConfigMap // nil: there is none yet
	folded  map[types.UID]bool
	counts  map[history.Pair]*history.Counted
	changed bool
}

func (e *earlier) read(m *corev1.ConfigMap) {
	e.live = m
	var folded []types.UID
	if json.Unmarshal([]byte(m.Data[keyFolded]), &folded) == nil {
		for _, uid := range folded {
			e.folded[uid] = true
		}
	}
	addCounts(e.counts, m)
}

func (e *earlier) add(m *corev1.ConfigMap) { addCounts(e.counts, m) }

// prune drops the records of ConfigMaps and the counts of bindings that no longer exist.
func (e *earlier) prune(there map[types.UID]bool, s *store.Snapshot) {
	bound := map[history.Pair]bool{}
	for _, b := range s.Bindings {
		bound[history.Pair{Policy: b.PolicyName, Binding: b.Object.GetName()}] = true
	}
	n := len(e.folded) + len(e.counts)
	maps.DeleteFunc(e.folded, func(uid types.UID, _ bool) bool { return !there[uid] })
	maps.DeleteFunc(e.counts, func(p history.Pair, _ *history.Counted) bool { return !bound[p] })
	e.changed = e.changed || len(e.folded)+len(e.counts) < n
}

// writeEarlier writes the counts of former replicas. It fails if another holder of the lease has
// written meanwhile.
func (w *Writer) writeEarlier(ctx context.Context, e *earlier) error {
	var all []history.Counted
	for _, c := range e.counts {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b history.Counted) int { return a.Compare(b.Pair) })
	text, _, err := history.Pack(all, maxCounts)
	if err != nil {
		return err
	}
	folded, err := json.Marshal(slices.Sorted(maps.Keys(e.folded)))
	if err != nil {
		return err
	}
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: countsName, Labels: labels()},
		Data:       map[string]string{keyFolded: string(folded)}, BinaryData: map[string][]byte{keyCounts: text},
	}
	m.Labels[countsLabel] = "earlier"
	if e.live == nil {
		_, err = w.configMaps().Create(ctx, m, metav1.CreateOptions{})
	} else {
		m.UID, m.ResourceVersion = e.live.UID, e.live.ResourceVersion
		_, err = w.configMaps().Update(ctx, m, metav1.UpdateOptions{})
	}
	return err
}

// rolloutStatus is the part of a binding's status about what the binding has done.
type rolloutStatus struct {
	Mode    string      `json:"mode,omitempty"`
	Seen    int64       `json:"seen"`
	Would   int64       `json:"would"`
	Changed int64       `json:"changed"`
	Failed  int64       `json:"failed"`
	Last    *lastStatus `json:"last,omitempty"`
}

// lastStatus is the last object that was changed, or would have been.
type lastStatus struct {
	Kind      string   `json:"kind,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name,omitempty"`
	Fields    []string `json:"fields,omitempty"`
}

// rolloutOf returns counts as a status has them.
func rolloutOf(c *history.Counted) rolloutStatus {
	s := rolloutStatus{Seen: clamp(c.Seen), Would: clamp(c.Would), Changed: clamp(c.Changed), Failed: clamp(c.Failed)}
	if c.Last != nil {
		s.Last = &lastStatus{Kind: bounded(c.Last.Kind), Namespace: bounded(c.Last.Namespace), Name: bounded(c.Last.Name)}
		for _, f := range c.Last.Fields {
			s.Last.Fields = append(s.Last.Fields, bounded(f))
		}
	}
	return s
}

// clamp limits n to what a JSON integer of an API server can hold.
func clamp(n uint64) int64 { return int64(min(n, 1<<62)) }

// same reports whether the counts are equal. A different last object alone is no reason for a
// write.
func (s rolloutStatus) same(t rolloutStatus) bool {
	return s.Seen == t.Seen && s.Would == t.Would && s.Changed == t.Changed && s.Failed == t.Failed
}
