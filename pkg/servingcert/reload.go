package servingcert

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lookEvery is the least time between two checks of the files' times. A check costs a
	// system call per file and happens in handshakes, which are rare.
	lookEvery = time.Second
	// readEvery is how often the files are read although their times did not change: some ways
	// of copying a file keep its time.
	readEvery = time.Minute
	// settle is how long ago the last write to a file has to be: before that, somebody may
	// still be writing it. A part of a bundle of certificates is a valid bundle.
	settle = time.Second
)

// Files holds a value that is parsed from the contents of files, and parses it again when they
// change. Its methods check for changes, so there is nothing to start or stop. If the files
// cannot be parsed, as in the middle of an update, the value stays as it was. Files is safe for
// concurrent use.
type Files[T any] struct {
	paths   []string
	parse   func(texts [][]byte) (T, error)
	current atomic.Pointer[T]

	mu     sync.Mutex // guards the fields below: the last check of the files
	looked time.Time
	read   time.Time
	infos  []os.FileInfo
	texts  [][]byte
	err    error
}

// LoadFiles reads files and passes their contents to parse. It fails if they cannot be read or
// parsed now; Err returns later failures.
func LoadFiles[T any](parse func(texts [][]byte) (T, error), paths ...string) (*Files[T], error) {
	f := &Files[T]{paths: paths, parse: parse}
	if err := f.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

// Get returns the value. It looks for changes at most once a second.
func (f *Files[T]) Get() T {
	// A handshake does not wait for the check of another one.
	if f.mu.TryLock() {
		f.refresh()
		f.mu.Unlock()
	}
	return *f.current.Load()
}

// Err checks for changes and returns what is wrong with the files.
func (f *Files[T]) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f.err
}

func (f *Files[T]) refresh() {
	now := time.Now()
	if !f.looked.IsZero() && now.Sub(f.looked) < lookEvery {
		return
	}
	f.looked = now
	infos := make([]os.FileInfo, len(f.paths))
	same := f.infos != nil && now.Sub(f.read) < readEvery
	fresh := false
	for i, path := range f.paths {
		info, err := os.Stat(path) // follows the links of a mounted Secret
		if err != nil {
			f.err, f.infos = err, nil
			return
		}
		infos[i] = info
		same = same && sameFile(f.infos[i], info)
		age := now.Sub(info.ModTime())
		fresh = fresh || age >= 0 && age < settle
	}
	// Without a value, read files that may still change, instead of waiting for a later check.
	if same || fresh && f.current.Load() != nil {
		return
	}
	// The times were read before the contents, so the next check sees a change in between.
	f.infos, f.read = infos, now
	f.err = f.load()
}

func sameFile(a, b os.FileInfo) bool {
	return a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && os.SameFile(a, b)
}

// load parses the files unless their contents are the same as before.
func (f *Files[T]) load() error {
	texts, same := make([][]byte, len(f.paths)), f.texts != nil
	for i, path := range f.paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		texts[i] = text
		same = same && bytes.Equal(text, f.texts[i])
	}
	if same {
		return nil
	}
	value, err := f.parse(texts)
	if err != nil {
		return err
	}
	f.texts = texts
	f.current.Store(&value)
	return nil
}

// KeyPair is a serving certificate and its key in two files. It is safe for concurrent use.
type KeyPair struct {
	certFile string
	files    *Files[*tls.Certificate]
}

// LoadKeyPair reads a PEM certificate chain and its key. It fails if they cannot be used
// now; Check returns later failures.
func LoadKeyPair(certFile, keyFile string) (*KeyPair, error) {
	files, err := LoadFiles(func(texts [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(texts[0], texts[1])
		if err != nil {
			return nil, fmt.Errorf("%s with %s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}, certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &KeyPair{certFile, files}, nil
}

// GetCertificate returns the certificate in use, for tls.Config.
func (p *KeyPair) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return p.files.Get(), nil
}

// Check checks the files for changes and returns what is wrong with them, or with the
// certificate in use.
func (p *KeyPair) Check() error {
	if err := p.files.Err(); err != nil {
		return err
	}
	if leaf := p.files.Get().Leaf; leaf != nil && time.Now().After(leaf.NotAfter) {
		return errors.New(p.certFile + ": expired at " + leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
