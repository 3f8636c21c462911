package engine

import (
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrNoConversion is what Options.Convert returns, or wraps, for two versions between which it
// cannot convert. Mutations of a policy that need the conversion fail as they do on a server,
// which cannot convert built-in kinds directly either (spec §2.3).
var ErrNoConversion = errors.New("no conversion known")

// WithVersion returns obj under another apiVersion and kind, sharing everything
// else. For a custom resource whose CustomResourceDefinition has the conversion
// strategy None, this is the whole conversion.
func WithVersion(obj *unstructured.Unstructured, to schema.GroupVersionKind) *unstructured.Unstructured {
	root := maps.Clone(obj.Object)
	if root == nil {
		root = map[string]any{}
	}
	root["apiVersion"], root["kind"] = to.ToAPIVersionAndKind()
	return &unstructured.Unstructured{Object: root}
}

// unknownConversion returns the server's error for a result that cannot be converted back from
// the matched version to the request's.
func unknownConversion(from, to schema.GroupVersionKind) error {
	if from.Group != to.Group {
		return fmt.Errorf("%s.%s is not suitable for converting to %q", from.Version, from.Kind, to.GroupVersion())
	}
	return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", from.Version, from.Kind, to.Version, to.Kind)
}

// convert returns obj converted to the version to. Nil stays nil.
func (o *Options) convert(obj *unstructured.Unstructured, from, to schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	switch {
	case obj == nil || from == to:
		return obj, nil
	case o.Convert == nil:
		return nil, ErrNoConversion
	}
	out, err := o.Convert(obj, to)
	if err == nil && out == nil {
		return nil, ErrNoConversion
	}
	return out, err
}
