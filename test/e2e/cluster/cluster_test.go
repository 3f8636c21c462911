//go:build e2e

package cluster

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// Servers of the harness can be stopped, started, paused, and used by several users.
func TestStart(t *testing.T) {
	c := Start(t, Options{Users: map[string][]string{"carol": {"system:masters"}}})
	if out, err := c.KubectlAs(t, c.User(t, "carol"), nil, "get", "namespace", "default", "-o", "name"); err != nil || out != "namespace/default\n" {
		t.Errorf("carol got %q, %v", out, err)
	}
	if _, err := c.KubectlAs(t, c.As("alice"), nil, "get", "namespaces"); err == nil {
		t.Error("alice may list namespaces without a role")
	}

	c.Etcd.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := c.Kubernetes.CoreV1().ConfigMaps("default").Get(ctx, "x", metav1.GetOptions{}); ctx.Err() == nil {
		t.Errorf("answered while etcd was paused: %v", err)
	}
	c.Etcd.Continue()
	c.RestartAPIServer(t)
}

// The EndpointSlice lists the replicas that run after some were started and stopped.
func TestInstall(t *testing.T) {
	m := Install(t, Start(t, Options{}), InstallOptions{Replicas: 2})
	m.Roll(t)
	m.Replicas()[0].Kill()
	Eventually(t, Patience, "one ready endpoint", func(ctx context.Context) error {
		slice, err := m.Kubernetes.DiscoveryV1().EndpointSlices(Namespace).Get(ctx, Name+"-e2e", metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, e := range slice.Endpoints {
			if *e.Conditions.Ready {
				ready++
			}
		}
		if ready != 1 {
			return fmt.Errorf("%d are ready", ready)
		}
		return nil
	})
	m.Replicas()[0].Start(t)
	m.Scale(t, 1)

	// The same cluster, given by its kubeconfig.
	t.Setenv("MAPD_E2E_KUBECONFIG", m.Kubeconfig(t, m.Config, ""))
	given := Installed(t, InstallOptions{})
	if _, err := given.Kubectl(t, nil, "get", "--namespace", Namespace, "deployment", Name); err != nil {
		t.Error(err)
	}
	t.Run("needs processes", func(t *testing.T) {
		given.NeedProcesses(t)
		t.Error("not skipped on a cluster that is not ours")
	})
}
