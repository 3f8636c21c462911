// Package telemetry answers one question: how do the results of reviews reach an OpenTelemetry
// collector? It is the only package that uses OpenTelemetry's SDK.
//
// Spans are made after a review was decided, from its Decision, so that deciding costs the same
// with and without traces. They have names, outcomes, costs and the paths of changed fields, and
// never a value of an object or of a parameter.
//
// Events are made from the entries of a history.Recorder, one for each mutation that changed an
// object, whether or not the review is traced. Start reading at Tracer.Review and StartEvents.
package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/webhook"
)

const (
	// maxValue bounds a text attribute; longer ones are cut.
	maxValue = 512
	// scope is the name of the instrumentation scope of spans and events.
	scope = "github.com/mapd-project/mapd"
	// defaultFlush is the default for Options.Flush.
	defaultFlush = 3 * time.Second
	// maxError bounds the text of a collector's error in the log, because it may quote the
	// collector's answer.
	maxError = 1 << 10
	// errorInterval is the minimum time between two logged errors.
	errorInterval = time.Minute
)

// Options configure a Tracer. The environment variables of OpenTelemetry, such as
// OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS and OTEL_BSP_MAX_QUEUE_SIZE, configure
// the collector and the queue.
type Options struct {
	// Sample is the share of traced reviews among those that come without a trace of the caller,
	// from 0 to 1. A review with a caller's trace is traced if the caller records that trace.
	Sample float64
	// Version is mapd's version, and Instance identifies the replica.
	Version, Instance string
	// Flush is how long Close waits for the collector; 0 means 3 s.
	Flush time.Duration
	Log   *slog.Logger
}

// Tracer sends spans to a collector. It never waits for the collector: spans that do not
// fit into the queue are lost. It is safe for concurrent use.
type Tracer struct {
	sample   float64
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	format   propagation.TraceContext
	flush    time.Duration
}

var _ webhook.Tracer = (*Tracer)(nil)

// New returns a Tracer that exports by OTLP over HTTP. It does not connect. If the collector
// cannot be reached, that is logged when spans are sent.
func New(ctx context.Context, o Options) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := describe(ctx, o.Version, o.Instance)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	otel.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	otel.SetErrorHandler(&errorLog{log: o.Log, message: "traces are not delivered to the OpenTelemetry collector"})
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxValue
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // sampled has decided already
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(about),
		sdktrace.WithRawSpanLimits(limits),
	)
	return &Tracer{sample: o.Sample, provider: provider, tracer: provider.Tracer(scope), flush: cmp.Or(o.Flush, defaultFlush)}, nil
}

// describe returns the resource attributes of this replica.
func describe(ctx context.Context, version, instance string) (*resource.Resource, error) {
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", "mapd"),
			attribute.String("service.version", version),
			attribute.String("service.instance.id", instance),
		),
		resource.WithFromEnv(), // overrides the attributes above
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return about, nil
}

// Close sends the spans that are in the queue, within Options.Flush.
func (t *Tracer) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), t.flush)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// Context implements webhook.Tracer: it reads the W3C trace context of a request.
func (t *Tracer) Context(ctx context.Context, header http.Header) context.Context {
	if len(header["Traceparent"]) == 0 {
		return ctx // avoids an allocation in Extract
	}
	return t.format.Extract(ctx, propagation.HeaderCarrier(header))
}

// sampled reports whether a review is traced: if there is a caller's trace, whether the caller
// records it, and otherwise at random. Unlike the SDK's samplers, it does not allocate.
func (t *Tracer) sampled(ctx context.Context) bool {
	if caller := trace.SpanContextFromContext(ctx); caller.IsValid() {
		return caller.IsSampled()
	}
	return rand.Float64() < t.sample
}

// errorLog logs errors of the SDK, at most one per interval.
type errorLog struct {
	log     *slog.Logger
	message string

	mu    sync.Mutex
	next  time.Time
	quiet int // errors since the last logged one
}

// Handle implements otel.ErrorHandler.
func (l *errorLog) Handle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next) {
		l.quiet++
		return
	}
	l.log.Warn(l.message, "error", words.Cut(err.Error(), maxError), "errorsBefore", l.quiet)
	l.next, l.quiet = now.Add(errorInterval), 0
}
