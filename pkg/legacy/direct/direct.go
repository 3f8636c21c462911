// Package direct answers one question: what would Gatekeeper have made of this
// object?
//
// It interprets mutators as Gatekeeper 3.23.1 does, its quirks included: what
// one application writes to several places is one value and stays one, a pruned
// path is created, errors have Gatekeeper's words. mapd does not mutate with it.
// It is what the translation to CEL is held against, with which it shares
// nothing, and it finds the words when a mutation fails.
//
// External data is not supported: a mutator that asks for it fails.
package direct

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// Context is what a mutation knows besides the object. The object itself carries
// the request's namespace in metadata.namespace (Gatekeeper spec §9.2).
type Context struct {
	Namespace map[string]any // the Namespace that the object is in; nil: none is known
	Operation string         // CREATE or UPDATE; "" outside of a request
	Source    string         // Original or Generated
	UID       string         // names the mutation in errors
}

// Apply runs one mutator once, without asking whether it matches, and reports
// whether it got as far as its last node; what it writes there may be what was
// there. obj is not modified.
func Apply(m *legacy.Mutator, obj map[string]any, c Context) (next map[string]any, touched bool, err error) {
	next = runtime.DeepCopyJSON(obj)
	touched, err = apply(m, next, c)
	if err != nil || !touched {
		return obj, false, err
	}
	return next, true, nil
}

// apply modifies obj in place. After an error obj is good for nothing.
func apply(m *legacy.Mutator, obj map[string]any, c Context) (bool, error) {
	touched, err := walk(m, obj)
	if err != nil {
		return false, fmt.Errorf("mutation %s for mutator %s failed for %s: %w", c.UID, m, describe(obj), err)
	}
	return touched, nil
}

// describe names an object as Gatekeeper's errors do: by group, kind, namespace
// and name, with gaps where there is none.
func describe(obj map[string]any) string {
	u := unstructured.Unstructured{Object: obj}
	gvk := u.GroupVersionKind()
	name := u.GetName()
	if name == "" {
		name = u.GetGenerateName()
	}
	return fmt.Sprintf("%s %s %s %s", gvk.Group, gvk.Kind, u.GetNamespace(), name)
}
