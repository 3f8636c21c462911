package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

var (
	widgets = schema.GroupVersionResource{Group: "ex.io", Version: "v1", Resource: "widgets"}
	widget  = schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "Widget"}
	v2      = schema.GroupVersionKind{Group: "ex.io", Version: "v2", Kind: "Widget"}
)

var env = sync.OnceValues(func() (*cel.Env, error) { return cel.NewEnv(cel.Options{}) })

// mutator is a Mutator as a function.
type mutator func(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error)

func (m mutator) Mutate(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
	return m(ctx, in)
}

// with returns u with one field of data replaced.
func with(u *unstructured.Unstructured, key string, value any) *unstructured.Unstructured {
	root := maps.Clone(u.Object)
	data, _ := root["data"].(map[string]any)
	data = maps.Clone(data)
	if data == nil {
		data = map[string]any{}
	}
	data[key] = value
	root["data"] = data
	return &unstructured.Unstructured{Object: root}
}

func data(u *unstructured.Unstructured, key string) string {
	s, _, _ := unstructured.NestedString(u.Object, "data", key)
	return s
}

// write appends s to data.log.
func write(s string) mutator {
	return func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		*in.Cost += 7
		return with(in.Object, "log", data(in.Object, "log")+s), nil
	}
}

var (
	noop    mutator = func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) { return in.Object, nil }
	panics  mutator = func(context.Context, policy.Input) (*unstructured.Unstructured, error) { panic("no wheels") }
	nothing mutator = func(context.Context, policy.Input) (*unstructured.Unstructured, error) { return nil, nil }
	param   mutator = func(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		return write(in.Params.GetName())(ctx, in)
	}
)

func fails(err error) mutator {
	return func(context.Context, policy.Input) (*unstructured.Unstructured, error) { return nil, err }
}

type option func(*admissionregistrationv1.MutatingAdmissionPolicy)

func ifNeeded(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	p.Spec.ReinvocationPolicy = admissionregistrationv1.IfNeededReinvocationPolicy
}

func ignore(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	i := admissionregistrationv1.Ignore
	p.Spec.FailurePolicy = &i
}

func condition(expr string) option {
	return func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
		p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", len(p.Spec.MatchConditions)), Expression: expr})
	}
}

func onVersion(v string) option {
	return func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
		p.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{v}
	}
}

func selecting(label, value string) option {
	return func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
		p.Spec.MatchConstraints.ObjectSelector.MatchLabels = map[string]string{label: value}
	}
}

func paramKind(kind string) option {
	return func(p *admissionregistrationv1.MutatingAdmissionPolicy) {
		p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: kind}
	}
}

func policyObject(name string, opts ...option) *admissionregistrationv1.MutatingAdmissionPolicy {
	fail, equivalent, scope := admissionregistrationv1.Fail, admissionregistrationv1.Equivalent, admissionregistrationv1.AllScopes
	obj := &admissionregistrationv1.MutatingAdmissionPolicy{}
	obj.Name = name
	obj.Spec.FailurePolicy = &fail
	obj.Spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	rule := admissionregistrationv1.NamedRuleWithOperations{}
	rule.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	rule.APIGroups, rule.APIVersions, rule.Resources, rule.Scope = []string{"ex.io"}, []string{"*"}, []string{"*"}, &scope
	obj.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: &equivalent,
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule},
	}
	for _, o := range opts {
		o(obj)
	}
	return obj
}

func newPolicy(t testing.TB, name string, mutators []policy.Mutator, opts ...option) *policy.Policy {
	t.Helper()
	env, err := env()
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(policyObject(name, opts...), policy.Deps{Env: env}, mutators...)
	if err != nil {
		t.Fatalf("Compile(%s) error = %v", name, err)
	}
	return p
}

func run1(ms ...policy.Mutator) []policy.Mutator { return ms }

// namespaces knows those that are listed.
type namespaces []string

func (n namespaces) Namespace(_ context.Context, name string) (*unstructured.Unstructured, error) {
	if !slices.Contains(n, name) {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
	}
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}, nil
}

type unreachable struct{}

func (unreachable) Namespace(context.Context, string) (*unstructured.Unstructured, error) {
	return nil, errors.New("connection refused")
}

// params are ConfigMaps in the namespace t1, by name.
type params []string

func (p params) Kind(gvk schema.GroupVersionKind) (bool, error) {
	if gvk.Kind != "ConfigMap" {
		return false, errors.New("no such kind")
	}
	return true, nil
}

