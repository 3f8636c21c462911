package metrics

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// ExistingObjects has the number of existing objects that a policy would change because of a
// binding.
type ExistingObjects struct {
	Policy, Binding string
	// Found, Written, Alone and Waiting are numbers of the last audit.
	Found, Written, Alone, Waiting int
	Stopped                        bool
}

// existingMetrics are about bindings with the annotation mapd.dev/existing. Only the replica that
// holds the Lease has them:
//
//	mapd_existing_objects  objects of the last audit. Labels:
//	  policy   name of the policy
//	  binding  name of the binding
//	  state    found (they would change), and of these written, alone and waiting
//	mapd_existing_stopped  1 if nothing more is written before somebody has acted, because a field
//	                       was changed back or a right is missing, else 0. Labels: policy and binding
type existingMetrics struct {
	last atomic.Pointer[[]ExistingObjects]
}

// ExistingPublished records the state of each binding; nil removes the metrics.
func (m *Metrics) ExistingPublished(all []ExistingObjects) {
	if all == nil {
		m.existing.last.Store(nil)
		return
	}
	m.existing.last.Store(&all)
}

// prune drops the series of bindings for which keep returns false.
func (m *existingMetrics) prune(keep func(policy, binding string) bool) {
	last := m.last.Load()
	gone := func(o ExistingObjects) bool { return !keep(o.Policy, o.Binding) }
	if last == nil || !slices.ContainsFunc(*last, gone) {
		return
	}
	now := slices.DeleteFunc(slices.Clone(*last), gone)
	m.last.CompareAndSwap(last, &now)
}

var (
	existingObjectsDesc = prometheus.NewDesc("mapd_existing_objects", "Objects that exist and that a policy would change, according to the last audit.", []string{"policy", "binding", "state"}, nil)
	existingStoppedDesc = prometheus.NewDesc("mapd_existing_stopped", "Whether no objects are written because a field was changed back or a right is missing.", []string{"policy", "binding"}, nil)
)

// Describe implements prometheus.Collector.
func (m *existingMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- existingObjectsDesc
	to <- existingStoppedDesc
}

// Collect implements prometheus.Collector.
func (m *existingMetrics) Collect(to chan<- prometheus.Metric) {
	all := m.last.Load()
	if all == nil {
		return
	}
	for _, o := range *all {
		gauge := func(d *prometheus.Desc, v int, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), append([]string{o.Policy, o.Binding}, labels...)...)
		}
		gauge(existingObjectsDesc, o.Found, "found")
		gauge(existingObjectsDesc, o.Written, "written")
		gauge(existingObjectsDesc, o.Alone, "alone")
		gauge(existingObjectsDesc, o.Waiting, "waiting")
		stopped := 0
		if o.Stopped {
			stopped = 1
		}
		gauge(existingStoppedDesc, stopped)
	}
}
