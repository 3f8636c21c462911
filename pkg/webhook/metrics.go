package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Metrics are the metrics of a Handler, in a registry of their own. Policies and
// bindings are named; no label holds the name of any other object. They are
// safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	// mapd_decisions_total counts, for each request and each policy and binding
	// that acted on it, how that ended. Labels:
	//   policy   name of the policy
	//   binding  name of the binding, "" if the policy itself is at fault and for
	//            Gatekeeper's mutators, whose policy is such as Assign/name
	//   outcome  the gravest of its steps, params and rounds together:
	//            denied > ignored > changed > unchanged > skipped
	//              denied     an error counted and the request was denied
	//              ignored    an error was swallowed by failurePolicy Ignore
	//              changed    a mutation changed the object
	//              unchanged  mutations ran and changed nothing
	//              skipped    no mutation ran: a condition was false, no params …
	decisions *prometheus.CounterVec

	// mapd_mutating_admission_policy_check_total counts executed mutations, as
	// apiserver_mutating_admission_policy_check_total does (spec §10). Labels:
	//   policy          name of the policy
	//   policy_binding  name of the binding
	//   error_type      no_error, invalid_error, compile_error or out_of_budget
	checks *prometheus.CounterVec

	// mapd_mutating_admission_policy_check_duration_seconds is how long each of
	// them took. Labels: as above.
	checkDuration *prometheus.HistogramVec

	// mapd_request_duration_seconds is how long a review took from the first
	// byte decoded to the last encoded. Labels:
	//   operation  CREATE, UPDATE, DELETE or CONNECT
	//   result     allowed (as it was), mutated, denied, timeout (not decided), or
	//              memory (not decided: it needs too much, or others hold it)
	requestDuration *prometheus.HistogramVec

	// mapd_validations_total counts policies and bindings that were validated
	// when they were written. Labels:
	//   resource  mutatingadmissionpolicies, mutatingadmissionpolicybindings or other
	//   result    allowed, warned (allowed with warnings), denied, or timeout (not decided)
	validations *prometheus.CounterVec

	// mapd_expansion_duration_seconds is how long a review of a workload took, whose
	// objects were expanded and judged. Label:
	//   result  allowed, warned (allowed with warnings), denied, or timeout (not decided)
	expansions *prometheus.HistogramVec

	// mapd_http_requests_total counts answers. Labels:
	//   path  /mutate, the four such as /mutate/fail/never, /mutate/legacy,
	//         /validate, /expand, /records/, /healthz, /readyz, /metrics or other
	//   code  HTTP status, such as 200, 400, 401, 403, 404, 405, 413, 415, 429, 500 or 503
	httpRequests *prometheus.CounterVec

	// mapd_requests_in_flight is the number of reviews being answered. No labels.
	inFlight prometheus.Gauge

	// mapd_panics_total counts panics outside of policies. No labels.
	panics prometheus.Counter

	// mapd_legacy_passes is how many passes the mutators took for requests on which they ran,
	// including the last one, which changes nothing; 0 if the first changed nothing. Labels:
	//   mode    on, or shadow: the outcome is only reported
	//   result  unchanged, mutated or refused
	passes *prometheus.HistogramVec

	// rounds are the metrics of how many times stages ran through their members, by the name of
	// the stage; some stages have none.
	rounds map[string]*prometheus.HistogramVec

	// mapd_shadow_decisions_total counts, for each request and each policy, mutator or module
	// policy that is not enforced, what its outcome would have been. The labels are those of
	// mapd_decisions_total.
	shadow *prometheus.CounterVec

	memory memoryMetrics

	mu     sync.RWMutex
	of     map[actorName]*series
	pruned atomic.Uint64 // number of calls of Prune

	tallies sync.Pool // of *counts
}

