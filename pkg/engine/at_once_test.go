package engine_test

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// One object, and one request, may be decided by several engines and goroutines
// at once: no decision is about what another one writes, or is modified by it.
func TestAdmitOneObjectAtOnce(t *testing.T) {
	expressions := []string{
		`[JSONPatch{op: "add", path: "/metadata/annotations", value: object.metadata.labels}, JSONPatch{op: "add", path: "/metadata/labels/m%d", value: "y"}]`,
		`[JSONPatch{op: "add", path: "/spec/initContainers", value: object.spec.containers}, JSONPatch{op: "add", path: "/metadata/labels/l%d", value: "x"}]`,
		`[JSONPatch{op: "add", path: "/spec/containers/0/env", value: [{"name": "e%d", "value": request.userInfo.username}]}]`,
		`[JSONPatch{op: "add", path: "/nosuch/%d", value: object}]`,
	}
	for _, m := range mutations {
		expressions = append(expressions, m.expression)
	}
	req := podRequest(3)
	given := req.Object.DeepCopy()
	other := podRequest(3)
	other.Object = req.Object
	var engines []*engine.Engine
	var alone []*engine.Decision
	for _, e := range expressions {
		engines = append(engines, podEngine(t, e, 12))
		alone = append(alone, engines[len(engines)-1].Admit(t.Context(), req))
	}
	changed := 0
	var together sync.WaitGroup
	var mu sync.Mutex
	type answer struct {
		of       int
		decision *engine.Decision
	}
	var answers []answer
	for i := range engines {
		for _, r := range []*policy.Request{req, other} {
			together.Go(func() {
				for range 20 {
					d := engines[i].Admit(t.Context(), r)
					mu.Lock()
					answers = append(answers, answer{i, d})
					mu.Unlock()
				}
			})
		}
	}
	together.Wait()
	for _, a := range answers {
		want := alone[a.of]
		if diff := cmp.Diff(want.Object, a.decision.Object); diff != "" || (want.Status == nil) != (a.decision.Status == nil) {
			t.Errorf("%s: status %v, want %v (-alone +together):\n%s", expressions[a.of], a.decision.Status, want.Status, diff)
		}
		if a.decision.Changed {
			changed++
		}
	}
	if changed < len(answers)/2 {
		t.Errorf("%d of %d decisions changed something", changed, len(answers))
	}
	if diff := cmp.Diff(given, req.Object); diff != "" {
		t.Errorf("the object was modified:\n%s", diff)
	}
}
