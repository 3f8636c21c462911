package metrics

import "github.com/prometheus/client_golang/prometheus"

// newCallers returns the counter of reviews by what authenticated them:
//
//	mapd_caller_tokens_total  reviews, if tokens of API servers are looked at. Labels:
//	  mode    warn or require
//	  server  address that the review came from, or others
//	  result  valid, missing or invalid
func newCallers() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mapd_caller_tokens_total", Help: "Reviews by the tokens of API servers that came with them.",
	}, []string{"mode", "server", "result"})
}

// CallerToken counts a review.
func (m *Metrics) CallerToken(mode, server, result string) {
	m.callers.WithLabelValues(mode, server, result).Inc()
}
