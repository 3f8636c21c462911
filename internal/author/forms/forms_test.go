package forms_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/mapd-project/mapd/internal/author/forms"
	"github.com/mapd-project/mapd/internal/author/suite"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// Every kind has a form whose fields say what they are for.
func TestKinds(t *testing.T) {
	if len(forms.Kinds()) != 2*4+3*3+1+1+1 {
		t.Errorf("%d kinds", len(forms.Kinds()))
	}
	for _, k := range forms.Kinds() {
		f := forms.Of(k.APIVersion, k.Kind)
		if f == nil {
			t.Errorf("%v has no form", k)
			continue
		}
		if fields := described(t, k.Kind, f); fields < 15 {
			t.Errorf("%v has %d fields", k, fields)
		}
	}
	if forms.Of("admissionregistration.mapd.dev/v1beta1", api.PolicyKind) != nil || forms.Of("mutations.gatekeeper.sh/v1", "AssignImage") != nil {
		t.Error("versions that nobody serves")
	}
	if forms.SuiteVersion != suite.APIVersion || forms.SuiteKind != suite.Kind {
		t.Error("suites have another name")
	}
}

// described counts fields, and reports those that do not say what they are for.
func described(t *testing.T, path string, f *forms.Form) (fields int) {
	for name, field := range f.Fields {
		fields++
		if field.Description == "" {
			t.Errorf("%s.%s has no description", path, name)
		}
		fields += described(t, path+"."+name, field)
	}
	if f.Items != nil {
		fields += described(t, path+"[]", f.Items)
	}
	return fields
}

// sample returns a value of a form with all its fields.
func sample(f *forms.Form) any {
	switch {
	case len(f.Enum) > 0:
		return f.Enum[0]
	case f.Fields != nil:
		out := map[string]any{}
		for name, field := range f.Fields {
			out[name] = sample(field)
		}
		return out
	case f.Others != nil:
		return map[string]any{"key": "value"}
	case slices.Contains(f.Type, "array"):
		if f.Items == nil {
			return []any{"a"}
		}
		return []any{sample(f.Items)}
	case slices.Contains(f.Type, "object"):
		return map[string]any{}
	}
	return "a"
}

// The forms of mutators have the fields that package legacy reads: it knows each of them, and
// none that it reads is missing.
func TestMutators(t *testing.T) {
	for _, kind := range legacy.Kinds() {
		object := sample(forms.Of("mutations.gatekeeper.sh/v1alpha1", string(kind))).(map[string]any)
		object["apiVersion"], object["kind"] = "mutations.gatekeeper.sh/v1alpha1", string(kind)
		u := &unstructured.Unstructured{Object: object}
		if notes := legacy.Unknown(u); len(notes) > 0 {
			t.Errorf("%s: %v", kind, notes)
		}
	}
	for _, file := range glob(t, "test/gatekeeper/**/*.yaml", "examples/*/*.yaml", "docs/tour/*/*.yaml", "pkg/legacy/testdata/*.yaml") {
		for _, d := range documents(t, file) {
			if !legacy.IsMutator(d.Object.GroupVersionKind()) || len(legacy.Unknown(d.Object)) > 0 {
				continue
			}
			if f := forms.Of(d.Object.GetAPIVersion(), d.Object.GetKind()); f != nil {
				fits(t, file, f, d.Object.Object)
			}
		}
	}
}

// fits reports fields that a form does not have.
func fits(t *testing.T, path string, f *forms.Form, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			switch field := f.Fields[name]; {
			case field != nil:
				fits(t, path+"."+name, field, e)
			case f.Others != nil && f.Others.Form == nil:
				t.Errorf("%s: there is no field %s", path, name)
			}
		}
	case []any:
		for i, e := range v {
			if f.Items != nil {
				fits(t, fmt.Sprintf("%s[%d]", path, i), f.Items, e)
			}
		}
	}
}