func (p params) Get(context.Context, schema.GroupVersionKind, string, string) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "x")
}

func (p params) List(context.Context, schema.GroupVersionKind, string, labels.Selector) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, name := range p {
		out = append(out, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "t1", "name": name}}})
	}
	return out, nil
}

func otherVersions(gvr schema.GroupVersionResource) []binding.Equivalent {
	return []binding.Equivalent{{Resource: widgets, Kind: widget}, {Resource: v2.GroupVersion().WithResource("widgets"), Kind: v2}}
}

func index(t testing.TB, src binding.Sources, policies ...*policy.Policy) *binding.Index {
	t.Helper()
	var bindings []*binding.Binding
	deny := admissionregistrationv1.DenyAction
	for _, p := range policies {
		obj := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
		obj.Name, obj.Spec.PolicyName = "b", p.Name()
		if len(policies) > 1 {
			obj.Name = "b-" + p.Name()
		}
		obj.Spec.ParamRef = &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: &deny}
		b, err := binding.Compile(obj)
		if err != nil {
			t.Fatal(err)
		}
		bindings = append(bindings, b)
	}
	ix, err := binding.NewIndex(policies, bindings, src)
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

func request() *policy.Request {
	return &policy.Request{
		Kind: widget, Resource: widgets, RequestKind: widget, RequestResource: widgets,
		Name: "w", Namespace: "t1", Operation: admissionv1.Create,
		Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "t1"},
		}},
	}
}

// record writes steps as lines, without times.
func record(steps []Step) []string {
	var out []string
	for _, s := range steps {
		line := fmt.Sprintf("%d %s/%s", s.Round, s.Policy, s.Binding)
		if s.Param != "" {
			line += " " + s.Param
		}
		line += fmt.Sprintf(" %d %s", s.Mutation, s.Outcome)
		if s.Reason != "" {
			line += ": " + s.Reason
		}
		if s.Err != nil {
			line += ": " + s.Err.Error()
		}
		if s.Ignored {
			line += " (ignored)"
		}
		out = append(out, line)
	}
	return out
}

func describe(s *metav1.Status) []string {
	if s == nil {
		return nil
	}
	out := []string{fmt.Sprintf("%d %s %s", s.Code, s.Reason, s.Message)}
	if s.Details != nil {
		out = append(out, fmt.Sprintf("%s.%s %q", s.Details.Kind, s.Details.Group, s.Details.Name))
		for _, c := range s.Details.Causes {
			out = append(out, c.Message)
		}
	}
	return out
}

