package lsp

import (
	"reflect"
	"strings"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// describe returns what a field of a built-in kind is for, as its Go type documents it. The
// texts are a megabyte, so package language does without.
func describe(kind *openapi.Kind, path []string) string {
	t := kind.GoType()
	doc := ""
	for i := -1; i < len(path) && t != nil; i++ {
		if i >= 0 {
			if t, doc = field(t, path[i]); t == nil {
				return ""
			}
		}
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
	}
	return doc
}

// field returns the type of a field by its name in JSON, and its documentation.
func field(t reflect.Type, name string) (reflect.Type, string) {
	if t.Kind() != reflect.Struct {
		return nil, ""
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
			if inner, doc := field(f.Type, name); inner != nil {
				return inner, doc
			}
		}
		if tag == name && name != "" {
			documented, ok := reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string })
			if !ok {
				return f.Type, ""
			}
			return f.Type, documented.SwaggerDoc()[name]
		}
	}
	return nil, ""
}
