package telemetry_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/telemetry"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
	"github.com/mapd-project/mapd/test/hammer"
)

// collector keeps the spans that it is sent.
type collector struct {
	mu    sync.Mutex
	spans []*tracepb.Span
	about map[string]string
	// hold, if it is not nil, keeps requests waiting until it is closed; arrived is closed
	// when the first one has come.
	hold, arrived chan struct{}
	once          sync.Once
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if c.hold != nil {
		c.once.Do(func() { close(c.arrived) })
		<-c.hold
	}
	var req coltracepb.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &req) != nil {
		http.Error(w, "not spans", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range req.ResourceSpans {
		c.about = texts(of.Resource.Attributes)
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
}

// find returns the span of that name.
func (c *collector) find(t *testing.T, name string) *tracepb.Span {
	t.Helper()
	i := slices.IndexFunc(c.spans, func(s *tracepb.Span) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no span %q among %v", name, c.names())
	}
	return c.spans[i]
}

func (c *collector) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, s := range c.spans {
		out = append(out, s.Name)
	}
	slices.Sort(out)
	return out
}

func texts(attributes []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		v := a.Value.GetStringValue()
		if v == "" {
			v = a.Value.String()
		}
		out[a.Key] = v
	}
	return out
}

// newTracer returns a Tracer that exports to h.
func newTracer(t *testing.T, h http.Handler, sample float64, log io.Writer) *telemetry.Tracer {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	tracer, err := telemetry.New(t.Context(), telemetry.Options{
		Sample: sample, Version: "v1.2.3", Instance: "here", Flush: time.Minute, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

func object(data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"labels": data}}}
}