func TestAdmit(t *testing.T) {
	bad := errors.New("bad luck")
	undecodable := apierrors.NewServiceUnavailable("Resource kind ex.io/v1, Kind=Widget not found.")
	noObject := request()
	noObject.Object, noObject.Operation = nil, admissionv1.Connect
	generated := request()
	generated.Name, generated.Object = "", &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"generateName": "w-"}}}
	elsewhere := request()
	elsewhere.Namespace = "gone"
	cluster := request()
	cluster.Namespace = ""

	tests := map[string]struct {
		policies   []*policy.Policy
		namespaces binding.Namespaces
		params     params
		req        *policy.Request
		log        string
		status     []string
		steps      []string
		rounds     int
	}{
		"§9.1 order is by name": {
			policies: []*policy.Policy{newPolicy(t, "c", run1(write("c"))), newPolicy(t, "a", run1(write("a"), write("A"))), newPolicy(t, "b", run1(write("b")))},
			log:      "aAbc", rounds: 2,
			steps: []string{"1 a/b-a 0 changed", "1 a/b-a 1 changed", "1 b/b-b 0 changed", "1 c/b-c 0 changed"},
		},
		"§9.3 Never runs once, IfNeeded twice": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a"))), newPolicy(t, "b", run1(write("b")), ifNeeded)},
			log:      "abb", rounds: 2,
			steps: []string{"1 a/b-a 0 changed", "1 b/b-b 0 changed", "2 b/b-b 0 changed"},
		},
		"§9.3 even a mutation without effect makes a second round": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(noop), ifNeeded)}, rounds: 2,
			steps: []string{"1 a/b 0 unchanged", "2 a/b 0 unchanged"},
		},
		"§9.3 nothing completed, one round": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(fails(bad)), ifNeeded, ignore)}, rounds: 1,
			steps: []string{"1 a/b 0 failed: bad luck (ignored)"},
		},
		"§9.3 an ignored failure runs again": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(fails(bad)), ifNeeded, ignore), newPolicy(t, "b", run1(noop))}, rounds: 2,
			steps: []string{"1 a/b-a 0 failed: bad luck (ignored)", "1 b/b-b 0 unchanged", "2 a/b-a 0 failed: bad luck (ignored)"},
		},
		"§9.3 who was skipped in round 1 does not join in round 2": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a")), ifNeeded, condition(`has(object.data)`)), newPolicy(t, "b", run1(write("b")))},
			log:      "b", rounds: 2,
			steps: []string{`1 a/b-a -1 skipped: match condition "c0" is false`, "1 b/b-b 0 changed"},
		},
		"§9.2 selectors see the object as it came": {
			policies: []*policy.Policy{
				newPolicy(t, "a", run1(mutator(func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
					u := in.Object.DeepCopy()
					u.SetLabels(map[string]string{"x": "y"})
					return u, nil
				}))),
				newPolicy(t, "b", run1(write("b")), ifNeeded, selecting("x", "y")),
			}, rounds: 2,
			steps: []string{"1 a/b-a 0 changed"},
		},
		"§4.3 conditions see earlier changes": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a"))), newPolicy(t, "b", run1(write("b")), condition(`object.data.log == "a"`))},
			log:      "ab", rounds: 2,
			steps: []string{"1 a/b-a 0 changed", "1 b/b-b 0 changed"},
		},
		"§4.3 conditions of Never policies are asked again, errors count": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(mutator(func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
				u := in.Object.DeepCopy()
				u.SetName("")
				return u, nil
			})), condition(`object.metadata.name != ""`))},
			rounds: 2,
			steps:  []string{"1 a/b 0 changed", "2 a/b -1 failed: expression 'object.metadata.name != \"\"' resulted in error: no such key: name"},
			status: []string{
				`403 Invalid policy 'a' with binding 'b' denied request: expression 'object.metadata.name != ""' resulted in error: no such key: name`, `widgets.ex.io "w"`,
				`policy 'a' with binding 'b' denied request: expression 'object.metadata.name != ""' resulted in error: no such key: name`,
			},
		},
		"§4.1 a false condition with the verdict's name": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a")), condition("true"), condition("false"))}, rounds: 1,
			steps: []string{`1 a/b -1 skipped: match condition "c1" is false`},
		},
		"§4.1 an ignored condition error skips": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a")), ignore, condition("object.nope == 1"))}, rounds: 1,
			steps: []string{"1 a/b -1 failed: expression 'object.nope == 1' resulted in error: no such key: nope (ignored)"},
		},
		"§4.4 an error does not stop the next mutation": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(fails(bad), write("z")), ignore)},
			log:      "z", rounds: 2,
			steps: []string{"1 a/b 0 failed: bad luck (ignored)", "1 a/b 1 changed"},
		},
		"§9.5 all errors are told, configuration first": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(fails(bad), write("z"))), newPolicy(t, "b", run1(noop), paramKind("Nope")), newPolicy(t, "c", run1(noop), paramKind("ConfigMap")), newPolicy(t, "d", run1(fails(bad)), ignore)},
			rounds:   1,
			status: []string{
				`403 Forbidden policy "b" denied request: failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nope'`, `widgets.ex.io "w"`,
				`policy "b" denied request: failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nope'`,
				"policy 'c' with binding 'b-c' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
				"policy 'a' with binding 'b-a' denied request: bad luck",
			},
			steps: []string{
				"1 b/ -1 failed: failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nope'",
				"1 c/b-c -1 failed: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
				"1 a/b-a 0 failed: bad luck", "1 a/b-a 1 changed", "1 d/b-d 0 failed: bad luck (ignored)",
			},
		},
		"§9.5 the first error that counts gives the reason": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(noop), paramKind("Nope"), ignore), newPolicy(t, "b", run1(fails(bad)))},
			rounds:   1,
			status:   []string{"403 Invalid policy 'b' with binding 'b-b' denied request: bad luck", `widgets.ex.io "w"`, "policy 'b' with binding 'b-b' denied request: bad luck"},
			steps: []string{
				"1 a/ -1 failed: failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nope' (ignored)",
				"1 b/b-b 0 failed: bad luck",
			},
		},
		"§9.5 the name is the generated one's beginning": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(fails(bad)))}, req: generated, rounds: 1,
			status: []string{"403 Invalid policy 'a' with binding 'b' denied request: bad luck", `widgets.ex.io "w-"`, "policy 'a' with binding 'b' denied request: bad luck"},
			steps:  []string{"1 a/b 0 failed: bad luck"},
		},
		"§9.5b a status error ends the request, even with Ignore": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(fails(bad))), newPolicy(t, "b", run1(fails(fmt.Errorf("wrapped: %w", undecodable)), write("x")), ignore), newPolicy(t, "c", run1(write("c")))},
			rounds:   1,
			status:   []string{"503 ServiceUnavailable Resource kind ex.io/v1, Kind=Widget not found."},
			steps:    []string{"1 a/b-a 0 failed: bad luck", "1 b/b-b 0 failed: wrapped: Resource kind ex.io/v1, Kind=Widget not found."},
		},
		"§9.5b a missing namespace": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a")), ignore)}, req: elsewhere, rounds: 1,
			status: []string{`404 NotFound namespaces "gone" not found`, `namespaces. "gone"`},
		},
		"an unreachable namespace counts as missing": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a")))}, namespaces: unreachable{}, rounds: 1,
			status: []string{`404 NotFound namespaces "t1" not found`, `namespaces. "t1"`},
		},
		"no namespace is fetched without an invocation": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(noop), paramKind("Nope"), ignore)}, req: elsewhere, rounds: 1,
			steps: []string{"1 a/ -1 failed: failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nope' (ignored)"},
		},
		"nor for cluster-scoped requests": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(write("a")))}, namespaces: unreachable{}, req: cluster,
			log: "a", rounds: 2, steps: []string{"1 a/b 0 changed"},
		},
		"no object, no mutation": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(panics, panics), ifNeeded)}, req: noObject, rounds: 1,
			steps: []string{"1 a/b 0 skipped: the request has no object", "1 a/b 1 skipped: the request has no object"},
		},
		"a panic is its policy's error": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(panics, write("a")), ignore), newPolicy(t, "b", run1(write("b")))},
			log:      "ab", rounds: 2,
			steps: []string{`1 a/b-a 0 failed: panic in policy "a": a string (ignored)`, "1 a/b-a 1 changed", "1 b/b-b 0 changed"},
		},
		"a mutation that returns nothing": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(nothing), ignore)}, rounds: 1,
			steps: []string{"1 a/b 0 failed: mutation returned no object (ignored)"},
		},
		"§3.1 one invocation for each parameter": {
			policies: []*policy.Policy{newPolicy(t, "a", run1(param), paramKind("ConfigMap"), ifNeeded, condition(`params.metadata.name != "q"`))}, params: params{"r", "q", "p"},
			log: "prpr", rounds: 2,
			steps: []string{
				"1 a/b t1/p 0 changed", `1 a/b t1/q -1 skipped: match condition "c0" is false`, "1 a/b t1/r 0 changed",
				"2 a/b t1/p 0 changed", "2 a/b t1/r 0 changed",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req := tt.req
			if req == nil {
				req = request()
			}
			var before map[string]any
			if req.Object != nil {
				before = req.Object.DeepCopy().Object
			}
			src := binding.Sources{Namespaces: namespaces{"t1"}, Params: tt.params}
			if tt.namespaces != nil {
				src.Namespaces = tt.namespaces
			}
			e := New(Options{})
			e.Publish(Policies(index(t, src, tt.policies...)))
			d := e.Admit(t.Context(), req)

			if diff := cmp.Diff(tt.steps, record(d.Steps)); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.status, describe(d.Status)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if got := max(1, d.Rounds(PolicyStage)); got != tt.rounds {
				t.Errorf("Rounds = %d, want %d", got, tt.rounds)
			}
			if (d.Object == nil) != (req.Object == nil) {
				t.Fatalf("Object = %v for a request with %v", d.Object, req.Object)
			}
			if req.Object == nil {
				return
			}
			if got := data(d.Object, "log"); got != tt.log {
				t.Errorf("log = %q, want %q", got, tt.log)
			}
			if want := tt.log != ""; tt.log != "" && d.Changed != want {
				t.Errorf("Changed = %v, want %v", d.Changed, want)
			}
			if !d.Changed && d.Object != req.Object {
				t.Error("unchanged, but another object")
			}
			if diff := cmp.Diff(before, req.Object.Object); diff != "" {
				t.Errorf("the request's object was modified:\n%s", diff)
			}
		})
	}
}

