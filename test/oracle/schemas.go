package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/spec3"
)

// converters hands out one type converter per group-version, as a server's
// manager does: it is built from the OpenAPI document of that group-version
// alone, which is why a Scale has no type (spec §2.6).
type converters struct {
	custom map[schema.GroupVersion]managedfields.TypeConverter
}

// builtin keeps the converters of the built-in group-versions for the life of
// the process: the one of core/v1 takes tens of milliseconds to build.
var builtin struct {
	mu  sync.Mutex
	all map[schema.GroupVersion]managedfields.TypeConverter
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
	gv := gvk.GroupVersion()
	if custom, ok := c.custom[gv]; ok {
		return custom
	}
	builtin.mu.Lock()
	defer builtin.mu.Unlock()
	if known, ok := builtin.all[gv]; ok {
		return known
	}
	data, ok := document(gv)
	if !ok {
		return nil
	}
	made, err := newConverter(data)
	if err != nil {
		return nil
	}
	if builtin.all == nil {
		builtin.all = map[schema.GroupVersion]managedfields.TypeConverter{}
	}
	builtin.all[gv] = made
	return made
}

// Run is where a server polls for new documents; these do not change.
func (c *converters) Run(context.Context) {}
