// Package smd has the names of structured-merge-diff that mapd uses. Only this package imports
// that library, whose import paths contain its major version: a new major version changes only
// this file and go.mod. `make next` builds mapd with the next one by replacing the number in
// this file.
package smd

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// The schemas of objects.
type (
	Schema              = schema.Schema
	TypeDef             = schema.TypeDef
	TypeRef             = schema.TypeRef
	Atom                = schema.Atom
	Scalar              = schema.Scalar
	Map                 = schema.Map
	List                = schema.List
	StructField         = schema.StructField
	ElementRelationship = schema.ElementRelationship
)

// The forms of a map, a list or a scalar in a schema.
const (
	Associative = schema.Associative
	Atomic      = schema.Atomic
	Separable   = schema.Separable

	Numeric = schema.Numeric
	String  = schema.String
	Boolean = schema.Boolean
	Untyped = schema.Untyped
)

// Paths below an object.
type (
	PathElement = fieldpath.PathElement
	Path        = fieldpath.Path
	Set         = fieldpath.Set
)

// NewSet returns a set of paths.
func NewSet(paths ...Path) *Set { return fieldpath.NewSet(paths...) }

// Values below an object.
type (
	Value     = value.Value
	Field     = value.Field
	FieldList = value.FieldList
)

// NewValueInterface returns a Value of decoded JSON.
func NewValueInterface(v any) Value { return value.NewValueInterface(v) }

// Objects with their schemas.
type (
	TypedValue        = typed.TypedValue
	ParseableType     = typed.ParseableType
	Parser            = typed.Parser
	ValidationErrors  = typed.ValidationErrors
	ValidationOptions = typed.ValidationOptions
)

// AllowDuplicates makes an associative list with equal keys valid.
const AllowDuplicates = typed.AllowDuplicates

// WithAppendKeyFields makes ExtractItems keep the keys of the elements that it extracts.
func WithAppendKeyFields() typed.ExtractItemsOption { return typed.WithAppendKeyFields() }

// DeducedParseableType is the type of an object without a schema.
var DeducedParseableType = typed.DeducedParseableType

// AsTyped returns a Value with its schema, or the errors of the Value.
func AsTyped(v Value, s *Schema, t TypeRef, opts ...ValidationOptions) (*TypedValue, error) {
	return typed.AsTyped(v, s, t, opts...)
}

// NewParser returns the types of a schema in YAML.
func NewParser(text typed.YAMLObject) (*Parser, error) { return typed.NewParser(text) }
