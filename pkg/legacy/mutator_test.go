package legacy

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/tree"
)

// many are the elements of a list.
var many = strings.Repeat("a, ", 3000) + "a"

const pods = "applyTo: [{groups: [''], versions: [v1], kinds: [Pod]}]"

// cr is a mutator from YAML: kind, name and spec.
func cr(t testing.TB, kind Kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte("spec:\n  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ")))
	if err != nil {
		t.Fatal(err)
	}
	obj, err := tree.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	obj["apiVersion"], obj["kind"] = Group+"/"+kind.Version(), string(kind)
	obj["metadata"] = map[string]any{"name": name}
	return &unstructured.Unstructured{Object: obj}
}

func mustDecode(t testing.TB, kind Kind, name, spec string) *Mutator {
	t.Helper()
	m, err := Decode(cr(t, kind, name, spec))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDecode(t *testing.T) {
	got := mustDecode(t, Assign, "all", `
applyTo:
- {groups: ['', apps], versions: [v1], kinds: [Pod], operations: [CREATE], unknown: 1}
match:
  source: All
  scope: Namespaced
  kinds: [{apiGroups: ['*'], kinds: [Pod]}]
  namespaces: [a-*]
  excludedNamespaces: ['*-b']
  name: p*
  labelSelector:
    matchLabels: {x: z}
    matchExpressions: [{key: k, operator: In, values: [v]}]
  namespaceSelector: {}
location: ' spec . l[k:v] . x '
parameters:
  pathTests:
  - {subPath: '', condition: MustExist}
  - {subPath: 'spec.l[k: "v"]', condition: MustNotExist}
  - {subPath: spec, condition: Whatever}
  assign:
    value: {o: 1, l: [2, 1.5, null, 9007199254740993]}
    fromMetadata: null
    unknown: {}
  assignIf: {in: [x]}
`)
	want := &Mutator{
		Kind: Assign, Name: "all",
		Location: Path{field("spec"), field("l"), keyed("k", "v"), field("x")},
		ApplyTo:  []ApplyTo{{Groups: []string{"", "apps"}, Versions: []string{"v1"}, Kinds: []string{"Pod"}, Operations: []string{"CREATE"}}},
		Match: Match{
			Kinds: []MatchKinds{{APIGroups: []string{"*"}, Kinds: []string{"Pod"}}}, Scope: "Namespaced",
			Namespaces: []string{"a-*"}, ExcludedNamespaces: []string{"*-b"}, Name: "p*", Source: "All",
			LabelSelector: &metav1.LabelSelector{
				MatchLabels:      map[string]string{"x": "z"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "In", Values: []string{"v"}}},
			},
			NamespaceSelector: &metav1.LabelSelector{},
		},
		Tests: []PathTest{{0, "Whatever"}, {2, MustNotExist}},
		From:  &Source{Value: map[string]any{"o": 1.0, "l": []any{2.0, 1.5, nil, 9007199254740992.0}}},
		Object: map[string]any{
			"apiVersion": "mutations.gatekeeper.sh/v1", "kind": "Assign", "metadata": map[string]any{"name": "all"},
			"spec": map[string]any{
				"applyTo": []any{map[string]any{"groups": []any{"", "apps"}, "versions": []any{"v1"}, "kinds": []any{"Pod"}, "operations": []any{"CREATE"}}},
				"match": map[string]any{
					"source": "All", "scope": "Namespaced", "kinds": []any{map[string]any{"apiGroups": []any{"*"}, "kinds": []any{"Pod"}}},
					"namespaces": []any{"a-*"}, "excludedNamespaces": []any{"*-b"}, "name": "p*",
					"labelSelector": map[string]any{
						"matchLabels":      map[string]any{"x": "z"},
						"matchExpressions": []any{map[string]any{"key": "k", "operator": "In", "values": []any{"v"}}},
					},
					"namespaceSelector": map[string]any{},
				},
				"location": " spec . l[k:v] . x ",
				"parameters": map[string]any{
					"pathTests": []any{
						map[string]any{"subPath": "", "condition": "MustExist"},
						map[string]any{"subPath": `spec.l[k: "v"]`, "condition": "MustNotExist"},
						map[string]any{"subPath": "spec", "condition": "Whatever"},
					},
					"assign": map[string]any{"value": map[string]any{"o": 1.0, "l": []any{2.0, 1.5, nil, 9007199254740992.0}}},
				},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Decode (-want +got):\n%s", diff)
	}
}

func TestDecodeKinds(t *testing.T) {
	tests := []struct {
		name string
		kind Kind
		spec string
		want Mutator // without Kind, Name, Location, ApplyTo and Object
		// params is spec.parameters of the Object.
		params map[string]any
	}{
		{"a string", Assign, pods + "\nlocation: a\nparameters: {assign: {value: ''}}",
			Mutator{From: &Source{Value: ""}}, map[string]any{"assign": map[string]any{"value": ""}}},
		{"fromMetadata", Assign, pods + "\nlocation: a\nparameters: {assign: {fromMetadata: {field: namespace}}}",
			Mutator{From: &Source{Metadata: "namespace"}}, map[string]any{"assign": map[string]any{"fromMetadata": map[string]any{"field": "namespace"}}}},
		{"externalData has defaults", Assign, pods + "\nlocation: a\nparameters: {assign: {externalData: {provider: p}}}",
			Mutator{From: &Source{External: &External{Provider: "p", DataSource: "ValueAtLocation", FailurePolicy: "Fail"}}},
			map[string]any{"assign": map[string]any{"externalData": map[string]any{"provider": "p", "dataSource": "ValueAtLocation", "failurePolicy": "Fail"}}}},
		{"an element", Assign, pods + "\nlocation: 'a[k: v]'\nparameters: {assign: {value: {k: v, o: 1}}}",
			Mutator{From: &Source{Value: map[string]any{"k": "v", "o": 1.0}}}, map[string]any{"assign": map[string]any{"value": map[string]any{"k": "v", "o": 1.0}}}},
		{"one may change deeper what the key is", Assign, pods + "\nlocation: 'a[n: x].n.z'\nparameters: {assign: {value: 1}}",
			Mutator{From: &Source{Value: 1.0}}, map[string]any{"assign": map[string]any{"value": 1.0}}},
		{"metadata below the root", Assign, pods + "\nlocation: spec.metadata.labels\nparameters: {assign: {value: 1}}",
			Mutator{From: &Source{Value: 1.0}}, map[string]any{"assign": map[string]any{"value": 1.0}}},
		{"a path test refused in another order", Assign,
			pods + "\nlocation: a.b\nparameters: {assign: {value: x}, pathTests: [{subPath: a, condition: MustExist}, {subPath: a.b, condition: MustNotExist}]}",
			Mutator{From: &Source{Value: "x"}, Tests: []PathTest{{0, MustExist}, {1, MustNotExist}}},
			map[string]any{"assign": map[string]any{"value": "x"}, "pathTests": []any{
				map[string]any{"subPath": "a", "condition": "MustExist"}, map[string]any{"subPath": "a.b", "condition": "MustNotExist"}}}},
		{"a label", AssignMetadata, "location: metadata.labels.\"a/b\"\nparameters: {assign: {value: x}, pathTests: [{subPath: 7}]}\napplyTo: 7",
			Mutator{From: &Source{Value: "x"}, Tests: []PathTest{{2, MustNotExist}}}, map[string]any{"assign": map[string]any{"value": "x"}}},
		{"an annotation without a name", AssignMetadata, "location: metadata.annotations.\"\"\nparameters: {assign: {externalData: {dataSource: Username}}}",
			Mutator{From: &Source{External: &External{DataSource: "Username", FailurePolicy: "Fail"}}, Tests: []PathTest{{2, MustNotExist}}},
			map[string]any{"assign": map[string]any{"externalData": map[string]any{"dataSource": "Username", "failurePolicy": "Fail"}}}},
		{"merge is the default", ModifySet, pods + "\nlocation: a\nparameters: {values: {fromList: [1, 1.5, null], other: 1}}",
			Mutator{Set: &SetValues{Values: []any{int64(1), 1.5, nil}}},
			map[string]any{"operation": "merge", "values": map[string]any{"fromList": []any{int64(1), 1.5, nil}}}},
		{"merge of nothing", ModifySet, pods + "\nlocation: a\nparameters: {operation: null, values: {fromList: []}}",
			Mutator{Set: &SetValues{Values: []any{}}}, map[string]any{"operation": "merge", "values": map[string]any{"fromList": []any{}}}},
		{"prune without values", ModifySet, pods + "\nlocation: 'a[n: x].n'\nparameters: {operation: prune}",
			Mutator{Set: &SetValues{Prune: true}}, map[string]any{"operation": "prune"}},
		{"an image", AssignImage, pods + "\nlocation: a\nparameters: {assignDomain: 'Foo.IO:5000', assignPath: a---b, assignTag: '@sha256:0123456789abcdef0123456789ABCDEF'}",
			Mutator{Image: &Image{Domain: "Foo.IO:5000", Path: "a---b", Tag: "@sha256:0123456789abcdef0123456789ABCDEF"}},
			map[string]any{"assignDomain": "Foo.IO:5000", "assignPath": "a---b", "assignTag": "@sha256:0123456789abcdef0123456789ABCDEF"}},
		{"a domain of underscores", AssignImage, pods + "\nlocation: a\nparameters: {assignDomain: _a._b}",
			Mutator{Image: &Image{Domain: "_a._b"}}, map[string]any{"assignDomain": "_a._b"}},
		{"a path with a dot, with a domain", AssignImage, pods + "\nlocation: a\nparameters: {assignDomain: localhost, assignPath: a.b/c}",
			Mutator{Image: &Image{Domain: "localhost", Path: "a.b/c"}}, map[string]any{"assignDomain": "localhost", "assignPath": "a.b/c"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := mustDecode(t, tt.kind, "a", tt.spec)
			tt.want.Kind, tt.want.Name, tt.want.Location, tt.want.ApplyTo, tt.want.Object = got.Kind, got.Name, got.Location, got.ApplyTo, got.Object
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Errorf("Decode (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.params, got.Object["spec"].(map[string]any)["parameters"]); diff != "" {
				t.Errorf("spec.parameters (-want +got):\n%s", diff)
			}
		})
	}
}

var refusedTests = []struct {
	name  string
	kind  Kind
	spec  string
	field string
	err   string
}{
	{"location", Assign, pods + "\nlocation: spec..a\nparameters: {assign: {value: 1}}", "spec.location",
		"invalid location format `spec..a` for Assign a: unexpected token: expected field name or eof, got: SEPARATOR: \".\""},
	{"metadata", Assign, pods + "\nlocation: \"'metadata'[a: b].c\"", "spec.location", "assign a can't change metadata"},
	{"no location", Assign, pods + "\nparameters: {assign: {value: 1}}", "spec.location", "empty path"},
	{"key", Assign, pods + "\nlocation: 'a[n: x].n'\nparameters: {assign: {value: 1}}", "spec.location", "invalid path format: changing the item key is not allowed"},
	{"key of a glob", Assign, pods + "\nlocation: 'a[n: *].\"n\"'\nparameters: {assign: {value: 1}}", "spec.location", "invalid path format: changing the item key is not allowed"},
	{"no source", Assign, pods + "\nlocation: a", "spec.parameters.assign", "assign must set one of `externalData`, `value` or `fromMetadata`: invalid assign field"},
	{"null is no value", Assign, pods + "\nlocation: a\nparameters: {assign: {value: null}}", "spec.parameters.assign",
		"assign must set one of `externalData`, `value` or `fromMetadata`: invalid assign field"},
	{"two sources", Assign, pods + "\nlocation: a\nparameters: {assign: {externalData: {}, fromMetadata: {field: uid}}}", "spec.parameters.assign",
		"assign must only set one of `externalData`, `value` or `fromMetadata`: invalid assign field"},
	{"uid", Assign, pods + "\nlocation: a\nparameters: {assign: {fromMetadata: {field: uid}}}", "spec.parameters.assign.fromMetadata.field",
		"field uid is not recognized: invalid fromMetadata field"},
	{"nothing of metadata", Assign, pods + "\nlocation: a\nparameters: {assign: {fromMetadata: {}}}", "spec.parameters.assign.fromMetadata.field",
		"field  is not recognized: invalid fromMetadata field"},
	{"no default", Assign, pods + "\nlocation: a\nparameters: {assign: {externalData: {failurePolicy: UseDefault}}}", "spec.parameters.assign.externalData.default",
		"`default` must not be empty when `failurePolicy` is set to `UseDefault`"},
	{"all elements", Assign, pods + "\nlocation: 'a[n: *]'\nparameters: {assign: {value: {n: x}}}", "spec.location", "can't append to a globbed list"},
	{"a string as element", Assign, pods + "\nlocation: 'a[n: x]'\nparameters: {assign: {value: x}}", "spec.parameters.assign.value",
		"invalid value: `x`, only objects can be added to keyed lists"},
	{"an element of another key", Assign, pods + "\nlocation: 'a[n: x]'\nparameters: {assign: {value: {m: x}}}", "spec.parameters.assign.value",
		"adding object to list with different key n: list key x, object key <nil>"},
	{"no element has an integer key", Assign, pods + "\nlocation: 'a[port: 80]'\nparameters: {assign: {value: {port: 80}}}", "spec.parameters.assign.value",
		"adding object to list with different key port: list key 80, object key 80"},
	{"metadata as element", Assign, pods + "\nlocation: 'a[n: x]'\nparameters: {assign: {fromMetadata: {field: name}}}", "spec.location", "cannot assign a metadata field to a list"},
	{"external data as element", Assign, pods + "\nlocation: 'a[n: *]'\nparameters: {assign: {externalData: {provider: p}}}", "spec.location", "cannot assign external data response to a list"},
	{"subPath", Assign, pods + "\nlocation: a\nparameters: {assign: {value: 1}, pathTests: [{subPath: a}, {subPath: a.}]}", "spec.parameters.pathTests[1].subPath",
		"problem parsing sub path `a.` for Assign a: trailing separators are forbidden"},
	{"no prefix", Assign, pods + "\nlocation: 'a[n: *].b'\nparameters: {assign: {value: 1}, pathTests: [{subPath: 'a[n: x]'}]}", "spec.parameters.pathTests[0].subPath",
		"all subpaths must be a prefix of the `location` value of the mutation: subpath \"a[n: x]\" is not a prefix of location \"a[n: *].b\""},
	{"a key of another type is no prefix", Assign, pods + "\nlocation: 'a[n: 1].b'\nparameters: {assign: {value: 1}, pathTests: [{subPath: 'a[n: \"1\"]'}]}", "spec.parameters.pathTests[0].subPath",
		`all subpaths must be a prefix of the ` + "`location`" + ` value of the mutation: subpath "a[n: \"1\"]" is not a prefix of location "a[n: 1].b"`},
	{"two conditions", Assign, pods + "\nlocation: a.b\nparameters: {assign: {value: 1}, pathTests: [{subPath: a, condition: MustExist}, {subPath: a}]}", "spec.parameters.pathTests[0].subPath",
		`conflicting path test conditions: path "a" is marked both MustExist and MustNotExist`},
	{"a path test taken in another order", Assign,
		pods + "\nlocation: a.b\nparameters: {assign: {value: x}, pathTests: [{subPath: a.b, condition: MustNotExist}, {subPath: a, condition: MustExist}]}", "spec.parameters.pathTests[1].subPath",
		`conflicting path test conditions: path "a" is marked MustExist but parent "a.b" MustNotExist`},
	{"no versions", Assign, "applyTo: [{groups: [''], kinds: [Pod]}]\nlocation: a\nparameters: {assign: {value: 1}}", "spec.applyTo[0]",
		"invalid applyTo for Assign mutator a, all of group, version and kind must be specified"},
	{"all operations at once", Assign,
		"applyTo:\n- {groups: [''], versions: [v1], kinds: [Pod]}\n- {groups: [''], versions: [v1], kinds: [Pod], operations: [DELETE, CREATE, CREATE, '*']}\nlocation: a\nparameters: {assign: {value: 1}}",
		"spec.applyTo[1].operations",
		`invalid applyTo for Assign mutator a: invalid operation "DELETE" in applyTo[1].operations: must be one of CREATE, UPDATE, *; duplicate operation "CREATE" in applyTo[1].operations; wildcard "*" in applyTo[1].operations must not be combined with other operations`},
	{"no applyTo", Assign, "applyTo: []\nlocation: a\nparameters: {assign: {value: 1}}", "spec.applyTo", "applyTo required for Assign mutator a"},
	{"kinds", Assign, "applyTo: [{groups: [" + many + "], versions: [" + many + "], kinds: [" + many + "]}]\nlocation: a\nparameters: {assign: {value: 1}}",
		"spec.applyTo", "applyTo names more than 10000 kinds"},
	{"kinds of a label", AssignMetadata, "match: {kinds: [{apiGroups: [" + many + "], kinds: [" + many + "]}]}\nlocation: metadata.labels.a\nparameters: {assign: {value: x}}",
		"spec.match.kinds", "match.kinds names more than 10000 kinds"},
	{"the first fault counts", Assign, "location: 'a[n: *]'\nparameters: {assign: {value: 1}, pathTests: [{subPath: b}]}", "spec.location", "can't append to a globbed list"},

	{"location of a label", AssignMetadata, "location: metadata/labels", "spec.location",
		"invalid location format for AssignMetadata a: metadata/labels: unexpected token: expected '.' or eof, got: ERROR: \"/\""},
	{"neither label nor annotation", AssignMetadata, "location: metadata.finalizers.a", "spec.location", "invalid location for assignmetadata a: metadata.finalizers.a"},
	{"too deep", AssignMetadata, "location: metadata.labels.a.b", "spec.location", "invalid location for assignmetadata a: metadata.labels.a.b"},
	{"a list of labels", AssignMetadata, "location: 'metadata.labels[a: b]'", "spec.location", "invalid location for assignmetadata a: metadata.labels[a: b]"},
	{"a label from elsewhere", AssignMetadata, "location: metadata.labels.a\nparameters: {assign: {externalData: {}}}", "spec.parameters.assign.externalData.dataSource",
		"only username data source is supported for assignmetadata a"},
	{"a label that is a number", AssignMetadata, "location: metadata.labels.a\nparameters: {assign: {value: 1}}", "spec.parameters.assign.value",
		`spec.parameters.assign.value field must be a string for AssignMetadata "a"`},

	{"location of a set", ModifySet, pods + "\nlocation: a[0]", "spec.location", "invalid location format `a[0]` for ModifySet a: unexpected token: expected keyField in listSpec, got: INT: \"0\""},
	{"a set in metadata", ModifySet, pods + "\nlocation: metadata.finalizers", "spec.location", "modifyset a can't change metadata"},
	{"a set of elements", ModifySet, pods + "\nlocation: 'a[b: c]'", "spec.location", "final node in a modifyset location cannot be a keyed list"},
	{"applyTo of a set", ModifySet, "location: a", "spec.applyTo", "applyTo required for ModifySet mutator a"},
	{"a set without location", ModifySet, pods + "\nparameters: {values: {fromList: []}}", "spec.location", "attempting to mutate an empty target location"},
	{"a set without parameters", ModifySet, pods + "\nlocation: a", "spec.parameters.operation", "unrecognized operation for modifyset: "},
	{"replace", ModifySet, pods + "\nlocation: a\nparameters: {operation: replace, values: {fromList: []}}", "spec.parameters.operation", "unrecognized operation for modifyset: replace"},
	{"merge without values", ModifySet, pods + "\nlocation: a\nparameters: {values: {fromlist: []}}", "spec.parameters.values",
		"merge needs spec.parameters.values.fromList; without it a missing list would become null"},

	{"location of an image", AssignImage, pods + "\nlocation: a.", "spec.location", "invalid location format `a.` for assignImage a: trailing separators are forbidden"},
	{"image in metadata", AssignImage, pods + "\nlocation: metadata", "spec.location", "assignImage a can't change metadata"},
	{"image as element", AssignImage, pods + "\nlocation: 'a[b: c]'", "spec.location", "assignImage a cannot mutate list-type fields"},
	{"image without location", AssignImage, pods, "spec.location", "empty path"},
	{"image as key", AssignImage, pods + "\nlocation: 'a[b: c].b'", "spec.location", "invalid path format: changing the item key is not allowed"},
	{"no part", AssignImage, pods + "\nlocation: a", "spec.parameters", "assignImage a has invalid parameters: at least one of [assignDomain, assignPath, assignTag] must be set"},
	{"domain without a dot", AssignImage, pods + "\nlocation: a\nparameters: {assignDomain: 'foo:5000'}", "spec.parameters.assignDomain",
		`assignImage a has invalid parameters: assignDomain "foo:5000" must be a fully-qualified domain name or localhost`},
	{"domain with a slash", AssignImage, pods + "\nlocation: a\nparameters: {assignDomain: a.b/}", "spec.parameters.assignDomain",
		`assignImage a has invalid parameters: assignDomain "a.b/" must be a fully-qualified domain name or localhost`},
	{"domain with a newline", AssignImage, pods + "\nlocation: a\nparameters: {assignDomain: \"a.b\\n\"}", "spec.parameters.assignDomain",
		`assignImage a has invalid parameters: assignDomain "a.b\n" must be a fully-qualified domain name or localhost`},
	{"upper case", AssignImage, pods + "\nlocation: a\nparameters: {assignPath: Foo}", "spec.parameters.assignPath",
		`assignImage a has invalid parameters: assignPath "Foo" must be a valid docker image path`},
	{"three underscores", AssignImage, pods + "\nlocation: a\nparameters: {assignPath: a___b}", "spec.parameters.assignPath",
		`assignImage a has invalid parameters: assignPath "a___b" must be a valid docker image path`},
	{"tag without a colon", AssignImage, pods + "\nlocation: a\nparameters: {assignTag: latest}", "spec.parameters.assignTag",
		`assignImage a has invalid parameters: assignTag "latest" must be a valid docker image tag or digest starting with ':' or '@'`},
	{"tag and digest", AssignImage, pods + "\nlocation: a\nparameters: {assignTag: ':v1@sha256:0123456789abcdef0123456789abcdef'}", "spec.parameters.assignTag",
		`assignImage a has invalid parameters: assignTag ":v1@sha256:0123456789abcdef0123456789abcdef" must be a valid docker image tag or digest starting with ':' or '@'`},
	{"path like a domain", AssignImage, pods + "\nlocation: a\nparameters: {assignPath: a.b/c}", "spec.parameters.assignPath",
		`assignImage a has invalid parameters: assignDomain must be set if the first part of assignPath "a.b/c" can be interpretted as part of a domain`},

	{"an operator", Assign, pods + "\nlocation: a\nparameters: {assign: {value: 1}}\nmatch: {labelSelector: {matchExpressions: [{key: k, operator: Foo}]}}", "spec.match.labelSelector",
		`"Foo" is not a valid label selector operator`},
	{"a source", Assign, pods + "\nlocation: a\nparameters: {assign: {value: 1}}\nmatch: {source: Both}", "spec.match.source", `invalid source field "Both"`},

	{"a deep location", Assign, pods + "\nlocation: a" + strings.Repeat(".a", 64) + "\nparameters: {assign: {value: 1}}", "spec.location",
		"a location of 65 steps, more than the 64 that mapd takes"},

	{"type of location", Assign, "location: 1", "spec.location", "expected a string, got an integer"},
	{"type of an entry", Assign, "applyTo: [{groups: ['']}, x]", "spec.applyTo[1]", "expected an object, got a string"},
	{"type of an item", Assign, "applyTo: [{groups: ['', 1]}]", "spec.applyTo[0].groups[1]", "expected a string, got an integer"},
	{"type of values", ModifySet, pods + "\nlocation: a\nparameters: {values: [1]}", "spec.parameters.values", "expected an object, got a list"},
	{"type of fromList", ModifySet, pods + "\nlocation: a\nparameters: {values: {fromList: true}}", "spec.parameters.values.fromList", "expected a list, got a boolean"},
	{"type of a label", Assign, "match: {labelSelector: {matchLabels: {b: 1.5, a: {}}}}", "spec.match.labelSelector.matchLabels.a", "expected a string, got an object"},
}

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range refusedTests {
		t.Run(string(tt.kind)+" "+tt.name, func(t *testing.T) {
			_, err := Decode(cr(t, tt.kind, "a", tt.spec))
			var got *Error
			if !errors.As(err, &got) {
				t.Fatalf("error = %v, want an Error", err)
			}
			if got.Mutator != string(tt.kind)+"/a" || got.Field != tt.field || got.Err.Error() != tt.err {
				t.Errorf("error = %s\n%s: %s\nwant\n%s: %s", got.Mutator, got.Field, got.Err, tt.field, tt.err)
			}
			var syntax *SyntaxError
			if errors.As(err, &syntax) != (got.Offset >= 0) || got.Offset >= 0 && syntax.Offset != got.Offset {
				t.Errorf("Offset = %d, syntax error %v", got.Offset, syntax)
			}
		})
	}
}

// A status is not read, but it has to be one.
func TestDecodeStatus(t *testing.T) {
	pod := func(name string, v any) any { return map[string]any{"byPod": []any{map[string]any{name: v}}} }
	for _, tt := range []struct {
		status any
		want   string
	}{
		{nil, ""},
		{map[string]any{"byPod": nil, "unknown": int64(5)}, ""},
		{map[string]any{"byPod": []any{map[string]any{"id": "a", "mutatorUID": "u", "operations": []any{"x", nil}, "enforced": true,
			"errors": []any{map[string]any{"type": "t", "message": nil}}, "observedGeneration": int64(1)}}}, ""},
		{"x", "Assign/a: status: expected an object, got a string"},
		{map[string]any{"byPod": "x"}, "Assign/a: status.byPod: expected a list, got a string"},
		{pod("id", int64(1)), "Assign/a: status.byPod[0].id: expected a string, got an integer"},
		{pod("mutatorUID", true), "Assign/a: status.byPod[0].mutatorUID: expected a string, got a boolean"},
		{pod("operations", []any{"x", int64(1)}), "Assign/a: status.byPod[0].operations[1]: expected a string, got an integer"},
		{pod("enforced", "true"), "Assign/a: status.byPod[0].enforced: expected a boolean, got a string"},
		{pod("errors", []any{map[string]any{"type": []any{}}}), "Assign/a: status.byPod[0].errors[0].type: expected a string, got a list"},
		{pod("observedGeneration", 1.5), "Assign/a: status.byPod[0].observedGeneration: expected an integer, got a number"},
	} {
		u := cr(t, Assign, "a", pods+"\nlocation: a\nparameters: {assign: {value: x}}")
		u.Object["status"] = tt.status
		got := ""
		m, err := Decode(u)
		if err != nil {
			got = err.Error()
		} else if _, ok := m.Object["status"]; ok {
			t.Errorf("%v: the parameter has a status", tt.status)
		}
		if got != tt.want {
			t.Errorf("%v: error = %q, want %q", tt.status, got, tt.want)
		}
	}
}

func TestDecodeVersions(t *testing.T) {
	for _, kind := range Kinds() {
		for _, version := range []string{"v1", "v1beta1", "v1alpha1", "v2", ""} {
			u := cr(t, kind, "a", pods+"\nlocation: metadata.labels.a\nparameters: {assign: {value: x}, assignTag: ':x', values: {fromList: []}}")
			if kind != AssignMetadata {
				u.Object["spec"].(map[string]any)["location"] = "spec.a"
			}
			u.SetAPIVersion(Group + "/" + version)
			_, err := Decode(u)
			want := version == "v1alpha1" || kind != AssignImage && (version == "v1" || version == "v1beta1")
			if (err == nil) != want {
				t.Errorf("%s in %q: error = %v", kind, version, err)
			}
		}
	}
	_, err := Decode(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}})
	if err == nil || err.Error() != "Pod/: apiVersion: v1 Pod is not a mutator" {
		t.Errorf("a Pod: error = %v", err)
	}
}

