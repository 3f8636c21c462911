package tree

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	jsonpatchv5 "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"

	"github.com/mapd-project/mapd/test/hammer"
)

func TestDiff(t *testing.T) {
	tests := map[string]struct {
		before, after string
		want          []string
	}{
		"nothing": {before: `{"a": [1, {"b": null}]}`, after: `{"a": [1, {"b": null}]}`},
		"fields in the order of their names": {
			before: `{"d": 1, "c": 1, "x": 1}`, after: `{"a": 1, "c": 2, "x": 1}`,
			want: []string{`add /a 1`, `replace /c 2`, `remove /d`},
		},
		"a whole new map": {before: `{"m": {}}`, after: `{"m": {"labels": {"a": "b"}}}`, want: []string{`add /m/labels {"a":"b"}`}},
		"escaped names":   {before: `{"l": {"a/b": "1"}}`, after: `{"l": {"a/b": "2", "~": "3", "": 4}}`, want: []string{`add /l/ 4`, `replace /l/a~1b "2"`, `add /l/~0 "3"`}},
		"nothing below null": {
			before: `{"a": null, "b": {"x": 1}}`, after: `{"a": {"x": 1}, "b": null}`,
			want: []string{`replace /a {"x":1}`, `replace /b null`},
		},
		"nothing below a field without a name": {
			before: `{"": {"a": 1}, "b": {"": 1}}`, after: `{"": {"a": 2}, "b": {"": 2}}`,
			want: []string{`replace / {"a":2}`, `replace /b/ 2`},
		},
		"a null comes and goes":      {before: `{"a": null}`, after: `{"b": null}`, want: []string{`remove /a`, `add /b null`}},
		"a type changes":             {before: `{"a": [1]}`, after: `{"a": {"0": 1}}`, want: []string{`replace /a {"0":1}`}},
		"an integer becomes a float": {before: `{"a": 1}`, after: `{"a": 1.5}`, want: []string{`replace /a 1.5`}},
		"a sidecar in front is one add": {
			before: `{"c": [{"name": "app", "image": "a"}, {"name": "db", "image": "d"}]}`,
			after:  `{"c": [{"name": "mesh"}, {"name": "app", "image": "a"}, {"name": "db", "image": "d"}]}`,
			want:   []string{`add /c/0 {"name":"mesh"}`},
		},
		"a sidecar in front and a change in every other": {
			before: `{"c": [{"name": "app", "image": "a"}, {"name": "db", "image": "d"}]}`,
			after:  `{"c": [{"name": "mesh"}, {"name": "app", "image": "a", "tty": true}, {"name": "db", "image": "d", "tty": true}]}`,
			want:   []string{`add /c/0 {"name":"mesh"}`, `add /c/1/tty true`, `add /c/2/tty true`},
		},
		"removals from the highest index": {
			before: `{"c": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}, {"name": "e"}]}`,
			after:  `{"c": [{"name": "b"}, {"name": "d", "x": 1}, {"name": "e"}]}`,
			want:   []string{`remove /c/2`, `remove /c/0`, `add /c/1/x 1`},
		},
		"insertion in the middle": {before: `{"l": [1, 2, 3]}`, after: `{"l": [1, 7, 8, 2, 3]}`, want: []string{`add /l/1 7`, `add /l/2 8`}},
		"append":                  {before: `{"l": [1]}`, after: `{"l": [1, 2]}`, want: []string{`add /l/1 2`}},
		"emptied":                 {before: `{"l": [1, 2]}`, after: `{"l": []}`, want: []string{`remove /l/1`, `remove /l/0`}},
		"filled":                  {before: `{"l": []}`, after: `{"l": [1, 2]}`, want: []string{`add /l/0 1`, `add /l/1 2`}},
		"a moved element": {
			before: `{"c": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}`,
			after:  `{"c": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}`,
			want:   []string{`remove /c/2`, `add /c/0 {"name":"c"}`},
		},
		"another element in the same place is replaced as a whole": {
			before: `{"c": [{"name": "a", "x": 1}]}`, after: `{"c": [{"name": "b", "x": 1}]}`,
			want: []string{`replace /c/0 {"name":"b","x":1}`},
		},
		"elements without identity are compared in place": {
			before: `{"t": [{"op": "Exists", "s": 1}, {"op": "Exists", "s": 1}]}`, after: `{"t": [{"op": "Exists", "s": 2}, {"op": "Exists", "s": 3}]}`,
			want: []string{`replace /t/0/s 2`, `replace /t/1/s 3`},
		},
		"mounts are told apart by path when names repeat": {
			before: `{"m": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]}`,
			after:  `{"m": [{"name": "v", "mountPath": "/0"}, {"name": "v", "mountPath": "/a", "readOnly": true}, {"name": "v", "mountPath": "/b", "readOnly": true}]}`,
			want:   []string{`add /m/0 {"mountPath":"/0","name":"v"}`, `add /m/1/readOnly true`, `add /m/2/readOnly true`},
		},
		"scalars between equal ones": {
			before: `{"l": ["a", "b", "c", "d"]}`, after: `{"l": ["x", "b", "y", "c", "z"]}`,
			want: []string{`replace /l/0 "x"`, `add /l/2 "y"`, `replace /l/4 "z"`},
		},
		"lists in lists": {before: `{"l": [[1], [2]]}`, after: `{"l": [[1, 1], [2, 2]]}`, want: []string{`add /l/0/1 1`, `add /l/1/1 2`}},
		"mixed list":     {before: `{"l": [{"name": "a"}, 1, null]}`, after: `{"l": [{"name": "b"}, 2, "x"]}`, want: []string{`replace /l/0/name "b"`, `replace /l/1 2`, `replace /l/2 "x"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before, after := mustDecode(t, tt.before), mustDecode(t, tt.after)
			ops := Diff(before, after)
			if diff := cmp.Diff(tt.want, lines(t, ops)); diff != "" {
				t.Errorf("Diff(%s, %s) (-want +got):\n%s", tt.before, tt.after, diff)
			}
			checkPatch(t, before, after, ops)
			checkPatch(t, after, before, Diff(after, before))
		})
	}
}

func TestDiffOfOtherDocuments(t *testing.T) {
	tests := map[string]struct {
		before, after any
		want          []string
	}{
		"an object appears":       {before: nil, after: map[string]any{"a": "b"}, want: []string{`replace  {"a":"b"}`}},
		"an object becomes null":  {before: map[string]any{"a": "b"}, after: nil, want: []string{`replace  null`}},
		"a nil map is null":       {before: map[string]any(nil), after: map[string]any{}, want: []string{`replace  {}`}},
		"scalars":                 {before: "a", after: int64(1), want: []string{`replace  1`}},
		"a list as the document":  {before: []any{"a"}, after: []any{"a", "b"}, want: []string{`add /1 "b"`}},
		"equal foreign values":    {before: []byte("x"), after: []byte("x")},
		"equal but not same maps": {before: map[string]any{}, after: map[string]any{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ops := Diff(tt.before, tt.after)
			if diff := cmp.Diff(tt.want, lines(t, ops)); diff != "" {
				t.Errorf("Diff(%v, %v) (-want +got):\n%s", tt.before, tt.after, diff)
			}
			if got, err := Apply(tt.before, ops); err != nil || !Equal(got, tt.after) {
				t.Errorf("Apply(%v, %v) = %v, %v, want %v", tt.before, ops, got, err, tt.after)
			}
		})
	}
}

func TestChanged(t *testing.T) {
	before := mustDecode(t, `{"l": [1, 2, 3], "z": 1, "m": {"a": 1}}`)
	after := mustDecode(t, `{"l": [4, 3], "z": 2, "m": {"a": 1, "b/c": 2}}`)
	want := []string{"/l/0", "/l/1", "/m/b~1c", "/z"}
	if diff := cmp.Diff(want, Changed(before, after)); diff != "" {
		t.Errorf("Changed (-want +got):\n%s", diff)
	}
	if got := Changed(before, before); got != nil {
		t.Errorf("Changed(x, x) = %q, want none", got)
	}
}

// TestDiffLongLists passes the bound up to which lists without identity are
// aligned.
func TestDiffLongLists(t *testing.T) {
	list := func(n int, salt string) []any {
		l := make([]any, n)
		for i := range l {
			l[i] = fmt.Sprint(salt, i)
		}
		return l
	}
	before := map[string]any{"l": list(2000, "a")}
	after := map[string]any{"l": list(2100, "b")}
	ops := Diff(before, after)
	if len(ops) != 2100 {
		t.Errorf("%d operations, want 2100", len(ops))
	}
	checkPatch(t, before, after, ops)
}

func FuzzDiff(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint64(1))
	}
	f.Fuzz(func(t *testing.T, seed, change uint64) {
		r := rand.New(rand.NewPCG(seed, change))
		before := map[string]any{"root": randomTree(r, 4)}
		after := mutate(r, before, 4).(map[string]any)
		checkPatch(t, before, after, Diff(before, after))
		other := map[string]any{"root": randomTree(r, 4)}
		checkPatch(t, before, other, Diff(before, other))
		checkPatch(t, before, after, Patch(before, after))
	})
}

func FuzzDiffDocuments(f *testing.F) {
	f.Add([]byte(`{"a":[{"name":"x"},null]}`), []byte(`{"a":[null,{"name":"x","y":1.5}],"":{"/":"~"}}`))
	f.Add([]byte(`{"a":null}`), []byte(`{"a":{"b":null}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		before, err := Decode(a)
		if err != nil {
			t.Skip()
		}
		after, err := Decode(b)
		if err != nil {
			t.Skip()
		}
		checkPatch(t, before, after, Diff(before, after))
		checkPatch(t, before, after, Patch(before, after))
	})
}

// checkPatch applies ops to before with Apply and with both versions of the
// JSON Patch library and wants after each time, and before as it was.
func checkPatch(t *testing.T, before, after any, ops []Op) {
	t.Helper()
	doc, want := encode(t, before), encode(t, after)
	got, err := Apply(before, ops)
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	if !Equal(got, after) {
		t.Errorf("Apply(%s, %s) = %s, want %s", doc, lines(t, ops), encode(t, got), want)
	}
	if now := encode(t, before); string(now) != string(doc) {
		t.Errorf("Apply changed its input from %s to %s", doc, now)
	}
	if len(ops) == 0 {
		return
	}
	for _, op := range ops {
		if op.Path == "" {
			t.Errorf("an operation replaces the whole object: %v", op)
		}
	}
	patch := encode(t, ops)
	v4, err := jsonpatchv4.DecodePatch(patch)
	if err != nil {
		t.Fatalf("v4: decode %s: %v", patch, err)
	}
	out, err := v4.Apply(doc)
	if err != nil {
		t.Fatalf("v4: apply %s to %s: %v", patch, doc, err)
	}
	checkJSON(t, "v4", patch, out, want)
	v5, err := jsonpatchv5.DecodePatch(patch)
	if err != nil {
		t.Fatalf("v5: decode %s: %v", patch, err)
	}
	out, err = v5.Apply(doc)
	if err != nil {
		t.Fatalf("v5: apply %s to %s: %v", patch, doc, err)
	}
	checkJSON(t, "v5", patch, out, want)
}

func checkJSON(t *testing.T, who string, patch, got, want []byte) {
	t.Helper()
	g, err := Decode(got)
	if err != nil {
		t.Fatalf("%s: result: %v", who, err)
	}
	w, err := Decode(want)
	if err != nil {
		t.Fatal(err)
	}
	if !Equal(g, w) {
		t.Errorf("%s: patch %s gives %s, want %s", who, patch, got, want)
	}
}

func randomTree(r *rand.Rand, depth int) any {
	n := r.IntN(10)
	if depth == 0 {
		n %= 6
	}
	switch n {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2:
		return int64(r.IntN(5))
	case 3:
		return float64(r.IntN(5)) + 0.5
	case 4, 5:
		return string(rune('a' + r.IntN(5)))
	case 6, 7:
		m := map[string]any{}
		for range r.IntN(5) {
			m[randomKey(r)] = randomTree(r, depth-1)
		}
		return m
	case 8:
		l := []any{}
		for range r.IntN(6) {
			l = append(l, randomTree(r, depth-1))
		}
		return l
	default:
		l := []any{}
		for i := range r.IntN(6) {
			l = append(l, map[string]any{"name": fmt.Sprint(i), "value": randomTree(r, depth-1)})
		}
		return l
	}
}

func randomKey(r *rand.Rand) string {
	return []string{"a", "b", "name", "a/b", "~", "", "0", "-", "~1"}[r.IntN(9)]
}

// mutate returns v with a few changes, copied on write like a patch's result.
func mutate(r *rand.Rand, v any, depth int) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for _, k := range sortedKeys(v) {
			c[k] = v[k]
		}
		for _, k := range sortedKeys(v) {
			switch r.IntN(6) {
			case 0, 1:
				c[k] = mutate(r, v[k], depth-1)
			case 2:
				if depth < 4 {
					delete(c, k)
				}
			}
		}
		if depth < 4 && r.IntN(3) == 0 {
			c[randomKey(r)] = randomTree(r, max(depth-1, 0))
		}
		return c
	case []any:
		var c = []any{}
		for _, e := range v {
			switch r.IntN(6) {
			case 0:
				c = append(c, randomTree(r, max(depth-1, 0)), e)
			case 1:
				c = append(c, mutate(r, e, depth-1))
			case 2:
			default:
				c = append(c, e)
			}
		}
		if r.IntN(4) == 0 {
			r.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
		}
		return c
	}
	return randomTree(r, max(depth-1, 0))
}

