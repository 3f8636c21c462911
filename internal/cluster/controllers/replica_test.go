package controllers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/test/fakeapi"
)

var (
	mutatingResource   = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	validatingResource = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
	namespaceResource  = corev1.SchemeGroupVersion.WithResource("namespaces")
	leaseResource      = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	eventResource      = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
)

// trusted is a certs.Source with a bundle and no more.
type trusted string

func (trusted) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return nil, errors.New("none")
}
func (s trusted) Bundle() []byte         { return []byte(s) }
func (trusted) Check() error             { return nil }
func (trusted) Changed() <-chan struct{} { return nil }

// cluster is a server that knows the kinds that mapd reads, with mapd's namespace.
type cluster struct {
	*fakeapi.Server
	env *cel.Env

	mu      sync.Mutex
	refused func(fakeapi.Request) error
}

// in runs a test with a cluster, and with a clock of its own.
func in(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{Server: &fakeapi.Server{}, env: env}
		list := func(gv string, resources ...map[string]any) map[string]any {
			var all []any
			for _, r := range resources {
				all = append(all, r)
			}
			return map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": all}
		}
		c.Discovery = map[string]map[string]any{
			"/version": {"major": "1", "minor": "37"},
			"/api":     {"kind": "APIVersions", "versions": []any{"v1"}},
			"/apis":    {"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}},
			"/api/v1": list("v1", map[string]any{"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": []any{"list"}},
				map[string]any{"name": "pods", "kind": "Pod", "namespaced": true, "verbs": []any{"list"}}),
		}
		c.Intercept = func(r fakeapi.Request) (map[string]any, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.refused != nil {
				return nil, c.refused(r)
			}
			return nil, nil
		}
		c.Put(namespaceResource, "", "own", map[string]any{})
		c.put("p", "object.metadata.name")
		f(t, c)
	})
}

// put stores a policy for ConfigMaps with a label of that value, and its binding.
func (c *cluster) put(name, value string) {
	c.Put(api.OwnPolicies, "", name, map[string]any{
		"apiVersion": api.OwnGroup + "/v1", "kind": api.PolicyKind, "metadata": map[string]any{"generation": int64(1)},
		"spec": map[string]any{
			"failurePolicy": "Fail", "reinvocationPolicy": "Never",
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"},
			}}},
			"mutations": []any{map[string]any{"patchType": "ApplyConfiguration", "applyConfiguration": map[string]any{
				"expression": fmt.Sprintf("Object{metadata: Object.metadata{labels: {'a': %s}}}", value),
			}}},
		},
	})
	c.Put(api.OwnBindings, "", name, map[string]any{
		"apiVersion": api.OwnGroup + "/v1", "kind": api.BindingKind, "metadata": map[string]any{"generation": int64(1)},
		"spec": map[string]any{"policyName": name},
	})
}

// refuse has calls refused from now on; nil: none.
func (c *cluster) refuse(f func(fakeapi.Request) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = f
}

// replica runs a replica of mapd until stop is called.
func (c *cluster) replica(t *testing.T, identity string, change func(*Options)) (w *Writer, stop func()) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(store.Options{Dynamic: dyn, Kubernetes: kube, Env: c.env, Exempt: []string{"own"}})
	o := Options{
		Kubernetes: kube, Dynamic: dyn, Store: s, Certificates: trusted("bundle"), Namespace: "own", Lease: "mapd", Identity: identity,
		URL: "https://mapd.example.com", Ready: s.Ready,
	}
	if change != nil {
		change(&o)
	}
	w = New(o)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	running.Go(func() { w.Run(ctx) })
	return w, func() { cancel(); running.Wait() }
}

// entries are the names of the entries of a configuration.
func (c *cluster) entries(resource schema.GroupVersionResource, name string) (names []string) {
	u := c.Get(resource, "", name)
	if u == nil {
		return nil
	}
	all, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	for _, e := range all {
		names = append(names, e.(map[string]any)["name"].(string))
	}
	return names
}

func (c *cluster) configured() bool {
	return slices.Equal(c.entries(mutatingResource, webhookconfig.ConfigurationName), []string{"fail.never.mapd.dev"}) &&
		len(c.entries(validatingResource, webhookconfig.ValidationName)) > 0
}

// ready is the Ready condition of an object: its status and reason.
func (c *cluster) ready(resource schema.GroupVersionResource, name string) string {
	u := c.Get(resource, "", name)
	if u == nil {
		return ""
	}
	is := statusOf(u).get(typeReady)
	if is == nil {
		return ""
	}
	return string(is.Status) + " " + is.Reason
}

func (c *cluster) events() []string {
	var out []string
	for _, e := range c.List(eventResource) {
		reason, _, _ := unstructured.NestedString(e.Object, "reason")
		out = append(out, reason)
	}
	return out
}