func TestDecodeName(t *testing.T) {
	for n, ok := range map[int]bool{63: true, 64: false} {
		_, err := Decode(cr(t, Assign, strings.Repeat("a", n), pods+"\nlocation: a\nparameters: {assign: {value: 1}}"))
		if (err == nil) != ok {
			t.Errorf("a name of %d: error = %v", n, err)
		}
	}
}

func TestError(t *testing.T) {
	_, err := Decode(cr(t, ModifySet, "m", pods+"\nlocation: |-\n  spec.\n  a..b"))
	e := err.(*Error)
	want := "ModifySet/m: spec.location: line 2, column 3: invalid location format `spec.\na..b` for ModifySet m: unexpected token: expected field name or eof, got: SEPARATOR: \".\""
	if e.Error() != want {
		t.Errorf("Error() = %s\nwant %s", e, want)
	}
	want = "ModifySet/m: spec.location: 2:3: unexpected token: expected field name or eof, got: SEPARATOR: \".\"\n | a..b\n |   ^"
	if e.Render() != want {
		t.Errorf("Render() =\n%s\nwant\n%s", e.Render(), want)
	}
	_, err = Decode(cr(t, ModifySet, "m", "location: metadata.a"))
	want = "ModifySet/m: spec.location: modifyset m can't change metadata"
	if e = err.(*Error); e.Error() != want || e.Render() != want {
		t.Errorf("Error() = %s\nRender() = %s\nwant %s", e, e.Render(), want)
	}
}

