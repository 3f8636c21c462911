package store

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Compiled compiles the policies and bindings of Kubernetes' own group, in the same way as those
// of mapd's group.
type Compiled struct {
	Policies, Bindings *watch.Mirror[*stored]

	compiler compiler
}

// NewCompiled returns a Compiled that has not read anything.
func NewCompiled(d feature.Deps) *Compiled {
	mirror := func(kind string) *watch.Mirror[*stored] {
		return watch.New(watch.Options[*stored]{
			Client: d.Client, Log: d.Log, Types: d.Policy.Types, Kinds: feature.Versions(api.NativeGroup, kind, "v1", "v1beta1", "v1alpha1"),
			Keep: keepStored, Changed: d.Changed, StateChanged: d.Changed, Names: true,
		})
	}
	return &Compiled{Policies: mirror(api.PolicyKind), Bindings: mirror(api.BindingKind), compiler: compiler{deps: d.Policy, slow: newSlow(d.Changed)}}
}

// Update compiles changed policies and bindings, and reports whether there were any.
func (c *Compiled) Update() bool {
	bindings := changes(c.compiler.bindings, c.Bindings)
	work := c.compiler.update(changes(c.compiler.policies, c.Policies), bindings)
	return work.changed || len(bindings) > 0
}

// Stage returns a stage that runs the policies as of the last Update.
func (c *Compiled) Stage(sources binding.Sources) (engine.Stage, error) {
	return c.compiler.catalogue.stage(sources)
}

// ParamKinds returns the kinds of the parameters that the bindings name.
func (c *Compiled) ParamKinds() []schema.GroupVersionKind {
	return paramKinds(map[webhook.ID]*joined{{}: wholeShare(&c.compiler.catalogue)})
}

// Problems returns the policies and bindings that cannot be used here, each with the reason.
func (c *Compiled) Problems() (out []string) {
	for _, p := range c.compiler.policies {
		if len(p.errs) > 0 && !p.pending {
			out = append(out, fmt.Sprintf("%s %s cannot run here: %v", api.PolicyKind, p.name, p.errs[0]))
		}
	}
	for _, b := range c.compiler.bindings {
		if b.err != nil {
			out = append(out, fmt.Sprintf("%s %s is not valid here: %v", api.BindingKind, b.name, b.err))
		}
	}
	return out
}
