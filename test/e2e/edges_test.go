//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// A policy that goes from one group to another while nobody is there to write the
// webhook configuration acts where servers still call it: with failurePolicy Fail
// nothing passes it by for as long as that takes.
func TestGroupMove(t *testing.T) {
	t.Parallel()
	m := cluster.Installed(t, cluster.InstallOptions{Replicas: 2})
	m.NeedProcesses(t)
	policy := madePolicy{name: "e2e-move", mutation: `Object{metadata: Object.metadata{labels: {"moved": "yes"}}}`}
	m.Apply(t, policy.String())
	cluster.Eventually(t, cluster.Patience, "the policy acts", func(ctx context.Context) error { return moved(ctx, m.Kubernetes) })

	gone := holder(t, m)
	gone.Kill()
	cluster.Eventually(t, cluster.Patience, "the endpoint is gone", func(ctx context.Context) error {
		slice, err := m.Kubernetes.DiscoveryV1().EndpointSlices(cluster.Namespace).Get(ctx, cluster.Name+"-e2e", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, e := range slice.Endpoints {
			if e.Addresses[0] == gone.IP && *e.Conditions.Ready {
				return fmt.Errorf("%s is ready", gone.IP)
			}
		}
		return nil
	})
	policy.reinvocation = "IfNeeded"
	m.Apply(t, policy.String())
	requests, over := 0, time.Time{}
	deadline := time.Now().Add(cluster.Patience)
	for over.IsZero() || time.Since(over) < 2*time.Second {
		if time.Now().After(deadline) {
			t.Fatal("nobody writes the configuration")
		}
		if err := moved(t.Context(), m.Kubernetes); err != nil {
			t.Fatalf("request %d: %v", requests, err)
		}
		requests++
		if over.IsZero() {
			c, err := m.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), "000.mapd.dev", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Webhooks) == 1 && c.Webhooks[0].Name == "fail.ifneeded.mapd.dev" {
				over = time.Now()
			}
		}
	}
	t.Logf("%d requests", requests)
}

// moved says whether a ConfigMap is mutated by a policy that labels it so.
func moved(ctx context.Context, client kubernetes.Interface) error {
	c, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-move-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	if c.Labels["moved"] != "yes" {
		return fmt.Errorf("labels %v", c.Labels)
	}
	return nil
}

// Writers that take all seats of the API server wait for a policy that has to ask
// the API server: its question does not queue behind them.
func TestSeats(t *testing.T) {
	t.Parallel()
	m := cluster.Installed(t, cluster.InstallOptions{Cluster: cluster.Options{
		Flags: []string{"--max-requests-inflight=20", "--max-mutating-requests-inflight=20"},
	}})
	m.NeedProcesses(t)
	// The rights come from a binding, since members of system:masters are in no queue.
	if _, err := m.Kubernetes.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-seats"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:seats"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.Apply(t, madePolicy{
		name: "e2e-seats", mutation: `Object{metadata: Object.metadata{labels: {"moved": "yes"}}}`,
		spec: `matchConditions: [{name: asks, expression: 'authorizer.group("").resource("secrets").check("get").allowed()'}]`,
	}.String())
	var writers []kubernetes.Interface
	for i := range 60 {
		user := fmt.Sprint("system:serviceaccount:seats:writer-", i)
		writers = append(writers, m.Client(t, m.As(user, "system:serviceaccounts", "system:serviceaccounts:seats", "system:authenticated")))
	}
	cluster.Eventually(t, cluster.Patience, "the policy acts", func(ctx context.Context) error { return moved(ctx, writers[0]) })
	var all sync.WaitGroup
	for _, w := range writers {
		all.Go(func() {
			for range 5 {
				if err := moved(t.Context(), w); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
