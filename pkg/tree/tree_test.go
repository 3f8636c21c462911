package tree

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

func TestSameAndEqual(t *testing.T) {
	m := map[string]any{"a": int64(1)}
	l := []any{"x", "y"}
	deep := func() any {
		return map[string]any{"l": []any{map[string]any{"n": nil, "f": 1.5, "b": true}}}
	}
	tests := map[string]struct {
		a, b        any
		same, equal bool
	}{
		"the same map":                   {a: m, b: m, same: true, equal: true},
		"an equal map":                   {a: m, b: map[string]any{"a": int64(1)}, equal: true},
		"the same list":                  {a: l, b: l, same: true, equal: true},
		"a shorter view of a list":       {a: l, b: l[:1]},
		"an equal list":                  {a: l, b: []any{"x", "y"}, equal: true},
		"strings":                        {a: "x", b: strings.Clone("x"), same: true, equal: true},
		"integer and float":              {a: int64(1), b: float64(1)},
		"floats":                         {a: 1.5, b: 1.5, same: true, equal: true},
		"bools":                          {a: true, b: false},
		"null and null":                  {same: true, equal: true},
		"null and an empty map":          {b: map[string]any{}},
		"an empty map and null":          {a: map[string]any{}},
		"a nil map and an empty one":     {a: map[string]any(nil), b: map[string]any{}},
		"a nil list and an empty one":    {a: []any(nil), b: []any{}},
		"a key with null and no key":     {a: map[string]any{"a": nil}, b: map[string]any{"b": nil}},
		"deep data":                      {a: deep(), b: deep(), equal: true},
		"a foreign value":                {a: []byte("x"), b: []byte("x"), equal: true},
		"a foreign value and a scalar":   {a: 1, b: int64(1)},
		"a map and a list":               {a: m, b: l},
		"a list and a map":               {a: l, b: m},
		"maps of different size":         {a: m, b: map[string]any{}},
		"lists that differ in one place": {a: l, b: []any{"x", "z"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Same(tt.a, tt.b); got != tt.same {
				t.Errorf("Same(%v, %v) = %t, want %t", tt.a, tt.b, got, tt.same)
			}
			if got := Equal(tt.a, tt.b); got != tt.equal {
				t.Errorf("Equal(%v, %v) = %t, want %t", tt.a, tt.b, got, tt.equal)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	tests := map[string]struct {
		in   string
		want any
		err  string
	}{
		"integers and floats stay apart": {
			in:   `{"i": 1, "f": 1.0, "e": 1e3, "big": 9223372036854775808}`,
			want: map[string]any{"i": int64(1), "f": 1.0, "e": 1000.0, "big": 9223372036854775808.0},
		},
		"the last of two equal keys counts": {in: `{"a": 1, "a": 2}`, want: map[string]any{"a": int64(2)}},
		"keys keep their case":              {in: `{"a": 1, "A": 2}`, want: map[string]any{"a": int64(1), "A": int64(2)}},
		"cut off":                           {in: `{"a": `, err: "offset 6: unexpected end of JSON input"},
		"a wrong character":                 {in: `{"a": x}`, err: "offset 7: invalid character 'x' looking for beginning of value"},
		"data after the object":             {in: `{} {}`, err: "offset 4: invalid character '{' after top-level value"},
		"a list":                            {in: `[]`, err: "offset 0: not a JSON object but a list"},
		"null":                              {in: `null`, err: "offset 0: not a JSON object but null"},
		"a string":                          {in: `"x"`, err: "offset 0: not a JSON object but a string"},
		"a number":                          {in: `1`, err: "offset 0: not a JSON object but a number"},
		"a boolean":                         {in: `true`, err: "offset 0: not a JSON object but a boolean"},
		"nothing":                           {in: ``, err: "offset 0: unexpected end of JSON input"},
		"too deep":                          {in: strings.Repeat(`{"a":`, 10001) + `1` + strings.Repeat(`}`, 10001), err: "offset 50001: invalid character '{' exceeded max depth"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Decode([]byte(tt.in))
			if msg := errString(err); msg != tt.err {
				t.Fatalf("Decode(%.40q) error = %q, want %q", tt.in, msg, tt.err)
			}
			if err == nil && !Equal(got, tt.want) {
				t.Errorf("Decode(%.40q) = %v, want %v", tt.in, got, tt.want)
			}
		})
	}
}

// TestDepth walks the deepest document that Decode accepts with everything
// that recurses.
func TestDepth(t *testing.T) {
	hammer.Alone(t)
	const depth = 10_000
	doc := func(leaf string) map[string]any {
		t.Helper()
		// Lists in objects: both kinds of container take part.
		in := strings.Repeat(`{"a":[`, depth/2) + leaf + strings.Repeat(`]}`, depth/2)
		m, err := Decode([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b := doc(`1`), doc(`2`)
	if !Equal(a, doc(`1`)) || Equal(a, b) {
		t.Error("Equal is wrong on a deep document")
	}
	ops := Diff(a, b)
	if len(ops) != 1 {
		t.Fatalf("Diff gives %d operations, want 1", len(ops))
	}
	got, err := Apply(a, ops)
	if err != nil || !Equal(got, b) {
		t.Errorf("Apply on a deep document: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,2.5,null,true,"x"]}`, `[`, `{"a":1e400}`, "{\"\xff\":1}", `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data)
		if (m == nil) == (err == nil) {
			t.Fatalf("Decode(%q) = %v, %v: want exactly one", data, m, err)
		}
		if err == nil && (!Equal(m, m) || Diff(m, m) != nil) {
			t.Errorf("Decode(%q) = %v does not equal itself", data, m)
		}
	})
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprint(err)
}

func TestPending(t *testing.T) {
	a, b := &Pending{Source: "p", Key: "a"}, &Pending{Source: "p", Key: "b"}
	same := map[string]any{"x": []any{"y", int64(1)}}
	in := map[string]any{"l": []any{"z", map[string]any{"c/d": b}}, "a": a, "same": same}
	want := []Place{{"/a", a}, {"/l/1/c~1d", b}}
	if got := Places(in); !slices.Equal(got, want) {
		t.Errorf("Places = %v, want %v", got, want)
	}
	if again := (map[string]any{"a": new(*a)}); !Equal(again, map[string]any{"a": a}) || Equal(again, map[string]any{"a": b}) {
		t.Error("a Pending equals another by what is asked")
	}
	out := Fill(in, func(p *Pending) string { return p.Key + "!" }).(map[string]any)
	if !Equal(out, map[string]any{"l": []any{"z", map[string]any{"c/d": "b!"}}, "a": "a!", "same": same}) || !Same(out["same"], same) {
		t.Errorf("Fill = %v", out)
	}
	if in["a"] != a || len(Places(in)) != 2 || len(Places(out)) != 0 {
		t.Errorf("Fill modified %v", in)
	}
	if text, err := json.Marshal(in["a"]); err != nil || string(text) != `"\u003cwhat p has for \"a\"\u003e"` {
		t.Errorf("Marshal = %s, %v", text, err)
	}
}
