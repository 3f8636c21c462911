package compact

import (
	"bytes"
	"reflect"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

func ptr[T any](v T) *T { return &v }

var example = schema.Schema{Types: []schema.TypeDef{
	{Name: "a", Atom: schema.Atom{Scalar: ptr(schema.Numeric)}},
	{Name: "b", Atom: schema.Atom{Map: &schema.Map{
		Fields: []schema.StructField{
			{Name: "n", Default: float64(80), Type: schema.TypeRef{NamedType: ptr("a"), Nullable: true}},
			{Name: "o", Default: map[string]any{}, Type: schema.TypeRef{NamedType: ptr("c"), ElementRelationship: ptr(schema.Atomic)}},
			{Name: "p", Type: schema.TypeRef{Inlined: schema.Atom{Scalar: ptr(schema.Untyped), List: &schema.List{ElementType: schema.TypeRef{NamedType: ptr("a")}}}}},
		},
		ElementType: schema.TypeRef{NamedType: ptr("b")},
	}}},
	{Name: "c", Atom: schema.Atom{List: &schema.List{
		ElementRelationship: schema.Associative,
		Keys:                []string{"n", "p"},
		ElementType:         schema.TypeRef{NamedType: ptr("b")},
	}}},
}}

func TestDecodeGivesWhatWasEncoded(t *testing.T) {
	data, err := Encode(&example)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Types, example.Types) {
		t.Errorf("Decode(Encode(s)) = %+v, want %+v", got.Types, example.Types)
	}
	again, err := Encode(got)
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("encoding it again gives other bytes: %v", err)
	}
}

func TestDecodeRefusesWhatEndsEarly(t *testing.T) {
	data, err := Encode(&example)
	if err != nil {
		t.Fatal(err)
	}
	for n := range data {
		if _, err := Decode(data[:n]); err == nil {
			t.Errorf("Decode of the first %d of %d bytes succeeded", n, len(data))
		}
	}
	if _, err := Decode(append(data, 0)); err == nil {
		t.Error("Decode with a byte too many succeeded")
	}
}

func TestEncodeRefusesUnions(t *testing.T) {
	s := schema.Schema{Types: []schema.TypeDef{{Name: "u", Atom: schema.Atom{Map: &schema.Map{Unions: []schema.Union{{}}}}}}}
	if _, err := Encode(&s); err == nil {
		t.Error("Encode of a union succeeded")
	}
}
