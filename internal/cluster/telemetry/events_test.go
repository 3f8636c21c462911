package telemetry_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/cluster/telemetry"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// receiver keeps the events that it is sent.
type receiver struct {
	mu      sync.Mutex
	events  []*logspb.LogRecord
	about   map[string]string
	largest int // request, in bytes
	// hold, if it is not nil, keeps requests waiting until it is closed; arrived is closed
	// when the first one has come.
	hold, arrived chan struct{}
	once          sync.Once
}

func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if c.hold != nil {
		c.once.Do(func() { close(c.arrived) })
		<-c.hold
	}
	var req collogspb.ExportLogsServiceRequest
	if err != nil || r.URL.Path != "/v1/logs" || proto.Unmarshal(body, &req) != nil {
		http.Error(w, "not events", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.largest = max(c.largest, len(body))
	for _, of := range req.ResourceLogs {
		c.about = texts(of.Resource.Attributes)
		for _, scope := range of.ScopeLogs {
			c.events = append(c.events, scope.LogRecords...)
		}
	}
}

// startEvents sends the events of l to h.
func startEvents(t *testing.T, h http.Handler, l *history.Recorder, log io.Writer) *telemetry.Events {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	e, err := telemetry.StartEvents(t.Context(), telemetry.EventOptions{
		Version: "v1.2.3", Instance: "here", Flush: time.Minute, Log: slog.New(slog.NewTextHandler(log, nil)), Take: l.Feed().Take, Delivered: l.Delivered,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// write records that policies set these labels of a Pod to secret.
func write(l *history.Recorder, secret, name string, labels ...string) {
	set := map[string]any{}
	for _, label := range labels {
		set[label] = secret
	}
	o := object(map[string]any{})
	o.SetUID("u-1")
	req := &policy.Request{Kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Namespace: "shop", Name: name, Operation: "UPDATE", Object: o}
	steps := []engine.Step{
		{Stage: "policies", Policy: "team", Binding: "all", Param: "ns/config", Outcome: engine.Changed, Before: object(map[string]any{}), After: object(set)},
		{Stage: "policies", Policy: "idle", Outcome: engine.Unchanged},
		{Stage: "mutators", Policy: "Assign/x", Outcome: engine.Changed, Before: object(map[string]any{}), After: &unstructured.Unstructured{Object: map[string]any{"spec": secret, "metadata": map[string]any{"labels": map[string]any{}}}}},
	}
	stage := engine.Policies(nil)
	l.Record(req, &engine.Decision{Changed: true, Steps: steps, Stages: []engine.Record{{Stage: &stage, Steps: steps}}}, 0)
}

func TestEvents(t *testing.T) {
	const secret = "s3cr3t-value"
	c, l := &receiver{}, history.New("a")
	e := startEvents(t, c, l, io.Discard)
	write(l, secret, "web", "a", "b")
	e.Close()
	if len(c.events) != 2 || c.about["service.name"] != "mapd" || c.about["service.version"] != "v1.2.3" || c.about["service.instance.id"] != "here" {
		t.Fatalf("%d events about %v", len(c.events), c.about)
	}
	for i, want := range []map[string]string{
		{"mapd.policy": "team", "mapd.binding": "all", "mapd.param": "ns/config", "mapd.stage": "policies", "mapd.operation": "UPDATE",
			"mapd.group": "apps", "mapd.version": "v1", "mapd.kind": "Deployment", "mapd.namespace": "shop", "mapd.name": "web", "mapd.object_uid": "u-1"},
		{"mapd.policy": "Assign/x", "mapd.stage": "mutators", "mapd.name": "web"},
	} {
		got := texts(c.events[i].Attributes)
		for k, v := range want {
			if got[k] != v {
				t.Errorf("event %d: %s is %q, want %q", i, k, got[k], v)
			}
		}
		if c.events[i].EventName != telemetry.EventName || c.events[i].TimeUnixNano == 0 {
			t.Errorf("event %q at %d", c.events[i].EventName, c.events[i].TimeUnixNano)
		}
		if text := c.events[i].String(); strings.Contains(text, secret) {
			t.Errorf("a value is in %s", text)
		}
	}
	var paths []string
	for _, a := range c.events[0].Attributes {
		if a.Key == "mapd.paths" {
			for _, v := range a.Value.GetArrayValue().Values {
				paths = append(paths, v.GetStringValue())
			}
		}
	}
	if !slices.Equal(paths, []string{"/metadata/labels/a", "/metadata/labels/b"}) {
		t.Errorf("paths %q", paths)
	}
	if sent, dropped := l.DeliveredTotals(); sent != 1 || dropped != 0 {
		t.Errorf("%d sent, %d dropped", sent, dropped)
	}
}

// A collector that takes connections and never answers delays no recording: here it
// answers once everything has been recorded. All are sent, or counted as dropped.
func TestEventsToACollectorThatHangs(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600000") // a request that is given up may have arrived all the same
	c, l := &receiver{hold: make(chan struct{}), arrived: make(chan struct{})}, history.New("a")
	e := startEvents(t, c, l, io.Discard)
	const first, more, writers = 1, 1200, 2
	write(l, "", "web", "a")
	<-c.arrived
	hostile := []string{"\x1b[2J\x00\xff" + strings.Repeat("k", 1000)}
	for i := range 40 {
		hostile = append(hostile, fmt.Sprint(strings.Repeat("k", 400), i))
	}
	hammer.Run(writers, more/writers, func(p, n int) { write(l, "", fmt.Sprint(strings.Repeat("n", 2000), p, n), hostile...) })
	close(c.hold)
	e.Close()
	sent, dropped := l.DeliveredTotals()
	if sent+dropped != first+more || sent < 2 || dropped == 0 || uint64(len(c.events)) != 2*sent {
		t.Errorf("%d sent and %d dropped of %d, %d events", sent, dropped, first+more, len(c.events))
	}
	if c.largest > 8<<20 {
		t.Errorf("a request of %d bytes", c.largest)
	}
}

// A collector that refuses is said once, and what it refused counts as dropped.
func TestEventsThatAreRefused(t *testing.T) {
	var log strings.Builder
	l := history.New("a")
	refuses := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, strings.Repeat("no such tenant ", 1000), http.StatusNotFound)
	})
	e := startEvents(t, refuses, l, &log)
	for range 1000 {
		write(l, "", "web", "a")
	}
	e.Close()
	if sent, dropped := l.DeliveredTotals(); sent != 0 || dropped != 1000 {
		t.Errorf("%d sent, %d dropped", sent, dropped)
	}
	if n := strings.Count(log.String(), "events are not delivered to the OpenTelemetry collector"); n != 1 || log.Len() > 4<<10 {
		t.Errorf("%d lines:\n%.4000s", n, log.String())
	}
}
