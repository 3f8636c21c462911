package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// MaxConnections is how many connections a Client may have.
const MaxConnections = 64

// askTimeout is the longest time that an API server waits for a webhook.
const askTimeout = 30 * time.Second

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 20

// Target is the webhook that a Client sends to.
type Target struct {
	// URL is the address of the webhook. Its host must be a loopback address or localhost.
	URL string
	// CA is the authority of its certificate, in PEM.
	CA []byte
	// Connections is the number of connections. They are kept open, and each has one request at a
	// time.
	Connections int
}

// Client has the connections to a Target.
type Client struct {
	target      Target
	connections []*http.Client
}

// NewClient checks a Target and makes a Client for it; it does not connect yet.
func NewClient(t Target) (*Client, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" || u.User != nil {
		return nil, fmt.Errorf("%s: must be https://HOST:PORT/PATH", t.URL)
	}
	if host := u.Hostname(); host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return nil, fmt.Errorf("%s: the host has to be a loopback address", t.URL)
	}
	if t.Connections < 1 || t.Connections > MaxConnections {
		return nil, fmt.Errorf("%d connections: must be 1 to %d", t.Connections, MaxConnections)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(t.CA) {
		return nil, fmt.Errorf("no certificate of an authority in PEM form")
	}
	c := &Client{target: t}
	for range t.Connections {
		c.connections = append(c.connections, connection(roots))
	}
	return c, nil
}

// connection is a client that has one connection, without a proxy.
func connection(roots *x509.CertPool) *http.Client {
	// As an API server, so that requests spread over a webhook's replicas
	// (https://issue.k8s.io/75791).
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{
		Timeout: askTimeout,
		Transport: &http.Transport{
			// Whatever address a name resolves to, nothing is sent to another machine.
			DialContext:         (&net.Dialer{Control: loopbackOnly}).DialContext,
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			Protocols:           protocols,
			MaxConnsPerHost:     1,
			MaxIdleConnsPerHost: 1,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// loopbackOnly is a net.Dialer's Control that refuses addresses that are not loopback.
func loopbackOnly(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if !net.ParseIP(host).IsLoopback() {
		return fmt.Errorf("%s is not a loopback address", address)
	}
	return nil
}

// Close closes the connections.
func (c *Client) Close() {
	for _, h := range c.connections {
		h.CloseIdleConnections()
	}
}

// Ask sends a Review once and returns the response, which may deny the request.
func (c *Client) Ask(ctx context.Context, r *Review) (*admissionv1.AdmissionResponse, error) {
	body, uid := r.next(nil, 0)
	var answer bytes.Buffer
	if err := c.send(ctx, c.connections[0], body, &answer); err != nil {
		return nil, err
	}
	return decode(answer.Bytes(), uid)
}

// send sends a body on a connection and reads the answer.
func (c *Client) send(ctx context.Context, h *http.Client, body []byte, answer *bytes.Buffer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.target.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	// The headers of the API server's client; net/http adds Accept-Encoding: gzip.
	req.Header.Set("Accept", "application/json, */*")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "kube-apiserver-admission")
	resp, err := h.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer.Reset()
	if _, err := io.Copy(answer, io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %.200s", resp.Status, answer)
	}
	return nil
}

// decode reads an answer to a request.
func decode(answer []byte, uid string) (*admissionv1.AdmissionResponse, error) {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	switch {
	case review.Response == nil:
		return nil, fmt.Errorf("answer: it has no response")
	case string(review.Response.UID) != uid:
		return nil, fmt.Errorf("answer: it is to %q and not to %q", review.Response.UID, uid)
	}
	return review.Response, nil
}
