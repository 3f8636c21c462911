package gatekeeper

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Default returns a mutator with the defaults of Gatekeeper's own
// CustomResourceDefinition for it, if there is one, as an API server would hand
// it on: a number without a fraction is an integer.
func Default(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	all, err := schemas()
	if err != nil {
		return nil, err
	}
	data, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	if s := all[u.GroupVersionKind()]; s != nil {
		defaulting.Default(out.Object, s)
	}
	return out, nil
}

// schemas reads the definitions from where the Go command keeps Gatekeeper.
var schemas = sync.OnceValues(func() (map[schema.GroupVersionKind]*structuralschema.Structural, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/open-policy-agent/gatekeeper/v3").Output()
	if err != nil {
		return nil, fmt.Errorf("where is Gatekeeper: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/bases/mutations.gatekeeper.sh_*.yaml"))
	if err != nil {
		return nil, err
	}
	all := map[schema.GroupVersionKind]*structuralschema.Structural{}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(data, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, v := range crd.Spec.Versions {
			gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}
			if all[gvk], err = structural(v.Schema.OpenAPIV3Schema); err != nil {
				return nil, fmt.Errorf("%s: %w", gvk, err)
			}
		}
	}
	return all, nil
})

func structural(props *apiextensionsv1.JSONSchemaProps) (*structuralschema.Structural, error) {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, &internal, nil); err != nil {
		return nil, err
	}
	return structuralschema.NewStructural(&internal)
}
