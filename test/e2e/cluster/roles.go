//go:build e2e

package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// AggregateLabel is the label of ClusterRoles with which an administrator lets mapd read kinds of
// parameters.
const AggregateLabel = "mapd.dev/aggregate-to-params"

// GrantParams lets mapd read resources of a group as parameters, until the test
// ends.
func (m *Mapd) GrantParams(t testing.TB, group string, resources ...string) {
	t.Helper()
	roles := m.Kubernetes.RbacV1().ClusterRoles()
	role, err := roles.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-params-", Labels: map[string]string{AggregateLabel: "true", Label: LabelValue}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: resources, Verbs: []string{"get", "list", "watch"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = roles.Delete(ctx, role.Name, metav1.DeleteOptions{}) // the server may be gone already
	})
	m.AggregateRoles(t)
}

// AggregateRoles fills in the rules of aggregated ClusterRoles, as a controller of
// kube-controller-manager does. Install, StartKyverno and GrantParams call it. It must be called
// again after a labelled ClusterRole was created or changed. In a given cluster, which has that
// controller, it does nothing.
func (c *Cluster) AggregateRoles(t testing.TB) {
	t.Helper()
	if c.APIServer == nil {
		return
	}
	roles := c.Kubernetes.RbacV1().ClusterRoles()
	all, err := roles.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range all.Items {
		if role.AggregationRule == nil {
			continue
		}
		role.Rules = []rbacv1.PolicyRule{}
		for _, from := range role.AggregationRule.ClusterRoleSelectors {
			selector, err := metav1.LabelSelectorAsSelector(&from)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range all.Items {
				if part.Name != role.Name && selector.Matches(labels.Set(part.Labels)) {
					role.Rules = append(role.Rules, part.Rules...)
				}
			}
		}
		if _, err := roles.Update(t.Context(), &role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(fmt.Errorf("ClusterRole %s: %w", role.Name, err))
		}
	}
}
