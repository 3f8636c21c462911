package manifests

import (
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	structurallisttype "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	structuralpruning "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/hammer"
)

const group = "admissionregistration.mapd.dev"

func version(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinitionVersion {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join("base", file)), &u.Object); err != nil {
		t.Fatal(err)
	}
	crd, err := cases.DecodeCRD(u)
	if err != nil {
		t.Fatal(err)
	}
	if len(crd.Spec.Versions) != 1 {
		t.Fatalf("%s has %d versions", file, len(crd.Spec.Versions))
	}
	return &crd.Spec.Versions[0]
}

// The definitions say about a spec what the Go types of Kubernetes say: the same
// fields, of the same types, with the same lists and maps that are merged whole.
// What is required, and what has a default, is in no Go type but in the code of
// the server (pkg/apis/admissionregistration/{validation,v1/defaults.go} of
// k8s.io/kubernetes): it is spelt out here.
func TestSchemaIsThatOfTheGoTypes(t *testing.T) {
	for _, tc := range []struct {
		file         string
		spec, status reflect.Type
		required     []string // by the server's validation, besides those without omitempty
	}{
		{
			"crd-policies.yaml",
			reflect.TypeFor[admissionregistrationv1.MutatingAdmissionPolicySpec](),
			reflect.TypeFor[struct { // that of the one native policy kind that has a status, and what mapd adds
				ObservedGeneration int64                                 `json:"observedGeneration,omitempty"`
				TypeChecking       *admissionregistrationv1.TypeChecking `json:"typeChecking,omitempty"`
				Conditions         []metav1.Condition                    `json:"conditions,omitempty"`
				Breaker            *struct {
					Digest  string      `json:"digest"`
					Reason  string      `json:"reason"`
					Time    metav1.Time `json:"time"`
					Replica string      `json:"replica,omitempty"`
				} `json:"breaker,omitempty"`
			}](),
			[]string{
				"spec.matchConstraints", "spec.matchConstraints.resourceRules", "spec.mutations", "spec.reinvocationPolicy",
				"spec.paramKind.apiVersion", "spec.paramKind.kind",
				"spec.mutations[].applyConfiguration.expression", "spec.mutations[].jsonPatch.expression",
			},
		},
		{
			"crd-bindings.yaml",
			reflect.TypeFor[admissionregistrationv1.MutatingAdmissionPolicyBindingSpec](),
			reflect.TypeFor[struct {
				ObservedGeneration int64              `json:"observedGeneration,omitempty"`
				Conditions         []metav1.Condition `json:"conditions,omitempty"`
				Rollout            *struct {
					Mode    string `json:"mode,omitempty"`
					Seen    int64  `json:"seen"`
					Would   int64  `json:"would"`
					Changed int64  `json:"changed"`
					Failed  int64  `json:"failed"`
					Last    *struct {
						Kind      string   `json:"kind,omitempty"`
						Namespace string   `json:"namespace,omitempty"`
						Name      string   `json:"name,omitempty"`
						Fields    []string `json:"fields,omitempty"`
					} `json:"last,omitempty"`
				} `json:"rollout,omitempty"`
			}](),
			[]string{"spec.policyName", "spec.paramRef.parameterNotFoundAction"},
		},
	} {
		t.Run(tc.file, func(t *testing.T) {
			root := version(t, tc.file).Schema.OpenAPIV3Schema
			w := walker{t: t, required: tc.required, seen: map[string]bool{}}
			for _, field := range []string{"operations", "apiGroups", "apiVersions", "resources"} {
				for _, list := range []string{"resourceRules", "excludeResourceRules"} {
					for _, in := range []string{"spec.matchConstraints", "spec.matchResources"} {
						w.required = append(w.required, in+"."+list+"[]."+field)
					}
				}
			}
			spec, status := root.Properties["spec"], root.Properties["status"]
			w.compare("spec", tc.spec, &spec)
			w.compare("status", tc.status, &status)
			if diff := cmp.Diff([]string{"spec"}, root.Required); diff != "" {
				t.Errorf("required (- want):\n%s", diff)
			}
			for _, path := range tc.required {
				if !w.seen[path] {
					t.Errorf("%s: no such field", path)
				}
			}
		})
	}
}

type walker struct {
	t        *testing.T
	required []string
	seen     map[string]bool
}

// atomic are the structs that Kubernetes merges whole; it says so in comments
// (+structType=atomic), which reflection does not see.
var atomic = map[string]bool{
	"MatchResources": true, "NamedRuleWithOperations": true, "ParamKind": true, "ParamRef": true, "Variable": true, "LabelSelector": true,
}

