package snapshot

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/binding"
)

// Namespaces are the Namespace objects that were given. One that was not is made
// up, with nothing but its name and the label that every server gives it, and
// remembered in Synthesised.
type Namespaces struct {
	given binding.MemoryNamespaces

	mu     sync.Mutex
	madeUp map[string]*unstructured.Unstructured
}

// maxMadeUp bounds what is kept of names that came in requests.
const maxMadeUp = 10_000

func newNamespaces() *Namespaces {
	return &Namespaces{given: binding.MemoryNamespaces{}, madeUp: map[string]*unstructured.Unstructured{}}
}

// add takes a Namespace as policies are to see it.
func (n *Namespaces) add(u *unstructured.Unstructured) {
	obj := maps.Clone(u.Object)
	meta, _ := obj["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	labels, _ := meta["labels"].(map[string]any)
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]any{}
	}
	labels[corev1.LabelMetadataName] = u.GetName()
	meta["labels"] = labels
	obj["metadata"] = meta
	n.given[u.GetName()] = &unstructured.Unstructured{Object: obj}
}

// Namespace returns a Namespace; every name has one.
func (n *Namespaces) Namespace(_ context.Context, name string) (*unstructured.Unstructured, error) {
	if u, ok := n.given[name]; ok {
		return u, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if u, ok := n.madeUp[name]; ok {
		return u, nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name, "labels": map[string]any{corev1.LabelMetadataName: name}},
	}}
	if len(n.madeUp) < maxMadeUp {
		n.madeUp[name] = u
	}
	return u, nil
}

// Synthesised are the names of the Namespaces that were asked for and not given,
// sorted.
func (n *Namespaces) Synthesised() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.madeUp))
}
