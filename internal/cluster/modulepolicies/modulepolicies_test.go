package modulepolicies

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

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
func TestPaths(t *testing.T) {
	deps := featuretest.Deps(t)
	var ran []string
	g := New(Options{Loader: recording{ran: &ran}, Mode: api.Enforce})
	g.Start(deps)
	admitters := g.Admitters()
	pod := featuretest.Parse(t, "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}")
	admit := func(mutating bool, p admissionregistrationv1.FailurePolicyType) (who, status string) {
		t.Helper()
		req, err := policy.NewRequest(deps.Policy.Types, admissionv1.Create, pod)
		if err != nil {
			t.Fatal(err)
		}
		ran = nil
		d := admitters[webhook.ModulePath(mutating, p)].Admit(t.Context(), req)
		if d.Status != nil {
			status = d.Status.Message
		}
		return strings.Join(ran, " "), status
	}
	fail, ignore := admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	for _, k := range g.kinds {
		k.SetServed(true)
		featuretest.Put(t, k)
	}
	update := func() {
		t.Helper()
		g.Update(t.Context(), false)
		g.loading.Wait()
		g.Update(t.Context(), false)
	}
	if who, status := admit(true, fail); status == "" {
		t.Errorf("before anything is read: %q ran", who)
	}
	object := func(name, module, mutating, failurePolicy string) *unstructured.Unstructured {
		return featuretest.Parse(t, `
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
	featuretest.Put(t, g.kinds[0], all...)
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
	featuretest.Put(t, g.kinds[0], append(all, object("m", "broken", "true", "Fail"), object("n", "broken", "true", "Ignore"))...)
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
	featuretest.Put(t, g.kinds[0], all[:1]...)
	update()
	if who, status := admit(true, fail); who != "clusterwide-z" || status != "" {
		t.Errorf("after the others were deleted: %q ran, %q", who, status)
	}
	if len(g.loads) != 1 {
		t.Errorf("%d modules are kept", len(g.loads))
	}
}
