package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
	"github.com/mapd-project/mapd/test/fakeapi"
)

// failing is a label whose value cannot be computed for ConfigMaps named bad.
const failing = "object.metadata.name == 'bad' ? object.metadata.annotations['none'] : 'yes'"

// guard stores policy p with a breaker.
func (c *cluster) guard(value, limits string) {
	c.put("p", value)
	u := c.Get(api.OwnPolicies, "", "p")
	u.SetAnnotations(map[string]string{api.BreakerAnnotation: limits})
	c.Put(api.OwnPolicies, "", "p", u.Object)
}

// send asks a replica n times about a ConfigMap and returns what came of the last.
func (c *cluster) send(t *testing.T, w *Writer, n int, name string) string {
	t.Helper()
	group := webhook.Group{FailurePolicy: admissionregistrationv1.Fail, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy}
	got := ""
	for range n {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default"}}}
		d := w.o.Store.Entry(webhook.ID{Group: group}).Admit(context.Background(), &policy.Request{
			Kind: obj.GroupVersionKind(), Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			Name: name, Namespace: "default", Operation: admissionv1.Create, Object: obj,
		})
		switch {
		case d.Status != nil:
			got = "denied"
		case d.Changed:
			got = "changed"
		default:
			got = "unchanged"
		}
	}
	return got
}

// trip returns the Trip in the status of policy p.
func (c *cluster) trip() *breaker.Trip { return breaker.TripOf(c.Get(api.OwnPolicies, "", "p")) }

// entry is the one webhook entry that there is.
func (c *cluster) entry() string {
	return strings.Join(c.entries(mutatingResource, webhookconfig.ConfigurationName), ",")
}

// A breaker that trips on a replica without the lease does so on all of them; it stays
// tripped over restarts and ends with an edit, or when somebody deletes it.
func TestBreaker(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		c.guard(failing, "errors=50%,window=60s")
		c.Put(namespaceResource, "", "default", map[string]any{})
		_, stopA := c.replica(t, "a", nil)
		within(t, 10*time.Second, "the first replica writes", func() bool { return c.entry() == "fail.never.mapd.dev" })
		b, stopB := c.replica(t, "b_1", nil)
		within(t, 10*time.Second, "the second one has read", func() bool { return b.o.Store.Ready() == nil })
		if got := c.send(t, b, 1, "good"); got != "changed" {
			t.Fatalf("before: %s", got)
		}
		if got := c.send(t, b, breaker.LeastEvaluations-2, "bad"); got != "denied" {
			t.Fatalf("a failure: %s", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if c.trip() != nil {
			t.Fatal("tripped too early")
		}
		c.send(t, b, 1, "bad")
		within(t, time.Second, "it has no effect there", func() bool { return c.send(t, b, 1, "bad") == "unchanged" && c.send(t, b, 1, "good") == "unchanged" })
		within(t, 5*time.Second, "the trip is written", func() bool { return c.trip() != nil })
		first := c.trip()
		if first.Reason != "19 of 20 evaluations within 1m failed" || first.Replica != "b" || first.Time.IsZero() {
			t.Errorf("trip %+v", first)
		}
		within(t, 5*time.Second, "status, event and entry", func() bool {
			return c.ready(api.OwnPolicies, "p") == "False BreakerTripped" && slices.Contains(c.events(), "BreakerTripped") && c.entry() == "ignore.never.mapd.dev"
		})
		if got := statusOf(c.Get(api.OwnPolicies, "", "p")).get(typeReady).Message; !strings.Contains(got, first.Reason) {
			t.Errorf("the condition says %q", got)
		}
		if n := len(slices.DeleteFunc(c.events(), func(r string) bool { return r != "BreakerTripped" })); n != 1 {
			t.Errorf("%d events", n)
		}

		// The one that holds the lease follows, and so does one that starts.
		stopA()
		stopB()
		d, stopD := c.replica(t, "d", nil)
		e, stopE := c.replica(t, "e", nil)
		defer stopD()
		defer stopE()
		both := func(want string) func() bool {
			return func() bool {
				return d.o.Store.Ready() == nil && e.o.Store.Ready() == nil && c.send(t, d, 1, "good") == want && c.send(t, e, 1, "good") == want
			}
		}
		within(t, 20*time.Second, "it stays tripped", both("unchanged"))
		c.send(t, d, 100, "bad")
		time.Sleep(2 * time.Minute) // the window is over
		if now := c.trip(); now == nil || *now != *first || !both("unchanged")() {
			t.Errorf("later: %+v", now)
		}

		// An edit.
		c.guardAgain("errors=50%,window=61s")
		within(t, 5*time.Second, "an edit enforces it again", both("changed"))
		within(t, 5*time.Second, "the status is cleaned", func() bool {
			return c.trip() == nil && c.ready(api.OwnPolicies, "p") == "True InUse" && c.entry() == "fail.never.mapd.dev"
		})

		// It counts anew, and trips on both at once.
		c.send(t, d, breaker.LeastEvaluations, "bad")
		c.send(t, e, breaker.LeastEvaluations, "bad")
		within(t, 5*time.Second, "tripped again", func() bool { return c.trip() != nil && both("unchanged")() })
		time.Sleep(10 * time.Second)

		// Somebody deletes the status.
		u := c.Get(api.OwnPolicies, "", "p")
		unstructured.RemoveNestedField(u.Object, "status", "breaker")
		c.Put(api.OwnPolicies, "", "p", u.Object)
		within(t, 5*time.Second, "a deleted status enforces it again", both("changed"))
		time.Sleep(10 * time.Second)
		if c.trip() != nil || !both("changed")() {
			t.Errorf("it is back: %+v", c.trip())
		}
		within(t, 5*time.Second, "ready", func() bool { return c.ready(api.OwnPolicies, "p") == "True InUse" })
	})
}

