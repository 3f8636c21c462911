package mutators

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

// opaque is a selector that does not say what it needs.
type opaque struct{ labels.Selector }

func (opaque) Requirements() (labels.Requirements, bool) { return nil, false }

// FuzzPasses compares passes that run only the members that were woken and may match
// with passes that run everybody: objects, refusals and the number of passes are the
// same.
func FuzzPasses(f *testing.F) {
	hammer.Alone(f)
	for seed := range uint64(hammer.Count(100)) {
		f.Add(seed)
	}
	builder := NewBuilder(deps())
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 12))
		pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
		var ms []*legacy.Mutator
		for i := range 1 + rnd.IntN(8) {
			ms = append(ms, random(t, rnd, i))
		}
		if rnd.IntN(3) == 0 {
			ms = append(ms, randomSet(t, rnd))
		}
		home := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": "shop", "labels": map[string]any{pick("x", "y"): pick("v", "w", "")}}}}
		o := Options{}
		if rnd.IntN(8) > 0 {
			o.Namespace = func(context.Context, string) (*unstructured.Unstructured, error) { return home, nil }
		}
		_, options := builder.build(ms, nil, deps().Types, o)
		some := engine.New(engine.Options{})
		some.Publish(engine.Mutators(engine.NewSet(options), api.Enforce))
		everybody := make([]int, len(options.Members))
		for i := range everybody {
			everybody[i] = i
		}
		members := make([]engine.Member, len(options.Members))
		for i, m := range options.Members {
			members[i] = m
			members[i].Wakes = everybody
			members[i].Match = nil
			if m.Match != nil && m.Match.NamespaceSelector != nil {
				members[i].Match = &engine.Match{NamespaceSelector: opaque{m.Match.NamespaceSelector}}
			}
		}
		options.Members = members
		all := engine.New(engine.Options{})
		all.Publish(engine.Mutators(engine.NewSet(options), api.Enforce))
		for range 8 {
			object := randomPod(rnd)
			req := &policy.Request{UID: "u", Operation: admissionv1.Create, Namespace: pick("shop", "shop", "other", "")}
			if object["kind"] = pick("Pod", "Pod", "Namespace"); object["kind"] == "Namespace" {
				req.Namespace = "shop"
			}
			req.Kind = schema.GroupVersionKind{Version: "v1", Kind: object["kind"].(string)}
			if rnd.IntN(3) > 0 {
				object["metadata"] = map[string]any{"name": "shop", "labels": map[string]any{pick("x", "y", "z"): pick("v", "w", "")}}
			}
			req.Object = &unstructured.Unstructured{Object: object}
			admit := func(e *engine.Engine) any {
				d := e.Admit(t.Context(), req)
				return []any{d.Object.Object, d.Changed, d.Status, d.Rounds(engine.MutatorStage)}
			}
			if diff := cmp.Diff(admit(all), admit(some)); diff != "" {
				t.Errorf("seed %d: on %v (-everybody +some):\n%s", seed, object, diff)
			}
		}
	})
}
