package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/openapi/smd"
)

// converters hands out one type converter per group-version, as a server's
// manager does: it is built from the OpenAPI document of that group-version
// alone, which is why a Scale has no type (spec §2.6).
type converters struct {
	custom map[schema.GroupVersion]managedfields.TypeConverter
}

func newConverters(crds []*apiextensionsv1.CustomResourceDefinition) (*converters, error) {
	specs := map[schema.GroupVersion][]*spec3.OpenAPI{}
	for _, crd := range crds {
		for _, v := range crd.Spec.Versions {
			if !v.Served {
				continue
			}
			doc, err := builder.BuildOpenAPIV3(crd, v.Name, builder.Options{V2: false})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", crd.Name, err)
			}
			gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
			specs[gv] = append(specs[gv], doc)
		}
	}
	c := &converters{custom: map[schema.GroupVersion]managedfields.TypeConverter{}}
	for gv, docs := range specs {
		merged, err := builder.MergeSpecsV3(docs...)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", gv, err)
		}
		// A server gets the document over HTTP, so it goes through JSON here too.
		data, err := json.Marshal(merged)
		if err != nil {
			return nil, err
		}
		if c.custom[gv], err = newConverter(data); err != nil {
			return nil, fmt.Errorf("%v: %w", gv, err)
		}
	}
	return c, nil
}

func newConverter(document []byte) (managedfields.TypeConverter, error) {
	var doc spec3.OpenAPI
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, err
	}
	if doc.Components == nil {
		return nil, fmt.Errorf("the document has no schemas")
	}
	return managedfields.NewTypeConverter(doc.Components.Schemas, false)
}

// GetTypeConverter returns nil for a group-version without a document; the
// dispatcher answers 503 then.
func (c *converters) GetTypeConverter(gvk schema.GroupVersionKind) managedfields.TypeConverter {
	if custom, ok := c.custom[gvk.GroupVersion()]; ok {
		return custom
	}
	if !served()[gvk.GroupVersion()] {
		return nil
	}
	return builtinConverter{}
}

// builtinTypes are the schemas that mapd embeds; the documents are a server's.
var builtinTypes = sync.OnceValue(func() *openapi.Types { return openapi.New(openapi.Builtin()) })

// served are the built-in group-versions that have a document.
var served = sync.OnceValue(func() map[schema.GroupVersion]bool {
	all := map[schema.GroupVersion]bool{}
	for _, gv := range openapi.Builtin().GroupVersions() {
		all[gv] = true
	}
	return all
})

// builtinConverter is managedfields.NewTypeConverter over a schema that is
// already made; that function takes the document. It looks kinds up in a map,
// as that one does, so that benchmarks measure the same thing.
type builtinConverter struct{}

var parseable sync.Map // schema.GroupVersionKind → typed.ParseableType

func (builtinConverter) ObjectToTyped(obj runtime.Object, opts ...smd.ValidationOptions) (*smd.TypedValue, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	known, ok := parseable.Load(gvk)
	if !ok {
		kind, err := builtinTypes().Kind(gvk)
		if err != nil {
			return nil, fmt.Errorf("no corresponding type for %v", gvk)
		}
		s, ref := kind.Schema()
		known, _ = parseable.LoadOrStore(gvk, smd.ParseableType{Schema: s, TypeRef: ref})
	}
	t := known.(smd.ParseableType)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return t.FromUnstructured(u.Object, opts...)
	}
	return t.FromStructured(obj, opts...)
}

func (builtinConverter) TypedToObject(v *smd.TypedValue) (runtime.Object, error) {
	tree, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the merged value is not a map")
	}
	return &unstructured.Unstructured{Object: tree}, nil
}

// Run is where a server polls for new documents; these do not change.
func (c *converters) Run(context.Context) {}
