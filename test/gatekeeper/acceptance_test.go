package gatekeeper

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// What Gatekeeper's webhook refuses, mapd refuses, for the same reason.
func TestAcceptance(t *testing.T) {
	c := NewComparison()
	for _, u := range badMutators(t) {
		accept(t, c, u)
	}
	for seed := range uint64(20000) {
		g := &gen{data: seeded(seed)}
		u := g.mutator()
		u.SetName("a")
		for range 1 + g.n(2) {
			u.Object["spec"] = g.spoil(u.Object["spec"])
		}
		if g.chance(10) {
			u.Object["status"] = g.spoil(status())
		}
		accept(t, c, u)
	}
	t.Logf("%d mutators, %d refused, otherwise on purpose: %v", c.Mutators, c.Refused, c.Rows)
	if c.Refused < 5000 {
		t.Error("too few are refused to tell much")
	}
}

func accept(t *testing.T, c *Comparison, u *unstructured.Unstructured) {
	t.Helper()
	u, err := Default(u)
	if err != nil {
		t.Fatal(err)
	}
	if _, difference := c.accept(u); difference != "" {
		data, err := json.Marshal(u.Object)
		t.Errorf("%s\n%s%v", difference, data, err)
	}
}

// spoil returns a tree with one place in it changed.
func (g *gen) spoil(v any) any {
	if g.chance(20) {
		return g.wrong()
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			break
		}
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		if k := one(g, keys...); g.chance(10) {
			delete(v, k)
		} else {
			v[k] = g.spoil(v[k])
		}
		return v
	case []any:
		if len(v) == 0 {
			break
		}
		i := g.n(len(v))
		v[i] = g.spoil(v[i])
		if g.chance(20) {
			return append(v, v[i])
		}
		return v
	case string:
		return one(g, v+"x", v+".", v+`"`, "*"+v, v+"[name: x]", v+".name", strings.ToLower(v), "metadata."+v, v+"\n", strings.Replace(v, ".", "..", 1))
	}
	return g.wrong()
}

func (g *gen) wrong() any {
	return one[any](g, nil, "", "x", int64(1), 1.5, true, []any{}, map[string]any{}, []any{nil}, []any{"x"}, []any{int64(1)}, map[string]any{"x": nil},
		map[string]any{"x": "y"}, []any{map[string]any{}}, "metadata", "DELETE", []any{"CREATE", "CREATE"}, "spec.l[name: *]")
}

// status is one that Gatekeeper has written.
func status() any {
	return map[string]any{"byPod": []any{map[string]any{"id": "gatekeeper-0", "mutatorUID": "u", "operations": []any{"mutation-webhook"}, "enforced": false,
		"errors": []any{map[string]any{"type": "ErrConflictingSchema", "message": "m"}}, "observedGeneration": int64(1)}}}
}

