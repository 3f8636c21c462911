package openapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/openapi/smd"
)

// CRDs returns the source of custom kinds: of every served version of the given
// CustomResourceDefinitions (apiextensions.k8s.io/v1), with the document that an API server
// would publish for it. Definitions may share group-versions, but not kinds or resources. An
// error is a *DefinitionError and names the field.
func CRDs(objs ...*unstructured.Unstructured) (Source, error) {
	s := &crdSource{models: map[schema.GroupVersionKind]*customModel{}}
	owner := map[string]string{}
	for _, u := range objs {
		if err := s.add(u, owner); err != nil {
			return nil, &DefinitionError{u.GetName(), err}
		}
	}
	return s, nil
}

// DefinitionError is an error in a CustomResourceDefinition.
type DefinitionError struct {
	Name string
	Err  error
}

func (e *DefinitionError) Error() string {
	return fmt.Sprintf("CustomResourceDefinition %q: %v", e.Name, e.Err)
}

func (e *DefinitionError) Unwrap() error { return e.Err }

type crdSource struct {
	versions  []schema.GroupVersion
	resources []Resource
	models    map[schema.GroupVersionKind]*customModel
}

func (s *crdSource) GroupVersions() []schema.GroupVersion { return s.versions }
func (s *crdSource) Resources() []Resource                { return s.resources }

func (s *crdSource) Lookup(gvk schema.GroupVersionKind) Model {
	if m := s.models[gvk]; m != nil {
		return m
	}
	return nil
}

// A customModel is a kind of a CustomResourceDefinition or its list kind.
type customModel struct {
	schema *smd.Schema
	name   string
	custom *custom // nil for the list kind
}

func (m *customModel) Schema() (*smd.Schema, smd.TypeRef) {
	return m.schema, smd.TypeRef{NamedType: &m.name}
}

// custom holds the properties of a custom kind that its document does not have.
type custom struct {
	structural *structuralschema.Structural // with pruned defaults, as served
	root       *member                      // the shape of its objects, with the same defaults
	rewritable bool                         // conversion strategy None
	versions   map[string]bool              // all of the definition, served or not
}

var crdKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

func (s *crdSource) add(u *unstructured.Unstructured, owner map[string]string) error {
	if gvk := u.GroupVersionKind(); gvk != crdKind {
		return fmt.Errorf("is a %v, not a %v", gvk, crdKind)
	}
	obj, err := goTypes().of(crdKind).decode(u.Object)
	if err != nil {
		return err
	}
	goTypes().scheme.Default(obj)
	crd := obj.(*apiextensionsv1.CustomResourceDefinition)
	if err := checkNames(crd); err != nil {
		return err
	}
	for i, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		gvk, listKind, gvr := namesOf(crd, v.Name)
		for _, taken := range []string{gvk.String(), listKind.String(), gvr.String()} {
			if other, ok := owner[taken]; ok {
				return field.Invalid(versionPath(i).Child("name"), v.Name, fmt.Sprintf("%s is already defined by %q", taken, other))
			}
			owner[taken] = crd.Name
		}
		if err := s.addVersion(crd, i); err != nil {
			return err
		}
		if !slices.Contains(s.versions, gvk.GroupVersion()) {
			s.versions = append(s.versions, gvk.GroupVersion())
		}
		s.resources = append(s.resources, resourceOf(crd, &v))
	}
	return nil
}

// addVersion adds the models of one served version.
func (s *crdSource) addVersion(crd *apiextensionsv1.CustomResourceDefinition, i int) error {
	v := &crd.Spec.Versions[i]
	m, err := newCustomModel(crd, v, versionPath(i))
	if err != nil {
		return err
	}
	m.custom.rewritable = crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy == apiextensionsv1.NoneConverter
	m.custom.versions = map[string]bool{}
	for _, v := range crd.Spec.Versions {
		m.custom.versions[v.Name] = true
	}
	gvk, listKind, _ := namesOf(crd, v.Name)
	s.models[gvk] = m
	s.models[listKind] = &customModel{schema: m.schema, name: modelName(listKind)}
	return nil
}

func versionPath(i int) *field.Path { return field.NewPath("spec", "versions").Index(i) }

