package mutators

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/policy"
)

// FuzzPasses compares passes that run only who was woken with passes that run
// everybody: objects, refusals and the number of passes are the same.
func FuzzPasses(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	builder := NewBuilder(deps())
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 12))
		var ms []*legacy.Mutator
		for i := range 1 + rnd.IntN(8) {
			ms = append(ms, random(t, rnd, i))
		}
		if rnd.IntN(3) == 0 {
			ms = append(ms, randomSet(t, rnd))
		}
		_, options := builder.build(ms, nil, deps().Types, Options{})
		some := engine.New(engine.Options{})
		some.PublishSet(engine.NewSet(options))
		everybody := make([]int, len(options.Members))
		for i := range everybody {
			everybody[i] = i
		}
		members := make([]engine.Member, len(options.Members))
		for i, m := range options.Members {
			members[i] = m
			members[i].Wakes = everybody
		}
		options.Members = members
		all := engine.New(engine.Options{})
		all.PublishSet(engine.NewSet(options))
		for range 8 {
			pod := randomPod(rnd)
			admit := func(e *engine.Engine) any {
				d := e.Admit(t.Context(), &policy.Request{UID: "u", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
					Operation: admissionv1.Create, Namespace: "shop", Object: &unstructured.Unstructured{Object: pod}})
				return []any{d.Object.Object, d.Changed, d.Status, d.Passes}
			}
			if diff := cmp.Diff(admit(all), admit(some)); diff != "" {
				t.Errorf("seed %d: on %v (-everybody +some):\n%s", seed, pod, diff)
			}
		}
	})
}
