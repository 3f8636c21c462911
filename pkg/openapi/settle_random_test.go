package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

// The reference is written against client-go's scheme, so that a type missing
// from ours, or registered wrongly, shows as well.

var strict = kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, clientscheme.Scheme, clientscheme.Scheme, kjson.SerializerOptions{Strict: true})

// wantBuiltin is the whole typed round trip of upstream.
func wantBuiltin(gvk schema.GroupVersionKind, after map[string]any, from Decoding) (map[string]any, error) {
	var obj runtime.Object = &unstructured.Unstructured{Object: after}
	if from == FromJSONPatch {
		data, err := json.Marshal(after)
		if err != nil {
			return nil, err
		}
		into, err := clientscheme.Scheme.New(gvk)
		if err != nil {
			return nil, err
		}
		if obj, _, err = strict.Decode(data, nil, into); err != nil {
			return nil, err
		}
	}
	obj, err := clientscheme.Scheme.ConvertToVersion(obj, gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	if got := obj.GetObjectKind().GroupVersionKind(); got != gvk {
		return nil, fmt.Errorf("became a %v", got)
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// wantCustom is what upstream does to the whole of a custom object.
func wantCustom(k *Kind, after map[string]any, from Decoding) (map[string]any, error) {
	obj := runtime.DeepCopyJSON(after)
	if from == FromJSONPatch {
		data, err := json.Marshal(after)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if _, _, err := strict.Decode(data, nil, u); err != nil {
			return nil, err
		}
		obj = u.Object
	}
	if (&unstructured.Unstructured{Object: obj}).GroupVersionKind() == k.gvk {
		structuraldefaulting.Default(obj, k.custom.structural)
	}
	return obj, nil
}

// scraps are values of every kind, most of them wrong in most places.
var scraps = []any{
	nil, "", "x", "app", "500m", "0.5", "1Gi", " 1", "1 ", "-1", "1e3", "0", "12e-1", "999999999999999999999",
	int64(0), int64(1), int64(5), int64(-1), int64(80), int64(2147483647), int64(2147483648), int64(5000000000), int64(9007199254740993),
	float64(0), 5.0, math.Copysign(0, -1), 5.5, 1e21, 1e19, 5e9, 9223372036854775808.0, -9223372036854775808.0, 9007199254740994.0, 1e-7,
	true, false, "true",
	[]any{}, map[string]any{}, []any{nil}, []any{"a", "b"}, []any{int64(1)}, []any{map[string]any{}}, []any{5.0},
	map[string]any{"a": "b"}, map[string]any{"a": nil}, map[string]any{"a": int64(1)}, map[string]any{"a": 5.0}, map[string]any{"a": map[string]any{"b": 2.0}}, map[string]any{"name": "x"},
	map[string]any{"bogus": "y"}, map[string]any(nil), []any(nil),
	"2024-01-02T03:04:05Z", "2024-01-02T05:04:05+02:00", "2024-01-02T03:04:05.123456Z", "0001-01-01T00:00:00Z", "2024-13-01T00:00:00Z", "null",
	"aGVsbG8=", "aGVs\nbG8=", "aGVsbG8", "a\xffb", "<&>", "\u2028",
}

// An editor makes one random change after another to a tree, copying along
// the path and sharing everything else.
type editor struct{ r *rand.Rand }

// edit changes one random place. sh is nil where types are unknown.
func (e *editor) edit(sh *shape, v, root any) any {
	for sh != nil && sh.form == pointer {
		sh = sh.elem
	}
	deeper := e.r.IntN(5) > 0
	switch v := v.(type) {
	case map[string]any:
		if v == nil || e.r.IntN(40) == 0 {
			return e.value(sh, root)
		}
		out := maps.Clone(v)
		if deeper && len(v) > 0 {
			key := slices.Sorted(maps.Keys(v))[e.r.IntN(len(v))]
			out[key] = e.edit(partShape(sh, key), v[key], root)
			return out
		}
		switch e.r.IntN(6) {
		case 0, 1:
			if len(v) > 0 {
				delete(out, slices.Sorted(maps.Keys(v))[e.r.IntN(len(v))])
			}
		case 2, 3, 4:
			key := e.key(sh, v)
			out[key] = e.value(partShape(sh, key), root)
		case 5: // the same again, in a new map
		}
		return out
	case []any:
		if v == nil || e.r.IntN(40) == 0 {
			return e.value(sh, root)
		}
		elem := partShape(sh, "")
		out := slices.Clone(v)
		if deeper && len(v) > 0 {
			i := e.r.IntN(len(v))
			out[i] = e.edit(elem, v[i], root)
			return out
		}
		switch e.r.IntN(5) {
		case 0:
			if len(v) > 0 {
				i := e.r.IntN(len(v))
				out = slices.Delete(out, i, i+1)
			}
		case 1, 2:
			out = slices.Insert(out, e.r.IntN(len(v)+1), e.value(elem, root))
		case 3:
			e.r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		case 4: // the same again, in a new list
		}
		return out
	}
	return e.value(sh, root)
}

// partShape is the shape of a field or an element.
func partShape(sh *shape, key string) *shape {
	if sh == nil {
		return nil
	}
	m := sh.items
	if m == nil {
		m = sh.member(key)
	}
	if m == nil {
		return sh.elem
	}
	return m.shape
}

func (e *editor) key(sh *shape, v map[string]any) string {
	if sh != nil && sh.form == structure && len(sh.fields) > 0 && e.r.IntN(12) > 0 {
		return slices.Sorted(maps.Keys(sh.fields))[e.r.IntN(len(sh.fields))]
	}
	if len(v) > 0 && e.r.IntN(3) == 0 {
		return slices.Sorted(maps.Keys(v))[e.r.IntN(len(v))]
	}
	keys := []string{"a", "b", "cpu", "memory", "bogus", "x/y", "name", "-"}
	if sh == nil {
		keys = append(keys, "spec", "size", "ports", "port", "nested", "x", "byName", "num", "free", "known", "mode", "plain", "open", "status")
	}
	return keys[e.r.IntN(len(keys))]
}

// value makes a value, often of the right type, sometimes a piece of root.
func (e *editor) value(sh *shape, root any) any {
	switch n := e.r.IntN(10); {
	case n < 4 && sh != nil:
		return e.fitting(sh, 3)
	case n == 4:
		return e.piece(root)
	}
	return scraps[e.r.IntN(len(scraps))]
}

// piece is a random subtree.
func (e *editor) piece(v any) any {
	for e.r.IntN(3) > 0 {
		switch c := v.(type) {
		case map[string]any:
			if len(c) == 0 {
				return v
			}
			v = c[slices.Sorted(maps.Keys(c))[e.r.IntN(len(c))]]
		case []any:
			if len(c) == 0 {
				return v
			}
			v = c[e.r.IntN(len(c))]
		default:
			return v
		}
	}
	return v
}

// fitting is a value that a type accepts, at most depth levels deep.
func (e *editor) fitting(sh *shape, depth int) any {
	some := func(vs ...any) any { return vs[e.r.IntN(len(vs))] }
	switch sh.form {
	case pointer:
		return e.fitting(sh.elem, depth)
	case text:
		return some("", "a", "b", "web")
	case truth:
		return some(true, false)
	case integer:
		return some(int64(0), int64(1), int64(80), 5.0)
	case number:
		return some(1.5, int64(2), 0.0)
	case bytes:
		return some("", "aGVsbG8=", "aGVs\nbG8=")
	case list:
		out := []any{}
		for range min(e.r.IntN(4), depth) {
			out = append(out, e.fitting(sh.items.shape, depth-1))
		}
		return out
	case dict:
		out := map[string]any{}
		for range min(e.r.IntN(4), depth) {
			out[[]string{"a", "b", "cpu", "memory"}[e.r.IntN(4)]] = e.fitting(sh.others.shape, depth-1)
		}
		return out
	case structure:
		out := map[string]any{}
		for range min(e.r.IntN(5), 4*depth, len(sh.fields)) {
			name := slices.Sorted(maps.Keys(sh.fields))[e.r.IntN(len(sh.fields))]
			out[name] = e.fitting(sh.fields[name].shape, depth-1)
		}
		return out
	case raw:
		return some(nil, int64(1), "s", true, map[string]any{"a": 5.0}, []any{1.5, 2.0})
	case special:
		for range 20 {
			v := some("500m", "0.5", "1Gi", int64(1), int64(80), "http", "2024-01-02T05:04:05+02:00", "2024-01-02T03:04:05.123456Z", "1h0m0s", "3600s", "0001-01-01T00:00:00Z")
			if _, ok := sh.canonical(v); ok {
				return v
			}
		}
	}
	return nil
}

// differ settles one edit both ways and says how the answers differ.
func differ(k *Kind, before, after map[string]any, from Decoding) error {
	guard := len(before)%2 == 0 // a check that costs more than all others
	var beforeText, afterText string
	if guard {
		beforeText, afterText = exact(before), exact(after)
	}
	got, gotErr := k.Settle(before, after, from)
	if k.goType == nil && from == FromApply && unstable(after) {
		return nil // upstream panics on the nil map
	}
	var want map[string]any
	var wantErr error
	if k.goType != nil {
		want, wantErr = wantBuiltin(k.gvk, after, from)
	} else {
		want, wantErr = wantCustom(k, after, from)
	}
	if guard && (exact(before) != beforeText || exact(after) != afterText) {
		return fmt.Errorf("Settle modified its arguments")
	}
	switch {
	case wantErr != nil && strings.HasPrefix(wantErr.Error(), "became a "):
		if gotErr == nil || !strings.HasPrefix(gotErr.Error(), "failed to convert object: converting (") {
			return fmt.Errorf("error = %v, want one about the kind", gotErr)
		}
		return nil
	case wantErr != nil:
		text := strings.ReplaceAll(wantErr.Error(), clientscheme.Scheme.Name(), serverScheme)
		if gotErr == nil || gotErr.Error() != text {
			if gotErr != nil && strings.Contains(gotErr.Error(), "does not fit") {
				return nil // two errors at a time, of which ours looks for one first
			}
			// Upstream's conversion walks Go maps in random order and reports
			// the first error it meets.
			for range 50 {
				if _, err := wantBuiltin(k.gvk, after, from); from == FromApply && gotErr != nil && err.Error() == gotErr.Error() {
					return nil
				}
			}
			return fmt.Errorf("error = %v, want %s", gotErr, text)
		}
		return nil
	case gotErr != nil:
		// Upstream would have wrapped the number silently. That it does not
		// fit is what JSON says, too.
		if from == FromApply && k.goType != nil && strings.Contains(gotErr.Error(), "does not fit") {
			if _, err := wantBuiltin(k.gvk, after, FromJSONPatch); err != nil {
				return nil
			}
		}
		return fmt.Errorf("error = %v, want none", gotErr)
	}
	if !tree.Equal(got, want) {
		return fmt.Errorf("differs (-want +got):\n%s", cmp.Diff(any(want), any(got)))
	}
	if tree.Equal(got, before) && !tree.Same(got, before) {
		return fmt.Errorf("is equal to before but has lost its identity")
	}
	if unstable(after) {
		return nil
	}
	if again, err := k.Settle(before, got, from); err != nil || !tree.Equal(again, got) {
		return fmt.Errorf("settling twice is not settling once: %v\n%s", err, cmp.Diff(any(got), any(again)))
	}
	return nil
}

// unstable reports whether a tree holds what upstream's round trip itself
// changes once more the next time: text that is not UTF-8 and nil maps and
// lists (no tree from JSON holds either), and the zero time, which becomes null
// first and then vanishes.
func unstable(v any) bool {
	switch v := v.(type) {
	case string:
		return !utf8.ValidString(v) || strings.HasPrefix(v, "0001-01-01T")
	case map[string]any:
		for _, e := range v {
			if unstable(e) {
				return true
			}
		}
		return v == nil
	case []any:
		return v == nil || slices.ContainsFunc(v, unstable)
	}
	return false
}

// exact is the exact text of a tree; JSON would not tell 5.0 from 5.
func exact(v any) string { return fmt.Sprintf("%#v", v) }

// seedObjects are what random edits start from.
func seedObjects(t testing.TB) (kinds []*Kind, objects []map[string]any) {
	types := New(Builtin(), mustCRDs(t, widgetCRD))
	for _, src := range seeds {
		obj := mustTree(t, src)
		k, err := types.Kind((&unstructured.Unstructured{Object: obj}).GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		norm, err := k.Normalize(obj)
		if err != nil {
			t.Fatalf("Normalize(%s): %v", src, err)
		}
		kinds, objects = append(kinds, k), append(objects, norm)
	}
	return kinds, objects
}

// randomEdits makes a chain of edits from one seed object and reports the
// first difference.
func randomEdits(kinds []*Kind, objects []map[string]any, seed uint64, steps int) error {
	r := rand.New(rand.NewPCG(seed, 37))
	e := &editor{r: r}
	i := r.IntN(len(kinds))
	if r.IntN(5) == 0 {
		i = len(kinds) - 1 // the custom one
	}
	k, before := kinds[i], objects[i]
	var sh *shape
	if k.goType != nil {
		sh = k.goType.root.shape
	}
	for range steps {
		after := before
		for range 1 + r.IntN(2) {
			if m, ok := e.edit(sh, after, before).(map[string]any); ok && m != nil {
				after = m
			}
		}
		from := Decoding(r.IntN(2))
		if err := differ(k, before, after, from); err != nil {
			return fmt.Errorf("seed %d, from %d\nbefore %s\nafter  %s\n%w", seed, from, asJSON(before), asJSON(after), err)
		}
		if next, err := k.Settle(before, after, from); err == nil {
			if (&unstructured.Unstructured{Object: next}).GroupVersionKind() == k.gvk && !unstable(after) {
				before = next
			}
		}
		if k.goType == nil {
			w := settler{from: FromJSONPatch}
			before = w.members(anything, nil, before) // floats that nobody touched: see Settle
		}
	}
	return nil
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestSettleRandomEdits is the heart of the package: settling what changed
// gives what upstream's round trip of the whole object gives.
func TestSettleRandomEdits(t *testing.T) {
	hammer.Alone(t)
	chains := hammer.Count(1000)
	kinds, objects := seedObjects(t)
	for seed := range uint64(chains) {
		if err := randomEdits(kinds, objects, seed, 8); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzSettle(f *testing.F) {
	kinds, objects := seedObjects(f)
	for seed := range uint64(8) {
		f.Add(1_000_000 + seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		if err := randomEdits(kinds, objects, seed, 8); err != nil {
			t.Fatal(err)
		}
	})
}
