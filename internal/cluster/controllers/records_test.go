package controllers

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/fakeapi"
)

// wrote has a policy set a label of an object, whose value is secret.
func wrote(l *history.Recorder, name string) {
	object := func(labels map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"labels": labels}}}
	}
	req := &policy.Request{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "shop", Name: name, Operation: "CREATE", Object: object(map[string]any{})}
	stage := engine.Policies(nil)
	steps := []engine.Step{{Stage: "policies", Policy: "p", Binding: "b", Outcome: engine.Changed, Before: object(map[string]any{}), After: object(map[string]any{"a": "s3cr3t"})}}
	l.Record(req, &engine.Decision{Changed: true, Steps: steps, Stages: []engine.Record{{Stage: &stage, Steps: steps}}}, 0)
}

// storedIn says what the ConfigMaps of records have, as "replica: objects".
func (c *cluster) storedIn(t *testing.T) (all []string) {
	t.Helper()
	for _, u := range c.List(configMapResource) {
		if u.GetLabels()[history.StoredLabel] == "" {
			continue
		}
		packed, _, _ := unstructured.NestedString(u.Object, "binaryData", history.StoredKey)
		text, err := base64.StdEncoding.DecodeString(packed)
		if err != nil {
			t.Fatal(err)
		}
		a, err := history.Unstore(text)
		if err != nil {
			t.Fatal(err)
		}
		line := u.GetAnnotations()[history.StoredReplica] + ":"
		for _, e := range a.Entries {
			line += " " + e.Name + fmt.Sprint(e.Acts[0].Paths)
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

// storing is a replica that stores records of l, and does nothing else.
func (c *cluster) storing(t *testing.T, identity string, l *history.Recorder) (stop func()) {
	t.Helper()
	w := c.idle(t, identity)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.StoreRecords(ctx, l) })
	return func() { cancel(); running.Wait() }
}

// idle is a Writer that does not run: weeks of a lease would take minutes.
func (c *cluster) idle(t *testing.T, identity string) *Writer {
	t.Helper()
	kube, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Kubernetes: kube, Namespace: "own", Identity: identity})
}

// cleaning is what the holder of the lease does about records.
func (c *cluster) cleaning(t *testing.T) (stop func()) {
	t.Helper()
	w := c.idle(t, "holder")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.cleanRecords(ctx) })
	return func() { cancel(); running.Wait() }
}

func TestStoreRecords(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		defer c.cleaning(t)()
		one := history.New("a")
		stop := c.storing(t, "a", one)
		expect := func(want ...string) {
			t.Helper()
			if got := c.storedIn(t); !slices.Equal(got, want) {
				t.Errorf("stored %q, want %q", got, want)
			}
		}
		time.Sleep(time.Hour)
		expect() // nothing has happened
		wrote(one, "x")
		time.Sleep(2 * recordsEvery)
		expect("a: x[/metadata/labels/a]")
		calls := len(c.Writes())
		time.Sleep(recordsRenewed / 2)
		for _, r := range c.Writes()[calls:] {
			if r.Resource.Resource == "configmaps" {
				t.Errorf("written although nothing has changed: %v", r)
			}
		}
		wrote(one, "y")
		stop() // a replica that ends in order stores all
		expect("a: y[/metadata/labels/a] x[/metadata/labels/a]")
		if sent, dropped := one.DeliveredTotals(); sent != 2 || dropped != 0 {
			t.Errorf("%d sent, %d dropped", sent, dropped)
		}

		two := history.New("b")
		stop = c.storing(t, "b", two)
		defer stop()
		wrote(two, "z")
		time.Sleep(recordsKept - time.Hour)
		expect("a: y[/metadata/labels/a] x[/metadata/labels/a]", "b: z[/metadata/labels/a]")
		time.Sleep(2 * time.Hour)
		expect("b: z[/metadata/labels/a]") // that of the replica that lives stays

		// Somebody deletes it.
		for _, u := range c.List(configMapResource) {
			c.Put(configMapResource, "own", u.GetName(), nil)
		}
		wrote(two, "u")
		time.Sleep(2 * recordsEvery)
		expect("b: u[/metadata/labels/a] z[/metadata/labels/a]")
	})
}

// A server that refuses or does not answer is asked again, and nothing is lost. A write
// whose answer is lost counts once.
func TestStoreRecordsAgain(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		l := history.New("a")
		stop := c.storing(t, "a", l)
		defer stop()
		c.refuse(func(r fakeapi.Request) error {
			if r.Resource == configMapResource {
				return errors.New("cut off")
			}
			return nil
		})
		wrote(l, "x")
		time.Sleep(10 * recordsEvery)
		c.refuse(nil)
		time.Sleep(2 * recordsEvery)
		if got := c.storedIn(t); len(got) != 1 || !strings.HasPrefix(got[0], "a: x") {
			t.Errorf("stored %q", got)
		}
		if sent, dropped := l.DeliveredTotals(); sent != 1 || dropped != 0 {
			t.Errorf("%d sent, %d dropped", sent, dropped)
		}
	})
}

// The ConfigMaps of replicas that are gone are bounded, however many come and go.
func TestRecordsOfManyReplicas(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		defer c.cleaning(t)()
		live := history.New("live")
		stop := c.storing(t, "live", live)
		defer stop()
		wrote(live, "x")
		for i := range maxGone + 5 {
			l := history.New(fmt.Sprint(i))
			stop := c.storing(t, fmt.Sprintf("%02d", i), l)
			wrote(l, "x")
			time.Sleep(time.Minute)
			stop()
		}
		time.Sleep(2 * recordsCleaned)
		got := c.storedIn(t)
		if len(got) != maxGone+1 || !strings.HasPrefix(got[0], "05:") || !strings.HasPrefix(got[maxGone], "live:") {
			t.Errorf("%d: %q", len(got), got)
		}
	})
}
