package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

const widgetCRD = `{
 "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
 "metadata": {"name": "widgets.ex.io"},
 "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
  "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
   "spec": {"type": "object", "properties": {
    "n": {"type": "integer"},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"], "items": {"type": "object", "required": ["name"], "properties": {
      "name": {"type": "string"}, "port": {"type": "integer", "default": 80}, "v": {"type": "string"}}}},
    "puf": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}}},
    "args": {"type": "array", "items": {"type": "string"}}
   }}}}}}]}}`

func testDeps(t testing.TB) Deps {
	t.Helper()
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	crds, err := openapi.CRDs(&unstructured.Unstructured{Object: object(t, widgetCRD)})
	if err != nil {
		t.Fatal(err)
	}
	return Deps{Env: env, Types: openapi.New(openapi.Builtin(), crds)}
}

func applyMutation(expr string) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expr}}
}

func jsonMutation(expr string) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expr}}
}

func newPolicy(mutations ...admissionregistrationv1.Mutation) *admissionregistrationv1.MutatingAdmissionPolicy {
	p := &admissionregistrationv1.MutatingAdmissionPolicy{}
	p.Name = "p"
	p.Spec.Mutations = mutations
	return p
}

func compiled(t testing.TB, deps Deps, obj *admissionregistrationv1.MutatingAdmissionPolicy) *Policy {
	t.Helper()
	p, err := Compile(obj, deps)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newInput(obj map[string]any) Input {
	u := &unstructured.Unstructured{Object: obj}
	kind := u.GroupVersionKind()
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: strings.ToLower(kind.Kind) + "s"}
	return Input{
		Request: &Request{
			Kind: kind, Resource: resource, RequestKind: kind, RequestResource: resource,
			Name: u.GetName(), Namespace: u.GetNamespace(), Operation: admissionv1.Create, Object: u,
			UserInfo: authenticationv1.UserInfo{Username: "jane", Groups: []string{"dev"}},
		},
		Kind: kind, Resource: resource, Object: u,
	}
}

// run applies all mutations as the engine does, errors collected.
func run(p *Policy, in Input) (*unstructured.Unstructured, []error) {
	var errs []error
	in.draft() // one for all of them
	for _, m := range p.Mutations() {
		out, err := m.Mutate(context.Background(), in)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		in.Object = out
	}
	return in.Object, errs
}

