package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/mapd-project/mapd/internal/cluster/history"
)

const (
	// EventName is the name of all events.
	EventName = "mapd.changed"
	// maxBatch bounds the events in one request.
	maxBatch = 512
	// eventInterval is how often the queue is checked.
	eventInterval = time.Second
)

// EventOptions configure Events. Collector, Version, Instance, Flush and Log are as in
// Options.
type EventOptions struct {
	Version, Instance string
	Flush             time.Duration
	Log               *slog.Logger
	// Take returns and removes the entries in the queue.
	Take func() iter.Seq[history.Entry]
	// Delivered is called with the number of entries that were sent, and the number of those that
	// were lost.
	Delivered func(sent, lost uint64)
}

// Events sends an event to a collector for each mutation that changed an object. Unlike spans,
// events are not sampled. They wait in the queue of EventOptions.Take, so that no review waits
// for the collector.
type Events struct {
	o        EventOptions
	exporter *otlploghttp.Exporter
	logger   log.Logger
	batch    batch
	errors   errorLog

	stop, stopped chan struct{}
	cancel        context.CancelFunc
}

// batch is a sdklog.Processor that holds events until they are sent.
type batch struct{ records []sdklog.Record }

func (b *batch) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (b *batch) Shutdown(context.Context) error                         { return nil }
func (b *batch) ForceFlush(context.Context) error                       { return nil }
func (b *batch) OnEmit(_ context.Context, r *sdklog.Record) error {
	b.records = append(b.records, r.Clone())
	return nil
}

// StartEvents sends events until Close is called. Like New, it does not connect.
func StartEvents(ctx context.Context, o EventOptions) (*Events, error) {
	exporter, err := otlploghttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	about, err := describe(ctx, o.Version, o.Instance)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	e := &Events{o: o, exporter: exporter, errors: errorLog{log: o.Log, message: "events are not delivered to the OpenTelemetry collector"}, stop: make(chan struct{}), stopped: make(chan struct{})}
	provider := sdklog.NewLoggerProvider(sdklog.WithProcessor(&e.batch), sdklog.WithResource(about), sdklog.WithAttributeValueLengthLimit(maxValue))
	e.logger = provider.Logger(scope)
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go e.run(ctx)
	return e, nil
}

// Close sends the events that are in the queue, within EventOptions.Flush.
func (e *Events) Close() {
	close(e.stop)
	defer time.AfterFunc(cmp.Or(e.o.Flush, defaultFlush), e.cancel).Stop()
	<-e.stopped
	e.cancel()
}

func (e *Events) run(ctx context.Context) {
	defer close(e.stopped)
	ticker := time.NewTicker(eventInterval)
	defer ticker.Stop()
	for stopping := false; !stopping; {
		select {
		case <-e.stop:
			stopping = true
		case <-ticker.C:
		}
		entries := uint64(0)
		for entry := range e.o.Take() {
			entries++
			if e.emit(ctx, &entry); len(e.batch.records) >= maxBatch {
				e.send(ctx, entries)
				entries = 0
			}
		}
		e.send(ctx, entries)
	}
}

// emit adds the events of an entry to the batch.
func (e *Events) emit(ctx context.Context, entry *history.Entry) {
	for i := range entry.Acts {
		a := &entry.Acts[i]
		var r log.Record
		r.SetEventName(EventName)
		r.SetSeverity(log.SeverityInfo)
		r.SetTimestamp(entry.Time)
		r.SetObservedTimestamp(entry.Time)
		paths := make([]log.Value, len(a.Paths))
		for k, path := range a.Paths {
			paths[k] = log.StringValue(path)
		}
		r.AddAttributes(
			log.String("mapd.stage", a.Stage), log.String("mapd.policy", a.Policy), log.String("mapd.binding", a.Binding), log.String("mapd.param", a.Param),
			log.String("mapd.operation", entry.Operation), log.String("mapd.subresource", entry.SubResource),
			log.String("mapd.group", entry.Group), log.String("mapd.version", entry.Version), log.String("mapd.kind", entry.Kind),
			log.String("mapd.namespace", entry.Namespace), log.String("mapd.name", entry.Name), log.String("mapd.generate_name", entry.GenerateName),
			log.String("mapd.object_uid", entry.UID), log.String("mapd.owner_uid", entry.Owner),
			log.Slice("mapd.paths", paths...), log.Int("mapd.paths_left_out", a.More), log.Int("mapd.changes_left_out", entry.More),
		)
		e.logger.Emit(ctx, r)
	}
}

// send sends the batch, which has the events of a number of entries.
func (e *Events) send(ctx context.Context, entries uint64) {
	if entries == 0 {
		return
	}
	err := e.exporter.Export(ctx, e.batch.records)
	clear(e.batch.records)
	e.batch.records = e.batch.records[:0]
	if err != nil {
		e.errors.Handle(err)
		e.o.Delivered(0, entries)
		return
	}
	e.o.Delivered(entries, 0)
}