// badMutators are what a person would try.
func badMutators(t *testing.T) []*unstructured.Unstructured {
	const pods = `applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]`
	var all []*unstructured.Unstructured
	add := func(kind, name, version, rest string) {
		var tree map[string]any
		text := fmt.Sprintf("apiVersion: mutations.gatekeeper.sh/%s\nkind: %s\nmetadata: {name: %q}\n%s", version, kind, name, rest)
		if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		all = append(all, &unstructured.Unstructured{Object: tree})
	}
	for _, kind := range []string{"Assign", "AssignImage", "AssignMetadata", "ModifySet"} {
		location := "spec.x"
		if kind == "AssignMetadata" {
			location = "metadata.labels.x"
		}
		good := pods + `, location: ` + location + `, parameters: {assign: {value: x}, assignTag: ":x", values: {fromList: [x]}}`
		for _, version := range []string{"v1", "v1beta1", "v1alpha1", "v2", "V1"} {
			add(kind, "a", version, "spec: {"+good+"}")
		}
		for _, name := range []string{strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("é", 32), "A b", ""} {
			add(kind, name, "v1alpha1", "spec: {"+good+"}")
		}
		for _, extra := range []string{"status: {byPod: [{id: a, enforced: true}]}", "status: 5", "status: []", "status: {byPod: 5}", "status: {byPod: [null]}", "status: {byPod: [5]}", "status: {byPod: {}}",
			"status: {byPod: [{id: 5}]}", "status: {byPod: [{mutatorUID: 5}]}", "status: {byPod: [{operations: x}]}", "status: {byPod: [{operations: [5, null]}]}", "status: {byPod: [{operations: [null]}]}", "status: {byPod: [{enforced: x}]}",
			"status: {byPod: [{enforced: null, errors: null, id: null, Enforced: 5}]}", "status: {byPod: [{errors: {}}]}", "status: {byPod: [{errors: [null, {type: 5}]}]}", "status: {byPod: [{errors: [{message: {}}]}]}", "status: {byPod: [{errors: [{}]}], unknown: 5}",
			"status: {byPod: [{observedGeneration: x}]}", "status: {byPod: [{observedGeneration: 1.5}]}", "status: {byPod: [{observedGeneration: 7, unknown: []}]}", "extra: 5", "metadata: {name: a, labels: {a: 1}}", "metadata: {name: a, labels: {a: null}}",
			"metadata: {name: a, annotations: []}", "metadata: {name: a, labels: x}"} {
			if strings.HasPrefix(extra, "metadata") {
				var tree map[string]any
				if err := yaml.Unmarshal([]byte("apiVersion: mutations.gatekeeper.sh/v1alpha1\nkind: "+kind+"\n"+extra+"\nspec: {"+good+"}"), &tree); err != nil {
					t.Fatal(err)
				}
				all = append(all, &unstructured.Unstructured{Object: tree})
				continue
			}
			add(kind, "a", "v1alpha1", "spec: {"+good+"}\n"+extra)
		}
		for _, spec := range []string{"", "spec:", "spec: {}", "spec: []", "spec: x", "spec: {" + strings.Replace(good, pods, "applyTo: []", 1) + "}",
			"spec: {" + strings.Replace(good, "[v1]", "[]", 1) + "}", "spec: {" + strings.Replace(good, "[v1]", "null", 1) + "}", "spec: {" + strings.Replace(good, pods, "applyTo: [null]", 1) + "}",
			"spec: {" + strings.Replace(good, "[v1]", "[null]", 1) + "}", "spec: {" + strings.Replace(good, "[Pod]", "[Pod], operations: [CREATE, '*', create, CREATE]", 1) + "}",
			"spec: {" + strings.Replace(good, "[Pod]}", "[Pod], operations: [DELETE]}, {groups: [''], versions: [v1], kinds: [Pod], operations: [UPDATE, UPDATE]}", 1) + "}"} {
			add(kind, "a", "v1alpha1", spec)
		}
		for _, match := range []string{"null", "{}", "[]", "{kinds: [null]}", "{kinds: [{kinds: [null], apiGroups: null}]}", "{namespaces: [null]}", "{namespaces: x}", "{scope: 1}", "{scope: both}", "{name: [x]}", "{source: x}",
			"{name: 'a*b'}", "{name: 'A.b'}", "{labelSelector: {matchLabels: {a: null}}}", "{labelSelector: {matchLabels: {a: 1}}}", "{labelSelector: {matchExpressions: [null]}}", "{unknown: 1}",
			"{namespaceSelector: {matchExpressions: [{key: a, operator: In, values: []}]}}"} {
			add(kind, "a", "v1alpha1", "spec: {"+good+", match: "+match+"}")
		}
		for _, tests := range []string{"null", "[]", "[null]", "[{}]", "[{subPath: spec}]", "[{subPath: spec., condition: MustExist}]", "[{subPath: spec.y, condition: MustExist}]", "[{subPath: spec.x.y, condition: MustExist}]",
			"[{subPath: spec.x, condition: MustNotExist}, {subPath: spec, condition: MustExist}]", "[{subPath: spec.x, condition: MustNotExist}, {subPath: spec.x, condition: MustExist}]", "[{subPath: spec, condition: 1}]"} {
			add(kind, "a", "v1alpha1", "spec: {"+strings.Replace(good, "parameters: {", "parameters: {pathTests: "+tests+", ", 1)+"}")
		}
		for _, at := range []string{`""`, "metadata", "metadata.x", `'"metadata".x'`, "'metadata[a: b].c'", "metadata.labels", "metadata.annotations.a.b", "'metadata.labels[a: b]'", "spec.", ".spec", "spec..x", "'spec[name: x]'", "'spec[name: *]'",
			"'spec[name: x].name'", "'spec[name: *].name'", "'spec[name: 1]'", "'spec[0]'", "'spec.*'", "'spec[name: x][name: y]'", "spec/x", "spéc", "1a", `"spec.\"x"`, `'spec[name: 99999999999999999999]'`} {
			add(kind, "a", "v1alpha1", "spec: {"+strings.Replace(good, "location: "+location, "location: "+at, 1)+"}")
			add(kind, "a", "v1alpha1", "spec: {"+strings.Replace(strings.Replace(good, "location: "+location, "location: "+at, 1), "value: x", "value: {name: x}", 1)+"}")
		}
		for _, from := range []string{"null", "{}", "{value: null}", "{value: 1}", "{value: {}}", "{value: x, fromMetadata: {field: name}}", "{fromMetadata: {field: uid}}", "{fromMetadata: {}}", "{fromMetadata: null}", "{fromMetadata: x}",
			"{externalData: {}}", "{externalData: {provider: p}}", "{externalData: {provider: p, failurePolicy: UseDefault}}", "{externalData: {provider: p, dataSource: Username}}", "{externalData: {provider: 1}}", "{value: x, externalData: {provider: p}}"} {
			add(kind, "a", "v1alpha1", "spec: {"+strings.Replace(good, "assign: {value: x}", "assign: "+from, 1)+"}")
		}
	}
	return all
}
