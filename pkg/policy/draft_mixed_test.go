package policy

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/openapi/smd"
	"github.com/mapd-project/mapd/pkg/policy/internal/random"
	"github.com/mapd-project/mapd/pkg/policy/merge"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

const gadgetCRD = `{
 "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
 "metadata": {"name": "gadgets.ex.io"},
 "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
  "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
   "spec": {"type": "object", "default": {}, "properties": {
    "n": {"type": "integer", "default": 3},
    "f": {"type": "number"},
    "z": {"type": "string", "nullable": true, "default": "z"},
    "q": {"x-kubernetes-int-or-string": true},
    "deep": {"type": "object", "default": {"a": {}}, "properties": {"a": {"type": "object", "properties": {"x": {"type": "string", "default": "dx"}, "y": {"type": "string"}}},
      "b": {"type": "object", "default": {"k": "v"}, "additionalProperties": {"type": "string"}}}},
    "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"d": {"type": "integer", "default": 7}, "e": {"type": "string"}}}},
    "l": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "d": {"type": "boolean", "default": true}}}},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"], "items": {"type": "object", "required": ["name"], "properties": {
      "name": {"type": "string"}, "port": {"type": "integer", "default": 80}, "v": {"type": "string"}, "w": {"type": "object", "properties": {"d": {"type": "string", "default": "w"}}}}}},
    "atom": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"x": {"type": "string"}, "d": {"type": "string", "default": "ad"}}},
    "emb": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    "puf": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object", "properties": {"d": {"type": "string", "default": "p"}}}}}
   }}}}}}]}}`