// keys are the lists that are merged by a key; all others are atomic.
var keys = map[string][]string{"spec.matchConditions": {"name"}, "status.conditions": {"type"}}

func (w *walker) compare(path string, typ reflect.Type, schema *apiextensionsv1.JSONSchemaProps) {
	w.t.Helper()
	w.seen[path] = true
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if !strings.HasSuffix(path, "[]") && !strings.HasSuffix(path, "{}") && schema.Description == "" {
		w.t.Errorf("%s: no description", path)
	}
	if typ == reflect.TypeFor[metav1.Time]() {
		if schema.Type != "string" || schema.Format != "date-time" {
			w.t.Errorf("%s: type %q, format %q", path, schema.Type, schema.Format)
		}
		return
	}
	kind := map[reflect.Kind]string{
		reflect.String: "string", reflect.Int64: "integer", reflect.Slice: "array", reflect.Map: "object", reflect.Struct: "object",
	}[typ.Kind()]
	if kind == "" || schema.Type != kind {
		w.t.Errorf("%s: type %q for a Go %s", path, schema.Type, typ)
		return
	}
	switch typ.Kind() {
	case reflect.Map:
		w.compare(path+"{}", typ.Elem(), schema.AdditionalProperties.Schema)
	case reflect.Slice:
		list := "atomic"
		if keys[path] != nil {
			list = "map"
		}
		if schema.XListType == nil || *schema.XListType != list || !slices.Equal(schema.XListMapKeys, keys[path]) {
			w.t.Errorf("%s: not a list of type %s with keys %v", path, list, keys[path])
		}
		w.compare(path+"[]", typ.Elem(), schema.Items.Schema)
	case reflect.Struct:
		if got := schema.XMapType != nil && *schema.XMapType == "atomic"; got != atomic[typ.Name()] {
			w.t.Errorf("%s: atomic %v", path, got)
		}
		var names, required []string
		for field := range fields(typ) {
			name, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
			names = append(names, name)
			if rest == "" || slices.Contains(w.required, path+"."+name) {
				required = append(required, name)
			}
			if property, ok := schema.Properties[name]; ok {
				w.compare(path+"."+name, field.Type, &property)
			}
		}
		slices.Sort(names)
		if diff := cmp.Diff(names, slices.Sorted(maps.Keys(schema.Properties))); diff != "" {
			w.t.Errorf("%s: fields (- Go type):\n%s", path, diff)
		}
		slices.Sort(required)
		if diff := cmp.Diff(required, slices.Sorted(slices.Values(schema.Required))); diff != "" {
			w.t.Errorf("%s: required (- server):\n%s", path, diff)
		}
	}
}

// fields yields the fields of a struct that have a name in JSON, those of
// embedded structs included.
func fields(typ reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for _, field := range reflect.VisibleFields(typ) {
			if !field.Anonymous && !yield(field) {
				return
			}
		}
	}
}

// Whatever a native server takes, the definitions take too, and the server stores
// of it what it stores of the native twin: the defaults are the native ones. What
// decides is mapd's own decoding and validation, which other tests hold to a
// server. (What a native server refuses may pass: mapd's webhook refuses it.)
func TestSchemaTakesWhatAServerTakes(t *testing.T) {
	hammer.Alone(t)
	kinds := newKinds(t)
	n := 0
	for name, obj := range corpus(t) {
		if kind, ok := kinds[obj.GetKind()]; ok {
			native := kind.native(t, obj)
			if native == nil {
				continue
			}
			n++
			stored, err := kind.own(obj)
			if err != nil {
				t.Errorf("%s: %s: %v", name, obj.GetName(), err)
			} else if diff := cmp.Diff(native.Object["spec"], stored.Object["spec"]); diff != "" {
				t.Errorf("%s: %s: stored (- native):\n%s", name, obj.GetName(), diff)
			}
		}
	}
	if n < 1000 {
		t.Errorf("looked at %d objects only", n)
	}
}