// sortedKeys keeps the random order of a map from deciding what a seed means.
func sortedKeys(m map[string]any) []string {
	return slices.Sorted(maps.Keys(m))
}

func lines(t *testing.T, ops []Op) []string {
	t.Helper()
	var out []string
	for _, op := range ops {
		s := op.Op + " " + op.Path
		if op.Op != "remove" {
			s += " " + string(encode(t, op.Value))
		}
		out = append(out, s)
	}
	return out
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustDecode(t *testing.T, s string) map[string]any {
	t.Helper()
	m, err := Decode([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func BenchmarkDiff(b *testing.B) {
	pod := func() map[string]any {
		var containers []any
		for i := range 20 {
			var env []any
			for j := range 40 {
				env = append(env, map[string]any{"name": fmt.Sprint("E", j), "value": "v"})
			}
			containers = append(containers, map[string]any{"name": fmt.Sprint("c", i), "env": env})
		}
		return map[string]any{"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"containers": containers}}
	}
	before := pod()
	shared := map[string]any{"metadata": map[string]any{"name": "x", "labels": map[string]any{"a": "b"}}, "spec": before["spec"]}
	b.Run("shared", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Diff(before, shared)
		}
	})
	other := pod()
	b.Run("unshared", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Diff(before, other)
		}
	})
}

func TestEncodePatch(t *testing.T) {
	ops := []Op{
		{Op: "add", Path: "/metadata/labels/a~1b", Value: "plain"},
		{Op: "add", Path: "/data/\"é\u2028<>&\\\x7f\xff\n", Value: "\"é\u2028<>&\\\x7f\xff\n\t"},
		{Op: "remove", Path: "", Value: "ignored"},
		{Op: "replace", Path: "/spec", Value: map[string]any{"n": int64(1) << 60, "f": 2.5, "x": nil, "l": []any{true, "<", map[string]any{}}}},
		{Op: "replace", Path: "/spec/null", Value: nil},
	}
	for n := range len(ops) + 1 {
		got, err := EncodePatch(ops[:n])
		if err != nil {
			t.Fatal(err)
		}
		// What a struct's encoder would write.
		list := []any{}
		for _, op := range ops[:n] {
			if op.Op == "remove" {
				list = append(list, struct {
					Op   string `json:"op"`
					Path string `json:"path"`
				}{op.Op, op.Path})
				continue
			}
			list = append(list, struct {
				Op    string `json:"op"`
				Path  string `json:"path"`
				Value any    `json:"value"`
			}{op.Op, op.Path, op.Value})
		}
		want, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("EncodePatch (-want +got):\n%s", diff)
		}
		if marshalled, err := json.Marshal(append([]Op{}, ops[:n]...)); err != nil || string(marshalled) != string(got) {
			t.Errorf("json.Marshal = %s, %v, want %s", marshalled, err, got)
		}
	}
	if _, err := EncodePatch([]Op{{Op: "add", Path: "/x", Value: make(chan int)}}); err == nil {
		t.Error("EncodePatch of what JSON has no form for succeeds")
	}
}

