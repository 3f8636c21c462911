package openapi

import "reflect"

// Describe returns what a CustomResourceDefinition says of a field, "" if it says nothing or
// if the kind is built in. The elements of lists are no steps of the path.
func (k *Kind) Describe(path ...string) string {
	if k.custom == nil {
		return ""
	}
	at := k.custom.structural
	for _, step := range path {
		for at != nil && at.Items != nil {
			at = at.Items
		}
		if at == nil {
			return ""
		}
		next, ok := at.Properties[step]
		switch {
		case ok:
			at = &next
		case at.AdditionalProperties != nil:
			at = at.AdditionalProperties.Structural
		default:
			return ""
		}
	}
	if at == nil {
		return ""
	}
	return at.Description
}

// GoType returns the Go type of a built-in kind, nil for others.
func (k *Kind) GoType() reflect.Type {
	if k.goType == nil {
		return nil
	}
	return k.goType.typ
}
