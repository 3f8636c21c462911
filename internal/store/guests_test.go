package store

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/verdict"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/policy"
)

// refusing loads modules that refuse everything.
type refusing struct{}

func (refusing) Load(context.Context, *kubewarden.Policy, policy.Deps, binding.Params) (policy.Mutator, error) {
	return refusing{}, nil
}

func (refusing) Mutate(context.Context, policy.Input) (*unstructured.Unstructured, error) {
	return nil, errors.New("not here")
}

// The objects that workloads create meet Kubewarden's policies of all paths, unless these
// only run in shadow mode.
func TestGuestsOfWorkloads(t *testing.T) {
	for _, mode := range []engine.Mode{engine.On, engine.Shadow} {
		deps := testDeps(t)
		log := slog.New(slog.DiscardHandler)
		g := newGuests(nil, GuestOptions{Loader: refusing{}, Mode: mode}, deps, binding.Sources{}, engine.Options{}, log, func() {})
		for _, k := range g.kinds {
			k.SetServed(true)
			put(t, k)
		}
		w := newWorkloads(nil, verdict.Sources{Types: deps.Types}, engine.Options{}, log, func() {})
		pod := parse(t, "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}")
		admit := func() string {
			t.Helper()
			g.update(t.Context(), false)
			g.loading.Wait()
			g.update(t.Context(), false)
			w.publish(catalogue{}, binding.Sources{}, nil, g)
			req, err := policy.NewRequest(deps.Types, admissionv1.Create, pod)
			if err != nil {
				t.Fatal(err)
			}
			d := w.engine.Admit(t.Context(), req)
			if d.Status == nil {
				return ""
			}
			return d.Status.Message
		}
		if got := admit(); got != "" {
			t.Errorf("%v: without policies: %s", mode, got)
		}
		for _, mutating := range []string{"true", "false"} {
			put(t, g.kinds[0], parse(t, `
apiVersion: policies.kubewarden.io/v1
kind: ClusterAdmissionPolicy
metadata: {name: p`+mutating+`}
spec:
  module: registry://registry.example/p
  mutating: `+mutating+`
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
`))
			if got := admit(); strings.Contains(got, "not here") != (mode == engine.On) {
				t.Errorf("%v, mutating %s: %q", mode, mutating, got)
			}
		}
	}
}
