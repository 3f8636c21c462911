//go:build e2e

package scale

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/test/e2e/cluster"
	"github.com/mapd-project/mapd/test/load"
)

const (
	// each is how many Pods a Deployment has.
	each = 25
	// preloaded is a label of ReplicaSets and Pods that the cluster begins with, so that
	// those that came later can be listed.
	preloaded = "preloaded"
	// streamLabel is on what the program itself writes.
	streamLabel = "stream"
)

// first is the hash in the names of ReplicaSets that the cluster begins with.
const first = "first"

func deploymentName(i int) string { return fmt.Sprintf("app-%05d", i) }

func deployments() int { return max(1, *podCount/each) }

// fill writes what the cluster begins with, as if it had been there for a while: with what
// the policies make of it.
func (w *world) fill(t *testing.T) {
	t.Helper()
	made := time.Now().UTC().Add(-time.Hour).Format(time.RFC3339)
	serial := 0
	uid := func() string {
		serial++
		return fmt.Sprintf("00000000-0000-4000-8000-%012x", serial)
	}
	meta := func(name, namespace string, labels map[string]any) map[string]any {
		m := map[string]any{"name": name, "uid": uid(), "creationTimestamp": made, "labels": labels}
		if namespace != "" {
			m["namespace"] = namespace
		}
		return m
	}
	condition := func(kind string, more ...any) map[string]any {
		c := map[string]any{"type": kind, "status": "True", "lastTransitionTime": made}
		for i := 0; i < len(more); i += 2 {
			c[more[i].(string)] = more[i+1]
		}
		return c
	}
	var all []metav1.Object
	for i := range *nodes {
		name := nodeName(i)
		m := meta(name, "", map[string]any{"kubernetes.io/hostname": name, "type": "kwok"})
		m["annotations"] = map[string]any{"kwok.x-k8s.io/node": "fake"}
		room := map[string]any{"cpu": "64", "memory": "256Gi", "pods": "250"}
		all = append(all, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": m, "spec": map[string]any{},
			"status": map[string]any{"capacity": room, "allocatable": room, "phase": "Running", "conditions": []any{
				condition("Ready", "reason", "KubeletReady", "lastHeartbeatTime", made),
			}},
		}})
	}
	w.Store(t, "minions", all...)

	var pods []metav1.Object
	stored := map[string][]metav1.Object{}
	for i := range deployments() {
		namespace, name := load.Tenant(i%tenants), deploymentName(i)
		app := map[string]any{"app": name}
		deployment := w.expect.must(t, map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(name, namespace, maps.Clone(app)),
			"spec": map[string]any{
				"replicas": int64(each), "selector": map[string]any{"matchLabels": app},
				"template": map[string]any{"metadata": map[string]any{"labels": app}, "spec": podSpec()},
			},
		})
		deploymentMeta := deployment["metadata"].(map[string]any)
		ofPolicies, _ := deploymentMeta["annotations"].(map[string]any)
		annotations := map[string]any{"deployment.kubernetes.io/revision": "1"}
		maps.Copy(annotations, ofPolicies)
		deploymentMeta["annotations"], deploymentMeta["generation"] = annotations, int64(1)
		counts := map[string]any{"observedGeneration": int64(1), "replicas": int64(each), "readyReplicas": int64(each), "availableReplicas": int64(each)}
		status := maps.Clone(counts)
		status["updatedReplicas"] = int64(each)
		status["conditions"] = []any{
			condition("Available", "reason", "MinimumReplicasAvailable", "message", "Deployment has minimum availability.", "lastUpdateTime", made),
			condition("Progressing", "reason", "NewReplicaSetAvailable", "lastUpdateTime", made,
				"message", fmt.Sprintf("ReplicaSet %q has successfully progressed.", name+"-"+first)),
		}
		deployment["status"] = status
		stored["deployments"] = append(stored["deployments"], &unstructured.Unstructured{Object: deployment})

		hashed := map[string]any{"app": name, "pod-template-hash": first}
		labels := maps.Clone(hashed)
		labels[preloaded] = "yes"
		setMeta := meta(name+"-"+first, namespace, labels)
		setMeta["ownerReferences"], setMeta["generation"] = owner("apps/v1", deployment), int64(1)
		setAnnotations := map[string]any{"deployment.kubernetes.io/desired-replicas": fmt.Sprint(each), "deployment.kubernetes.io/max-replicas": fmt.Sprint(each + (each+3)/4)}
		maps.Copy(setAnnotations, annotations)
		setMeta["annotations"] = setAnnotations
		set := w.expect.must(t, map[string]any{
			"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": setMeta,
			"spec": map[string]any{
				"replicas": int64(each), "selector": map[string]any{"matchLabels": hashed},
				"template": map[string]any{"metadata": map[string]any{"labels": hashed}, "spec": podSpec()},
			},
		})
		setStatus := maps.Clone(counts)
		setStatus["fullyLabeledReplicas"] = int64(each)
		set["status"] = setStatus
		stored["replicasets"] = append(stored["replicasets"], &unstructured.Unstructured{Object: set})

		// What policies make of a Pod does not depend on its name.
		like := w.expect.must(t, map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "x", "namespace": namespace, "labels": maps.Clone(labels)}, "spec": podSpec(),
		})
		for j := range each {
			n := i*each + j
			if n >= *podCount {
				break
			}
			pod := maps.Clone(like)
			m := meta(fmt.Sprintf("%s-%s-%05d", name, first, j), namespace, like["metadata"].(map[string]any)["labels"].(map[string]any))
			m["generateName"], m["ownerReferences"] = name+"-"+first+"-", owner("apps/v1", set)
			spec := maps.Clone(like["spec"].(map[string]any))
			spec["nodeName"] = nodeName(n % *nodes)
			pod["metadata"], pod["spec"] = m, spec
			pod["status"] = map[string]any{"phase": "Running", "startTime": made, "podIP": "10.0.0.1", "podIPs": []any{map[string]any{"ip": "10.0.0.1"}},
				"conditions": []any{condition("PodScheduled"), condition("Initialized"), condition("ContainersReady"), condition("Ready")}}
			pods = append(pods, &unstructured.Unstructured{Object: pod})
		}
	}
	w.Store(t, "pods", pods...)
	for resource, objects := range stored {
		w.Store(t, resource, objects...)
	}
	for i := range tenants {
		w.put(t, []*unstructured.Unstructured{{Object: map[string]any{
			"apiVersion": "batch/v1", "kind": "CronJob", "metadata": map[string]any{"name": "each-minute", "namespace": load.Tenant(i), "labels": map[string]any{"app": "cron"}},
			"spec": map[string]any{
				"schedule": "* * * * *", "successfulJobsHistoryLimit": int64(1),
				"jobTemplate": map[string]any{"spec": map[string]any{
					"completions": int64(3), "parallelism": int64(3),
					"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "cron"}}, "spec": jobSpec()},
				}},
			},
		}}, counter(i)})
	}
}