// NewMetrics returns new metrics.
func NewMetrics() *Metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{
		of:        map[actorName]*series{},
		registry:  prometheus.NewRegistry(),
		decisions: counters("mapd_decisions_total", "Requests by the policy and binding that acted on them and how that ended.", "policy", "binding", "outcome"),
		checks: counters("mapd_mutating_admission_policy_check_total",
			"Executed mutations by policy, binding and kind of error.", "policy", "policy_binding", "error_type"),
		checkDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mapd_mutating_admission_policy_check_duration_seconds",
			Help: "Duration of one mutation.",
			// The server's own bounds, and two more in the range of mapd's durations.
			Buckets: []float64{5e-7, 1e-5, 1e-4, 0.001, 0.01, 0.1, 1},
		}, []string{"policy", "policy_binding", "error_type"}),
		requestDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "mapd_request_duration_seconds",
			Help:    "Duration of answering one review, decoding and encoding included.",
			Buckets: []float64{1e-4, 2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10},
		}, []string{"operation", "result"}),
		validations: counters("mapd_validations_total", "Policies and bindings validated when they were written.", "resource", "result"),
		expansions: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "mapd_expansion_duration_seconds",
			Help:    "Duration of expanding one workload and judging what it will create.",
			Buckets: []float64{1e-4, 2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10},
		}, []string{"result"}),
		httpRequests: counters("mapd_http_requests_total", "HTTP answers by path and status.", "path", "code"),
		inFlight:     gauge("mapd_requests_in_flight", "Reviews being answered."),
		panics:       prometheus.NewCounter(prometheus.CounterOpts{Name: "mapd_panics_total", Help: "Panics outside of policies."}),
		passes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mapd_legacy_passes", Help: "Passes of the mutators over one object.",
			// The buckets of Gatekeeper's mutation_system_iterations, up to a likely number.
			Buckets: []float64{0, 1, 2, 3, 4, 5, 10, 20, 50, 100},
		}, []string{"mode", "result"}),
		shadow: counters("mapd_shadow_decisions_total", "Requests by the policy and binding, not enforced, that would have acted on them and how that would have ended.", "policy", "binding", "outcome"),
	}
	m.rounds = map[string]*prometheus.HistogramVec{engine.MutatorStage: m.passes}
	m.registry.MustRegister(m.decisions, m.checks, m.checkDuration, m.requestDuration, m.validations, m.expansions, m.httpRequests, m.inFlight,
		m.panics, &m.memory, m.passes, m.shadow, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Registry returns the registry of the path /metrics. Callers may add metrics to it.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Handler answers requests for the path /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// paths are the paths that a Handler may have, without those of entries.
var paths = map[string]bool{mutatePath: true, LegacyPath: true, ValidatePath: true, ExpandPath: true, "/healthz": true, "/readyz": true, "/metrics": true}

func (m *Metrics) http(path string, code int) {
	if id, ok := parsePath(path); ok {
		path = id.Group.Path() // the number of parts is unbounded
	} else if strings.HasPrefix(path, RecordsPath) {
		path = RecordsPath
	} else if !paths[path] {
		path = "other"
	}
	m.httpRequests.WithLabelValues(path, strconv.Itoa(code)).Inc()
}

// Outcomes of mapd_decisions_total, the gravest last.
const (
	skipped = iota
	unchanged
	changed
	ignored
	denied
)

var outcomes = [...]string{skipped: "skipped", unchanged: "unchanged", changed: "changed", ignored: "ignored", denied: "denied"}

func outcomeOf(s *engine.Step) int {
	switch s.Outcome {
	case engine.Unchanged:
		return unchanged
	case engine.Changed:
		return changed
	case engine.Failed:
		if s.Ignored {
			return ignored
		}
		return denied
	}
	return skipped
}

// decision records a decision and its steps.
func (m *Metrics) decision(req *policy.Request, d *engine.Decision, took time.Duration) {
	m.request(req, d, decided(d), took)
}

// decided returns the label result of a completed decision.
func decided(d *engine.Decision) string {
	switch {
	case d.Status != nil:
		return "denied"
	case d.Changed:
		return "mutated"
	}
	return "allowed"
}

// interrupted records a decision that was not completed; result says why.
func (m *Metrics) interrupted(req *policy.Request, d *engine.Decision, result string, took time.Duration) {
	m.request(req, d, result, took)
}

func (m *Metrics) request(req *policy.Request, d *engine.Decision, result string, took time.Duration) {
	m.requestDuration.WithLabelValues(operation(req.Operation), result).Observe(took.Seconds())
	for i := range d.Stages {
		m.stage(&d.Stages[i])
	}
	if len(d.Steps) == 0 {
		return
	}
	c := m.counts()
	defer m.tallies.Put(c)
	for i := range d.Steps {
		step := &d.Steps[i]
		a := c.took(m, step)
		if step.Mutation >= 0 && step.Outcome != engine.Skipped {
			check := m.check(a, errorType(step.Err))
			check.count.Inc()
			check.duration.Observe(step.Duration.Seconds())
		}
	}
	for i := range c.list {
		a := &c.list[i]
		m.counter(&a.series.decisions[a.outcome], a, func() prometheus.Counter {
			return m.decisions.WithLabelValues(a.policy, a.binding, outcomes[a.outcome])
		}).Inc()
	}
}

// stage records the rounds of a stage, and the outcomes of policies that are not enforced.
func (m *Metrics) stage(r *engine.Record) {
	if rounds := m.rounds[r.Stage.Name]; rounds != nil && len(r.Steps) > 0 {
		rounds.WithLabelValues(engine.ModeWord(r.Stage.Mode), resultOf(r)).Observe(float64(r.Rounds))
	}
	if r.Stage.Mode == api.Enforce && len(r.Shadows) == 0 {
		return
	}
	var c counts
	if r.Stage.Mode != api.Enforce {
		for i := range r.Steps {
			c.took(m, &r.Steps[i])
		}
	}
	for i := range r.Shadows {
		s := &r.Shadows[i]
		for j := range s.Steps {
			c.took(m, &s.Steps[j])
		}
		if s.Status != nil { // there may be no step with the error if the time was up
			c.took(m, &engine.Step{Policy: s.Policy, Binding: s.Binding, Outcome: engine.Failed})
		}
	}
	for i := range c.list {
		a := &c.list[i]
		m.counter(&a.series.shadow[a.outcome], a, func() prometheus.Counter {
			return m.shadow.WithLabelValues(a.policy, a.binding, outcomes[a.outcome])
		}).Inc()
	}
}

// resultOf returns the label result for a stage's rounds.
func resultOf(r *engine.Record) string {
	switch {
	case r.Status != nil:
		return "refused"
	case r.Rounds > 0:
		return "mutated"
	}
	return "unchanged"
}

// counted is an actor with its gravest outcome, and the metrics that count it.
type counted struct {
	actorName
	outcome int
	series  *series
}

// counts are the actors of one request. Most requests have the same actors as the request
// before, in the same order, so that their series need not be looked up again.
type counts struct {
	tally[counted]
	before []counted
	pruned uint64
}

// counts returns empty counts for a request.
func (m *Metrics) counts() *counts {
	c, _ := m.tallies.Get().(*counts)
	if c == nil {
		c = &counts{}
	}
	clear(c.at)
	c.tally, c.before = tally[counted]{list: c.before[:0], at: c.at}, c.list
	if now := m.pruned.Load(); c.pruned != now {
		// Prune may have removed some series, and the next Prune would not find them here.
		c.pruned, c.before = now, c.before[:0]
	}
	return c
}

// took records a step's outcome for its actor.
func (c *counts) took(m *Metrics, s *engine.Step) *counted {
	name := actorName{s.Policy, s.Binding}
	i := c.find(name)
	if i == len(c.list) {
		c.list = append(c.list, counted{actorName: name, series: c.seriesOf(m, i, name)})
	}
	a := &c.list[i]
	a.outcome = max(a.outcome, outcomeOf(s))
	return a
}

// seriesOf returns the series of the i-th actor.
func (c *counts) seriesOf(m *Metrics, i int, name actorName) *series {
	if i < len(c.before) && c.before[i].actorName == name {
		return c.before[i].series
	}
	return m.seriesOf(name)
}

// validated records the result of a validation.
func (m *Metrics) validated(req *policy.Request, result string, _ time.Duration) {
	resource := req.Resource.Resource
	if req.Resource.Group != api.OwnGroup || resource != api.PolicyResource && resource != api.BindingResource {
		resource = "other"
	}
	m.validations.WithLabelValues(resource, result).Inc()
}

// Prune removes the series of all policies and bindings for which keep returns false. Otherwise
// series would stay for as long as the process runs. binding is empty for errors of a policy
// itself. Call it after publishing a snapshot without these policies. If a request that is
// still being answered adds a series again, the next call removes it.
func (m *Metrics) Prune(keep func(policy, binding string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pruned.Add(1)
	for name := range m.of {
		if keep(name.policy, name.binding) {
			continue
		}
		delete(m.of, name)
		for _, kind := range errorTypes {
			m.checks.DeleteLabelValues(name.policy, name.binding, kind)
			m.checkDuration.DeleteLabelValues(name.policy, name.binding, kind)
		}
		for _, outcome := range outcomes {
			m.decisions.DeleteLabelValues(name.policy, name.binding, outcome)
			m.shadow.DeleteLabelValues(name.policy, name.binding, outcome)
		}
	}
}

// series are the metrics of one policy and binding, each made when it is first needed. Looking
// them up by label for each policy of a request, as WithLabelValues does, would hash and
// compare the labels each time.
type series struct {
	checks            [len(errorTypes)]atomic.Pointer[checkMetrics]
	decisions, shadow [len(outcomes)]atomic.Pointer[prometheus.Counter]
}

type checkMetrics struct {
	count    prometheus.Counter
	duration prometheus.Observer
}

func (m *Metrics) seriesOf(name actorName) *series {
	m.mu.RLock()
	s := m.of[name]
	m.mu.RUnlock()
	if s == nil {
		s = new(series) // added to Metrics by create
	}
	return s
}

// create makes a metric of an actor's series, and adds the series to those that seriesOf and
// Prune find.
func (m *Metrics) create(a *counted, metric func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of[a.actorName] == nil {
		m.of[a.actorName] = a.series
	}
	metric()
}

func (m *Metrics) check(a *counted, kind int) *checkMetrics {
	at := &a.series.checks[kind]
	if at.Load() == nil {
		m.create(a, func() {
			at.Store(&checkMetrics{
				m.checks.WithLabelValues(a.policy, a.binding, errorTypes[kind]),
				m.checkDuration.WithLabelValues(a.policy, a.binding, errorTypes[kind]),
			})
		})
	}
	return at.Load()
}

func (m *Metrics) counter(at *atomic.Pointer[prometheus.Counter], a *counted, find func() prometheus.Counter) prometheus.Counter {
	if at.Load() == nil {
		m.create(a, func() {
			c := find()
			at.Store(&c)
		})
	}
	return *at.Load()
}

func operation(op admissionv1.Operation) string {
	switch op {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return string(op)
	}
	return "other"
}

// Kinds of errors in mapd_mutating_admission_policy_check_total.
const (
	noError = iota
	invalidError
	compileError
	outOfBudget
)

var errorTypes = [...]string{noError: "no_error", invalidError: "invalid_error", compileError: "compile_error", outOfBudget: "out_of_budget"}

// ErrorType returns the kind of an evaluation's error, in the form of the label error_type of
// mapd_mutating_admission_policy_check_total. It contains nothing of the error's text, which
// may quote values.
func ErrorType(err error) string { return errorTypes[errorType(err)] }

// errorType classifies errors as the server's metric does, by the beginnings of their texts
// (spec §10).
func errorType(err error) int {
	if err == nil {
		return noError
	}
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "compilation"):
		return compileError
	case strings.HasPrefix(text, "validation failed due to running out of cost budget"):
		return outOfBudget
	}
	return invalidError
}

// expanded records the result of the review of a workload.
func (m *Metrics) expanded(_ *policy.Request, result string, took time.Duration) {
	m.expansions.WithLabelValues(result).Observe(took.Seconds())
}
