package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/mapd-project/mapd/internal/cluster/controllers"
	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/cluster/metrics"
	"github.com/mapd-project/mapd/internal/cluster/telemetry"
)

// Values of --record-sink.
const (
	sinkNone      = "none"
	sinkConfigMap = "configmap"
	sinkOTel      = "otel"
)

// startSink starts storing or sending records as --record-sink says; stop stores or sends the
// rest. It must be called before the first review.
func (f *serveFlags) startSink(ctx context.Context, records *history.Recorder, writes *controllers.Writer, namespace, identity string, metrics *metrics.Metrics, log *slog.Logger) (stop func(), err error) {
	switch f.recordSink {
	case sinkConfigMap:
		records.StoreIn(namespace)
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // requests drain after ctx is done
		var storing sync.WaitGroup
		storing.Go(func() { writes.StoreRecords(ctx, records) })
		stop = func() { cancel(); storing.Wait() }
	case sinkOTel:
		events, err := telemetry.StartEvents(ctx, telemetry.EventOptions{
			Version: version(), Instance: identity, Log: log, Take: records.Feed().Take, Delivered: records.Delivered,
		})
		if err != nil {
			return nil, usagef("serve: --record-sink: %w", err)
		}
		stop = events.Close
	default:
		return func() {}, nil
	}
	metrics.RecordSink(records.DeliveredTotals)
	return stop, nil
}
