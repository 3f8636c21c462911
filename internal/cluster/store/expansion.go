package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// workloads finds out what becomes of the objects that workloads create. It reads
// Gatekeeper's expansion templates, if the cluster has them, ValidatingAdmissionPolicies
// with their bindings, and the MutatingAdmissionPolicies that the API server itself runs.
type workloads struct {
	log       *slog.Logger
	sources   validating.Sources
	types     *openapi.Types
	templates *watch.Mirror[*storedTemplate]
	policies  *watch.Mirror[*storedValidating]
	bindings  *watch.Mirror[*storedBound]
	natives   nativePolicies
	engine    *engine.Engine
	current   atomic.Pointer[expansion.Expander] // nil before the first

	// Only the goroutine of Store.Run uses the rest.
	read  workloadObjects
	state *ExpansionState           // nil before the first Expander
	kinds []schema.GroupVersionKind // of the parameters of ValidatingAdmissionPolicies
}

// nativePolicies are the MutatingAdmissionPolicies of Kubernetes' own group, compiled.
type nativePolicies struct {
	policies, bindings *watch.Mirror[*stored]
	compiler           compiler
}

// update takes in what has changed, and reports whether anything has.
func (n *nativePolicies) update() bool {
	bindings := changes(n.compiler.bindings, n.bindings)
	work := n.compiler.update(changes(n.compiler.policies, n.policies), bindings)
	return work.changed || len(bindings) > 0
}

// nativeStage is the name of the stage that stands for the API server's own.
const nativeStage = "native policies"

// ExpansionState is what workloads are expanded with.
type ExpansionState struct {
	// Rules are those of the workloads that are expanded.
	Rules []admissionregistrationv1.RuleWithOperations
	// Templates are Gatekeeper's expansion templates, by name.
	Templates []TemplateState
	// Problems say which other objects have no effect on what workloads create or cannot be
	// run, and which kinds cannot be read.
	Problems []string
}

// TemplateState is one expansion template and its state.
type TemplateState struct {
	// Object has the template's apiVersion, kind, name, uid and generation. It must not
	// be modified.
	Object *unstructured.Unstructured
	// Err is why the template does nothing, nil if it is in force. Cycle says that it is in
	// a circle, and otherwise it is not valid.
	Err   error
	Cycle bool
}

// workloadObjects are what an Expander is made of.
type workloadObjects struct {
	templates []*storedTemplate
	policies  []*storedValidating
	bindings  []*storedBound
}

func (w workloadObjects) equal(o workloadObjects) bool {
	return slices.Equal(w.templates, o.templates) && slices.Equal(w.policies, o.policies) && slices.Equal(w.bindings, o.bindings)
}

// storedTemplate is an expansion template as it is stored, and as it applies.
type storedTemplate struct {
	object   *unstructured.Unstructured // what identifies it
	template *legacy.Template           // nil if it is not valid
	err      error
}

// storedValidating is a ValidatingAdmissionPolicy, compiled.
type storedValidating struct {
	object  *unstructured.Unstructured
	program *validating.Program // nil if it cannot be decoded
	err     error
}

// storedBound is a ValidatingAdmissionPolicyBinding.
type storedBound struct {
	object  *unstructured.Unstructured
	binding *validating.Bound // nil if it cannot be decoded
	err     error
}

func newWorkloads(client dynamic.Interface, sources validating.Sources, deps policy.Deps, options engine.Options, log *slog.Logger, changed func()) *workloads {
	w := &workloads{log: log, sources: sources, types: sources.Types, engine: engine.New(options)}
	mirror := func(kind string) *watch.Mirror[*stored] {
		return watch.New(watch.Options[*stored]{
			Client: client, Log: log, Types: w.types, Kinds: versionsOf(api.NativeGroup, kind, "v1", "v1beta1", "v1alpha1"),
			Keep: keepStored, Changed: changed, StateChanged: changed, Names: true,
		})
	}
	w.natives = nativePolicies{policies: mirror(api.PolicyKind), bindings: mirror(api.BindingKind), compiler: compiler{deps: deps, slow: newSlow(changed)}}
	w.templates = watch.New(watch.Options[*storedTemplate]{
		Client: client, Log: log, Types: w.types, Kinds: versionsOf(api.ExpansionGroup, legacy.TemplateKind, "v1beta1", "v1alpha1"),
		Keep: keepTemplate, Changed: changed, StateChanged: changed,
	})
	v1 := schema.GroupVersion{Group: api.NativeGroup, Version: "v1"}
	w.policies = watch.New(watch.Options[*storedValidating]{
		Client: client, Log: log, Resource: v1.WithResource(validating.PolicyResource), Keep: keepValidating, Changed: changed, StateChanged: changed,
	})
	w.bindings = watch.New(watch.Options[*storedBound]{
		Client: client, Log: log, Resource: v1.WithResource(validating.BindingResource), Keep: keepBound, Changed: changed, StateChanged: changed,
	})
	return w
}