func TestBroken(t *testing.T) {
	err := errors.Join(
		&api.Fault{Phase: api.Compiling, Path: "spec.mutations[0].jsonPatch.expression", Part: api.Mutations, Index: 0, Err: errors.New("compilation failed: one")},
		&api.Fault{Phase: api.Compiling, Path: "spec.mutations[1].jsonPatch.expression", Part: api.Mutations, Index: 1, Err: errors.New("compilation failed: two")})
	e := New(Options{})
	e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}}, policy.Broken(policyObject("p"), err), newPolicy(t, "q", run1(write("q"))))))
	d := e.Admit(t.Context(), request())
	want := []string{
		"403 Invalid policy 'p' with binding 'b-p' denied request: compilation failed: one", `widgets.ex.io "w"`,
		"policy 'p' with binding 'b-p' denied request: compilation failed: one", "policy 'p' with binding 'b-p' denied request: compilation failed: two",
	}
	if diff := cmp.Diff(want, describe(d.Status)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}}, policy.Broken(policyObject("p", ignore), err), newPolicy(t, "q", run1(write("q"))))))
	d = e.Admit(t.Context(), request())
	if d.Status != nil || data(d.Object, "log") != "q" {
		t.Errorf("Admit() = %v, log %q, want the other policy's change", describe(d.Status), data(d.Object, "log"))
	}
	if d := e.Admit(t.Context(), &policy.Request{Kind: widget, Resource: widgets, Operation: admissionv1.Connect}); d.Status != nil || len(d.Steps) != 2 {
		t.Errorf("Admit(no object) = %v, %v, want two skipped steps", describe(d.Status), record(d.Steps))
	}
}

