package store

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
	"github.com/mapd-project/mapd/pkg/api"
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
	for _, mode := range []api.Mode{api.Enforce, api.Shadow} {
		deps := testDeps(t)
		log := slog.New(slog.DiscardHandler)
		g := newGuests(nil, GuestOptions{Loader: refusing{}, Mode: mode}, deps, binding.Sources{}, engine.Options{}, log, func() {})
		for _, k := range g.kinds {
			k.SetServed(true)
			put(t, k)
		}
		w := newWorkloads(nil, validating.Sources{Types: deps.Types}, deps, engine.Options{}, log, func() {})
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
			if got := admit(); strings.Contains(got, "not here") != (mode == api.Enforce) {
				t.Errorf("%v, mutating %s: %q", mode, mutating, got)
			}
		}
	}
}

// recording loads modules that write down who ran; one cannot be loaded.
type recording struct {
	ran *[]string
	id  string
}

func (r recording) Load(_ context.Context, p *kubewarden.Policy, _ policy.Deps, _ binding.Params) (policy.Mutator, error) {
	if strings.HasSuffix(p.Module.URL, "/broken") {
		return nil, errors.New("no such module")
	}
	return recording{r.ran, p.ID()}, nil
}

func (r recording) Mutate(_ context.Context, in policy.Input) (*unstructured.Unstructured, error) {
	*r.ran = append(*r.ran, r.id)
	return in.Object, nil
}

// Each entry runs the policies of its kind and failurePolicy, by ID. A policy whose module
// cannot be loaded fails what it meets, and nothing else; one that is deleted is gone.
func TestGuestPaths(t *testing.T) {
	deps := testDeps(t)
	var ran []string
	g := newGuests(nil, GuestOptions{Loader: recording{ran: &ran}, Mode: api.Enforce}, deps, binding.Sources{}, engine.Options{}, slog.New(slog.DiscardHandler), func() {})
	pod := parse(t, "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}")
	admit := func(mutating bool, p admissionregistrationv1.FailurePolicyType) (who, status string) {
		t.Helper()
		req, err := policy.NewRequest(deps.Types, admissionv1.Create, pod)
		if err != nil {
			t.Fatal(err)
		}
		ran = nil
		d := g.admitter(mutating, p).Admit(t.Context(), req)
		if d.Status != nil {
			status = d.Status.Message
		}
		return strings.Join(ran, " "), status
	}
	fail, ignore := admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	for _, k := range g.kinds {
		k.SetServed(true)
		put(t, k)
	}
	update := func() {
		t.Helper()
		g.update(t.Context(), false)
		g.loading.Wait()
		g.update(t.Context(), false)
	}
	if who, status := admit(true, fail); status == "" {
		t.Errorf("before anything is read: %q ran", who)
	}
	object := func(name, module, mutating, failurePolicy string) *unstructured.Unstructured {
		return parse(t, `
apiVersion: policies.kubewarden.io/v1
kind: ClusterAdmissionPolicy
metadata: {name: `+name+`}
spec:
  module: registry://registry.example/`+module+`
  mutating: `+mutating+`
  failurePolicy: `+failurePolicy+`
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
`)
	}
	all := []*unstructured.Unstructured{
		object("z", "p", "true", "Fail"), object("b", "p", "true", "Ignore"), object("a", "p", "true", "Fail"), object("c", "p", "false", "Fail"),
	}
	put(t, g.kinds[0], all...)
	update()
	for _, c := range []struct {
		mutating bool
		policy   admissionregistrationv1.FailurePolicyType
		want     string
	}{
		{true, fail, "clusterwide-a clusterwide-z"}, {true, ignore, "clusterwide-b"}, {false, fail, "clusterwide-c"}, {false, ignore, ""},
	} {
		if who, status := admit(c.mutating, c.policy); who != c.want || status != "" {
			t.Errorf("mutating %t, %s: %q ran, %q; want %q", c.mutating, c.policy, who, status, c.want)
		}
	}
	put(t, g.kinds[0], append(all, object("m", "broken", "true", "Fail"), object("n", "broken", "true", "Ignore"))...)
	update()
	if who, status := admit(true, fail); !strings.Contains(status, "clusterwide-m") || !strings.Contains(status, "no such module") {
		t.Errorf("with a broken policy: %q ran, %q", who, status)
	}
	if who, status := admit(true, ignore); who != "clusterwide-b" || status != "" {
		t.Errorf("with a broken policy that may fail: %q ran, %q", who, status)
	}
	if n := g.state.Running(); n != 4 || len(g.state.Policies) != 6 {
		t.Errorf("%d of %d policies run", n, len(g.state.Policies))
	}
	put(t, g.kinds[0], all[:1]...)
	update()
	if who, status := admit(true, fail); who != "clusterwide-z" || status != "" {
		t.Errorf("after the others were deleted: %q ran, %q", who, status)
	}
	if len(g.loads) != 1 {
		t.Errorf("%d modules are kept", len(g.loads))
	}
}
