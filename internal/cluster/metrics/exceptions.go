package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// exceptionMetrics count exceptions from policies. The replica that holds the lease has them:
//
//	mapd_exceptions         exceptions. Label:
//	  state  the reason of their condition Active: Active, NotYet, Ended, Invalid, NotAllowed,
//	         NoSuchPolicy or TooMany
//	mapd_exceptions_ending  exceptions that hold and end within a week
type exceptionMetrics struct {
	published atomic.Pointer[publishedExceptions]
}

type publishedExceptions struct {
	reasons map[string]int
	ending  int
}

// ExceptionsPublished records how many exceptions there are from now on, by the reason of their
// condition Active, and how many of those that hold end within a week.
func (m *Metrics) ExceptionsPublished(reasons map[string]int, ending int) {
	m.exceptions.published.Store(&publishedExceptions{reasons, ending})
}

var (
	exceptionsDesc = prometheus.NewDesc("mapd_exceptions", "Exceptions from policies.", []string{"state"}, nil)
	endingDesc     = prometheus.NewDesc("mapd_exceptions_ending", "Exceptions from policies that hold and end within a week.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *exceptionMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- exceptionsDesc
	to <- endingDesc
}

// Collect implements prometheus.Collector.
func (m *exceptionMetrics) Collect(to chan<- prometheus.Metric) {
	p := m.published.Load()
	if p == nil {
		return
	}
	for state, n := range p.reasons {
		to <- prometheus.MustNewConstMetric(exceptionsDesc, prometheus.GaugeValue, float64(n), state)
	}
	to <- prometheus.MustNewConstMetric(endingDesc, prometheus.GaugeValue, float64(p.ending))
}
