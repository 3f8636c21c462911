package audit

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Replacement describes what a write does to running Pods.
type Replacement struct {
	// Pods is the number of Pods that are replaced; -1 if it is not known, because the kind is
	// not built in.
	Pods int `json:"pods"`
	// Restarts: the object is a Pod whose containers restart.
	Restarts bool `json:"restarts,omitempty"`
	// AtOnce: all Pods end before the first new one begins (strategy Recreate).
	AtOnce bool `json:"atOnce,omitempty"`
	// Paused: the Pods are replaced when the Deployment is resumed.
	Paused bool `json:"paused,omitempty"`
}

// String says what happens, such as "replaces its 2 Pods".
func (p *Replacement) String() string {
	var text string
	switch {
	case p.Restarts:
		return "restarts containers of the Pod"
	case p.Pods < 0:
		return "may replace its Pods"
	case p.Pods == 1:
		text = "replaces its Pod"
	default:
		text = fmt.Sprintf("replaces its %d Pods", p.Pods)
	}
	if p.AtOnce && p.Pods != 1 {
		text += " all at once"
	}
	if p.Paused {
		text += " when it is resumed"
	}
	return text
}

// replacement returns what writing after over before does to running Pods, nil if nothing.
// Deployments, DaemonSets and StatefulSets replace their Pods when the template changes, unless
// their strategy is OnDelete. Other built-in kinds use a changed template for new Pods only.
// Custom kinds with a Pod template may replace their Pods.
func replacement(before, after map[string]any) *Replacement {
	u := unstructured.Unstructured{Object: after}
	gvk := u.GroupVersionKind()
	if gvk.Group == "" && gvk.Kind == "Pod" {
		if equal(images(before), images(after)) {
			return nil
		}
		return &Replacement{Pods: 1, Restarts: true}
	}
	if equal(field(before, "spec", "template"), field(after, "spec", "template")) {
		return nil
	}
	replicas := number(after, 1, "spec", "replicas")
	switch gvk.Group {
	case "apps":
		switch gvk.Kind {
		case "Deployment":
			return replaced(&Replacement{
				Pods: replicas, AtOnce: field(after, "spec", "strategy", "type") == "Recreate", Paused: field(after, "spec", "paused") == true,
			})
		case "StatefulSet":
			if field(after, "spec", "updateStrategy", "type") == "OnDelete" {
				return nil
			}
			return replaced(&Replacement{Pods: replicas - number(after, 0, "spec", "updateStrategy", "rollingUpdate", "partition")})
		case "DaemonSet":
			if field(after, "spec", "updateStrategy", "type") == "OnDelete" {
				return nil
			}
			return replaced(&Replacement{Pods: number(before, 0, "status", "currentNumberScheduled")})
		}
		return nil
	case "", "batch":
		return nil
	}
	if _, pods := field(after, "spec", "template", "spec", "containers").([]any); !pods {
		return nil
	}
	return &Replacement{Pods: -1}
}

// replaced returns nil if p has no Pods.
func replaced(p *Replacement) *Replacement {
	if p.Pods <= 0 {
		return nil
	}
	return p
}

// ownedTemplate returns the Deployment that owns a ReplicaSet whose template a write changes, ""
// if there is none. The Deployment would take the ReplicaSet for an older one, and create
// another.
func ownedTemplate(before, after map[string]any) string {
	u := unstructured.Unstructured{Object: before}
	owner := metav1.GetControllerOf(&u)
	if u.GetKind() != "ReplicaSet" || owner == nil || equal(field(before, "spec", "template"), field(after, "spec", "template")) {
		return ""
	}
	return owner.Kind + " " + owner.Name
}

// images returns the images of a Pod's containers by their names.
func images(pod map[string]any) any {
	out := map[string]any{}
	for _, list := range []string{"initContainers", "containers"} {
		all, _ := field(pod, "spec", list).([]any)
		for _, c := range all {
			c, _ := c.(map[string]any)
			name, _ := c["name"].(string)
			out[name] = c["image"]
		}
	}
	return out
}

func equal(a, b any) bool { return tree.Equal(a, b) }

// field returns a field of an object, nil if there is none.
func field(o map[string]any, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	return v
}

// number returns a field that is a number, otherwise if there is none.
func number(o map[string]any, otherwise int64, path ...string) int {
	n, ok := field(o, path...).(int64)
	if !ok {
		n = otherwise
	}
	return int(n)
}

