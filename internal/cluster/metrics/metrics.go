// Package metrics has the metrics of `mapd serve`, except those about reviews, which pkg/webhook
// counts: snapshots, mutators, breakers, audits, existing objects, providers, watches, records
// and the tokens of API servers. Labels name policies, bindings and providers, and no other
// objects.
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

// New returns metrics without any values yet.
func New() *Metrics {
	m := &Metrics{Metrics: webhook.NewMetrics(), snapshot: newSnapshotMetrics(), external: newExternalMetrics(), callers: newCallers()}
	m.Registry().MustRegister(m.collectors()...)
	return m
}

// collectors returns the collectors of this package.
func (m *Metrics) collectors() []prometheus.Collector {
	all := []prometheus.Collector{&m.watches, &m.breakers, &m.audit, &m.sink, m.callers, &m.exceptions, &m.existing}
	return append(append(all, m.snapshot.collectors()...), m.external.collectors()...)
}

// Prune does the same as webhook.Metrics.Prune, and also drops series of audits and of existing
// objects.
func (m *Metrics) Prune(keep func(policy, binding string) bool) {
	m.audit.prune(keep)
	m.existing.prune(keep)
	m.Metrics.Prune(keep)
}
