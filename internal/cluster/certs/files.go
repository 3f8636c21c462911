package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/servingcert"
)

const (
	// lookEvery is how often the files are checked for changes.
	lookEvery = time.Second
	// announce is how long an authority has to be in the bundle before a certificate signed by it
	// replaces a valid one. Replicas see a change of a mounted Secret at different times, up to a
	// kubelet's sync period plus the lifetime of its cache, and the replica that writes the
	// webhook configurations may see it last.
	announce = 150 * time.Second
)

// Files is a Source that reads a certificate, its key and a bundle of authorities from
// files that somebody else keeps up to date. Authorities that are replaced while it runs
// stay in the bundle until they end, and a certificate of a new authority is served once
// that has been announced. It is safe for concurrent use.
type Files struct {
	pair        *servingcert.KeyPair
	caFile      string
	authorities *servingcert.Files[[]*x509.Certificate] // nil: caFile is empty
	changed     watch.Listeners

	mu      sync.Mutex // guards the following fields
	looked  time.Time
	seen    []authority
	bundle  []byte
	serving *tls.Certificate
}

// authority is an authority that the file has or has had.
type authority struct {
	cert  *x509.Certificate
	since time.Time // in the file since; zero: from the beginning
}

// NewFiles reads the files; it fails if they cannot be used now. caFile may be
// empty: clients then trust the authorities of their system.
func NewFiles(certFile, keyFile, caFile string) (*Files, error) {
	pair, err := servingcert.LoadKeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	f := &Files{pair: pair, caFile: caFile}
	if caFile != "" {
		f.authorities, err = servingcert.LoadFiles(func(texts [][]byte) ([]*x509.Certificate, error) {
			certs, err := parseCerts(texts[0])
			if err != nil {
				return nil, fmt.Errorf("%s %w", caFile, err)
			}
			return certs, nil
		}, caFile)
		if err != nil {
			return nil, err
		}
	}
	f.look()
	return f, nil
}

// Changed returns a new channel for the caller; see Source.
func (f *Files) Changed() <-chan struct{} { return f.changed.Add() }

// GetCertificate returns the certificate in use, for tls.Config.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	return f.serving, nil
}

// Bundle returns the authorities that API servers have to trust, in PEM: those in
// the file, and earlier ones that are still valid.
func (f *Files) Bundle() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	return f.bundle
}

// Check returns an error if the files or the certificate in use cannot be used.
func (f *Files) Check() error {
	if err := f.pair.Check(); err != nil || f.authorities == nil {
		return err
	}
	if err := f.authorities.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	if !chained(f.serving, f.known(), time.Now()) {
		return fmt.Errorf("%s: none of the authorities accepts the certificate that is served", f.caFile)
	}
	return nil
}

// Run checks the files regularly until ctx is done, so that receivers of Changed learn of
// changes.
func (f *Files) Run(ctx context.Context) error {
	for watch.Sleep(ctx, lookEvery, nil, nil) {
		f.Bundle()
	}
	return nil
}

// look reads the files if they have changed. f.mu is held.
func (f *Files) look() {
	now := time.Now()
	if !f.looked.IsZero() && now.Sub(f.looked) < lookEvery {
		return
	}
	if f.authorities != nil {
		f.remember(f.authorities.Get(), now)
	}
	f.looked = now
	changed := false
	f.seen = slices.DeleteFunc(f.seen, func(a authority) bool { return now.After(a.cert.NotAfter) })
	if bundle := servingcert.Encode(f.known()...); !bytes.Equal(bundle, f.bundle) {
		f.bundle, changed = bundle, true
	}
	if fresh, err := f.pair.GetCertificate(nil); err == nil && fresh != f.serving && f.announced(fresh, now) {
		f.serving, changed = fresh, true
	}
	if changed {
		f.changed.Notify()
	}
}

// known returns the certificates of all authorities in seen.
func (f *Files) known() []*x509.Certificate {
	var certs []*x509.Certificate
	for _, a := range f.seen {
		certs = append(certs, a.cert)
	}
	return certs
}

// remember updates f.seen: first the authorities in the file, then those that the file no longer
// has. Authorities of the first look count as announced.
func (f *Files) remember(certs []*x509.Certificate, now time.Time) {
	var seen []authority
	for _, c := range certs {
		a := authority{cert: c}
		if !f.looked.IsZero() {
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
}

// announced reports whether fresh may replace the certificate that is served now.
func (f *Files) announced(fresh *tls.Certificate, now time.Time) bool {
	if f.serving == nil || f.serving.Leaf == nil || now.After(f.serving.Leaf.NotAfter) || f.caFile == "" {
		return true
	}
	var old []*x509.Certificate
	for _, a := range f.seen {
		if a.since.IsZero() || now.Sub(a.since) >= announce {
			old = append(old, a.cert)
		}
	}
	// The chain may contain the signer, whose root is in the bundle.
	return chained(fresh, old, now) || !chained(f.serving, f.known(), now)
}

// chained reports whether a client that trusts cas accepts the certificate with its chain.
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