// counter is a ConfigMap that the stream changes again and again.
func counter(i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "counter", "namespace": load.Tenant(i), "labels": map[string]any{streamLabel: "yes"}},
		"data": map[string]any{"n": "0"},
	}}
}

func owner(version string, object map[string]any) []any {
	m := object["metadata"].(map[string]any)
	return []any{map[string]any{"apiVersion": version, "kind": object["kind"], "name": m["name"], "uid": m["uid"], "controller": true, "blockOwnerDeletion": true}}
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// podSpec is that of all Pods of Deployments.
func podSpec() map[string]any {
	container := func(name, image string, port int64) map[string]any {
		return map[string]any{
			"name": name, "image": image, "ports": []any{map[string]any{"containerPort": port, "protocol": "TCP"}},
			"env":       []any{map[string]any{"name": "LOG_LEVEL", "value": "info"}, map[string]any{"name": "REGION", "value": "north"}},
			"resources": map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "16Mi"}, "limits": map[string]any{"memory": "64Mi"}},
		}
	}
	return map[string]any{"containers": []any{container("app", "registry.example.com/shop/app:v1", 8080), container("proxy", "registry.example.com/mesh/proxy:v4", 15001)}}
}

func jobSpec() map[string]any {
	s := podSpec()
	s["restartPolicy"] = "Never"
	return s
}