// namesOf returns the kinds and the resource of a version of a definition.
func namesOf(crd *apiextensionsv1.CustomResourceDefinition, version string) (kind, listKind schema.GroupVersionKind, resource schema.GroupVersionResource) {
	gv := schema.GroupVersion{Group: crd.Spec.Group, Version: version}
	return gv.WithKind(crd.Spec.Names.Kind), gv.WithKind(crd.Spec.Names.ListKind), gv.WithResource(crd.Spec.Names.Plural)
}

func resourceOf(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) Resource {
	gvk, _, gvr := namesOf(crd, v.Name)
	r := Resource{GVR: gvr, Kind: gvk, Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped}
	if v.Subresources != nil && v.Subresources.Scale != nil {
		r.Subresources = append(r.Subresources, "scale")
		r.SubresourceKinds = map[string]schema.GroupVersionKind{
			"scale": {Group: "autoscaling", Version: "v1", Kind: "Scale"},
		}
	}
	if v.Subresources != nil && v.Subresources.Status != nil {
		r.Subresources = append(r.Subresources, "status")
	}
	return r
}

// checkNames checks what the rest of the package relies on. The server checks much more when
// the definition is created.
func checkNames(crd *apiextensionsv1.CustomResourceDefinition) error {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	need := func(path *field.Path, value string) {
		if value == "" {
			errs = append(errs, field.Required(path, ""))
		}
	}
	need(spec.Child("group"), crd.Spec.Group)
	need(spec.Child("names", "plural"), crd.Spec.Names.Plural)
	need(spec.Child("names", "kind"), crd.Spec.Names.Kind)
	switch crd.Spec.Scope {
	case apiextensionsv1.NamespaceScoped, apiextensionsv1.ClusterScoped:
	case "":
		need(spec.Child("scope"), "")
	default:
		errs = append(errs, field.NotSupported(spec.Child("scope"), crd.Spec.Scope,
			[]apiextensionsv1.ResourceScope{apiextensionsv1.ClusterScoped, apiextensionsv1.NamespaceScoped}))
	}
	if len(crd.Spec.Versions) == 0 {
		errs = append(errs, field.Required(spec.Child("versions"), ""))
	}
	if want := crd.Spec.Names.Plural + "." + crd.Spec.Group; len(errs) == 0 && crd.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), crd.Name, "must be spec.names.plural+\".\"+spec.group"))
	}
	if crd.Spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(spec.Child("preserveUnknownFields"), true, "must be false in order to use defaults in the schema"))
	}
	seen := map[string]bool{}
	for i, v := range crd.Spec.Versions {
		path := spec.Child("versions").Index(i).Child("name")
		need(path, v.Name)
		if seen[v.Name] {
			errs = append(errs, field.Duplicate(path, v.Name))
		}
		seen[v.Name] = true
	}
	return errs.ToAggregate()
}

func newCustomModel(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion, path *field.Path) (*customModel, error) {
	path = path.Child("schema", "openAPIV3Schema")
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil, field.Required(path, "schemas are required")
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		return nil, &api.Fault{Phase: api.Compiling, Path: path.String(), Err: err}
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return nil, &api.Fault{Phase: api.Compiling, Path: path.String(), Err: err}
	}
	if errs := structuralschema.ValidateStructural(path, structural); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	structural = structural.DeepCopy() // it shares its defaults with internal

	gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}
	merge, err := publish(gvk, crd.Spec.Names.ListKind, structural.DeepCopy().Unfold())
	if err != nil {
		return nil, &api.Fault{Phase: api.Compiling, Path: path.String(), Err: err}
	}
	if err := structuraldefaulting.PruneDefaults(structural); err != nil {
		return nil, &api.Fault{Phase: api.Compiling, Path: path.String(), Err: err}
	}
	return &customModel{schema: merge, name: modelName(gvk), custom: &custom{
		structural: structural,
		root:       newFree(structural),
	}}, nil
}

