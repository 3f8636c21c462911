package cases

import (
	"fmt"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	structuralpruning "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// clusterScoped are the built-in kinds without a namespace that the corpus
// uses or may come to use.
var clusterScoped = map[schema.GroupKind]bool{
	{Kind: "Namespace"}:        true,
	{Kind: "Node"}:             true,
	{Kind: "PersistentVolume"}: true,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:                         true,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}:                  true,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:                                   true,
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:                               true,
	{Group: "networking.k8s.io", Kind: "IngressClass"}:                                true,
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:                                      true,
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}:                 true,
	{Group: "authentication.k8s.io", Kind: "TokenReview"}:                             true,
	{Group: "authorization.k8s.io", Kind: "SubjectAccessReview"}:                      true,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:     true,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}:   true,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}:          true,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicyBinding"}:   true,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}:        true,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}: true,
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:                 true,
}

// Namespaced says whether a built-in kind lives in a namespace.
func Namespaced(gk schema.GroupKind) bool {
	return !clusterScoped[gk]
}

// DecodeCRD reads a CustomResourceDefinition and fills in what a server would:
// its defaults and the accepted names.
func DecodeCRD(u *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, crd, true); err != nil {
		return nil, err
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	crd.Status.AcceptedNames = crd.Spec.Names
	return crd, nil
}

// Structural returns the structural schema of one version of a CRD.
func Structural(v *apiextensionsv1.CustomResourceDefinitionVersion) (*structuralschema.Structural, error) {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("version %q has no schema", v.Name)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		return nil, err
	}
	return structuralschema.NewStructural(&internal)
}

// kinds knows the built-in kinds and those of a case's CRDs.
type kinds struct {
	resources map[schema.GroupVersionKind]schema.GroupVersionResource
	schemas   map[schema.GroupVersionKind]*structuralschema.Structural
	raw       bool // objects are as they were written
}

func newKinds(crds []*unstructured.Unstructured) (*kinds, error) {
	k := &kinds{
		resources: map[schema.GroupVersionKind]schema.GroupVersionResource{},
		schemas:   map[schema.GroupVersionKind]*structuralschema.Structural{},
	}
	for _, u := range crds {
		crd, err := DecodeCRD(u)
		if err != nil {
			return nil, err
		}
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			s, err := Structural(v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", crd.Name, err)
			}
			gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
			k.resources[gv.WithKind(crd.Spec.Names.Kind)] = gv.WithResource(crd.Spec.Names.Plural)
			k.schemas[gv.WithKind(crd.Spec.Names.Kind)] = s
		}
	}
	return k, nil
}

func (k *kinds) resource(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	if gvr, ok := k.resources[gvk]; ok {
		return gvr, nil
	}
	if !scheme.Scheme.Recognizes(gvk) {
		return schema.GroupVersionResource{}, fmt.Errorf("%v: neither a built-in kind nor one of the CRDs; write down its resource", gvk)
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural, nil
}

// Normal returns obj as an API server holds it once it has decoded it. A
// built-in kind goes through its Go type: zero fields with omitempty vanish,
// fields without it appear, quantities and times become canonical. A custom
// resource is pruned and defaulted by its schema. A kind that is neither is
// returned as it is.
func Normal(obj *unstructured.Unstructured, crds []*unstructured.Unstructured) (*unstructured.Unstructured, error) {
	k, err := newKinds(crds)
	if err != nil {
		return nil, err
	}
	return k.normal(obj)
}

func (k *kinds) normal(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	gvk := obj.GroupVersionKind()
	if k.raw {
		return obj, nil
	}
	if s := k.schemas[gvk]; s != nil {
		out := obj.DeepCopy()
		structuralpruning.Prune(out.Object, s, true)
		structuraldefaulting.PruneNonNullableNullsWithoutDefaults(out.Object, s)
		structuraldefaulting.Default(out.Object, s)
		return out, nil
	}
	if !scheme.Scheme.Recognizes(gvk) {
		return obj, nil
	}
	typed, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, typed, true); err != nil {
		return nil, err
	}
	return Untyped(typed, gvk)
}

// Untyped returns a typed object as a tree, with its apiVersion and kind.
func Untyped(typed runtime.Object, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{Object: tree}
	out.SetGroupVersionKind(gvk)
	return out, nil
}
