package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// TLSConfig serves what get returns, over TLS 1.3 and nothing older: every API
// server that can call a webhook of version v1 speaks it.
func TLSConfig(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: get}
}

const (
	// lookEvery is how often the files' times are looked at, at most. Looking
	// costs two system calls and happens in handshakes, which are rare.
	lookEvery = time.Second
	// readEvery is how often the files are read although their times did not
	// change: some ways of copying keep them.
	readEvery = time.Minute
)

// Certificate is a serving certificate that is kept in two files and reread
// when they change. Handshakes look for changes, so there is nothing to start
// or stop. A pair that cannot be read, as in the middle of an update, leaves the
// old one in use. It is safe for concurrent use.
type Certificate struct {
	certFile, keyFile string
	now               func() time.Time
	lookEvery         time.Duration

	current atomic.Pointer[tls.Certificate]

	mu        sync.Mutex // of what follows: the last look at the files
	looked    time.Time
	read      time.Time
	infos     [2]os.FileInfo
	cert, key []byte
	err       error
}

// LoadCertificate reads a PEM certificate chain and its key. It fails if they
// cannot be used now; later failures are kept for Check.
func LoadCertificate(certFile, keyFile string) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, now: time.Now, lookEvery: lookEvery}
	c.refresh()
	if c.current.Load() == nil {
		return nil, c.err
	}
	return c, nil
}

// GetCertificate returns the certificate in use, for tls.Config.
func (c *Certificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	// A handshake does not wait for another one's look at the files.
	if c.mu.TryLock() {
		c.refreshLocked()
		c.mu.Unlock()
	}
	cert := c.current.Load()
	if cert == nil {
		return nil, errors.New("no certificate is loaded")
	}
	return cert, nil
}

// Check looks at the files and says what is wrong with them, or with the
// certificate in use.
func (c *Certificate) Check() error {
	c.refresh()
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if cert := c.current.Load(); cert != nil && cert.Leaf != nil && c.now().After(cert.Leaf.NotAfter) {
		return fmt.Errorf("%s: expired at %s", c.certFile, cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

func (c *Certificate) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refreshLocked()
}

func (c *Certificate) refreshLocked() {
	now := c.now()
	if !c.looked.IsZero() && now.Sub(c.looked) < c.lookEvery {
		return
	}
	c.looked = now
	var infos [2]os.FileInfo
	for i, file := range [2]string{c.certFile, c.keyFile} {
		info, err := os.Stat(file) // follows the links of a mounted Secret
		if err != nil {
			c.err = err
			c.infos = [2]os.FileInfo{}
			return
		}
		infos[i] = info
	}
	if sameFile(c.infos[0], infos[0]) && sameFile(c.infos[1], infos[1]) && now.Sub(c.read) < readEvery {
		return
	}
	// The times are from before the reading: what changes in between is seen at
	// the next look.
	c.infos, c.read = infos, now
	c.err = c.load()
}

func sameFile(a, b os.FileInfo) bool {
	return a != nil && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && os.SameFile(a, b)
}

func (c *Certificate) load() error {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return err
	}
	if c.current.Load() != nil && bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s with %s: %w", c.certFile, c.keyFile, err)
	}
	c.cert, c.key = cert, key
	c.current.Store(&pair)
	return nil
}

// selfSignedFor is how long a self-signed pair lasts. It lives in the memory of
// one process and is not replaced, so it must outlast the process.
const selfSignedFor = 10 * 365 * 24 * time.Hour

// SelfSigned makes a certificate authority and a serving certificate for hosts,
// which are names or addresses. The authority's key is forgotten at once: no
// other certificate can be made with it. caPEM is what clients have to trust,
// such as the caBundle of a webhook's configuration.
func SelfSigned(hosts []string) (cert tls.Certificate, caPEM []byte, err error) {
	if len(hosts) == 0 {
		return cert, nil, errors.New("a self-signed certificate needs a host")
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	// Clocks of different machines differ by minutes.
	from := time.Now().Add(-5 * time.Minute)
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "mapd self-signed authority"},
		NotBefore:             from,
		NotAfter:              from.Add(selfSignedFor),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "mapd"},
		NotBefore:    from,
		NotAfter:     from.Add(selfSignedFor),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return cert, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return cert, nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return cert, nil, err
	}
	cert = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), nil
}
