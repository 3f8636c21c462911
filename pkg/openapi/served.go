package openapi

import (
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kjson "sigs.k8s.io/json"

	"github.com/mapd-project/mapd/pkg/openapi/smd"
)

// Served returns the source of one CustomResourceDefinition as a server holds it. It differs
// from CRDs in two ways.
//
// The server has accepted the definition, so parts that only a newer server knows are ignored
// and not rejected.
//
// A cluster may have hundreds of definitions of which policies use few, and a schema takes five
// times the memory of its text and some 10 ms to make. So Served keeps the text, compressed and
// without descriptions, and parses it at the first Lookup of one of its kinds. If that fails,
// it calls refused, once, and from then on the definition has only resources and no kinds.
func Served(obj *unstructured.Unstructured, refused func(error)) (Source, error) {
	if gvk := obj.GroupVersionKind(); gvk != crdKind {
		return nil, fmt.Errorf("is a %v, not a %v", gvk, crdKind)
	}
	full, head := split(obj)
	text, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	crd, err := decodeServed(text)
	if err != nil {
		return nil, err
	}
	if err := checkNames(crd); err != nil {
		return nil, err
	}
	s := &servedSource{refused: refused, kinds: map[schema.GroupVersionKind]bool{}}
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		kind, listKind, _ := namesOf(crd, v.Name)
		s.kinds[kind], s.kinds[listKind] = true, true
		s.versions = append(s.versions, kind.GroupVersion())
		s.resources = append(s.resources, resourceOf(crd, &v))
	}
	s.packed, err = pack(full)
	return s, err
}

type servedSource struct {
	versions  []schema.GroupVersion
	resources []Resource
	kinds     map[schema.GroupVersionKind]bool
	refused   func(error)

	once   sync.Once
	packed string // empty after once
	opened crdSource
}

func (s *servedSource) GroupVersions() []schema.GroupVersion { return s.versions }
func (s *servedSource) Resources() []Resource                { return s.resources }

func (s *servedSource) Lookup(gvk schema.GroupVersionKind) Model {
	if !s.kinds[gvk] {
		return nil
	}
	s.once.Do(func() {
		if err := s.open(); err != nil {
			s.opened.models = nil
			s.refused(err)
		}
	})
	return s.opened.Lookup(gvk)
}

func (s *servedSource) open() error {
	text, err := unpackText(s.packed)
	s.packed = ""
	if err != nil {
		return err
	}
	crd, err := decodeServed(text)
	if err != nil {
		return err
	}
	s.opened.models = map[schema.GroupVersionKind]*customModel{}
	for i, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		if err := s.opened.addVersion(crd, i); err != nil {
			return err
		}
	}
	return nil
}

// split returns two copies of obj: one without descriptions, and one without schemas too, since
// these are large.
func split(obj *unstructured.Unstructured) (full, head map[string]any) {
	spec, _ := obj.Object["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	whole, bare := make([]any, len(versions)), make([]any, len(versions))
	for i, v := range versions {
		version, ok := v.(map[string]any)
		if !ok {
			whole[i], bare[i] = v, v // the decoder reports the error
			continue
		}
		version = maps.Clone(version)
		delete(version, "additionalPrinterColumns")
		b := maps.Clone(version)
		delete(b, "schema")
		bare[i] = b
		if s, ok := version["schema"].(map[string]any); ok {
			version["schema"] = map[string]any{"openAPIV3Schema": withoutDescriptions(s["openAPIV3Schema"])}
		}
		whole[i] = version
	}
	with := func(versions []any) map[string]any {
		spec := maps.Clone(spec)
		if len(versions) > 0 {
			spec["versions"] = versions
		}
		return map[string]any{"metadata": map[string]any{"name": obj.GetName()}, "spec": spec}
	}
	return with(whole), with(bare)
}

// withoutDescriptions returns a schema without descriptions. It copies only the parts that
// change.
func withoutDescriptions(v any) any {
	schema, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(schema))
	for key, v := range schema {
		switch key {
		case "description", "externalDocs", "example":
		case "items", "additionalProperties":
			out[key] = withoutDescriptions(v)
		case "properties":
			properties, ok := v.(map[string]any)
			if !ok {
				out[key] = v
				continue
			}
			p := make(map[string]any, len(properties))
			for name, v := range properties {
				p[name] = withoutDescriptions(v)
			}
			out[key] = p
		default:
			out[key] = v
		}
	}
	return out
}

func decodeServed(text []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, crd); err != nil {
		return nil, err
	}
	goTypes().scheme.Default(crd)
	return crd, nil
}

// packers are few and large: a flate.Writer takes a megabyte.
var packers = sync.Pool{New: func() any {
	w, err := flate.NewWriter(io.Discard, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

func pack(v any) (string, error) {
	var b strings.Builder
	w := packers.Get().(*flate.Writer)
	defer packers.Put(w)
	w.Reset(&b)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return strings.Clone(b.String()), nil
}

func unpackText(packed string) ([]byte, error) {
	return io.ReadAll(flate.NewReader(strings.NewReader(packed)))
}

// Document returns the source of one group-version: an OpenAPI v3 document as a server
// publishes it, in JSON. It is for built-in kinds of another Kubernetes release than the
// embedded one and for aggregated API servers. It parses the document at once, to report
// errors, and keeps a small part of it. The source has no resources; use discovery for these.
func Document(gv schema.GroupVersion, data []byte) (Source, error) {
	var doc struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("the OpenAPI document of %v: %w", gv, err)
	}
	merge, err := schemaconv.ToSchemaFromOpenAPI(doc.Components.Schemas, false)
	if err != nil {
		return nil, fmt.Errorf("the OpenAPI document of %v: %w", gv, err)
	}
	s := &documentSource{gv: gv, models: map[string]*documentModel{}}
	for name, model := range doc.Components.Schemas {
		for _, kind := range kindsOf(model, gv) {
			s.models[kind] = &documentModel{schema: merge, name: name}
		}
	}
	return s, nil
}

// kindsOf lists the kinds of a group-version that a model describes. Most models describe one;
// the options of DELETE describe those of every group.
func kindsOf(model *spec.Schema, gv schema.GroupVersion) []string {
	gvks, _ := model.Extensions["x-kubernetes-group-version-kind"].([]any)
	var kinds []string
	for _, e := range gvks {
		gvk, _ := e.(map[string]any)
		kind, _ := gvk["kind"].(string)
		if kind != "" && gvk["group"] == gv.Group && gvk["version"] == gv.Version {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

type documentSource struct {
	gv     schema.GroupVersion
	models map[string]*documentModel // by kind
}

func (s *documentSource) GroupVersions() []schema.GroupVersion { return []schema.GroupVersion{s.gv} }
func (s *documentSource) Resources() []Resource                { return nil }

func (s *documentSource) Lookup(gvk schema.GroupVersionKind) Model {
	if gvk.GroupVersion() != s.gv {
		return nil
	}
	if m := s.models[gvk.Kind]; m != nil {
		return m
	}
	return nil
}

type documentModel struct {
	schema *smd.Schema
	name   string
}

func (m *documentModel) Schema() (*smd.Schema, smd.TypeRef) {
	return m.schema, smd.TypeRef{NamedType: &m.name}
}
