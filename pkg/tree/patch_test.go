package tree

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/test/hammer"
)

func TestPatch(t *testing.T) {
	// labels is an object with n labels, of which the first are given.
	labels := func(n int, first map[string]any) any {
		m := map[string]any{}
		for i := range n {
			m[fmt.Sprintf("l%02d", i)] = "v"
		}
		for k, v := range first {
			m[k] = v
		}
		return map[string]any{"metadata": map[string]any{"labels": m}}
	}
	own := map[string]any{"app": "web", "a/b": "c"}
	tests := map[string]struct {
		before, after any
		ops           int // of Patch; one replaces the map
	}{
		"nothing":                      {labels(0, own), labels(0, own), 0},
		"a few":                        {labels(0, own), labels(8, own), 8},
		"many":                         {labels(0, own), labels(9, own), 1},
		"all gone":                     {labels(9, own), labels(0, nil), 1},
		"some change":                  {labels(12, own), labels(9, map[string]any{"l00": "w", "l01": "w", "l02": "w", "l03": "w", "l04": "w", "l05": "w"}), 1},
		"the map is new":               {map[string]any{"metadata": map[string]any{"x": "y"}}, map[string]any{"metadata": map[string]any{"x": "y", "labels": own}}, 1},
		"the others are long":          {labels(0, map[string]any{"x": strings.Repeat("x", 400)}), labels(9, map[string]any{"x": strings.Repeat("x", 400)}), 9},
		"others are no strings":        {labels(0, map[string]any{"x": 1.5}), labels(9, map[string]any{"x": 1.5}), 9},
		"others are null":              {labels(0, map[string]any{"x": nil}), labels(9, map[string]any{"x": nil}), 9},
		"something else was there":     {labels(0, map[string]any{"x": int64(1)}), labels(9, map[string]any{"x": "1"}), 1},
		"the document is not replaced": {map[string]any{}, labels(9, nil).(map[string]any)["metadata"].(map[string]any)["labels"], 9},
		"below a field without a name": {map[string]any{"": labels(0, own)}, map[string]any{"": labels(9, own)}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ops := Patch(tt.before, tt.after)
			if len(ops) != tt.ops {
				t.Errorf("%d operations, want %d: %v", len(ops), tt.ops, ops)
			}
			checkPatch(t, tt.before, tt.after, ops)
			checkPatch(t, tt.before, tt.after, Diff(tt.before, tt.after))
		})
	}
}

// TestPatchIsShort compares the text with that of Diff for maps of all sizes of
// which some part changes.
func TestPatchIsShort(t *testing.T) {
	hammer.Alone(t)
	r := rand.New(rand.NewPCG(1, 2))
	whole := 0
	for range 2000 {
		before, after := map[string]any{}, map[string]any{}
		change := r.Float64()
		for i := range r.IntN(40) {
			k, v := fmt.Sprint(i), strings.Repeat("v", r.IntN(60))
			before[k], after[k] = v, v
			if r.Float64() < change {
				after[k] = strings.Repeat("w", r.IntN(60))
			}
			switch r.IntN(4) {
			case 0:
				delete(before, k)
			case 1:
				delete(after, k)
			}
		}
		a, b := map[string]any{"m": map[string]any{"data": before}}, map[string]any{"m": map[string]any{"data": after}}
		ops, single := Patch(a, b), Diff(a, b)
		checkPatch(t, a, b, ops)
		if got, want := len(encode(t, ops)), len(encode(t, single)); got > want+len(`{"op":"replace","path":"/m/data","value":}`) {
			t.Errorf("a patch of %d bytes instead of %d:\n%s\n%s", got, want, lines(t, ops), lines(t, single))
		}
		if len(ops) < len(single) {
			whole++
		}
	}
	if whole < 200 {
		t.Errorf("%d maps were replaced; the test says too little", whole)
	}
}

// TestPatchAllocations bounds what a hundred labels cost: the encoded text and the
// sorted names grow, and each operation alone would be more.
func TestPatchAllocations(t *testing.T) {
	labels := map[string]any{"app": "web"}
	before := map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}}
	after := map[string]any{"metadata": map[string]any{"labels": labels}}
	for i := range 100 {
		labels[fmt.Sprint("l", i)] = "v"
	}
	got := hammer.Allocs(t, func() {
		if _, err := EncodePatch(Patch(before, after)); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%.0f", got)
	if limit := 8.0; got > limit {
		t.Errorf("%.0f allocations, want at most %.0f", got, limit)
	}
}

func FuzzEncode(f *testing.F) {
	for _, seed := range []string{`{"a":null,"é\u2028<\u007f":"é\u2028<\u007f"}`, `{"b":[1,1.5,true,null,{}],"a":{"":[],"<":"\\"}}`, `{"a":[[],{"a":"\ud800"}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Decode(data)
		if err != nil {
			t.Skip()
		}
		got, err := appendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("appendValue (-want +got):\n%s", diff)
		}
	})
}

func TestEncodeNil(t *testing.T) {
	for _, v := range []any{nil, map[string]any(nil), []any(nil), map[string]any{"a": []any(nil)}, "\xff", map[string]any{"\xff": "a", "\xfe": "b", "z": "c"}} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := appendValue(nil, v); err != nil || string(got) != string(want) {
			t.Errorf("appendValue(%#v) = %s, %v, want %s", v, got, err, want)
		}
	}
}
