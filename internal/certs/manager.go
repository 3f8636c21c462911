package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Options say where a Manager keeps its certificates and what they are like.
type Options struct {
	Kubernetes        kubernetes.Interface
	Namespace, Secret string
	// Hosts are the names and addresses that API servers call us by.
	Hosts []string
	// Validity of serving certificates and of authorities; 0 means
	// DefaultValidity and DefaultCAValidity. Both are renewed when two thirds are over.
	Validity, CAValidity time.Duration
	Log                  *slog.Logger
}

// What certificates and authorities are valid for unless told otherwise.
const (
	DefaultValidity   = 90 * 24 * time.Hour
	DefaultCAValidity = 5 * 365 * 24 * time.Hour
)

// Manager is a Source with an authority of its own.
type Manager struct{}

// New returns a Manager that has nothing to serve before Run has read the Secret.
func New(o Options) *Manager { return &Manager{} }

func (m *Manager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return nil, errors.New("no certificate yet")
}
func (m *Manager) Bundle() []byte                                            { return nil }
func (m *Manager) Check() error                                              { return nil }
func (m *Manager) Changed() <-chan struct{}                                  { return nil }
func (m *Manager) Run(ctx context.Context) error                             { return nil }
func (m *Manager) Maintain(ctx context.Context, applied func() []byte) error { return nil }
