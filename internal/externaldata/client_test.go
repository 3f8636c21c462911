package externaldata

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// fake is a provider in this process that counts.
type fake struct {
	*httptest.Server
	mu          sync.Mutex
	calls       [][]string // keys
	connections map[string]bool
	broken      atomic.Bool
	hold        chan struct{} // nil: answers at once
	arrived     chan struct{}
}

func newFake(t *testing.T) *fake {
	f := &fake{connections: map[string]bool{}, arrived: make(chan struct{}, 1000)}
	f.Server = httptest.NewTLSServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked providerRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		panic(err)
	}
	f.mu.Lock()
	f.calls = append(f.calls, asked.Request.Keys)
	f.connections[r.RemoteAddr] = true
	hold := f.hold
	f.mu.Unlock()
	f.arrived <- struct{}{}
	if hold != nil {
		<-hold
	}
	if f.broken.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	var items []map[string]string
	for _, k := range asked.Request.Keys {
		if strings.HasPrefix(k, "bad") {
			items = append(items, map[string]string{"key": k, "error": "unknown"})
		} else {
			items = append(items, map[string]string{"key": k, "value": k + "!"})
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"response": map[string]any{"idempotent": true, "items": items}})
}

func (f *fake) provider(name string) *legacy.Provider {
	return &legacy.Provider{
		Name: name, URL: f.URL, Timeout: time.Minute,
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw}),
	}
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// counts are Metrics.
type counts struct {
	mu                     sync.Mutex
	calls                  map[string]int // by result
	keys                   int
	cached, shared, failed int
	providers              []string
	refused                int
}

func (c *counts) ProviderCalled(_, result string, keys int, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}
	c.calls[result]++
	c.keys += keys
}

func (c *counts) ProviderAnswered(_ string, cached, shared, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cached, c.shared, c.failed = c.cached+cached, c.shared+shared, c.failed+failed
}

func (c *counts) ProvidersPublished(names []string, refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.providers, c.refused = names, refused
}

func questions(provider string, keys ...string) []engine.Question {
	var out []engine.Question
	for _, k := range keys {
		out = append(out, engine.Question{Source: provider, Key: k})
	}
	return out
}

func said(answers []engine.Answer) string {
	var out []string
	for _, a := range answers {
		if a.Err != nil {
			out = append(out, a.Err.Error())
		} else {
			out = append(out, a.Value)
		}
	}
	return strings.Join(out, ", ")
}

