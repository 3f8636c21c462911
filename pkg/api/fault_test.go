package api

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestFaultsOf(t *testing.T) {
	decoding := func(text string) error {
		spellings := Spellings{OwnGroup + "/v1": func() any { return new(admissionregistrationv1.MutatingAdmissionPolicy) }}
		_, err := DecodeSpelling([]byte(text), PolicyKind, spellings, new(admissionregistrationv1.MutatingAdmissionPolicy))
		return err
	}
	const head = `{"apiVersion": "admissionregistration.mapd.dev/v1", "kind": "MutatingAdmissionPolicy", `
	name := field.NewPath("metadata", "name")
	type fault struct {
		Text, Path string
		Undeclared bool
	}
	tests := map[string]struct {
		err  error
		text string
		want []fault
	}{
		"unknown and duplicate fields": {
			err:  decoding(head + `"spec": {"a.b": 1, "failurePolicy": "Fail", "failurePolicy": "Fail", "mutations": [{"x": 1}]}, "status": {}}`),
			text: `strict decoding error: unknown field "spec.a.b", duplicate field "spec.failurePolicy", unknown field "spec.mutations[0].x"`,
			want: []fault{
				{Text: `strict decoding error: unknown field "spec.a.b"`, Path: "spec.a.b", Undeclared: true},
				{Text: `strict decoding error: duplicate field "spec.failurePolicy"`, Path: "spec.failurePolicy", Undeclared: true},
				{Text: `strict decoding error: unknown field "spec.mutations[0].x"`, Path: "spec.mutations[0].x", Undeclared: true},
			},
		},
		"a wrong type": {
			err:  decoding(head + `"spec": {"variables": [{"name": 3}]}}`),
			text: `json: cannot unmarshal number into Go struct field Variable.spec.variables.name of type string`,
			want: []fault{{
				Text: `json: cannot unmarshal number into Go struct field Variable.spec.variables.name of type string`,
				Path: "spec.variables.name",
			}},
		},
		"fields of a custom kind, wrapped": {
			err:  fmt.Errorf("Widget w: %w", UnknownFields([]string{"a", "b"})),
			text: `Widget w: strict decoding error: unknown field "a", unknown field "b"`,
			want: []fault{
				{Text: `strict decoding error: unknown field "a"`, Path: "a", Undeclared: true},
				{Text: `strict decoding error: unknown field "b"`, Path: "b", Undeclared: true},
			},
		},
		"a form, as one error": {
			err:  FormFaults(field.Required(name, ""), field.Duplicate(name, "x")).ToAggregate(),
			text: `[metadata.name: Required value, metadata.name: Duplicate value: "x"]`,
			want: []fault{
				{Text: "metadata.name: Required value", Path: "metadata.name"},
				{Text: `metadata.name: Duplicate value: "x"`, Path: "metadata.name"},
			},
		},
		"expressions": {
			err: Faults{
				NewFault(Compiling, name, "1 +", errors.New("syntax")),
				{Phase: Compiling, Err: errors.New("no such kind")},
			},
			text: "metadata.name: syntax\nno such kind",
			want: []fault{{Text: "metadata.name: syntax", Path: "metadata.name"}, {Text: "no such kind"}},
		},
		"something else": {err: errors.New("no"), text: "no", want: []fault{{Text: "no"}}},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			if tt.err.Error() != tt.text {
				t.Errorf("text %q, want %q", tt.err, tt.text)
			}
			var got []fault
			for _, f := range FaultsOf(tt.err) {
				got = append(got, fault{f.Error(), f.Path, f.Undeclared})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
	if FaultsOf(nil) != nil || (Faults)(nil).ToAggregate() != nil {
		t.Error("nothing is wrong with nothing")
	}
}
