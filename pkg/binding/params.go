package binding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Params looks up parameter objects. It is called for every matching request, so it should
// answer from memory. An implementation waits for a cache to fill, asks the server when a named
// object is missing, and returns parameters in the form that policies see (spec §3.2).
type Params interface {
	// Kind says whether a kind's objects have namespaces. An error means that
	// the server does not serve the kind.
	Kind(gvk schema.GroupVersionKind) (namespaced bool, err error)
	// Get returns one object; the error of a missing one is apierrors.IsNotFound.
	// The namespace is empty for cluster-scoped kinds.
	Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error)
	// List returns the objects that sel matches, in any order. An empty namespace
	// means all of them.
	List(ctx context.Context, gvk schema.GroupVersionKind, namespace string, sel labels.Selector) ([]*unstructured.Unstructured, error)
}

// paramRef is a binding's paramRef, parsed.
type paramRef struct {
	*admissionregistrationv1.ParamRef // nil: none
	selector                          labels.Selector
	selectorErr                       error
}

func newParamRef(ref *admissionregistrationv1.ParamRef) paramRef {
	p := paramRef{ParamRef: ref}
	if ref != nil && ref.Selector != nil {
		p.selector, p.selectorErr = metav1.LabelSelectorAsSelector(ref.Selector)
	}
	return p
}

// errNoParams is the server's text.
var errNoParams = errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")

// collect resolves a binding's parameters for a request in namespace (spec §3.1;
// k8s.io/apiserver …/policy/generic/policy_dispatcher.go: CollectParams). If it returns neither
// parameters nor an error, the binding is skipped.
func (p *paramRef) collect(ctx context.Context, params Params, kind schema.GroupVersionKind, namespaced bool, namespace string) ([]*unstructured.Unstructured, error) {
	if namespaced {
		if p.Namespace != "" {
			namespace = p.Namespace
		} else if namespace == "" {
			return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
		}
	} else {
		if p.Namespace != "" {
			return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
		}
		namespace = ""
	}

	var found []*unstructured.Unstructured
	switch {
	case p.Name != "":
		if p.Selector != nil {
			return nil, errors.New("paramRef.name and paramRef.selector are mutually exclusive")
		}
		param, err := params.Get(ctx, kind, namespace, p.Name)
		switch {
		case err == nil && param != nil:
			found = []*unstructured.Unstructured{param}
		case err != nil && !apierrors.IsNotFound(err):
			return nil, err
		}
	case p.Selector != nil:
		if p.selectorErr != nil {
			return nil, p.selectorErr
		}
		list, err := params.List(ctx, kind, namespace, p.selector)
		if err != nil {
			return nil, err
		}
		found = SortParams(list)
	default:
		return nil, errors.New("one of name or selector must be provided")
	}

	if len(found) == 0 && p.ParameterNotFoundAction != nil && *p.ParameterNotFoundAction == admissionregistrationv1.DenyAction {
		return nil, errNoParams
	}
	return found, nil
}

// SortParams returns the list sorted by namespace and name. It does not modify the given list,
// which may belong to a cache.
func SortParams(list []*unstructured.Unstructured) []*unstructured.Unstructured {
	if !slices.IsSortedFunc(list, compareParams) {
		list = slices.Clone(list)
		slices.SortStableFunc(list, compareParams)
	}
	return list
}

func compareParams(a, b *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// unknownParamKind is the server's text for a paramKind that it cannot resolve.
func unknownParamKind(gvk schema.GroupVersionKind) error {
	return fmt.Errorf("failed to find resource referenced by paramKind: '%v'", gvk)
}
