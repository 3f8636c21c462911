package bench

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/gatekeeper/mutators"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	mapdpolicy "github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/subject"
)

// A Side is an implementation, or a part of one, that is measured.
type Side interface {
	// Prepare loads a workload and returns the result of its request.
	Prepare(ctx context.Context, w *Workload) (*unstructured.Unstructured, error)
	// Run does the measured work once and returns its result.
	Run(ctx context.Context) (any, error)
}

// Check prepares a side and returns an error if its result is not w.WantObject.
func Check(ctx context.Context, s Side, w *Workload) error {
	got, err := s.Prepare(ctx, w)
	if err != nil {
		return err
	}
	if !cases.Same(w.WantObject, got) {
		return fmt.Errorf("the answer is wrong (-want +got):\n%s", cmp.Diff(w.WantObject, got))
	}
	return nil
}

// admitter is a side that decides a request that has been decoded.
type admitter struct {
	build  func(w *Workload) (*engine.Engine, error)
	engine *engine.Engine
	spec   *cases.RequestSpec
}

// Policies returns the side that decides requests by policies.
func Policies() Side { return policies(subject.New) }

// CELGo returns the side that decides requests by policies without package quick.
func CELGo() Side { return policies(subject.CELGo) }

func policies(build func(*cases.Case) (*engine.Engine, error)) Side {
	return &admitter{build: func(w *Workload) (*engine.Engine, error) {
		only := *w
		only.Mutators = nil
		return build(&only)
	}}
}

// Mutators returns the side that decides requests by Gatekeeper's mutators.
func Mutators() Side {
	return &admitter{build: func(w *Workload) (*engine.Engine, error) {
		l := &mutatorLoader{}
		l.take(w)
		return l.load()
	}}
}

func (a *admitter) Prepare(ctx context.Context, w *Workload) (*unstructured.Unstructured, error) {
	e, err := a.build(w)
	if err != nil {
		return nil, err
	}
	a.engine, a.spec = e, &w.Request
	return admit(ctx, a.engine, a.spec)
}

// Run uses a new request each time, because a request caches values.
func (a *admitter) Run(ctx context.Context) (any, error) {
	d := a.engine.Admit(ctx, subject.Request(a.spec))
	if d.Status != nil {
		return nil, denied(d.Status)
	}
	return d, nil
}

func admit(ctx context.Context, e *engine.Engine, spec *cases.RequestSpec) (*unstructured.Unstructured, error) {
	d := e.Admit(ctx, subject.Request(spec))
	if d.Status != nil {
		return nil, denied(d.Status)
	}
	return d.Object, nil
}

func denied(s *metav1.Status) error { return fmt.Errorf("denied: %s", s.Message) }

// Compiled expressions are cached by their text. Sides that measure compiling therefore change
// the text each time, by a comment.

// Compiled returns the side that compiles the first policy of a workload, after decoding.
func Compiled() Side { return &compiler{} }

type compiler struct {
	loader
	policy *admissionregistrationv1.MutatingAdmissionPolicy
}

func (c *compiler) Prepare(ctx context.Context, w *Workload) (*unstructured.Unstructured, error) {
	var err error
	if c.policy, err = mapdpolicy.Decode(w.Policies[0]); err != nil {
		return nil, err
	}
	return c.loader.Prepare(ctx, w)
}

func (c *compiler) Run(context.Context) (any, error) {
	c.turn++
	return mapdpolicy.Compile(renewed(c.policy, fmt.Sprintf("// %d\n", c.turn)), deps)
}

// renewed returns a copy of a policy with a comment before each expression.
func renewed(obj *admissionregistrationv1.MutatingAdmissionPolicy, comment string) *admissionregistrationv1.MutatingAdmissionPolicy {
	out := *obj
	out.Spec.Variables = slices.Clone(obj.Spec.Variables)
	for i := range out.Spec.Variables {
		out.Spec.Variables[i].Expression = comment + out.Spec.Variables[i].Expression
	}
	out.Spec.MatchConditions = slices.Clone(obj.Spec.MatchConditions)
	for i := range out.Spec.MatchConditions {
		out.Spec.MatchConditions[i].Expression = comment + out.Spec.MatchConditions[i].Expression
	}
	out.Spec.Mutations = slices.Clone(obj.Spec.Mutations)
	for i, m := range out.Spec.Mutations {
		if m.JSONPatch != nil {
			m.JSONPatch = &admissionregistrationv1.JSONPatch{Expression: comment + m.JSONPatch.Expression}
		} else {
			m.ApplyConfiguration = &admissionregistrationv1.ApplyConfiguration{Expression: comment + m.ApplyConfiguration.Expression}
		}
		out.Spec.Mutations[i] = m
	}
	return &out
}

// Loaded returns the side that loads stored policies and bindings, which are JSON text, into an
// engine: it decodes, validates, compiles, joins and publishes them, on one core.
func Loaded() Side { return &loader{} }

type loader struct {
	policies, bindings [][]byte
	turn               int
	spec               *cases.RequestSpec
	namespaces         binding.MemoryNamespaces
	params             *binding.MemoryParams
}

