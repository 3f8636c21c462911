package defaulting_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/internal/apiserver/defaulting"
	"github.com/mapd-project/mapd/pkg/tree"
)

// FuzzApply puts values of every type into every place of the observed
// manifests: whatever is there, Apply returns, leaves its input as it was and is
// content with its own result.
func FuzzApply(f *testing.F) {
	pairs := observations(f)
	names := slices.Sorted(maps.Keys(pairs))
	for i := range names {
		for at := 0; at < 24; at += 4 {
			f.Add(uint16(i), append(make([]byte, at), byte(firstSubstitute+at%14), 0, byte(firstSubstitute+at%9)))
		}
	}
	f.Fuzz(func(t *testing.T, which uint16, choices []byte) {
		obj := pairs[names[int(which)%len(names)]][0]
		garbage := map[string]any{}
		for _, field := range slices.Sorted(maps.Keys(obj)) {
			garbage[field] = spoil(obj[field], &choices)
		}
		garbage["apiVersion"], garbage["kind"] = obj["apiVersion"], obj["kind"]
		before := marshal(t, garbage)
		out, known := defaulting.Apply(garbage)
		if !known {
			t.Error("not known")
		}
		if after := marshal(t, garbage); after != before {
			t.Errorf("the input changed:\n%s\n%s", before, after)
		}
		if again, _ := defaulting.Apply(out); !tree.Same(again, out) {
			t.Errorf("applied to its own result of %s:\n%s", before, cmp.Diff(out, again))
		}
	})
}

// firstSubstitute is the choice that stands for the first substitute; smaller
// ones leave a value as it is.
const firstSubstitute = 100

// spoil copies a value and replaces parts of it by others, as choices say.
func spoil(value any, choices *[]byte) any {
	var choice byte
	if len(*choices) > 0 {
		choice, *choices = (*choices)[0], (*choices)[1:]
	}
	substitutes := []any{nil, "", "x", "1u", int64(0), int64(-1), 0.5, true, []any{}, []any{nil, "x", map[string]any{}},
		map[string]any{}, map[string]any{"x": nil}, map[string]any{"name": int64(1), "cpu": "1n"}, []any{[]any{}}}
	if i := int(choice) - firstSubstitute; i >= 0 && i < len(substitutes) {
		return substitutes[i]
	}
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out[key] = spoil(v[key], choices)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = spoil(v[i], choices)
		}
		return out
	}
	return value
}

func marshal(t *testing.T, obj map[string]any) string {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