// The same for one object of each kind that has every field, with each value in
// turn left out or replaced by another.
func TestSchemaTakesVariants(t *testing.T) {
	hammer.Alone(t)
	const rules = `
    namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: x, operator: In, values: [a]}]}
    objectSelector: {matchExpressions: [{key: x, operator: Exists}]}
    matchPolicy: Exact
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments, deployments/scale], scope: Namespaced, resourceNames: [x]}
    excludeResourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [DELETE], resources: [deployments], scope: "*"}
`
	replacements := []any{nil, "", " ", "*", "Junk!", int64(7), true, []any{}, []any{nil}, []any{"*", "a"}, map[string]any{}, map[string]any{"zzz": int64(1)}}
	kinds := newKinds(t)
	taken, refused := 0, 0
	for _, text := range []string{`
kind: MutatingAdmissionPolicy
metadata: {name: every-field}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  variables: [{name: x, expression: "1"}]
  matchConditions: [{name: c, expression: "true"}, {name: d, expression: "true"}]
  failurePolicy: Ignore
  reinvocationPolicy: IfNeeded
  mutations:
  - {patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/a"}]'}}
  - {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{}"}}
  matchConstraints:` + rules, `
kind: MutatingAdmissionPolicyBinding
metadata: {name: every-field}
spec:
  policyName: every-field
  paramRef: {name: x, namespace: ns, parameterNotFoundAction: Deny}
  matchResources:` + rules, `
kind: MutatingAdmissionPolicyBinding
metadata: {name: by-selector}
spec:
  policyName: every-field
  paramRef: {selector: {matchLabels: {a: b}}, parameterNotFoundAction: Allow}
`} {
		var whole map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &whole); err != nil {
			t.Fatal(err)
		}
		kind := kinds[whole["kind"].(string)]
		variants(whole["spec"], replacements, func(what string, spec any) {
			obj := &unstructured.Unstructured{Object: map[string]any{"kind": whole["kind"], "metadata": whole["metadata"], "spec": spec}}
			native := kind.native(t, obj)
			if native == nil {
				refused++
				return
			}
			taken++
			stored, err := kind.own(obj)
			if err != nil {
				t.Errorf("%s: spec%s: %v", obj.GetName(), what, err)
				return
			}
			// An empty list is stored as it is, where a Go type would drop it. So
			// compare what is read from both.
			if diff := cmp.Diff(native.Object["spec"], kind.native(t, stored).Object["spec"]); diff != "" {
				t.Errorf("%s: spec%s: stored (- native):\n%s", obj.GetName(), what, diff)
			}
		})
	}
	if taken < 100 || refused < 1000 {
		t.Errorf("a server takes %d variants and refuses %d; so few say little", taken, refused)
	}
}

// variants calls f with copies of v in which one value, at any depth, is replaced
// by each of the replacements, left out, or there twice.
func variants(v any, replacements []any, f func(what string, v any)) {
	for _, path := range paths(v) {
		for _, r := range replacements {
			f(fmt.Sprintf("%s = %#v", path, r), edit(v, path, func(any) []any { return []any{r} }))
		}
		f(path.String()+" left out", edit(v, path, func(any) []any { return nil }))
		if _, ok := path[len(path)-1].(int); ok {
			f(path.String()+" twice", edit(v, path, func(item any) []any { return []any{item, item} }))
		}
	}
}

// path leads to a value in a tree: a string for each map, an int for each list.
type path []any

func (p path) String() string {
	var b strings.Builder
	for _, step := range p {
		switch step := step.(type) {
		case string:
			b.WriteString("." + step)
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		}
	}
	return b.String()
}

// paths lists the paths of all values in v, but not that of v.
func paths(v any) []path {
	var all []path
	below := func(step, v any) {
		all = append(all, path{step})
		for _, p := range paths(v) {
			all = append(all, append(path{step}, p...))
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			below(key, v[key])
		}
	case []any:
		for i, item := range v {
			below(i, item)
		}
	}
	return all
}

// edit returns a copy of v in which the value at p has become those that f makes
// of it: none, one or, in a list, several.
func edit(v any, p path, f func(any) []any) any {
	if len(p) == 0 {
		return f(v)[0]
	}
	last := len(p) == 1
	switch step := p[0].(type) {
	case string:
		m := maps.Clone(v.(map[string]any))
		if !last {
			m[step] = edit(m[step], p[1:], f)
		} else if got := f(m[step]); len(got) == 0 {
			delete(m, step)
		} else {
			m[step] = got[0]
		}
		return m
	case int:
		l := slices.Clone(v.([]any))
		if !last {
			l[step] = edit(l[step], p[1:], f)
			return l
		}
		return slices.Replace(l, step, step+1, f(l[step])...)
	}
	panic("a path has strings and ints")
}