// resources are where objects of a kind are.
var resources = map[string]schema.GroupVersionResource{
	"Namespace":                      {Version: "v1", Resource: "namespaces"},
	"ConfigMap":                      {Version: "v1", Resource: "configmaps"},
	"CronJob":                        {Group: "batch", Version: "v1", Resource: "cronjobs"},
	"MutatingAdmissionPolicy":        {Version: "v1", Resource: "mutatingadmissionpolicies"},
	"MutatingAdmissionPolicyBinding": {Version: "v1", Resource: "mutatingadmissionpolicybindings"},
}

func resourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	r := resources[o.GetKind()]
	r.Group = o.GroupVersionKind().Group
	return r
}

// put creates objects, or gives those that are there a new spec.
func (w *world) put(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		// A server that has much to do may not answer in time.
		cluster.Eventually(t, cluster.Patience, o.GetKind()+" "+o.GetName(), func(ctx context.Context) error { return w.putOne(ctx, o) })
	}
}

func (w *world) putOne(ctx context.Context, o *unstructured.Unstructured) error {
	client := w.Dynamic.Resource(resourceOf(o)).Namespace(o.GetNamespace())
	_, err := client.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "scale", Force: true})
	return err
}

// removeAll deletes the policies of a group and waits until none acts.
func (w *world) removeAll(t *testing.T, group string) {
	t.Helper()
	for _, kind := range []string{"MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"} {
		r := resources[kind]
		r.Group = group
		cluster.Eventually(t, cluster.Patience, r.String()+" to be deleted", func(ctx context.Context) error {
			return w.Dynamic.Resource(r).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: load.PolicyLabel})
		})
	}
	w.awaitActing(t, false, cluster.Patience)
}

// awaitActing waits until each API server has all policies act, or none.
func (w *world) awaitActing(t *testing.T, want bool, patience time.Duration) {
	t.Helper()
	cluster.Eventually(t, patience, fmt.Sprintf("policies to act: %v", want), func(ctx context.Context) error {
		for host := range w.sender.hosts {
			for i := range tenants {
				for _, what := range []string{"Pod", "ConfigMap"} {
					object := streamObject(what, load.Tenant(i), "probe")
					code, stored, err := w.sender.send(ctx, host, http.MethodPost, pathOf(what, load.Tenant(i))+"?dryRun=All", object)
					if err != nil {
						return err
					}
					if code != http.StatusCreated {
						return fmt.Errorf("%s: %d %v", what, code, stored["message"])
					}
					if !want {
						if n := len((&unstructured.Unstructured{Object: stored}).GetLabels()); n != len((&unstructured.Unstructured{Object: object}).GetLabels()) {
							return fmt.Errorf("%s has %d labels", what, n)
						}
						continue
					}
					if err := w.expect.same(object, stored); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// awaitWorking waits until a Deployment that is rolled out has new Pods that are ready.
func (w *world) awaitWorking(ctx context.Context) error {
	for _, p := range w.workers {
		if !p.Running() {
			return errors.New(p.Name + " has ended")
		}
	}
	w.rollOutOne(ctx, 0)
	ctx, cancel := context.WithTimeout(ctx, *duration/5)
	defer cancel()
	for {
		d, err := w.Kubernetes.AppsV1().Deployments(load.Tenant(0)).Get(ctx, deploymentName(0), metav1.GetOptions{})
		if err == nil {
			s := d.Status
			if s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == each && s.AvailableReplicas == each && s.Replicas == each {
				return nil
			}
			err = fmt.Errorf("%d updated and %d available of %d", s.UpdatedReplicas, s.AvailableReplicas, s.Replicas)
		}
		if ctx.Err() != nil {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
}
