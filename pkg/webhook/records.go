package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Recorder records the results of reviews. Record is called once for each review that a Handler
// answers with a decision, by several goroutines at a time. It must not block, and must not
// retain any part of the request or the decision: their strings share the memory of the review.
type Recorder interface {
	Record(req *policy.Request, d *engine.Decision, took time.Duration)
}

// record calls the Recorder. A panic of the Recorder does not affect the response.
func (h *Handler) record(req *policy.Request, d *engine.Decision, took time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			h.log.Error("panic while recording a review", "uid", req.UID, "panic", engine.PanicText(v), "stack", string(debug.Stack()))
			h.metrics.panics.Inc()
		}
	}()
	h.recorder.Record(req, d, took)
}

// RecordsPath is the path below which a Handler serves Options.Records.
const RecordsPath = "/records/"

// Records are what a Handler serves below RecordsPath. Both functions are required.
type Records struct {
	// Authorize returns nil if the user with this bearer token may get the path. A *ReviewError
	// has the HTTP status of the refusal; any other error is a 503. The token may be empty.
	// From is the caller's IPv4 address, the /64 network of its IPv6 address, or the zero
	// Prefix if its connection has no address.
	Authorize func(ctx context.Context, from netip.Prefix, token, path string) error
	// Get returns the response for RecordsPath + name, which the Handler encodes as JSON. It is
	// called only after Authorize returned nil. A *ReviewError has the HTTP status of the
	// refusal; any other error is a 500. The response must be bounded.
	Get func(name string, query url.Values) (any, error)
}

const (
	// maxRecords is how many responses with records are made at a time.
	maxRecords = 2
	// recordsSize is the memory that one response with records is charged for.
	recordsSize = 32 << 20
)

// bearer is the scheme of the Authorization header.
const bearer = "Bearer "

// bearerToken returns the bearer token of a request, or "".
func bearerToken(r *http.Request) string {
	token := r.Header.Get("Authorization")
	if len(token) >= len(bearer) && strings.EqualFold(token[:len(bearer)], bearer) {
		return strings.TrimSpace(token[len(bearer):])
	}
	return ""
}

// serveRecords answers a request for records.
func (h *Handler) serveRecords(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	ctx, cancel := context.WithTimeout(r.Context(), maxTimeout)
	defer cancel()
	if err := h.records.Authorize(ctx, prefixOf(r.RemoteAddr), bearerToken(r), r.URL.Path); err != nil {
		h.refuseToken(w, r, err, http.StatusServiceUnavailable)
		return
	}
	select {
	case h.recording <- struct{}{}:
		defer func() { <-h.recording }()
	default:
		h.refuse(w, r, http.StatusTooManyRequests, "other records are being read")
		return
	}
	account := h.memory.Open()
	defer account.Close()
	if account.Charge(recordsSize) != nil {
		code, body := refusal(account)
		h.write(w, r, code, jsonType[0], body)
		return
	}
	answer, err := h.records.Get(strings.TrimPrefix(r.URL.Path, RecordsPath), r.URL.Query())
	if err != nil {
		h.refuseToken(w, r, err, http.StatusInternalServerError)
		return
	}
	body, err := json.Marshal(answer)
	if err != nil {
		h.refuseToken(w, r, err, http.StatusInternalServerError)
		return
	}
	h.write(w, r, http.StatusOK, jsonType[0], body)
}

// refuseToken answers with the status of err, or with code.
func (h *Handler) refuseToken(w http.ResponseWriter, r *http.Request, err error, code int) {
	var refused *ReviewError
	if errors.As(err, &refused) {
		code = refused.Code
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", strings.TrimSpace(bearer))
	}
	h.refuse(w, r, code, err.Error())
}
