package mutators

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// What a request allocates does not grow with the mutators that leave its object
// as it is, but for the paths at which they look for elements; each change is a
// few allocations.
func TestAllocations(t *testing.T) {
	hammer.Alone(t)
	const n = 100
	labels := func(i int) *legacy.Mutator { return label(t, fmt.Sprint("l", i), fmt.Sprint("l", i)) }
	globs := func(i int) *legacy.Mutator {
		return assign(t, fmt.Sprint("g", i), fmt.Sprintf("spec.containers[name: *].f%d", i), `"x"`)
	}
	match := func(match string) func(i int) *legacy.Mutator {
		return func(i int) *legacy.Mutator {
			return decode(t, "AssignMetadata", fmt.Sprint("o", i), fmt.Sprintf(`{match: {%s}, location: metadata.labels.x, parameters: {assign: {value: x}}}`, match))
		}
	}
	for name, tt := range map[string]struct {
		mutator func(i int) *legacy.Mutator
		wanted  bool
		limit   float64
	}{
		"labels":                              {labels, false, 3*n + 30},
		"labels that are there":               {labels, true, 20},
		"a field of three containers":         {globs, false, 12*n + 50},
		"a field of containers that is there": {globs, true, 4*n + 30},
		"another kind": {func(i int) *legacy.Mutator {
			return decode(t, "Assign", fmt.Sprint("o", i), `{applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment]}], location: spec.x, parameters: {assign: {value: x}}}`)
		}, false, 3},
		"other namespaces":    {match(`namespaces: [other, some-*]`), false, n + 40},
		"excluded namespaces": {match(`excludedNamespaces: [shop]`), false, 30},
		"other labels":        {match(`labelSelector: {matchLabels: {app: other}}`), false, 2*n + 40},
		"another name":        {match(`name: other`), false, 30},
	} {
		t.Run(name, func(t *testing.T) {
			var ms []*legacy.Mutator
			for i := range n {
				ms = append(ms, tt.mutator(i))
			}
			e := engine.New(engine.Options{})
			e.Publish(engine.Mutators(build(NewBuilder(deps()), ms).Set, api.Enforce))
			pod := smallPod()
			admit := func() *engine.Decision {
				return e.Admit(t.Context(), &policy.Request{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
					Operation: admissionv1.Create, Namespace: "shop", Object: pod})
			}
			if d := admit(); tt.wanted {
				pod = d.Object
			}
			if d := admit(); d.Status != nil || tt.wanted && d.Changed {
				t.Fatalf("Admit = %+v, %+v", d, d.Status)
			}
			if got := hammer.Allocs(t, func() { admit() }); got > tt.limit {
				t.Errorf("%v allocations with %d mutators, want at most %v", got, n, tt.limit)
			}
		})
	}
}
