package cel

import (
	"math"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/go-cmp/cmp"
)

// TestToJSON is the table of spec §8.2. That the short cut ends where the
// detour does is checked besides.
func TestToJSON(t *testing.T) {
	adapt := types.DefaultTypeAdapter.NativeToValue
	object := func(fields map[string]ref.Val) ref.Val {
		return &objectVal{typ: types.NewObjectType("Object"), fields: fields}
	}
	tests := map[string]struct {
		in   ref.Val
		want any
		err  string
	}{
		"string":                  {in: types.String("a"), want: "a"},
		"bool":                    {in: types.True, want: true},
		"null":                    {in: types.NullValue, want: nil},
		"int":                     {in: types.Int(-5), want: int64(-5)},
		"largest safe int":        {in: types.Int(1<<53 - 1), want: int64(1<<53 - 1)},
		"too large an int":        {in: types.Int(1 << 53), want: "9007199254740992"},
		"too small an int":        {in: types.Int(-1 << 53), want: "-9007199254740992"},
		"uint":                    {in: types.Uint(5), want: int64(5)},
		"too large a uint":        {in: types.Uint(math.MaxUint64), want: "18446744073709551615"},
		"whole double":            {in: types.Double(2), want: int64(2)},
		"double":                  {in: types.Double(0.5), want: 0.5},
		"small double":            {in: types.Double(1e-7), want: 1e-7},
		"double of 20 digits":     {in: types.Double(1e20), want: 1e20},
		"double with an exponent": {in: types.Double(1e21), want: 1e21},
		"double of 60 bits":       {in: types.Double(1 << 60), want: int64(1152921504606847000)},
		"double beyond int64":     {in: types.Double(1 << 63), want: float64(1 << 63)},
		"least int64":             {in: types.Double(-1 << 63), want: float64(-1 << 63)},
		"minus zero":              {in: types.Double(math.Copysign(0, -1)), want: int64(0)},
		"bytes":                   {in: types.Bytes("ab"), want: "YWI="},
		"timestamp":               {in: types.Timestamp{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, want: "2026-01-02T03:04:05Z"},
		"duration":                {in: types.Duration{Duration: 90 * time.Second}, want: "90s"},
		"optional":                {in: types.OptionalOf(types.Int(1)), want: int64(1)},
		"no optional":             {in: types.OptionalNone, err: "optional.none() dereference"},
		"data":                    {in: adapt(map[string]any{"a": []any{int64(1 << 60), 2.0, nil, "x"}}), want: map[string]any{"a": []any{"1152921504606846976", int64(2), nil, "x"}}},
		"nil list in data":        {in: adapt(map[string]any{"a": []any(nil)}), want: map[string]any{"a": []any{}}},
		"nil map in data":         {in: adapt(map[string]any{"a": map[string]any(nil)}), want: map[string]any{"a": map[string]any{}}},
		"go int in data":          {in: adapt(map[string]any{"a": 5}), want: map[string]any{"a": int64(5)}},
		"strings":                 {in: types.NewStringList(types.DefaultTypeAdapter, []string{"a"}), want: []any{"a"}},
		"list":                    {in: types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{types.Int(1 << 60), types.Double(2)}), want: []any{"1152921504606846976", int64(2)}},
		"map":                     {in: types.NewRefValMap(types.DefaultTypeAdapter, map[ref.Val]ref.Val{types.String("a"): types.Int(1)}), want: map[string]any{"a": int64(1)}},
		"int in an object":        {in: object(map[string]ref.Val{"a": types.Int(9007199254740993)}), want: map[string]any{"a": int64(9007199254740992)}},
		"null in an object":       {in: object(map[string]ref.Val{"a": types.NullValue}), err: "proto: invalid type: structpb.NullValue"},
		"time in an object":       {in: object(map[string]ref.Val{"a": types.Timestamp{}}), err: "proto: invalid type: time.Time"},
		"bytes in an object":      {in: object(map[string]ref.Val{"a": types.Bytes("ab")}), want: map[string]any{"a": "YWI="}},
		"object in an object":     {in: object(map[string]ref.Val{"a": object(nil)}), want: map[string]any{"a": map[string]any{}}},
		"piece in an object":      {in: object(map[string]ref.Val{"a": adapt([]any{"x", 1.0})}), want: map[string]any{"a": []any{"x", int64(1)}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := toJSON(tt.in)
			// protobuf varies the space after its prefix to keep people from
			// comparing texts.
			if msg := plainSpaces(errText(err)); msg != tt.err {
				t.Fatalf("toJSON(%v) error = %q, want %q", tt.in, msg, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("toJSON(%v) (-want +got):\n%s", tt.in, diff)
			}
			around, err := detour(tt.in)
			if msg := plainSpaces(errText(err)); msg != tt.err {
				t.Fatalf("detour(%v) error = %q, want %q", tt.in, msg, tt.err)
			}
			if diff := cmp.Diff(around, got); diff != "" {
				t.Errorf("short cut and detour differ (-detour +short cut):\n%s", diff)
			}
		})
	}
	for name, in := range map[string]ref.Val{
		"NaN": types.Double(math.NaN()), "infinity": types.Double(math.Inf(1)), "a type": types.IntType,
		"invalid UTF-8": types.String("a\xff"), "invalid UTF-8 in data": adapt(map[string]any{"a": "\xff"}), "invalid key": adapt(map[string]any{"\xff": "a"}),
	} {
		if got, err := toJSON(in); err == nil {
			t.Errorf("%s: toJSON(%v) = %v, want an error", name, in, got)
		}
	}
}

func plainSpaces(s string) string {
	out := []rune(s)
	for i, r := range out {
		if r == '\u00a0' {
			out[i] = ' '
		}
	}
	return string(out)
}

// FuzzToJSON compares the short cut with the detour.
func FuzzToJSON(f *testing.F) {
	f.Add(0.5, int64(1), "a", uint8(0))
	f.Add(1e21, int64(1<<53), "\xff", uint8(1))
	f.Add(-9007199254740993.0, int64(-1<<63), "<>&\u2028", uint8(2))
	f.Add(math.Copysign(0, -1), int64(0), "", uint8(3))
	f.Fuzz(func(t *testing.T, d float64, n int64, s string, kind uint8) {
		adapt := types.DefaultTypeAdapter
		var v ref.Val
		switch kind % 5 {
		case 0:
			v = adapt.NativeToValue(map[string]any{s: []any{d, n, s, nil}})
		case 1:
			v = &objectVal{typ: types.NewObjectType("Object"), fields: map[string]ref.Val{s: types.Double(d), "n": types.Int(n), "s": types.String(s)}}
		case 2:
			v = types.NewRefValList(adapt, []ref.Val{types.Double(d), types.Int(n), types.String(s), types.Uint(n)})
		case 3:
			v = types.NewRefValMap(adapt, map[ref.Val]ref.Val{types.String(s): types.Double(d)})
		case 4:
			v = &objectVal{typ: types.NewObjectType("Object"), fields: map[string]ref.Val{s: adapt.NativeToValue([]any{map[string]any{"d": d, "n": n}, s})}}
		}
		got, ok := shortcut(v)
		want, err := detour(v)
		if ok && err != nil {
			t.Fatalf("short cut gives %v, detour %v", got, err)
		}
		if ok {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-detour +short cut):\n%s", diff)
			}
		}
	})
}

// Of several bad keys the error names the same one every time.
func TestBadMapKeysInOrder(t *testing.T) {
	scope := testScope(t, Vars{}, nil)
	for name, expr := range map[string]string{
		"literal":       `[JSONPatch{op: "add", path: "/a", value: Object{m: {3: "a", 1: "b", 2: "c"}}}]`,
		"comprehension": `[JSONPatch{op: "add", path: "/a", value: Object{m: ["a", "b", "c"].transformMap(i, v, v)}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := scope.Compile(expr, JSONPatch)
			if err != nil {
				t.Fatal(err)
			}
			texts := map[string]bool{}
			for range 50 {
				_, err := p.JSONPatch(t.Context(), scope.Bind(&Input{Object: map[string]any{}}, nil))
				if err == nil {
					t.Fatal("no error")
				}
				texts[err.Error()] = true
				p.constant.Store(nil)
			}
			if len(texts) != 1 {
				t.Errorf("texts differ: %v", texts)
			}
		})
	}
}
