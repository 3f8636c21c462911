package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// WatchState describes the connection to the API server.
type WatchState interface {
	// LastContact returns when the server last answered.
	LastContact() time.Time
	// Connected returns, for every watched resource, whether it is being read.
	Connected() map[string]bool
}

// watchMetrics say whether a replica still learns what changes in the cluster:
//
//	mapd_watch_connected             1 for a resource that is being read, 0 for one that is
//	                                 not. Label:
//	  resource  such as mutatingadmissionpolicies.admissionregistration.mapd.dev
//	mapd_watch_last_contact_seconds  how long ago the API server last answered
//
// There are none without a cluster.
type watchMetrics struct{ of atomic.Pointer[WatchState] }

// Watch sets the source of these metrics.
func (m *Metrics) Watch(s WatchState) { m.watches.of.Store(&s) }

var (
	connectedDesc = prometheus.NewDesc("mapd_watch_connected", "Whether a resource of the cluster is being read.", []string{"resource"}, nil)
	contactDesc   = prometheus.NewDesc("mapd_watch_last_contact_seconds", "Time since the API server last answered.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *watchMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- connectedDesc
	to <- contactDesc
}

// Collect implements prometheus.Collector.
func (m *watchMetrics) Collect(to chan<- prometheus.Metric) {
	s := m.of.Load()
	if s == nil {
		return
	}
	to <- prometheus.MustNewConstMetric(contactDesc, prometheus.GaugeValue, time.Since((*s).LastContact()).Seconds())
	for resource, connected := range (*s).Connected() {
		to <- prometheus.MustNewConstMetric(connectedDesc, prometheus.GaugeValue, zeroOrOne(connected), resource)
	}
}
