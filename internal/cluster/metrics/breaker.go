package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// breakerMetrics say which policies have a breaker:
//
//	mapd_breaker_tripped  1 for a policy whose breaker has tripped, 0 for one with a
//	                      breaker that did not. Label:
//	  policy  name of the policy
type breakerMetrics struct {
	tripped atomic.Pointer[map[string]bool]
}

// BreakersPublished replaces the set of policies with a breaker; the value says whether it has
// tripped. The caller must not modify the map afterwards.
func (m *Metrics) BreakersPublished(tripped map[string]bool) { m.breakers.tripped.Store(&tripped) }

var trippedDesc = prometheus.NewDesc("mapd_breaker_tripped", "Whether the breaker of a policy has tripped.", []string{"policy"}, nil)

// Describe implements prometheus.Collector.
func (m *breakerMetrics) Describe(to chan<- *prometheus.Desc) { to <- trippedDesc }

// Collect implements prometheus.Collector.
func (m *breakerMetrics) Collect(to chan<- prometheus.Metric) {
	if tripped := m.tripped.Load(); tripped != nil {
		for policy, is := range *tripped {
			to <- prometheus.MustNewConstMetric(trippedDesc, prometheus.GaugeValue, zeroOrOne(is), policy)
		}
	}
}

// zeroOrOne returns 1 for true and 0 for false.
func zeroOrOne(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
