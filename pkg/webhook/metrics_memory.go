package webhook

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/memory"
)

// memoryMetrics tell how near reviews are to the bounds of Options.Memory and
// Options.Bodies:
//
//	mapd_memory_budget_bytes    what reviews may hold together at present
//	mapd_memory_used_bytes      what they hold, and what ended ones have left to
//	                            the garbage collector
//	mapd_memory_peak_bytes      the largest mapd_memory_used_bytes there ever was
//	mapd_memory_bodies_bytes    what bodies hold that are not complete
//	mapd_memory_refused_total   reviews that were refused. Label:
//	  reason  too-large (413: never fits), busy (429: others hold the memory),
//	          body (429: dropped while it was read, for others)
//
// and to those of Server.Connections:
//
//	mapd_longest_turn_seconds      for how long a long evaluation keeps others waiting
//	mapd_connections               connections that are open
//	mapd_connections_closed_total  connections that were closed to make room, or
//	                               because there was none
type memoryMetrics struct {
	of          atomic.Pointer[watched]
	connections atomic.Pointer[connections]
}

type watched struct {
	budget *memory.Budget
	bodies *bodies
}

// watch sets the Handler's limits that m reports.
func (m *Metrics) watch(budget *memory.Budget, bodies *bodies) {
	m.memory.of.Store(&watched{budget, bodies})
}

// watchConnections sets the Server's connections that m reports.
func (m *Metrics) watchConnections(c *connections) { m.memory.connections.Store(c) }

var (
	budgetDesc  = prometheus.NewDesc("mapd_memory_budget_bytes", "Memory that reviews may hold together at present.", nil, nil)
	usedDesc    = prometheus.NewDesc("mapd_memory_used_bytes", "Memory that reviews hold, or have left to the garbage collector.", nil, nil)
	peakDesc    = prometheus.NewDesc("mapd_memory_peak_bytes", "The most that mapd_memory_used_bytes ever was.", nil, nil)
	bodiesDesc  = prometheus.NewDesc("mapd_memory_bodies_bytes", "Memory that bodies hold which are not complete.", nil, nil)
	refusedDesc = prometheus.NewDesc("mapd_memory_refused_total", "Reviews refused for want of memory.", []string{"reason"}, nil)
	openDesc    = prometheus.NewDesc("mapd_connections", "Open connections.", nil, nil)
	turnDesc    = prometheus.NewDesc("mapd_longest_turn_seconds", "For how long the long evaluation that has run the longest has not let another one run.", nil, nil)
	closedDesc  = prometheus.NewDesc("mapd_connections_closed_total", "Connections closed to make room for others, or for want of room.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *memoryMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{budgetDesc, usedDesc, peakDesc, bodiesDesc, refusedDesc, openDesc, closedDesc, turnDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *memoryMetrics) Collect(to chan<- prometheus.Metric) {
	if c := m.connections.Load(); c != nil {
		open, closed := c.state()
		to <- prometheus.MustNewConstMetric(openDesc, prometheus.GaugeValue, float64(open))
		to <- prometheus.MustNewConstMetric(closedDesc, prometheus.CounterValue, float64(closed))
	}
	w := m.of.Load()
	if w == nil {
		return
	}
	to <- prometheus.MustNewConstMetric(turnDesc, prometheus.GaugeValue, engine.LongestTurn().Seconds())
	gauge := func(d *prometheus.Desc, v int64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	gauge(budgetDesc, w.budget.Limit())
	gauge(usedDesc, w.budget.Used())
	gauge(peakDesc, w.budget.Peak())
	held, dropped := w.bodies.state()
	gauge(bodiesDesc, held)
	refused := func(reason string, n int64) {
		to <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n), reason)
	}
	refused(string(memory.TooLarge), w.budget.Refused(memory.TooLarge))
	refused(string(memory.Busy), w.budget.Refused(memory.Busy))
	refused("body", dropped)
}
