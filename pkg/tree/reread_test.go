package tree

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

// throughJSON is what Reread says.
func throughJSON(v map[string]any) (map[string]any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return Decode(data)
}

func checkReread(t *testing.T, v map[string]any) {
	t.Helper()
	got, err := Reread(v)
	want, wantErr := throughJSON(v)
	if errString(err) != errString(wantErr) {
		t.Fatalf("%v: error %v, want %v", v, err, wantErr)
	}
	if (got == nil) != (want == nil) || !Equal(got, want) {
		t.Errorf("%v becomes %v, not %v", v, got, want)
	}
}

func TestReread(t *testing.T) {
	deep := any("x")
	for range 3 * mostReread {
		deep = []any{deep}
	}
	for name, v := range map[string]any{
		"null": nil, "a nil map": map[string]any(nil), "a nil list": []any(nil), "an empty list": []any{}, "an integer": int64(1), "an int": 1, "a small int": int32(1),
		"a whole float": 1.0, "minus zero": math.Copysign(0, -1), "2^53": 0x1p53, "2^53 and 2": 0x1p53 + 2, "2^60": 0x1p60, "-2^63": -0x1p63, "1e20": 1e20, "1e21": 1e21,
		"a small float": 1e-7, "the smallest float": math.SmallestNonzeroFloat64, "the largest float": math.MaxFloat64, "not a number": math.NaN(), "no end": math.Inf(1),
		"text": "a<b>&\u2028é", "no text": "a\xff\xfeb", "a key that is no text": map[string]any{"\xff": 1.0}, "texts": []string{"a"}, "a map of texts": map[string]string{"a": "b"},
		"bytes": []byte("x"), "a channel": make(chan int), "pending": &Pending{Source: "s", Key: "k"}, "deep": deep,
	} {
		t.Run(name, func(t *testing.T) {
			checkReread(t, map[string]any{"v": v})
			checkReread(t, map[string]any{"v": []any{v, map[string]any{"w": v}}})
		})
	}
	checkReread(t, nil)
}

// What is read again shares no map and no list with what it was read from.
func TestRereadCopies(t *testing.T) {
	v := map[string]any{"m": map[string]any{"a": "b"}, "l": []any{"x", map[string]any{}}}
	out, err := Reread(v)
	if err != nil {
		t.Fatal(err)
	}
	out["m"].(map[string]any)["a"] = "c"
	out["l"].([]any)[1].(map[string]any)["new"] = true
	out["l"].([]any)[0] = "y"
	if want := map[string]any{"m": map[string]any{"a": "b"}, "l": []any{"x", map[string]any{}}}; !Equal(v, want) {
		t.Errorf("the tree that was read is %v", v)
	}
}

func TestRereadRandomly(t *testing.T) {
	for i := range hammer.Count(2000) {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		v, _ := randomTree(r, 4).(map[string]any)
		checkReread(t, map[string]any{"v": v, "f": math.Float64frombits(r.Uint64()), "n": float64(r.Int64N(1 << 55)), "s": strings.Repeat("é", r.IntN(3)) + fmt.Sprint(string([]byte{byte(r.IntN(256))}))})
	}
}

func FuzzReread(f *testing.F) {
	f.Add(`{"a": [1, 1.0, -0.0, 1e3, "x"]}`, 0.5)
	f.Fuzz(func(t *testing.T, text string, n float64) {
		v, err := Decode([]byte(text))
		if err != nil {
			return
		}
		v["number"], v["text"] = n, text
		checkReread(t, v)
	})
}
