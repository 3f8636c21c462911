package export

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/requests"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// maxTried bounds the generated requests of one comparison, and maxNamespaces the number of their
// namespaces.
const maxTried, maxNamespaces = 20_000, 3

// World has the policies to compare, and the objects that they depend on.
type World struct {
	// Policies are the original policies and bindings.
	Policies []*unstructured.Unstructured
	// Context are the other objects: parameters, Namespaces, definitions.
	Context []*unstructured.Unstructured
	// Given are objects to compare on, besides generated ones.
	Given []*unstructured.Unstructured
	// Namespace is the namespace of objects that have none.
	Namespace string
	// Version is that of the expression language.
	Version string
	// Exempt are namespaces in which the results are not compared.
	Exempt []string
}

// Comparison counts the requests on which policies were compared.
type Comparison struct {
	Requests, Changed, Refused int
	// First describes the first difference; "" if there is none.
	First string
}

// Compare compares the original policies of all with their manifests. An error is that of ctx, or
// the reason why nothing could be compared.
func (w *World) Compare(ctx context.Context, all ...*Policy) (*Comparison, error) {
	var before, after []*unstructured.Unstructured
	var namespaces []string
	for _, p := range all {
		for _, u := range w.Policies {
			name := u.GetName()
			if of, ok, _ := unstructured.NestedString(u.Object, "spec", "policyName"); ok {
				name = of
			}
			if name == p.Name {
				before = append(before, u)
			}
		}
		for _, m := range p.Manifests {
			for _, u := range m.Objects() {
				after = append(after, tried(u))
			}
		}
		namespaces = append(namespaces, p.namespaces...)
	}
	for _, u := range w.Context {
		if u.GetKind() == "Namespace" && u.GetAPIVersion() == "v1" {
			namespaces = append(namespaces, u.GetName())
		}
	}
	namespaces = slices.DeleteFunc(namespaces, func(n string) bool { return slices.Contains(w.Exempt, n) })
	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	observing, err := cel.NewEnv(cel.Options{Version: w.Version, Observe: true})
	if err != nil {
		return nil, err
	}
	was, err := w.load(mapd.Options{Namespace: w.Namespace, ToolOptions: mapd.ToolOptions{Env: observing}}, before)
	if err != nil {
		return nil, fmt.Errorf("the policies cannot be tried: %w", err)
	}
	is, err := w.load(mapd.Options{Kubernetes: w.Version, Namespace: w.Namespace}, after)
	if err != nil {
		return nil, fmt.Errorf("what is written for them cannot be tried: %w", err)
	}
	c := &Comparison{}
	limit := len(w.Given)*2 + maxTried
	each := func(r *mapd.Request, got *mapd.Result) {
		if c.First == "" && c.Requests < limit && !slices.Contains(w.Exempt, r.Admission.Namespace) && ctx.Err() == nil {
			c.request(ctx, is, r, got)
		}
	}
	for _, u := range w.Given {
		requests.Offer(ctx, was, u, each)
	}
	requests.Try(ctx, was, namespaces[:min(len(namespaces), maxNamespaces)], each)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return c, nil
}

// tried returns a copy of a manifest under a name that mapd accepts, in the same order.
func tried(u *unstructured.Unstructured) *unstructured.Unstructured {
	rename := func(name string) string { return strings.TrimSuffix(name, Suffix) + ".static.k8s.to" }
	u.SetName(rename(u.GetName()))
	if name, ok, _ := unstructured.NestedString(u.Object, "spec", "policyName"); ok {
		_ = unstructured.SetNestedField(u.Object, rename(name), "spec", "policyName") // it has a spec
	}
	return u
}

func (w *World) load(o mapd.Options, objects []*unstructured.Unstructured) (*mapd.Policies, error) {
	var text []byte
	for _, u := range slices.Concat(objects, w.Context) {
		text = append(append(text, "---\n"...), manifest.Encode(u.Object)...)
	}
	return mapd.Load(o, mapd.File{Name: "policies", Data: text})
}

// request compares the results of a request under the original policies and under the manifests.
func (c *Comparison) request(ctx context.Context, is *mapd.Policies, r *mapd.Request, got *mapd.Result) {
	q := r.Admission
	c.Requests++
	before := got.Decision
	after := is.Engine().Admit(ctx, &policy.Request{
		UID: q.UID, Kind: q.Kind, Resource: q.Resource, SubResource: q.SubResource, RequestKind: q.RequestKind,
		RequestResource: q.RequestResource, RequestSubResource: q.RequestSubResource, Name: q.Name, Namespace: q.Namespace,
		Operation: q.Operation, UserInfo: q.UserInfo, DryRun: q.DryRun, Options: q.Options, Object: q.Object, OldObject: q.OldObject,
	})
	what := fmt.Sprintf("%s of %s", q.Operation, r.Name())
	switch {
	case ctx.Err() != nil:
	case before.Status != nil && after.Status != nil:
		c.Refused++
	case before.Status != nil:
		c.First = fmt.Sprintf("%s was refused (%s), and would not be", what, before.Status.Message)
	case after.Status != nil:
		c.First = fmt.Sprintf("%s would be refused: %s", what, after.Status.Message)
	case !tree.Equal(object(before.Object), object(after.Object)):
		var paths []string
		for _, op := range tree.Diff(object(before.Object), object(after.Object)) {
			paths = append(paths, op.Path)
		}
		c.First = fmt.Sprintf("%s would become another object: %s", what, strings.Join(paths[:min(len(paths), 3)], ", "))
	case q.Object != nil && !tree.Equal(object(before.Object), q.Object.Object):
		c.Changed++
	}
}

func object(u *unstructured.Unstructured) map[string]any {
	if u == nil {
		return nil
	}
	return u.Object
}
