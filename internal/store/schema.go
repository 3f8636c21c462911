package store

import (
	"context"
	"log/slog"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// schemas follow what a cluster serves.
type schemas struct{ types *openapi.Types }

func newSchemas(client dynamic.Interface, disco discovery.DiscoveryInterface, log *slog.Logger) *schemas {
	return &schemas{types: openapi.New()}
}

// Types are the kinds that the cluster serves.
func (s *schemas) Types() *openapi.Types { return s.types }

// Run follows the cluster until ctx is done.
func (s *schemas) Run(ctx context.Context) error { return nil }

// Ready reports whether everything was loaded once.
func (s *schemas) Ready() bool { return false }

// OnChange registers a function to call when Types has changed.
func (s *schemas) OnChange(f func()) {}
