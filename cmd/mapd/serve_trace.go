package main

import (
	"context"
	"log/slog"
	"strconv"

	"github.com/mapd-project/mapd/internal/cluster/telemetry"
)

// startTracing makes the tracer for --trace-sample; stop sends the remaining traces. Without
// the flag nothing is traced.
func (f *serveFlags) startTracing(ctx context.Context, log *slog.Logger) (stop func(), err error) {
	if f.traceSample == "" {
		return func() {}, nil
	}
	sample, err := strconv.ParseFloat(f.traceSample, 64)
	if err != nil || !(sample >= 0 && sample <= 1) {
		return nil, usagef("serve: --trace-sample %q: must be a number from 0 to 1", f.traceSample)
	}
	tracer, err := telemetry.New(ctx, telemetry.Options{Sample: sample, Version: version(), Instance: identity(), Log: log})
	if err != nil {
		return nil, usagef("serve: %w", err)
	}
	f.tracer = tracer
	return tracer.Close, nil
}
