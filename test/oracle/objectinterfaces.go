package oracle

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/mapd-project/mapd/test/cases"
)

// objectInterfaces is admission.ObjectInterfaces, put together by hand.
type objectInterfaces struct {
	creater    runtime.ObjectCreater
	typer      runtime.ObjectTyper
	defaulter  runtime.ObjectDefaulter
	convertor  runtime.ObjectConvertor
	equivalent runtime.EquivalentResourceMapper
}

func (o *objectInterfaces) GetObjectCreater() runtime.ObjectCreater     { return o.creater }
func (o *objectInterfaces) GetObjectTyper() runtime.ObjectTyper         { return o.typer }
func (o *objectInterfaces) GetObjectDefaulter() runtime.ObjectDefaulter { return o.defaulter }
func (o *objectInterfaces) GetObjectConvertor() runtime.ObjectConvertor { return o.convertor }
func (o *objectInterfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return o.equivalent
}

// builtinInterfaces are those of the built-in kinds. In a server every version
// is converted to and from an internal type; here the request's version stands
// in for it.
func builtinInterfaces(equivalent runtime.EquivalentResourceMapper) *objectInterfaces {
	return &objectInterfaces{
		creater: scheme.Scheme, typer: scheme.Scheme, defaulter: scheme.Scheme,
		convertor: builtinConvertor{scheme.Scheme}, equivalent: equivalent,
	}
}

type builtinConvertor struct{ *runtime.Scheme }

// Convert copies an object into one of the same type, which a server does by
// way of the internal type. For two versions of one kind it carries over the
// fields that have the same name: enough for the selection of a policy by
// matchPolicy Equivalent, after which any mutation fails in ConvertToVersion
// as it does in a server (spec §2.3). Everything else is the scheme's business.
func (c builtinConvertor) Convert(in, out, context any) error {
	from, to := reflect.ValueOf(in), reflect.ValueOf(out)
	switch {
	case from.Type() == to.Type() && from.Kind() == reflect.Pointer:
		to.Elem().Set(from.Elem())
		return nil
	case from.Kind() == reflect.Pointer && to.Kind() == reflect.Pointer && from.Elem().Type().Name() == to.Elem().Type().Name():
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(in)
		if err != nil {
			return err
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(tree, out)
	}
	return c.Scheme.Convert(in, out, context)
}

// customInterfaces are those of the custom resources: trees, no internal type,
// defaults from the structural schema.
func customInterfaces(crds []*apiextensionsv1.CustomResourceDefinition, equivalent runtime.EquivalentResourceMapper) (*objectInterfaces, error) {
	d, known := customDefaulter{}, customConvertor{}
	for _, crd := range crds {
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			s, err := cases.Structural(v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", crd.Name, err)
			}
			known[schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}] = true // served or not
			d[schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}] = s
		}
	}
	return &objectInterfaces{
		creater: customCreater{}, typer: crdserverscheme.NewUnstructuredObjectTyper(), defaulter: d,
		convertor: known, equivalent: equivalent,
	}, nil
}

type customCreater struct{}

func (customCreater) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

type customDefaulter map[schema.GroupVersionKind]*structuralschema.Structural

func (d customDefaulter) Default(in runtime.Object) {
	if u, ok := in.(*unstructured.Unstructured); ok {
		if s := d[u.GroupVersionKind()]; s != nil {
			structuraldefaulting.Default(u.Object, s)
		}
	}
}

// customConvertor is the conversion strategy None: a new apiVersion, which must
// be one that the server serves, as the old one must. Texts are those of
// k8s.io/apiextensions-apiserver …/conversion/converter.go.
type customConvertor map[schema.GroupVersion]bool

var errNotUnstructured = errors.New("a custom resource must be unstructured")

func (c customConvertor) Convert(in, out, _ any) error {
	from, ok1 := in.(*unstructured.Unstructured)
	to, ok2 := out.(*unstructured.Unstructured)
	if !ok1 || !ok2 {
		return errNotUnstructured
	}
	converted, err := c.ConvertToVersion(from, to.GroupVersionKind().GroupVersion())
	if err != nil {
		return err
	}
	to.Object = converted.(*unstructured.Unstructured).Object
	return nil
}

func (c customConvertor) ConvertToVersion(in runtime.Object, gv runtime.GroupVersioner) (runtime.Object, error) {
	from, ok := in.(*unstructured.Unstructured)
	if !ok {
		return nil, errNotUnstructured
	}
	gvk := from.GroupVersionKind()
	target, ok := gv.KindForGroupVersionKinds([]schema.GroupVersionKind{gvk})
	switch {
	case !ok:
		return nil, fmt.Errorf("%v is unstructured and is not suitable for converting to %q", gvk, gv)
	case !c[target.GroupVersion()]:
		return nil, fmt.Errorf("request to convert CR to an invalid group/version: %s", target.GroupVersion())
	case !c[gvk.GroupVersion()]:
		return nil, fmt.Errorf("request to convert CR from an invalid group/version: %s", gvk.GroupVersion())
	}
	out := from.DeepCopy()
	out.SetGroupVersionKind(target)
	return out, nil
}

func (customConvertor) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// builtinResources are the kinds a server serves without being asked to: every
// stable group-version that has a document.
var builtinResources = sync.OnceValue(func() []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if strings.Contains(gvk.Version, "alpha") || strings.Contains(gvk.Version, "beta") || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		if strings.HasSuffix(gvk.Kind, "List") || strings.HasSuffix(gvk.Kind, "Options") || gvk.Kind == "WatchEvent" {
			continue
		}
		if served()[gvk.GroupVersion()] {
			all = append(all, gvk)
		}
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return all
})

// newEquivalents fills the registry as a server does: the versions of a
// resource are equivalent, and so are the events of the two groups that have
// them (spec §2.3).
func newEquivalents(crds []*apiextensionsv1.CustomResourceDefinition) runtime.EquivalentResourceMapper {
	r := runtime.NewEquivalentResourceRegistryWithIdentity(func(gr schema.GroupResource) string {
		if gr.Resource == "events" && (gr.Group == "" || gr.Group == "events.k8s.io") {
			return "events"
		}
		return ""
	})
	for _, gvk := range builtinResources() {
		gvr, _ := meta.UnsafeGuessKindToResource(gvk)
		r.RegisterKindFor(gvr, "", gvk)
		r.RegisterKindFor(gvr, "status", gvk)
	}
	for _, crd := range crds {
		for _, v := range crd.Spec.Versions {
			if !v.Served {
				continue
			}
			gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
			gvr, gvk := gv.WithResource(crd.Spec.Names.Plural), gv.WithKind(crd.Spec.Names.Kind)
			r.RegisterKindFor(gvr, "", gvk)
			if v.Subresources != nil && v.Subresources.Status != nil {
				r.RegisterKindFor(gvr, "status", gvk)
			}
			if v.Subresources != nil && v.Subresources.Scale != nil {
				r.RegisterKindFor(gvr, "scale", schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"})
			}
		}
	}
	return r
}

// toTyped decodes a tree into the Go type of its kind, with apiVersion and kind.
func toTyped(u *unstructured.Unstructured) (runtime.Object, error) {
	gvk := u.GroupVersionKind()
	typed, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return nil, err
	}
	typed.GetObjectKind().SetGroupVersionKind(gvk)
	return typed, nil
}
