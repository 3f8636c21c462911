package install

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/document/kustomize"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/fakeapi"
	"github.com/mapd-project/mapd/test/hammer"
)

// cluster is a server that establishes CustomResourceDefinitions, and a client.
type cluster struct {
	*fakeapi.Server
	dynamic.Interface
	objects []*unstructured.Unstructured
	// refuse returns why a call is refused, nil if it is not.
	refuse func(fakeapi.Request) error
	// mayWrite says that the API server still takes mapd for one that may write.
	mayWrite bool
	said     []string // what was reported
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Server: &fakeapi.Server{}, refuse: func(fakeapi.Request) error { return nil }}
	c.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if err := c.refuse(r); err != nil {
			return nil, err
		}
		switch {
		case r.Resource == accessReviews:
			return map[string]any{"status": map[string]any{"allowed": c.mayWrite}}, nil
		case r.Resource == api.OwnPolicies && r.DryRun:
			return nil, apierrors.NewForbidden(r.Resource.GroupResource(), probeName, nil)
		case r.Resource.Resource == "customresourcedefinitions" && r.Verb == "patch":
			r.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
		}
		return nil, nil
	}
	var err error
	if c.Interface, err = dynamic.NewForConfig(c.Config()); err != nil {
		t.Fatal(err)
	}
	if c.objects, err = Objects(""); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) note(r Result) { c.said = append(c.said, r.String()) }

func (c *cluster) apply(ctx context.Context, adopt bool) error {
	c.said = nil
	return Apply(ctx, ApplyOptions{Dynamic: c, Objects: c.objects, Adopt: adopt, Report: c.note})
}

func (c *cluster) uninstall(ctx context.Context, purge bool) (bool, error) {
	c.said = nil
	return Uninstall(ctx, UninstallOptions{Dynamic: c, Objects: c.objects, Purge: purge, Report: c.note})
}

// deleted are the objects that were deleted, in order.
func (c *cluster) deleted() []string {
	var out []string
	for _, r := range c.Writes() {
		if r.Verb == "delete" {
			out = append(out, r.Resource.Resource+"/"+r.Name)
		}
	}
	return out
}

// giveTo makes the configurations those of another installation, in a namespace that is
// there.
func (c *cluster) giveTo(namespace string) {
	c.Put(namespaces, "", namespace, map[string]any{"apiVersion": "v1", "kind": "Namespace"})
	other := webhookconfig.Installation{Namespace: namespace, Lease: "mapd"}
	for _, r := range configurations {
		c.Put(r.gvr, "", r.name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{webhookconfig.InstallationAnnotation: other.String()}}})
	}
}

func forbidden(r fakeapi.Request) error {
	return apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, errors.New("no right to "+r.String()))
}

// in runs a test with a clock of its own, so that waits take no time.
func in(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newCluster(t)) })
}

func TestApplyTwice(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		if err := c.apply(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		for i, outcome := range []string{"created", "unchanged"} {
			if i > 0 {
				if err := c.apply(t.Context(), false); err != nil {
					t.Fatal(err)
				}
			}
			if len(c.said) != len(c.objects) {
				t.Errorf("%d reports of %d objects", len(c.said), len(c.objects))
			}
			for _, text := range c.said {
				if !strings.HasSuffix(text, " "+outcome) && !(outcome == "unchanged" && strings.HasPrefix(text, "customresourcedefinition")) {
					t.Errorf("%q, want %s", text, outcome)
				}
			}
		}
		// What others are defined by goes first.
		first := c.Writes()[0].Resource.Resource
		if first != "namespaces" {
			t.Errorf("%s are applied first", first)
		}
	})
}

