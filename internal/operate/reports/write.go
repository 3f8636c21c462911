package reports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/words"
)

// Write makes the cluster's reports equal to those of the audit: it creates and updates reports
// that differ, and removes mapd's reports of namespaces without results. said is a summary of the
// changes. If a report cannot be written, the others still are.
func (c *Collector) Write(ctx context.Context, cluster *audit.Cluster, f *audit.Finished) (said string, err error) {
	c.end(f.Report)
	w := &writer{Collector: c, cluster: cluster, audit: f}
	for _, kind := range []string{c.api.clusterKind, c.api.kind} {
		r, ok := cluster.Serves(c.api.group, kind, c.api.version)
		if !ok {
			return "", fmt.Errorf("the cluster does not serve %s of %s/%s: install its CustomResourceDefinitions, or leave --reports out", kind, c.api.group, c.api.version)
		}
		if err := w.write(ctx, r); err != nil {
			return "", err
		}
	}
	said = fmt.Sprintf("%s: %d created, %d updated, %d unchanged; %d removed", words.Count(len(c.namespaces), "report", "reports"), w.created, w.updated, w.unchanged, w.removed)
	if c.unplaced > 0 {
		said += fmt.Sprintf("; %s of further namespaces: there are at most %d reports", words.Count(c.unplaced, "result", "results"), maxReports)
	}
	if len(w.errs) > 0 {
		return said, fmt.Errorf("%s not written, the first: %w", words.Count(len(w.errs), "report is", "reports are"), w.errs[0])
	}
	return said, nil
}

// writer has the state of one call of Write.
type writer struct {
	*Collector
	cluster *audit.Cluster
	audit   *audit.Finished

	created, updated, unchanged, removed int
	errs                                 []error
}

// write writes the reports of one kind. It first compares all of them with the stored ones, and
// only then writes: if the pages of a list were read between writes, the list might expire.
func (w *writer) write(ctx context.Context, r audit.Resource) error {
	updates, removed, missing := map[string][]byte{}, map[string]types.UID{}, map[string]bool{}
	for namespace := range w.namespaces {
		if (namespace != "") == r.Namespaced {
			missing[namespace] = true
		}
	}
	err := w.cluster.EachLabelled(ctx, r, selector, func(stored *unstructured.Unstructured) error {
		namespace := stored.GetNamespace()
		switch {
		case stored.GetName() != reportName:
		case !missing[namespace]:
			removed[namespace] = stored.GetUID()
		default:
			delete(missing, namespace)
			if !update(stored, w.object(namespace, w.audit.Ended)) {
				w.unchanged++
				break
			}
			text, err := json.Marshal(stored) // JSON takes a fraction of the memory of the object
			updates[namespace] = text
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	client := w.cluster.Dynamic.Resource(r.GVR)
	// done counts or records the outcome of a write. It ignores namespaces that were deleted.
	done := func(namespace string, err error, n *int) error {
		switch {
		case err == nil:
			*n++
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		default:
			w.errs = append(w.errs, fmt.Errorf("%s %s: %w", r.GVK.Kind, strings.TrimPrefix(namespace+"/"+reportName, "/"), err))
		}
		return nil
	}
	for _, namespace := range slices.Sorted(maps.Keys(removed)) {
		uid := removed[namespace]
		err := client.Namespace(namespace).Delete(ctx, reportName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err := done(namespace, err, &w.removed); err != nil {
			return err
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(updates)) {
		u := &unstructured.Unstructured{}
		err := u.UnmarshalJSON(updates[namespace])
		if err == nil {
			_, err = client.Namespace(namespace).Update(ctx, u, metav1.UpdateOptions{})
		}
		if err := done(namespace, err, &w.updated); err != nil {
			return err
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(missing)) {
		_, err := client.Namespace(namespace).Create(ctx, w.object(namespace, w.audit.Ended), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = errors.New("it exists without the label " + selector + ", so it is somebody else's and left alone")
		}
		if err := done(namespace, err, &w.created); err != nil {
			return err
		}
	}
	return nil
}

// update gives a stored report the contents of now, and reports whether that changes it. Results
// that stored has already keep their timestamps, and labels and annotations of others are kept.
func update(stored, now *unstructured.Unstructured) (changed bool) {
	keepTimes(stored, now)
	annotations := stored.GetAnnotations()
	cut, was := now.GetAnnotations()[cutAnnotation], annotations[cutAnnotation]
	if cut == was && reflect.DeepEqual(stored.Object["summary"], now.Object["summary"]) && reflect.DeepEqual(stored.Object["results"], now.Object["results"]) {
		return false
	}
	labels := stored.GetLabels()
	maps.Copy(labels, now.GetLabels())
	stored.SetLabels(labels)
	delete(annotations, cutAnnotation)
	if cut != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[cutAnnotation] = cut
	}
	stored.SetAnnotations(annotations)
	for _, field := range []string{"source", "summary", "results", "configuration"} {
		if v, ok := now.Object[field]; ok {
			stored.Object[field] = v
		}
	}
	return true
}

// keepTimes gives the results of now the timestamps that the same results have in stored.
func keepTimes(stored, now *unstructured.Unstructured) {
	times := map[string]any{}
	old, _ := stored.Object["results"].([]any)
	for _, r := range old {
		if r, ok := r.(map[string]any); ok && r["timestamp"] != nil {
			times[identity(r)] = r["timestamp"]
		}
	}
	for _, r := range now.Object["results"].([]any) { // Collector.object always sets it
		r := r.(map[string]any)
		if t, ok := times[identity(r)]; ok {
			r["timestamp"] = t
		}
	}
}

// identity returns a key that is equal for the same result in two audits.
func identity(r map[string]any) string {
	var subject map[string]any
	if list, ok := r["resources"].([]any); ok && len(list) > 0 {
		subject, _ = list[0].(map[string]any)
	}
	return fmt.Sprintf("%q", []any{r["policy"], r["rule"], r["result"], r["severity"], r["message"], subject["kind"], subject["name"], subject["uid"]})
}