// reviewed is a review of two stages, in which secret stands everywhere that a value can.
func reviewed(secret string) webhook.Reviewed {
	before, after := object(map[string]any{"a": secret}), object(map[string]any{"a": secret, "team": secret})
	changed := engine.Step{
		Stage: "policies", Round: 1, Policy: "team", Binding: "all", Param: "ns/config", Outcome: engine.Changed,
		Before: before, After: after, Cost: 7, ConditionCost: 5, Duration: 2 * time.Millisecond, ConditionTime: time.Millisecond,
	}
	failure := errors.New("no such key: " + secret)
	refused := &metav1.Status{Code: 403, Message: secret}
	policies := &engine.Stage{Name: "policies", Member: "policy"}
	shadow := &engine.Stage{Name: "mutators", Member: "mutator", Mode: api.Shadow}
	return webhook.Reviewed{
		Request: &policy.Request{UID: "u-1", Namespace: "default", Name: "web", Operation: "CREATE", Object: before},
		Decision: &engine.Decision{Object: after, Changed: true, Stages: []engine.Record{
			{Stage: policies, Rounds: 1, Changed: true, Asked: []engine.Asked{{Source: "digests", Keys: 2}}, Steps: []engine.Step{
				{Round: 1, Policy: "idle", Mutation: -1, Outcome: engine.Skipped, Reason: secret, Duration: time.Millisecond},
				changed,
				{Round: 1, Policy: "quiet", Binding: "all", Outcome: engine.Unchanged},
				{Round: 1, Policy: "broken", Binding: "all", Mutation: 3, Outcome: engine.Failed, Ignored: true, Err: failure},
			}, Shadows: []engine.Shadow{{Mode: api.Warn, Policy: "tried", Before: before, After: after, Steps: []engine.Step{
				{Round: 1, Policy: "tried", Binding: "all", Outcome: engine.Changed, Before: before, After: after},
			}}}},
			{Stage: shadow, Status: refused, Steps: []engine.Step{{Round: 1, Policy: "Assign/x", Outcome: engine.Failed, Err: failure}}},
		}},
		Code: http.StatusOK, Start: time.Unix(1000, 0), Admitted: time.Unix(1001, 0), Took: 3 * time.Second,
	}
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func header(traceparent string) http.Header { return http.Header{"Traceparent": {traceparent}} }

func TestSpans(t *testing.T) {
	const secret = "s3cr3t-value"
	c := &collector{}
	tracer := newTracer(t, c, 0, io.Discard)
	r := reviewed(secret)
	tracer.Review(tracer.Context(t.Context(), header(parent)), r)
	tracer.Close()

	want := []string{"mutator Assign/x", "policy broken", "policy team", "policy tried", "review", "stage mutators", "stage policies"}
	if got := c.names(); !slices.Equal(got, want) {
		t.Fatalf("spans %q, want %q", got, want)
	}
	if c.about["service.name"] != "mapd" || c.about["service.version"] != "v1.2.3" || c.about["service.instance.id"] != "here" {
		t.Errorf("resource %v", c.about)
	}
	root, stage, team, broken := c.find(t, "review"), c.find(t, "stage policies"), c.find(t, "policy team"), c.find(t, "policy broken")
	if got := [3]string{string(root.ParentSpanId), string(stage.ParentSpanId), string(team.ParentSpanId)}; got !=
		[3]string{"\xb7\xad\x6b\x71\x69\x20\x33\x31", string(root.SpanId), string(stage.SpanId)} {
		t.Errorf("parents %x", got)
	}
	if root.Kind != tracepb.Span_SPAN_KIND_SERVER || root.EndTimeUnixNano-root.StartTimeUnixNano != 3e9 {
		t.Errorf("review: kind %s from %d to %d", root.Kind, root.StartTimeUnixNano, root.EndTimeUnixNano)
	}
	// Skipped policies took time, too.
	if start, took := team.StartTimeUnixNano, team.EndTimeUnixNano-team.StartTimeUnixNano; start != 1001_001_000_000 || took != 3e6 {
		t.Errorf("policy team: start %d, took %d", start, took)
	}
	for span, attributes := range map[*tracepb.Span]map[string]string{
		root:                      {"mapd.result": "mutated", "mapd.uid": "u-1", "mapd.namespace": "default", "mapd.name": "web", "mapd.operation": "CREATE"},
		stage:                     {"mapd.stage": "policies"},
		team:                      {"mapd.policy": "team", "mapd.binding": "all", "mapd.param": "ns/config", "mapd.outcome": "changed", "mapd.cost": "int_value:12"},
		c.find(t, "policy tried"): {"mapd.mode": "warn", "mapd.outcome": "changed", "mapd.policy": "tried"},
		broken:                    {"mapd.outcome": "ignored", "mapd.error_type": "invalid_error", "mapd.failed_mutation": "int_value:3"},
	} {
		got := texts(span.Attributes)
		for k, v := range attributes {
			if got[k] != v {
				t.Errorf("%s: %s is %q, want %q", span.Name, k, got[k], v)
			}
		}
	}
	if len(team.Events) != 1 || !strings.Contains(team.Events[0].String(), `"/metadata/labels/team"`) {
		t.Errorf("events of policy team: %v", team.Events)
	}
	if len(stage.Events) != 1 || !strings.Contains(stage.Events[0].String(), "digests: 2 keys") {
		t.Errorf("events of stage policies: %v", stage.Events)
	}
	for _, s := range c.spans {
		if strings.Contains(s.String(), secret) {
			t.Errorf("a value is in %s", s)
		}
	}
}

// The caller decides whether its own traces are recorded, --trace-sample about others.
func TestSampling(t *testing.T) {
	for _, tt := range []struct {
		name, traceparent string
		sample            float64
		want              bool
	}{
		{"the caller records", parent, 0, true},
		{"the caller does not", strings.TrimSuffix(parent, "1") + "0", 1, false},
		{"no caller, all", "", 1, true},
		{"no caller, none", "", 0, false},
		{"nonsense, none", strings.Repeat("00-", 4000), 0, false},
		{"nonsense, all", "00-zz-zz-01", 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &collector{}
			tracer := newTracer(t, c, tt.sample, io.Discard)
			tracer.Review(tracer.Context(t.Context(), header(tt.traceparent)), reviewed(""))
			tracer.Close()
			if got := len(c.spans) > 0; got != tt.want {
				t.Errorf("traced: %t, want %t", got, tt.want)
			}
		})
	}
}

