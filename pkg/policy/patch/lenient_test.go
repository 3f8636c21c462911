package patch

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/policy/internal/random"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

// Patches on a draft give what they give on plain objects, whatever is shared
// between the object, the values and what was kept on the way; and nothing that
// was given or kept is modified.
func TestDraftRandomly(t *testing.T) {
	hammer.Alone(t)
	for seed := range uint64(hammer.Count(1000)) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		given := randomObject(rnd, 3).(map[string]any)
		kept := []map[string]any{given}
		copies := []map[string]any{runtime.DeepCopyJSON(given)}
		want := runtime.DeepCopyJSON(given)
		d := newDraft(given)
		for range 1 + rnd.IntN(8) {
			ops := randomOps(rnd, d.Object().Object)
			before := runtime.DeepCopyJSON(d.Object().Object)
			next, err := applyJSONPatch(want, random.Copies(ops))
			if err == nil {
				want = runtime.DeepCopyJSON(next)
			}
			gotErr := Lenient(d, ops)
			switch {
			case (err == nil) != (gotErr == nil):
				t.Fatalf("seed %d: apply(%v) error = %v, want %v", seed, ops, gotErr, err)
			}
			if diff := cmp.Diff(want, d.Object().Object); diff != "" {
				t.Fatalf("seed %d: apply(%v) on %v (-want +got):\n%s", seed, ops, before, diff)
			}
			if changed := !tree.Equal(before, want); err == nil && changed && len(d.Changed()) == 0 {
				t.Fatalf("seed %d: apply(%v) says that nothing changed", seed, ops)
			}
			if rnd.IntN(3) == 0 {
				kept = append(kept, d.Keep().Object)
				copies = append(copies, runtime.DeepCopyJSON(d.Object().Object))
			}
			for i := range kept {
				if diff := cmp.Diff(copies[i], kept[i]); diff != "" {
					t.Fatalf("seed %d: apply(%v) modified what was kept:\n%s", seed, ops, diff)
				}
			}
		}
	}
}

func randomObject(rnd *rand.Rand, depth int) any {
	switch n := rnd.IntN(8); {
	case depth == 3 || depth > 0 && n < 3:
		m := map[string]any{}
		for range rnd.IntN(4) {
			m[string(rune('a'+rnd.IntN(4)))] = randomObject(rnd, depth-1)
		}
		return m
	case depth > 0 && n < 6:
		l := []any{}
		for range rnd.IntN(3) {
			l = append(l, randomObject(rnd, depth-1))
		}
		return l
	case n == 6:
		return nil
	}
	return int64(rnd.IntN(3))
}

// randomOps makes a patch whose values may be parts of the object.
func randomOps(rnd *rand.Rand, obj map[string]any) []cel.PatchOp {
	var paths []string
	var values []any
	random.Places(obj, "", func(at string, v any) {
		paths, values = append(paths, at), append(values, v)
		switch v.(type) {
		case map[string]any:
			paths = append(paths, at+"/"+string(rune('a'+rnd.IntN(4))))
		case []any:
			paths = append(paths, at+"/-", at+"/0")
		}
	})
	var ops []cel.PatchOp
	for range rnd.IntN(3) + 1 {
		op := cel.PatchOp{Op: []string{"add", "add", "replace", "remove"}[rnd.IntN(4)], Path: paths[rnd.IntN(len(paths))]}
		if op.Path == "" {
			op.Path = "/a"
		}
		if op.Op != "remove" {
			op.HasValue = true
			switch rnd.IntN(3) {
			case 0:
				op.Value = values[rnd.IntN(len(values))]
			case 1:
				op.Value = randomObject(rnd, 2)
			default:
				op.Value = int64(rnd.IntN(3))
			}
		}
		ops = append(ops, op)
	}
	return ops
}

// What a draft says was changed is where it was changed; an element that is
// appended has its index.
func TestDraftChanged(t *testing.T) {
	obj := map[string]any{"a": int64(1), "l": []any{int64(1)}}
	d := newDraft(obj)
	ops := []cel.PatchOp{
		{Op: "add", Path: "/a", Value: int64(1), HasValue: true},
		{Op: "add", Path: "/l/-", Value: int64(2), HasValue: true},
		{Op: "add", Path: "/l/-", Value: int64(3), HasValue: true},
		{Op: "add", Path: "/b~1c", Value: 1.0, HasValue: true},
	}
	if err := Lenient(d, ops); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/l/1", "/l/2", "/b~1c"}, d.Changed()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"a": int64(1), "l": []any{int64(1), int64(2), int64(3)}, "b/c": 1.0}, d.Object().Object); diff != "" {
		t.Error(diff)
	}
	before := d.Object()
	if err := Lenient(d, []cel.PatchOp{{Op: "add", Path: "/b~1c", Value: 1.0, HasValue: true}}); err != nil || d.Object() != before || d.Changed() != nil {
		t.Errorf("the same again gives %v, %v, changed %v", d.Object(), err, d.Changed())
	}
	if err := Lenient(d, []cel.PatchOp{{Op: "add", Path: "/b~1c", Value: int64(1), HasValue: true}}); err != nil || d.Object() == before {
		t.Errorf("another type of number gives %v, %v", d.Object(), err)
	}
}

// A hundred members of one map copy it once.
func TestDraftWritesInPlace(t *testing.T) {
	labels := map[string]any{}
	for i := range 200 {
		labels[fmt.Sprint("l", i)] = "x"
	}
	d := newDraft(map[string]any{"metadata": map[string]any{"labels": labels}})
	i := 0
	write := func() {
		i++
		if err := Lenient(d, []cel.PatchOp{{Op: "add", Path: "/metadata/labels/l0", Value: fmt.Sprint(i), HasValue: true}}); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if got := hammer.Allocs(t, write); got > 6 {
		t.Errorf("%v allocations for one label of a draft's own", got)
	}
}