func TestBrokenVariable(t *testing.T) {
	obj := policyObject("p")
	obj.Spec.Variables = []admissionregistrationv1.Variable{{Name: "ok", Expression: "1"}, {Name: "v", Expression: "nope"}}
	obj.Spec.Mutations = []admissionregistrationv1.Mutation{{JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "f(variables.v)"}}}
	variable := &api.Fault{Phase: api.Compiling, Path: "spec.variables[1].expression", Part: api.Variables, Index: 1, Err: errors.New("compilation failed: undeclared reference to 'nope'")}
	mutation := &api.Fault{Phase: api.Compiling, Path: "spec.mutations[0].jsonPatch.expression", Part: api.Mutations, Index: 0,
		Expression: "f(variables.v)", Undefined: []string{"v"}, Err: errors.New("compilation failed: undefined field 'v'")}
	tests := map[string]struct {
		err  error
		want string
	}{
		"read":     {errors.Join(variable, mutation), `expression 'f(variables.v)' resulted in error: composited variable "v" fails to compile: compilation failed: undeclared reference to 'nope'`},
		"not read": {variable, "compilation failed: undeclared reference to 'nope'"},
		"conditions": {errors.Join(
			&api.Fault{Phase: api.Compiling, Path: "spec.matchConditions[0].expression", Part: api.MatchConditions, Index: 0, Err: errors.New("must evaluate to bool but got string")},
			&api.Fault{Phase: api.Compiling, Path: "spec.matchConditions[2].expression", Part: api.MatchConditions, Index: 2, Err: errors.New("compilation failed: two")}, variable, mutation),
			"[compilation error: must evaluate to bool but got string, compilation error: compilation failed: two]"},
		"other": {errors.New("no such policy language"), "no such policy language"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := brokenErrors(policy.Broken(obj, tt.err))
			if len(got) != 1 || got[0].Error() != tt.want {
				t.Errorf("brokenErrors() = %v, want %s", got, tt.want)
			}
		})
	}
}

