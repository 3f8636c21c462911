package externaldata

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// flight is the question about one key that a running call asks. Its answer may be read after
// done is closed.
type flight struct {
	done   chan struct{}
	answer engine.Answer
	ended  time.Time
}

// ticket is one request that waits for a flight.
type ticket struct {
	*flight
	way engine.Way
}

// landed returns a flight that is finished already, for a cached answer.
func landed(answer engine.Answer) *flight {
	f := &flight{done: make(chan struct{}), answer: answer}
	close(f.done)
	return f
}

// endpoint is one provider, with its connections, the flights that are not finished, and the
// results of its last calls.
type endpoint struct {
	provider *legacy.Provider
	options  *Options
	client   *http.Client

	mu       sync.Mutex
	flights  map[string]*flight // not finished, by key
	calls    int                // running ones
	failures int                // calls in a row that failed
	last     error              // of the last call, if it failed
	rests    time.Time          // not called before, after maxFailures
	trying   bool               // a call is running that tests whether the provider works again
}

func newEndpoint(p *legacy.Provider, o *Options) *endpoint {
	e := &endpoint{provider: p, options: o, flights: map[string]*flight{}}
	e.client = newHTTPClient(p, o.Certificate)
	return e
}

func (e *endpoint) close() { e.client.CloseIdleConnections() }

// fly returns a ticket for each of the keys, which must all be different. Keys that neither the
// cache nor a running call has share one new call.
func (e *endpoint) fly(answers *cache, keys []string) []ticket {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.options.now()
	tickets := make([]ticket, len(keys))
	var ask []string
	for i, key := range keys {
		if answer, ok := answers.get(e, key, now); ok {
			tickets[i] = ticket{landed(answer), engine.Cached}
		} else if f := e.flights[key]; f != nil {
			tickets[i] = ticket{f, engine.Shared}
		} else {
			ask = append(ask, key)
		}
	}
	if len(ask) == 0 {
		return tickets
	}
	if refusal := e.admit(ask, now); refusal != nil {
		// The keys that were found count as answered even if no new call is possible.
		for i := range tickets {
			if tickets[i].flight == nil {
				tickets[i] = ticket{landed(engine.Answer{Err: refusal}), engine.Given}
			}
		}
		return tickets
	}
	own := make(map[string]*flight, len(ask))
	for i, key := range keys {
		if tickets[i].flight == nil {
			f := &flight{done: make(chan struct{})}
			tickets[i] = ticket{f, engine.Called}
			own[key], e.flights[key] = f, f
		}
	}
	e.calls++
	go e.call(answers, ask, own)
	return tickets
}

// admit returns the reason why the provider cannot be called now, or nil. After maxFailures, it
// admits one call after each restTime. The caller holds mu.
func (e *endpoint) admit(keys []string, now time.Time) *Error {
	size := 0
	for _, key := range keys {
		size += len(key)
	}
	name := e.provider.Name
	switch {
	case len(keys) > maxKeys:
		return failed(name, Request, "%d keys at once, more than %d", len(keys), maxKeys)
	case size > maxRequest:
		return failed(name, Request, "keys of %d bytes at once, more than %d", size, maxRequest)
	case e.calls >= maxCalls:
		return failed(name, Busy, "not asked: %d calls to it are under way", e.calls)
	case e.failures < maxFailures:
		return nil
	case e.trying || now.Before(e.rests):
		var last *Error
		text := "unknown"
		if errors.As(e.last, &last) {
			text = last.Text
		}
		return failed(name, Open, "not asked: its last %d calls failed, and it is asked again after %s without one: %s", maxFailures, restTime, text)
	}
	e.trying = true
	return nil
}

// call calls the provider. It does not end with the request that has begun it, because others may
// wait for the same keys.
func (e *endpoint) call(answers *cache, keys []string, flights map[string]*flight) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), timeoutOf(e.provider))
	given, err := e.ask(ctx, keys)
	cancel()
	ended := time.Now()
	took := ended.Sub(began)
	result := "ok"
	if err != nil {
		result = string(err.Reason)
	}
	if e.options.Metrics != nil {
		e.options.Metrics.ProviderCalled(e.provider.Name, result, len(keys), took)
	}
	now := e.options.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls--
	e.landedCall(err, now)
	for _, key := range keys {
		f := flights[key]
		delete(e.flights, key)
		if err != nil {
			f.answer.Err = err
		} else {
			f.answer = given[key]
			e.remember(answers, key, f.answer, now)
		}
		f.ended = ended
		close(f.done)
	}
}

// landedCall counts consecutive failures. An answer that reports an error is no failure. The
// caller holds mu.
func (e *endpoint) landedCall(err *Error, now time.Time) {
	e.trying = false
	switch {
	case err == nil || err.Reason == System || err.Reason == NotIdempotent || err.Reason == Certificate:
		e.failures, e.last = 0, nil
		return
	}
	e.failures++
	e.last = err
	if e.failures >= maxFailures {
		e.rests = now.Add(restTime)
	}
}

func (e *endpoint) remember(answers *cache, key string, answer engine.Answer, now time.Time) {
	ttl := e.options.TTL
	if answer.Err != nil {
		ttl = 0
		var of *Error
		if errors.As(answer.Err, &of) && of.Reason == Key {
			ttl = e.options.NegativeTTL
		}
	}
	if ttl > 0 {
		answers.put(e, key, answer, now.Add(ttl))
	}
}