// modelName is the name of a custom kind's model: the group reversed, version
// and kind.
func modelName(gvk schema.GroupVersionKind) string {
	parts := strings.Split(gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + gvk.Version + "." + gvk.Kind
}

const (
	modelPrefix     = "#/components/schemas/"
	metaPrefix      = "io.k8s.apimachinery.pkg.apis.meta.v1."
	objectMetaModel = metaPrefix + "ObjectMeta"
	listMetaModel   = metaPrefix + "ListMeta"
)

// metaTypes returns the types of metadata, which every document has a copy of.
func metaTypes() []smd.TypeDef {
	of := builtin().documents[apiextensionsv1.SchemeGroupVersion].open()
	var out []smd.TypeDef
	seen := map[string]bool{}
	var visit func(ref smd.TypeRef)
	visit = func(ref smd.TypeRef) {
		atom := ref.Inlined
		if ref.NamedType != nil {
			if seen[*ref.NamedType] {
				return
			}
			seen[*ref.NamedType] = true
			t, ok := of.FindNamedType(*ref.NamedType)
			if !ok {
				return
			}
			atom = t.Atom
			if strings.HasPrefix(t.Name, metaPrefix) { // the others are in every schema
				out = append(out, t)
			}
		}
		if atom.List != nil {
			visit(atom.List.ElementType)
		}
		if atom.Map != nil {
			visit(atom.Map.ElementType)
			for _, f := range atom.Map.Fields {
				visit(f.Type)
			}
		}
	}
	for _, name := range []string{objectMetaModel, listMetaModel} {
		visit(smd.TypeRef{NamedType: &name})
	}
	return out
}

// publish returns the schema of a custom kind and its list kind, as it results from the models
// that the server publishes (k8s.io/apiextensions-apiserver pkg/controller/openapi/builder):
// the structural schema plus apiVersion, kind and metadata, at the root and in embedded
// resources. pkg/ may not import that package, because it needs client-go; a test compares the
// two.
func publish(gvk schema.GroupVersionKind, listKind string, structural *structuralschema.Structural) (*smd.Schema, error) {
	root := structural.ToKubeOpenAPI()
	root.SetProperty("metadata", *spec.RefSchema(modelPrefix + objectMetaModel))
	root.SetProperty("apiVersion", *spec.StringProperty())
	root.SetProperty("kind", *spec.StringProperty())
	if err := asPublished(root); err != nil {
		return nil, err
	}
	list := new(spec.Schema).Typed("object", "").
		SetProperty("apiVersion", *spec.StringProperty()).
		SetProperty("kind", *spec.StringProperty()).
		SetProperty("metadata", *spec.RefSchema(modelPrefix + listMetaModel)).
		SetProperty("items", *spec.ArrayProperty(spec.RefSchema(modelPrefix + modelName(gvk))))

	merge, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{
		modelName(gvk): root, modelName(gvk.GroupVersion().WithKind(listKind)): list,
	}, false)
	if err != nil {
		return nil, err
	}
	merge.Types = append(merge.Types, metaTypes()...)
	return merge, nil
}

// asPublished changes a schema to the form that a server publishes in its OpenAPI document:
// embedded resources get the fields of every object, defaults and extensions become plain JSON
// values.
func asPublished(s *spec.Schema) error {
	if s == nil {
		return nil
	}
	for name, p := range s.Properties {
		if err := asPublished(&p); err != nil {
			return err
		}
		s.Properties[name] = p
	}
	if s.Items != nil {
		if err := asPublished(s.Items.Schema); err != nil {
			return err
		}
	}
	if s.AdditionalProperties != nil {
		if err := asPublished(s.AdditionalProperties.Schema); err != nil {
			return err
		}
	}
	if is, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); is {
		s.SetProperty("apiVersion", *spec.StringProperty())
		s.SetProperty("kind", *spec.StringProperty())
		s.SetProperty("metadata", *spec.RefSchema(modelPrefix + objectMetaModel))
	}
	if err := throughText(&s.Default); err != nil {
		return err
	}
	return throughText((*map[string]any)(&s.Extensions))
}

// throughText replaces a value by the result of encoding and decoding it.
func throughText[T any](v *T) error {
	data, err := json.Marshal(*v)
	if err != nil {
		return err
	}
	var out T
	if err := json.Unmarshal(data, &out); err != nil {
		return err
	}
	*v = out
	return nil
}
