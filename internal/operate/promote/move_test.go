package promote

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/mapd-project/mapd/pkg/api"
)

// stored returns a Promoter of a cluster that has objects.
func stored(t *testing.T, objects ...*unstructured.Unstructured) *Promoter {
	lists := map[schema.GroupVersionResource]string{}
	for _, group := range []string{api.OwnGroup, api.NativeGroup} {
		lists[resource(group, false)], lists[resource(group, true)] = api.PolicyKind+"List", api.BindingKind+"List"
	}
	lists[api.Exceptions] = api.ExceptionKind + "List"
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	for _, u := range objects {
		if err := client.Tracker().Create(resource(u.GroupVersionKind().Group, u.GetKind() == api.BindingKind), u, ""); err != nil {
			t.Fatal(err)
		}
	}
	return &Promoter{Dynamic: client, ID: "me", Patience: time.Minute, Progress: t.Logf}
}

// If mapd has a binding with the name of a native one, but of another policy, both are kept.
func TestNamesTaken(t *testing.T) {
	mine := policyOf(t, api.NativeGroup, "p", "v1")
	mine.SetLabels(map[string]string{fromLabel: api.OwnGroup})
	bound := bindingOf(t, api.NativeGroup, "b", "p", "")
	bound.SetLabels(map[string]string{fromLabel: api.OwnGroup})
	for name, objects := range map[string][]*unstructured.Unstructured{
		"at the start": {mine, bound, bindingOf(t, api.OwnGroup, "b", "q", "")},
		"on the way": {mine, bound, bindingOf(t, api.OwnGroup, "b", "q", ""),
			annotated(policyOf(t, api.OwnGroup, "p", "v1"), recordAnnotation, `{"to":"mapd","phase":"both","id":"x","restore":true}`)},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p := stored(t, objects...)
			_, err := p.Move(ctx, "p", Options{To: Mapd, Adopt: true})
			if err == nil || !strings.Contains(err.Error(), "the native binding b cannot become one of mapd, which has a binding of that name, of the policy q") {
				t.Fatal(err)
			}
			if _, err := p.Dynamic.Resource(api.NativeBindings).Get(ctx, "b", metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// mapd's policy is kept until no request can be under way that passed the native policies of a
// server before that server ran this one.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := stored(t, policyOf(t, api.OwnGroup, "p", "v1"), bindingOf(t, api.OwnGroup, "b", "p", ""))
		p.Settle = time.Minute
		var ran time.Time
		settled := false
		p.Progress = func(format string, args ...any) {
			t.Logf(format, args...)
			switch {
			case strings.Contains(format, "every API server runs the native policy;"):
				ran = time.Now()
			case !ran.IsZero() && !settled:
				if settled = true; time.Since(ran) < p.Settle {
					t.Errorf("goes on after %v", time.Since(ran))
				}
			}
		}
		if out, err := p.Move(t.Context(), "p", Options{To: Native}); err != nil || out.At != Native || !settled {
			t.Errorf("%+v, %v, %t", out, err, settled)
		}
	})
}

// An object that a finalizer keeps is named in an error, after a bounded wait.
func TestNeverGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		kept := annotated(policyOf(t, api.OwnGroup, "p", "v1"), recordAnnotation, `{"to":"mapd","phase":"both","id":"x"}`)
		kept.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
		kept.SetFinalizers([]string{"example.com/x"})
		_, err := stored(t, kept).Move(ctx, "p", Options{To: Mapd})
		if err == nil || !strings.Contains(err.Error(), "not gone within 1m0s: MutatingAdmissionPolicy."+api.OwnGroup+" p") {
			t.Error(err)
		}
	})
}

// A policy that mapd no longer enforces is not promoted in phases that compare nothing.
func TestNotEnforcedAtTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		record, annotation string
		want               string
	}{
		"a share at the end":             {`{"to":"native","phase":"leave","id":"x"}`, "mapd.dev/percent: '5'", "takes 5 % of the objects"},
		"shadow, of a demotion":          {`{"to":"mapd","phase":"both","id":"x","restore":true}`, "mapd.dev/mode: shadow", "is in mode shadow"},
		"enforced, of a demotion":        {`{"to":"mapd","phase":"both","id":"x","restore":true}`, "", ""},
		"the shadow of a canary, ending": {`{"to":"native","phase":"leave","id":"x","modes":{"b":"enforce"}}`, "mapd.dev/mode: shadow", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEtcd(t, annotated(policyOf(t, api.OwnGroup, "p", "v1"), recordAnnotation, tt.record), bindingOf(t, api.OwnGroup, "b", "p", tt.annotation))
			next := Decide(e.world("p"), Options{To: Native, ID: "a", Canary: true}, Proofs{})
			if tt.want == "" && (next.Err != nil || len(next.Do) == 0) || tt.want != "" && (next.Err == nil || !strings.Contains(next.Err.Error(), tt.want)) {
				t.Errorf("%+v, want %q", next, tt.want)
			}
		})
	}
}

// A replica that still holds an older share does not run the stored one.
func TestRunningShare(t *testing.T) {
	p, some := policyOf(t, api.OwnGroup, "p", "v"), bindingOf(t, api.OwnGroup, "b", "p", "mapd.dev/percent: '5'")
	all := bindingOf(t, api.OwnGroup, "b", "p", "")
	if Running(p, []*unstructured.Unstructured{some}) == Running(p, []*unstructured.Unstructured{all}) {
		t.Error("shares make no difference")
	}
}

// A probe in mapd's group uses a namespace that mapd does not exclude.
func TestProbeNamespace(t *testing.T) {
	for name, tt := range map[string]struct {
		exempt []string
		group  string
		want   string
		fails  string
	}{
		"default":            {[]string{"kube-system"}, api.OwnGroup, "default", ""},
		"default is exempt":  {[]string{"kube-system", "default"}, api.OwnGroup, "kube-public", ""},
		"but to mapd only":   {[]string{"default"}, api.NativeGroup, "default", ""},
		"nothing is left of": {probeNamespaces, api.OwnGroup, "", "take one out of --exempt-namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Promoter{Replicas: answers{exempt: tt.exempt}, Patience: 1, Progress: t.Logf}
			got, err := p.probeNamespace(t.Context(), tt.group)
			if got != tt.want || (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// A Promoter that does not get the lease reports who holds it, or why it cannot be written.
func TestAlone(t *testing.T) {
	refuse := func(verb string, err error) func(*fake.Clientset) {
		return func(c *fake.Clientset) {
			c.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		}
	}
	none := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "mapd-system")
	for name, tt := range map[string]struct {
		edit func(*fake.Clientset)
		want string
	}{
		"free":         {func(*fake.Clientset) {}, ""},
		"no namespace": {refuse("create", none), "the lease mapd-system/mapd-promotion cannot be written"},
		"lost":         {refuse("update", errors.New("away")), "is lost: another mapd promote may be at work"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := fake.NewClientset()
				tt.edit(c)
				p := &Promoter{Kubernetes: c, ID: "me", Progress: t.Logf}
				work := errors.New("the work has ended early")
				err := p.Alone(t.Context(), "mapd-system", func(ctx context.Context) error {
					if tt.want == "" {
						return nil
					}
					<-ctx.Done()
					return work
				})
				if errors.Is(err, work) {
					t.Error("what has ended the work is hidden by its error")
				}
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Error(err)
				}
			})
		})
	}
}