// mixedKinds are what mixtures of mutations are about.
var mixedKinds = []schema.GroupVersionKind{
	{Group: "ex.io", Version: "v1", Kind: "Gadget"},
	{Group: "ex.io", Version: "v1", Kind: "Widget"},
	{Version: "v1", Kind: "Pod"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Namespace"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "batch", Version: "v1", Kind: "CronJob"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
}

// mixer makes mutations for one kind.
type mixer struct {
	*random.Dice
	kind   *openapi.Kind
	schema *smd.Schema
	ref    smd.TypeRef
	// pool are values that no mutation copies for itself, as those of constants
	// and parameters are.
	pool []any
}

// spot is a place of an object, there or not, and its type.
type spot struct {
	path  string
	value any
	ref   smd.TypeRef
	typed bool
}

func (x *mixer) made(ref smd.TypeRef, depth int, patch bool) any {
	return (&random.Maker{Dice: x.Dice, Schema: x.schema, Patch: patch, Left: 20}).Make(ref, depth)
}

// object makes an object as a server would send it, nil if this one would not.
func (x *mixer) object(gvk schema.GroupVersionKind) map[string]any {
	obj, _ := (&random.Maker{Dice: x.Dice, Schema: x.schema, Left: 150}).Make(x.ref, 8).(map[string]any)
	if obj == nil {
		return nil
	}
	meta, _ := obj["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"], meta["namespace"] = "x", "default"
	if x.N(2) == 0 {
		meta["labels"] = map[string]any{"a": "b", "x/y": "z"}
	}
	delete(meta, "managedFields")
	obj["metadata"] = meta
	obj["apiVersion"], obj["kind"] = gvk.ToAPIVersionAndKind()
	obj, err := x.kind.Normalize(obj)
	if err != nil {
		return nil
	}
	return runtime.DeepCopyJSON(obj)
}

// spots are the places of an object, and some beside them.
func (x *mixer) spots(v any, at spot, out []spot) []spot {
	at.value = v
	if at.path != "" {
		out = append(out, at)
	}
	atom, typed := x.schema.Resolve(at.ref)
	typed = typed && at.typed
	switch v := v.(type) {
	case map[string]any:
		below := func(key string) spot {
			next := spot{path: string(tree.AppendToken([]byte(at.path), key))}
			if typed && atom.Map != nil {
				next.ref, next.typed = atom.Map.ElementType, true
				if f, ok := atom.Map.FindField(key); ok {
					next.ref = f.Type
				}
			}
			return next
		}
		for _, key := range sortedNames(v) {
			out = x.spots(v[key], below(key), out)
		}
		if typed && atom.Map != nil && len(atom.Map.Fields) > 0 {
			out = append(out, below(atom.Map.Fields[x.N(len(atom.Map.Fields))].Name))
		}
		if x.N(2) == 0 {
			out = append(out, below(random.Pick(x.Dice, "a", "b", "x/y", "a~1", "", "\xff", "é", "\"", "name")))
		}
	case []any:
		below := func(token string) spot {
			next := spot{path: at.path + "/" + token}
			if typed && atom.List != nil {
				next.ref, next.typed = atom.List.ElementType, true
			}
			return next
		}
		for i := range v {
			out = x.spots(v[i], below(strconv.Itoa(i)), out)
		}
		out = append(out, below("-"))
		if x.N(4) == 0 {
			out = append(out, below(random.Pick(x.Dice, "0", "00", "-1", "9", strconv.Itoa(len(v)))))
		}
	}
	return out
}

// value is something to write to a place.
func (x *mixer) value(at spot, all []spot) any {
	switch x.N(12) {
	case 0:
		return all[x.N(len(all))].value // a part of the object
	case 1:
		return []any{all[x.N(len(all))].value, all[x.N(len(all))].value}
	case 2:
		return map[string]any{"a": all[x.N(len(all))].value, "name": "n"}
	case 3:
		return random.Pick[any](x.Dice, nil, "", "1Gi", "1024Mi", "x\xff", true, false, int64(0), int64(1)<<40, 5.0, 1.5, 1e30, map[string]any{}, []any{},
			map[string]any{"a": nil, "b": map[string]any{}}, []any{nil, int64(1)}, map[string]any{"e": 5.0, "name": "n"}, "eA", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000001+01:00")
	case 4:
		return x.pool[x.N(len(x.pool))]
	case 5:
		if at.value != nil {
			return runtime.DeepCopyJSONValue(at.value)
		}
	}
	if !at.typed {
		return random.Pick[any](x.Dice, "s", int64(1), map[string]any{"a": "b"})
	}
	return x.made(at.ref, 3, false)
}

func (x *mixer) ops(obj map[string]any) []cel.PatchOp {
	all := x.spots(obj, spot{ref: x.ref, typed: true}, nil)
	var ops []cel.PatchOp
	favourite := all[x.N(len(all))]
	for range max(1, x.N(6)-2) {
		at := all[x.N(len(all))]
		if x.N(3) == 0 {
			at = favourite
		}
		if x.N(3) == 0 { // what many policies write
			at = spot{path: random.Pick(x.Dice, "/metadata/labels/", "/metadata/annotations/", "/spec/", "/data/", "/spec/template/spec/", "/spec/m/a/") + random.Pick(x.Dice, "a", "b", "e", "x~1y")}
		}
		op := cel.PatchOp{Op: random.Pick(x.Dice, "add", "add", "add", "replace", "replace", "remove", "remove", "test", "copy", "move"), Path: at.path}
		switch op.Op {
		case "remove":
		case "copy", "move":
			op.From = all[x.N(len(all))].path
		case "test":
			op.Value, op.HasValue = at.value, true
			if x.N(4) == 0 {
				op.Value = "x"
			}
		default:
			if !at.typed && x.N(3) > 0 {
				op.Value = random.Pick[any](x.Dice, "v1", "v2", "v3")
			} else {
				op.Value = x.value(at, all)
			}
			op.HasValue = x.N(40) > 0
		}
		ops = append(ops, op)
	}
	return ops
}

// configuration is an apply configuration that is fit to be merged, or nil.
func (x *mixer) configuration(obj map[string]any) map[string]any {
	var patch map[string]any
	switch x.N(4) {
	case 0:
		patch, _ = x.made(x.ref, 6, true).(map[string]any)
	case 1:
		patch = map[string]any{"metadata": map[string]any{random.Pick(x.Dice, "labels", "annotations"): map[string]any{random.Pick(x.Dice, "a", "b", "x/y"): random.Pick(x.Dice, "v1", "v2", "v3")}}}
	default:
		patch, _ = subset(x.R, obj).(map[string]any)
		if patch = mapOf(patch); x.N(3) == 0 {
			if more, _ := x.made(x.ref, 6, true).(map[string]any); more["spec"] != nil {
				patch["spec"] = more["spec"]
			}
		}
	}
	if patch == nil {
		return nil
	}
	checked, err := merge.Check(x.kind, patch)
	if err != nil {
		return nil
	}
	return checked
}

// copied is a copy of a value, false if it is too odd for one.
func copied(v any) (out any, ok bool) {
	defer func() { ok = recover() == nil }()
	return runtime.DeepCopyJSONValue(v), true
}

// Mixtures of all mutations on objects of all sorts do the same on a draft as by
// copying; what a draft kept, was given or begins with is not modified.
func TestDraftMixedRandomly(t *testing.T) {
	hammer.Alone(t)
	deps := testDeps(t)
	crds, err := openapi.CRDs(&unstructured.Unstructured{Object: object(t, widgetCRD)}, &unstructured.Unstructured{Object: object(t, gadgetCRD)})
	if err != nil {
		t.Fatal(err)
	}
	deps.Types = openapi.New(openapi.Builtin(), crds)
	seeds := uint64(hammer.Count(mixedSeeds))
	for _, gvk := range mixedKinds {
		t.Run(gvk.Kind, func(t *testing.T) {
			kind, err := deps.Types.Kind(gvk)
			if err != nil {
				t.Fatal(err)
			}
			quick, slow := 0, 0
			for seed := range seeds {
				x := &mixer{Dice: &random.Dice{R: rand.New(rand.NewPCG(seed, mixedStream))}, kind: kind}
				x.schema, x.ref = kind.Schema()
				var obj map[string]any
				for range 20 {
					if obj = x.object(gvk); obj != nil {
						break
					}
				}
				if obj == nil {
					continue
				}
				r := newDraftRun(t, deps, obj)
				r.name = fmt.Sprintf("seed %d", seed)
				for range 3 {
					v := map[string]any{"name": "n", "a": x.made(x.ref, 3, false), "b": map[string]any{"c": "d"}}
					if _, ok := copied(v); !ok {
						v = map[string]any{"name": "n", "l": []any{map[string]any{"name": "n"}}}
					}
					x.pool = append(x.pool, v, v["b"])
					r.keep(v)
				}
				x.pool = append(x.pool, "s")
				x.run(r)
				quick, slow = quick+r.quick, slow+r.slow
			}
			t.Logf("%d in place, %d by copying", quick, slow)
			if quick < slow/8 {
				t.Errorf("%d in place, %d by copying: too few to tell", quick, slow)
			}
		})
	}
}

const mixedSeeds, mixedStream = 200, 17

// run runs some mutations one after the other, also such as fail.
func (x *mixer) run(r *draftRun) {
	for range 2 + x.N(8) {
		keep := x.N(5) == 0
		if x.N(2) == 0 {
			patch := x.configuration(r.on.Object.Object)
			fresh, ok := copied(patch)
			if patch == nil || !ok {
				continue
			}
			r.mutate(fmt.Sprintf("%#v", patch), keep, func(in Input, isFresh bool) (*unstructured.Unstructured, error) {
				if isFresh {
					return r.merged(in, fresh.(map[string]any), true)
				}
				return r.merged(in, patch, false)
			})
			continue
		}
		ops := x.ops(r.on.Object.Object)
		fresh := random.Copies(ops)
		what := strings.ReplaceAll(fmt.Sprintf("%#v", ops), "interface {}", "any")
		r.mutate(what, keep, func(in Input, isFresh bool) (*unstructured.Unstructured, error) {
			if isFresh {
				return r.patched(in, fresh, true)
			}
			return r.patched(in, ops, false)
		})
	}
}
