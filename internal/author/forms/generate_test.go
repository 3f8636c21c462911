package forms_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/author/suite"
	"github.com/mapd-project/mapd/pkg/api"
)

var update = flag.Bool("update", false, "make the generated files anew")

const root = "../../../"

// TestGenerated holds the forms and the published schemas to what they are made of, or makes
// them anew with -update: those of policies, bindings and exceptions of mapd's definitions, that of
// suites of the types that decode them.
func TestGenerated(t *testing.T) {
	const policies = api.NativeGroup + "/v1 or " + api.OwnGroup + "/v1"
	kinds := map[string]any{
		api.PolicyKind: definition(t, "crd-policies.yaml", policies), api.BindingKind: definition(t, "crd-bindings.yaml", policies),
		api.ExceptionKind: definition(t, "crd-exceptions.yaml", api.ExceptionGroup+"/"+api.ExceptionVersion),
	}
	published := text(t, schema(kinds), "  ")
	files := map[string][]byte{
		"admission.json":                                text(t, map[string]any{"kinds": kinds}, ""),
		"suite.json":                                    suite.Schema(),
		root + "docs/mapd-policy.schema.json":           published,
		root + "docs/mapd-test.schema.json":             suite.Schema(),
		root + "editors/vscode/mapd-policy.schema.json": published,
		root + "editors/vscode/mapd-test.schema.json":   suite.Schema(),
	}
	for name, want := range files {
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(name); err != nil {
			t.Error(err)
		} else if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is stale; run `go generate ./internal/author/forms` (- source, + file):\n%s", name, diff)
		}
	}
}

func text(t *testing.T, v any, indent string) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// definition returns the schema of the only version in a definition, whose objects say an
// apiVersion.
func definition(t *testing.T, file, apiVersion string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "manifests/base", file))
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil || len(crd.Spec.Versions) != 1 {
		t.Fatalf("%s: %d versions, %v", file, len(crd.Spec.Versions), err)
	}
	form := plain(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	// mapd writes the status; what is in it is nobody's to write.
	fields := form["properties"].(map[string]any)
	fields["status"] = map[string]any{"type": "object", "description": fields["status"].(map[string]any)["description"]}
	fields["apiVersion"].(map[string]any)["description"] = "The group and version of this object, " + apiVersion + "."
	fields["metadata"].(map[string]any)["description"] = "The object's name, labels and annotations."
	return form
}

// plain returns a structural schema as a JSON schema: what is no keyword there is left out,
// and a record has no other fields.
func plain(s map[string]any) map[string]any {
	out := map[string]any{}
	for _, keyword := range []string{"description", "type", "enum", "required", "minItems", "minLength"} {
		if v, ok := s[keyword]; ok {
			out[keyword] = v
		}
	}
	if s["nullable"] == true {
		out["type"] = []any{s["type"], "null"}
	}
	if fields, ok := s["properties"].(map[string]any); ok {
		all := map[string]any{}
		for name, f := range fields {
			all[name] = plain(f.(map[string]any))
		}
		out["properties"], out["additionalProperties"] = all, false
	}
	if items, ok := s["items"].(map[string]any); ok {
		out["items"] = plain(items)
	}
	if others, ok := s["additionalProperties"].(map[string]any); ok {
		out["additionalProperties"] = plain(others)
	}
	return out
}

// schema returns the schema of a document that may be a policy or a binding of either group,
// an exception, or anything else: files have several documents, and editors hold each against it.
func schema(kinds map[string]any) map[string]any {
	native := []any{}
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		native = append(native, api.NativeGroup+"/"+version)
	}
	versions := map[string][]any{"Kubernetes": native, "Mapd": {api.OwnGroup + "/v1"}}
	all, parts := []any{}, map[string]any{}
	add := func(kind string, versions []any, definition string) {
		all = append(all, map[string]any{
			"if": map[string]any{
				"properties": map[string]any{"apiVersion": map[string]any{"enum": versions}, "kind": map[string]any{"const": kind}},
				"required":   []any{"apiVersion", "kind"},
			},
			"then": map[string]any{"$ref": "#/definitions/" + definition},
		})
	}
	for _, kind := range []string{api.PolicyKind, api.BindingKind} {
		// Kubernetes' own have no status.
		stateless := plainCopy(kinds[kind])
		delete(stateless["properties"].(map[string]any), "status")
		parts[kind+"OfKubernetes"], parts[kind+"OfMapd"] = stateless, kinds[kind]
		for _, group := range []string{"Kubernetes", "Mapd"} {
			add(kind, versions[group], kind+"Of"+group)
		}
	}
	parts[api.ExceptionKind] = kinds[api.ExceptionKind]
	add(api.ExceptionKind, []any{api.ExceptionGroup + "/" + api.ExceptionVersion}, api.ExceptionKind)
	return map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "Policies and bindings of mapd and Kubernetes",
		"allOf": all, "definitions": parts,
	}
}

func plainCopy(v any) map[string]any {
	data, _ := json.Marshal(v) // it has been JSON
	var out map[string]any
	_ = json.Unmarshal(data, &out)
	return out
}
