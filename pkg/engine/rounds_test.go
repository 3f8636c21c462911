package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// label sets metadata.labels.app.
func label(value string) mutator {
	return func(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
		out := in.Object.DeepCopy()
		out.SetLabels(map[string]string{"app": value})
		return out, nil
	}
}

// A second round that does not select again, or does not run at all, decides as
// one that does. A policy with a parameter, which may change meanwhile, makes it.
func TestSecondRoundIsSpared(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	mutators := []mutator{noop, write("x"), write("y"), label("a"), label("b"), fails(errors.New("no"))}
	options := []option{
		ifNeeded, ignore, selecting("app", "a"), selecting("app", "b"), onVersion("v2"), paramKind("Nope"),
		condition("has(object.metadata.labels)"), condition("!has(object.metadata.labels)"), condition("object.data.log == 'x'"),
	}
	always := newPolicy(t, "z", run1(noop), condition("false"), paramKind("ConfigMap"))
	engines := [2]*Engine{}
	for i := range engines {
		engines[i] = New(Options{Convert: func(obj *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error) {
			return WithVersion(obj, to), nil
		}})
	}
	src := binding.Sources{Namespaces: namespaces{"t1"}, Params: params{"one"}, Equivalents: otherVersions}
	second := 0
	for range 1000 {
		var policies []*policy.Policy
		for i := range 1 + rnd.Intn(4) {
			var opts []option
			for _, o := range options {
				if rnd.Intn(len(options)) == 0 {
					opts = append(opts, o)
				}
			}
			policies = append(policies, newPolicy(t, fmt.Sprintf("p%d", i), run1(mutators[rnd.Intn(len(mutators))]), opts...))
		}
		whole := index(t, src, append(policies, always)...)
		engines[0].Publish(Policies(whole))
		ix, err := binding.NewIndex(policies, whole.Bindings(), src)
		if err != nil {
			t.Fatal(err)
		}
		engines[1].Publish(Policies(ix))

		want, got := engines[0].Admit(t.Context(), request()), engines[1].Admit(t.Context(), request())
		want.Steps = slices.DeleteFunc(want.Steps, func(s Step) bool { return s.Policy == always.Name() })
		if diff := cmp.Diff(append(record(want.Steps), describe(want.Status)...), append(record(got.Steps), describe(got.Status)...)); diff != "" {
			t.Fatalf("%+v: (-always selected again +spared):\n%s", specs(policies), diff)
		}
		if max(1, want.Rounds(PolicyStage)) != max(1, got.Rounds(PolicyStage)) || want.Changed != got.Changed || !tree.Equal(want.Object.Object, got.Object.Object) {
			t.Fatalf("%+v: %d rounds, %v; want %d, %v", specs(policies), got.Rounds(PolicyStage), got.Object, want.Rounds(PolicyStage), want.Object)
		}
		if got.Rounds(PolicyStage) == 2 {
			second++
		}
	}
	if second < 100 {
		t.Errorf("%d requests had a second round, which says little", second)
	}
}

func specs(policies []*policy.Policy) (out []admissionregistrationv1.MutatingAdmissionPolicySpec) {
	for _, p := range policies {
		out = append(out, p.Object().Spec)
	}
	return out
}
