// Package telemetry answers one question: how does what a review did reach an
// OpenTelemetry collector? It is the only package that knows OpenTelemetry's SDK.
//
// Spans are made once a review is decided, from what its Decision recorded, so that
// deciding costs the same with and without traces. They hold names, outcomes, costs and
// the paths of changed fields, and never a value of an object or of a parameter.
//
// Events are made of the entries of a history.Recorder, one for each mutation that changed an
// object, whether or not its review is traced.
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
	// scope is the name of what makes spans and events.
	scope = "github.com/mapd-project/mapd"
	// defaultFlush is the default for Options.Flush.
	defaultFlush = 3 * time.Second
	// maxError bounds a collector's error in the log, which may quote its answer.
	maxError = 1 << 10
	// errorInterval is how often such an error is logged at most.
	errorInterval = time.Minute
)

// Options configure a Tracer. The collector and the limits of the queue are those of
// OpenTelemetry's environment variables, such as OTEL_EXPORTER_OTLP_ENDPOINT,
// OTEL_EXPORTER_OTLP_HEADERS and OTEL_BSP_MAX_QUEUE_SIZE.
type Options struct {
	// Sample is the share of the reviews without a trace of the caller's that are
	// traced, from 0 to 1. A review with one is traced if the caller records its trace.
	Sample float64
	// Version is that of mapd, and Instance tells its replicas apart.
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

// New returns a Tracer that exports by OTLP over HTTP. New does not connect: that the
// collector cannot be reached is logged when spans are sent.
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
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // of what sampled has chosen
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(about),
		sdktrace.WithRawSpanLimits(limits),
	)
	return &Tracer{sample: o.Sample, provider: provider, tracer: provider.Tracer(scope), flush: cmp.Or(o.Flush, defaultFlush)}, nil
}

// describe returns what a collector learns about this replica.
func describe(ctx context.Context, version, instance string) (*resource.Resource, error) {
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", "mapd"),
			attribute.String("service.version", version),
			attribute.String("service.instance.id", instance),
		),
		resource.WithFromEnv(), // replaces what is the same
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
		return ctx // Extract allocates even then
	}
	return t.format.Extract(ctx, propagation.HeaderCarrier(header))
}

// sampled reports whether a review is traced: if its caller records the trace that it
// belongs to, or, without a caller's trace, if chance has it. It allocates nothing, which
// the SDK's own samplers do.
func (t *Tracer) sampled(ctx context.Context) bool {
	if caller := trace.SpanContextFromContext(ctx); caller.IsValid() {
		return caller.IsSampled()
	}
	return rand.Float64() < t.sample
}

// errorLog logs the errors of the SDK, one in each interval at most.
type errorLog struct {
	log     *slog.Logger
	message string

	mu    sync.Mutex
	next  time.Time
	quiet int // errors since the last one that was logged
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
