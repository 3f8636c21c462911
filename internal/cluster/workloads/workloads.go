package workloads

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Feature determines what admission does to the objects that workloads create. It reads
// Gatekeeper's expansion templates, if the cluster has them, ValidatingAdmissionPolicies with
// their bindings, and the MutatingAdmissionPolicies that the API server runs itself.
type Feature struct {
	feature.Base
	log       *slog.Logger
	sources   validating.Sources
	types     *openapi.Types
	templates *watch.Mirror[*template]
	policies  *watch.Mirror[*validatingPolicy]
	bindings  *watch.Mirror[*validatingBinding]
	natives   *store.Compiled
	optional  feature.Sources // kinds that a server may not serve
	all       feature.Sources
	engine    *engine.Engine
	current   atomic.Pointer[expansion.Expander] // nil before the first

	// Only Update uses the following fields.
	read  objects
	state *State                    // nil before the first Expander
	kinds []schema.GroupVersionKind // of the parameters of ValidatingAdmissionPolicies
}

// Items of the mirrors. A Value may come with an Err: such a policy fails for the objects that it
// matches.
type (
	template          = feature.Decoded[legacy.Template]
	validatingPolicy  = feature.Decoded[validating.Program]
	validatingBinding = feature.Decoded[validating.Bound]
)

// compileTime bounds the time to compile one ValidatingAdmissionPolicy.
const compileTime = 5 * time.Second

var (
	templateDecoder = feature.Decoder[legacy.Template]{Decode: legacy.DecodeTemplate}
	policyDecoder   = feature.Decoder[validating.Program]{Decode: func(u *unstructured.Unstructured) (*validating.Program, error) {
		text, err := textOf(u)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), compileTime)
		defer cancel()
		return validating.StoredPolicy(ctx, text)
	}}
	bindingDecoder = feature.Decoder[validating.Bound]{Decode: func(u *unstructured.Unstructured) (*validating.Bound, error) {
		text, err := textOf(u)
		if err != nil {
			return nil, err
		}
		return validating.StoredBinding(text)
	}}
)

// textOf returns a policy or a binding as JSON, with nothing but its kind, name and spec.
func textOf(u *unstructured.Unstructured) ([]byte, error) {
	return api.JSON(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{"name": u.GetName()}, "spec": u.Object["spec"],
	}})
}

// objects are the inputs of an Expander.
type objects struct {
	templates []*template
	policies  []*validatingPolicy
	bindings  []*validatingBinding
}

func (o objects) equal(p objects) bool {
	return slices.Equal(o.templates, p.templates) && slices.Equal(o.policies, p.policies) && slices.Equal(o.bindings, p.bindings)
}

// nativeStage is the name of the stage with the API server's own policies.
const nativeStage = "native policies"

// New returns a Feature that has not started.
func New() *Feature { return &Feature{} }

// Name implements feature.Feature.
func (w *Feature) Name() string { return "expansion" }

// Start implements feature.Feature.
func (w *Feature) Start(d feature.Deps) {
	w.log, w.types, w.engine = d.Log, d.Policy.Types, engine.New(d.Engine)
	d.Sources.Exceptions = nil // an API server knows no exceptions
	w.sources = validating.Sources{Sources: d.Sources, Types: w.types, Convert: d.Engine.Convert, Authorizer: d.Authorizer}
	w.templates = feature.Watch(d, templateDecoder.Keep, feature.Versions(api.ExpansionGroup, legacy.TemplateKind, "v1beta1", "v1alpha1"))
	w.natives = store.NewCompiled(d)
	v1 := schema.GroupVersion{Group: api.NativeGroup, Version: "v1"}
	w.policies = watch.New(watch.Options[*validatingPolicy]{
		Client: d.Client, Log: d.Log, Resource: v1.WithResource(validating.PolicyResource), Keep: policyDecoder.Keep, Changed: d.Changed, StateChanged: d.Changed,
	})
	w.bindings = watch.New(watch.Options[*validatingBinding]{
		Client: d.Client, Log: d.Log, Resource: v1.WithResource(validating.BindingResource), Keep: bindingDecoder.Keep, Changed: d.Changed, StateChanged: d.Changed,
	})
	w.optional = feature.Sources{w.templates, w.natives.Policies, w.natives.Bindings}
	w.all = feature.Sources{w.templates, w.policies, w.bindings, w.natives.Policies, w.natives.Bindings}
}

// Run implements feature.Feature.
func (w *Feature) Run(ctx context.Context) { w.all.Run(ctx) }

// Look implements feature.Feature.
func (w *Feature) Look() { w.optional.Look() }

// Ready implements feature.Feature.
func (w *Feature) Ready() error {
	if w.current.Load() != nil {
		return nil
	}
	if err := w.sourcesReady(); err != nil {
		return err
	}
	return errors.New("nothing is published yet")
}

