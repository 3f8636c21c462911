package telemetry

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/webhook"
)

const (
	// maxSpans bounds the policy spans of one review. The review's span has the number of those
	// left out.
	maxSpans = 128
	// maxPaths bounds the paths that a policy's event names.
	maxPaths = 32
)

// Review implements webhook.Tracer. It makes a span of the review, one of each stage
// that met the request, and one of each policy that changed the object or failed.
func (t *Tracer) Review(ctx context.Context, r webhook.Reviewed) {
	if !t.sampled(ctx) {
		return
	}
	req := r.Request
	ctx, span := t.tracer.Start(ctx, "review", trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.Start))
	end := r.Start.Add(r.Took)
	defer span.End(trace.WithTimestamp(end))
	span.SetAttributes(
		attribute.String("mapd.uid", string(req.UID)),
		attribute.String("mapd.operation", string(req.Operation)),
		attribute.String("mapd.resource", req.Resource.GroupResource().String()),
		attribute.String("mapd.subresource", req.SubResource),
		attribute.String("mapd.namespace", req.Namespace),
		attribute.String("mapd.name", req.Name),
		attribute.Bool("mapd.dry_run", req.DryRun),
		attribute.String("mapd.result", r.Result()),
	)
	if r.Code != http.StatusOK || r.Decision.Status != nil {
		span.SetStatus(codes.Error, r.Result())
	}
	b := builder{tracer: t.tracer, at: r.Admitted, end: end}
	for i := range r.Decision.Stages {
		b.stage(ctx, &r.Decision.Stages[i])
	}
	if b.left > 0 {
		span.SetAttributes(attribute.Int("mapd.spans_left_out", b.left))
	}
}

// builder makes the spans within one review. Steps have durations but no start times, so their
// spans follow each other without a gap; at is the end of the last one.
type builder struct {
	tracer     trace.Tracer
	at, end    time.Time
	made, left int
}

// after returns the time d after at, but not after the end of the review.
func (b *builder) after(d time.Duration) time.Time {
	if t := b.at.Add(d); t.Before(b.end) {
		return t
	}
	return b.end
}

func (b *builder) stage(ctx context.Context, r *engine.Record) {
	ctx, span := b.tracer.Start(ctx, "stage "+r.Stage.Name, trace.WithTimestamp(b.at))
	span.SetAttributes(
		attribute.String("mapd.stage", r.Stage.Name),
		attribute.String("mapd.mode", r.Stage.Mode.String()),
		attribute.Int("mapd.rounds", r.Rounds),
		attribute.Int("mapd.steps", len(r.Steps)),
		attribute.Bool("mapd.changed", r.Changed),
		attribute.Bool("mapd.denied", r.Status != nil),
	)
	for i := range r.Asked {
		span.AddEvent("asked", trace.WithTimestamp(b.at), trace.WithAttributes(attribute.String("mapd.asked", r.Asked[i].String())))
	}
	for first := 0; first < len(r.Steps); {
		next := first + 1
		for next < len(r.Steps) && sameActor(&r.Steps[first], &r.Steps[next]) {
			next++
		}
		b.policy(ctx, r.Stage.Member, r.Stage.Mode, r.Steps[first:next])
		first = next
	}
	for i := range r.Shadows {
		if s := &r.Shadows[i]; len(s.Steps) > 0 {
			b.policy(ctx, r.Stage.Member, s.Mode, s.Steps)
		}
	}
	span.End(trace.WithTimestamp(b.at))
}

// sameActor reports whether two steps belong to one run of a policy.
func sameActor(a, b *engine.Step) bool {
	return a.Policy == b.Policy && a.Binding == b.Binding && a.Param == b.Param && a.Round == b.Round
}

// policy makes a span for one run of a policy, if it changed the object or failed.
func (b *builder) policy(ctx context.Context, member string, mode api.Mode, steps []engine.Step) {
	var took time.Duration
	var cost int64
	var paths []string
	var failed *engine.Step
	changed := false
	for i := range steps {
		s := &steps[i]
		took += s.ConditionTime + s.Duration
		cost += s.ConditionCost + s.Cost
		switch s.Outcome {
		case engine.Changed:
			changed = true
			paths = append(paths, s.Paths()...)
		case engine.Failed:
			failed = s
		}
	}
	start := b.at
	b.at = b.after(took)
	if !changed && failed == nil {
		return
	}
	if b.made == maxSpans {
		b.left++
		return
	}
	b.made++
	first := &steps[0]
	_, span := b.tracer.Start(ctx, member+" "+first.Policy, trace.WithTimestamp(start))
	outcome := "changed"
	if failed != nil {
		outcome = "denied"
		if failed.Ignored {
			outcome = "ignored"
		}
		// The span gets only the type of the error, because its text may quote values of the
		// object.
		span.SetStatus(codes.Error, webhook.ErrorType(failed.Err))
		span.SetAttributes(attribute.Int("mapd.failed_mutation", failed.Mutation), attribute.String("mapd.error_type", webhook.ErrorType(failed.Err)))
	}
	span.SetAttributes(
		attribute.String("mapd.mode", mode.String()),
		attribute.String("mapd.policy", first.Policy),
		attribute.String("mapd.binding", first.Binding),
		attribute.String("mapd.param", first.Param),
		attribute.Int("mapd.round", first.Round),
		attribute.String("mapd.outcome", outcome),
		attribute.Int64("mapd.cost", cost),
	)
	if changed {
		left := max(len(paths)-maxPaths, 0)
		span.AddEvent("changed", trace.WithTimestamp(b.at), trace.WithAttributes(
			attribute.StringSlice("mapd.paths", paths[:len(paths)-left]), attribute.Int("mapd.paths_left_out", left)))
	}
	span.End(trace.WithTimestamp(b.at))
}
