package gatekeeper

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/open-policy-agent/frameworks/constraint/pkg/apis/externaldata/unversioned"
	"github.com/open-policy-agent/frameworks/constraint/pkg/externaldata"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/test/cases"
)

// Providers are those that exist, by name, each with the reply that it gives: a name of
// replies.
type Providers map[string]string

// everyProvider is one for each reply, of the same name, and the provider p.
func everyProvider() Providers {
	out := Providers{"p": "ok"}
	for reply := range replies {
		out[reply] = reply
	}
	return out
}

// reply is what a Provider says of a key, as an item of its answer, and of the whole.
type reply struct {
	item        func(key string) map[string]any // nil, or if it returns that: there is none
	systemError string
	twice       bool // it says otherwise the next time
}

var replies = map[string]reply{
	"ok":       {item: func(key string) map[string]any { return map[string]any{"value": key + "_valid"} }},
	"other":    {item: func(key string) map[string]any { return map[string]any{"value": "other " + key} }},
	"emptystr": {item: func(string) map[string]any { return map[string]any{"value": ""} }},
	"err":      {item: func(string) map[string]any { return map[string]any{"error": "bad"} }},
	"int":      {item: func(string) map[string]any { return map[string]any{"value": 7} }},
	"null":     {item: func(string) map[string]any { return map[string]any{"value": nil} }},
	"nonidem":  {item: func(key string) map[string]any { return map[string]any{"value": key} }, twice: true},
	"system":   {systemError: "down"},
	"missing":  {},
}

// recordedProviders are those of a case, with the answers that it has.
func recordedProviders(answers map[string]map[string]cases.Answer) Providers {
	out := Providers{}
	for name, of := range answers {
		text, err := json.Marshal(of)
		if err != nil {
			panic(err)
		}
		out[name] = "recorded?" + url.Values{"answers": {string(text)}}.Encode()
	}
	return out
}

// replyOf returns the reply of a name, or of a URL's query with recorded answers.
func replyOf(name string) (reply, bool) {
	query, ok := strings.CutPrefix(name, "recorded?")
	if !ok {
		r, known := replies[name]
		return r, known
	}
	values, err := url.ParseQuery(query)
	var answers map[string]cases.Answer
	if err != nil || json.Unmarshal([]byte(values.Get("answers")), &answers) != nil {
		return reply{}, false
	}
	return reply{item: func(key string) map[string]any {
		a, known := answers[key]
		switch {
		case !known:
			return nil
		case a.Error != "":
			return map[string]any{"error": a.Error}
		}
		return map[string]any{"value": a.Value}
	}}, true
}

// Resolve answers questions as replies say, in Gatekeeper's words. It is what mapd's
// engine asks.
func (p Providers) Resolve(_ context.Context, questions []engine.Question, _ bool) []engine.Answer {
	out := make([]engine.Answer, len(questions))
	for i, q := range questions {
		out[i].Value, out[i].Err = p.answer(q)
	}
	return out
}

func (p Providers) answer(q engine.Question) (string, error) {
	reply, known := replyOf(p[q.Source])
	var item map[string]any
	if reply.item != nil {
		item = reply.item(q.Key)
	}
	switch {
	case !known:
		return "", fmt.Errorf("failed to find external data provider %s in responses", q.Source)
	case reply.systemError != "":
		return "", fmt.Errorf("failed to validate external data response from provider %s: non-empty system error: %s", q.Source, reply.systemError)
	case reply.twice:
		return "", fmt.Errorf("failed to validate external data response from provider %s: non-idempotent response", q.Source)
	case item == nil:
		return "", fmt.Errorf("failed to find external data item in response for provider %s", q.Source)
	}
	if text, ok := item["error"]; ok {
		return "", fmt.Errorf("failed to retrieve external data item from provider %s: %s", q.Source, text)
	}
	switch value := item["value"].(type) {
	case string:
		return value, nil
	case nil:
		return "", fmt.Errorf("failed to convert external data item value from provider %s to string, got type <nil>", q.Source)
	default:
		return "", fmt.Errorf("failed to convert external data item value from provider %s to string, got type float64", q.Source)
	}
}

// serve answers as a Provider whose reply is the last part of the path.
func serve(w http.ResponseWriter, r *http.Request) {
	var asked externaldata.ProviderRequest
	name := path.Base(r.URL.Path)
	if r.URL.RawQuery != "" {
		name += "?" + r.URL.RawQuery
	}
	reply, known := replyOf(name)
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || !known || len(r.TLS.PeerCertificates) == 0 {
		http.Error(w, "not a request for a Provider, or nobody's", http.StatusBadRequest)
		return
	}
	items := []any{}
	for _, key := range asked.Request.Keys {
		if reply.item == nil {
			continue
		}
		if item := reply.item(key); item != nil {
			item["key"] = key
			items = append(items, item)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "externaldata.gatekeeper.sh/v1beta1", "kind": "ProviderResponse",
		"response": map[string]any{"idempotent": !reply.twice, "systemError": reply.systemError, "items": items},
	})
}

// outside is an HTTPS server, and who may call it.
type outside struct {
	address, ca string
	client      *certwatcher.CertWatcher
}

// started starts the server that all tests share. It ends with the process.
var started = sync.OnceValues(func() (*outside, error) {
	log.SetLogger(logr.Discard()) // Gatekeeper's, which tells of each failure that is ignored
	dir, err := os.MkdirTemp("", "mapd-providers")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	certificate, err := issue(dir)
	if err != nil {
		return nil, err
	}
	watcher, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "tls.crt"))
	if err != nil {
		return nil, err
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(serve))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("the certificate cannot be read")
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS13}
	s.StartTLS()
	return &outside{address: s.URL, ca: base64.StdEncoding.EncodeToString(text), client: watcher}, nil
})

// issue writes a certificate that is its own CA, good for both sides.
func issue(dir string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pri := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "tls.crt"), crt, 0o600), os.WriteFile(filepath.Join(dir, "tls.key"), pri, 0o600)); err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(crt, pri)
}

// options are those with which Gatekeeper's system asks the Providers.
func (p Providers) options(o mutation.SystemOpts) mutation.SystemOpts {
	server, err := started()
	if err != nil {
		panic(err)
	}
	o.ProviderCache, o.ClientCertWatcher = externaldata.NewCache(), server.client
	for name, reply := range p {
		provider := &unversioned.Provider{Spec: unversioned.ProviderSpec{URL: server.address + "/" + reply, Timeout: 5, CABundle: server.ca}}
		provider.Name = name
		if err := o.ProviderCache.Upsert(provider); err != nil {
			panic(err)
		}
	}
	return o
}