// Spec §2.3, §9.4: every policy works on the same current object.
func TestVersions(t *testing.T) {
	toVersion := func(obj *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error) {
		return WithVersion(obj, to), nil
	}
	seen := func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		return with(in.Object, "log", data(in.Object, "log")+"["+in.Object.GetAPIVersion()+" "+in.Resource.Version+" "+in.Kind.Version+"]"), nil
	}
	policies := []*policy.Policy{newPolicy(t, "a", run1(mutator(seen)), onVersion("v1")), newPolicy(t, "b", run1(mutator(seen)), onVersion("v2")), newPolicy(t, "c", run1(mutator(seen)), onVersion("v1"))}
	tests := map[string]struct {
		convert  func(*unstructured.Unstructured, schema.GroupVersionKind) (*unstructured.Unstructured, error)
		policies []*policy.Policy
		log      string
		status   []string
		steps    int
	}{
		"both ways": {
			convert: toVersion, policies: policies, steps: 3,
			log: "[ex.io/v1 v1 v1][ex.io/v2 v2 v2][ex.io/v1 v1 v1]",
		},
		"no way": {
			policies: policies, steps: 3,
			status: []string{"403 Invalid policy 'b' with binding 'b-b' denied request: converting (v2.Widget) to (v1.Widget): unknown conversion", `widgets.ex.io "w"`,
				"policy 'b' with binding 'b-b' denied request: converting (v2.Widget) to (v1.Widget): unknown conversion"},
		},
		"no way, conditions still decide": {
			policies: []*policy.Policy{newPolicy(t, "b", run1(mutator(seen)), onVersion("v2"), condition(`object.metadata.name != "w"`))}, steps: 1,
		},
		"a conversion that fails": {
			convert: func(*unstructured.Unstructured, schema.GroupVersionKind) (*unstructured.Unstructured, error) {
				return nil, errors.New("webhook is down")
			},
			policies: policies, steps: 3,
			status: []string{`403 Forbidden policy "b" denied request: failed to configure policy: webhook is down`, `widgets.ex.io "w"`,
				`policy "b" denied request: failed to configure policy: webhook is down`},
		},
		"a conversion that fails is told once per binding and round": {
			convert: func(*unstructured.Unstructured, schema.GroupVersionKind) (*unstructured.Unstructured, error) {
				return nil, errors.New("webhook is down")
			},
			policies: []*policy.Policy{newPolicy(t, "a", run1(noop), onVersion("v1")), newPolicy(t, "b", run1(panics), onVersion("v2"), paramKind("ConfigMap"), ignore)}, steps: 3,
		},
		"a conversion that fails on the way back": {
			convert: func(obj *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error) {
				if to == widget {
					return nil, errors.New("webhook is down")
				}
				return WithVersion(obj, to), nil
			},
			policies: policies, steps: 2,
			status: []string{"500 InternalError Internal error occurred: failed to convert object: webhook is down", `. ""`, "failed to convert object: webhook is down"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := New(Options{Convert: tt.convert})
			e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}, Equivalents: otherVersions, Params: params{"p", "q"}}, tt.policies...)))
			d := e.Admit(t.Context(), request())
			if diff := cmp.Diff(tt.status, describe(d.Status)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if got := data(d.Object, "log"); got != tt.log {
				t.Errorf("log = %q, want %q", got, tt.log)
			}
			if got := d.Object.GetAPIVersion(); got != "ex.io/v1" {
				t.Errorf("apiVersion = %q, want the request's", got)
			}
			if len(d.Steps) != tt.steps {
				t.Errorf("steps = %q, want %d", record(d.Steps), tt.steps)
			}
		})
	}
}

func TestUnknownConversionText(t *testing.T) {
	tests := map[string]struct{ from, to schema.GroupVersionKind }{
		`converting (v1.HorizontalPodAutoscaler) to (v2.HorizontalPodAutoscaler): unknown conversion`: {
			schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler"}, schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}},
		`v1.Event is not suitable for converting to "events.k8s.io/v1"`: {
			schema.GroupVersionKind{Version: "v1", Kind: "Event"}, schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}},
	}
	for want, tt := range tests {
		if got := unknownConversion(tt.from, tt.to).Error(); got != want {
			t.Errorf("unknownConversion(%v, %v) = %q, want %q", tt.from, tt.to, got, want)
		}
	}
}

func TestSteps(t *testing.T) {
	e := New(Options{Trace: true})
	e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}}, newPolicy(t, "p", run1(write("x"), noop)))))
	d := e.Admit(t.Context(), request())
	if len(d.Steps) != 2 {
		t.Fatalf("steps = %q, want 2", record(d.Steps))
	}
	changed, unchanged := d.Steps[0], d.Steps[1]
	if got := changed.Paths(); !slices.Equal(got, []string{"/data"}) {
		t.Errorf("Paths() = %q, want [/data]", got)
	}
	if changed.Cost != 7 || changed.Before == changed.After || unchanged.Before != unchanged.After || unchanged.Before != changed.After {
		t.Errorf("steps do not tell cost and objects: %+v", d.Steps)
	}
	if got := unchanged.Paths(); got != nil {
		t.Errorf("Paths() = %q of an unchanged step", got)
	}
	if got := []string{Skipped.String(), Unchanged.String(), Changed.String(), Failed.String(), Outcome(9).String()}; !slices.Equal(got, []string{"skipped", "unchanged", "changed", "failed", "outcome 9"}) {
		t.Errorf("outcomes = %q", got)
	}
}

