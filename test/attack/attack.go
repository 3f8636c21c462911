// Package attack attacks a webhook as a hostile client would: it keeps bodies, headers and
// connections unfinished, sends reviews that cost far more than their length, and makes policies
// do the most expensive work that the bounds allow ([Policies]). It sends to loopback addresses
// only. The caller checks the webhook's process; a Bystander checks that other clients are served
// meanwhile.
package attack

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Target is the webhook to attack.
type Target struct {
	Addr  string // of a loopback interface, with its port
	Path  string
	Roots *x509.CertPool
}

// check returns an error unless the address is a loopback address.
func (t Target) check() error {
	host, _, err := net.SplitHostPort(t.Addr)
	if err != nil {
		return err
	}
	if !net.ParseIP(host).IsLoopback() {
		return fmt.Errorf("%s: must be a loopback address", t.Addr)
	}
	return nil
}

// Attack is one way to attack a Target from Connections connections at once.
type Attack struct {
	Name        string
	Connections int
	// one attacks through one connection at a time until ctx is done.
	one func(ctx context.Context, t Target, o *Outcome)
}

// Outcome counts what the Target did: HTTP answers by code, and connections that
// ended otherwise.
type Outcome struct {
	mu    sync.Mutex
	codes map[int]int
	cut   int
	// denied counts reviews that were answered 200 and not allowed, by their message.
	denied map[string]int
}

// Codes returns the number of answers by HTTP code.
func (o *Outcome) Codes() map[int]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.codes)
}

// Denied returns the number of reviews that were denied, by message.
func (o *Outcome) Denied() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.denied)
}

// decided counts an answer with code 200, of which it gets the beginning.
func (o *Outcome) decided(answer string) {
	if strings.Contains(answer, `"allowed":true`) {
		return
	}
	_, message, _ := strings.Cut(answer, `"message":"`)
	message, _, _ = strings.Cut(message, `","`)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.denied[message]++
}

// String lists the answers, such as "200×3 429×20, 4 cut".
func (o *Outcome) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	for _, code := range slices.Sorted(maps.Keys(o.codes)) {
		fmt.Fprintf(&b, "%d×%d ", code, o.codes[code])
	}
	denied := 0
	for _, n := range o.denied {
		denied += n
	}
	if denied > 0 {
		fmt.Fprintf(&b, "(%d denied) ", denied)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %d cut", strings.TrimSpace(b.String()), o.cut))
}

func (o *Outcome) answered(code int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.codes[code]++
}

func (o *Outcome) ended() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut++
}

// Run attacks t from n connections, or Connections if n is 0, until ctx is done.
func (a Attack) Run(ctx context.Context, t Target, n int) (*Outcome, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if n == 0 {
		n = a.Connections
	}
	o := &Outcome{codes: map[int]int{}, denied: map[string]int{}}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				a.one(ctx, t, o)
			}
		})
	}
	all.Wait()
	return o, nil
}

// dial opens a connection that ends with ctx. A nil one means that the Target
// refused it.
func dial(ctx context.Context, t Target, o *Outcome) net.Conn {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", t.Addr)
	if err != nil {
		o.refusedConnection(ctx)
		return nil
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	return &ending{conn, stop}
}

// refusedConnection counts a connection that was not made, and waits a moment.
func (o *Outcome) refusedConnection(ctx context.Context) {
	o.ended()
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
}

type ending struct {
	net.Conn
	stop func() bool
}

func (e *ending) Close() error {
	e.stop()
	return e.Conn.Close()
}

// dialTLS is dial with a handshake.
func dialTLS(ctx context.Context, t Target, o *Outcome) net.Conn {
	conn := dial(ctx, t, o)
	if conn == nil {
		return nil
	}
	c := tls.Client(conn, &tls.Config{RootCAs: t.Roots, ServerName: "localhost", MinVersion: tls.VersionTLS13})
	if err := c.HandshakeContext(ctx); err != nil {
		conn.Close()
		o.refusedConnection(ctx)
		return nil
	}
	return c
}

func header(t Target, more string) string {
	return "POST " + t.Path + "?timeout=30s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + more
}

// answer waits for an answer, or the end of the connection.
func answer(conn net.Conn, o *Outcome) {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		o.ended()
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body) // only the code matters
	resp.Body.Close()
	o.answered(resp.StatusCode)
}

// sends returns an attack that sends the same body again and again, each on a new
// connection.
func sends(body func() []byte, more string) func(context.Context, Target, *Outcome) {
	made := sync.OnceValue(body)
	return func(ctx context.Context, t Target, o *Outcome) {
		conn := dialTLS(ctx, t, o)
		if conn == nil {
			return
		}
		defer conn.Close()
		b := made()
		go func() {
			// The server may refuse a body before its end; the answer tells.
			_, _ = io.WriteString(conn, header(t, fmt.Sprintf("%sContent-Length: %d\r\n\r\n", more, len(b))))
			_, _ = conn.Write(b)
		}()
		answer(conn, o)
	}
}

