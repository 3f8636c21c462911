package openapi

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/mapd-project/mapd/test/hammer"
)

const gadgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.ex.io}
spec:
  group: ex.io
  scope: Cluster
  names: {plural: gadgets, kind: Gadget}
  versions:
  - name: v2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  - name: v1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {a: {type: array, items: {type: array, items: {type: string}}}}}}}}
  - name: v1beta1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object}}
  - name: v1alpha1
    served: false
    storage: false
    schema: {openAPIV3Schema: {type: object}}
`

// The document that we make of a definition gives the schema that the
// server's document gives.
func TestCRDSchemaIsUpstreams(t *testing.T) {
	hammer.Alone(t)
	types := New(mustCRDs(t, widgetCRD, gadgetCRD))
	for _, src := range []string{widgetCRD, gadgetCRD} {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := json.Unmarshal([]byte(mustJSON(t, src)), &crd); err != nil {
			t.Fatal(err)
		}
		if crd.Spec.Names.ListKind == "" {
			crd.Spec.Names.ListKind = crd.Spec.Names.Kind + "List"
		}
		for _, v := range crd.Spec.Versions {
			if !v.Served {
				continue
			}
			doc, err := builder.BuildOpenAPIV3(&crd, v.Name, builder.Options{V2: false, IncludeSelectableFields: true})
			if err != nil {
				t.Fatal(err)
			}
			data, err := json.Marshal(doc) // as it travels
			if err != nil {
				t.Fatal(err)
			}
			var published spec3.OpenAPI
			if err := json.Unmarshal(data, &published); err != nil {
				t.Fatal(err)
			}
			for _, kind := range []string{crd.Spec.Names.Kind, crd.Spec.Names.ListKind} {
				gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: kind}
				us, uref := upstreamSchema(t, published.Components.Schemas, gvk)
				k, err := types.Kind(gvk)
				if err != nil {
					t.Fatal(err)
				}
				s, ref := k.Schema()
				if diff := cmp.Diff(flatten(us, uref), flatten(s, ref)); diff != "" {
					t.Errorf("%v: schema differs (-upstream +ours):\n%s", gvk, diff)
				}
			}
		}
	}
}

func TestCRDErrors(t *testing.T) {
	crd := func(spec string) string {
		return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: foos.ex.io}\nspec: " + spec
	}
	const head = `{group: ex.io, scope: Namespaced, names: {plural: foos, kind: Foo}, versions: [{name: v1, served: true, storage: true`
	tests := map[string]struct {
		srcs []string
		err  string
	}{
		"another kind": {
			srcs: []string{"{apiVersion: v1, kind: Pod, metadata: {name: x}}"},
			err:  `CustomResourceDefinition "x": is a /v1, Kind=Pod, not a apiextensions.k8s.io/v1, Kind=CustomResourceDefinition`,
		},
		"unknown field": {
			srcs: []string{crd(head + `, schema: {openAPIV3Schema: {type: object}}, bogus: 1}]}`)},
			err:  `CustomResourceDefinition "foos.ex.io": strict decoding error: unknown field "spec.versions[0].bogus"`,
		},
		"no schema": {
			srcs: []string{crd(head + `}]}`)},
			err:  `CustomResourceDefinition "foos.ex.io": spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required`,
		},
		"not structural": {
			srcs: []string{crd(head + `, schema: {openAPIV3Schema: {type: object, properties: {a: {}}}}}]}`)},
			err:  `CustomResourceDefinition "foos.ex.io": spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields`,
		},
		"a list without items": {
			srcs: []string{crd(head + `, schema: {openAPIV3Schema: {type: object, properties: {a: {type: array}}}}}]}`)},
			err:  `CustomResourceDefinition "foos.ex.io": spec.versions[0].schema.openAPIV3Schema.properties[a].items: Required value: must be specified`,
		},
		"an unknown list type": {
			srcs: []string{crd(head + `, schema: {openAPIV3Schema: {type: object, properties: {a: {type: array, x-kubernetes-list-type: bag, items: {type: string}}}}}}]}`)},
			err:  `CustomResourceDefinition "foos.ex.io": spec.versions[0].schema.openAPIV3Schema: inlined in io.ex.v1.Foo: unknown list type bag`,
		},
		"a name that is not its own": {
			srcs: []string{crd(`{group: ex.org, scope: Namespaced, names: {plural: foos, kind: Foo}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}`)},
			err:  `CustomResourceDefinition "foos.ex.io": metadata.name: Invalid value: "foos.ex.io": must be spec.names.plural+"."+spec.group`,
		},
		"nothing at all": {
			srcs: []string{crd(`{}`)},
			err:  `CustomResourceDefinition "foos.ex.io": [spec.group: Required value, spec.names.plural: Required value, spec.names.kind: Required value, spec.scope: Required value, spec.versions: Required value]`,
		},
		"two for one kind": {
			srcs: []string{widgetCRD, widgetCRD},
			err:  `CustomResourceDefinition "widgets.ex.io": spec.versions[0].name: Invalid value: "v1": ex.io/v1, Kind=Widget is already defined by "widgets.ex.io"`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var objs []*unstructured.Unstructured
			for _, src := range tt.srcs {
				objs = append(objs, &unstructured.Unstructured{Object: mustTree(t, src)})
			}
			if _, err := CRDs(objs...); errString(err) != tt.err {
				t.Errorf("CRDs error = %q, want %q", errString(err), tt.err)
			}
		})
	}
}

func TestConvertibleTo(t *testing.T) {
	webhook := `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hooks.ex.io}
spec:
  group: ex.io
  scope: Cluster
  names: {plural: hooks, kind: Hook}
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://example.org"}}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`
	types := New(Builtin(), mustCRDs(t, gadgetCRD, webhook))
	gvk := func(g, v, k string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: g, Version: v, Kind: k}
	}
	for _, tt := range []struct {
		from, to schema.GroupVersionKind
		want     bool
	}{
		{gvk("ex.io", "v1", "Gadget"), gvk("ex.io", "v2", "Gadget"), true},
		{gvk("ex.io", "v1", "Gadget"), gvk("ex.io", "v1", "Gadget"), true},
		{gvk("ex.io", "v1", "Gadget"), gvk("ex.io", "v1alpha1", "Gadget"), true}, // not served
		{gvk("ex.io", "v1", "Gadget"), gvk("ex.io", "v9", "Gadget"), false},
		{gvk("ex.io", "v1", "Gadget"), gvk("ex.io", "v2", "Hook"), false},
		{gvk("ex.io", "v1", "Hook"), gvk("ex.io", "v2", "Hook"), false},
		{gvk("autoscaling", "v1", "HorizontalPodAutoscaler"), gvk("autoscaling", "v2", "HorizontalPodAutoscaler"), false},
	} {
		k, err := types.Kind(tt.from)
		if err != nil {
			t.Fatal(err)
		}
		if got := k.ConvertibleTo(tt.to); got != tt.want {
			t.Errorf("%v.ConvertibleTo(%v) = %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}