// One call has all keys of a provider, and connections are reused. A provider that
// nobody asks gets nothing.
func TestOneCallPerProvider(t *testing.T) {
	f, other, unasked := newFake(t), newFake(t), newFake(t)
	m := &counts{}
	c := New(Options{Metrics: m})
	defer c.Close()
	c.Set([]*legacy.Provider{f.provider("p"), other.provider("q"), unasked.provider("r")}, 2)
	for range 3 {
		got := said(c.Resolve(context.Background(), slices.Concat(questions("p", "a", "bad"), questions("q", "x"), questions("none", "y"), questions("p", "")), false))
		if want := `a!, provider p: key "bad": unknown, x!, provider none: there is no valid Provider of this name, !`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if fmt.Sprint(f.calls, other.calls, unasked.calls) != "[[a bad ] [a bad ] [a bad ]] [[x] [x] [x]] []" {
		t.Error(f.calls, other.calls, unasked.calls)
	}
	if len(f.connections) != 1 {
		t.Errorf("%d connections", len(f.connections))
	}
	if m.calls["ok"] != 6 || m.keys != 12 || m.failed != 3 || m.cached+m.shared != 0 || fmt.Sprint(m.providers, m.refused) != "[p q r] 2" {
		t.Errorf("%+v", m)
	}
}

// An answer is given again until it expires; a provider that changes is asked anew.
func TestCache(t *testing.T) {
	f := newFake(t)
	now := time.Unix(0, 0)
	m := &counts{}
	c := New(Options{TTL: time.Minute, NegativeTTL: time.Second, Metrics: m, now: func() time.Time { return now }})
	defer c.Close()
	p := f.provider("p")
	c.Set([]*legacy.Provider{p}, 0)
	ask := func(want string) {
		t.Helper()
		if got := said(c.Resolve(context.Background(), questions("p", "a", "bad", "b"), false)); got != `a!, provider p: key "bad": unknown, b!` {
			t.Error(got)
		}
		if got := fmt.Sprint(f.calls); got != want {
			t.Errorf("calls %s, want %s", got, want)
		}
	}
	ask("[[a bad b]]")
	same := *p
	c.Set([]*legacy.Provider{&same}, 0)
	ask("[[a bad b]]")
	now = now.Add(time.Second)
	ask("[[a bad b] [bad]]")
	now = now.Add(time.Minute)
	ask("[[a bad b] [bad] [a bad b]]")
	changed := *p
	changed.Timeout = time.Hour
	c.Set([]*legacy.Provider{&changed}, 0)
	ask("[[a bad b] [bad] [a bad b] [a bad b]]")
	if m.cached != 3+2 {
		t.Errorf("%d answers from the cache", m.cached)
	}
	// A failed call is not remembered.
	now = now.Add(time.Hour)
	f.broken.Store(true)
	for range 2 {
		if got := said(c.Resolve(context.Background(), questions("p", "a"), false)); got != `provider p: it answers "500 Internal Server Error"; expected 200 OK` {
			t.Error(got)
		}
	}
	f.broken.Store(false)
	if got := said(c.Resolve(context.Background(), questions("p", "a"), false)); got != "a!" {
		t.Error(got)
	}
}

// The cache has a bound; the oldest answers make room.
func TestCacheIsBounded(t *testing.T) {
	c, e := newCache(), &endpoint{}
	value := strings.Repeat("x", 1<<20)
	for i := range 100 {
		c.put(e, fmt.Sprint(i), engine.Answer{Value: value}, time.Unix(100, 0))
		c.put(e, "again", engine.Answer{Value: value}, time.Unix(100, 0))
	}
	_, first := c.get(e, "0", time.Unix(0, 0))
	_, last := c.get(e, "99", time.Unix(0, 0))
	if c.bytes > maxCache || len(c.at) > 32 || first || !last {
		t.Errorf("%d bytes, %d entries, first %t, last %t", c.bytes, len(c.at), first, last)
	}
	c.get(e, "99", time.Unix(100, 0))
	if _, ok := c.get(e, "99", time.Unix(0, 0)); ok || len(c.at) != c.order.Len() {
		t.Error("an expired answer stays")
	}
}

// Requests that ask for the same key at the same time share a call, which does not
// end with the request that began it.
func TestShared(t *testing.T) {
	f := newFake(t)
	f.hold = make(chan struct{})
	m := &counts{}
	// The endpoint looks at the clock once for each request, with its lock held.
	looked := make(chan struct{}, 100)
	c := New(Options{Metrics: m, now: func() time.Time { looked <- struct{}{}; return time.Unix(0, 0) }})
	defer c.Close()
	c.Set([]*legacy.Provider{f.provider("p")}, 0)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if got := said(c.Resolve(ctx, questions("p", "a"), false)); got != "provider p: no answer before the request's own time was over" {
			t.Error(got)
		}
	})
	<-f.arrived
	for range 10 {
		all.Go(func() {
			if got := said(c.Resolve(context.Background(), questions("p", "a", "b"), false)); got != "a!, b!" {
				t.Error(got)
			}
		})
	}
	<-f.arrived // the call for b
	for range 1 + 10 {
		<-looked
	}
	cancel()
	e := c.endpoints["p"]
	for {
		m.mu.Lock()
		gone := m.failed
		m.mu.Unlock()
		if gone == 1 {
			break
		}
		<-time.After(time.Millisecond)
	}
	close(f.hold)
	all.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.flights) != 0 || e.calls != 0 {
		t.Errorf("%d flights, %d calls are left", len(e.flights), e.calls)
	}
	for _, keys := range f.calls[1:] {
		if fmt.Sprint(keys) == "[a b]" {
			t.Error("a was asked for twice at the same time")
		}
	}
}