// What one policy did and another undid is no change.
func TestChangedBack(t *testing.T) {
	undo := mutator(func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		u := in.Object.DeepCopy()
		delete(u.Object, "data")
		return u, nil
	})
	e := New(Options{})
	e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}}, newPolicy(t, "p", run1(write("x"), undo)))))
	req := request()
	if d := e.Admit(t.Context(), req); d.Changed || d.Object != req.Object {
		t.Errorf("Changed = %v, want the request's own object", d.Changed)
	}
}

func TestInterrupted(t *testing.T) {
	var cancel context.CancelFunc
	stop := mutator(func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		cancel()
		return in.Object, nil
	})
	stopAndFail := mutator(func(context.Context, policy.Input) (*unstructured.Unstructured, error) {
		cancel()
		return nil, errors.New("operation interrupted")
	})
	tests := map[string]struct {
		expired  bool
		policies []*policy.Policy
		text     string
	}{
		"between two policies": {policies: []*policy.Policy{newPolicy(t, "a", run1(stop)), newPolicy(t, "b", run1(panics))}, text: "context canceled"},
		"inside one":           {policies: []*policy.Policy{newPolicy(t, "a", run1(stopAndFail), ignore)}, text: "context canceled"},
		"before the first":     {expired: true, policies: []*policy.Policy{newPolicy(t, "a", run1(panics))}, text: "context deadline exceeded"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			deadline := time.Now().Add(time.Hour)
			if tt.expired {
				deadline = time.Unix(0, 0)
			}
			var ctx context.Context
			ctx, cancel = context.WithDeadline(t.Context(), deadline)
			defer cancel()
			e := New(Options{})
			e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}}, tt.policies...)))
			got := describe(e.Admit(ctx, request()).Status)
			if want := "504 Timeout Timeout: evaluation of mutating admission policies stopped: " + tt.text; len(got) == 0 || got[0] != want {
				t.Errorf("status = %q, want %q", got, want)
			}
		})
	}
}

// Memory that was refused ends the request for all policies, whatever the error
// became on its way and whatever the failurePolicy is.
func TestMemoryRefused(t *testing.T) {
	tests := map[string]struct {
		charge int64
		others int64
		want   string
	}{
		"more than there is":    {charge: 8 << 20, want: "413 RequestEntityTooLarge Request entity too large: memory: the request needs more than 7 MiB, the most that one request may have"},
		"more than others left": {charge: 2 << 20, others: 6 << 20, want: "429 TooManyRequests memory: other requests hold what requests may have together; try again"},
	}
	for name, tt := range tests {
		for _, wrapped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, wrapped %v", name, wrapped), func(t *testing.T) {
				budget := memory.New(8 << 20)
				others := budget.Open()
				defer others.Close()
				if err := others.Charge(tt.others); err != nil {
					t.Fatal(err)
				}
				charges := mutator(func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
					err := in.Request.Memory.Charge(tt.charge)
					if wrapped {
						err = errors.New("an expression failed")
					}
					return nil, err
				})
				e := New(Options{})
				e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}}, newPolicy(t, "a", run1(charges), ignore), newPolicy(t, "b", run1(panics)))))
				req := request()
				req.Memory = budget.Open()
				defer req.Memory.Close()
				if got := describe(e.Admit(t.Context(), req).Status); len(got) == 0 || got[0] != tt.want {
					t.Errorf("status = %q, want %q", got, tt.want)
				}
			})
		}
	}
}

func TestNothingPublished(t *testing.T) {
	req := request()
	e := New(Options{})
	d := e.Admit(t.Context(), req)
	if d.Object != req.Object || d.Changed || d.Status != nil || e.Stages() != nil {
		t.Errorf("Admit() = %+v, want the request's object", d)
	}
}

// counting allows everything and counts.
type counting struct {
	authorizer.Authorizer
	asked *int
}

func (c counting) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	*c.asked++
	return authorizer.DecisionAllow, "", nil
}

func TestAuthorizerIsAskedOnce(t *testing.T) {
	asked := 0
	e := New(Options{Authorizer: counting{asked: &asked}})
	ask := mutator(func(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		decision, _, err := in.Authorizer.Authorize(ctx, authorizer.AttributesRecord{Verb: "get", Resource: "pods", ResourceRequest: true})
		if decision != authorizer.DecisionAllow || err != nil {
			t.Errorf("Authorize() = %v, %v", decision, err)
		}
		return in.Object, nil
	})
	e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}}, newPolicy(t, "a", run1(ask, ask), ifNeeded))))
	e.Admit(t.Context(), request())
	if asked != 1 {
		t.Errorf("asked %d times, want 1", asked)
	}
}

