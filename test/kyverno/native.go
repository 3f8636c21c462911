package kyverno

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/kyverno/convert"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

var types = openapi.New(openapi.Builtin())

// Native is mapd's engine with converted policies.
type Native struct{ engine *engine.Engine }

// params finds the ConfigMaps that are in the context.
type params struct{}

type configMapsKey struct{}

var configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

func (params) Kind(gvk schema.GroupVersionKind) (namespaced bool, err error) {
	if gvk != configMapKind {
		return false, fmt.Errorf("%s: no parameters", gvk)
	}
	return true, nil
}

func (params) Get(ctx context.Context, _ schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	all, _ := ctx.Value(configMapsKey{}).(map[string]map[string]string)
	data, ok := all[namespace+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	values := map[string]any{}
	for k, v := range data {
		values[k] = v
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": namespace}, "data": values,
	}}, nil
}

func (params) List(context.Context, schema.GroupVersionKind, string, labels.Selector) ([]*unstructured.Unstructured, error) {
	return nil, errors.New("no binding selects parameters")
}

// NewNative creates the policies and bindings as a server would: decoded strictly, validated,
// compiled.
func NewNative(units []convert.Unit) (*Native, error) {
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		return nil, err
	}
	src := binding.Sources{Params: params{}, Namespaces: given{}, Equivalents: policyset.Equivalents(types)}
	var policies []*policy.Policy
	var bindings []*binding.Binding
	for _, u := range units {
		data, err := api.JSON(api.Object(u.Policy, api.NativeGroup))
		if err != nil {
			return nil, err
		}
		p := compile.NewPolicy(context.Background(), data, compile.New, policy.Deps{Env: env, Types: types})
		if p.Err != nil {
			return nil, fmt.Errorf("policy %s: %w", u.Name, flat(p.Err))
		}
		policies = append(policies, p.Program)
		if data, err = api.JSON(api.Object(u.Binding, api.NativeGroup)); err != nil {
			return nil, err
		}
		b := compile.NewBinding(data, compile.New)
		if b.Err != nil {
			return nil, fmt.Errorf("binding %s: %w", u.Name, flat(b.Err))
		}
		bindings = append(bindings, b.Program)
	}
	ix, err := binding.NewIndex(policies, bindings, src)
	if err != nil {
		return nil, err
	}
	e := engine.New(engine.Options{Convert: policyset.Convert(types)})
	e.Publish(engine.Policies(ix))
	return &Native{e}, nil
}

func flat(err error) error {
	if faults := (api.Faults)(nil); errors.As(err, &faults) {
		return faults.ToAggregate()
	}
	return err
}

// given returns the Namespace that is in the context.
type given struct{}

type namespaceKey struct{}

func (given) Namespace(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	ns, _ := ctx.Value(namespaceKey{}).(map[string]any)
	if ns == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
	}
	return &unstructured.Unstructured{Object: ns}, nil
}

// Mutate runs the policies on an object.
func (n *Native) Mutate(ctx context.Context, r Request) Result {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(r.Object)}
	gvk := u.GroupVersionKind()
	resource, _ := types.ResourceFor(gvk)
	req := &policy.Request{
		UID: "test", Kind: gvk, Resource: resource.GVR, RequestKind: gvk, RequestResource: resource.GVR,
		Name: u.GetName(), Namespace: u.GetNamespace(), Operation: admissionv1.Operation(r.Operation),
		UserInfo: authenticationv1.UserInfo{Username: r.User, Groups: r.Groups}, Object: u,
	}
	if gvk.Kind == "Namespace" {
		req.Namespace = u.GetName()
	}
	if r.OldObject != nil {
		req.OldObject = &unstructured.Unstructured{Object: r.OldObject}
	}
	labels := map[string]any{}
	for k, v := range r.NamespaceLabels {
		labels[k] = v
	}
	ns := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": req.Namespace, "labels": labels}}
	ctx = context.WithValue(ctx, configMapsKey{}, r.ConfigMaps)
	d := n.engine.Admit(context.WithValue(ctx, namespaceKey{}, ns), req)
	if d.Status != nil {
		return Result{Error: d.Status.Message}
	}
	return Result{Object: d.Object.Object}
}

// Stored returns an object as a server stores it after a webhook, or why it cannot: unknown
// fields are dropped, and defaults filled in.
func Stored(r Result) Result {
	if r.Error != "" {
		return r
	}
	u := &unstructured.Unstructured{Object: r.Object}
	kind, err := types.Kind(u.GroupVersionKind())
	if err != nil {
		return Result{Error: err.Error()}
	}
	obj := plain(r.Object)
	out, err := kind.Normalize(obj)
	if runtime.IsStrictDecodingError(err) {
		out, err = kind.Settle(nil, obj, openapi.FromApply)
	}
	if err != nil {
		return Result{Error: "the API server cannot decode the result: " + err.Error()}
	}
	return Result{Object: plain(verify.Defaulted(out)), Rules: r.Rules}
}

// plain returns an object as if it had been read from JSON.
func plain(obj map[string]any) map[string]any {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil
	}
	out, err := tree.Decode(data)
	if err != nil {
		return nil
	}
	return out
}

// Same reports whether two results agree: both refused, for whatever reason, or equal as they
// are stored.
func Same(a, b Result) bool {
	if a.Error != "" || b.Error != "" {
		return a.Error != "" && b.Error != ""
	}
	return tree.Equal(packed(a.Object), packed(b.Object))
}

// packed returns a tree as protocol buffers store it: without empty lists.
func packed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if l, ok := e.([]any); e != nil && (!ok || len(l) > 0) {
				out[k] = packed(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = packed(e)
		}
		return out
	}
	return v
}

func text(v any) string {
	data, _ := json.Marshal(v)
	return strings.TrimSpace(string(data))
}