// TestDiffOfThousands bounds patches that would be dear to apply.
func TestDiffOfThousands(t *testing.T) {
	hammer.Alone(t)
	numbers := func(n int, keep func(int) bool) []any {
		var list []any
		for i := range n {
			if keep(i) {
				list = append(list, int64(i))
			}
		}
		return list
	}
	all := func(int) bool { return true }
	odd := func(i int) bool { return i%2 == 1 }
	objects := func(n int, value string) []any {
		list := make([]any, n)
		for i := range list {
			list[i] = map[string]any{"name": strconv.Itoa(i), "value": value}
		}
		return list
	}
	fields := func(n int, value string) map[string]any {
		m := map[string]any{}
		for i := range n {
			m[strconv.Itoa(i)] = value
		}
		return m
	}
	tests := map[string]struct {
		before, after any
		ops           int
		first         string
	}{
		"half of many elements removed": {numbers(100_000, all), numbers(100_000, odd), 1, "/spec/x"},
		"many elements added":           {numbers(100_000, odd), numbers(100_000, all), 1, "/spec/x"},
		"one of many elements removed":  {numbers(100_000, all), numbers(100_000, func(i int) bool { return i != 7 }), 1, "/spec/x/7"},
		"some elements removed":         {numbers(200, all), numbers(200, odd), 100, "/spec/x/198"},
		"many elements changed":         {objects(maxOps+1, "a"), objects(maxOps+1, "b"), 1, "/spec/x"},
		"some elements changed":         {objects(maxOps, "a"), objects(maxOps, "b"), maxOps, "/spec/x/0/value"},
		"many fields changed":           {fields(maxOps+1, "a"), fields(maxOps+1, "b"), 1, "/spec/x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := map[string]any{"spec": map[string]any{"x": tt.before, "a": "1"}}
			after := map[string]any{"spec": map[string]any{"x": tt.after, "a": "1"}}
			ops := Diff(before, after)
			if len(ops) != tt.ops || ops[0].Path != tt.first {
				t.Fatalf("Diff gives %d operations, the first on %s, want %d on %s", len(ops), ops[0].Path, tt.ops, tt.first)
			}
			got, err := Apply(before, ops)
			if err != nil || !Equal(got, after) {
				t.Errorf("Apply does not give the new version, error %v", err)
			}
			if paths := Changed(before, after); len(paths) != tt.ops {
				t.Errorf("Changed gives %d paths, want %d", len(paths), tt.ops)
			}
		})
	}
	// Documents themselves are not replaced.
	for _, tt := range [][2]any{{fields(maxOps+1, "a"), fields(maxOps+1, "b")}, {numbers(3000, all), numbers(3000, odd)}} {
		ops := Diff(tt[0], tt[1])
		if got, err := Apply(tt[0], ops); err != nil || !Equal(got, tt[1]) || len(ops) == 1 {
			t.Errorf("%d operations, error %v", len(ops), err)
		}
	}
}
