//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// A breaker that trips on one replica, while the one that writes has just been killed,
// holds on all of them, stays so when all are started anew, and ends with an edit.
func TestBreaker(t *testing.T) {
	t.Parallel()
	a := &admin{cluster.Installed(t, cluster.InstallOptions{Replicas: 2})}
	a.NeedProcesses(t)
	const name = "e2e-breaker"
	a.Apply(t, policiesYAML(madePolicy{name: name, mutation: `Object{metadata: Object.metadata{labels: {"guarded":
      object.metadata.generateName.startsWith("bad") ? object.metadata.annotations["none"] : "yes"}}}`}))
	a.mustKubectl(t, "", "annotate", "map", name, "mapd.dev/breaker=errors=50%,window=1h")
	create := func(ctx context.Context, prefix string) (metav1.Object, error) {
		return a.Kubernetes.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	passes := func(prefix, want string) func(context.Context) error {
		return func(ctx context.Context) error {
			o, err := create(ctx, prefix)
			if err != nil {
				return err
			}
			return has(o, "guarded", want)
		}
	}
	// tripped waits until all replicas have the policy's breaker so.
	tripped := func(what string, want float64) {
		t.Helper()
		cluster.Eventually(t, cluster.Patience, "the breaker of all replicas, "+what, func(ctx context.Context) error {
			for _, r := range a.Replicas() {
				if got, err := metric(ctx, r, "mapd_breaker_tripped", fmt.Sprintf("policy=%q", name)); err != nil || got != want {
					return fmt.Errorf("%s: %v (%v)", r.Name, got, err)
				}
			}
			return nil
		})
	}
	trip := func(ctx context.Context) (map[string]any, error) {
		p, err := a.Dynamic.Resource(api.OwnPolicies).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		status, _ := p.Object["status"].(map[string]any)
		is, _ := status["breaker"].(map[string]any)
		return is, nil
	}
	cluster.Eventually(t, cluster.Patience, "the policy to act", passes("good-", "yes"))
	tripped("at first", 0)
	if _, err := create(t.Context(), "bad-"); err == nil || !strings.Contains(err.Error(), name) {
		t.Fatalf("a failure: %v", err)
	}

	victim := holder(t, a.Mapd)
	victim.Kill()
	refused := 0
	cluster.Eventually(t, cluster.Patience, "what fails to pass", func(ctx context.Context) error {
		err := passes("bad-", "")(ctx)
		if err != nil {
			refused++
		}
		return err
	})
	t.Logf("%d writes were refused before", refused)
	var first map[string]any
	cluster.Eventually(t, cluster.Patience, "the trip in the status", func(ctx context.Context) (err error) {
		if first, err = trip(ctx); err == nil && first == nil {
			err = errors.New("there is none")
		}
		return err
	})
	victim.Start(t)
	a.WaitReady(t)
	tripped("once one has tripped", 1)
	cluster.Eventually(t, cluster.Patience, "condition and event", func(ctx context.Context) error {
		out := a.kubectl(t, "", "describe", "map", name)
		for _, want := range []string{"BreakerTripped", "Warning", "evaluations within 1h failed"} {
			if !strings.Contains(out.stdout, want) {
				return fmt.Errorf("kubectl describe does not say %s:\n%s", want, out)
			}
		}
		return nil
	})
	if out := a.kubectl(t, "", "get", "map", name); !strings.Contains(squeeze(out.stdout), "TRIPPED") || !strings.Contains(squeeze(out.stdout), "False") {
		t.Error(out)
	}
	if out := a.mapd(t, "doctor"); !strings.Contains(out.stdout, "policy "+name+": not ready: the breaker has tripped") {
		t.Error(out)
	}

	for _, r := range a.Replicas() {
		r.Kill()
	}
	for _, r := range a.Replicas() {
		r.Start(t)
	}
	a.WaitReady(t)
	tripped("started anew", 1)
	cluster.Eventually(t, cluster.Patience, "what fails to pass", passes("bad-", ""))
	cluster.Eventually(t, cluster.Patience, "what does not fail to be left alone", passes("good-", ""))
	if now, err := trip(t.Context()); err != nil || fmt.Sprint(now) != fmt.Sprint(first) {
		t.Errorf("the trip is %v (%v), and was %v", now, err, first)
	}

	a.mustKubectl(t, "", "annotate", "--overwrite", "map", name, "mapd.dev/breaker=errors=60%,window=1h")
	tripped("after an edit", 0)
	cluster.Eventually(t, cluster.Patience, "the policy to act again", passes("good-", "yes"))
	cluster.Eventually(t, cluster.Patience, "the void trip to leave the status", func(ctx context.Context) error {
		now, err := trip(ctx)
		if err == nil && now != nil {
			err = fmt.Errorf("it still has %v", now)
		}
		return err
	})
	// Not again and again, or it would trip.
	if _, err := create(t.Context(), "bad-"); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a failure after an edit: %v", err)
	}
}