// After some failures a provider is left alone for a while, and then tried once.
func TestCircuit(t *testing.T) {
	f := newFake(t)
	now := time.Unix(0, 0)
	c := New(Options{now: func() time.Time { return now }})
	defer c.Close()
	c.Set([]*legacy.Provider{f.provider("p")}, 0)
	f.broken.Store(true)
	ask := func() string { return said(c.Resolve(context.Background(), questions("p", "a"), false)) }
	const status = `provider p: it answers "500 Internal Server Error"; expected 200 OK`
	for range maxFailures {
		if got := ask(); got != status {
			t.Error(got)
		}
	}
	const open = `provider p: not asked: its last 5 calls failed, and it is asked again after 5s without one: it answers "500 Internal Server Error"; expected 200 OK`
	for range 3 {
		if got := ask(); got != open {
			t.Error(got)
		}
	}
	now = now.Add(restTime)
	if got := ask(); got != status {
		t.Error(got)
	}
	if got := ask(); got != open {
		t.Error(got)
	}
	f.broken.Store(false)
	now = now.Add(restTime)
	for range 2 {
		if got := ask(); got != "a!" {
			t.Error(got)
		}
	}
	if n := f.count(); n != maxFailures+1+2 {
		t.Errorf("%d calls", n)
	}
}

