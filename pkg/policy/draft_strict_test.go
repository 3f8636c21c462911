package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy/internal/random"
	"github.com/mapd-project/mapd/pkg/policy/merge"
	"github.com/mapd-project/mapd/pkg/policy/patch"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

// draftRun is an object that is mutated on a draft and, beside it, by copying.
type draftRun struct {
	t    testing.TB
	name string
	kind *openapi.Kind

	on, by       Input // by has a new draft for each mutation, which copies
	kept, copies []map[string]any
	quick, slow  int
}

// patched and merged do a mutation in both ways.
func (r *draftRun) patched(in Input, ops []cel.PatchOp, copying bool) (*unstructured.Unstructured, error) {
	apply := patch.Apply
	if copying {
		in.Draft, apply = nil, patch.ByCopying
	}
	d := in.draft()
	err := apply(&d.Draft, r.kind, ops)
	return d.Object(), err
}

func (r *draftRun) merged(in Input, configuration map[string]any, copying bool) (*unstructured.Unstructured, error) {
	apply := merge.Apply
	if copying {
		in.Draft, apply = nil, merge.ByCopying
	}
	d := in.draft()
	err := apply(&d.Draft, r.kind, configuration)
	return d.Object(), err
}

func newDraftRun(t testing.TB, deps Deps, obj map[string]any) *draftRun {
	t.Helper()
	r := &draftRun{t: t, on: newInput(obj), by: newInput(runtime.DeepCopyJSON(obj))}
	r.on.Draft = &Draft{}
	r.on.Draft.Reset(r.on.Object, 2)
	var err error
	if r.kind, err = deps.Types.Kind(r.on.Kind); err != nil {
		t.Fatal(err)
	}
	r.keep(obj)
	return r
}

func (r *draftRun) keep(obj map[string]any) {
	r.kept = append(r.kept, obj)
	r.copies = append(r.copies, runtime.DeepCopyJSON(obj))
}

// mutate does a mutation in both ways, for which it is written out twice: given
// is what the draft gets, and fresh shares nothing with anything.
func (r *draftRun) mutate(what string, keep bool, mutate func(in Input, fresh bool) (*unstructured.Unstructured, error)) {
	r.t.Helper()
	d := r.on.Draft
	before := r.by.Object
	want, wantErr := mutate(r.by, true)
	got, gotErr := mutate(r.on, false)
	inPlace := d.Edit.Owns(d.Object().Object)
	if (wantErr == nil) != (gotErr == nil) { // of several errors either may come first
		r.t.Fatalf("%s: %s: error %v, want %v", r.name, what, gotErr, wantErr)
	}
	if wantErr == nil {
		if (want != before) != (got != r.on.Object) {
			r.t.Fatalf("%s: %s: says changed: %v, want %v", r.name, what, got != r.on.Object, want != before)
		}
		if got != r.on.Object {
			if inPlace {
				r.quick++
			} else {
				r.slow++
			}
			paths := slices.Clone(d.Changed())
			slices.Sort(paths)
			if diff := cmp.Diff(tree.Changed(before.Object, want.Object), slices.Compact(paths)); diff != "" {
				r.t.Fatalf("%s: %s: paths (-want +got):\n%s", r.name, what, diff)
			}
		}
		r.by.Object = &unstructured.Unstructured{Object: runtime.DeepCopyJSON(want.Object)}
		if want == before {
			r.by.Object = before
		}
	}
	r.on.Object = d.Object()
	if diff := cmp.Diff(r.by.Object.Object, d.Object().Object); diff != "" {
		r.t.Fatalf("%s: %s (-want +got):\n%s", r.name, what, diff)
	}
	for i := range r.kept {
		if diff := cmp.Diff(r.copies[i], r.kept[i]); diff != "" {
			r.t.Fatalf("%s: %s modified what was kept:\n%s", r.name, what, diff)
		}
	}
	if keep {
		r.on.Object = d.Keep()
		r.keep(r.on.Object.Object)
	}
}

