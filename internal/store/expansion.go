package store

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/expansion"
	"github.com/mapd-project/mapd/internal/verdict"
	"github.com/mapd-project/mapd/internal/watch"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// workloads finds out what becomes of the objects that workloads create. It reads
// Gatekeeper's expansion templates, if the cluster has them, and
// ValidatingAdmissionPolicies with their bindings.
type workloads struct {
	log       *slog.Logger
	sources   verdict.Sources
	types     *openapi.Types
	templates *watch.Mirror[*storedTemplate]
	policies  *watch.Mirror[*storedValidating]
	bindings  *watch.Mirror[*storedBound]
	engine    *engine.Engine
	current   atomic.Pointer[expansion.Expander] // nil before the first

	// Only the goroutine of Store.Run uses the rest.
	read  workloadObjects
	rules []admissionregistrationv1.RuleWithOperations
	kinds []schema.GroupVersionKind // of the parameters
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
	program *verdict.Program // nil if it cannot be decoded
	err     error
}

// storedBound is a ValidatingAdmissionPolicyBinding.
type storedBound struct {
	object  *unstructured.Unstructured
	binding *verdict.Bound // nil if it cannot be decoded
	err     error
}

func newWorkloads(client dynamic.Interface, sources verdict.Sources, options engine.Options, log *slog.Logger, changed func()) *workloads {
	w := &workloads{log: log, sources: sources, types: sources.Types, engine: engine.New(options)}
	w.templates = watch.New(watch.Options[*storedTemplate]{
		Client: client, Log: log, Types: w.types, Kinds: versionsOf(api.ExpansionGroup, legacy.TemplateKind, "v1beta1", "v1alpha1"),
		Keep: keepTemplate, Changed: changed, StateChanged: changed,
	})
	v1 := schema.GroupVersion{Group: api.NativeGroup, Version: "v1"}
	w.policies = watch.New(watch.Options[*storedValidating]{
		Client: client, Log: log, Resource: v1.WithResource(verdict.PolicyResource), Keep: keepValidating, Changed: changed, StateChanged: changed,
	})
	w.bindings = watch.New(watch.Options[*storedBound]{
		Client: client, Log: log, Resource: v1.WithResource(verdict.BindingResource), Keep: keepBound, Changed: changed, StateChanged: changed,
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
		now.program, err = verdict.StoredPolicy(ctx, text)
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
		now.binding, err = verdict.StoredBinding(text)
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
	for _, run := range []func(context.Context){w.templates.Run, w.policies.Run, w.bindings.Run} {
		all.Go(func() { run(ctx) })
	}
	all.Wait()
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
	return errors.Join(w.templates.Settled(), w.policies.Ready(), w.bindings.Ready())
}

// update makes a new Expander if something has changed, and reports whether it has.
func (w *workloads) update(kindsChanged bool) bool {
	if w.sourcesReady() != nil && w.current.Load() == nil {
		return false
	}
	now := w.gather()
	if w.current.Load() != nil && !kindsChanged && now.equal(w.read) {
		return false
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
	var programs []*verdict.Program
	for _, p := range now.policies {
		if p.program != nil {
			programs = append(programs, p.program)
		}
		w.complain(p.err, p.object, !slices.Contains(before.policies, p))
	}
	var bound []*verdict.Bound
	for _, b := range now.bindings {
		if b.binding != nil {
			bound = append(bound, b.binding)
		}
		w.complain(b.err, b.object, !slices.Contains(before.bindings, b))
	}
	set, err := verdict.NewSet(programs, bound, w.sources)
	if err != nil { // only for two objects of one name, which a cluster cannot have
		w.log.Error("workloads are expanded with the policies of before", "error", err)
		return false
	}
	expands := expand.New(templates)
	w.rules, w.kinds = w.rulesOf(expands), paramKindsOf(programs)
	w.current.Store(&expansion.Expander{
		Templates: expands, Types: w.types, Admit: w.engine.Admit, Validators: []expansion.Validator{expansion.Server(set)}, Limits: expansion.ReviewLimits,
	})
	w.log.Info("expansion published", "templates", len(templates), "validatingPolicies", len(programs), "validatingBindings", len(bound))
	return true
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

// paramKindsOf returns the kinds of parameters that policies name.
func paramKindsOf(programs []*verdict.Program) []schema.GroupVersionKind {
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

// publish has the objects that workloads create admitted by all policies, by Gatekeeper's
// mutators and by Kubewarden's policies, if these are run. g and k may be nil.
func (w *workloads) publish(c catalogue, sources binding.Sources, g *gatekeeper, k *guests) {
	j := wholeShare(&c)
	index, err := binding.NewIndex(j.policies, j.bindings, sources)
	if err != nil { // only for two objects of one name
		w.log.Error("workloads are expanded with the policies of before", "error", err)
		return
	}
	stages := []engine.Stage{engine.Policies(index)}
	if g != nil {
		stages = append(stages, g.engine.Stages()...)
	}
	if k != nil {
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
