package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"slices"
	"time"
)

// Skew is how far a certificate's beginning lies before its making: clocks of
// different machines differ by minutes.
const Skew = 5 * time.Minute

// pair is a certificate with its key. The zero pair is none; the key is nil
// where it is lost.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// ok says that p can be used at now.
func (p pair) ok(now time.Time) bool { return p.cert != nil && p.key != nil && valid(p.cert, now) }

func valid(c *x509.Certificate, now time.Time) bool {
	return !now.Before(c.NotBefore) && !now.After(c.NotAfter)
}

func same(a, b *x509.Certificate) bool { return a != nil && b != nil && bytes.Equal(a.Raw, b.Raw) }

func contains(cs []*x509.Certificate, c *x509.Certificate) bool {
	for _, other := range cs {
		if same(other, c) {
			return true
		}
	}
	return false
}

// fingerprint names a certificate in what is stored and logged.
func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:8])
}

// newAuthority makes an authority that nothing knows yet. The name holds the
// time only to tell authorities apart when people look at them.
func newAuthority(now time.Time, validity time.Duration) (pair, error) {
	return issue(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "mapd authority " + now.UTC().Format(time.RFC3339)},
		NotBefore:             now.Add(-Skew),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, pair{})
}

// newLeaf makes a serving certificate for hosts, which are names or addresses.
// It ends no later than its authority: nobody would trust it after that.
func newLeaf(ca pair, hosts []string, now time.Time, validity time.Duration) (pair, error) {
	leaf := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "mapd"},
		NotBefore:   now.Add(-Skew),
		NotAfter:    now.Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if leaf.NotBefore.Before(ca.cert.NotBefore) {
		leaf.NotBefore = ca.cert.NotBefore
	}
	if leaf.NotAfter.After(ca.cert.NotAfter) {
		leaf.NotAfter = ca.cert.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	return issue(leaf, ca)
}

// issue signs template with ca, or with its own new key if there is no ca.
func issue(template *x509.Certificate, ca pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return pair{}, err
	}
	parent, signer := template, key
	if ca.cert != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return pair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return pair{cert, key}, err
}

// hosts returns the names and addresses that c is for.
func hosts(c *x509.Certificate) []string {
	all := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

// covers says that every one of want is among have.
func covers(have, want []string) bool {
	normal := func(host string) string {
		if ip := net.ParseIP(host); ip != nil {
			return ip.String()
		}
		return host
	}
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h string) bool { return normal(h) == normal(w) }) {
			return false
		}
	}
	return true
}

// issuer returns which of cas signed c; nil if none did.
func issuer(c *x509.Certificate, cas []*x509.Certificate) *x509.Certificate {
	for _, ca := range cas {
		if c != nil && c.CheckSignatureFrom(ca) == nil {
			return ca
		}
	}
	return nil
}

// trusted says that a client that trusts cas accepts leaf at now.
func trusted(leaf *x509.Certificate, cas []*x509.Certificate, now time.Time) bool {
	if leaf == nil {
		return false
	}
	roots := x509.NewCertPool()
	for _, ca := range cas {
		if ca != nil {
			roots.AddCert(ca)
		}
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now})
	return err == nil
}

// parseCert reads one certificate, and parseKey its key. What is wrong is said
// in words of our own: those of a parser may quote what it was given.
func parseCert(text []byte) (*x509.Certificate, error) {
	certs, err := parseCerts(text)
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}

func parseCerts(text []byte) ([]*x509.Certificate, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("is missing")
	}
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("holds something that is not a certificate")
		}
		if !contains(certs, cert) {
			certs = append(certs, cert)
		}
	}
	if len(certs) == 0 {
		return nil, errors.New("holds no certificate")
	}
	return certs, nil
}

func parseKey(text []byte, cert *x509.Certificate) (*ecdsa.PrivateKey, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("is missing")
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("holds no key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("holds something that is not a key in PKCS #8")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("holds a key of another kind than ECDSA")
	}
	if cert != nil && !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("is not the key of the certificate beside it")
	}
	return key, nil
}

func encodeCerts(certs ...*x509.Certificate) []byte {
	var text []byte
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return text
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// served is p as a server wants it.
func (p pair) served() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.cert.Raw}, PrivateKey: p.key, Leaf: p.cert}
}