func TestIsMutator(t *testing.T) {
	for _, kind := range Kinds() {
		if !IsMutator(schema.GroupVersionKind{Group: Group, Version: "v1", Kind: string(kind)}) {
			t.Errorf("%s is none", kind)
		}
	}
	if IsMutator(schema.GroupVersionKind{Group: "example.com", Kind: "Assign"}) || IsMutator(schema.GroupVersionKind{Group: Group, Kind: "MutatorPodStatus"}) {
		t.Error("something else is one")
	}
}

func FuzzDecode(f *testing.F) {
	add := func(u *unstructured.Unstructured) {
		data, err := json.Marshal(u.Object)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, tt := range refusedTests {
		add(cr(f, tt.kind, "a", tt.spec))
	}
	add(cr(f, AssignMetadata, "a", "location: metadata.labels.a\nparameters: {assign: {value: x}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		obj, err := tree.Decode(data)
		if err != nil {
			return
		}
		before := (&unstructured.Unstructured{Object: obj}).DeepCopy()
		m, err := Decode(&unstructured.Unstructured{Object: obj})
		if !tree.Equal(before.Object, obj) {
			t.Fatal("Decode changed its input")
		}
		_, again := Decode(&unstructured.Unstructured{Object: obj})
		if err != nil {
			if again == nil || err.Error() != again.Error() {
				t.Errorf("error = %v, then %v", err, again)
			}
			return
		}
		// The Object is the same mutator.
		same, err := Decode(&unstructured.Unstructured{Object: m.Object})
		if err != nil {
			t.Fatalf("its Object is refused: %v", err)
		}
		if diff := cmp.Diff(m, same); diff != "" {
			t.Errorf("its Object is another one:\n%s", diff)
		}
		Notes(m)
		Components([]*Mutator{m})
	})
}

func BenchmarkDecode(b *testing.B) {
	u := cr(b, Assign, "pull-policy", `
applyTo: [{groups: [''], versions: [v1], kinds: [Pod]}]
match:
  scope: Namespaced
  kinds: [{apiGroups: ['*'], kinds: [Pod]}]
  excludedNamespaces: [kube-system]
  labelSelector: {matchLabels: {app: web}}
location: 'spec.containers[name: *].imagePullPolicy'
parameters:
  pathTests: [{subPath: 'spec.containers[name: *]', condition: MustExist}]
  assign: {value: Always}
`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(u); err != nil {
			b.Fatal(err)
		}
	}
}