// A null is no value, as for a native server, and in a list or map of strings
// the empty string: a selector must not lose a requirement by it.
func TestSchemaAndNull(t *testing.T) {
	const text = `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: nulls}
spec:
  paramKind:
  variables:
  matchConditions:
  failurePolicy:
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {a: }, matchExpressions: }
    objectSelector:
    excludeResourceRules:
    matchPolicy:
    resourceRules:
    - apiGroups: [null]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [pods]
      resourceNames:
      scope:
  mutations:
  - patchType: JSONPatch
    applyConfiguration:
    jsonPatch: {expression: "[JSONPatch{}]"}
`
	obj := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	policies := newKinds(t)["MutatingAdmissionPolicy"]
	native := policies.native(t, obj)
	if native == nil {
		t.Fatal("a native server refuses the policy")
	}
	stored, err := policies.own(obj)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(native.Object["spec"], policies.native(t, stored).Object["spec"]); diff != "" {
		t.Errorf("stored (- native):\n%s", diff)
	}
	labels, _, _ := unstructured.NestedMap(stored.Object, "spec", "matchConstraints", "namespaceSelector", "matchLabels")
	if _, ok := labels["a"]; !ok {
		t.Error("the selector has lost the label a")
	}
	if _, ok := stored.Object["spec"].(map[string]any)["variables"]; ok {
		t.Error("a null was stored")
	}
}

// kind is one of the two kinds, as a server knows it: the native one, and that of
// the CustomResourceDefinition.
type kind struct {
	decode     func(*unstructured.Unstructured) (runtime.Object, field.ErrorList, error)
	structural *structuralschema.Structural
	validator  apiservervalidation.SchemaValidator
}

func newKinds(t *testing.T) map[string]*kind {
	t.Helper()
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	policies := newKind(t, "crd-policies.yaml")
	policies.decode = func(u *unstructured.Unstructured) (runtime.Object, field.ErrorList, error) {
		obj, err := policy.Decode(u)
		if err != nil {
			return nil, nil, err
		}
		return obj, policy.Validate(obj, env).Form(), nil
	}
	bindings := newKind(t, "crd-bindings.yaml")
	bindings.decode = func(u *unstructured.Unstructured) (runtime.Object, field.ErrorList, error) {
		obj, err := binding.Decode(u)
		if err != nil {
			return nil, nil, err
		}
		return obj, binding.Validate(obj).Form(), nil
	}
	return map[string]*kind{"MutatingAdmissionPolicy": policies, "MutatingAdmissionPolicyBinding": bindings}
}

func newKind(t *testing.T, file string) *kind {
	t.Helper()
	v := version(t, file)
	structural, err := cases.Structural(v)
	if err != nil {
		t.Fatal(err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		t.Fatal(err)
	}
	validator, _, err := apiservervalidation.NewSchemaValidator(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return &kind{structural: structural, validator: validator}
}

// native returns what a native server stores of obj, nil if it refuses it.
func (k *kind) native(t *testing.T, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	obj = obj.DeepCopy()
	obj.SetAPIVersion("admissionregistration.k8s.io/v1")
	typed, errs, err := k.decode(obj)
	if err != nil || len(errs) > 0 {
		return nil
	}
	stored, err := cases.Untyped(typed, obj.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// own returns what a server with the CustomResourceDefinition stores of obj, by
// the steps of its handlers.
func (k *kind) own(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	obj = obj.DeepCopy()
	obj.SetAPIVersion(group + "/v1")
	unknown := structuralpruning.PruneWithOptions(obj.Object, k.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(unknown) > 0 {
		return nil, fmt.Errorf("unknown fields: %v", unknown)
	}
	structuraldefaulting.PruneNonNullableNullsWithoutDefaults(obj.Object, k.structural)
	structuraldefaulting.Default(obj.Object, k.structural)
	errs := apiservervalidation.ValidateCustomResource(nil, obj.Object, k.validator)
	errs = append(errs, structurallisttype.ValidateListSetsAndMaps(nil, k.structural, obj.Object)...)
	return obj, errs.ToAggregate()
}

// corpus yields the policies and bindings of the case files and of the examples.
func corpus(t *testing.T) iter.Seq2[string, *unstructured.Unstructured] {
	t.Helper()
	examples, err := filepath.Glob("../examples/*/policy.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	return func(yield func(string, *unstructured.Unstructured) bool) {
		for _, c := range cases.All(t) {
			for _, obj := range slices.Concat(c.Policies, c.Bindings) {
				if !yield(c.Name, obj) {
					return
				}
			}
		}
		for doc, err := range manifest.Read(manifest.Inputs(examples, nil)) {
			if err != nil {
				t.Fatal(err)
			}
			if doc.Object != nil && !yield(doc.Where(), doc.Object) {
				return
			}
		}
	}
}