// One review of many policies that change many fields makes a bounded number of spans of
// bounded size.
func TestManyPolicies(t *testing.T) {
	c := &collector{}
	tracer := newTracer(t, c, 1, io.Discard)
	r := reviewed("")
	many := map[string]any{}
	for i := range 1000 {
		many[strings.Repeat("k", 1000)+string(rune('a'+i%26))+strings.Repeat("x", i)] = "v"
	}
	record := &r.Decision.Stages[0]
	record.Steps, record.Shadows = nil, nil
	for i := range 1000 {
		record.Steps = append(record.Steps, engine.Step{
			Policy: strings.Repeat("p", i), Round: 1, Outcome: engine.Changed, Before: object(nil), After: object(many),
		})
	}
	r.Decision.Stages = r.Decision.Stages[:1]
	tracer.Review(t.Context(), r)
	tracer.Close()
	if len(c.spans) != 130 { // with those of the review and the stage
		t.Errorf("%d spans", len(c.spans))
	}
	if got := texts(c.find(t, "review").Attributes)["mapd.spans_left_out"]; got != "int_value:872" {
		t.Errorf("spans left out: %s", got)
	}
	for _, s := range c.spans {
		if n := proto.Size(s); n > 64<<10 {
			t.Fatalf("a span of %d bytes", n)
		}
	}
}

// admitter decides as it is set.
type admitter struct{ decision *engine.Decision }

func (a admitter) Admit(context.Context, *policy.Request) *engine.Decision { return a.decision }

const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"version":"v1","kind":"Pod"},
	"resource":{"version":"v1","resource":"pods"},"operation":"CREATE","object":{"metadata":{"labels":{"a":"b"}}}}}`

// A collector that takes connections and never answers delays no review: here it
// answers only once all reviews have been answered. What does not fit into the queue is
// lost.
func TestCollectorThatHangs(t *testing.T) {
	const queue, reviews = 64, 2000
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "32")
	c := &collector{hold: make(chan struct{}), arrived: make(chan struct{})}
	tracer := newTracer(t, c, 1, io.Discard)
	d := reviewed("").Decision
	d.Object, d.Changed = object(map[string]any{"a": "b"}), false
	h := webhook.NewHandler(webhook.Options{Admitter: admitter{d}, Tracer: tracer})
	hammer.Run(4, reviews/4, func(int, int) {
		r := httptest.NewRequest(http.MethodPost, "/mutate", strings.NewReader(review))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Traceparent", parent)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
	<-c.arrived
	close(c.hold)
	tracer.Close()
	// The queue, the batch that was being sent, and the next one.
	if n := len(c.names()); n == 0 || n > queue+2*32 {
		t.Errorf("%d of %d spans were sent, want at most %d", n, 6*reviews, queue+2*32)
	}
}

// A collector that is missing is said once, and not for each batch.
func TestCollectorThatIsMissing(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1000")
	var log strings.Builder
	refuses := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, strings.Repeat("no such tenant ", 1000), http.StatusNotFound)
	})
	tracer := newTracer(t, refuses, 1, &log)
	for range 5 {
		tracer.Review(t.Context(), reviewed(""))
	}
	tracer.Close()
	if n := strings.Count(log.String(), "traces are not delivered to the OpenTelemetry collector"); n != 1 || log.Len() > 4<<10 {
		t.Errorf("%d lines:\n%.4000s", n, log.String())
	}
}

// What is not sampled costs nothing but reading the caller's trace if there is one.
func TestUnsampledAllocations(t *testing.T) {
	tracer := newTracer(t, &collector{}, 0, io.Discard)
	defer tracer.Close()
	r := reviewed("")
	for name, tt := range map[string]struct {
		header http.Header
		most   float64
	}{
		"no caller's trace":           {http.Header{"Content-Type": {"application/json"}}, 0},
		"a trace that is not sampled": {header(strings.TrimSuffix(parent, "1") + "0"), 4},
	} {
		if got := hammer.Allocs(t, func() { tracer.Review(tracer.Context(t.Context(), tt.header), r) }); got > tt.most {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}