// What the server would refuse is found before anything is written, all of it at once.
func TestApplyChecksFirst(t *testing.T) {
	conflict := func(r fakeapi.Request) error {
		return apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "kubectl"`, Field: ".rules"}}, "a conflict")
	}
	for name, refuse := range map[string]func(fakeapi.Request) error{"no right": forbidden, "fields of others": conflict} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, c *cluster) {
				c.refuse = func(r fakeapi.Request) error {
					if r.Resource.Resource == "clusterroles" && r.Verb == "patch" {
						return refuse(r)
					}
					return nil
				}
				err := c.apply(t.Context(), false)
				for _, o := range c.objects {
					if o.GetKind() == "ClusterRole" && (err == nil || !strings.Contains(err.Error(), refOf(o).String()+": ")) {
						t.Errorf("%s is not in the error: %v", refOf(o), err)
					}
					if c.Get(refOf(o).gvr, o.GetNamespace(), o.GetName()) != nil {
						t.Errorf("%s was applied", refOf(o))
					}
				}
				if len(c.said) != 0 || !strings.HasSuffix(err.Error(), "\nnothing was applied") {
					t.Errorf("%q, %v", c.said, err)
				}
			})
		})
	}
}

// One object that is refused in spite of that keeps none of the others from being applied.
func TestApplyWithoutRights(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		c.refuse = func(r fakeapi.Request) error {
			if r.Resource.Resource == "clusterroles" && r.Verb == "patch" && !r.DryRun {
				return forbidden(r)
			}
			return nil
		}
		err := c.apply(t.Context(), false)
		roles := 0
		for _, o := range c.objects {
			if o.GetKind() == "ClusterRole" {
				roles++
				if err == nil || !strings.Contains(err.Error(), refOf(o).String()+": ") {
					t.Errorf("%s is not in the error: %v", refOf(o), err)
				}
			}
		}
		if roles == 0 || len(c.said) != len(c.objects)-roles {
			t.Errorf("%d of %d objects were applied, %d are refused", len(c.said), len(c.objects), roles)
		}
	})
}

func TestApplyBesideAnotherInstallation(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		c.giveTo("other")
		err := c.apply(t.Context(), false)
		var owned *OwnedError
		if !errors.As(err, &owned) || owned.Installation.Namespace != "other" || len(c.Writes()) != 0 {
			t.Errorf("%v after %d writes", err, len(c.Writes()))
		}
		if err := c.apply(t.Context(), true); err != nil {
			t.Errorf("to adopt: %v", err)
		}
		// An installation whose namespace is gone has nothing any more.
		c.giveTo("other")
		c.Put(namespaces, "", "other", nil)
		if err := c.apply(t.Context(), false); err != nil {
			t.Errorf("beside one that is gone: %v", err)
		}
	})
}

// A CustomResourceDefinition whose names are taken never works.
func TestApplyNamesTaken(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		inner := c.Intercept
		c.Intercept = func(r fakeapi.Request) (map[string]any, error) {
			if r.Resource.Resource == "customresourcedefinitions" && r.Verb == "patch" {
				r.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "NamesAccepted", "status": "False", "message": "taken"}}}
				return nil, nil
			}
			return inner(r)
		}
		err := c.apply(t.Context(), false)
		if err == nil || !strings.Contains(err.Error(), "taken") || c.Get(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Namespace, "mapd") != nil {
			t.Errorf("error %v", err)
		}
	})
}

func TestUninstallSteps(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		if err := c.apply(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		c.Put(mutating, "", webhookconfig.ConfigurationName, map[string]any{"metadata": map[string]any{"finalizers": []any{"example.com/x"}}})
		c.Put(api.OwnPolicies, "", "p", map[string]any{})
		found, err := c.uninstall(t.Context(), false)
		if err != nil || !found {
			t.Fatalf("found %v, error %v", found, err)
		}
		deleted := c.deleted()
		// First the right to write configurations, then these, then mapd, the namespace last.
		var steps []string
		for _, name := range deleted {
			resource, _, _ := strings.Cut(name, "/")
			if slices.Contains([]string{"clusterrolebindings", "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "deployments", "namespaces"}, resource) && !slices.Contains(steps, resource) {
				steps = append(steps, resource)
			}
		}
		want := []string{"clusterrolebindings", "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "deployments", "namespaces"}
		if diff := cmp.Diff(want, steps); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		if last := deleted[len(deleted)-1]; last != "namespaces/"+Namespace {
			t.Errorf("%s goes last", last)
		}
		if c.Get(mutating, "", webhookconfig.ConfigurationName) != nil {
			t.Error("the configuration with a finalizer is still there")
		}
		for _, o := range c.objects {
			left := c.Get(refOf(o).gvr, o.GetNamespace(), o.GetName()) != nil
			if left != (o.GetKind() == "CustomResourceDefinition") {
				t.Errorf("%s: left %v", refOf(o), left)
			}
		}
		if !slices.ContainsFunc(c.said, func(s string) bool { return strings.HasSuffix(s, "kept, and with it 1 policy; --purge deletes all") }) {
			t.Errorf("the policy is not spoken of: %q", c.said)
		}

		if found, err = c.uninstall(t.Context(), true); err != nil || !found {
			t.Errorf("purge: found %v, error %v", found, err)
		}
		if n := len(c.List(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})); n != 0 {
			t.Errorf("%d definitions after a purge", n)
		}
		if found, err = c.uninstall(t.Context(), true); err != nil || found {
			t.Errorf("once more: found %v, error %v", found, err)
		}
	})
}

// Whatever an overlay adds goes, too.
func TestUninstallOverlays(t *testing.T) {
	hammer.Alone(t)
	dirs, err := filepath.Glob("../../../manifests/overlays/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("overlays: %v, %v", dirs, err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			text, err := kustomize.Build(dir)
			if err != nil {
				t.Fatal(err)
			}
			docs, err := documents(text, "")
			if err != nil {
				t.Fatal(err)
			}
			in(t, func(t *testing.T, c *cluster) {
				for _, d := range docs {
					r := refOf(d.object)
					c.Put(r.gvr, r.namespace, r.name, d.object.Object)
				}
				if _, err := c.uninstall(t.Context(), true); err != nil {
					t.Fatal(err)
				}
				for _, d := range docs {
					if r := refOf(d.object); r.namespace != Namespace && c.Get(r.gvr, r.namespace, r.name) != nil {
						t.Errorf("%s is left", r)
					}
				}
			})
		})
	}
}

// A policy that is kept does not go on saying that it is Ready.
func TestUninstallTellsKeptPolicies(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		if err := c.apply(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		ready := map[string]any{"type": "Ready", "status": "True", "reason": "InUse", "message": "the policy applies as its bindings say", "lastTransitionTime": "2026-01-01T00:00:00Z"}
		compiled := map[string]any{"type": "Compiled", "status": "True", "reason": "Compiled", "message": "all expressions compile", "lastTransitionTime": "2026-01-01T00:00:00Z"}
		c.Put(api.OwnPolicies, "", "p", map[string]any{"status": map[string]any{"conditions": []any{ready, compiled}}})
		c.Put(api.OwnPolicies, "", "never-seen", map[string]any{})
		c.Put(api.OwnBindings, "", "b", map[string]any{"status": map[string]any{"conditions": []any{ready}, "rollout": map[string]any{"changed": int64(7)}}})
		active := map[string]any{"type": "Active", "status": "True", "reason": "Active", "message": "until 2027-01-31", "lastTransitionTime": "2026-01-01T00:00:00Z"}
		c.Put(api.Exceptions, "shop", "x", map[string]any{"status": map[string]any{"conditions": []any{active}}})
		if _, err := c.uninstall(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(c.said, "2 policies, 1 binding and 1 exception not in use any more, as their status says: nothing runs them") {
			t.Errorf("not said: %q", c.said)
		}
		for _, r := range []ref{{api.OwnPolicies, "", "p"}, {api.OwnPolicies, "", "never-seen"}, {api.OwnBindings, "", "b"}} {
			got := condition(c.Get(r.gvr, "", r.name), "Ready")
			if got.Status != metav1.ConditionFalse || got.Reason != "Uninstalled" || got.Message == "" {
				t.Errorf("%s: %+v", r, got)
			}
		}
		if got := condition(c.Get(api.OwnPolicies, "", "p"), "Compiled"); got.Status != metav1.ConditionTrue {
			t.Errorf("Compiled: %+v", got)
		}
		if got := condition(c.Get(api.Exceptions, "shop", "x"), "Active"); got.Status != metav1.ConditionFalse || got.Reason != "Uninstalled" {
			t.Errorf("Active: %+v", got)
		}
		if n, _, _ := unstructured.NestedInt64(c.Get(api.OwnBindings, "", "b").Object, "status", "rollout", "changed"); n != 7 {
			t.Errorf("changed: %d", n)
		}
		// That is said once.
		const with = " kept, and with it 2 policies, 1 binding and 1 exception; --purge deletes all"
		if found, err := c.uninstall(t.Context(), false); err != nil || !slices.Equal(c.said, []string{
			"customresourcedefinition.apiextensions.k8s.io/mutatingadmissionpolicies.admissionregistration.mapd.dev" + with,
			"customresourcedefinition.apiextensions.k8s.io/mutatingadmissionpolicybindings.admissionregistration.mapd.dev" + with,
			"customresourcedefinition.apiextensions.k8s.io/policyexceptions.mapd.dev" + with,
		}) {
			t.Errorf("again: found %v, %v, %q", found, err, c.said)
		}
	})
}

// Without the right to take the first steps nothing is removed at all, and without
// that to take another one the rest is.
func TestUninstallWithoutRights(t *testing.T) {
	for name, tt := range map[string]struct {
		refused string // a resource
		want    string // in the error
		deleted func(c *cluster) bool
	}{
		"to bindings": {"clusterrolebindings", "nothing else was removed", func(c *cluster) bool {
			return !slices.ContainsFunc(c.deleted(), func(s string) bool { return !strings.HasPrefix(s, "clusterrolebindings/") })
		}},
		"to configurations": {"mutatingwebhookconfigurations", "mapd itself was left running", func(c *cluster) bool {
			return !slices.Contains(c.deleted(), "deployments/mapd")
		}},
		"to services": {"services", "no right to delete services mapd", func(c *cluster) bool {
			return slices.Contains(c.deleted(), "deployments/mapd") && slices.Contains(c.deleted(), "namespaces/"+Namespace)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, c *cluster) {
				if err := c.apply(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				c.refuse = func(r fakeapi.Request) error {
					if r.Verb == "delete" && r.Resource.Resource == tt.refused {
						return forbidden(r)
					}
					return nil
				}
				_, err := c.uninstall(t.Context(), false)
				if err == nil || !strings.Contains(err.Error(), tt.want) || !tt.deleted(c) {
					t.Errorf("error %v, deleted %q", err, c.deleted())
				}
			})
		})
	}
}

// What has no namespace stays where another installation needs it.
func TestUninstallBesideAnother(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		if err := c.apply(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		c.giveTo("other")
		if found, err := c.uninstall(t.Context(), false); err != nil || !found {
			t.Fatalf("found %v, error %v", found, err)
		}
		for _, o := range c.objects {
			ours := o.GetNamespace() != "" || o.GetKind() == "Namespace"
			if left := c.Get(refOf(o).gvr, o.GetNamespace(), o.GetName()) != nil; left == ours {
				t.Errorf("%s: left %v", refOf(o), left)
			}
		}
		if c.Get(mutating, "", webhookconfig.ConfigurationName) == nil {
			t.Error("the other installation's configuration is gone")
		}
	})
}

// A configuration that somebody else keeps writing is reported, in the end.
func TestUninstallFightsForTheConfigurations(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		if err := c.apply(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		inner := c.Intercept
		c.Intercept = func(r fakeapi.Request) (map[string]any, error) {
			if r.Verb == "get" && r.Resource == mutating {
				c.Put(mutating, "", webhookconfig.ConfigurationName, map[string]any{})
			}
			return inner(r)
		}
		began := time.Now() // of a clock that only waits advance
		_, err := c.uninstall(t.Context(), false)
		if err == nil || !strings.Contains(err.Error(), "the webhook configurations keep coming back") || time.Since(began) > time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestWaitForProbe(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		if err := c.apply(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		var waiting []string
		wait := func(ctx context.Context) error {
			return Wait(ctx, WaitOptions{Dynamic: c, Objects: c.objects, Progress: func(s string) { waiting = append(waiting, s) }})
		}
		// Nobody refuses the broken policy, then mapd does.
		probes := 0
		c.refuse = func(r fakeapi.Request) error {
			if r.Resource != api.OwnPolicies || !r.DryRun {
				return nil
			}
			if probes++; probes < 3 {
				return apierrors.NewServiceUnavailable("not yet")
			}
			return &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: 400, Reason: metav1.StatusReasonBadRequest,
				Message: fmt.Sprintf("admission webhook %q denied the request: no", "validate."+webhookconfig.ValidationName),
			}}
		}
		if err := wait(t.Context()); err != nil || probes != 3 || len(waiting) == 0 {
			t.Errorf("error %v after %d probes, waiting for %q", err, probes, waiting)
		}
		// Who may not create policies need not wait.
		c.refuse = func(r fakeapi.Request) error {
			if r.DryRun {
				return apierrors.NewForbidden(r.Resource.GroupResource(), "", errors.New(`User "x" cannot create resource`))
			}
			return nil
		}
		var probe *ProbeError
		if err := wait(t.Context()); !errors.As(err, &probe) || probe.Reason != Forbidden {
			t.Errorf("forbidden: %v", err)
		}
	})
}
