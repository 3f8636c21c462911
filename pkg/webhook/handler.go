package webhook

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Admitter decides requests. *engine.Engine is one.
type Admitter interface {
	// Admit returns the decision about req. It must not modify the object.
	Admit(ctx context.Context, req *policy.Request) *engine.Decision
}

const (
	// MaxBody bounds the bytes of a review. An API server accepts objects of up to 3 MiB, and
	// the review of an update has two of them, besides names and user info.
	MaxBody = 7 << 20
	// maxTimeout is the longest time that an API server waits for a webhook
	// (k8s.io/api/admissionregistration/v1: timeoutSeconds). It is the default for a request
	// without a timeout.
	maxTimeout = 30 * time.Second
	// defaultMemory and defaultBodies are the defaults for Options.Memory and
	// Options.Bodies.
	defaultMemory = 256 << 20
	defaultBodies = 32 << 20
	// leastBodies is enough for one whole body, see bodies.waitForRoom.
	leastBodies = (MaxBody + bodyPart) / 3 * 4
	// largeReview is longer than a review of a usual object.
	largeReview = 32 << 10
	// reviewSize is the memory of a review besides its text and trees: stacks and buffers of
	// the connection, and the response.
	reviewSize = 16 << 10
)

// Check is one condition of readiness.
type Check struct {
	Name string
	// Run returns the error of the check, with file and position if there is one. It is called
	// for each request to /readyz, possibly by several goroutines at a time.
	Run func() error
	// Advisory checks are listed and do not make the server unready: the present policies are
	// served, but the newest ones cannot be.
	Advisory bool
}

// Validator decides about requests without changing objects.
type Validator interface {
	// Validate returns why the request is refused, nil if it is allowed, and
	// warnings for the client.
	Validate(ctx context.Context, req *policy.Request) (*metav1.Status, []string)
}

// Options configure a Handler. At least one field that decides reviews is required.
type Options struct {
	// Admitter decides reviews on /mutate. If it is nil, the path does not exist.
	Admitter Admitter
	// Entries returns the Admitter that decides reviews on the path of an entry, or nil
	// if the entry does not exist. The Handler calls it for each review. Without Entries
	// the Handler serves no such paths.
	Entries func(ID) Admitter
	// Paths decide the reviews on other paths, such as LegacyPath and those of ModulePath.
	Paths map[string]Admitter
	// Validator decides reviews on ValidatePath, which are about objects of mapd's own API
	// group. If it is nil, the path does not exist.
	Validator Validator
	// Expansion decides reviews on ExpandPath, which are about workloads. If it is nil, the
	// path does not exist.
	Expansion Validator
	// WarnOnMutation adds warnings for the client: which policy changed which fields, or would
	// have changed them in shadow.
	WarnOnMutation bool
	// ClientCAs returns the authorities for client certificates; it is called in each
	// handshake. The paths above then require a certificate that one of them signed, other
	// paths do not. If it is nil, no certificate is required. A Handler relies on its server to
	// verify certificates: see Server.
	ClientCAs func() *x509.CertPool
	// Callers decides by a bearer token, before a body is read, who may send reviews. If
	// ClientCAs is set too, both have to permit it. If it is nil, no token is required.
	Callers Callers
	// Memory bounds the memory of all reviews together: their text, their trees and their
	// results. A review that does not fit beside others is answered 429, one that never fits
	// 413. Nil means a budget of 256 MiB.
	Memory *memory.Budget
	// Bodies bounds the bytes of all incomplete bodies together. 0 means 32 MiB. A value
	// that is less than one body needs is raised to that.
	Bodies int64
	// Recorder is called once for each review that is answered with a decision. It may be nil.
	Recorder Recorder
	// Records are served below RecordsPath. If it is nil, these paths do not exist.
	Records *Records

	// Tracer is called for each review that was decided. It may be nil.
	Tracer Tracer

	Checks  []Check
	Metrics *Metrics     // nil: new ones
	Log     *slog.Logger // nil: no log
}

