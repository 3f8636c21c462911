package policyset

import (
	"context"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/parallel"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/policy"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// moduleDocuments are Kubewarden's policies.
type moduleDocuments struct{}

func (moduleDocuments) on(*Options) bool { return true }
func (moduleDocuments) parameters() bool { return false }
func (moduleDocuments) readsAll() bool   { return true }
func (moduleDocuments) kinds() map[string][]string {
	return map[string][]string{kubewarden.Group: {
		kubewarden.ClusterPolicyKind, kubewarden.PolicyKind, kubewarden.ClusterPolicyKind + "Group", kubewarden.PolicyKind + "Group", "PolicyServer",
	}}
}
func (moduleDocuments) takes(gvk schema.GroupVersionKind, _ string) bool {
	return kubewarden.IsPolicy(gvk)
}
func (moduleDocuments) namespaced(gvk schema.GroupVersionKind) bool {
	return gvk.Kind == kubewarden.PolicyKind
}

// build has the modules loaded.
func (moduleDocuments) build(b *builder, docs []*manifest.Document, opts *Options) {
	if opts.GuestMode == api.Off {
		return
	}
	if opts.Guests == nil {
		for _, d := range docs {
			b.snapshot.NoGuests = append(b.snapshot.NoGuests, d.Name())
		}
		return
	}
	deps := policy.Deps{Env: b.env, Types: b.snapshot.Types}
	documents := map[kubewarden.Key]*manifest.Document{}
	for _, d := range docs {
		text, err := d.JSONText()
		if err != nil {
			b.faults(d, err)
			continue
		}
		p, err := kubewarden.Decode(text, b.namespace)
		if err != nil {
			b.faults(d, err)
			continue
		}
		documents[p.Key()] = d
		b.snapshot.Guests = append(b.snapshot.Guests, p)
	}
	b.snapshot.Guests = kubewarden.Unique(b.snapshot.Guests)
	compiled, errs := make([]*policy.Policy, len(documents)), make([]error, len(documents))
	parallel.Each(len(documents), func(i int) {
		compiled[i], errs[i] = loadGuest(b.snapshot.Guests[i], deps, b.params, opts.Guests)
	})
	for i, err := range errs {
		if err != nil {
			b.faults(documents[b.snapshot.Guests[i].Key()], err)
		}
	}
	if len(b.errs) > 0 || len(compiled) == 0 {
		return
	}
	mutating, validating, err := kubewarden.Indexes(b.snapshot.Guests, compiled, binding.Sources{
		Namespaces: b.snapshot.Namespaces, Equivalents: Equivalents(b.snapshot.Types),
	})
	if err != nil {
		b.fail(err)
		return
	}
	b.snapshot.stages = append(b.snapshot.stages, engine.Guests(mutating, opts.GuestMode), engine.Validators(validating, opts.GuestMode))
}

// loadGuest compiles what a policy says and loads its module.
func loadGuest(p *kubewarden.Policy, deps policy.Deps, objects binding.Params, loader kubewarden.Loader) (*policy.Policy, error) {
	if faults := p.Check(deps); len(faults) > 0 {
		return nil, faults
	}
	guest, err := loader.Load(context.Background(), p, deps, objects)
	if err != nil {
		return nil, kubewarden.ModuleFault(err)
	}
	return p.Compile(deps, guest)
}
