package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// externalMetrics are about providers of external data.
type externalMetrics struct {
	// mapd_external_calls_total counts requests to a provider. Labels:
	//   provider  name of the Provider
	//   result    ok, or why the whole call failed: dns, connection, tls, timeout,
	//             redirect, status, too_large, malformed, system_error, not_idempotent,
	//             certificate (mapd's own) or request
	calls *prometheus.CounterVec

	// mapd_external_call_duration_seconds is how long each of them took. Label: provider.
	duration *prometheus.HistogramVec

	// mapd_external_keys_total counts keys that were sent. Label: provider.
	keys *prometheus.CounterVec

	// mapd_external_answers_total counts keys that requests asked for and that needed no
	// call of their own, or that failed. Labels:
	//   provider  name of the Provider
	//   how       cached, shared (with a call that another request had made) or failed
	answers *prometheus.CounterVec

	// mapd_external_providers counts the Providers. Label:
	//   state  ready, or refused: not valid
	providers *prometheus.GaugeVec

	mu    sync.RWMutex // series are made while it is held for reading
	known []string     // names that may have series
}

func newExternalMetrics() *externalMetrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &externalMetrics{
		calls: counters("mapd_external_calls_total", "Requests to providers of external data by how they ended.", "provider", "result"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mapd_external_call_duration_seconds", Help: "Duration of one request to a provider.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5},
		}, []string{"provider"}),
		keys:      counters("mapd_external_keys_total", "Keys sent to providers.", "provider"),
		answers:   counters("mapd_external_answers_total", "Keys that were answered without a call of their own, or failed.", "provider", "how"),
		providers: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mapd_external_providers", Help: "Providers by state."}, []string{"state"}),
	}
}

func (m *externalMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.duration, m.keys, m.answers, m.providers}
}

// ProviderCalled records one call to a provider for a number of keys, and its result. A call that
// ends after its Provider was deleted is not counted.
func (m *Metrics) ProviderCalled(provider, result string, keys int, took time.Duration) {
	m.external.mu.RLock()
	defer m.external.mu.RUnlock()
	if !slices.Contains(m.external.known, provider) {
		return
	}
	m.external.calls.WithLabelValues(provider, result).Inc()
	m.external.duration.WithLabelValues(provider).Observe(took.Seconds())
	m.external.keys.WithLabelValues(provider).Add(float64(keys))
}

// ProviderAnswered records how many keys of one request were answered from the cache, by a call
// that another request had made, or not at all.
func (m *Metrics) ProviderAnswered(provider string, cached, shared, failed int) {
	m.external.mu.RLock()
	defer m.external.mu.RUnlock()
	if !slices.Contains(m.external.known, provider) {
		return
	}
	for how, n := range map[string]int{"cached": cached, "shared": shared, "failed": failed} {
		if n > 0 {
			m.external.answers.WithLabelValues(provider, how).Add(float64(n))
		}
	}
}

// ProvidersPublished records which Providers are in use, and how many are refused. It drops the
// series of all other providers.
func (m *Metrics) ProvidersPublished(names []string, refused int) {
	e := m.external
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range e.known {
		if !slices.Contains(names, name) {
			of := prometheus.Labels{"provider": name}
			e.calls.DeletePartialMatch(of)
			e.duration.DeletePartialMatch(of)
			e.keys.DeletePartialMatch(of)
			e.answers.DeletePartialMatch(of)
		}
	}
	e.known = slices.Clone(names)
	e.providers.WithLabelValues("ready").Set(float64(len(names)))
	e.providers.WithLabelValues("refused").Set(float64(refused))
}