// keepTemplate decodes a template, unless old is the same version.
func keepTemplate(u *unstructured.Unstructured, old *storedTemplate) *storedTemplate {
	if old != nil && sameSpec(u, old.object) {
		return old
	}
	now := &storedTemplate{object: headOf(u)}
	now.err = guarded(func() (err error) {
		now.template, err = legacy.DecodeTemplate(u)
		return err
	})
	return now
}

// compileTime bounds the compiling of one ValidatingAdmissionPolicy.
const compileTime = 5 * time.Second

// keepValidating compiles a policy, unless old is the same version.
func keepValidating(u *unstructured.Unstructured, old *storedValidating) *storedValidating {
	if old != nil && sameSpec(u, old.object) {
		return old
	}
	now := &storedValidating{object: headOf(u)}
	now.err = guarded(func() error {
		text, err := textOf(u)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), compileTime)
		defer cancel()
		now.program, err = validating.StoredPolicy(ctx, text)
		return err
	})
	return now
}

// keepBound decodes a binding, unless old is the same version.
func keepBound(u *unstructured.Unstructured, old *storedBound) *storedBound {
	if old != nil && sameSpec(u, old.object) {
		return old
	}
	now := &storedBound{object: headOf(u)}
	now.err = guarded(func() error {
		text, err := textOf(u)
		if err != nil {
			return err
		}
		now.binding, err = validating.StoredBinding(text)
		return err
	})
	return now
}

// textOf returns what a policy or a binding says, without what servers and clients
// note in it.
func textOf(u *unstructured.Unstructured) ([]byte, error) {
	return api.JSON(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{"name": u.GetName()}, "spec": u.Object["spec"],
	}})
}

func (w *workloads) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, run := range []func(context.Context){w.templates.Run, w.policies.Run, w.bindings.Run, w.natives.policies.Run, w.natives.bindings.Run} {
		all.Go(func() { run(ctx) })
	}
	all.Wait()
}

// look has mirrors find out again whether the server has their kinds.
func (w *workloads) look() {
	w.templates.Look()
	w.natives.policies.Look()
	w.natives.bindings.Look()
}

// ready returns nil once workloads are expanded, else what is missing.
func (w *workloads) ready() error {
	if w.current.Load() != nil {
		return nil
	}
	if err := w.sourcesReady(); err != nil {
		return err
	}
	return errors.New("nothing is published yet")
}

func (w *workloads) sourcesReady() error {
	return errors.Join(w.templates.Settled(), w.policies.Ready(), w.bindings.Ready(), w.natives.policies.Settled(), w.natives.bindings.Settled())
}

// update makes a new Expander if something has changed, and reports whether it has.
func (w *workloads) update(kindsChanged bool) bool {
	natives := w.natives.update()
	if w.sourcesReady() != nil && w.current.Load() == nil {
		return false
	}
	now := w.gather()
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
		if t.template != nil {
			templates = append(templates, t.template)
		}
		w.complain(t.err, t.object, !slices.Contains(before.templates, t))
	}
	var programs []*validating.Program
	for _, p := range now.policies {
		if p.program != nil {
			programs = append(programs, p.program)
		}
		w.complain(p.err, p.object, !slices.Contains(before.policies, p))
	}
	var bound []*validating.Bound
	for _, b := range now.bindings {
		if b.binding != nil {
			bound = append(bound, b.binding)
		}
		w.complain(b.err, b.object, !slices.Contains(before.bindings, b))
	}
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
	w.log.Info("expansion published", "templates", len(templates), "validatingPolicies", len(programs), "validatingBindings", len(bound))
	return true
}

// stateOf returns what has become of the objects that were read.
func (w *workloads) stateOf(expands *expand.Set) *ExpansionState {
	s := &ExpansionState{Rules: w.rulesOf(expands), Problems: w.problems()}
	for _, t := range w.read.templates {
		state := TemplateState{Object: t.object, Err: t.err}
		if circle := expands.Circle(t.template); circle != nil {
			state.Err, state.Cycle = expand.CycleError(circle), true
		}
		s.Templates = append(s.Templates, state)
	}
	return s
}

