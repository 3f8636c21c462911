package policyset

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/binding"
)

// Namespaces has the given Namespace objects. A Namespace that was not given is invented on
// demand, with nothing but its name and what every server adds; Synthesised returns these names.
type Namespaces struct {
	given binding.MemoryNamespaces

	mu     sync.Mutex
	madeUp map[string]*unstructured.Unstructured
}

// maxMadeUp bounds the remembered invented Namespaces, because their names come from requests.
const maxMadeUp = 10_000

func newNamespaces() *Namespaces {
	return &Namespaces{given: binding.MemoryNamespaces{}, madeUp: map[string]*unstructured.Unstructured{}}
}

// add takes a Namespace, which policies see as a server stores it.
func (n *Namespaces) add(u *unstructured.Unstructured) {
	n.given[u.GetName()] = binding.StoredNamespace(u)
}

// Namespace returns a Namespace. It invents one if none was given.
func (n *Namespaces) Namespace(_ context.Context, name string) (*unstructured.Unstructured, error) {
	if u, ok := n.given[name]; ok {
		return u, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if u, ok := n.madeUp[name]; ok {
		return u, nil
	}
	u := binding.StoredNamespace(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}})
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
