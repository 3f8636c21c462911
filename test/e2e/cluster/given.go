//go:build e2e

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mapd-project/mapd/pkg/api"
)

// Label must be on every object that a test makes outside of the tests' namespaces, with the value
// LabelValue. In a given cluster, such objects are removed before the first test, in case an
// earlier run was stopped, and after the last one.
const (
	Label      = "mapd.dev/made-by"
	LabelValue = "e2e"
)

// given returns the kubeconfig of the cluster that the tests have to use; "" if they start their
// own.
func given() string { return os.Getenv("MAPD_E2E_KUBECONFIG") }

// NotGiven skips the test if a cluster is given; why is the reason why the test cannot use it.
// Start calls it, because a user who gives a cluster does not want others to be started.
func NotGiven(t testing.TB, why string) {
	t.Helper()
	if given() != "" {
		skip(t, why)
	}
}

// NeedProcesses skips the test on a cluster that it did not start.
func (c *Cluster) NeedProcesses(t testing.TB) {
	t.Helper()
	if c.APIServer == nil {
		skip(t, "it stops processes")
	}
}

// NeedNoBindings skips the test if a given cluster has bindings of others, because the webhook
// configuration then has entries for their policies, too.
func (c *Cluster) NeedNoBindings(t testing.TB) {
	t.Helper()
	bindings, err := c.Dynamic.Resource(api.OwnBindings).List(t.Context(), metav1.ListOptions{LabelSelector: Label + "!=" + LabelValue})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(bindings.Items); n > 0 {
		skip(t, fmt.Sprintf("the cluster has bindings of its own (%s is one of %d)", bindings.Items[0].GetName(), n))
	}
}

// NeedFree skips the test if a given cluster already has objects of its manifest.
func (c *Cluster) NeedFree(t testing.TB, yaml string) {
	t.Helper()
	out, err := c.Kubectl(t, []byte(yaml), "get", "--ignore-not-found", "--output=name", "--filename=-")
	if err != nil {
		t.Fatal(err)
	}
	if there := strings.Fields(out); len(there) > 0 {
		skip(t, fmt.Sprintf("it would overwrite what the cluster has (%s is one of %d)", there[0], len(there)))
	}
}

// skip skips a test. Main prints the skipped tests after the last one.
func skip(t testing.TB, why string) {
	t.Helper()
	skipped.Lock()
	skipped.all = append(skipped.all, t.Name()+": "+why)
	skipped.Unlock()
	t.Skip(why + ", and MAPD_E2E_KUBECONFIG names a cluster")
}

var skipped struct {
	sync.Mutex
	all []string
}

// reportSkipped prints which tests were skipped, and why.
func reportSkipped() {
	skipped.Lock()
	defer skipped.Unlock()
	if given() == "" || len(skipped.all) == 0 {
		return // the harness tests itself
	}
	slices.Sort(skipped.all)
	fmt.Printf("%d tests or parts of tests were skipped on the cluster of MAPD_E2E_KUBECONFIG:\n  %s\n", len(skipped.all), strings.Join(skipped.all, "\n  "))
}

// external returns the given cluster; nil if none is given.
func external(t testing.TB) *Cluster {
	t.Helper()
	if given() == "" {
		return nil
	}
	file := given()
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Dir: directory(t), test: t}
	c.connect(t, config)
	sweeping.Do(func() {
		if err := sweep(config); err != nil {
			t.Fatalf("what an earlier run left in the cluster cannot be removed: %v", err)
		}
		atEnd = append(atEnd, func() error {
			if given() != file { // it was given to one test, which started it
				return nil
			}
			return sweep(config)
		})
	})
	return c
}

var sweeping sync.Once

var (
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// sweep removes all objects that have Label, and waits until the namespaces among them are gone.
// It removes bindings first, so that their policies no longer affect the other deletions.
func sweep(config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	selector := metav1.ListOptions{LabelSelector: Label + "=" + LabelValue}
	for _, gvr := range []schema.GroupVersionResource{
		api.OwnBindings, api.OwnPolicies,
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	} {
		if err := client.Resource(gvr).DeleteCollection(ctx, metav1.DeleteOptions{}, selector); err != nil {
			return fmt.Errorf("%s: %w", gvr.Resource, err)
		}
	}
	return poll(context.Background(), Patience, func(ctx context.Context) error {
		all, err := client.Resource(namespaces).List(ctx, selector) // they cannot be deleted all at once
		if err != nil {
			return err
		}
		var left []error
		for _, ns := range all.Items {
			left = append(left, fmt.Errorf("namespace %s is there", ns.GetName()))
			if ns.GetDeletionTimestamp() == nil {
				left = append(left, client.Resource(namespaces).Delete(ctx, ns.GetName(), metav1.DeleteOptions{}))
			}
		}
		return errors.Join(left...)
	})
}
