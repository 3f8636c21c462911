// Package subject asks "what does mapd make of a case?". It stands to mapd as
// test/oracle stands to Kubernetes: the same objects in, the same outcome out,
// so that the runners of the corpus, the differential test and the benchmark
// need not know either.
package subject

import (
	"context"
	"fmt"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8stypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/internal/apiserver/rbac"
	"github.com/mapd-project/mapd/internal/gatekeeper/mutators"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/cases"
)

// Env is the environment of the current Kubernetes minor, shared as a server
// shares it.
var Env = must(cel.NewEnv(cel.Options{}))

// Builtin are the built-in kinds without any custom one.
var Builtin = openapi.New(openapi.Builtin())

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// New builds an engine with the policies of a case published.
func New(c *cases.Case) (*engine.Engine, error) { return build(c, Env, false, nil) }

// Traced is New for an engine that tells the object around each mutation.
func Traced(c *cases.Case) (*engine.Engine, error) { return build(c, Env, true, nil) }

// CELGo is New with an engine that evaluates all expressions with cel-go.
func CELGo(c *cases.Case) (*engine.Engine, error) { return build(c, celGo(), false, nil) }

// Guests is New with Kubewarden's policies, whose modules the Loader loads. All others
// leave them out, so that they need not link what runs WebAssembly.
func Guests(c *cases.Case, loader kubewarden.Loader) (*engine.Engine, error) {
	return build(c, Env, false, loader)
}

var celGo = sync.OnceValue(func() *cel.Env { return must(cel.NewEnv(cel.Options{CELGo: true})) })

func build(c *cases.Case, env *cel.Env, trace bool, loader kubewarden.Loader) (*engine.Engine, error) {
	types := Builtin
	if len(c.CRDs) > 0 {
		crds, err := openapi.CRDs(c.CRDs...)
		if err != nil {
			return nil, err
		}
		types = openapi.New(crds, openapi.Builtin())
	}
	policies, err := compiled(c.Policies, types, env)
	if err != nil {
		return nil, err
	}
	var bindings []*binding.Binding
	for _, u := range c.Bindings {
		text, err := api.JSON(u)
		if err != nil {
			return nil, err
		}
		b := compile.NewBinding(text, compile.Unchecked)
		if b.Err != nil {
			return nil, b.Err
		}
		bindings = append(bindings, b.Program)
	}
	sources := binding.Sources{
		Params:      newParams(c.Params, types),
		Namespaces:  newNamespaces(c.Namespaces),
		Equivalents: policyset.Equivalents(types),
	}
	ix, err := binding.NewIndex(policies, bindings, sources)
	if err != nil {
		return nil, err
	}
	var authz authorizer.Authorizer = rbac.NoOpinion{}
	if len(c.RBAC) > 0 {
		if authz, err = rbac.New(c.RBAC...); err != nil {
			return nil, err
		}
	}
	e := engine.New(engine.Options{Authorizer: authz, Convert: policyset.Convert(types), Trace: trace, Resolver: external(c.External)})
	set, err := Mutators(c, types)
	if err != nil {
		return nil, err
	}
	stages := []engine.Stage{engine.Policies(ix), engine.Mutators(set, api.Enforce)}
	if loader != nil {
		guests, err := guests(c, policy.Deps{Env: env, Types: types}, sources, loader)
		if err != nil {
			return nil, err
		}
		stages = append(stages, guests...)
	}
	e.Publish(stages...)
	return e, nil
}

