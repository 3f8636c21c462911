package openapi

import (
	"reflect"
	"strings"
)

// Describe returns what a field is for: what the Go type of a built-in kind says, or else
// its CustomResourceDefinition, "" if that is nothing. The elements of lists are no steps of
// the path.
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

// describeType returns what a field of a Go type is for.
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

// nameOf returns the name of a field in JSON, "" if it has none of its own.
func nameOf(f reflect.StructField) string {
	tag := f.Tag.Get("json")
	if tag == "-" {
		return ""
	}
	name, _, _ := strings.Cut(tag, ",")
	return name
}

// descriptionsFile names the file with what a type says of its fields: that of its package.
func descriptionsFile(t reflect.Type) string {
	return strings.ReplaceAll(t.PkgPath(), "/", "_") + ".descriptions"
}