func (l *loader) Prepare(ctx context.Context, w *Workload) (*unstructured.Unstructured, error) {
	l.spec, l.namespaces, l.params = &w.Request, namespacesOf(w), paramsOf(w)
	var err error
	if l.policies, err = texts(w.Policies); err != nil {
		return nil, err
	}
	if l.bindings, err = texts(w.Bindings); err != nil {
		return nil, err
	}
	p, err := l.load()
	if err != nil {
		return nil, err
	}
	return admit(ctx, p.engine, l.spec)
}

func (l *loader) Run(context.Context) (any, error) { return l.load() }

func texts(us []*unstructured.Unstructured) ([][]byte, error) {
	var all [][]byte
	for _, u := range us {
		text, err := u.MarshalJSON()
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

var deps = mapdpolicy.Deps{Env: subject.Env, Types: subject.Builtin}

// published has what a server keeps of its policies.
type published struct {
	policies []*mapdpolicy.Policy
	bindings []*binding.Binding
	sources  binding.Sources
	engine   *engine.Engine
}

func (l *loader) load() (*published, error) {
	p := &published{engine: engine.New(engine.Options{Convert: policyset.Convert(subject.Builtin)})}
	l.turn++
	for _, text := range l.policies {
		compiled, err := read(anew(text, l.turn))
		if err != nil {
			return nil, err
		}
		p.policies = append(p.policies, compiled)
	}
	for _, text := range l.bindings {
		compiled := compile.NewBinding(text, compile.Unchecked)
		if compiled.Err != nil {
			return nil, compiled.Err
		}
		p.bindings = append(p.bindings, compiled.Program)
	}
	p.sources = binding.Sources{Params: l.params, Namespaces: l.namespaces, Equivalents: policyset.Equivalents(subject.Builtin)}
	return p, p.publish()
}

// publish makes the engine run the present policies and bindings.
func (p *published) publish() error {
	index, err := binding.NewIndex(p.policies, p.bindings, p.sources)
	if err == nil {
		p.engine.Publish(engine.Policies(index))
	}
	return err
}

// anew returns the text of a policy with a comment before each expression, which depends on turn.
func anew(text []byte, turn int) []byte {
	return bytes.ReplaceAll(text, []byte(`"expression":"`), fmt.Appendf(nil, `"expression":"// %d\n`, turn))
}

// read compiles a stored policy as internal/cluster/store does.
func read(text []byte) (*mapdpolicy.Policy, error) {
	p := compile.NewPolicy(context.Background(), text, compile.Stored, deps)
	return p.Program, p.Err
}

// change replaces the i-th policy, as internal/cluster/store does.
func (p *published) change(i int, text []byte) error {
	compiled, err := read(text)
	if err != nil {
		return err
	}
	p.policies[i] = compiled
	return p.publish()
}

// Changed returns the side that loads one changed policy while the others are loaded, and decides
// the first request after that.
func Changed() Side { return &changer{} }

type changer struct {
	loader
	*published
	at int
}

func (c *changer) Prepare(ctx context.Context, w *Workload) (*unstructured.Unstructured, error) {
	if _, err := c.loader.Prepare(ctx, w); err != nil {
		return nil, err
	}
	var err error
	if c.published, err = c.load(); err != nil {
		return nil, err
	}
	if _, err := admit(ctx, c.engine, c.spec); err != nil {
		return nil, err
	}
	c.at = len(w.Policies) / 2
	return c.next(ctx)
}

func (c *changer) Run(ctx context.Context) (any, error) { return c.next(ctx) }

func (c *changer) next(ctx context.Context) (*unstructured.Unstructured, error) {
	c.turn++
	if err := c.change(c.at, anew(c.loader.policies[c.at], c.turn)); err != nil {
		return nil, err
	}
	return admit(ctx, c.engine, c.spec)
}

// LoadedMutators returns the side that loads mutators into an engine.
func LoadedMutators() Side { return &mutatorLoader{} }

type mutatorLoader struct {
	mutators   []*unstructured.Unstructured
	spec       *cases.RequestSpec
	namespaces binding.MemoryNamespaces
}

func (l *mutatorLoader) take(w *Workload) {
	l.mutators, l.spec, l.namespaces = w.Mutators, &w.Request, namespacesOf(w)
}

func (l *mutatorLoader) Prepare(ctx context.Context, w *Workload) (*unstructured.Unstructured, error) {
	l.take(w)
	e, err := l.load()
	if err != nil {
		return nil, err
	}
	return admit(ctx, e, l.spec)
}

func (l *mutatorLoader) Run(context.Context) (any, error) { return l.load() }

func (l *mutatorLoader) load() (*engine.Engine, error) {
	var all []*legacy.Mutator
	for _, u := range l.mutators {
		m, err := legacy.Decode(u)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	e := engine.New(engine.Options{})
	built := mutators.NewBuilder(deps).Build(all, nil, subject.Builtin, mutators.Options{Namespace: l.namespaces.Namespace})
	e.Publish(engine.Mutators(built.Set, api.Enforce))
	return e, nil
}

func namespacesOf(w *Workload) binding.MemoryNamespaces {
	n := binding.MemoryNamespaces{}
	for _, u := range w.Namespaces {
		n[u.GetName()] = u
	}
	return n
}

func paramsOf(w *Workload) *binding.MemoryParams {
	p := binding.NewMemoryParams(policyset.Kinds(subject.Builtin))
	for _, u := range w.Params {
		p.Put(u.GroupVersionKind(), u)
	}
	return p
}
