package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/internal/rbac"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/cases"
)

// Every case of the corpus has the result, the rounds and, where it lists them,
// the steps that it wants.
func TestCases(t *testing.T) {
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases.All(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if reason := c.Skip["engine"]; reason != "" {
				t.Skip(reason)
			}
			e, err := newEngine(env, &c)
			if err != nil {
				t.Fatal(err)
			}
			req := newRequest(&c)
			given := deepCopy(req.Object)
			d := e.Admit(t.Context(), req)
			got := cases.Outcome{Object: d.Object, Status: d.Status, Rounds: d.Rounds}
			if diff := c.Diff(got); diff != "" {
				t.Errorf("%s\n%s\nsteps:\n%s", c.Story, diff, formatSteps(d.Steps))
			}
			if c.WantSteps != "" {
				if diff := cmp.Diff(c.WantSteps, formatSteps(d.Steps)); diff != "" {
					t.Errorf("steps (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(given, req.Object); diff != "" {
				t.Errorf("the request's object was modified:\n%s", diff)
			}
		})
	}
}

func deepCopy(u *unstructured.Unstructured) *unstructured.Unstructured {
	if u == nil {
		return nil
	}
	return u.DeepCopy()
}

// formatSteps writes the record of what happened, a line for each step, in
// columns that do not depend on other lines.
func formatSteps(steps []engine.Step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "round %d  %s", s.Round, s.Policy)
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

// newEngine is an engine that knows what a case gives and nothing else.
func newEngine(env *cel.Env, c *cases.Case) (*engine.Engine, error) {
	types := openapi.New(openapi.Builtin())
	if len(c.CRDs) > 0 {
		custom, err := openapi.CRDs(c.CRDs...)
		if err != nil {
			return nil, err
		}
		types = openapi.New(openapi.Builtin(), custom)
	}
	var policies []*policy.Policy
	for _, u := range c.Policies {
		obj, err := policy.Decode(u)
		if err != nil {
			return nil, err
		}
		p, err := policy.Compile(obj, policy.Deps{Env: env, Types: types})
		if err != nil {
			p = policy.Broken(obj, err)
		}
		policies = append(policies, p)
	}
	var bindings []*binding.Binding
	for _, u := range c.Bindings {
		obj, err := binding.Decode(u)
		if err != nil {
			return nil, err
		}
		b, err := binding.Compile(obj)
		if err != nil {
			return nil, err
		}
		bindings = append(bindings, b)
	}
	ix, err := binding.NewIndex(policies, bindings, binding.Sources{
		Params:     caseParams{types, c.Params},
		Namespaces: caseNamespaces(c.Namespaces),
		Equivalents: func(gvr schema.GroupVersionResource) []binding.Equivalent {
			var out []binding.Equivalent
			for _, r := range types.Equivalents(gvr) {
				out = append(out, binding.Equivalent{Resource: r.GVR, Kind: r.Kind})
			}
			return out
		},
	})
	if err != nil {
		return nil, err
	}
	var authz authorizer.Authorizer = rbac.NoOpinion{}
	if len(c.RBAC) > 0 {
		if authz, err = rbac.New(c.RBAC...); err != nil {
			return nil, err
		}
	}
	e := engine.New(engine.Options{
		Authorizer: authz,
		Convert: func(obj *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error) {
			kind, err := types.Kind(obj.GroupVersionKind())
			if err != nil || !kind.ConvertibleTo(to) {
				return nil, engine.ErrNoConversion
			}
			return engine.WithVersion(obj, to), nil
		},
	})
	e.Publish(ix)
	return e, nil
}

func newRequest(c *cases.Case) *policy.Request {
	r := &c.Request
	return &policy.Request{
		UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: admissionv1.Operation(r.Operation),
		Kind: r.Kind, Resource: r.Resource, SubResource: r.SubResource,
		RequestKind: r.RequestKind, RequestResource: r.RequestResource, RequestSubResource: r.RequestSubResource,
		Name: r.Name, Namespace: r.Namespace, UserInfo: r.User, DryRun: r.DryRun, Options: r.Options,
		Object: r.Object, OldObject: r.OldObject,
	}
}

type caseNamespaces []*unstructured.Unstructured

func (n caseNamespaces) Namespace(_ context.Context, name string) (*unstructured.Unstructured, error) {
	i := slices.IndexFunc(n, func(u *unstructured.Unstructured) bool { return u.GetName() == name })
	if i < 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
	}
	return informed(n[i]), nil
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

type caseParams struct {
	types   *openapi.Types
	objects []*unstructured.Unstructured
}

func (p caseParams) Kind(gvk schema.GroupVersionKind) (bool, error) {
	r, ok := p.types.ResourceFor(gvk)
	if !ok {
		return false, fmt.Errorf("%v is not served", gvk)
	}
	return r.Namespaced, nil
}

func (p caseParams) Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	list, err := p.List(ctx, gvk, namespace, labels.Everything())
	for _, u := range list {
		if u.GetName() == name {
			return u, nil
		}
	}
	if err == nil {
		err = apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name)
	}
	return nil, err
}

func (p caseParams) List(_ context.Context, gvk schema.GroupVersionKind, namespace string, sel labels.Selector) ([]*unstructured.Unstructured, error) {
	kind, err := p.types.Kind(gvk)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, u := range p.objects {
		if u.GroupVersionKind() != gvk || u.GetNamespace() != namespace || !sel.Matches(labels.Set(u.GetLabels())) {
			continue
		}
		if kind.Builtin() {
			u = informed(u)
		}
		out = append(out, u)
	}
	return out, nil
}