// guests returns the stages of a case's policies of Kubewarden's.
func guests(c *cases.Case, deps policy.Deps, sources binding.Sources, loader kubewarden.Loader) ([]engine.Stage, error) {
	var all []*kubewarden.Policy
	for _, u := range c.Guests {
		text, err := api.JSON(u)
		if err != nil {
			return nil, err
		}
		p, err := kubewarden.Decode(text, "default")
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	all = kubewarden.Unique(all)
	compiled := make([]*policy.Policy, len(all))
	for i, p := range all {
		if faults := p.Check(deps); len(faults) > 0 {
			return nil, faults
		}
		guest, err := loader.Load(context.Background(), p, deps, sources.Params)
		if err != nil {
			return nil, err
		}
		if compiled[i], err = p.Compile(deps, guest); err != nil {
			return nil, err
		}
	}
	mutating, validating, err := kubewarden.Indexes(all, compiled, sources)
	return []engine.Stage{engine.Modules(mutating, api.Enforce), engine.Validators(validating, api.Enforce)}, err
}

// Mutators is the Set of a case's mutators.
func Mutators(c *cases.Case, types *openapi.Types) (*engine.Set, error) {
	var all []*legacy.Mutator
	for _, u := range c.Mutators {
		m, err := legacy.Decode(u)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	var config *legacy.Config
	if c.Config != nil {
		var err error
		if config, err = legacy.DecodeConfig(c.Config); err != nil {
			return nil, err
		}
	}
	built := mutators.NewBuilder(policy.Deps{Env: Env, Types: types}).Build(all, config, types, mutators.Options{
		Namespace: newNamespaces(c.Namespaces).Namespace, External: true,
	})
	return built.Set, nil
}

// external answers as the Providers of a case do, in Gatekeeper's words.
type external map[string]map[string]cases.Answer

// Resolve implements engine.Resolver.
func (e external) Resolve(_ context.Context, questions []engine.Question, _ bool) []engine.Answer {
	out := make([]engine.Answer, len(questions))
	for i, q := range questions {
		provider, known := e[q.Source]
		answer, has := provider[q.Key]
		switch {
		case !known:
			out[i].Err = fmt.Errorf("failed to find external data provider %s in responses", q.Source)
		case !has:
			out[i].Err = noValue(fmt.Sprintf("failed to find external data item in response for provider %s", q.Source))
		case answer.Error != "":
			out[i].Err = noValue(fmt.Sprintf("failed to retrieve external data item from provider %s: %s", q.Source, answer.Error))
		}
		out[i].Value = answer.Value
	}
	return out
}

// noValue is the error of a key without a value.
type noValue string

func (e noValue) Error() string   { return string(e) }
func (e noValue) IsMissing() bool { return true }

// Policies decodes and compiles. A policy that does not compile is in the
// result as a broken one, as it is in a server that has it stored.
func Policies(objs []*unstructured.Unstructured, types *openapi.Types) ([]*policy.Policy, error) {
	return compiled(objs, types, Env)
}

func compiled(objs []*unstructured.Unstructured, types *openapi.Types, env *cel.Env) ([]*policy.Policy, error) {
	var out []*policy.Policy
	for _, u := range objs {
		text, err := api.JSON(u)
		if err != nil {
			return nil, err
		}
		p := compile.NewPolicy(context.Background(), text, compile.Unchecked, policy.Deps{Env: env, Types: types})
		switch {
		case p.Object == nil:
			return nil, p.Err
		case p.Err != nil:
			p.Program = policy.Broken(p.Object, p.Err)
		}
		out = append(out, p.Program)
	}
	return out, nil
}

// Request is the request of a case as the engine gets it.
func Request(s *cases.RequestSpec) *policy.Request {
	source := policy.Original
	if s.Generated {
		source = policy.Generated
	}
	return &policy.Request{
		Source: source,
		UID:    k8stypes.UID(s.UID),
		Kind:   s.Kind, Resource: s.Resource, SubResource: s.SubResource,
		RequestKind: s.RequestKind, RequestResource: s.RequestResource, RequestSubResource: s.RequestSubResource,
		Name: s.Name, Namespace: s.Namespace, Operation: admissionv1.Operation(s.Operation),
		UserInfo: s.User, DryRun: s.DryRun, Options: s.Options, Object: s.Object, OldObject: s.OldObject,
	}
}

// Outcome is a decision in the form in which cases compare.
func Outcome(d *engine.Decision) cases.Outcome {
	out := cases.Outcome{Status: d.Status, Rounds: max(1, d.Rounds(engine.PolicyStage)), Passes: d.Rounds(engine.MutatorStage)}
	if d.Status == nil {
		out.Object = d.Object
	}
	return out
}

// Steps writes the record of what happened, a line for each step, in
// columns that do not depend on other lines.
func Steps(d *engine.Decision) string {
	var b strings.Builder
	for _, s := range d.Steps {
		fmt.Fprintf(&b, "%s %d  %s", d.Stage(s.Stage).Stage.Round, s.Round, s.Policy)
		if s.Binding != "" {
			fmt.Fprintf(&b, "  binding %s", s.Binding)
		}
		if s.Param != "" {
			fmt.Fprintf(&b, "  param %s", s.Param)
		}
		if s.Mutation >= 0 {
			fmt.Fprintf(&b, "  mutation %d", s.Mutation)
		}
		fmt.Fprintf(&b, "  %s", s.Outcome)
		if s.Ignored {
			b.WriteString(" (ignored)")
		}
		if s.Reason != "" {
			fmt.Fprintf(&b, "  %s", s.Reason)
		}
		if s.Err != nil {
			fmt.Fprintf(&b, "  %s", s.Err)
		}
		if paths := s.Paths(); len(paths) > 0 {
			fmt.Fprintf(&b, "  %s", strings.Join(paths, " "))
		}
		b.WriteByte('\n')
	}
	return strings.TrimSpace(b.String())
}

// Run is the whole of a case: build and admit.
func Run(ctx context.Context, c *cases.Case) (*engine.Decision, error) { return RunAs(ctx, c, Env) }

// RunAs is Run with the language of another minor.
func RunAs(ctx context.Context, c *cases.Case, env *cel.Env) (*engine.Decision, error) {
	e, err := build(c, env, false, nil)
	if err != nil {
		return nil, err
	}
	return e.Admit(ctx, Request(&c.Request)), nil
}

// newParams returns the parameter objects of a case in the shape in which
// expressions see them: built-in kinds without type and managed fields (spec §3.2).
func newParams(objs []*unstructured.Unstructured, types *openapi.Types) *binding.MemoryParams {
	p := binding.NewMemoryParams(policyset.Kinds(types))
	for _, u := range objs {
		gvk := u.GroupVersionKind()
		if kind, _ := types.Kind(gvk); kind.Builtin() {
			u = informed(u)
		}
		p.Put(gvk, u)
	}
	return p
}

// informed gives a built-in object the shape in which a server's informers hold
// it: without apiVersion, kind and managedFields (spec §3.2).
func informed(u *unstructured.Unstructured) *unstructured.Unstructured {
	out := u.DeepCopy()
	unstructured.RemoveNestedField(out.Object, "metadata", "managedFields")
	delete(out.Object, "apiVersion")
	delete(out.Object, "kind")
	return out
}

func newNamespaces(objs []*unstructured.Unstructured) binding.MemoryNamespaces {
	n := binding.MemoryNamespaces{}
	for _, u := range objs {
		n[u.GetName()] = informed(u)
	}
	return n
}
