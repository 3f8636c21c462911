package certs

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mapd-project/mapd/pkg/servingcert"
)

type secret = corev1.Secret

func logTo(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { testFiles(t, dir) }) // for its clock
}

func testFiles(t *testing.T, dir string) {
	path := func(name string) string { return filepath.Join(dir, name) }
	began := time.Now()
	make1 := func() (pair, pair) {
		ca, err := servingcert.NewAuthority(began, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := servingcert.NewLeaf(ca, []string{"127.0.0.1"}, began, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return ca, leaf
	}
	write := func(name string, data []byte) {
		t.Helper()
		// As a file of its own: two writes may have the same time and size.
		if err := os.WriteFile(path(name+".next"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path(name+".next"), path(name)); err != nil {
			t.Fatal(err)
		}
	}
	put := func(ca, leaf pair) {
		t.Helper()
		key, err := encodeKey(leaf.Key)
		if err != nil {
			t.Fatal(err)
		}
		write("tls.crt", servingcert.Encode(leaf.Cert))
		write("tls.key", key)
		write("ca.crt", servingcert.Encode(ca.Cert))
	}
	if _, err := NewFiles(path("tls.crt"), path("tls.key"), path("ca.crt")); err == nil {
		t.Fatal("files that are not there are read")
	}
	oldCA, oldLeaf := make1()
	newCA, freshLeaf := make1()
	put(oldCA, oldLeaf)
	write("ca.crt", []byte("rubbish"))
	if _, err := NewFiles(path("tls.crt"), path("tls.key"), path("ca.crt")); err == nil || err.Error() != path("ca.crt")+" holds no certificate" {
		t.Fatalf("rubbish: %v", err)
	}
	put(oldCA, oldLeaf)
	f, err := NewFiles(path("tls.crt"), path("tls.key"), path("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	changed := f.Changed()
	check := func(what string, leaf pair, bundle []byte, told bool) {
		t.Helper()
		got, err := f.GetCertificate(nil)
		if err != nil || !same(got.Leaf, leaf.Cert) {
			t.Errorf("%s: another certificate is served (%v)", what, err)
		}
		if !bytes.Equal(f.Bundle(), bundle) {
			t.Errorf("%s: another bundle", what)
		}
		select {
		case <-changed:
			if !told {
				t.Errorf("%s: told of a change", what)
			}
		default:
			if told {
				t.Errorf("%s: told of nothing", what)
			}
		}
	}
	check("at first", oldLeaf, servingcert.Encode(oldCA.Cert), false)
	if err := f.Check(); err != nil {
		t.Error(err)
	}

	write("ca.crt", servingcert.Encode(newCA.Cert))
	check("not looked at yet", oldLeaf, servingcert.Encode(oldCA.Cert), false)
	time.Sleep(2 * time.Second)
	both := servingcert.Encode(newCA.Cert, oldCA.Cert)
	check("a new authority", oldLeaf, both, true)
	if !f.announced(oldLeaf.Served(), time.Now()) {
		t.Error("what is served cannot be served")
	}
	if f.announced(freshLeaf.Served(), time.Now()) {
		t.Error("served before its authority was announced")
	}
	time.Sleep(announce)
	if !f.announced(freshLeaf.Served(), time.Now()) {
		t.Error("not served although its authority was announced")
	}
	_, stranger := make1()
	if f.announced(stranger.Served(), time.Now()) {
		t.Error("what nobody trusts replaces what is trusted")
	}

	if err := os.Remove(path("ca.crt")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	check("the file is gone", oldLeaf, both, false)
	if err := f.Check(); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("the file is gone: %v", err)
	}
	write("ca.crt", servingcert.Encode(newCA.Cert))
	time.Sleep(2 * time.Second)
	if err := f.Check(); err != nil {
		t.Errorf("the file is back: %v", err)
	}
	time.Sleep(time.Until(oldCA.Cert.NotAfter) + 2*time.Second)
	f.mu.Lock()
	f.look()
	f.mu.Unlock()
	if len(f.seen) != 0 || len(f.bundle) != 0 {
		t.Error("authorities that have ended are trusted")
	}
}
