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

// loadedModules is the result: the policies that run, or the names of those that do not since
// nothing loads modules.
type loadedModules struct {
	running  []*kubewarden.Policy
	unloaded []string
}

// Modules returns Kubewarden's policies that run, in the order of their IDs.
func (s *Snapshot) Modules() []*kubewarden.Policy {
	return resultOf[loadedModules](s, moduleDocuments{}).running
}

// NotLoaded returns the names of Kubewarden's policies that do not run since nothing loads
// modules.
func (s *Snapshot) NotLoaded() []string {
	return resultOf[loadedModules](s, moduleDocuments{}).unloaded
}

// build has the modules loaded.
func (moduleDocuments) build(b *builder, docs []*manifest.Document, opts *Options) {
	if opts.ModuleMode == api.Off {
		return
	}
	var result loadedModules
	if opts.Modules == nil {
		for _, d := range docs {
			result.unloaded = append(result.unloaded, d.Name())
		}
		b.snapshot.results[moduleDocuments{}] = result
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
		result.running = append(result.running, p)
	}
	result.running = kubewarden.Unique(result.running)
	b.snapshot.results[moduleDocuments{}] = result
	compiled, errs := make([]*policy.Policy, len(documents)), make([]error, len(documents))
	parallel.Each(len(documents), func(i int) {
		compiled[i], errs[i] = loadModule(result.running[i], deps, b.params, opts.Modules)
	})
	for i, err := range errs {
		if err != nil {
			b.faults(documents[result.running[i].Key()], err)
		}
	}
	if len(b.errs) > 0 || len(compiled) == 0 {
		return
	}
	mutating, validating, err := kubewarden.Indexes(result.running, compiled, binding.Sources{
		Namespaces: b.snapshot.Namespaces, Equivalents: Equivalents(b.snapshot.Types), Exceptions: b.exceptions,
	})
	if err != nil {
		b.fail(err)
		return
	}
	b.snapshot.stages = append(b.snapshot.stages, engine.Modules(mutating, opts.ModuleMode), engine.Validators(validating, opts.ModuleMode))
}

// loadModule compiles what a policy says and loads its module.
func loadModule(p *kubewarden.Policy, deps policy.Deps, objects binding.Params, loader kubewarden.Loader) (*policy.Policy, error) {
	if faults := p.Check(deps); len(faults) > 0 {
		return nil, faults
	}
	module, err := loader.Load(context.Background(), p, deps, objects)
	if err != nil {
		return nil, kubewarden.ModuleFault(err)
	}
	return p.Compile(deps, module)
}