// holds returns an attack that opens a connection, sends what begin returns, and then only sends
// then from time to time, until the server closes the connection.
func holds(encrypted bool, begin func(Target) []byte, then string) func(context.Context, Target, *Outcome) {
	return func(ctx context.Context, t Target, o *Outcome) {
		open := dial
		if encrypted {
			open = dialTLS
		}
		conn := open(ctx, t, o)
		if conn == nil {
			return
		}
		defer conn.Close()
		go func() {
			if _, err := conn.Write(begin(t)); err != nil || then == "" {
				return
			}
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Second):
				}
				if _, err := io.WriteString(conn, then); err != nil {
					return
				}
			}
		}()
		answer(conn, o)
	}
}

const mib = 1 << 20

// review returns an AdmissionReview of about size bytes. Its object is what the function object
// returns.
func review(size int, object func(size int) string) []byte {
	const head = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","kind":{"group":"","version":"v1","kind":"ConfigMap"},` +
		`"resource":{"group":"","version":"v1","resource":"configmaps"},"name":"a","namespace":"default","operation":"CREATE","userInfo":{"username":"a"},"object":`
	return []byte(head + object(size-len(head)-2) + "}}")
}

func named(content string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"},` + content + "}"
}

func repeated(before, part, last, after string) func(int) string {
	return func(size int) string {
		n := (size - len(named("")) - len(before) - len(last) - len(after)) / len(part)
		return named(before + strings.Repeat(part, max(n, 0)) + last + after)
	}
}

// deep returns values that are nested almost as deeply as decoders allow, one after the other.
func deep(size int) string {
	const depth = 9_900
	one := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
	return repeated(`"x":[`, one+",", "1", "]")(size)
}

// duplicates returns an AdmissionReview that has the same field many times. Only the decoder of
// sigs.k8s.io accepts that.
func duplicates(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","object":{}`)
	for b.Len() < size {
		b.WriteString(`,"object":{"a":{"a":{"a":[{},{},{}]}}}`)
	}
	b.WriteString("}}")
	return b.Bytes()
}

// groups returns a review with a user in very many groups.
func groups(size int) []byte {
	return bytes.Replace(review(300, func(int) string { return named(`"data":{}`) }), []byte(`"username":"a"`),
		[]byte(`"username":"a","groups":[`+strings.Repeat(`"a",`, size/4)+`"a"]`), 1)
}

// All are all attacks, each with the number of connections that it makes by default.
var All = slices.Concat(Requests, Evaluations)

