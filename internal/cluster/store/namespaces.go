package store

import (
	"context"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/watch"
)

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// namespaces implements binding.Namespaces from memory. A Namespace that is missing there may be
// new, so the API server is asked, as it does itself (k8s.io/apiserver
// pkg/admission/plugin/webhook/predicates/namespace: GetNamespaceLabels). Its answer is not
// cached.
type namespaces struct {
	*watch.Mirror[*unstructured.Unstructured]
	client dynamic.Interface
}

// newNamespaces returns namespaces that call read once all Namespaces have been read.
func newNamespaces(client dynamic.Interface, log *slog.Logger, read func()) namespaces {
	return namespaces{watch.New(watch.Options[*unstructured.Unstructured]{
		Client: client, Resource: namespaceResource, Log: log, Keep: keepNamespace, Changed: sync.OnceFunc(read), EmptyAfter: goneAfter,
	}), client}
}

// Namespace implements binding.Namespaces.
func (n namespaces) Namespace(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	if u, ok := n.Get("", name); ok {
		return u, nil
	}
	u, err := n.client.Resource(namespaceResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return keepNamespace(u, nil), nil
}

// keepNamespace reduces a Namespace to what policies in an API server see: without managedFields,
// which its informers drop, and without apiVersion and kind, which its Go type does not contain.
// It modifies u.
func keepNamespace(u, _ *unstructured.Unstructured) *unstructured.Unstructured {
	meta, _ := u.Object["metadata"].(map[string]any)
	delete(meta, "managedFields")
	delete(u.Object, "apiVersion")
	delete(u.Object, "kind")
	return u
}
