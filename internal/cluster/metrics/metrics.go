// Package metrics has what `mapd serve` counts and shows besides reviews, which pkg/webhook
// counts: snapshots, mutators, breakers, audits, objects that exist, providers, watches, records and the tokens
// of API servers. Policies, bindings and providers are named by labels; no other object is.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mapd-project/mapd/pkg/webhook"
)

// Metrics are all metrics of a server. They are safe for concurrent use.
type Metrics struct {
	*webhook.Metrics

	snapshot   *snapshotMetrics
	external   *externalMetrics
	watches    watchMetrics
	breakers   breakerMetrics
	audit      auditMetrics
	sink       sinkMetrics
	exceptions exceptionMetrics
	existing   existingMetrics
	callers    *prometheus.CounterVec
}

// New returns metrics that nothing has happened to yet.
func New() *Metrics {
	m := &Metrics{Metrics: webhook.NewMetrics(), snapshot: newSnapshotMetrics(), external: newExternalMetrics(), callers: newCallers()}
	m.Registry().MustRegister(m.collectors()...)
	return m
}

// collectors are those of this package.
func (m *Metrics) collectors() []prometheus.Collector {
	all := []prometheus.Collector{&m.watches, &m.breakers, &m.audit, &m.sink, m.callers, &m.exceptions, &m.existing}
	return append(append(all, m.snapshot.collectors()...), m.external.collectors()...)
}

// Prune is webhook.Metrics.Prune, and forgets the outcome of audits and of existing objects, too.
func (m *Metrics) Prune(keep func(policy, binding string) bool) {
	m.audit.prune(keep)
	m.existing.prune(keep)
	m.Metrics.Prune(keep)
}
