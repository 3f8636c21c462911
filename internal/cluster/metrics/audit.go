package metrics

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Audited is the outcome of an audit: what policies would do to the existing objects.
type Audited struct {
	// Objects is the number of objects that were evaluated, and Unread the number of those that
	// could not be.
	Objects, Unread int
	// UnreadableKinds is the number of kinds that could not be listed completely.
	UnreadableKinds int
	Ended           time.Time
	Took            time.Duration
	Policies        []AuditedPolicy
}

// AuditedPolicy counts the objects that a policy would change by one of its bindings, and
// those for which it fails. Mode is enforce, warn or shadow.
type AuditedPolicy struct {
	Policy, Binding, Mode string
	Changed, Failed       int
}

// auditMetrics have the outcome of the last audit. There are none on a replica that did not
// audit, or whose Lease is lost:
//
//	mapd_audit_objects                     objects that were evaluated
//	mapd_audit_would_change                objects that a policy would change. Labels:
//	  policy   name of the policy
//	  binding  name of the binding, "" for Gatekeeper's mutators and Kubewarden's policies
//	  mode     enforce, warn or shadow
//	mapd_audit_failed                      objects for which a policy fails, and with empty
//	                                       labels those that could not be evaluated. Labels:
//	                                       as above
//	mapd_audit_unreadable_kinds            kinds that could not be read, or not to their end
//	mapd_audit_last_run_timestamp_seconds  when the audit ended
//	mapd_audit_duration_seconds            how long it took
type auditMetrics struct{ last atomic.Pointer[Audited] }

// AuditEnded records the outcome of an audit; nil removes the metrics. Policies with the same
// name, such as a mutator and a policy of Kubewarden, are added up.
func (m *Metrics) AuditEnded(a *Audited) {
	if a == nil {
		m.audit.last.Store(nil)
		return
	}
	type key struct{ policy, binding, mode string }
	at := make(map[key]int, len(a.Policies))
	now := *a
	now.Policies = nil
	for _, p := range a.Policies {
		k := key{p.Policy, p.Binding, p.Mode}
		i, ok := at[k]
		if !ok {
			at[k] = len(now.Policies)
			now.Policies = append(now.Policies, p)
			continue
		}
		now.Policies[i].Changed += p.Changed
		now.Policies[i].Failed += p.Failed
	}
	m.audit.last.Store(&now)
}

// prune drops the series of policies for which keep returns false.
func (m *auditMetrics) prune(keep func(policy, binding string) bool) {
	last := m.last.Load()
	if last == nil || !slices.ContainsFunc(last.Policies, func(p AuditedPolicy) bool { return !keep(p.Policy, p.Binding) }) {
		return
	}
	now := *last
	now.Policies = slices.DeleteFunc(slices.Clone(last.Policies), func(p AuditedPolicy) bool { return !keep(p.Policy, p.Binding) })
	m.last.CompareAndSwap(last, &now)
}

var (
	auditPolicy          = []string{"policy", "binding", "mode"}
	auditObjectsDesc     = prometheus.NewDesc("mapd_audit_objects", "Objects that the last audit evaluated.", nil, nil)
	auditWouldChangeDesc = prometheus.NewDesc("mapd_audit_would_change", "Objects that a policy would change, according to the last audit.", auditPolicy, nil)
	auditFailedDesc      = prometheus.NewDesc("mapd_audit_failed", "Objects for which a policy fails, according to the last audit.", auditPolicy, nil)
	auditUnreadableDesc  = prometheus.NewDesc("mapd_audit_unreadable_kinds", "Kinds that the last audit could not read.", nil, nil)
	auditLastRunDesc     = prometheus.NewDesc("mapd_audit_last_run_timestamp_seconds", "When the last audit ended.", nil, nil)
	auditDurationDesc    = prometheus.NewDesc("mapd_audit_duration_seconds", "Duration of the last audit.", nil, nil)
	auditDescs           = []*prometheus.Desc{auditObjectsDesc, auditWouldChangeDesc, auditFailedDesc, auditUnreadableDesc, auditLastRunDesc, auditDurationDesc}
)

// Describe implements prometheus.Collector.
func (m *auditMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range auditDescs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *auditMetrics) Collect(to chan<- prometheus.Metric) {
	a := m.last.Load()
	if a == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(auditObjectsDesc, float64(a.Objects))
	gauge(auditUnreadableDesc, float64(a.UnreadableKinds))
	gauge(auditLastRunDesc, float64(a.Ended.UnixMilli())/1000)
	gauge(auditDurationDesc, a.Took.Seconds())
	gauge(auditFailedDesc, float64(a.Unread), "", "", "")
	for _, p := range a.Policies {
		gauge(auditWouldChangeDesc, float64(p.Changed), p.Policy, p.Binding, p.Mode)
		gauge(auditFailedDesc, float64(p.Failed), p.Policy, p.Binding, p.Mode)
	}
}
