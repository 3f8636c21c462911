package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/mapd-project/mapd/pkg/webhook"
)

const (
	// lookEvery is how often the files are looked at.
	lookEvery = time.Second
	// announce is how long an authority has to have been in the bundle before a
	// certificate of it replaces a good one. Replicas see a mounted Secret change
	// up to a kubelet's sync period and the lifetime of its cache apart, and the one
	// that writes the configurations may be the last to.
	announce = 150 * time.Second
)

// Files is a Source that reads a certificate, its key and a bundle of
// authorities from files that somebody else keeps up to date. Authorities that
// are replaced while it runs stay in the bundle until they end, and a certificate
// of a new authority is served once that has been announced. It is safe for
// concurrent use.
type Files struct {
	pair   *webhook.Certificate
	caFile string
	now    func() time.Time
	listeners

	mu      sync.Mutex // of what follows
	looked  time.Time
	text    []byte // of caFile
	err     error  // why it cannot be used
	seen    []authority
	bundle  []byte
	serving *tls.Certificate
}

// authority is one that has been in the file at some time.
type authority struct {
	cert  *x509.Certificate
	since time.Time // zero: from the beginning
}

// NewFiles reads the files; it fails if they cannot be used now. caFile may be
// empty: then clients are left to trust whom they trust anyway.
func NewFiles(certFile, keyFile, caFile string) (*Files, error) {
	return newFiles(certFile, keyFile, caFile, time.Now)
}

func newFiles(certFile, keyFile, caFile string, now func() time.Time) (*Files, error) {
	pair, err := webhook.LoadCertificate(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	f := &Files{pair: pair, caFile: caFile, now: now}
	f.look()
	if f.err != nil {
		return nil, f.err
	}
	return f, nil
}

// GetCertificate returns the certificate in use, for tls.Config.
func (f *Files) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	return f.serving, nil
}

// Bundle is whom the API servers have to trust, in PEM: what is in the file, and
// what was in it before and has not ended.
func (f *Files) Bundle() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	return f.bundle
}

// Check says what is wrong with the files or the certificate in use.
func (f *Files) Check() error {
	if err := f.pair.Check(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	if f.err != nil || f.caFile == "" {
		return f.err
	}
	var known []*x509.Certificate
	for _, a := range f.seen {
		known = append(known, a.cert)
	}
	if !chained(f.serving, known, f.now()) {
		return fmt.Errorf("%s: none of the authorities accepts the certificate that is served", f.caFile)
	}
	return nil
}

// Run looks at the files regularly, so that those who wait for Changed hear of
// it without anybody asking, until ctx is done.
func (f *Files) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			f.Bundle()
		}
	}
}

// look reads what has changed. f.mu is held.
func (f *Files) look() {
	now := f.now()
	if !f.looked.IsZero() && now.Sub(f.looked) < lookEvery {
		return
	}
	first := f.looked.IsZero()
	f.looked = now
	if f.caFile != "" {
		f.err = f.read(now, first)
	}
	changed := false
	var certs []*x509.Certificate
	f.seen = slices.DeleteFunc(f.seen, func(a authority) bool { return now.After(a.cert.NotAfter) })
	for _, a := range f.seen {
		certs = append(certs, a.cert)
	}
	if bundle := encodeCerts(certs...); !bytes.Equal(bundle, f.bundle) {
		f.bundle, changed = bundle, true
	}
	if fresh, err := f.pair.GetCertificate(nil); err == nil && fresh != f.serving && f.announced(fresh, now) {
		f.serving, changed = fresh, true
	}
	if changed {
		f.wake(true)
	}
}

// read takes the authorities from the file. The newest come first, and what is
// there on the first look counts as announced.
func (f *Files) read(now time.Time, first bool) error {
	text, err := os.ReadFile(f.caFile)
	if err != nil {
		return err
	}
	if bytes.Equal(text, f.text) {
		return nil
	}
	certs, err := parseCerts(text)
	if err != nil {
		return fmt.Errorf("%s %w", f.caFile, err)
	}
	f.text = text
	var seen []authority
	for _, c := range certs {
		a := authority{cert: c}
		if !first {
			a.since = now
		}
		for _, known := range f.seen {
			if same(known.cert, c) {
				a = known
			}
		}
		seen = append(seen, a)
	}
	for _, known := range f.seen {
		if !contains(certs, known.cert) {
			seen = append(seen, known)
		}
	}
	f.seen = seen
	return nil
}

// announced says that fresh may be served instead of what is served now.
func (f *Files) announced(fresh *tls.Certificate, now time.Time) bool {
	if f.serving == nil || f.serving.Leaf == nil || now.After(f.serving.Leaf.NotAfter) || f.caFile == "" {
		return true
	}
	var known, old []*x509.Certificate
	for _, a := range f.seen {
		known = append(known, a.cert)
		if a.since.IsZero() || now.Sub(a.since) >= announce {
			old = append(old, a.cert)
		}
	}
	// Who signed it may be told in the chain, and root and bundle be only above it.
	return chained(fresh, old, now) || !chained(f.serving, known, now)
}

// chained says that a client that trusts cas accepts the certificate with its
// chain.
func chained(c *tls.Certificate, cas []*x509.Certificate, now time.Time) bool {
	if c.Leaf == nil {
		return false
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, ca := range cas {
		roots.AddCert(ca)
	}
	for _, der := range c.Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(cert)
		}
	}
	_, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now})
	return err == nil
}
