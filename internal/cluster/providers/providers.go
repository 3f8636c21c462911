// Package providers reads the Providers of external data that are stored in a cluster, and passes
// the valid ones to the client that calls them (internal/externaldata). It is a feature of `mapd
// serve` (internal/cluster/feature).
package providers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// Feature reads Providers while the cluster has their kind.
type Feature struct {
	feature.Base
	set    func(valid []*legacy.Provider, refused int)
	log    *slog.Logger
	mirror *watch.Mirror[*provider]
	list   []*provider // as of the last Update
	isSet  atomic.Bool
}

// provider is a stored Provider and the version of it that applies: if the stored one is not
// valid, the last one that was. Gatekeeper does the same (Gatekeeper spec §11.1).
type provider = feature.Decoded[legacy.Provider]

var decoder = feature.Decoder[legacy.Provider]{
	Decode: externaldata.DecodeProvider, Last: true,
	Says: func(u *unstructured.Unstructured) string { return u.GetAnnotations()[legacy.SideEffectsAnnotation] },
}

// New returns a Feature that has not started. Initially and after each change, it calls set with
// the valid Providers by name, and the number of the others.
func New(set func(valid []*legacy.Provider, refused int)) *Feature { return &Feature{set: set} }

// Name implements feature.Feature.
func (p *Feature) Name() string { return "providers of external data" }

// Start implements feature.Feature.
func (p *Feature) Start(d feature.Deps) {
	p.log = d.Log
	p.mirror = feature.Watch(d, decoder.Keep, feature.Versions(api.ExternalDataGroup, legacy.ProviderKind, legacy.ProviderVersions()...))
}

// Run implements feature.Feature.
func (p *Feature) Run(ctx context.Context) { p.mirror.Run(ctx) }

// Look implements feature.Feature.
func (p *Feature) Look() { p.mirror.Look() }

// Update implements feature.Feature. It calls set only after all Providers have been read.
func (p *Feature) Update(context.Context, bool) bool {
	list := feature.Sorted(p.mirror)
	if p.mirror.Settled() != nil || p.isSet.Load() && slices.Equal(list, p.list) {
		return false
	}
	var valid []*legacy.Provider
	refused := 0
	for _, d := range list {
		if d.Err != nil {
			refused++
			if !slices.Contains(p.list, d) {
				p.log.Error("the Provider is not valid", "provider", d.Object.GetName(), "error", d.Err, "earlierVersionStays", d.Value != nil)
			}
		}
		if d.Value != nil {
			valid = append(valid, d.Value)
		}
	}
	p.list = list
	p.set(valid, refused)
	p.isSet.Store(true)
	return false
}

// Ready implements feature.Feature.
func (p *Feature) Ready() error {
	if p.isSet.Load() {
		return nil
	}
	if err := p.mirror.Settled(); err != nil {
		return err
	}
	return errors.New("no providers of external data are published yet")
}