// within waits for a condition, by the clock of the test.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		synctest.Wait()
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// A replica writes both configurations and all statuses, and repairs what somebody
// changes.
func TestReplica(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		_, stop := c.replica(t, "a", nil)
		defer stop()
		within(t, 10*time.Second, "configurations", c.configured)
		within(t, 5*time.Second, "statuses", func() bool {
			return c.ready(api.OwnPolicies, "p") == "True InUse" && c.ready(api.OwnBindings, "p") == "True InUse"
		})
		u := c.Get(mutatingResource, "", webhookconfig.ConfigurationName)
		if o := u.GetOwnerReferences(); len(o) != 1 || o[0].Kind != "Namespace" || o[0].UID != c.Get(namespaceResource, "", "own").GetUID() {
			t.Errorf("owners %v", o)
		}

		good := u.Object["webhooks"]
		for what, change := range map[string]func(u *unstructured.Unstructured){
			"no entries": func(u *unstructured.Unstructured) { u.Object["webhooks"] = []any{} },
			"an entry changed": func(u *unstructured.Unstructured) {
				u.Object["webhooks"].([]any)[0].(map[string]any)["timeoutSeconds"] = int64(30)
			},
			"a finalizer": func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.com/x"}) },
			"gone":        nil,
		} {
			time.Sleep(time.Minute) // so that this is no quarrel
			u := c.Get(mutatingResource, "", webhookconfig.ConfigurationName)
			if change == nil {
				c.Put(mutatingResource, "", webhookconfig.ConfigurationName, nil)
			} else {
				change(u)
				c.Put(mutatingResource, "", webhookconfig.ConfigurationName, u.Object)
			}
			within(t, 5*time.Second, what, func() bool {
				u := c.Get(mutatingResource, "", webhookconfig.ConfigurationName)
				return u != nil && len(u.GetFinalizers()) == 0 && fmt.Sprint(u.Object["webhooks"]) == fmt.Sprint(good)
			})
		}

		// A policy that breaks is reported, once.
		c.put("p", "object.nothing(")
		within(t, 5*time.Second, "the status of a broken policy", func() bool { return c.ready(api.OwnPolicies, "p") == "False NotCompiled" })
		within(t, 5*time.Second, "an event", func() bool { return slices.Contains(c.events(), reasonNotCompiled) })
		c.Put(api.OwnPolicies, "", "p", nil)
		within(t, 5*time.Second, "the status of a binding without policy", func() bool { return c.ready(api.OwnBindings, "p") == "False PolicyNotFound" })
		within(t, 5*time.Second, "no entries without policies", func() bool { return len(c.entries(mutatingResource, webhookconfig.ConfigurationName)) == 0 })
	})
}

// Of two replicas one writes, and the other one when it stops.
func TestReplicasTakeTurns(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		holder := func() string {
			u := c.Get(leaseResource, "own", "mapd")
			if u == nil {
				return ""
			}
			id, _, _ := unstructured.NestedString(u.Object, "spec", "holderIdentity")
			return id
		}
		_, stopA := c.replica(t, "a", nil)
		within(t, 10*time.Second, "configurations", c.configured)
		_, stopB := c.replica(t, "b", nil)
		defer stopB()
		time.Sleep(time.Minute)
		if got := holder(); got != "a" {
			t.Errorf("the lease is held by %q", got)
		}
		stopA()
		c.Put(mutatingResource, "", webhookconfig.ConfigurationName, nil)
		within(t, 10*time.Second, "the other replica takes over", func() bool { return holder() == "b" && c.configured() })
	})
}

// foreign gives the configurations to another installation, in a namespace that is there.
func (c *cluster) foreign() {
	c.Put(namespaceResource, "", "other", map[string]any{})
	other := webhookconfig.Installation{Namespace: "other", Lease: "mapd"}
	c.Put(mutatingResource, "", webhookconfig.ConfigurationName, map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
		"metadata": map[string]any{"annotations": map[string]any{webhookconfig.InstallationAnnotation: other.String()}},
	})
}

// While the configurations are another installation's nothing is written; when that has
// gone, they are taken over.
func TestReplicaBesideAnotherInstallation(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		c.foreign()
		w, stop := c.replica(t, "a", nil)
		defer stop()
		within(t, 10*time.Second, "passive", func() bool { return w.Passive() != nil })
		time.Sleep(time.Minute)
		for _, r := range c.Writes() {
			if r.Resource != leaseResource && r.Resource != eventResource {
				t.Errorf("written while passive: %s", r)
			}
		}
		if !slices.Contains(c.events(), "ConfigurationsNotOwned") || !strings.Contains(w.Passive().Error(), "other/mapd") {
			t.Errorf("events %q, %v", c.events(), w.Passive())
		}
		c.Put(namespaceResource, "", "other", nil)
		within(t, time.Minute, "taken over", func() bool { return w.Passive() == nil && c.configured() })
	})
}