func glob(t *testing.T, patterns ...string) (out []string) {
	t.Helper()
	for _, pattern := range patterns {
		before, deep, ok := strings.Cut(pattern, "**/")
		if !ok {
			found, err := filepath.Glob(root + pattern)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, found...)
			continue
		}
		_ = filepath.WalkDir(root+before, func(path string, e os.DirEntry, err error) error {
			if match, _ := filepath.Match(deep, filepath.Base(path)); err == nil && match {
				out = append(out, path)
			}
			return nil
		})
	}
	return out
}

func documents(t *testing.T, file string) (out []*manifest.Document) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d, err := range manifest.ReadStream(file, f) {
		if err == nil && d.Object != nil {
			out = append(out, d)
		}
	}
	return out
}

// published reads a published schema. The validator is that of Kubernetes: it knows neither if nor
// then, so of the schema of policies the part of a kind is taken.
func published(t *testing.T, file, part string) *validate.SchemaValidator {
	t.Helper()
	data, err := os.ReadFile(root + "docs/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if part != "" {
		var all struct{ Definitions map[string]json.RawMessage }
		if err := json.Unmarshal(data, &all); err != nil || all.Definitions[part] == nil {
			t.Fatalf("%s has no %s: %v", file, part, err)
		}
		data = all.Definitions[part]
	}
	var s spec.Schema
	if err := json.Unmarshal(lax(t, data), &s); err != nil {
		t.Fatal(err)
	}
	return validate.NewSchemaValidator(&s, nil, "", strfmt.Default)
}

// lax writes a constant as that validator has it.
func lax(t *testing.T, data []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if c, ok := v["const"]; ok {
				v["enum"] = []any{c}
			}
			for _, e := range v {
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Every example of this repository fits the published schemas, and none does with a field that
// is misspelt.
func TestPublished(t *testing.T) {
	parts := map[string]*validate.SchemaValidator{}
	of := func(d *manifest.Document) *validate.SchemaValidator {
		group, kind := d.Object.GroupVersionKind().Group, d.Object.GetKind()
		name := ""
		switch {
		case kind == forms.SuiteKind && d.Object.GetAPIVersion() == forms.SuiteVersion:
			name = "suite"
		case kind == api.ExceptionKind && group == api.ExceptionGroup:
			name = kind
		case kind != api.PolicyKind && kind != api.BindingKind:
			return nil
		case group == api.OwnGroup:
			name = kind + "OfMapd"
		case group == api.NativeGroup:
			name = kind + "OfKubernetes"
		default:
			return nil
		}
		if parts[name] == nil {
			if name == "suite" {
				parts[name] = published(t, "mapd-test.schema.json", "")
			} else {
				parts[name] = published(t, "mapd-policy.schema.json", name)
			}
		}
		return parts[name]
	}
	seen := map[string]int{}
	for _, file := range glob(t, "examples/*/*.yaml", "docs/tour/*/*.yaml") {
		for _, d := range documents(t, file) {
			v := of(d)
			if v == nil {
				continue
			}
			seen[d.Object.GetKind()]++
			if r := v.Validate(d.Object.Object); !r.IsValid() {
				t.Errorf("%s: %v", file, r.Errors)
			}
			for _, name := range []string{"spec", "cases"} {
				if inner, ok := d.Object.Object[name]; ok {
					d.Object.Object["x"+name] = inner
					if v.Validate(d.Object.Object).IsValid() {
						t.Errorf("%s: x%s is accepted", file, name)
					}
					delete(d.Object.Object, "x"+name)
				}
			}
			if spec, ok := d.Object.Object["spec"].(map[string]any); ok {
				spec["matchConstrains"] = map[string]any{}
				if v.Validate(d.Object.Object).IsValid() {
					t.Errorf("%s: spec.matchConstrains is accepted", file)
				}
				delete(spec, "matchConstrains")
			}
		}
	}
	if seen[api.PolicyKind] < 10 || seen[api.BindingKind] < 10 || seen[forms.SuiteKind] < 5 {
		t.Errorf("%v", seen)
	}
}
