package modulepolicy

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// payload returns the question about a request, as JSON: {"request":…,"settings":…}. Fields
// without a value are omitted, even objects (Kubewarden spec §2.3).
func payload(in policy.Input, settings []byte) ([]byte, error) {
	r := in.Request
	kind, resource, sub := r.RequestKind, r.RequestResource, r.RequestSubResource
	if kind.Empty() {
		kind = r.Kind
	}
	if resource.Empty() {
		resource, sub = r.Resource, r.SubResource
	}
	user, err := json.Marshal(r.UserInfo) // leaves out what is empty
	if err != nil {
		return nil, err
	}
	b := append([]byte(`{"request":{"uid":`), quoted(string(r.UID))...)
	b = append(append(b, `,"kind":`...), kindJSON(in.Kind)...)
	b = append(append(b, `,"resource":`...), resourceJSON(in.Resource)...)
	b = field(b, "subResource", r.SubResource)
	b = append(append(b, `,"requestKind":`...), kindJSON(kind)...)
	b = append(append(b, `,"requestResource":`...), resourceJSON(resource)...)
	b = field(b, "requestSubResource", sub)
	b = field(b, "name", r.Name)
	b = field(b, "namespace", r.Namespace)
	b = field(b, "operation", string(r.Operation))
	b = append(append(b, `,"userInfo":`...), user...)
	for _, o := range []struct {
		name   string
		object *unstructured.Unstructured
	}{{"object", in.Object}, {"oldObject", in.OldObject}} {
		if o.object == nil {
			continue
		}
		b = append(append(append(b, `,"`...), o.name...), `":`...)
		if b, err = tree.AppendJSON(b, o.object.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
	}
	b = fmt.Appendf(b, `,"dryRun":%t`, r.DryRun)
	if r.Options != nil {
		if b, err = tree.AppendJSON(append(b, `,"options":`...), r.Options); err != nil {
			return nil, fmt.Errorf("options: %w", err)
		}
	}
	b = append(b, `},"settings":`...)
	return append(append(b, settings...), '}'), nil
}

func field(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return tree.AppendString(b, value)
}

func quoted(s string) []byte { return tree.AppendString(nil, s) }

func kindJSON(k schema.GroupVersionKind) string {
	return fmt.Sprintf(`{"group":%s,"version":%s,"kind":%s}`, quoted(k.Group), quoted(k.Version), quoted(k.Kind))
}

func resourceJSON(r schema.GroupVersionResource) string {
	return fmt.Sprintf(`{"group":%s,"version":%s,"resource":%s}`, quoted(r.Group), quoted(r.Version), quoted(r.Resource))
}
