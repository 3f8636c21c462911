package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// snapshotMetrics are about the snapshot in use.
type snapshotMetrics struct {
	// mapd_snapshot_policies and mapd_snapshot_bindings are the size of the
	// snapshot in use. No labels.
	policies, bindings prometheus.Gauge

	// mapd_snapshot_age_seconds is the time since the snapshot in use was
	// published, 0 before the first. No labels.
	published atomic.Int64 // Unix nanoseconds

	// mapd_snapshot_reloads_total counts attempts to publish a snapshot. Label:
	//   result  published, or failed: the old one is still in use
	reloads *prometheus.CounterVec

	// mapd_compile_errors is the number of errors in the policies as they were
	// read last, whether or not they were published. No labels.
	compileErrors prometheus.Gauge

	// mapd_legacy_mutators counts Gatekeeper's mutators in use. Label:
	//   state  running, conflict (with others, so off), native (run by policies), not-run (for another reason)
	mutators *prometheus.GaugeVec

	// mapd_legacy_shapes is how many programs the running ones share. No labels.
	shapes prometheus.Gauge

	// mapd_expanded_objects_total counts the objects that workloads were expanded into.
	// No labels.
	expandedObjects prometheus.Counter
}

func newSnapshotMetrics() *snapshotMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return &snapshotMetrics{
		policies:      gauge("mapd_snapshot_policies", "Policies in the snapshot in use."),
		bindings:      gauge("mapd_snapshot_bindings", "Bindings in the snapshot in use."),
		reloads:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mapd_snapshot_reloads_total", Help: "Attempts to publish a snapshot."}, []string{"result"}),
		compileErrors: gauge("mapd_compile_errors", "Errors in the policies as they were read last."),
		mutators: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mapd_legacy_mutators", Help: "Gatekeeper's mutators in use by what has become of them.",
		}, []string{"state"}),
		shapes: gauge("mapd_legacy_shapes", "Programs that the running mutators share."),
		expandedObjects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mapd_expanded_objects_total", Help: "Objects that workloads were expanded into.",
		}),
	}
}

func (m *snapshotMetrics) collectors() []prometheus.Collector {
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mapd_snapshot_age_seconds", Help: "Time since the snapshot in use was published.",
	}, m.age)
	return []prometheus.Collector{m.policies, m.bindings, m.reloads, m.compileErrors, age, m.mutators, m.shapes, m.expandedObjects}
}

// SnapshotPublished records that a snapshot of that size is in use from now on,
// and how many of its policies do not compile. changed is false if requests get the same
// decisions as before, such as after a change of a policy without a binding.
func (m *Metrics) SnapshotPublished(policies, bindings, compileErrors int, changed bool) {
	m.snapshot.policies.Set(float64(policies))
	m.snapshot.bindings.Set(float64(bindings))
	m.snapshot.compileErrors.Set(float64(compileErrors))
	if changed {
		m.snapshot.published.Store(time.Now().UnixNano())
		m.snapshot.reloads.WithLabelValues("published").Inc()
	}
}

// MutatorsPublished records the number of Gatekeeper's mutators by state, and how many programs
// they share.
func (m *Metrics) MutatorsPublished(states map[string]int, shapes int) {
	m.snapshot.mutators.Reset()
	for state, n := range states {
		m.snapshot.mutators.WithLabelValues(state).Set(float64(n))
	}
	m.snapshot.shapes.Set(float64(shapes))
}

// SnapshotFailed records that a new snapshot was not published because of so many errors.
func (m *Metrics) SnapshotFailed(compileErrors int) {
	m.snapshot.compileErrors.Set(float64(compileErrors))
	m.snapshot.reloads.WithLabelValues("failed").Inc()
}

func (m *snapshotMetrics) age() float64 {
	at := m.published.Load()
	if at == 0 {
		return 0
	}
	return time.Since(time.Unix(0, at)).Seconds()
}

// ObjectsExpanded records that workloads were expanded into n objects.
func (m *Metrics) ObjectsExpanded(n int) { m.snapshot.expandedObjects.Add(float64(n)) }
