// Package direct answers one question: what would Gatekeeper return for this object?
//
// It interprets mutators as Gatekeeper 3.23.1 does, including its quirks: a value that one
// application writes to several places stays one shared value, a prune creates its path, errors
// have Gatekeeper's texts. mapd does not mutate with this package. It is the reference for the
// translation to CEL, with which it shares no code, and it supplies the error text when a
// mutation fails.
//
// A mutator with external data leaves a [tree.Pending] in the place of its value.
package direct

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// Context is the input of a mutation besides the object. The object itself has the request's
// namespace in metadata.namespace (Gatekeeper spec §9.2).
type Context struct {
	Namespace map[string]any // the object's Namespace; nil if it is not known
	Operation string         // CREATE or UPDATE; "" outside of a request
	Source    string         // Original or Generated
	UID       string         // names the mutation in errors
	Username  string         // for external data
	// Charge, if not nil, is called before memory is used, and may refuse it.
	Charge func(bytes int) error
}

// Apply runs one mutator once, without checking whether it matches. touched reports whether it
// reached the last node of its location; the value that it writes there may equal the old one.
// obj is not modified; next shares the unchanged parts with it.
func Apply(m *legacy.Mutator, obj map[string]any, c Context) (next map[string]any, touched bool, err error) {
	next, touched, err = apply(m, obj, c, true)
	if err != nil || !touched {
		return obj, false, err
	}
	return next, true, nil
}

// apply is Apply if copies is set. Otherwise it modifies obj in place, and obj must be
// discarded after an error.
func apply(m *legacy.Mutator, obj map[string]any, c Context, copies bool) (map[string]any, bool, error) {
	next, touched, err := walk(m, obj, c, copies)
	if err != nil {
		return nil, false, fmt.Errorf("mutation %s for mutator %s failed for %s: %w", c.UID, m, describe(obj), err)
	}
	return next, touched, nil
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