const (
	configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"default"},"data":{"a":"1"}}`
	widget    = `{"apiVersion":"ex.io/v1","kind":"Widget","metadata":{"name":"x","namespace":"default"},"spec":`
)

func deployment(t testing.TB, deps Deps) map[string]any {
	t.Helper()
	const text = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"default","labels":{"c":"d"}},
 "spec":{"replicas":3,"minReadySeconds":4,"selector":{"matchLabels":{"a":"b"}},"strategy":{},"template":{"metadata":{"labels":{"a":"b"}},
 "spec":{"containers":[{"name":"c1","image":"i","args":["x"],"env":[{"name":"E","value":"v"}]},{"name":"c2","image":"i"}]}}},"status":{}}`
	kind, err := deps.Types.Kind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	if err != nil {
		t.Fatal(err)
	}
	obj, err := kind.Normalize(object(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestMutate has vectors of spec Appendix A that concern one policy alone.
func TestMutate(t *testing.T) {
	tests := map[string]struct {
		obj       string // "D": the deployment
		mutations []admissionregistrationv1.Mutation
		at        string // "a.b.c" of what to look at
		want      any
		err       string // a substring of the joined errors
	}{
		"A1 nothing":                        {obj: configMap, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{}`)}},
		"A2 an error does not stop":         {obj: configMap, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{metadata: Object.metadata{labels: {"x": object.nosuch}}}`), applyMutation(`Object{metadata: Object.metadata{labels: {"z": "1"}}}`)}, at: "metadata.labels", want: map[string]any{"z": "1"}, err: `resulted in error: no such key: nosuch`},
		"A4 unknown field":                  {obj: configMap, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{nosuch: "y"}`)}, err: `error applying patch: failed to convert patch object to typed object: .nosuch: field not declared in schema`},
		"A5 wrong type":                     {obj: configMap, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{data: Object.data{a: 3}}`)}, err: `error applying patch: failed to convert patch object to typed object: .data.a: expected string, got &value.valueUnstructured{Value:3}`},
		"A6 type name":                      {obj: configMap, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{metadata: Object.wrong{}}`)}, err: `type mismatch: unexpected type name "Object.wrong", expected "Object.metadata", which matches field name path from root Object type`},
		"A7 apiVersion and kind are not":    {obj: configMap, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{apiVersion: "v9", kind: "Foo"}`)}},
		"A10 test fails, next goes on":      {obj: configMap, mutations: []admissionregistrationv1.Mutation{jsonMutation(`[JSONPatch{op: "add", path: "/data/b", value: "2"}, JSONPatch{op: "test", path: "/data/a", value: "2"}]`), jsonMutation(`[JSONPatch{op: "add", path: "/data/c", value: "1"}]`)}, at: "data", want: map[string]any{"a": "1", "c": "1"}},
		"A11 missing parent":                {obj: configMap, mutations: []admissionregistrationv1.Mutation{jsonMutation(`[JSONPatch{op: "remove", path: "/metadata/labels/x"}]`)}, err: `JSON Patch: remove operation does not apply: doc is missing path: "/metadata/labels/x": missing value`},
		"A12 unknown field by JSON Patch":   {obj: configMap, mutations: []admissionregistrationv1.Mutation{jsonMutation(`[JSONPatch{op: "add", path: "/bogus", value: "x"}]`)}, err: `strict decoding error: unknown field "bogus"`},
		"A13 crash of upstream's library":   {obj: configMap, mutations: []admissionregistrationv1.Mutation{jsonMutation(`[JSONPatch{op: "add", path: "/metadata/labels", value: null}, JSONPatch{op: "add", path: "/metadata/labels/x", value: "1"}]`)}, err: `JSON Patch: add operation below a null that the patch has just written`},
		"A19 unset":                         {obj: "D", mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{minReadySeconds: optional.none()}}`)}, at: "spec.minReadySeconds", want: nil},
		"A20 leave out":                     {obj: "D", mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{?replicas: optional.none()}}`)}},
		"A21 null label":                    {obj: "D", mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{metadata: Object.metadata{labels: {"c": optional.none()}}}`)}, at: "metadata.labels", want: map[string]any{"c": ""}},
		"A22 null annotations":              {obj: "D", mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{metadata: Object.metadata{annotations: optional.none()}, spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: optional.none(), tolerations: optional.none()}}}}`)}},
		"A23 a float that is whole":         {obj: "D", mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{replicas: 5.0}}`)}, at: "spec.replicas", want: int64(5)},
		"A23 a float that is not":           {obj: "D", mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{replicas: 5.7}}`)}, err: `cannot convert float64 to int32`},
		"A24 atomic args":                   {obj: "D", mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: "c1", args: ["y"]}], nodeSelector: {}}}}}`)}, err: `error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.template.spec.containers[0].args, .spec.template.spec.nodeSelector`},
		"A29 a string for a number":         {obj: "D", mutations: []admissionregistrationv1.Mutation{jsonMutation(`[JSONPatch{op: "replace", path: "/spec/replicas", value: "5"}]`)}, err: `cannot unmarshal string into Go struct field`},
		"A31 set":                           {obj: widget + `{"set":["a","b"]}}`, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{set: ["b", "c"]}}`)}, at: "spec.set", want: []any{"a", "b", "c"}},
		"A32 set with a duplicate":          {obj: widget + `{"set":["a","b"]}}`, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{set: ["b", "b"]}}`)}, err: `.spec.set: duplicate entries for key [="b"]`},
		"A33 key default":                   {obj: widget + `{"items":[{"name":"a","port":80,"v":"old"}]}}`, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{items: [Object.spec.items{name: "a", v: "new"}]}}`)}, at: "spec.items", want: []any{map[string]any{"name": "a", "port": int64(80), "v": "new"}}},
		"A34 map literal as element":        {obj: widget + `{"items":[]}}`, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{items: [{"name": "a"}]}}`)}, err: `associative list with keys may not have non-map elements`},
		"A35 atomic list in a map":          {obj: widget + `{"m":{"k":{"l":["a"]}}}}`, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{m: {"k": Object.spec.m{l: ["b"]}}}}`)}, at: "spec.m", want: map[string]any{"k": map[string]any{"l": []any{"b"}}}},
		"A36 preserved fields":              {obj: widget + `{"puf":{"a":{"b":1},"l":[1]}}}`, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{puf: Object.spec.puf{l: [2]}}}`)}, at: "spec.puf", want: map[string]any{"a": map[string]any{"b": int64(1)}, "l": []any{int64(2)}}},
		"A37 a uint":                        {obj: widget + `{"n":1}}`, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{n: 3u}}`)}, err: `.spec.n: expected numeric (int or float), got uint64`},
		"a live object that does not fit":   {obj: widget + `{"n":"x"}}`, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{set: ["a"]}}`)}, err: `error applying patch: failed to convert original object to typed object: .spec.n: expected numeric`},
		"a kind without a type":             {obj: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"x"},"spec":{"replicas":1}}`, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{spec: Object.spec{replicas: 2}}`)}, err: `error applying patch: failed to convert patch object to typed object: no corresponding type for autoscaling/v1, Kind=Scale`},
		"JSON Patch on a kind without type": {obj: `{"apiVersion":"nosuch.io/v1","kind":"Foo","metadata":{"name":"x"}}`, mutations: []admissionregistrationv1.Mutation{jsonMutation(`[JSONPatch{op: "add", path: "/x", value: 1}]`)}, at: "x", want: int64(1)},
		"a custom object of another kind":   {obj: widget + `{"n":1}}`, mutations: []admissionregistrationv1.Mutation{jsonMutation(`[JSONPatch{op: "replace", path: "/kind", value: "Gadget"}]`), applyMutation(`Object{spec: Object.spec{n: 2}}`)}, at: "spec.n", want: int64(1), err: `no corresponding type for ex.io/v1, Kind=Gadget`},
		"a set value is no change":          {obj: configMap, mutations: []admissionregistrationv1.Mutation{applyMutation(`Object{data: {"a": "1"}}`), jsonMutation(`[JSONPatch{op: "replace", path: "/data/a", value: "1"}]`)}},
		"request and variables":             {obj: configMap, mutations: []admissionregistrationv1.Mutation{jsonMutation(`[JSONPatch{op: "add", path: "/data/u", value: request.userInfo.username + request.resource.resource + request.kind.kind}]`)}, at: "data.u", want: "janeconfigmapsConfigMap"},
		"an absent key of request":          {obj: configMap, mutations: []admissionregistrationv1.Mutation{jsonMutation(`[JSONPatch{op: "add", path: "/data/u", value: request.subResource}]`)}, err: `no such key: subResource`},
	}
	deps := testDeps(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := deployment(t, deps)
			if tt.obj != "D" {
				obj = object(t, tt.obj)
			}
			in := newInput(obj)
			text := fmt.Sprint(obj)
			got, errs := run(compiled(t, deps, newPolicy(tt.mutations...)), in)
			if err := errString(errors.Join(errs...)); tt.err == "" && err != "" || !strings.Contains(err, tt.err) {
				t.Fatalf("error = %q, want %q", err, tt.err)
			}
			if fmt.Sprint(obj) != text {
				t.Error("the object was modified")
			}
			if tt.at == "" {
				if got != in.Object {
					t.Errorf("the object changed: %v", got.Object)
				}
				return
			}
			v, _, err := unstructured.NestedFieldNoCopy(got.Object, strings.Split(tt.at, ".")...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, v); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.at, diff)
			}
		})
	}
}

func TestMutateWithoutSchema(t *testing.T) {
	p := compiled(t, testDeps(t), newPolicy(applyMutation(`Object{x: 1}`)))
	in := newInput(object(t, `{"apiVersion":"nosuch.io/v1","kind":"Foo","metadata":{"name":"x"}}`))
	_, errs := run(p, in)
	var status *apierrors.StatusError
	if !errors.As(errors.Join(errs...), &status) || status.ErrStatus.Code != 503 {
		t.Fatalf("errors = %v, want a 503", errs)
	}
	const want = "Resource kind nosuch.io/v1, Kind=Foo not found. There can be a delay between when CustomResourceDefinitions are created and when they are available."
	if status.Error() != want {
		t.Errorf("error = %q, want %q", status.Error(), want)
	}
}

// TestMutateConstant runs one constant patch on two kinds in turn: what is known
// about it for the one must not be taken for the other.
func TestMutateConstant(t *testing.T) {
	deps := testDeps(t)
	p := compiled(t, deps, newPolicy(applyMutation(`Object{data: {"k": "v"}}`)))
	for range 2 {
		got, errs := run(p, newInput(object(t, configMap)))
		if errs != nil {
			t.Fatal(errs)
		}
		if diff := cmp.Diff(map[string]any{"a": "1", "k": "v"}, got.Object["data"]); diff != "" {
			t.Errorf("ConfigMap: -want +got\n%s", diff)
		}
		_, errs = run(p, newInput(deployment(t, deps)))
		const want = "error applying patch: failed to convert patch object to typed object: .data: field not declared in schema"
		if msg := errString(errors.Join(errs...)); msg != want {
			t.Errorf("Deployment: error = %q, want %q", msg, want)
		}
	}
}

// TestMutateCost expects the same cost from every run, of a constant expression
// as well, and from one that fails.
func TestMutateCost(t *testing.T) {
	deps := testDeps(t)
	for _, m := range []admissionregistrationv1.Mutation{jsonMutation(fixedByJSONPatch), applyMutation(fixedByApply), applyMutation(labelByApply), applyMutation(`Object{data: {"x": object.nosuch}}`)} {
		p := compiled(t, deps, newPolicy(m))
		var costs []int64
		for range 3 {
			in := newInput(object(t, configMap))
			var cost int64
			in.Cost = &cost
			run(p, in)
			costs = append(costs, cost)
		}
		if costs[0] == 0 || costs[1] != costs[0] || costs[2] != costs[0] {
			t.Errorf("%v: costs %v", m, costs)
		}
	}
}

// TestHammerMutate shares policy, request and objects between goroutines; it
// says something under -race.
func TestHammerMutate(t *testing.T) {
	deps := testDeps(t)
	obj := newPolicy(
		applyMutation(fixedByApply), applyMutation(everyContainer), jsonMutation(fixedByJSONPatch), jsonMutation(labelByJSONPatch),
		jsonMutation(`[JSONPatch{op: "add", path: "/metadata/labels/by", value: request.userInfo.username}, JSONPatch{op: "add", path: "/metadata/annotations", value: {"a": "b"}}, JSONPatch{op: "add", path: "/metadata/annotations/c", value: "d"}]`),
	)
	obj.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: "request.name != ''"}}
	p := compiled(t, deps, obj)
	in := newInput(pod(t, deps, 3, 3))
	want, errs := run(p, in)
	if errs != nil {
		t.Fatal(errs)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if match, err := p.Matches(context.Background(), in); !match.OK || err != nil {
					t.Errorf("Matches = %v, %v", match, err)
				}
				got, errs := run(p, in)
				if errs != nil || !tree.Equal(want.Object, got.Object) {
					t.Errorf("got %v, %v", got, errs)
				}
			}
		})
	}
	wg.Wait()
}

func TestMutateWithoutObject(t *testing.T) {
	p := compiled(t, testDeps(t), newPolicy(applyMutation(`Object{x: 1}`), jsonMutation(`[JSONPatch{op: "remove", path: "/x"}]`)))
	for _, m := range p.Mutations() {
		if got, err := m.Mutate(context.Background(), Input{Request: &Request{}}); got != nil || err != nil {
			t.Errorf("%s without object = %v, %v", m.Type, got, err)
		}
	}
}

func TestMatches(t *testing.T) {
	type cond = admissionregistrationv1.MatchCondition
	tests := map[string]struct {
		conditions []cond
		want       Match
		err        string
	}{
		"none":                      {want: Match{OK: true}},
		"true":                      {conditions: []cond{{Name: "a", Expression: "true"}}, want: Match{OK: true}},
		"first false":               {conditions: []cond{{Name: "a", Expression: "true"}, {Name: "b", Expression: "false"}, {Name: "c", Expression: "false"}}, want: Match{Condition: "b"}},
		"error":                     {conditions: []cond{{Name: "a", Expression: "object.x == 1"}}, err: "expression 'object.x == 1' resulted in error: no such key: x"},
		"errors joined":             {conditions: []cond{{Name: "a", Expression: "object.x == 1"}, {Name: "b", Expression: "true"}, {Name: "c", Expression: "object.y == 1"}}, err: "[expression 'object.x == 1' resulted in error: no such key: x, expression 'object.y == 1' resulted in error: no such key: y]"},
		"false wins over an error":  {conditions: []cond{{Name: "a", Expression: "object.x == 1"}, {Name: "b", Expression: "false"}}, want: Match{Condition: "b"}},
		"no namespace":              {conditions: []cond{{Name: "a", Expression: "namespaceObject == null"}}, want: Match{OK: true}},
		"the request's resource":    {conditions: []cond{{Name: "a", Expression: "request.resource.version == 'v1' && request.kind.version == 'v2'"}}, want: Match{OK: true}},
		"budget wins over a false":  {conditions: []cond{{Name: "a", Expression: "false"}, {Name: "b", Expression: dear}, {Name: "c", Expression: dear}, {Name: "d", Expression: dear}, {Name: "e", Expression: dear}, {Name: "f", Expression: dear}}, err: "validation failed due to running out of cost budget, no further validation rules will be run"},
		"dear but within the limit": {conditions: []cond{{Name: "a", Expression: dear}}, want: Match{OK: true}},
	}
	deps := testDeps(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := newPolicy(applyMutation(`Object{}`))
			obj.Spec.MatchConditions = tt.conditions
			p := compiled(t, deps, obj)
			in := newInput(object(t, configMap))
			in.Kind.Version, in.Resource.Version = "v2", "v2"
			in.Namespace = in.Object
			var cost int64
			in.Cost = &cost
			got, err := p.Matches(context.Background(), in)
			if msg := errString(err); msg != tt.err {
				t.Fatalf("error = %q, want %q", msg, tt.err)
			}
			if got != tt.want {
				t.Errorf("Matches = %+v, want %+v", got, tt.want)
			}
			if len(tt.conditions) > 0 && strings.Contains(tt.conditions[0].Expression, "object") && cost == 0 {
				t.Error("no cost was counted")
			}
		})
	}
}

// dear costs 544,441, so that five exceed the budget of the conditions.
const dear = `[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, a >= 0)))))`

func TestCompileErrors(t *testing.T) {
	obj := newPolicy(applyMutation(`Object{}.x.y.z(`), jsonMutation(`[]`), jsonMutation(`[JSONPatch{op: "remove", path: "/x"}]`))
	obj.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: "variables.x"}}
	obj.Spec.Variables = []admissionregistrationv1.Variable{{Name: "x", Expression: "1 +"}}
	_, err := Compile(obj, testDeps(t))
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("Compile error = %v, want several", err)
	}
	var got []string
	for _, err := range joined.Unwrap() {
		var at *api.Fault
		var compile *cel.CompileError
		if !errors.As(err, &at) || !errors.As(err, &compile) {
			t.Fatalf("%T %v is no Fault with a CompileError", err, err)
		}
		got = append(got, at.Path)
	}
	want := []string{"spec.matchConditions[0].expression", "spec.variables[0].expression", "spec.mutations[0].applyConfiguration.expression", "spec.mutations[1].jsonPatch.expression"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields: -want +got\n%s", diff)
	}
}

func TestBroken(t *testing.T) {
	cause := errors.New("no such thing")
	p := Broken(newPolicy(applyMutation(`Object{}`)), cause)
	if p.Err() != cause || p.Name() != "p" || len(p.Mutations()) != 0 {
		t.Errorf("Broken: %v, %q, %d mutations", p.Err(), p.Name(), len(p.Mutations()))
	}
	if _, err := p.Matches(context.Background(), newInput(object(t, configMap))); err != cause {
		t.Errorf("Matches error = %v, want %v", err, cause)
	}
}

// pod has n containers with env variables each.
func pod(t testing.TB, deps Deps, containers, env int) map[string]any {
	t.Helper()
	list := []any{}
	for i := range containers {
		vars := []any{}
		for j := range env {
			vars = append(vars, map[string]any{"name": fmt.Sprintf("VARIABLE_%d", j), "value": "some value of it"})
		}
		list = append(list, map[string]any{
			"name": fmt.Sprintf("c%d", i), "image": "registry.example.com/team/app:1.2.3", "env": vars,
			"resources": map[string]any{"limits": map[string]any{"cpu": "1", "memory": "1Gi"}},
		})
	}
	obj := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "p", "namespace": "default", "labels": map[string]any{"app": "p"}},
		"spec":     map[string]any{"containers": list},
		"status":   map[string]any{},
	}
	kind, err := deps.Types.Kind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if err != nil {
		t.Fatal(err)
	}
	obj, err = kind.Normalize(obj)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

const (
	labelByJSONPatch = `[JSONPatch{op: "add", path: "/metadata/labels/team", value: object.metadata.name}]`
	labelByApply     = `Object{metadata: Object.metadata{labels: {"team": object.metadata.name}}}`
	fixedByJSONPatch = `[JSONPatch{op: "add", path: "/metadata/labels/team", value: "x"}]`
	fixedByApply     = `Object{metadata: Object.metadata{labels: {"team": "x"}}}`
	everyContainer   = `Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`
)

func TestMutateShares(t *testing.T) {
	deps := testDeps(t)
	big := pod(t, deps, 20, 40)
	for name, m := range map[string]admissionregistrationv1.Mutation{"JSONPatch": jsonMutation(labelByJSONPatch), "ApplyConfiguration": applyMutation(labelByApply)} {
		got, errs := run(compiled(t, deps, newPolicy(m)), newInput(big))
		if errs != nil {
			t.Fatal(errs)
		}
		if !tree.Same(big["spec"], got.Object["spec"]) || !tree.Same(big["status"], got.Object["status"]) {
			t.Errorf("%s of a label copies more than metadata", name)
		}
	}
	got, errs := run(compiled(t, deps, newPolicy(applyMutation(everyContainer))), newInput(big))
	if errs != nil {
		t.Fatal(errs)
	}
	before := big["spec"].(map[string]any)["containers"].([]any)
	after := got.Object["spec"].(map[string]any)["containers"].([]any)
	for i := range before {
		b, a := before[i].(map[string]any), after[i].(map[string]any)
		if !tree.Same(b["env"], a["env"]) || a["imagePullPolicy"] != "Always" {
			t.Errorf("containers[%d]: env is not shared or imagePullPolicy not set", i)
		}
	}
}

// TestMutateAllocations holds the cost of a label: it must not depend on the
// size of the object.
func TestMutateAllocations(t *testing.T) {
	deps := testDeps(t)
	for name, tt := range map[string]struct {
		m     admissionregistrationv1.Mutation
		limit float64
	}{
		"JSONPatch":                   {jsonMutation(labelByJSONPatch), 60},
		"ApplyConfiguration":          {applyMutation(labelByApply), 60},
		"constant JSONPatch":          {jsonMutation(fixedByJSONPatch), 30},
		"constant ApplyConfiguration": {applyMutation(fixedByApply), 30},
	} {
		t.Run(name, func(t *testing.T) {
			p := compiled(t, deps, newPolicy(tt.m))
			allocs := func(in Input) float64 {
				return hammer.Allocs(t, func() {
					if _, err := p.Mutations()[0].Mutate(context.Background(), in); err != nil {
						t.Fatal(err)
					}
				})
			}
			small, big := allocs(newInput(pod(t, deps, 3, 2))), allocs(newInput(pod(t, deps, 20, 40)))
			if big > small+2 || small > big+2 { // a garbage collection empties pools
				t.Errorf("%v allocations on a small pod, %v on a big one", small, big)
			}
			if big > tt.limit {
				t.Errorf("%v allocations, want at most %v", big, tt.limit)
			}
		})
	}
}

func BenchmarkMutate(b *testing.B) {
	deps := testDeps(b)
	for _, m := range []struct {
		name string
		m    admissionregistrationv1.Mutation
	}{
		{"label/jsonpatch", jsonMutation(labelByJSONPatch)},
		{"label/apply", applyMutation(labelByApply)},
		{"constant/jsonpatch", jsonMutation(fixedByJSONPatch)},
		{"constant/apply", applyMutation(fixedByApply)},
		{"containers/apply", applyMutation(everyContainer)},
	} {
		for _, size := range []struct {
			name            string
			containers, env int
		}{{"small", 3, 2}, {"big", 20, 40}} {
			b.Run(m.name+"/"+size.name, func(b *testing.B) {
				p := compiled(b, deps, newPolicy(m.m))
				in := newInput(pod(b, deps, size.containers, size.env))
				mutator := p.Mutations()[0]
				if got, err := mutator.Mutate(context.Background(), in); err != nil || got == in.Object {
					b.Fatalf("Mutate = %v, %v", got, err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := mutator.Mutate(context.Background(), in); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