// Requests are the attacks that need no policy.
var Requests = []Attack{
	{"unfinished bodies", 100, holds(true, func(t Target) []byte {
		return append([]byte(header(t, fmt.Sprintf("Content-Length: %d\r\n\r\n", 7*mib))), bytes.Repeat([]byte(" "), 7*mib-10)...)
	}, "")},
	{"slow bodies", 300, holds(true, func(t Target) []byte {
		return append([]byte(header(t, "Content-Length: 200000\r\n\r\n")), bytes.Repeat([]byte(" "), 100_000)...)
	}, " ")},
	{"chunks without end", 32, func(ctx context.Context, t Target, o *Outcome) {
		conn := dialTLS(ctx, t, o)
		if conn == nil {
			return
		}
		defer conn.Close()
		go func() {
			if _, err := io.WriteString(conn, header(t, "Transfer-Encoding: chunked\r\n\r\n")); err != nil {
				return
			}
			chunk := []byte("8000\r\n" + strings.Repeat(" ", 0x8000) + "\r\n")
			for {
				if _, err := conn.Write(chunk); err != nil {
					return
				}
			}
		}()
		answer(conn, o)
	}},
	{"many maps, 3 MiB", 16, sends(func() []byte { return review(3*mib, repeated(`"x":[`, `{"a":{"a":{}}},`, "1", "]")) }, "")},
	{"many maps, 1 MiB", 32, sends(func() []byte { return review(mib, repeated(`"x":[`, `{"a":{"a":{}}},`, "1", "]")) }, "")},
	{"many small reviews of maps", 64, sends(func() []byte { return review(mib/16, repeated(`"x":[`, `{"a":{"a":{}}},`, "1", "]")) }, "")},
	{"one chain of maps", 64, sends(func() []byte { return review(60_000, deep) }, "")},
	{"chains of maps, 3 MiB", 16, sends(func() []byte { return review(3*mib, deep) }, "")},
	{"a list of numbers, 7 MiB", 16, sends(func() []byte { return review(7*mib-100, repeated(`"x":[`, `1000,`, "1", "]")) }, "")},
	{"a list of strings, 7 MiB", 16, sends(func() []byte { return review(7*mib-100, repeated(`"x":[`, `"",`, `""`, "]")) }, "")},
	{"escapes, 7 MiB", 16, sends(func() []byte { return review(7*mib-100, repeated(`"data":{"x":"`, `\u0041`, ``, `"}`)) }, "")},
	{"one string, 7 MiB", 16, sends(func() []byte { return review(7*mib-100, repeated(`"data":{"x":"`, `xxxxxxxx`, ``, `"}`)) }, "")},
	{"groups, 7 MiB", 16, sends(func() []byte { return groups(7*mib - 1000) }, "")},
	{"a field given twice, 7 MiB", 16, sends(func() []byte { return duplicates(7*mib - 100) }, "")},
	{"compressed", 16, sends(func() []byte { return bytes.Repeat([]byte{0}, mib) }, "Content-Encoding: gzip\r\n")},
	{"a header of 1 MiB", 32, sends(func() []byte { return []byte("{}") }, "X: "+strings.Repeat("x", mib)+"\r\n")},
	{"headers that do not end", 1500, holds(true, func(t Target) []byte {
		var b bytes.Buffer
		b.WriteString(header(t, ""))
		for i := range 2000 {
			fmt.Fprintf(&b, "%x:\r\n", i)
		}
		return b.Bytes()
	}, "y:\r\n")},
	{"handshakes that do not begin", 1500, holds(false, func(Target) []byte { return nil }, "")},
	{"idle connections", 1500, holds(true, func(Target) []byte { return nil }, "")},
	{"handshakes", 32, func(ctx context.Context, t Target, o *Outcome) {
		if conn := dialTLS(ctx, t, o); conn != nil {
			conn.Close()
		}
	}},
	{"HTTP/2 streams", 16, func(ctx context.Context, t Target, o *Outcome) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: t.Roots, ServerName: "localhost"}, ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
		defer transport.CloseIdleConnections()
		var streams sync.WaitGroup
		for range 200 {
			streams.Go(func() {
				req, err := http.NewRequestWithContext(ctx, "POST", "https://"+t.Addr+t.Path, io.LimitReader(spaces{}, 7*mib-10))
				if err != nil {
					return
				}
				req.Header.Set("Content-Type", "application/json")
				resp, err := transport.RoundTrip(req)
				if err != nil {
					o.refusedConnection(ctx)
					return
				}
				resp.Body.Close()
				o.answered(resp.StatusCode)
			})
		}
		streams.Wait()
	}},
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// Bystander sends usual reviews, one after the other, and counts the outcomes. Like an API server,
// it repeats a review after code 429, or if the connection broke before an answer. A review that
// fails for longer than patience counts as lost.
type Bystander struct {
	Target   Target
	Patience time.Duration
	// Fresh makes a new connection for each review.
	Fresh bool
	// From is the loopback address to send from. If it is empty, it is that of the attackers.
	From string
	Body []byte

	Took []time.Duration // the time of each review that was answered with 200, with its repetitions
	Lost []error
	// Again counts how often a review was repeated.
	Again int

	served atomic.Int64
}

// Served returns how many reviews were answered with 200 so far. It may be called while Run runs.
func (b *Bystander) Served() int64 { return b.served.Load() }

// Run sends reviews until ctx is done.
func (b *Bystander) Run(ctx context.Context) {
	var d net.Dialer
	if b.From != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(b.From)}
	}
	transport := &http.Transport{
		DialContext: d.DialContext, TLSClientConfig: &tls.Config{RootCAs: b.Target.Roots, ServerName: "localhost"}, DisableKeepAlives: b.Fresh, TLSHandshakeTimeout: b.Patience,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for ctx.Err() == nil {
		began := time.Now()
		err := b.one(ctx, client)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			b.Lost = append(b.Lost, err)
		default:
			b.Took = append(b.Took, time.Since(began))
			b.served.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (b *Bystander) one(ctx context.Context, client *http.Client) error {
	limit, cancel := context.WithTimeout(ctx, b.Patience)
	defer cancel()
	for {
		code, err := b.try(limit, client)
		if err == nil && code == http.StatusOK {
			return nil
		}
		if err == nil && code != http.StatusTooManyRequests {
			return fmt.Errorf("answer %d", code)
		}
		b.Again++
		select {
		case <-limit.Done():
			return errors.Join(limit.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (b *Bystander) try(ctx context.Context, client *http.Client) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+b.Target.Addr+b.Target.Path, bytes.NewReader(b.Body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// Usual returns a small review such as API servers send.
func Usual() []byte { return review(400, func(int) string { return named(`"data":{"a":"b"}`) }) }

// Quantile returns the q-quantile of Took; for example, q is 0.99.
func (b *Bystander) Quantile(q float64) time.Duration {
	if len(b.Took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(b.Took))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