// Handler serves POST on the paths of its Options, and GET on /healthz, /readyz, /metrics and
// the paths of Options.Records. It is safe for concurrent use.
type Handler struct {
	reviews   map[string]decider // by path, without those of entries
	entries   func(ID) Admitter
	paths     string // all paths, for an error text
	clientCAs func() *x509.CertPool
	callers   Callers
	checks    []Check
	metrics   *Metrics
	log       *slog.Logger
	serve     http.Handler // of /metrics
	warn      bool
	tracer    Tracer
	memory    *memory.Budget
	turns     chan struct{} // see decode
	bodies    *bodies
	recorder  Recorder
	records   *Records
	recording chan struct{} // limits how many requests read records
	stopping  atomic.Bool
}

// decider decides the reviews of one path. It has either an Admitter or a Validator.
type decider struct {
	Admitter
	Validator
	// may is what Callers.Authenticate returned.
	may func(group string) error
	// validated records the result of a review of the Validator.
	validated func(req *policy.Request, result string, took time.Duration)
}

var _ http.Handler = (*Handler)(nil)

// mutatePath is the path of Options.Admitter.
const mutatePath = "/mutate"

// NewHandler returns a Handler.
func NewHandler(o Options) *Handler {
	h := &Handler{
		reviews: map[string]decider{}, entries: o.Entries, clientCAs: o.ClientCAs, callers: o.Callers, checks: o.Checks, metrics: o.Metrics, log: o.Log,
		warn: o.WarnOnMutation, memory: o.Memory, recorder: o.Recorder, records: o.Records, recording: make(chan struct{}, maxRecords),
		tracer: o.Tracer,
	}
	if h.metrics == nil {
		h.metrics = NewMetrics()
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.memory == nil {
		h.memory = memory.New(defaultMemory)
	}
	if o.Bodies == 0 {
		o.Bodies = defaultBodies
	}
	h.turns = make(chan struct{}, runtime.GOMAXPROCS(0))
	h.bodies = newBodies(max(o.Bodies, leastBodies))
	if o.Admitter != nil {
		h.reviews[mutatePath] = decider{Admitter: o.Admitter}
	}
	for path, a := range o.Paths {
		h.reviews[path] = decider{Admitter: a}
	}
	if o.Validator != nil {
		h.reviews[ValidatePath] = decider{Validator: o.Validator, validated: h.metrics.validated}
	}
	if o.Expansion != nil {
		h.reviews[ExpandPath] = decider{Validator: o.Expansion, validated: h.metrics.expanded}
	}
	all := slices.Collect(maps.Keys(h.reviews))
	if h.entries != nil {
		for _, g := range Groups() {
			all = append(all, g.Path())
		}
	}
	if h.records != nil {
		all = append(all, RecordsPath+"*")
	}
	slices.Sort(all)
	h.paths = strings.Join(append(all, "/healthz", "/readyz"), ", ") + " and /metrics"
	h.serve = h.metrics.Handler()
	h.metrics.watch(h.memory, h.bodies)
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.stopping.Load() {
		// During shutdown the client should connect to another replica. If mapd closed a
		// connection between two requests, it might lose one that is being sent.
		w.Header().Set("Connection", "close")
	}
	if d, ok := h.decider(r.URL.Path); ok {
		if h.method(w, r, http.MethodPost) {
			h.serveReview(w, r, d)
		}
		return
	}
	if h.records != nil && strings.HasPrefix(r.URL.Path, RecordsPath) {
		if h.method(w, r, http.MethodGet) {
			h.serveRecords(w, r)
		}
		return
	}
	switch r.URL.Path {
	case "/healthz":
		if h.method(w, r, http.MethodGet, http.MethodHead) {
			h.text(w, r, http.StatusOK, "ok\n")
		}
	case "/readyz":
		if h.method(w, r, http.MethodGet, http.MethodHead) {
			code, text := h.ready(r.URL.Query().Has("verbose"))
			h.text(w, r, code, text)
		}
	case "/metrics":
		if h.method(w, r, http.MethodGet, http.MethodHead) {
			h.metrics.http(r.URL.Path, http.StatusOK)
			h.serve.ServeHTTP(w, r)
		}
	default:
		h.refuse(w, r, http.StatusNotFound, fmt.Sprintf("no path %q; there are %s", r.URL.Path, h.paths))
	}
}

// decider returns the decider for the reviews of a path, and false if the Handler does not
// serve the path.
func (h *Handler) decider(path string) (decider, bool) {
	if d, ok := h.reviews[path]; ok || h.entries == nil {
		return d, ok
	}
	if id, ok := parsePath(path); ok {
		if a := h.entries(id); a != nil {
			return decider{Admitter: a}, true
		}
	}
	return decider{}, false
}

// method reports whether a request has one of the allowed methods, and answers it if it does
// not.
func (h *Handler) method(w http.ResponseWriter, r *http.Request, allowed ...string) bool {
	for _, m := range allowed {
		if r.Method == m {
			return true
		}
	}
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	h.refuse(w, r, http.StatusMethodNotAllowed, fmt.Sprintf("method %s is not allowed on %s, use %s", r.Method, r.URL.Path, list))
	return false
}

func (h *Handler) serveReview(w http.ResponseWriter, r *http.Request, d decider) {
	if h.clientCAs != nil && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
		h.refuse(w, r, http.StatusForbidden, "a client certificate is required")
		return
	}
	if h.callers != nil {
		may, err := h.callers.Authenticate(r.Context(), prefixOf(r.RemoteAddr), bearerToken(r), r.URL.Path)
		if err != nil {
			h.refuseToken(w, r, err, http.StatusUnauthorized)
			return
		}
		d.may = may
	}
	if err := checkContentType(r.Header.Get("Content-Type")); err != nil {
		h.refuse(w, r, http.StatusUnsupportedMediaType, err.Error())
		return
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		h.refuse(w, r, http.StatusUnsupportedMediaType, fmt.Sprintf("content encoding %q, want none", coding))
		return
	}
	timeout, err := timeoutOf(r)
	if err != nil {
		h.refuse(w, r, http.StatusBadRequest, err.Error())
		return
	}
	account := h.memory.Open()
	defer account.Close()
	control := http.NewResponseController(w)
	stop := func() { _ = control.SetReadDeadline(time.Unix(1, 0)) } // all of net/http can; other writers need not
	data, err := h.bodies.read(r.Body, r.ContentLength, stop, account)
	if err == nil {
		err = account.Charge(reviewSize)
	}
	if err != nil {
		w.Header().Set("Connection", "close") // part of the body may not be read
		// The error's own text may contain addresses.
		var tooLarge *http.MaxBytesError
		var refused *memory.Error
		switch {
		case errors.As(err, &tooLarge):
			h.refuse(w, r, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", MaxBody))
		case errors.As(err, &refused):
			h.refuse(w, r, refusedCode(refused), refused.Error())
		case errors.Is(err, errCrowded):
			h.refuse(w, r, http.StatusTooManyRequests, err.Error())
		case errors.Is(err, os.ErrDeadlineExceeded):
			h.refuse(w, r, http.StatusRequestTimeout, "the body did not come in time")
		default:
			h.refuse(w, r, http.StatusBadRequest, "the body cannot be read to its end")
		}
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	if h.tracer != nil {
		ctx = h.tracer.Context(ctx, r.Header)
	}
	// Nothing else refers to data, so the string can share its memory.
	code, body := h.review(ctx, account, unsafe.String(unsafe.SliceData(data), len(data)), d)
	h.write(w, r, code, jsonType[0], body)
}

// refusedCode returns the HTTP status for a refused charge.
func refusedCode(err *memory.Error) int {
	if err.Reason == memory.TooLarge {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusTooManyRequests
}

// Review answers one AdmissionReview with a decision of Options.Admitter, which must be set. It
// returns an HTTP status and the body for it. A review that can be answered has status 200,
// also if it is denied. Other results have a Status as body, which an API server quotes to its
// client, and make the failurePolicy of the webhook's configuration apply: a *ReviewError's
// code, 413 or 429 if Options.Memory has no room for the review, 500 after a panic, 504 if ctx
// ended before all policies had run. data is not retained.
func (h *Handler) Review(ctx context.Context, data []byte) (code int, body []byte) {
	account := h.memory.Open()
	defer account.Close()
	if err := account.Charge(int64(len(data))); err != nil {
		return refusal(account)
	}
	return h.review(ctx, account, string(data), h.reviews[mutatePath])
}

// refusal answers a request whose account was refused a charge.
func refusal(account *memory.Account) (code int, body []byte) {
	err := account.Refused()
	code = refusedCode(err)
	return code, statusBody(code, err.Error())
}

// review answers the review in text.
func (h *Handler) review(ctx context.Context, account *memory.Account, text string, d decider) (code int, body []byte) {
	start := time.Now()
	h.metrics.inFlight.Inc()
	defer h.metrics.inFlight.Dec()
	var uid types.UID
	defer func() {
		if v := recover(); v != nil {
			h.log.Error("panic while answering a review", "uid", uid, "panic", engine.PanicText(v), "stack", string(debug.Stack()))
			h.metrics.panics.Inc()
			code = http.StatusInternalServerError
			body = statusBody(code, "mapd: a panic while answering the review; the log has more")
		}
	}()

	req, err := h.decode(ctx, account, text)
	if err != nil {
		code = http.StatusBadRequest
		var bad *ReviewError
		switch {
		case errors.As(err, &bad):
			code = bad.Code
		case account.Refused() != nil:
			code = refusedCode(account.Refused())
		case ctx.Err() != nil:
			code = http.StatusGatewayTimeout
			err = fmt.Errorf("mapd: decoding stopped: %w", err)
		}
		h.log.Debug("review refused", "code", code, "reason", err.Error())
		return code, statusBody(code, err.Error())
	}
	uid = req.UID
	if d.may != nil {
		if err := d.may(req.Resource.Group); err != nil {
			return http.StatusForbidden, statusBody(http.StatusForbidden, err.Error())
		}
	}
	if d.Validator != nil {
		return h.validate(ctx, d, req, start)
	}
	return h.mutate(ctx, d.Admitter, req, start)
}

// decode decodes a review. It decodes at most as many large reviews at once as there are
// processors, which takes no longer in total: a usual review, which takes microseconds, then
// competes with that many large ones and not with all.
func (h *Handler) decode(ctx context.Context, account *memory.Account, text string) (*policy.Request, error) {
	if len(text) > largeReview {
		select {
		case h.turns <- struct{}{}:
			defer func() { <-h.turns }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return decodeReview(ctx, account, text)
}

// mutate answers a review with the decision of an Admitter.
func (h *Handler) mutate(ctx context.Context, a Admitter, req *policy.Request, start time.Time) (int, []byte) {
	if h.tracer == nil {
		return h.answer(ctx, req, a.Admit(ctx, req), start)
	}
	admitted := time.Now()
	d := a.Admit(ctx, req)
	code, body := h.answer(ctx, req, d, start)
	h.tracer.Review(ctx, Reviewed{Request: req, Decision: d, Code: code, Start: start, Admitted: admitted, Took: time.Since(start)})
	return code, body
}

// answer encodes the decision about a request, and counts it.
func (h *Handler) answer(ctx context.Context, req *policy.Request, d *engine.Decision, start time.Time) (int, []byte) {
	if req.Memory.Refused() != nil {
		return h.unaffordable(req, d, start)
	}
	if ctx.Err() != nil && d.Status != nil && d.Status.Code == http.StatusGatewayTimeout {
		// An interrupted request has no decision: the server applies the failurePolicy of the
		// entry.
		h.metrics.interrupted(req, d, "timeout", time.Since(start))
		h.log.Debug("review interrupted", asked(d, "uid", req.UID, "resource", req.Resource.String(), "operation", string(req.Operation),
			"namespace", req.Namespace, "name", req.Name, "steps", len(d.Steps))...)
		return http.StatusGatewayTimeout, statusBody(http.StatusGatewayTimeout, "mapd: "+d.Status.Message)
	}
	body, err := encodeResponse(req, d, h.warn)
	if req.Memory.Refused() != nil {
		return h.unaffordable(req, d, start)
	}
	if err != nil {
		// The object has a value that JSON cannot represent; the message can be encoded.
		if body, err = encodeFailure(req.UID, err.Error()); err != nil {
			panic(err)
		}
	}
	took := time.Since(start)
	h.metrics.decision(req, d, took)
	if h.recorder != nil {
		h.record(req, d, took)
	}
	h.logShadows(req, d)
	if h.log.Enabled(ctx, slog.LevelDebug) { // the check saves boxing the arguments
		h.log.Debug("review answered", asked(d, "uid", req.UID, "resource", req.Resource.String(), "operation", string(req.Operation),
			"namespace", req.Namespace, "name", req.Name, "changed", d.Changed, "denied", d.Status != nil, "duration", took)...)
	}
	return http.StatusOK, body
}

// asked appends what the stages, enforced or in shadow, asked external sources to the arguments
// of a log line.
func asked(d *engine.Decision, facts ...any) []any {
	for i := range d.Stages {
		if s := &d.Stages[i]; len(s.Asked) > 0 {
			facts = append(facts, s.Stage.Name+"Asked", s.Asked)
		}
	}
	return facts
}

// unaffordable answers a review whose account was refused a charge. That is no decision of a
// policy.
func (h *Handler) unaffordable(req *policy.Request, d *engine.Decision, start time.Time) (int, []byte) {
	h.metrics.interrupted(req, d, "memory", time.Since(start))
	h.log.Debug("review interrupted", "uid", req.UID, "resource", req.Resource.String(), "operation", string(req.Operation),
		"namespace", req.Namespace, "name", req.Name, "steps", len(d.Steps), "reason", req.Memory.Refused().Error())
	return refusal(req.Memory)
}

// logShadows logs which fields stages and policies that are not enforced would have changed,
// but never the values.
func (h *Handler) logShadows(req *policy.Request, d *engine.Decision) {
	for i := range d.Stages {
		s := &d.Stages[i]
		if s.Stage.Mode == api.Enforce && len(s.Shadows) == 0 {
			continue
		}
		did := shadowActs(s)
		facts := []any{
			"uid", req.UID, "resource", req.Resource.String(), "subresource", req.SubResource, "operation", string(req.Operation),
			"namespace", req.Namespace, "name", req.Name, "dryRun", req.DryRun,
		}
		stage := s.Stage
		whole := stage.Mode != api.Enforce // the whole stage is not enforced
		if whole && s.Status != nil || len(did.failed.list) > 0 {
			failed := append(slices.Clip(facts), stage.Name, did.failed.String())
			if whole && s.Status != nil {
				failed = append(failed, "reason", s.Status.Message)
			}
			h.log.Info(stage.Name+" would refuse the request", failed...)
		}
		if whole && s.Changed || len(did.mutated.list) > 0 {
			facts = append(facts, stage.Name, did.mutated.String())
			if whole {
				facts = append(facts, stage.Rounds, s.Rounds)
			}
			h.log.Info(stage.Name+" would change the object", facts...)
		}
	}
}

// validate answers a review with the decision of a Validator.
func (h *Handler) validate(ctx context.Context, d decider, req *policy.Request, start time.Time) (int, []byte) {
	status, warnings := d.Validate(ctx, req)
	if err := ctx.Err(); err != nil {
		// The Validator may not have finished; the server applies the failurePolicy of the
		// entry.
		d.validated(req, "timeout", time.Since(start))
		return http.StatusGatewayTimeout, statusBody(http.StatusGatewayTimeout, "mapd: validation stopped: "+context.Cause(ctx).Error())
	}
	answer := response{uid: req.UID, allowed: status == nil, status: status, warnings: boundWarnings(warnings)}
	body, err := answer.encode()
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	result := "allowed"
	switch {
	case status != nil:
		result = "denied"
	case len(warnings) > 0:
		result = "warned"
	}
	d.validated(req, result, time.Since(start))
	h.log.Debug("validation answered", "uid", req.UID, "resource", req.Resource.String(), "operation", string(req.Operation),
		"name", req.Name, "result", result, "duration", time.Since(start))
	return http.StatusOK, body
}

// ready runs the checks and returns the response of /readyz.
func (h *Handler) ready(verbose bool) (int, string) {
	checks := h.checks
	if h.stopping.Load() {
		checks = append([]Check{{Name: "shutdown", Run: func() error { return errors.New("the server is shutting down") }}}, checks...)
	}
	var lines strings.Builder
	var failed []string
	for _, c := range checks {
		err := c.Run()
		switch {
		case err == nil:
			fmt.Fprintf(&lines, "[+] %s: ok\n", c.Name)
		case c.Advisory:
			fmt.Fprintf(&lines, "[!] %s: %s\n", c.Name, indent(err.Error()))
		default:
			fmt.Fprintf(&lines, "[-] %s: %s\n", c.Name, indent(err.Error()))
			failed = append(failed, c.Name)
		}
	}
	code, text := http.StatusOK, "ready\n"
	if len(failed) > 0 {
		code, text = http.StatusServiceUnavailable, "not ready: "+strings.Join(failed, ", ")+"\n"
	}
	if verbose {
		return code, lines.String() + text
	}
	return code, text
}

// indent indents the lines of a reason, to distinguish them from those of the list.
func indent(s string) string {
	return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n    ")
}

// checkContentType requires JSON in UTF-8.
func checkContentType(s string) error {
	switch s {
	case "application/json": // what API servers say
		return nil
	case "":
		return errors.New("the content type is missing, want application/json")
	}
	media, params, err := mime.ParseMediaType(s)
	if err != nil {
		return fmt.Errorf("content type %q: %w", s, err)
	}
	if media != "application/json" {
		return fmt.Errorf("content type %q, want application/json", s)
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return fmt.Errorf("charset %q, want utf-8", charset)
	}
	return nil
}

// timeoutOf returns how long the caller waits: an API server appends timeout=10s to the URL. A
// tenth of it is reserved for the response, since a response that is late is useless, and one
// in time can say what took so long.
func timeoutOf(r *http.Request) (time.Duration, error) {
	s, plain := strings.CutPrefix(r.URL.RawQuery, "timeout=")
	if !plain || strings.ContainsAny(s, "&;%+") {
		s = r.URL.Query().Get("timeout")
	}
	if s == "" {
		return maxTimeout, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("timeout %q is not a positive duration", s)
	}
	return min(d, maxTimeout) / 10 * 9, nil
}

// refuse answers with an error that clients of the API machinery can read.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, code int, reason string) {
	h.log.Debug("request refused", "method", r.Method, "path", r.URL.Path, "code", code, "reason", reason)
	h.write(w, r, code, jsonType[0], statusBody(code, reason))
}

func statusBody(code int, message string) []byte {
	// A Status of two strings and a number always has a form in JSON.
	body, _ := json.Marshal(failure(code, message))
	return body
}

func (h *Handler) text(w http.ResponseWriter, r *http.Request, code int, s string) {
	h.write(w, r, code, "text/plain; charset=utf-8", []byte(s))
}

// Header values that all responses share. The server only reads them.
var (
	jsonType = []string{"application/json"}
	noSniff  = []string{"nosniff"}
	// retryAfter is in seconds.
	retryAfter = []string{"1"}
)

func (h *Handler) write(w http.ResponseWriter, r *http.Request, code int, contentType string, body []byte) {
	h.metrics.http(r.URL.Path, code)
	header := w.Header()
	if contentType == jsonType[0] {
		header["Content-Type"] = jsonType
	} else {
		header.Set("Content-Type", contentType)
	}
	header["X-Content-Type-Options"] = noSniff
	if code == http.StatusTooManyRequests {
		// API servers retry by themselves for as long as they have time (k8s.io/client-go/rest:
		// withRetry).
		header["Retry-After"] = retryAfter
	}
	// Without it, responses of more than 2 KiB would be sent in chunks.
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(code)
	if _, err := w.Write(body); err != nil {
		h.log.Debug("answer not delivered", "path", r.URL.Path, "error", err.Error())
	}
}