// Advisory implements feature.Feature: admission works without these warnings.
func (w *Feature) Advisory() bool { return true }

func (w *Feature) sourcesReady() error {
	return errors.Join(w.optional.Settled(), w.policies.Ready(), w.bindings.Ready())
}

// State implements feature.Feature.
func (w *Feature) State() feature.State {
	if w.state == nil {
		return nil
	}
	return w.state
}

// ParamKinds implements feature.Feature.
func (w *Feature) ParamKinds() []schema.GroupVersionKind {
	return append(w.natives.ParamKinds(), w.kinds...)
}

// Owns implements feature.Feature.
func (w *Feature) Owns(entry string) bool { return entry == EntryName }

// Expander returns the present Expander, nil before the first Update that could build one.
func (w *Feature) Expander() *expansion.Expander { return w.current.Load() }

// Update implements feature.Feature: it builds a new Expander if something has changed.
func (w *Feature) Update(_ context.Context, kindsChanged bool) bool {
	natives := w.natives.Update()
	if w.sourcesReady() != nil && w.current.Load() == nil {
		return false
	}
	now := objects{feature.Sorted(w.templates), feature.Sorted(w.policies), feature.Sorted(w.bindings)}
	if w.current.Load() != nil && !kindsChanged && now.equal(w.read) {
		problems := w.problems()
		if slices.Equal(problems, w.state.Problems) {
			return natives
		}
		state := *w.state
		state.Problems = problems
		w.state = &state
		return true
	}
	before := w.read
	w.read = now
	var templates []*legacy.Template
	for _, t := range now.templates {
		if t.Value != nil {
			templates = append(templates, t.Value)
		}
	}
	var programs []*validating.Program
	for _, p := range now.policies {
		if p.Value != nil {
			programs = append(programs, p.Value)
		}
	}
	var bound []*validating.Bound
	for _, b := range now.bindings {
		if b.Value != nil {
			bound = append(bound, b.Value)
		}
	}
	const without = "an invalid object has no effect on what workloads create"
	feature.LogInvalid(w.log, without, now.templates, before.templates)
	feature.LogInvalid(w.log, without, now.policies, before.policies)
	feature.LogInvalid(w.log, without, now.bindings, before.bindings)
	set, err := validating.NewSet(programs, bound, w.sources)
	if err != nil { // only for two objects of one name, which a cluster cannot have
		w.log.Error("workloads are expanded with the policies of before", "error", err)
		return false
	}
	expands := expand.New(templates)
	w.state, w.kinds = w.stateOf(expands), paramKindsOf(programs)
	w.current.Store(&expansion.Expander{
		Templates: expands, Types: w.types, Admit: w.engine.Admit, Validators: []expansion.Validator{expansion.Server(set)}, Limits: expansion.ReviewLimits,
		Advisory: nativeStage,
	})
	w.log.Info("templates and validating checks for what workloads create are in use", "templates", len(templates), "validatingPolicies", len(programs), "validatingBindings", len(bound))
	return true
}

// Published implements feature.Follower. The objects that workloads create are evaluated in the
// order of admission: by the API server's own policies, then by mapd's, then by the enforced
// stages of features.
func (w *Feature) Published(own engine.Stage, others []engine.Stage) {
	first, err := w.natives.Stage(w.sources.Sources)
	if err != nil { // only for two objects of one name
		w.log.Error("workloads are expanded with the policies of before", "error", err)
		return
	}
	first.Name = nativeStage
	stages := []engine.Stage{first, own}
	for _, s := range others {
		if s.Mode == api.Enforce {
			stages = append(stages, s)
		}
	}
	w.engine.Publish(stages...)
}

// rulesOf returns rules for the workloads that the server serves.
func (w *Feature) rulesOf(templates *expand.Set) []admissionregistrationv1.RuleWithOperations {
	var out []admissionregistrationv1.RuleWithOperations
	for _, gvk := range templates.Kinds() {
		r, ok := w.types.ResourceFor(gvk)
		if !ok {
			continue
		}
		out = append(out, admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{r.GVR.Group}, APIVersions: []string{r.GVR.Version}, Resources: []string{r.GVR.Resource}, Scope: new(admissionregistrationv1.AllScopes),
			},
		})
	}
	return out
}

// paramKindsOf returns the kinds of parameters that policies name.
func paramKindsOf(programs []*validating.Program) []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for _, p := range programs {
		kind := p.Object().Spec.ParamKind
		if kind == nil {
			continue
		}
		if gv, err := schema.ParseGroupVersion(kind.APIVersion); err == nil && !slices.Contains(out, gv.WithKind(kind.Kind)) {
			out = append(out, gv.WithKind(kind.Kind))
		}
	}
	return out
}
