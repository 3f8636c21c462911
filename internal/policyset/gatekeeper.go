package policyset

import (
	"errors"
	"fmt"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/gatekeeper/mutators"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/policy"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mutatorDocuments are Gatekeeper's mutators and its Config.
type mutatorDocuments struct{}

// builtMutators is their result.
type builtMutators struct {
	mutators.Result
	builder *mutators.Builder
}

// Mutators returns the state of each of Gatekeeper's mutators.
func (s *Snapshot) Mutators() []mutators.State {
	return resultOf[builtMutators](s, mutatorDocuments{}).States
}

// Shapes returns the number of programs that the mutators share.
func (s *Snapshot) Shapes() int { return resultOf[builtMutators](s, mutatorDocuments{}).Shapes }

func (mutatorDocuments) on(o *Options) bool { return o.Mutators != api.Off }
func (mutatorDocuments) parameters() bool   { return true }
func (mutatorDocuments) readsAll() bool     { return false }
func (mutatorDocuments) kinds() map[string][]string {
	var names []string
	for _, k := range legacy.Kinds() {
		names = append(names, string(k))
	}
	return map[string][]string{legacy.Group: names}
}

// takes accepts a Config in any namespace, because Gatekeeper's namespace is not known here; all
// of them count as one object.
func (mutatorDocuments) takes(gvk schema.GroupVersionKind, name string) bool {
	return legacy.IsMutator(gvk) || isConfig(gvk) && (name == "" || name == legacy.ConfigName)
}

func (mutatorDocuments) namespaced(schema.GroupVersionKind) bool { return false }

func isConfig(gvk schema.GroupVersionKind) bool {
	return gvk.Group == legacy.ConfigGroup && gvk.Kind == "Config"
}

// build builds a set of the mutators, with the Config if there is one.
func (mutatorDocuments) build(b *builder, docs []*manifest.Document, opts *Options) {
	var config *legacy.Config
	var stored []*manifest.Document // without the Config
	for _, d := range docs {
		if !isConfig(d.Object.GroupVersionKind()) {
			stored = append(stored, d)
			continue
		}
		c, err := legacy.DecodeConfig(d.Object)
		if err != nil {
			b.fail(MutatorError(d, err))
			continue
		}
		config = c
	}
	var all []*legacy.Mutator
	for _, d := range stored {
		m, err := legacy.Decode(d.Object)
		if err != nil {
			b.fail(MutatorError(d, err))
			continue
		}
		all = append(all, m)
	}
	if len(all) == 0 || len(b.errs) > 0 {
		return
	}
	unknown := map[string][]legacy.Note{}
	for _, d := range stored {
		if notes := legacy.Unknown(d.Object); len(notes) > 0 {
			unknown[d.Object.GetKind()+"/"+d.Object.GetName()] = notes
		}
	}
	builder := mutators.NewBuilder(policy.Deps{Env: b.env, Types: b.snapshot.Types})
	if b.like != nil {
		if like := resultOf[builtMutators](b.like, mutatorDocuments{}); like.builder != nil {
			builder = like.builder.Again()
		}
	}
	built := builder.Build(all, config, b.snapshot.Types, mutators.Options{
		Namespace: b.snapshot.Namespaces.Namespace, External: opts.Resolver != nil,
		Sources: &binding.Sources{Namespaces: b.snapshot.Namespaces, Equivalents: Equivalents(b.snapshot.Types), Exceptions: b.exceptions},
	})
	b.snapshot.stages = append(b.snapshot.stages, engine.Mutators(built.Set, opts.Mutators))
	for i := range built.States {
		s := &built.States[i]
		s.Notes = append(unknown[s.Mutator.ID()], s.Notes...)
	}
	b.snapshot.results[mutatorDocuments{}] = builtMutators{*built, builder}
}

// templateDocuments are Gatekeeper's expansion templates.
type templateDocuments struct{}

func (templateDocuments) kinds() map[string][]string { return nil }
func (templateDocuments) on(o *Options) bool         { return o.Mutators != api.Off || o.Expansion }
func (templateDocuments) parameters() bool           { return true }
func (templateDocuments) readsAll() bool             { return false }
func (templateDocuments) takes(gvk schema.GroupVersionKind, _ string) bool {
	return legacy.IsTemplate(gvk)
}
func (templateDocuments) namespaced(schema.GroupVersionKind) bool { return false }

// Templates returns the expansion templates.
func (s *Snapshot) Templates() []*legacy.Template {
	return resultOf[[]*legacy.Template](s, templateDocuments{})
}

func (templateDocuments) build(b *builder, docs []*manifest.Document, _ *Options) {
	var all []*legacy.Template
	for _, d := range docs {
		t, err := legacy.DecodeTemplate(d.Object)
		if err != nil {
			b.fail(MutatorError(d, err))
			continue
		}
		all = append(all, t)
	}
	b.snapshot.results[templateDocuments{}] = all
}

// MutatorError returns the error of decoding a mutator, a Config or an expansion template, with
// its place in the document.
func MutatorError(d *manifest.Document, err error) error {
	var refused *legacy.Error
	if !errors.As(err, &refused) {
		return d.Errorf("%w", err)
	}
	// The text of the error would repeat the column within the location.
	text := fmt.Errorf("%s: %s: %w", refused.Mutator, refused.Field, refused.Err)
	var syntax *legacy.SyntaxError
	if errors.As(refused.Err, &syntax) {
		return d.ErrorIn(refused.Field, syntax.Location, syntax.Line, syntax.Column, text)
	}
	for _, n := range legacy.Unknown(d.Object) {
		// A misspelt field is the likely cause if a field is missing.
		return d.ErrorAtKey(n.Field, fmt.Errorf("%w; %s: %s", text, n.Field, n.Message))
	}
	return d.ErrorAt(refused.Field, text)
}
