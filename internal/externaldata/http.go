package externaldata

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/mapd-project/mapd/internal/httpsclient"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// newHTTPClient returns a client for one provider, with Gatekeeper's requirements: TLS 1.3, only
// the authorities of the caBundle, and mapd's certificate if the server asks for one. It follows
// no redirects and uses no proxy.
func newHTTPClient(p *legacy.Provider, certificate func() (*tls.Certificate, error)) *http.Client {
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(p.CABundle)
	config := &tls.Config{RootCAs: authorities}
	if certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := certificate()
			if err != nil {
				return nil, certificateError{err}
			}
			return cert, nil
		}
	}
	return httpsclient.New(httpsclient.Options{TLS: config, Connections: maxConnections})
}

// certificateError says why there is no client certificate.
type certificateError struct{ error }

type providerRequest struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Request    requestKeys `json:"request"`
}

type requestKeys struct {
	Keys []string `json:"keys"`
}

// providerResponse has the fields of a ProviderResponse that Gatekeeper reads.
type providerResponse struct {
	Response struct {
		Idempotent  bool   `json:"idempotent"`
		Items       items  `json:"items"`
		SystemError string `json:"systemError"`
	} `json:"response"`
}

type item struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
	Error string          `json:"error"`
}

// items are decoded one by one, because a list of empty items would otherwise need many times the
// memory of its JSON.
type items []item

var errItems = fmt.Errorf("more than %d items", maxItems)

// UnmarshalJSON implements json.Unmarshaler.
func (l *items) UnmarshalJSON(data []byte) error {
	*l = nil
	if string(data) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("response.items is not a list")
	}
	for d.More() {
		if len(*l) == maxItems {
			return errItems
		}
		var i item
		if err := d.Decode(&i); err != nil {
			return err
		}
		*l = append(*l, i)
	}
	return nil
}

// ask sends one request, and returns the answer to each key.
func (e *endpoint) ask(ctx context.Context, keys []string) (answers map[string]engine.Answer, failure *Error) {
	defer func() {
		if v := recover(); v != nil { // this goroutine has no other recover
			answers, failure = nil, e.failed(Malformed, "panic while asking: %s", engine.PanicText(v))
		}
	}()
	body, err := json.Marshal(providerRequest{"externaldata.gatekeeper.sh/v1beta1", "ProviderRequest", requestKeys{keys}})
	if err != nil {
		return nil, e.failed(Request, "%v", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.provider.URL, bytes.NewReader(body))
	if err != nil {
		return nil, e.failed(Request, "%v", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, e.transportError(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	// At the deadline the client closes the connection. A server that notices may still send an
	// empty answer, which net/http returns instead of the deadline's error.
	if ctx.Err() != nil {
		return nil, e.transportError(ctx.Err())
	}
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, e.failed(Redirect, "it answers %q and points elsewhere; mapd follows no redirects, so spec.url must be the last address", resp.Status)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, e.failed(Status, "it answers %q; expected 200 OK", resp.Status)
	case err != nil:
		return nil, e.transportError(err)
	case len(data) > maxBody:
		return nil, e.failed(TooLarge, "its answer has more than %d bytes", maxBody)
	}
	return parse(e.provider.Name, data, keys)
}

func (e *endpoint) failed(reason Reason, format string, args ...any) *Error {
	return failed(e.provider.Name, reason, format, args...)
}

// transportError classifies the error of a call.
func (e *endpoint) transportError(err error) *Error {
	var dns *net.DNSError
	var own certificateError
	var unverified *tls.CertificateVerificationError
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &own):
		return e.failed(Certificate, "mapd's client certificate cannot be used: %v", own.error)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return e.failed(Timeout, "no complete answer within %s (spec.timeout)", timeoutOf(e.provider))
	case errors.As(err, &dns):
		return e.failed(Name, "its host %s does not resolve: %s", dns.Name, dns.Err)
	case errors.As(err, &unverified):
		return e.failed(TLS, "its certificate is not valid with spec.caBundle: %v", unverified.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return e.failed(TLS, "it does not speak TLS")
	case strings.Contains(err.Error(), "tls: "):
		_, text, _ := strings.Cut(err.Error(), "tls: ")
		return e.failed(TLS, "the TLS handshake failed: %s", clip(text))
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return e.failed(Connection, "it closed the connection before its answer was complete")
	}
	if errors.As(err, &op) {
		if op.Op == "dial" && op.Addr != nil {
			return e.failed(Connection, "no connection to %s: %v", op.Addr, op.Err)
		}
		return e.failed(Connection, "the connection broke: %v", op.Err) // without the addresses, because ports differ for each call
	}
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return e.failed(Connection, "no answer: %s", clip(err.Error()))
}

// parse decodes an answer: the answer to each key, or the reason why there is none.
func parse(provider string, data []byte, keys []string) (map[string]engine.Answer, *Error) {
	var r providerResponse
	if err := json.Unmarshal(data, &r); err != nil {
		if errors.Is(err, errItems) {
			return nil, failed(provider, TooLarge, "its answer has %v", err)
		}
		return nil, failed(provider, Malformed, "its answer is not a ProviderResponse in JSON: %v", err)
	}
	switch {
	case strings.TrimSpace(r.Response.SystemError) != "":
		return nil, failed(provider, System, "it reports an error for all keys (systemError): %s", clip(r.Response.SystemError))
	case !r.Response.Idempotent:
		return nil, failed(provider, NotIdempotent, "its answer does not say response.idempotent: true, which mutation needs")
	}
	out := make(map[string]engine.Answer, len(keys))
	for _, key := range keys {
		out[key] = engine.Answer{Err: failed(provider, Missing, "key %q: its answer has no item for it", clip(key))}
	}
	seen := make(map[string]bool, len(keys))
	for _, i := range r.Response.Items {
		if _, asked := out[i.Key]; asked {
			out[i.Key] = i.answer(provider, seen[i.Key])
			seen[i.Key] = true
		}
	}
	return out, nil
}

func (i *item) answer(provider string, again bool) (a engine.Answer) {
	switch {
	case again:
		a.Err = failed(provider, Duplicate, "key %q: its answer has more than one item for it", clip(i.Key))
	case i.Error != "":
		a.Err = failed(provider, Key, "key %q: %s", clip(i.Key), clip(i.Error))
	case len(i.Value) == 0 || i.Value[0] != '"' || json.Unmarshal(i.Value, &a.Value) != nil:
		a.Err = failed(provider, NoString, "key %q: the value is not a string: %s", clip(i.Key), clip(string(i.Value)))
	}
	return a
}

// clip cuts a text of somebody else for an error.
func clip(s string) string { return words.Cut(s, 256) }
