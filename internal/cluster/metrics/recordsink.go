package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// sinkMetrics say what became of the records that are stored or sent elsewhere:
//
//	mapd_record_sink_entries_total  entries of records, one for each request in which
//	                                policies changed something. Label:
//	  result  sent, or dropped: lost for good
type sinkMetrics struct {
	totals atomic.Pointer[func() (sent, dropped uint64)]
}

// RecordSink sets the function that returns how many entries a sink of records has sent and lost.
func (m *Metrics) RecordSink(totals func() (sent, dropped uint64)) { m.sink.totals.Store(&totals) }

var sinkDesc = prometheus.NewDesc("mapd_record_sink_entries_total", "Entries of records by whether the sink has taken them.", []string{"result"}, nil)

// Describe implements prometheus.Collector.
func (m *sinkMetrics) Describe(to chan<- *prometheus.Desc) { to <- sinkDesc }

// Collect implements prometheus.Collector.
func (m *sinkMetrics) Collect(to chan<- prometheus.Metric) {
	if totals := m.totals.Load(); totals != nil {
		sent, dropped := (*totals)()
		to <- prometheus.MustNewConstMetric(sinkDesc, prometheus.CounterValue, float64(sent), "sent")
		to <- prometheus.MustNewConstMetric(sinkDesc, prometheus.CounterValue, float64(dropped), "dropped")
	}
}
