package modulepolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/kubewarden/wapc"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/tree"
)

// host answers the host calls of one evaluation: reads of the kinds in the policy's
// contextAwareResources (Kubewarden spec §3). It implements wapc.Host.
type host struct {
	policy  *kubewarden.Policy
	objects binding.Params
	account *memory.Account
}

// Charge charges the memory of the module to the request. Package wapc calls it.
func (h *host) Charge(n int64) error { return h.account.Charge(n) }

// query has the parameters of the operations that read objects.
type query struct {
	APIVersion    string   `json:"api_version"`
	Kind          string   `json:"kind"`
	Name          string   `json:"name"`
	Namespace     *string  `json:"namespace"`
	DisableCache  bool     `json:"disable_cache"`
	LabelSelector *string  `json:"label_selector"`
	FieldSelector *string  `json:"field_selector"`
	FieldMasks    []string `json:"field_masks"`
}

// HostCall implements wapc.Host. It checks in policy-server's order and returns policy-server's
// texts.
func (h *host) HostCall(ctx context.Context, namespace, scope, operation string, payload []byte) ([]byte, error) {
	if namespace != "kubewarden" || scope != "kubernetes" || operation == "can_i" {
		return nil, wapc.Unsupported(namespace, scope, operation)
	}
	switch operation {
	case "get_resource", "list_resources_by_namespace", "list_resources_all":
	default:
		return nil, wapc.Unsupported(namespace, scope, operation)
	}
	var q query
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, fmt.Errorf("%s: invalid request: %w", operation, err)
	}
	gvk := schema.FromAPIVersionAndKind(q.APIVersion, q.Kind)
	if !slices.Contains(h.policy.ContextAware, gvk) {
		return nil, notGranted{q.APIVersion, q.Kind}
	}
	answer, err := h.answer(ctx, operation, gvk, &q)
	if err != nil {
		return nil, notAnswered{err}
	}
	return answer, nil
}

// notGranted and notAnswered have policy-server's texts.
type notGranted struct{ apiVersion, kind string }

func (e notGranted) Error() string {
	return fmt.Sprintf("Policy has not been granted access to Kubernetes %s/%s resources. The violation has been reported.", e.apiVersion, e.kind)
}

type notAnswered struct{ error }

func (e notAnswered) Error() string { return "Callback evaluation failure: " + e.error.Error() }

func (h *host) answer(ctx context.Context, operation string, gvk schema.GroupVersionKind, q *query) ([]byte, error) {
	namespaced, err := h.objects.Kind(gvk)
	if err != nil {
		return nil, err
	}
	namespace := ""
	if q.Namespace != nil && namespaced {
		namespace = *q.Namespace
	}
	mask := newMask(q.FieldMasks)
	if operation == "get_resource" {
		if namespaced && namespace == "" {
			return nil, fmt.Errorf("%s %q: a namespace is needed", gvk.Kind, q.Name)
		}
		u, err := h.objects.Get(ctx, gvk, namespace, q.Name)
		if err == nil && u == nil {
			err = apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, q.Name)
		}
		if err != nil {
			return nil, err
		}
		return h.encode(nil, gvk, u, mask)
	}
	if operation == "list_resources_all" {
		namespace = ""
	} else if namespace == "" && namespaced {
		return nil, errors.New("a namespace is needed")
	}
	selector, matches, err := q.selectors()
	if err != nil {
		return nil, err
	}
	list, err := h.objects.List(ctx, gvk, namespace, selector)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(slices.Clone(list), func(u *unstructured.Unstructured) bool { return !matches(u) })
	slices.SortFunc(list, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	b := append([]byte(`{"apiVersion":`), quoted(gvk.GroupVersion().String())...)
	b = append(append(b, `,"kind":`...), quoted(gvk.Kind+"List")...)
	b = append(b, `,"metadata":{},"items":[`...)
	for i, u := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = h.encode(b, gvk, u, mask); err != nil {
			return nil, err
		}
		if len(b) > maxList {
			return nil, fmt.Errorf("the list has more than %d MiB; ask for less with label_selector or field_masks", maxList>>20)
		}
	}
	return append(b, "]}"...), nil
}

// maxList bounds the bytes that one host call returns.
const maxList = 8 << 20

// encode appends an object as an API server encodes it, reduced to the fields in m.
func (h *host) encode(b []byte, gvk schema.GroupVersionKind, u *unstructured.Unstructured, m mask) ([]byte, error) {
	whole := maps.Clone(u.Object)
	whole["apiVersion"], whole["kind"] = gvk.ToAPIVersionAndKind()
	var value any = whole
	if m != nil {
		value, _ = m.of(whole)
	}
	before := len(b)
	b, err := tree.AppendJSON(b, value)
	if err != nil {
		return nil, err
	}
	return b, h.account.Charge(int64(len(b) - before))
}

// selectors returns a label selector and a field filter for the objects of a list.
func (q *query) selectors() (labels.Selector, func(*unstructured.Unstructured) bool, error) {
	selector, every := labels.Everything(), func(*unstructured.Unstructured) bool { return true }
	if q.LabelSelector != nil {
		var err error
		if selector, err = labels.Parse(*q.LabelSelector); err != nil {
			return nil, nil, fmt.Errorf("label_selector: %w", err)
		}
	}
	if q.FieldSelector == nil || *q.FieldSelector == "" {
		return selector, every, nil
	}
	by, err := fields.ParseSelector(*q.FieldSelector)
	if err != nil {
		return nil, nil, fmt.Errorf("field_selector: %w", err)
	}
	for _, r := range by.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return nil, nil, fmt.Errorf("field_selector: %q is not supported; metadata.name and metadata.namespace are", r.Field)
		}
	}
	return selector, func(u *unstructured.Unstructured) bool {
		return by.Matches(fields.Set{"metadata.name": u.GetName(), "metadata.namespace": u.GetNamespace()})
	}, nil
}

// mask is a tree of the fields that a module asks for; a leaf stands for everything below it.
type mask map[string]mask

// newMask returns the mask for dotted paths, nil if there are none.
func newMask(paths []string) mask {
	if len(paths) == 0 {
		return nil
	}
	m := mask{}
	for _, path := range paths {
		at := m
		for _, step := range strings.Split(path, ".") {
			if at[step] == nil {
				at[step] = mask{}
			}
			at = at[step]
		}
	}
	return m
}

// of returns the parts of v that the mask selects. Lists on the way are filtered element by
// element.
func (m mask) of(v any) (any, bool) {
	if len(m) == 0 {
		return v, true
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, below := range m {
			if value, ok := v[name]; ok {
				if part, ok := below.of(value); ok {
					out[name] = part
				}
			}
		}
		return out, true
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			if part, ok := m.of(e); ok {
				out = append(out, part)
			}
		}
		return out, true
	}
	return nil, false
}