// What one request may send is bounded, and so are calls under way.
func TestBounds(t *testing.T) {
	f := newFake(t)
	f.hold = make(chan struct{})
	c := New(Options{})
	defer c.Close()
	c.Set([]*legacy.Provider{f.provider("p")}, 0)
	many := make([]string, maxKeys+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	if got := c.Resolve(context.Background(), questions("p", many...), false); got[0].Err == nil || got[0].Err.Error() != "provider p: 1001 keys at once, more than 1000" {
		t.Error(got[0])
	}
	if got := said(c.Resolve(context.Background(), questions("p", strings.Repeat("k", maxRequest+1)), false)); got != "provider p: keys of 262145 bytes at once, more than 262144" {
		t.Error(got)
	}
	var all sync.WaitGroup
	e := c.endpoints["p"]
	for i := range maxCalls {
		all.Go(func() {
			if got := said(c.Resolve(context.Background(), questions("p", fmt.Sprint(i)), false)); got != fmt.Sprint(i)+"!" {
				t.Error(got)
			}
		})
	}
	for {
		e.mu.Lock()
		calls := e.calls
		e.mu.Unlock()
		if calls == maxCalls {
			break
		}
		<-time.After(time.Millisecond)
	}
	if got := said(c.Resolve(context.Background(), questions("p", "one more"), false)); got != "provider p: not asked: 64 calls to it are under way" {
		t.Error(got)
	}
	close(f.hold)
	all.Wait()
	if n := len(f.connections); n > maxConnections {
		t.Errorf("%d connections", n)
	}
}

// lateAnswers answers with nothing when a call's time is over, as net/http does when a
// server notices the closed connection before the call ends.
type lateAnswers struct{}

func (lateAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

func TestLateAnswer(t *testing.T) {
	p := &legacy.Provider{Name: "late", URL: "https://127.0.0.1", Timeout: time.Millisecond}
	e := newEndpoint(p, &Options{now: time.Now})
	e.client = &http.Client{Transport: lateAnswers{}}
	ctx, cancel := context.WithTimeout(t.Context(), p.Timeout)
	defer cancel()
	_, err := e.ask(ctx, []string{"a"})
	if want := "provider late: no complete answer within 1ms (spec.timeout)"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A provider's answer is read as Gatekeeper reads it.
func TestParse(t *testing.T) {
	for body, want := range map[string]string{
		`{"response":{"idempotent":true,"items":[{"key":"a","value":"b"},{"key":"other","value":7}]}}`: "b",
		`{"RESPONSE":{"Idempotent":true,"ITEMS":[{"Key":"a","VALUE":""}]},"kind":7}`:                   "",
		`{"response":{"idempotent":true,"systemError":" \n","items":[{"key":"a","value":"\u00e9"}]}}`:  "é",
		`null`:                             "provider p: its answer does not say response.idempotent: true, which mutation needs",
		`{}`:                               "provider p: its answer does not say response.idempotent: true, which mutation needs",
		`{"response":{"idempotent":true}}`: `provider p: key "a": its answer has no item for it`,
		`{"response":{"idempotent":true,"items":null}}`:                                  `provider p: key "a": its answer has no item for it`,
		`{"response":{"idempotent":true,"items":[{"key":"a"}]}}`:                         `provider p: key "a": the value is not a string: `,
		`{"response":{"idempotent":true,"items":[{"key":"a","value":null}]}}`:            `provider p: key "a": the value is not a string: null`,
		`{"response":{"idempotent":true,"items":[{"key":"a","value":{"x":"y"}}]}}`:       `provider p: key "a": the value is not a string: {"x":"y"}`,
		`{"response":{"idempotent":true,"items":[{"key":"a","value":"b","error":"c"}]}}`: `provider p: key "a": c`,
		`{"response":{"idempotent":true,"items":{"key":"a"}}}`:                           "provider p: its answer is not a ProviderResponse in JSON: response.items is not a list",
		`{"response":{"idempotent":"yes"}}`:                                              "provider p: its answer is not a ProviderResponse in JSON: json: cannot unmarshal string into Go struct field .response.idempotent of type bool",
		`{"response":{"idempotent":true,"items":[]}} trailing`:                           "provider p: its answer is not a ProviderResponse in JSON: invalid character 't' after top-level value",
		``: "provider p: its answer is not a ProviderResponse in JSON: unexpected end of JSON input",
		`{"response":{"idempotent":true,"items":[` + strings.Repeat("{},", maxItems) + `{}]}}`: "provider p: its answer has more than 10000 items",
	} {
		answers, err := parse("p", []byte(body), []string{"a"})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = said([]engine.Answer{answers["a"]})
		}
		if got != want {
			t.Errorf("%.80s: %s, want %s", body, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, body := range []string{
		`{"response":{"idempotent":true,"items":[{"key":"a","value":"b"},{"key":"a","value":7}]}}`,
		`{"response":{"systemError":"x"}}`, `[`, `null`, `{"response":{"idempotent":true,"items":[{"key":"b","error":"\ud800"}]}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		answers, err := parse("p", body, []string{"a", "b"})
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		for _, key := range []string{"a", "b"} {
			a, ok := answers[key]
			switch {
			case !ok:
				t.Errorf("no answer for %s", key)
			case a.Err != nil && (a.Value != "" || len(a.Err.Error()) > 2000):
				t.Errorf("%s: %+v", key, a)
			case len(a.Value) > 3*len(body): // invalid UTF-8 grows
				t.Errorf("%s: %d bytes from %d", key, len(a.Value), len(body))
			}
		}
		if again, _ := parse("p", body, []string{"a", "b"}); said([]engine.Answer{answers["a"], answers["b"]}) != said([]engine.Answer{again["a"], again["b"]}) {
			t.Error("the same answer is read in two ways")
		}
	})
}

// One call with many keys beside many calls with one, and answers from the cache.
func BenchmarkResolve(b *testing.B) {
	f := &fake{connections: map[string]bool{}, arrived: make(chan struct{}, 1)}
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.calls = nil
		f.mu.Unlock()
		select {
		case <-f.arrived:
		default:
		}
		f.ServeHTTP(w, r)
	}))
	defer f.Close()
	for _, keys := range []int{1, 10, 100} {
		var asked []engine.Question
		for i := range keys {
			asked = append(asked, engine.Question{Source: "p", Key: fmt.Sprintf("registry.example.com/shop/web:%d", i)})
		}
		for _, ttl := range []time.Duration{0, time.Hour} {
			b.Run(fmt.Sprintf("keys=%d/cached=%t", keys, ttl > 0), func(b *testing.B) {
				c := New(Options{TTL: ttl})
				defer c.Close()
				c.Set([]*legacy.Provider{f.provider("p")}, 0)
				b.ReportAllocs()
				for b.Loop() {
					if a := c.Resolve(context.Background(), asked, false); a[0].Err != nil {
						b.Fatal(a[0].Err)
					}
				}
			})
		}
	}
	b.Run("keys=100/one-by-one", func(b *testing.B) {
		c := New(Options{})
		defer c.Close()
		c.Set([]*legacy.Provider{f.provider("p")}, 0)
		b.ReportAllocs()
		for b.Loop() {
			for i := range 100 {
				c.Resolve(context.Background(), questions("p", fmt.Sprint(i)), false)
			}
		}
	})
}
