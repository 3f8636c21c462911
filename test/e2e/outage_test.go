//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// An outage reaches what policies with failurePolicy Fail match by their bindings, and
// nothing else; policies that are divided over entries anew are missed by no request.
func TestOutage(t *testing.T) {
	t.Parallel()
	a := &admin{cluster.Installed(t, cluster.InstallOptions{Replicas: 2})}
	a.NeedProcesses(t)
	selected, other := "e2e-outage-selected", "e2e-outage-other"
	a.namespace(t, selected, map[string]string{"outage": "selected"})
	a.namespace(t, other, nil)
	bound := drawing{name: "e2e-outage", resources: "configmaps", namespaces: "outage: selected", condition: `!has(request.name) || request.name != "spared"`,
		mutations: []string{label("outage", `"yes"`)}}
	a.draw(t, bound)
	acts := func(ctx context.Context, namespace, want string) error {
		o, err := a.configMap(ctx, namespace)
		if err != nil {
			return err
		}
		return has(o, "outage", want)
	}
	cluster.Eventually(t, cluster.Patience, "the policy acts", func(ctx context.Context) error { return acts(ctx, selected, "yes") })

	// Other policies of the group come, go and select something else: each of it
	// divides the group anew.
	elsewhere := drawing{name: "e2e-a-elsewhere", resources: "secrets, configmaps", namespaces: "outage: elsewhere", objects: "app: none", mutations: []string{label("x", `"y"`)}}
	everywhere := drawing{name: "e2e-z-everywhere", resources: "services", mutations: []string{label("x", `"y"`)}}
	requests := 0
	for round := range 6 {
		switch round % 3 {
		case 0:
			a.draw(t, elsewhere)
		case 1:
			a.draw(t, everywhere)
		case 2:
			a.erase(t, elsewhere.name, everywhere.name)
		}
		for deadline := time.Now().Add(1500 * time.Millisecond); time.Now().Before(deadline); requests++ {
			if err := acts(t.Context(), selected, "yes"); err != nil {
				t.Fatalf("round %d, request %d: %v", round, requests, err)
			}
		}
	}
	a.draw(t, everywhere)
	cluster.Eventually(t, cluster.Patience, "two entries", func(ctx context.Context) error {
		c, err := a.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "000.mapd.dev", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(c.Webhooks) != 2 || !slices.ContainsFunc(c.Webhooks[0].NamespaceSelector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == "outage" }) {
			return fmt.Errorf("entries %+v", c.Webhooks)
		}
		return nil
	})
	t.Logf("%d requests", requests)

	out := a.mapd(t, "doctor")
	const words = "would refuse creations and updates of configmaps in namespaces with outage=selected except "
	if !strings.Contains(out.stdout, words) {
		t.Errorf("mapd doctor does not say that it %s\n%s", words, out.stdout)
	}

	if words := `, if !has(request.name) || (!has(request.name) || request.name != 'spared')`; !strings.Contains(out.stdout, words) {
		t.Errorf("mapd doctor does not say %q\n%s", words, out.stdout)
	}

	a.Scale(t, 0)
	if _, err := a.configMap(t.Context(), selected); err == nil || !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("where the policy is bound: %v", err)
	}
	spared := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "spared"}}
	if _, err := a.Kubernetes.CoreV1().ConfigMaps(selected).Create(t.Context(), spared, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("what a condition leaves out: %v", err)
	}
	if err := acts(t.Context(), other, ""); err != nil {
		t.Errorf("in another namespace: %v", err)
	}
	// Servers read the labels of a Namespace for each request.
	if _, err := a.Kubernetes.CoreV1().Namespaces().Patch(t.Context(), other, types.MergePatchType, []byte(`{"metadata": {"labels": {"outage": "selected"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, cluster.Patience, "the label counts", func(ctx context.Context) error {
		if _, err := a.configMap(ctx, other); err == nil {
			return fmt.Errorf("a write in a namespace that is selected now was let through")
		}
		return nil
	})
	a.Scale(t, 2)
	cluster.Eventually(t, cluster.Patience, "mapd is back", func(ctx context.Context) error { return acts(ctx, other, "yes") })
	a.erase(t, bound.name, everywhere.name)
}
