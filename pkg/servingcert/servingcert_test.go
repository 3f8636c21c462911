package servingcert

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mapd-project/mapd/test/hammer"
)

func TestSelfSigned(t *testing.T) {
	cert, caPEM, err := SelfSigned([]string{"mapd.mapd-system.svc", "127.0.0.1", "::1"})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(caPEM) {
		t.Fatalf("no certificate in %s", caPEM)
	}
	for _, name := range []string{"mapd.mapd-system.svc", "127.0.0.1", "::1"} {
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "other"}); err == nil {
		t.Error("the certificate is good for another name")
	}
	if _, _, err := SelfSigned(nil); err == nil {
		t.Error("a certificate for nobody was made")
	}
}

// A leaf lies within the time of its authority.
func TestNewLeaf(t *testing.T) {
	now := time.Now()
	ca, err := NewAuthority(now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := NewLeaf(ca, []string{"a.example.com"}, now.Add(-time.Minute), 2*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if !leaf.Cert.NotBefore.Equal(ca.Cert.NotBefore) || !leaf.Cert.NotAfter.Equal(ca.Cert.NotAfter) {
		t.Errorf("valid from %v to %v, its authority from %v to %v", leaf.Cert.NotBefore, leaf.Cert.NotAfter, ca.Cert.NotBefore, ca.Cert.NotAfter)
	}
	if leaf.Cert.IsCA || leaf.Cert.CheckSignatureFrom(ca.Cert) != nil {
		t.Error("not a leaf of its authority")
	}
}

func TestKeyPair(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { testKeyPair(t, dir) }) // for its clock
}

func testKeyPair(t *testing.T, dir string) {
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if _, err := LoadKeyPair(certFile, keyFile); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("without files: %v", err)
	}
	first := writePair(t, certFile, keyFile)
	p, err := LoadKeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	serves := func(what string, want *x509.Certificate) {
		t.Helper()
		cert, err := p.GetCertificate(nil)
		if err != nil || !cert.Leaf.Equal(want) {
			t.Errorf("%s: another certificate is served (%v)", what, err)
		}
	}
	serves("at first", first)
	second := writePair(t, certFile, keyFile)
	serves("not looked at yet", first)
	time.Sleep(lookEvery)
	serves("replaced", second)

	write(t, certFile, []byte("broken"))
	time.Sleep(lookEvery)
	serves("broken", second)
	if err := p.Check(); err == nil || !strings.HasPrefix(err.Error(), certFile+" with "+keyFile+": tls: failed to find any PEM data") {
		t.Errorf("broken: %v", err)
	}
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	time.Sleep(lookEvery)
	if err := p.Check(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("with the key gone: %v", err)
	}
	serves("with the key gone", second)
	third := writePair(t, certFile, keyFile)
	time.Sleep(lookEvery)
	if err := p.Check(); err != nil {
		t.Errorf("repaired: %v", err)
	}
	serves("repaired", third)

	// The same file, size and times, other content: found when the minute is over.
	info, err := os.Stat(certFile)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(certFile)
	if err != nil {
		t.Fatal(err)
	}
	data[0] = 'x'
	if err := os.WriteFile(certFile, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(certFile, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(lookEvery)
	if err := p.Check(); err != nil {
		t.Errorf("unchanged times: %v", err)
	}
	time.Sleep(readEvery)
	if err := p.Check(); err == nil {
		t.Error("a change that kept the times is not seen after a minute")
	}
	data[0] = '-'
	write(t, certFile, data)
	time.Sleep(time.Until(third.NotAfter) + time.Second)
	if err := p.Check(); err == nil || !strings.HasPrefix(err.Error(), certFile+": expired at ") {
		t.Errorf("after its time: %v", err)
	}
}

// A file that was written a moment ago may not be whole: it is read at a later look.
func TestFilesWaitForAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		put := func(text string) {
			write(t, file, []byte(text))
			now := time.Now() // the clock of the bubble, which the file system does not have
			if err := os.Chtimes(file, now, now); err != nil {
				t.Fatal(err)
			}
		}
		put("one two")
		files, err := LoadFiles(func(texts [][]byte) (string, error) { return string(texts[0]), nil }, file)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		put("one")
		if got := files.Get(); got != "one two" {
			t.Errorf("%q is read while it is written", got)
		}
		put("one two three")
		time.Sleep(max(lookEvery, settle))
		if got := files.Get(); got != "one two three" {
			t.Errorf("%q is read after it was written", got)
		}
	})
}

func TestHammerFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, []byte("x"))
	files, err := LoadFiles(func(texts [][]byte) (string, error) { return string(texts[0]), nil }, file)
	if err != nil {
		t.Fatal(err)
	}
	hammer.Run(4, 500, func(int, int) {
		if got := files.Get(); got != "x" {
			t.Errorf("%q", got)
		}
		if err := files.Err(); err != nil {
			t.Error(err)
		}
		files.mu.Lock()
		files.looked = time.Time{}
		files.mu.Unlock()
	})
}

// writePair writes a new certificate and key and returns the certificate.
func writePair(t *testing.T, certFile, keyFile string) *x509.Certificate {
	t.Helper()
	cert, _, err := SelfSigned([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	write(t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
	write(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}))
	return cert.Leaf
}

// write replaces a file as careful tools do: by another one of its name.
func write(t *testing.T, file string, data []byte) {
	t.Helper()
	next := file + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}