// draftSubjects are settled objects.
func draftSubjects(t testing.TB, deps Deps) []map[string]any {
	t.Helper()
	out := []map[string]any{deployment(t, deps), pod(t, deps, 3, 2)}
	for _, text := range []string{
		configMap,
		widget + `{"n":1,"set":["a","b"],"items":[{"name":"a","port":80,"v":"x"},{"name":"b","port":1}],"puf":{"a":{"b":[1,2,{"c":3}]}},"m":{"k":{"l":["x"]}},"args":["a","b","c"]}}`,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","namespace":"default","annotations":{"a":"b"}},"spec":{"type":"ClusterIP","selector":{"a":"b"},
		  "ports":[{"name":"http","port":80,"protocol":"TCP","targetPort":8080},{"name":"dns","port":53,"protocol":"UDP"},{"name":"dnst","port":53,"protocol":"TCP"}]}}`,
	} {
		obj := object(t, text)
		kind, err := deps.Types.Kind((&unstructured.Unstructured{Object: obj}).GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		if obj, err = kind.Normalize(obj); err != nil {
			t.Fatal(err)
		}
		out = append(out, obj)
	}
	return out
}

var fieldNames = []string{"labels", "annotations", "name", "x", "a~1b", "replicas", "image", "imagePullPolicy", "env", "v", "n", "k", "data", "value", "protocol", "args", "finalizers", "apiVersion"}

// randomStrictOps makes a patch that is mostly sensible for an object; values may
// be parts of it.
func randomStrictOps(rnd *rand.Rand, obj map[string]any) []cel.PatchOp {
	var paths []string
	var values []any
	random.Places(obj, "", func(at string, v any) {
		if at != "" {
			paths = append(paths, at)
		}
		values = append(values, v)
		switch v.(type) {
		case map[string]any:
			paths = append(paths, at+"/"+fieldNames[rnd.IntN(len(fieldNames))])
		case []any:
			paths = append(paths, at+"/-")
		}
	})
	if rnd.IntN(3) == 0 { // one more member of the same map
		path := fmt.Sprintf("/%s/l~1%d", []string{"metadata/labels", "data", "spec/puf/a"}[rnd.IntN(3)], rnd.IntN(4))
		return []cel.PatchOp{{Op: "add", Path: path, Value: []any{"x", "y", int64(1)}[rnd.IntN(3)], HasValue: true}}
	}
	var ops []cel.PatchOp
	for range max(1, rnd.IntN(5)-1) {
		i := rnd.IntN(len(paths))
		op := cel.PatchOp{Op: []string{"add", "add", "add", "replace", "replace", "remove", "test"}[rnd.IntN(7)], Path: paths[i]}
		if op.Op != "remove" {
			op.HasValue = true
			switch rnd.IntN(8) {
			case 0:
				op.Value = values[rnd.IntN(len(values))]
			case 1:
				op.Value = int64(rnd.IntN(3))
			case 2:
				op.Value = []any{"x", map[string]any{"name": "y"}, 1.0, true, nil, map[string]any{}, []any{}}[rnd.IntN(7)]
			case 3:
				op.From = foreign
				op.Value = map[string]any{"name": fmt.Sprint("c", rnd.IntN(5)), "image": "i"}
			case 4:
				op.From = foreign
				op.Value = map[string]any{fmt.Sprint("k", rnd.IntN(3)): "v", "own": "x"}
			default:
				op.Value = fmt.Sprint("s", rnd.IntN(3))
			}
			if op.Op == "test" && rnd.IntN(2) == 0 {
				op.From = ""
				op.Value, _ = valueAt(obj, op.Path)
			}
		}
		ops = append(ops, op)
	}
	return ops
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	m, err := tree.Decode([]byte(text))
	if err != nil {
		t.Fatalf("Decode(%s): %v", text, err)
	}
	return m
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// foreign marks, in a field that these operations do not read, values that are no
// part of the object.
const foreign = "/elsewhere"

func valueAt(obj map[string]any, path string) (any, bool) {
	tokens, err := tree.ParsePointer(path)
	if err != nil {
		return nil, false
	}
	var at any = obj
	for _, token := range tokens {
		switch c := at.(type) {
		case map[string]any:
			at = c[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(c) {
				return nil, false
			}
			at = c[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// Patches on a draft do what copying the object for each does: the object, the
// errors, whether it changed and where, and nothing that was given or kept is
// modified.
func TestDraftPatchRandomly(t *testing.T) {
	hammer.Alone(t)
	deps := testDeps(t)
	seeds := uint64(hammer.Count(1000))
	quick, slow := 0, 0
	for _, obj := range draftSubjects(t, deps) {
		for seed := range seeds / 5 {
			rnd := rand.New(rand.NewPCG(seed, 5))
			r := newDraftRun(t, deps, runtime.DeepCopyJSON(obj))
			r.name = fmt.Sprintf("%s, seed %d", r.on.Kind.Kind, seed)
			for range 1 + rnd.IntN(8) {
				ops := randomStrictOps(rnd, r.on.Object.Object)
				fresh, copied := random.Copies(ops), random.Copies(ops)
				what := fmt.Sprint(ops)
				r.mutate(what, rnd.IntN(4) == 0, func(in Input, isFresh bool) (*unstructured.Unstructured, error) {
					if isFresh {
						return r.patched(in, fresh, true)
					}
					return r.patched(in, ops, false)
				})
				// Values that others hold stay what they are.
				for i := range copied {
					if m, ok := copied[i].Value.(map[string]any); ok && ops[i].From == foreign && len(r.kept) < 30 {
						r.kept, r.copies = append(r.kept, ops[i].Value.(map[string]any)), append(r.copies, m)
					}
				}
			}
			quick, slow = quick+r.quick, slow+r.slow
		}
	}
	t.Logf("%d in place, %d by copying", quick, slow)
	if quick < slow/2 {
		t.Errorf("%d in place, %d by copying: too few to tell", quick, slow)
	}
}

// The same for apply configurations.
func TestDraftMergeRandomly(t *testing.T) {
	hammer.Alone(t)
	deps := testDeps(t)
	seeds := hammer.Count(500)
	quick, slow := 0, 0
	for _, obj := range draftSubjects(t, deps) {
		for seed := range seeds / 5 {
			rnd := rand.New(rand.NewPCG(uint64(seed), 6))
			r := newDraftRun(t, deps, runtime.DeepCopyJSON(obj))
			r.name = fmt.Sprintf("%s, seed %d", r.on.Kind.Kind, seed)
			for range 1 + rnd.IntN(6) {
				patch, _ := subset(rnd, r.on.Object.Object).(map[string]any)
				if patch = mapOf(patch); rnd.IntN(3) == 0 {
					addTo(patch, "metadata", "labels", fmt.Sprint("l", rnd.IntN(3)), fmt.Sprint("v", rnd.IntN(3)))
				}
				checked, err := merge.Check(r.kind, patch)
				if err != nil {
					continue
				}
				fresh := runtime.DeepCopyJSON(checked)
				if rnd.IntN(2) == 0 && len(r.kept) < 30 {
					checked = runtime.DeepCopyJSON(checked) // and no part of the object
					r.keep(checked)
				}
				r.mutate(fmt.Sprint(checked), rnd.IntN(4) == 0, func(in Input, isFresh bool) (*unstructured.Unstructured, error) {
					if isFresh {
						return r.merged(in, fresh, true)
					}
					return r.merged(in, checked, false)
				})
			}
			quick, slow = quick+r.quick, slow+r.slow
		}
	}
	t.Logf("%d in place, %d by copying", quick, slow)
	if quick < slow {
		t.Errorf("%d in place, %d by copying: too few to tell", quick, slow)
	}
}

// mapOf is a map that may be written to.
func mapOf(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return maps.Clone(m)
}

func addTo(m map[string]any, path ...string) {
	for _, key := range path[:len(path)-2] {
		next, _ := m[key].(map[string]any)
		if next = maps.Clone(next); next == nil {
			next = map[string]any{}
		}
		m[key] = next
		m = next
	}
	m[path[len(path)-2]] = path[len(path)-1]
}

// subset is a part of an object with some values changed and elements added, as
// apply configurations are; sometimes the very part of the object.
func subset(rnd *rand.Rand, v any) any {
	if rnd.IntN(12) == 0 {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range sortedNames(v) {
			if _, container := v[k].(map[string]any); k == "name" || k == "port" || k == "protocol" || container || rnd.IntN(2) == 0 {
				out[k] = subset(rnd, v[k])
			}
		}
		if rnd.IntN(6) == 0 {
			k := fieldNames[rnd.IntN(len(fieldNames))]
			out[k] = fmt.Sprint("w", rnd.IntN(3))
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			if rnd.IntN(3) > 0 {
				out = append(out, subset(rnd, e))
			}
		}
		switch rnd.IntN(8) {
		case 0:
			out = append(out, map[string]any{"name": fmt.Sprint("n", rnd.IntN(3)), "image": "i"})
		case 1:
			out = append(out, map[string]any{"name": fmt.Sprint("n", rnd.IntN(3)), "port": int64(rnd.IntN(3))})
		case 2:
			rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		}
		return out
	case string:
		if rnd.IntN(4) == 0 {
			return fmt.Sprint(v, rnd.IntN(3))
		}
	case int64:
		if rnd.IntN(4) == 0 {
			return []any{v + 1, float64(v), nil}[rnd.IntN(3)]
		}
	}
	return v
}

func sortedNames(m map[string]any) []string {
	var names []string
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// An object that was mutated on a draft is held against its schema again where
// copying would hold it.
func TestDraftForgetsThatItWasValid(t *testing.T) {
	deps := testDeps(t)
	gvk := schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "Widget"}
	p := compiled(t, deps, newPolicy(
		applyMutation(`Object{spec: Object.spec{n: 2}}`),
		jsonMutation(`[JSONPatch{op: "add", path: "/spec/args/-", value: {"a": "b"}}]`),
		applyMutation(`Object{spec: Object.spec{n: 3}}`),
	))
	for _, draft := range []*Draft{nil, {}} {
		in := newInput(object(t, widget+`{"n":1,"args":["a"]}}`))
		in.Kind, in.Draft = gvk, draft
		if draft != nil {
			draft.Reset(in.Object, 0)
		}
		if _, errs := run(p, in); len(errs) != 1 {
			t.Errorf("draft %v: errors %v, want one", draft != nil, errs)
		}
	}
}

// What a patch made another kind of is settled on a draft as by copying, though
// it was not settled as that kind before.
func TestDraftOfAnotherKind(t *testing.T) {
	deps := testDeps(t)
	for _, kind := range []string{"apps/v1 Deployment", "v1 ConfigMap", "v1 Pod"} {
		apiVersion, kind, _ := strings.Cut(kind, " ")
		p := compiled(t, deps, newPolicy(
			jsonMutation(fmt.Sprintf(`[JSONPatch{op: "add", path: "/apiVersion", value: %q}, JSONPatch{op: "add", path: "/kind", value: %q}]`, apiVersion, kind)),
			applyMutation(`Object{metadata: Object.metadata{labels: {"a": "b"}}}`),
			jsonMutation(`[JSONPatch{op: "add", path: "/metadata/labels/c", value: "d"}]`),
			applyMutation(`Object{metadata: Object.metadata{labels: {"e": "f"}}}`),
		))
		var outcomes []any
		for _, draft := range []*Draft{nil, {}} {
			in := newInput(object(t, widget+`{"n":1,"args":["a"]}}`))
			if in.Draft = draft; draft != nil {
				draft.Reset(in.Object, 0)
			}
			var errs []string
			for _, m := range p.Mutations() {
				out, err := m.Mutate(t.Context(), in)
				if err != nil {
					errs = append(errs, err.Error())
					continue
				}
				in.Object = out
			}
			outcomes = append(outcomes, []any{errs, in.Object.Object})
		}
		if diff := cmp.Diff(outcomes[0], outcomes[1]); diff != "" {
			t.Errorf("%s (-by copying +on a draft):\n%s", kind, diff)
		}
	}
}
