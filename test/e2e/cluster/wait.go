//go:build e2e

package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Eventually polls every pollEvery at first, and then less and less often, down to every
// pollSeldom, because polling loads the cores that the servers share with the tests.
const (
	pollEvery  = 25 * time.Millisecond
	pollSeldom = 100 * time.Millisecond
)

// Patience is the timeout of waits. It only ends a test that would wait for ever, and measures
// nothing, so it is long enough for any machine.
const Patience = 3 * time.Minute

// Eventually calls f until it returns nil. After timeout the test fails with
// what, which names what it waited for, and the last error. f's context ends with the timeout.
func Eventually(t testing.TB, timeout time.Duration, what string, f func(ctx context.Context) error) {
	t.Helper()
	start := time.Now()
	if err := poll(t.Context(), timeout, f); err != nil {
		t.Fatalf("waited %s for %s: %v", time.Since(start).Round(time.Millisecond), what, err)
	}
}

// Always calls f again and again for the time d, and once more if no call has succeeded by then. It
// fails the test at the first error.
func Always(t testing.TB, d time.Duration, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for held := false; ; {
		err := f(ctx)
		held = held || err == nil
		if err != nil && ctx.Err() == nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-ctx.Done():
			if held {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), Patience)
			defer cancel()
			if err := f(ctx); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			return
		case <-tick.C:
		}
	}
}

// WaitKinds waits until the API server serves all kinds that CustomResourceDefinitions
// define, in its discovery too. kubectl wait does not: it fails where a definition is so
// new that it has no conditions.
func (c *Cluster) WaitKinds(t testing.TB) {
	t.Helper()
	Eventually(t, Patience, "the kinds of CustomResourceDefinitions", func(ctx context.Context) error {
		definitions, err := c.Dynamic.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, item := range definitions.Items {
			var d apiextensionsv1.CustomResourceDefinition
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &d); err != nil {
				return err
			}
			if !slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			}) {
				return fmt.Errorf("%s is not established", d.Name)
			}
			for _, v := range d.Spec.Versions {
				version := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
				if !v.Served {
					continue
				}
				resources, err := c.Kubernetes.Discovery().ServerResourcesForGroupVersion(version.String())
				if err != nil {
					return fmt.Errorf("%s: %w", version, err)
				}
				if !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == d.Spec.Names.Plural }) {
					return fmt.Errorf("%s has no %s", version, d.Spec.Names.Plural)
				}
			}
		}
		return nil
	})
}

func poll(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for pause := pollEvery; ; pause = min(pause*11/10, pollSeldom) {
		err := f(ctx)
		if err == nil {
			return nil
		}
		// An error caused by the end of the context says less than the one before it.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(pause):
		}
	}
}
