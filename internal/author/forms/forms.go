// Package forms answers one question: which fields may a document for mapd have, and what are
// they for?
//
// It has the forms of policies, bindings and exceptions, of Gatekeeper's mutators and of suites,
// as JSON schemas. Editors use them to complete and check documents, and the published schemas
// are made from them. The fields of other objects are in pkg/openapi. Start reading at Of.
package forms

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mapd-project/mapd/pkg/api"
)

//go:generate go test . -run ^TestGenerated$ -update

// Form is a JSON schema, restricted to the keywords that forms use.
type Form struct {
	Description string           `json:"description,omitempty"`
	Type        Types            `json:"type,omitempty"`
	Const       any              `json:"const,omitempty"`
	Enum        []any            `json:"enum,omitempty"`
	Required    []string         `json:"required,omitempty"`
	Fields      map[string]*Form `json:"properties,omitempty"`
	Items       *Form            `json:"items,omitempty"`
	Others      *Others          `json:"additionalProperties,omitempty"`
	AnyOf       []*Form          `json:"anyOf,omitempty"`
	Ref         string           `json:"$ref,omitempty"`
}

// Types are the names of the types that a value may have; empty: any.
type Types []string

// UnmarshalJSON reads a name or a list of them.
func (t *Types) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = Types{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// Others says which other fields a map or a record may have besides its known ones: none, or
// values of a form.
type Others struct {
	Form *Form // nil: no other fields
}

// UnmarshalJSON reads false or a schema.
func (o *Others) UnmarshalJSON(data []byte) error {
	if string(data) == "false" {
		return nil
	}
	o.Form = &Form{}
	if string(data) == "true" {
		return nil
	}
	return json.Unmarshal(data, o.Form)
}

// The files of the forms. mutators.json is written by hand; the others are made by go generate, from the
// definitions in manifests/base and from the types of package suite.
//
//go:embed admission.json
var admissionFile []byte

//go:embed suite.json
var suiteFile []byte

//go:embed mutators.json
var mutatorsFile []byte

// kinds are the forms of mutators and of what is defined beside them, and of policies,
// bindings and exceptions, by kind.
type kinds struct {
	Kinds map[string]*Form `json:"kinds"`
	Parts map[string]*Form `json:"$defs"`
}

func read(name string, data []byte) map[string]*Form {
	var k kinds
	if err := json.Unmarshal(data, &k); err != nil {
		panic(fmt.Errorf("%s: %w", name, err)) // the files are part of the program, so this is a bug
	}
	for _, f := range k.Kinds {
		f.resolve(k.Parts)
	}
	return k.Kinds
}

// resolve replaces a reference by its target. A description next to the reference stays.
func (f *Form) resolve(parts map[string]*Form) {
	if f == nil {
		return
	}
	if name := strings.TrimPrefix(f.Ref, "#/$defs/"); f.Ref != "" {
		description := f.Description
		*f = *parts[name]
		if description != "" {
			f.Description = description
		}
	}
	for name, field := range f.Fields {
		own := *field
		own.resolve(parts)
		f.Fields[name] = &own
	}
	f.Items.resolve(parts)
	if f.Others != nil {
		f.Others.Form.resolve(parts)
	}
}

var (
	admission = sync.OnceValue(func() map[string]*Form { return read("admission.json", admissionFile) })
	mutators  = sync.OnceValue(func() map[string]*Form { return read("mutators.json", mutatorsFile) })
	suites    = sync.OnceValue(func() *Form {
		var f Form
		if err := json.Unmarshal(suiteFile, &f); err != nil {
			panic(fmt.Errorf("suite.json: %w", err)) // the file is part of the program, so this is a bug
		}
		return &f
	})
)

// Kind is the apiVersion and the kind of a document that has a Form.
type Kind struct{ APIVersion, Kind string }

// nativeVersions are those of Kubernetes' own policies, the newest first.
var nativeVersions = []string{"v1", "v1beta1", "v1alpha1"}

// Kinds returns all kinds that have a form, the most frequently written first.
var Kinds = sync.OnceValue(func() (out []Kind) {
	for _, kind := range []string{api.PolicyKind, api.BindingKind} {
		for _, version := range nativeVersions {
			out = append(out, Kind{api.NativeGroup + "/" + version, kind})
		}
		out = append(out, Kind{api.OwnGroup + "/v1", kind})
	}
	for _, kind := range []string{"Assign", "AssignImage", "AssignMetadata", "ModifySet"} {
		for _, version := range nativeVersions {
			if kind != "AssignImage" || version == "v1alpha1" {
				out = append(out, Kind{api.MutationsGroup + "/" + version, kind})
			}
		}
	}
	return append(out, Kind{api.ExceptionGroup + "/" + api.ExceptionVersion, api.ExceptionKind}, Kind{SuiteVersion, SuiteKind})
})

// SuiteVersion and SuiteKind are those of suites.
const (
	SuiteVersion = "test.mapd.dev/v1alpha1"
	SuiteKind    = "Suite"
)

// Of returns the form of a kind, nil if it has none.
func Of(apiVersion, kind string) *Form {
	if !slices.Contains(Kinds(), Kind{apiVersion, kind}) {
		return nil
	}
	group, _, _ := strings.Cut(apiVersion, "/")
	switch group {
	case api.NativeGroup, api.OwnGroup, api.ExceptionGroup:
		return admission()[kind]
	case api.MutationsGroup:
		return mutators()[kind]
	}
	return suites()
}

// Embedded reports whether a value may be an object of any kind.
func (f *Form) Embedded() bool {
	return slices.Contains(f.Type, "object") && f.Fields == nil && f.Others == nil
}

// Values returns the values that the form lists, in YAML.
func (f *Form) Values() (out []string) {
	all := f.Enum
	if f.Const != nil {
		all = append(all, f.Const)
	}
	if slices.Contains(f.Type, "boolean") {
		all = append(all, true, false)
	}
	for _, part := range f.AnyOf {
		out = append(out, part.Values()...)
	}
	for _, v := range all {
		switch text := fmt.Sprint(v); text {
		case "*", "":
			out = append(out, `"`+text+`"`)
		default:
			out = append(out, text)
		}
	}
	return out
}
