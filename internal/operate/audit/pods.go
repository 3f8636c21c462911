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

// Replacement says what a write does to Pods that run.
type Replacement struct {
	// Pods is how many Pods are replaced; -1 if the kind is not one of Kubernetes' own, and
	// so the number is not known.
	Pods int `json:"pods"`
	// Restarts says that it is a Pod, whose containers restart.
	Restarts bool `json:"restarts,omitempty"`
	// AtOnce says that all Pods end before the first new one begins (strategy Recreate).
	AtOnce bool `json:"atOnce,omitempty"`
	// Paused says that the Pods are replaced when somebody resumes the Deployment.
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

// replacement returns what writing after over before does to Pods that run, nil if nothing.
// A template is used at once by Deployments, DaemonSets and StatefulSets. In other kinds of
// Kubernetes' own it is for Pods to come, and so it is with the strategy OnDelete. Whoever has
// defined another kind with a template of Pods can replace them.
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

// ownedTemplate returns the Deployment whose ReplicaSet gets another template by a write, ""
// if there is none. The Deployment would take the ReplicaSet for an older one, and make
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

// Writer has what a write needs, be it of what policies make of an object or of what it was.
type Writer struct {
	Cluster *Cluster
	// DryRun has the API server check each write and store none.
	DryRun bool
	// ReplacePods allows writes that have Pods replaced. Without it their outcome is LeftOut.
	// After such a write of a workload the Writer waits until its rollout is over. If that makes
	// no progress for Patience, further such writes are left out.
	ReplacePods bool
	Patience    time.Duration
	// Waiting is called with how far a rollout is; nil is not.
	Waiting func(title, progress string)

	stuck string // the rollout that is not over
}

// leftOut returns why a write is not made for the sake of Pods, "" if it is.
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

// await waits until the Pods that a write replaces are replaced, and says what it did.
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
			continue // of no more use than an answer without progress
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

// rolledOut says how far the rollout of a workload is, as kubectl rollout status does. Of a
// kind without rollouts, and of one that is paused, it is over at once. failed reports that
// the controller has given up.
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
