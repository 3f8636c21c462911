package store

import (
	"context"
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Metrics is told of every snapshot. *webhook.Metrics is one.
type Metrics interface {
	SnapshotPublished(policies, bindings, compileErrors int)
}

// Options say what a Store is made of. Dynamic, Kubernetes and Env are required.
type Options struct {
	Dynamic    dynamic.Interface
	Kubernetes kubernetes.Interface
	// Env is the expression language.
	Env *cel.Env
	Log *slog.Logger // nil: no log
	// Metrics may be nil.
	Metrics Metrics
}

// Store turns a cluster into snapshots. It is safe for concurrent use.
type Store struct{}

// New returns a Store that knows nothing until it runs.
func New(o Options) *Store { return &Store{} }

// Run watches the cluster and publishes snapshots until ctx is done. A Store
// runs once.
func (s *Store) Run(ctx context.Context) error { return nil }

// Ready returns nil once the first snapshot is published, else what is missing.
func (s *Store) Ready() error { return nil }

// Admitter runs the policies of one group. It admits everything unchanged before
// the first snapshot.
func (s *Store) Admitter(g webhook.Group) webhook.Admitter { return nil }

// Snapshot returns what was published last, nil before the first.
func (s *Store) Snapshot() *Snapshot { return nil }

// Changed returns a channel of the caller's own, which holds a value after a
// snapshot was published that the caller has not heard of.
func (s *Store) Changed() <-chan struct{} { return nil }

// Types are the kinds that the cluster serves, kept up to date.
func (s *Store) Types() *openapi.Types { return nil }

// Authorizer asks the cluster what a user may do.
func (s *Store) Authorizer() authorizer.Authorizer { return nil }

// Namespace returns a Namespace as policies see it; the error of a missing one
// is apierrors.IsNotFound.
func (s *Store) Namespace(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	return nil, nil
}