// Snapshots are swapped while requests run; each request sees one of them whole.
func TestHammerPublish(t *testing.T) {
	snapshot := func(word string) *binding.Index {
		var ps []*policy.Policy
		for i := range 4 {
			ps = append(ps, newPolicy(t, fmt.Sprintf("p%d", i), run1(write(word)), ifNeeded))
		}
		return index(t, binding.Sources{Namespaces: namespaces{"t1"}}, ps...)
	}
	e := New(Options{})
	snapshots := []*binding.Index{snapshot("a"), snapshot("b"), snapshot("c")}
	e.Publish(Policies(snapshots[0]))
	ctx := t.Context()
	stop := make(chan struct{})
	var publisher, clients sync.WaitGroup
	publisher.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				e.Publish(Policies(snapshots[i%len(snapshots)]))
			}
		}
	})
	for range 4 {
		clients.Go(func() {
			for range 300 {
				log := data(e.Admit(ctx, request()).Object, "log")
				if len(log) != 8 || strings.Trim(log, log[:1]) != "" {
					t.Errorf("log = %q, want eight times the same", log)
					return
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	publisher.Wait()
}

// fill makes n policies that a Widget in t1 does not meet.
func fill(t testing.TB, n int, how string) []*policy.Policy {
	var out []*policy.Policy
	for i := range n {
		p := policyObject(fmt.Sprintf("p%05d", i))
		switch how {
		case "other-resource":
			p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"gadgets"}
		case "other-namespace":
			p.Spec.MatchConstraints.NamespaceSelector.MatchLabels = map[string]string{"kubernetes.io/metadata.name": fmt.Sprintf("tenant-%d", i)}
		}
		out = append(out, policy.Broken(p, nil))
	}
	return out
}

type oneNamespace struct{ ns *unstructured.Unstructured }

func (o oneNamespace) Namespace(context.Context, string) (*unstructured.Unstructured, error) {
	return o.ns, nil
}

func missEngine(t testing.TB, n int, how string) *Engine {
	e := New(Options{})
	e.Publish(Policies(index(t, binding.Sources{Namespaces: oneNamespace{&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "t1", "labels": map[string]any{"kubernetes.io/metadata.name": "t1"}},
	}}}}, fill(t, n, how)...)))
	return e
}

// A request that no policy wants costs its Decision and nothing more.
func TestMissAllocatesTheDecisionOnly(t *testing.T) {
	for _, how := range []string{"other-resource", "other-namespace"} {
		t.Run(how, func(t *testing.T) {
			e, req, ctx := missEngine(t, 1000, how), request(), t.Context()
			if d := e.Admit(ctx, req); d.Steps != nil || d.Changed {
				t.Fatalf("Admit() = %+v, want nothing done", d)
			}
			if n := hammer.Allocs(t, func() { e.Admit(ctx, req) }); n > 1 {
				t.Errorf("Admit() makes %v allocations, want at most 1", n)
			}
		})
	}
}

func BenchmarkAdmit(b *testing.B) {
	for _, how := range []string{"other-resource", "other-namespace"} {
		for _, n := range []int{0, 10_000} {
			b.Run(fmt.Sprintf("miss/%s/%d", how, n), func(b *testing.B) {
				e, req, ctx := missEngine(b, n, how), request(), b.Context()
				if d := e.Admit(ctx, req); d.Steps != nil {
					b.Fatalf("Admit() took %d steps, want none", len(d.Steps))
				}
				b.ReportAllocs()
				for b.Loop() {
					e.Admit(ctx, req)
				}
			})
		}
	}
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("noop/%d", n), func(b *testing.B) {
			var ps []*policy.Policy
			for i := range n {
				ps = append(ps, newPolicy(b, fmt.Sprintf("p%03d", i), run1(noop)))
			}
			e, req, ctx := New(Options{}), request(), b.Context()
			e.Publish(Policies(index(b, binding.Sources{Namespaces: namespaces{"t1"}}, ps...)))
			if d := e.Admit(ctx, req); len(d.Steps) != n {
				b.Fatalf("Admit() took %d steps, want %d", len(d.Steps), n)
			}
			b.ReportAllocs()
			for b.Loop() {
				e.Admit(ctx, req)
			}
		})
	}
}
