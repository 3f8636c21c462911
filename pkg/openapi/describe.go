package openapi

import (
	"reflect"
	"strings"
)

// Describe returns the description of a field: from the Go type of a built-in kind, or else
// from its CustomResourceDefinition; "" if there is none. path has no steps for the elements of
// lists.
func (k *Kind) Describe(path ...string) string {
	if k.goType != nil {
		return describeType(k.goType.typ, path)
	}
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

// describeType returns the description of a field of a Go type.
func describeType(t reflect.Type, path []string) string {
	var owner reflect.Type
	for _, step := range path {
		if owner, t = fieldOf(elem(t), step); t == nil {
			return ""
		}
	}
	if owner == nil {
		return ""
	}
	return descriptions(owner)[path[len(path)-1]]
}

func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// fieldOf returns the struct that has a field of this name in JSON, and the field's type.
func fieldOf(t reflect.Type, name string) (owner, field reflect.Type) {
	if t.Kind() != reflect.Struct {
		return nil, nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag := nameOf(f)
		if f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
			if owner, field = fieldOf(f.Type, name); field != nil {
				return owner, field
			}
		}
		if tag == name && name != "" {
			return t, f.Type
		}
	}
	return nil, nil
}

// nameOf returns the name of a field in its JSON tag, "" if that has none.
func nameOf(f reflect.StructField) string {
	tag := f.Tag.Get("json")
	if tag == "-" {
		return ""
	}
	name, _, _ := strings.Cut(tag, ",")
	return name
}

// descriptionsFile returns the name of the file with the descriptions of a type's fields: that
// of its package.
func descriptionsFile(t reflect.Type) string {
	return strings.ReplaceAll(t.PkgPath(), "/", "_") + ".descriptions"
}