// Writer has the options that both a Fixer and Restore need.
type Writer struct {
	Cluster *Cluster
	// DryRun lets the API server check each write without storing it.
	DryRun bool
	// ReplacePods allows writes that replace Pods. Without it their outcome is LeftOut. After
	// writing a workload, the Writer waits for the end of its rollout. If a rollout makes no
	// progress for Patience, further writes of that sort are left out.
	ReplacePods bool
	Patience    time.Duration
	// Waiting is called with the progress of a rollout; it may be nil.
	Waiting func(title, progress string)

	stuck string // the rollout that has not ended
}

// leftOut returns the reason why a write that replaces Pods is left out, "" if it is allowed.
func (w *Writer) leftOut(before, after map[string]any) string {
	if owner := ownedTemplate(before, after); owner != "" {
		return "its template is that of the " + owner + ", which would make another ReplicaSet"
	}
	p := replacement(before, after)
	switch {
	case p == nil:
		return ""
	case !w.ReplacePods:
		return "the write " + p.String() + "; --replace-pods allows it"
	case w.stuck != "":
		return "the write " + p.String() + ", and " + w.stuck
	}
	return ""
}

// replaces says what a write does to Pods, "" if nothing.
func replaces(before, after *unstructured.Unstructured) string {
	if p := replacement(before.Object, after.Object); p != nil {
		return p.String()
	}
	return ""
}

// pollRollout is how often a workload is read whose rollout is awaited.
const pollRollout = 2 * time.Second

// await waits until the Pods of a workload have been replaced, and describes what happened.
func (w *Writer) await(ctx context.Context, client dynamic.ResourceInterface, before, stored *unstructured.Unstructured) (string, error) {
	p := replacement(before.Object, stored.Object)
	if p == nil {
		return "", nil
	}
	title := newResult(stored).Title()
	progress, over, failed := rolledOut(stored.Object)
	began := time.Now()
	for moved := began; !over && !failed; {
		if time.Since(moved) >= w.Patience {
			break
		}
		if w.Waiting != nil {
			w.Waiting(title, progress)
		}
		if err := Sleep(ctx, pollRollout); err != nil {
			return "", err
		}
		now, err := client.Get(ctx, stored.GetName(), metav1.GetOptions{})
		if err != nil {
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			continue // no more useful than an answer without progress
		}
		was := progress
		if progress, over, failed = rolledOut(now.Object); progress != was {
			moved = time.Now()
		}
	}
	if !over {
		w.stuck = fmt.Sprintf("the rollout of %s is not over (%s)", title, progress)
		return "its rollout is not over: " + progress, nil
	}
	return p.String(), nil
}

// rolledOut returns the progress of a workload's rollout, as kubectl rollout status does. A
// paused rollout, and a kind without rollouts, count as over. failed: the controller has given
// up.
func rolledOut(o map[string]any) (progress string, over, failed bool) {
	u := unstructured.Unstructured{Object: o}
	kind := u.GetKind()
	if group := u.GroupVersionKind().Group; group != "apps" || kind != "Deployment" && kind != "DaemonSet" && kind != "StatefulSet" || field(o, "spec", "paused") == true {
		return "", true, false
	}
	if int64(number(o, 0, "status", "observedGeneration")) < u.GetGeneration() {
		return "its controller has not seen the write yet", false, false
	}
	status := func(name string) int { return number(o, 0, "status", name) }
	updated, available, old := status("updatedReplicas"), status("availableReplicas"), 0
	all := number(o, 1, "spec", "replicas")
	want := all
	switch kind {
	case "Deployment":
		old = status("replicas") - updated
		conditions, _ := field(o, "status", "conditions").([]any)
		for _, c := range conditions {
			if c, _ := c.(map[string]any); c["type"] == "Progressing" && c["reason"] == "ProgressDeadlineExceeded" {
				failed = true
			}
		}
	case "StatefulSet":
		partition := number(o, 0, "spec", "updateStrategy", "rollingUpdate", "partition")
		if want = max(0, all-partition); partition == 0 && field(o, "status", "currentRevision") != field(o, "status", "updateRevision") {
			old = 1
		}
	case "DaemonSet":
		all, updated, available = status("desiredNumberScheduled"), status("updatedNumberScheduled"), status("numberAvailable")
		want = all
	}
	progress = fmt.Sprintf("%d of %d Pods updated, %d available", updated, want, available)
	if failed {
		return progress + ", progress deadline exceeded", false, true
	}
	return progress, updated >= want && available >= all && old <= 0, false
}
