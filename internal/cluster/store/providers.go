package store

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// providers reads the Providers of external data while the cluster has the kind, and
// reports those that are valid.
type providers struct {
	mirror  *watch.Mirror[*storedProvider]
	changes watch.Signal
	set     func(valid []*legacy.Provider, refused int)
	isSet   atomic.Bool // since all have been read
}

// storedProvider is a Provider as it is stored, and as it applies.
type storedProvider struct {
	object      *unstructured.Unstructured // apiVersion, kind and a little metadata
	annotations map[string]string          // these change without the generation
	// provider is what applies: the object as it is stored or, if that is not valid,
	// the last one that was. Gatekeeper does the same (Gatekeeper spec §11.1).
	provider *legacy.Provider
	err      error // why the stored one does not apply
}

func newProviders(client dynamic.Interface, types *openapi.Types, log *slog.Logger, set func([]*legacy.Provider, int)) *providers {
	p := &providers{changes: watch.NewSignal(), set: set}
	p.mirror = watch.New(watch.Options[*storedProvider]{
		Client: client, Log: log, Types: types, Kinds: versionsOf(api.ExternalDataGroup, legacy.ProviderKind, legacy.ProviderVersions()...),
		Keep: func(u *unstructured.Unstructured, old *storedProvider) *storedProvider {
			return keepProvider(u, old, log)
		},
		Changed: p.changes.Notify, StateChanged: p.changes.Notify,
	})
	return p
}

// keepProvider decodes a Provider, unless old is the same version.
func keepProvider(u *unstructured.Unstructured, old *storedProvider, log *slog.Logger) *storedProvider {
	says := u.GetAnnotations()[legacy.SideEffectsAnnotation]
	if old != nil && sameSpec(u, old.object) && old.annotations[legacy.SideEffectsAnnotation] == says {
		return old
	}
	now := &storedProvider{object: headOf(u), annotations: map[string]string{legacy.SideEffectsAnnotation: says}}
	now.err = guarded(func() (err error) {
		now.provider, err = externaldata.DecodeProvider(u)
		return err
	})
	if now.err == nil {
		return now
	}
	now.provider = nil
	if old != nil && old.object.GetUID() == u.GetUID() {
		now.provider = old.provider
	}
	log.Error("the Provider is not valid", "provider", u.GetName(), "error", now.err, "earlierVersionStays", now.provider != nil)
	return now
}

// run follows the Providers until ctx is done.
func (p *providers) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { p.mirror.Run(ctx) })
	for p.changes.Wait(ctx) {
		if p.mirror.Settled() != nil {
			continue // what was published stays until all have been read
		}
		var valid []*legacy.Provider
		refused := 0
		p.mirror.Each("", func(_ string, s *storedProvider) {
			if s.err != nil {
				refused++
			}
			if s.provider != nil {
				valid = append(valid, s.provider)
			}
		})
		slices.SortFunc(valid, func(a, b *legacy.Provider) int { return cmp.Compare(a.Name, b.Name) })
		p.set(valid, refused)
		p.isSet.Store(true)
	}
}

// ready returns nil once the Providers have been reported, else what is missing.
func (p *providers) ready() error {
	if p.isSet.Load() {
		return nil
	}
	if err := p.mirror.Settled(); err != nil {
		return err
	}
	return errors.New("no providers of external data are published yet")
}
