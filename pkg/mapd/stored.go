package mapd

import (
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/tree"
)

// stored returns a decision with the object as a server stores it, and the fields that policies
// changed and a server drops without a warning: after admission it restores the old values of
// the fields that the request may not write. A request for the subresource status writes status
// and, of built-in kinds, most of metadata; one for the object itself writes everything but
// status, if status is a subresource. stored returns d itself if nothing is dropped.
func (p *Policies) stored(r *Request, d *engine.Decision) (*engine.Decision, []string) {
	q := r.Admission
	if r.review || r.kind == nil || !d.Changed || d.Status != nil || q.Object == nil || q.Operation != admissionv1.Create && q.Operation != admissionv1.Update {
		return d, nil
	}
	res, ok := p.loaded.Types.ResourceFor(q.Kind)
	if !ok || !slices.Contains(res.Subresources, "status") {
		return d, nil
	}
	before, after := q.Object.Object, d.Object.Object
	kept := after
	switch q.SubResource {
	case "":
		// A kubelet creates its Node with a status.
		if q.Kind.GroupKind() != (schema.GroupKind{Kind: "Node"}) || q.Operation != admissionv1.Create {
			kept = withFieldsOf(after, before, "status")
		}
	case "status":
		kept = map[string]any{}
		for _, field := range []string{"metadata", "status"} {
			if v, ok := after[field]; ok {
				kept[field] = v
			}
		}
		for field, v := range before {
			if field != "metadata" && field != "status" {
				kept[field] = v
			}
		}
		if fields := keptMetadata[q.Kind.GroupKind()]; len(fields) > 0 {
			kept["metadata"] = withFieldsOf(metadataOf(after), metadataOf(before), fields...)
		} else if !r.Builtin() {
			kept["metadata"] = before["metadata"]
		}
	}
	if tree.Equal(kept, after) {
		return d, nil
	}
	var dropped []string
	for _, c := range report.Diff(kept, after, p.keys(d.Object)) {
		dropped = append(dropped, c.Path)
	}
	changed := *d
	changed.Changed, changed.Object = true, &unstructured.Unstructured{Object: kept}
	if tree.Equal(kept, before) {
		changed.Changed, changed.Object = false, q.Object
	}
	return &changed, dropped
}

func metadataOf(obj map[string]any) map[string]any {
	m, _ := obj["metadata"].(map[string]any)
	return m
}

// withFieldsOf returns obj with the named fields replaced by those of from.
func withFieldsOf(obj, from map[string]any, fields ...string) map[string]any {
	out := maps.Clone(obj)
	for _, field := range fields {
		if v, ok := from[field]; ok {
			out[field] = v
		} else {
			delete(out, field)
		}
	}
	return out
}

// keptMetadata has the fields of metadata that a request for status does not write, for
// the built-in kinds that have any (k8s.io/kubernetes/pkg/registry, the strategies for
// status). A request for the status of a custom resource writes no metadata at all.
var keptMetadata = func() map[schema.GroupKind][]string {
	all := []string{"labels", "annotations", "finalizers", "ownerReferences"}
	kinds := map[schema.GroupKind][]string{
		{Kind: "Pod"}:                       {"ownerReferences"},
		{Group: "apps", Kind: "Deployment"}: {"labels"},
	}
	for group, names := range map[string][]string{
		"admissionregistration.k8s.io": {"ValidatingAdmissionPolicy"},
		"apiregistration.k8s.io":       {"APIService"},
		"certificates.k8s.io":          {"PodCertificateRequest"},
		"flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
		"internal.apiserver.k8s.io":    {"StorageVersion"},
		"lifecycle.k8s.io":             {"Eviction", "EvictionRequest"},
		"networking.k8s.io":            {"ServiceCIDR"},
		"resource.k8s.io":              {"ResourceClaim", "DeviceTaintRule", "ResourcePoolStatusRequest"},
		"scheduling.k8s.io":            {"PodGroup", "CompositePodGroup"},
		"storage.k8s.io":               {"CSINode", "VolumeAttachment"},
		"storagemigration.k8s.io":      {"StorageVersionMigration"},
	} {
		for _, name := range names {
			kinds[schema.GroupKind{Group: group, Kind: name}] = all
		}
	}
	return kinds
}()
