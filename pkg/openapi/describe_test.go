package openapi

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Fields of built-in kinds have the texts of their Go types, and the same texts are in the
// files for a program that lacks them.
func TestDescribe(t *testing.T) {
	files := Descriptions()
	for _, tt := range []struct {
		group, version, kind string
		path                 string
		file, owner          string
		want                 string // begins so
	}{
		{"", "v1", "Pod", "metadata", "k8s.io_api_core_v1", "Pod", "Standard object's metadata"},
		{"", "v1", "Pod", "metadata.labels", "k8s.io_apimachinery_pkg_apis_meta_v1", "ObjectMeta", "Map of string keys and values"},
		{"", "v1", "Pod", "kind", "k8s.io_apimachinery_pkg_apis_meta_v1", "TypeMeta", "Kind is a string value"},
		{"apps", "v1", "Deployment", "spec.template.spec.containers.image", "k8s.io_api_core_v1", "Container", "Container image name"},
		{"resource.k8s.io", "v1beta1", "ResourceClaim", "spec", "k8s.io_api_resource_v1beta1", "ResourceClaim", "Spec describes"},
		{"", "v1", "Pod", "", "", "", ""},
		{"", "v1", "Pod", "spec.nothing", "", "", ""},
		{"", "v1", "Pod", "metadata.labels.app", "", "", ""},
		{"", "v1", "Pod", "metadata.creationTimestamp.-", "", "", ""},
		{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", "spec.names.plural", "", "", ""}, // has no texts
	} {
		k, err := New(Builtin()).Kind(schema.GroupVersionKind{Group: tt.group, Version: tt.version, Kind: tt.kind})
		if err != nil {
			t.Fatal(err)
		}
		path := strings.FieldsFunc(tt.path, func(r rune) bool { return r == '.' })
		got := k.Describe(path...)
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s %s: %q", tt.kind, tt.path, got)
		}
		if tt.want != "" && files[tt.file+".descriptions"][tt.owner][path[len(path)-1]] != got {
			t.Errorf("%s %s: the files differ", tt.kind, tt.path)
		}
	}
	// A type without texts has a file, for which a hover asks.
	if types, ok := files["k8s.io_apiextensions-apiserver_pkg_apis_apiextensions_v1.descriptions"]; !ok || len(types) > 0 {
		t.Error(ok, types)
	}
}