// guardAgain changes the breaker's annotation as somebody else would: without the status.
func (c *cluster) guardAgain(limits string) {
	u := c.Get(api.OwnPolicies, "", "p")
	u.SetAnnotations(map[string]string{api.BreakerAnnotation: limits})
	c.Put(api.OwnPolicies, "", "p", u.Object)
}

// What cannot be written is tried again, and holds on this replica meanwhile.
func TestBreakerNotWritten(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		c.guard(failing, "errors=50%")
		c.Put(namespaceResource, "", "default", map[string]any{})
		a, stop := c.replica(t, "a", nil)
		defer stop()
		within(t, 10*time.Second, "the replica writes", func() bool { return c.entry() == "fail.never.mapd.dev" })
		c.refuse(func(r fakeapi.Request) error {
			if r.Subresource == "status" {
				return apierrors.NewInternalError(fmt.Errorf("not now"))
			}
			return nil
		})
		c.send(t, a, breaker.LeastEvaluations, "bad")
		within(t, time.Second, "it has no effect", func() bool { return c.send(t, a, 1, "bad") == "unchanged" })
		time.Sleep(time.Minute)
		if c.trip() != nil || c.send(t, a, 1, "bad") != "unchanged" {
			t.Fatal("the trip was forgotten, or written")
		}
		c.refuse(nil)
		within(t, 2*tripRetryMost, "the trip is written", func() bool { return c.trip() != nil })
	})
}

// A trip that somebody else has made up, or of a policy without a breaker, has no effect
// and is taken away.
func TestBreakerForged(t *testing.T) {
	for _, annotations := range []map[string]string{nil, {api.BreakerAnnotation: "errors=50%"}} {
		in(t, func(t *testing.T, c *cluster) {
			c.Put(namespaceResource, "", "default", map[string]any{})
			u := c.Get(api.OwnPolicies, "", "p")
			u.SetAnnotations(annotations)
			u.Object["status"] = map[string]any{"breaker": map[string]any{"digest": "sha256:0", "reason": "I say so"}}
			c.Put(api.OwnPolicies, "", "p", u.Object)
			a, stop := c.replica(t, "a", nil)
			defer stop()
			within(t, 10*time.Second, "the status is cleaned", func() bool { return c.trip() == nil && c.ready(api.OwnPolicies, "p") == "True InUse" })
			if got := c.send(t, a, 1, "good"); got != "changed" {
				t.Errorf("%v: %s", annotations, got)
			}
		})
	}
}
