package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// policySide is the side of the policies: a server with policies and bindings.
type policySide struct{ engine *engine.Engine }

// newest is the newest environment of expressions. It is made once, because
// that takes long.
var newest = sync.OnceValues(func() (*cel.Env, error) { return cel.NewEnv(cel.Options{}) })

// Refused returns why a server refuses a policy for its expressions; nil if it does not.
func Refused(types *openapi.Types, p *admissionregistrationv1.MutatingAdmissionPolicy) error {
	env, err := newest()
	if err != nil {
		return err
	}
	if _, err := policy.Compile(p, policy.Deps{Env: env, Types: types}); err != nil {
		return refusal(err)
	}
	return nil
}

// written returns the policies of units.
func written(units []translate.Unit) []Written {
	var out []Written
	for _, u := range units {
		if u.Policy == nil {
			continue
		}
		w := Written{Policy: u.Policy, Binding: u.Binding}
		if u.Params != nil {
			w.Params = []*unstructured.Unstructured{u.Params}
		} else if u.Policy.Spec.ParamKind != nil {
			for _, m := range u.Mutators {
				w.Params = append(w.Params, &unstructured.Unstructured{Object: plain(m.Object)})
			}
		}
		out = append(out, w)
	}
	return out
}

// newPolicySide creates policies and bindings as a server would: decoded strictly,
// validated, compiled. Its error is the one with which a server would refuse them.
func newPolicySide(types *openapi.Types, all []Written) (*policySide, error) {
	env, err := newest()
	if err != nil {
		return nil, err
	}
	params := newParams()
	src := binding.Sources{Params: params, Namespaces: given{}, Equivalents: policyset.Equivalents(types)}
	var policies []*policy.Policy
	var bindings []*binding.Binding
	for _, u := range all {
		written, err := api.JSON(api.Object(u.Policy, api.NativeGroup))
		if err != nil {
			return nil, fmt.Errorf("policy %q: %w", u.Policy.Name, err)
		}
		p := compile.NewPolicy(context.Background(), written, compile.New, policy.Deps{Env: env, Types: types})
		if p.Err != nil {
			return nil, fmt.Errorf("policy %q: %w", u.Policy.Name, refusal(p.Err))
		}
		policies = append(policies, p.Program)
		if u.Binding == nil {
			return nil, fmt.Errorf("policy %q: has no binding", u.Policy.Name)
		}
		if written, err = api.JSON(api.Object(u.Binding, api.NativeGroup)); err != nil {
			return nil, fmt.Errorf("binding %q: %w", u.Binding.Name, err)
		}
		b := compile.NewBinding(written, compile.New)
		if b.Err != nil {
			return nil, fmt.Errorf("binding %q: %w", u.Binding.Name, refusal(b.Err))
		}
		bindings = append(bindings, b.Program)
		for _, param := range u.Params {
			gvk := param.GroupVersionKind()
			if kind := u.Policy.Spec.ParamKind; kind != nil {
				gvk = schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
			}
			params.Put(gvk, param)
		}
	}
	ix, err := binding.NewIndex(policies, bindings, src)
	if err != nil {
		return nil, err
	}
	e := engine.New(engine.Options{Convert: policyset.Convert(types)})
	e.Publish(engine.Policies(ix))
	return &policySide{e}, nil
}

// PolicyReference returns a reference that runs policies, to compare others with.
func PolicyReference(types *openapi.Types, policies []Written) (Reference, error) {
	side, err := newPolicySide(types, policies)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, r Request) (Result, error) {
		q := newRequest(types, Object{Object: r.Object, Namespace: r.Namespace, User: r.User, Groups: r.Groups}, r.Operation, r.Old)
		if q == nil {
			return Result{}, errors.New("an object that a server does not admit")
		}
		return side.run(ctx, q), nil
	}, nil
}

// refusal returns a server's error on one line.
func refusal(err error) error {
	if faults := (api.Faults)(nil); errors.As(err, &faults) {
		return faults.ToAggregate()
	}
	return err
}

// newParams returns parameters that are mutators or ConfigMaps.
func newParams() *binding.MemoryParams {
	return binding.NewMemoryParams(func(gvk schema.GroupVersionKind) (bool, error) {
		switch {
		case gvk == schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}:
			return true, nil
		case !legacy.IsMutator(gvk):
			return false, fmt.Errorf("%s: not a mutator", gvk)
		}
		return false, nil
	})
}

// given returns the Namespace that came with the object.
type given struct{}

type namespaceKey struct{}

func (given) Namespace(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	ns, _ := ctx.Value(namespaceKey{}).(map[string]any)
	if ns == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
	}
	return &unstructured.Unstructured{Object: ns}, nil
}

func (s *policySide) run(ctx context.Context, r *request) Result {
	req := &policy.Request{
		UID:  "verify",
		Kind: r.gvk, Resource: r.resource.GVR,
		RequestKind: r.gvk, RequestResource: r.resource.GVR,
		Name: r.name(), Namespace: r.namespaceName(),
		Operation: admissionv1.Operation(r.operation),
		UserInfo:  authenticationv1.UserInfo{Username: r.user, Groups: r.groups},
		Object:    &unstructured.Unstructured{Object: r.object},
	}
	if r.old != nil {
		req.OldObject = &unstructured.Unstructured{Object: r.old}
	}
	d := s.engine.Admit(context.WithValue(ctx, namespaceKey{}, r.namespace), req)
	if d.Status != nil {
		return Result{Refused: firstLine(d.Status.Message)}
	}
	return Result{Object: d.Object.Object}
}
