package suite

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/author/suite/cases"
	"github.com/mapd-project/mapd/pkg/mapd"
)

var (
	sourceType    = reflect.TypeFor[source]()
	valueType     = reflect.TypeFor[value]()
	denialType    = reflect.TypeFor[denial]()
	operationType = reflect.TypeFor[operation]()
	modeType      = reflect.TypeFor[mode]()
	caseType      = reflect.TypeFor[testCase]()
	denialFields  = reflect.TypeFor[cases.DenialText]()

	modes      = []string{"written", "enforce"}
	operations = []string{"CREATE", "UPDATE", "CONNECT", "DELETE"}
)

// decoder fills Go values from a document and collects what does not fit.
type decoder struct {
	doc  *mapd.Document
	errs []error
}

func (d *decoder) fail(path, format string, args ...any) {
	d.errs = append(d.errs, d.doc.ErrorAt(path, fmt.Errorf(format, args...)))
}

// decode sets out to v, which stands at path.
func (d *decoder) decode(path string, v any, out reflect.Value) {
	t := out.Type()
	switch {
	case t == valueType || t.Kind() == reflect.Interface && t.Name() == "":
		if v != nil {
			out.Set(reflect.ValueOf(v))
		}
	case t == sourceType:
		switch v.(type) {
		case string, map[string]any:
			out.Set(reflect.ValueOf(v))
		default:
			d.fail(path, "%s: want the name of a file or an object, not %s", path, typeName(v))
		}
	case t == denialType:
		switch v := v.(type) {
		case bool:
			if !v {
				d.fail(path, "%s: want true or a message; leave it out if the request is admitted", path)
			}
			out.Set(reflect.ValueOf(v))
		case map[string]any:
			text := reflect.New(denialFields).Elem()
			d.decode(path, v, text)
			out.Set(reflect.ValueOf(text.Interface()))
		default:
			d.fail(path, "%s: want true or a record with message, contains or matches, not %s", path, typeName(v))
		}
	case t == operationType:
		s, _ := v.(string)
		if s = strings.ToUpper(s); !slices.Contains(operations, s) {
			d.fail(path, "%s: want one of %s", path, strings.Join(operations, ", "))
		}
		out.SetString(s)
	case t == modeType:
		s, _ := v.(string)
		if !slices.Contains(modes, s) {
			d.fail(path, "%s: want one of %s", path, strings.Join(modes, ", "))
		}
		out.SetString(s)
	case t.Kind() == reflect.Pointer:
		out.Set(reflect.New(t.Elem()))
		d.decode(path, v, out.Elem())
	case t.Kind() == reflect.Struct:
		d.record(path, v, out)
	case t.Kind() == reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			d.fail(path, "%s: want a list, not %s", path, typeName(v))
			return
		}
		out.Set(reflect.MakeSlice(t, len(list), len(list)))
		for i, e := range list {
			d.decode(fmt.Sprintf("%s[%d]", path, i), e, out.Index(i))
		}
	case t.Kind() == reflect.Map:
		m, ok := v.(map[string]any)
		if !ok {
			d.fail(path, "%s: want a map, not %s", path, typeName(v))
			return
		}
		out.Set(reflect.MakeMap(t))
		for _, k := range slices.Sorted(maps.Keys(m)) {
			e := reflect.New(t.Elem()).Elem()
			d.decode(path+"["+k+"]", m[k], e)
			out.SetMapIndex(reflect.ValueOf(k), e)
		}
	case t.Kind() == reflect.Bool:
		if b, ok := v.(bool); ok {
			out.SetBool(b)
			return
		}
		d.fail(path, "%s: want true or false, not %s", path, typeName(v))
	default:
		if s, ok := v.(string); ok {
			out.SetString(s)
			return
		}
		d.fail(path, "%s: want a text, not %s", path, typeName(v))
	}
}

// record sets the fields of a struct.
func (d *decoder) record(path string, v any, out reflect.Value) {
	m, ok := v.(map[string]any)
	if !ok {
		d.fail(path, "%s: want a record, not %s", path, typeName(v))
		return
	}
	below := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	t := out.Type()
	// The rows of a table make cases of the rest, which is decoded with their values.
	template := t == caseType && m["table"] != nil
	known := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("json")
		known[name] = true
		e, there := m[name]
		switch {
		case template && name != "name" && name != "table":
		case there && (e != nil || f.Type == valueType):
			d.decode(below(name), e, out.Field(i))
		case f.Tag.Get("need") != "":
			d.fail(path, "%s is required", below(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !known[name] {
			fields := slices.Sorted(maps.Keys(known))
			d.errs = append(d.errs, d.doc.ErrorAtKey(below(name), fmt.Errorf("unknown field %s; want one of %s", below(name), strings.Join(fields, ", "))))
		}
	}
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a text"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case map[string]any:
		return "a record"
	}
	return "a number"
}

// Schema returns the JSON schema of suites, for editors.
func Schema() []byte {
	s := schemaOf(reflect.TypeFor[suite]())
	s["$schema"] = "https://json-schema.org/draft-07/schema#"
	s["title"] = "A suite of mapd test"
	fields := s["properties"].(map[string]any)
	fields["apiVersion"].(map[string]any)["const"] = APIVersion
	fields["kind"].(map[string]any)["const"] = Kind
	out, _ := json.MarshalIndent(s, "", "  ") // it has nothing but maps and texts
	return append(out, '\n')
}

func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t == valueType || t.Kind() == reflect.Interface && t.Name() == "":
		return map[string]any{}
	case t == sourceType:
		return map[string]any{"type": []string{"string", "object"}}
	case t == denialType:
		text := schemaOf(denialFields)
		return map[string]any{"anyOf": []any{map[string]any{"const": true}, text}}
	case t == operationType:
		return map[string]any{"type": "string", "enum": operations}
	case t == modeType:
		return map[string]any{"type": "string", "enum": modes}
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem())
	case t.Kind() == reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case t.Kind() == reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case t.Kind() == reflect.Struct:
		fields, need := map[string]any{}, []string{}
		for i := range t.NumField() {
			f := t.Field(i)
			s := schemaOf(f.Type)
			s["description"] = f.Tag.Get("doc")
			fields[f.Tag.Get("json")] = s
			if f.Tag.Get("need") != "" {
				need = append(need, f.Tag.Get("json"))
			}
		}
		s := map[string]any{"type": "object", "properties": fields, "additionalProperties": false}
		if len(need) > 0 {
			s["required"] = need
		}
		return s
	}
	return map[string]any{"type": "string"}
}