// problems returns what is wrong with all objects but templates.
func (w *workloads) problems() []string {
	var out []string
	for _, err := range []error{
		w.templates.Problem(), w.policies.Problem(), w.bindings.Problem(), w.natives.policies.Problem(), w.natives.bindings.Problem(),
	} {
		if err != nil {
			out = append(out, err.Error())
		}
	}
	add := func(err error, object *unstructured.Unstructured) {
		if err != nil {
			out = append(out, fmt.Sprintf("%s %s has no effect: %v", object.GetKind(), object.GetName(), err))
		}
	}
	for _, p := range w.read.policies {
		add(p.err, p.object)
	}
	for _, b := range w.read.bindings {
		add(b.err, b.object)
	}
	for _, p := range w.natives.compiler.policies {
		if len(p.errs) > 0 && !p.pending {
			out = append(out, fmt.Sprintf("%s %s cannot run here: %v", api.PolicyKind, p.name, p.errs[0]))
		}
	}
	for _, b := range w.natives.compiler.bindings {
		if b.err != nil {
			out = append(out, fmt.Sprintf("%s %s is not valid here: %v", api.BindingKind, b.name, b.err))
		}
	}
	return out
}

// complain logs why an object has no effect, once.
func (w *workloads) complain(err error, object *unstructured.Unstructured, first bool) {
	if err != nil && first {
		w.log.Error("it has no effect on what workloads create", "kind", object.GetKind(), "name", object.GetName(), "error", err)
	}
}

func (w *workloads) gather() (o workloadObjects) {
	w.templates.Each("", func(_ string, t *storedTemplate) { o.templates = append(o.templates, t) })
	w.policies.Each("", func(_ string, p *storedValidating) { o.policies = append(o.policies, p) })
	w.bindings.Each("", func(_ string, b *storedBound) { o.bindings = append(o.bindings, b) })
	slices.SortFunc(o.templates, func(a, b *storedTemplate) int { return cmp.Compare(a.object.GetName(), b.object.GetName()) })
	slices.SortFunc(o.policies, func(a, b *storedValidating) int { return cmp.Compare(a.object.GetName(), b.object.GetName()) })
	slices.SortFunc(o.bindings, func(a, b *storedBound) int { return cmp.Compare(a.object.GetName(), b.object.GetName()) })
	return o
}

// rulesOf returns the rules of the workloads that a server serves.
func (w *workloads) rulesOf(templates *expand.Set) []admissionregistrationv1.RuleWithOperations {
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

// paramKinds returns the kinds of parameters of all policies that only workloads meet.
func (w *workloads) paramKinds() []schema.GroupVersionKind {
	j := wholeShare(&w.natives.compiler.catalogue)
	return append(paramKinds(map[webhook.ID]*joined{{}: j}), w.kinds...)
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

// publish has the objects that workloads create admitted by all policies, those of the
// API server first, by Gatekeeper's mutators and by Kubewarden's policies, if these are
// run. g and k may be nil.
func (w *workloads) publish(c catalogue, sources binding.Sources, g *gatekeeper, k *guests) {
	var stages []engine.Stage
	for _, c := range []*catalogue{&w.natives.compiler.catalogue, &c} { // the API server calls webhooks after its own
		j := wholeShare(c)
		index, err := binding.NewIndex(j.policies, j.bindings, sources)
		if err != nil { // only for two objects of one name
			w.log.Error("workloads are expanded with the policies of before", "error", err)
			return
		}
		stages = append(stages, engine.Policies(index))
	}
	stages[0].Name = nativeStage
	if g != nil {
		stages = append(stages, g.engine.Stages()...)
	}
	if k != nil && k.options.Mode == api.Enforce {
		stages = append(stages, k.whole...)
	}
	w.engine.Publish(stages...)
}

// Expander returns what finds out what becomes of the objects that workloads create, nil
// before it is known, or without Options.Expansion.
func (s *Store) Expander() *expansion.Expander {
	if s.workloads == nil {
		return nil
	}
	return s.workloads.current.Load()
}

// ExpansionReady returns nil once workloads are expanded, and else what is missing.
func (s *Store) ExpansionReady() error {
	if s.workloads == nil {
		return nil
	}
	return s.workloads.ready()
}
