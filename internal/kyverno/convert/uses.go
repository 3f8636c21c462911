package convert

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

var called = regexp.MustCompile(`\b([a-z_]+)\(`)

// uses returns the constructs that a rule uses, in the terms of Kyverno's documentation.
func uses(r *policy.Rule) []string {
	var out []string
	add := func(has bool, what string) {
		if has && !slices.Contains(out, what) {
			out = append(out, what)
		}
	}
	var merges, jsons bool
	var patches []any
	var foreach func(fs []policy.ForEach, depth int)
	foreach = func(fs []policy.ForEach, depth int) {
		for _, f := range fs {
			merges = merges || f.PatchStrategicMerge != nil
			jsons = jsons || f.PatchesJSON6902 != ""
			patches = append(patches, f.PatchStrategicMerge)
			add(depth > 1, "nested foreach")
			foreach(f.ForEach, depth+1)
		}
	}
	m := r.Mutate
	merges, jsons = m.PatchStrategicMerge != nil, m.PatchesJSON6902 != ""
	patches = append(patches, m.PatchStrategicMerge)
	foreach(m.ForEach, 1)
	add(merges, "patchStrategicMerge")
	for _, p := range patches {
		add(anchored(p), "anchors")
	}
	add(jsons, "patchesJson6902")
	add(len(m.ForEach) > 0, "foreach")
	add(len(m.Targets) > 0, "targets")
	add(r.RawPreconditions != nil, "preconditions")
	add(len(r.Context) > 0, "context")
	data, _ := json.Marshal(struct {
		A *policy.Mutate
		B any
		C []policy.Context
	}{m, r.RawPreconditions, r.Context})
	text := string(data)
	add(strings.Contains(text, "{{"), "variables")
	for _, v := range variable.FindAllString(text, -1) {
		for _, f := range called.FindAllStringSubmatch(v, -1) {
			add(true, f[1]+"()")
		}
	}
	return out
}
