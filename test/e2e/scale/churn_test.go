//go:build e2e

package scale

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/test/load"
)

// rollOut replaces the Pods of one Deployment after the other, at the rate of -rollouts.
func (w *world) rollOut(ctx context.Context) {
	tick := time.NewTicker(time.Minute / time.Duration(*rollouts))
	defer tick.Stop()
	for i := 1; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.rollOutOne(ctx, i%deployments())
		}
	}
}

// rollOutOne changes the template of a Deployment, as kubectl rollout restart does.
func (w *world) rollOutOne(ctx context.Context, i int) {
	sent := time.Now()
	acts := w.actsAt(sent)
	path := "/apis/apps/v1/namespaces/" + load.Tenant(i%tenants) + "/deployments/" + deploymentName(i)
	restarted := map[string]any{"restarted": sent.Format(time.RFC3339Nano)}
	code, answer, err := w.sender.send(ctx, i, http.MethodPatch, path,
		map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": restarted}}}})
	switch {
	case ctx.Err() != nil:
	case err != nil || code != http.StatusOK:
		w.note("rollout: %d %v %v", code, answer["message"], err)
	case acts && w.actsAt(sent):
		w.expect.count("rollouts: Deployment", w.expect.settled(answer), false)
	}
}

// drainEvery is the time between two drains of a node.
const drainEvery = 20 * time.Second

// drain takes one node after the other out of service and puts it back.
func (w *world) drain(ctx context.Context) {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := w.drainOne(ctx, nodeName(i%*nodes)); err != nil && ctx.Err() == nil {
				w.note("drain: %v", err)
			}
		}
	}
}

func (w *world) drainOne(ctx context.Context, node string) error {
	cordon := func(on bool) error {
		_, err := w.Kubernetes.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"spec": {"unschedulable": %v}}`, on), metav1.PatchOptions{})
		return err
	}
	if err := cordon(true); err != nil {
		return err
	}
	there, err := w.Kubernetes.CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, LabelSelector: "!" + streamLabel})
	if err != nil {
		return err
	}
	for _, p := range there.Items {
		err := w.Kubernetes.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return cordon(false)
}
