package quantity

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// What is within the bound is read as upstream reads it, and the rest is refused at once.
func TestParse(t *testing.T) {
	for _, s := range []string{"", "1", "100Mi", "1.5Gi", "250m", "1e3", "1E-9", "-1.25", "1e1000", "1e-1000", "x", "1e", "1e99999999999999999999", strings.Repeat("9", Max), "0." + strings.Repeat("0", Max-3) + "1"} {
		want, wantErr := resource.ParseQuantity(s)
		got, err := Parse(s)
		if err != wantErr || got.String() != want.String() {
			t.Errorf("%.20s: %v, %v, want %v, %v", s, got, err, want, wantErr)
		}
	}
	for _, s := range []string{"1e-1001", "1e1001", "1E-1000000000", "1e-2147483648", "12345678901234567890e1000000000", strings.Repeat("9", Max+1)} {
		if _, err := Parse(s); err != Err {
			t.Errorf("%.20s: %v, want %v", s, err, Err)
		}
	}
}

func TestWithin(t *testing.T) {
	obj := map[string]any{"a": map[string]any{"name": "1e-5", "b": []any{"x", " +1e-999999999 ", int64(1)}, "text": "see 1e-999999999"}, "c": map[string]any{"d": "e"}}
	want := map[string]any{"a": map[string]any{"name": "1e-5", "b": []any{"x", "0", int64(1)}, "text": "see 1e-999999999"}, "c": map[string]any{"d": "e"}}
	if got := Within(obj); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if obj["a"].(map[string]any)["b"].([]any)[1] != " +1e-999999999 " {
		t.Error("the object was changed")
	}
	if allocs := testing.AllocsPerRun(10, func() { Within(want) }); allocs > 0 {
		t.Errorf("%v allocations for an object that stays", allocs)
	}
}