// A replica with Adopt takes them at once, and not again from who takes them back.
func TestReplicaAdopts(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		c.foreign()
		w, stop := c.replica(t, "a", func(o *Options) { o.Adopt = true })
		defer stop()
		within(t, 10*time.Second, "adopted", c.configured)
		time.Sleep(time.Minute)
		c.foreign()
		within(t, 10*time.Second, "passive", func() bool { return w.Passive() != nil })
		time.Sleep(time.Minute)
		if c.configured() {
			t.Error("taken again")
		}
	})
}

// Without a right, what needs it is reported and tried again, and the rest is done.
func TestReplicaWithoutRights(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		c.refuse(func(r fakeapi.Request) error {
			write := r.Verb == "create" || r.Verb == "update" || r.Verb == "patch"
			if write && (r.Resource == mutatingResource || r.Subresource == "status" && r.Resource == api.OwnBindings) {
				return apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, errors.New("no"))
			}
			return nil
		})
		_, stop := c.replica(t, "a", nil)
		defer stop()
		within(t, 10*time.Second, "the configuration that may be written", func() bool {
			return len(c.entries(validatingResource, webhookconfig.ValidationName)) > 0 && c.ready(api.OwnPolicies, "p") == "True InUse"
		})
		within(t, 10*time.Second, "an event", func() bool { return slices.Contains(c.events(), "ConfigurationRefused") })
		time.Sleep(time.Minute)
		if n := len(c.events()); n != 1 {
			t.Errorf("%d events of one refusal: %q", n, c.events())
		}
		c.refuse(nil)
		within(t, time.Minute, "written with the right", func() bool { return c.configured() && c.ready(api.OwnBindings, "p") == "True InUse" })
	})
}

// Nothing is written for a namespace that is going: it would stay behind.
func TestReplicaOfANamespaceThatGoes(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		_, stop := c.replica(t, "a", nil)
		defer stop()
		within(t, 10*time.Second, "configurations", c.configured)
		going := c.Get(namespaceResource, "", "own")
		if err := unstructured.SetNestedField(going.Object, "2026-01-01T00:00:00Z", "metadata", "deletionTimestamp"); err != nil {
			t.Fatal(err)
		}
		c.Put(namespaceResource, "", "own", going.Object)
		synctest.Wait()
		c.Put(mutatingResource, "", webhookconfig.ConfigurationName, nil)
		time.Sleep(time.Minute)
		if c.configured() {
			t.Error("written for a namespace that is being deleted")
		}
		c.Put(namespaceResource, "", "own", nil)
		c.Put(namespaceResource, "", "own", map[string]any{})
		within(t, 10*time.Second, "written for the namespace that is made anew", c.configured)
	})
}

// An entry that refuses the requests which renew the lease is changed without one.
func TestReplicaFreesItsLease(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		own := webhookconfig.Installation{Namespace: "own", Lease: "mapd"}
		c.Put(mutatingResource, "", webhookconfig.ConfigurationName, map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
			"metadata": map[string]any{"annotations": map[string]any{webhookconfig.InstallationAnnotation: own.String()}},
			"webhooks": []any{map[string]any{"name": "spoilt.example.com", "clientConfig": map[string]any{"url": "https://nobody.example.com"}}},
		})
		inTheWay := func() bool {
			u := c.Get(mutatingResource, "", webhookconfig.ConfigurationName)
			all, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
			return len(all) == 1 && all[0].(map[string]any)["namespaceSelector"] == nil
		}
		c.refuse(func(r fakeapi.Request) error {
			if r.Resource == leaseResource && r.Verb == "create" && inTheWay() {
				return apierrors.NewInternalError(errors.New(`failed calling webhook "spoilt.example.com"`))
			}
			return nil
		})
		_, stop := c.replica(t, "a", nil)
		defer stop()
		within(t, 20*time.Second, "the lease is held, and the entry gone", c.configured)
	})
}

// A replica that could not renew its lease in time does not write, even if the context of
// its work has not ended yet.
func TestLate(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := &Writer{log: slog.New(slog.DiscardHandler), late: func() bool { return late }}
		wrote := false
		c := &configuration{
			get:     func() (metav1.ObjectMeta, []entry, bool) { return metav1.ObjectMeta{}, nil, true },
			replace: func(context.Context, metav1.ObjectMeta, []entry) error { wrote = true; return nil },
		}
		w.reconcile(t.Context(), c, &corev1.Namespace{}, true, nil)
		if wrote == late {
			t.Errorf("late %v: wrote %v", late, wrote)
		}
	}
}
