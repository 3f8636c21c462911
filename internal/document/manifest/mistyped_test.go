package manifest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// A decoder that does not name the field may mean any value, so none is blamed.
func TestMistypedWithoutField(t *testing.T) {
	for d, err := range ReadStream("in.yaml", strings.NewReader("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")) {
		if err != nil {
			t.Fatal(err)
		}
		got := d.ErrorOf("", &json.UnmarshalTypeError{Value: "string", Type: reflect.TypeFor[map[string]string]()})
		if text := got.Error(); !strings.HasPrefix(text, "in.yaml: document 1, line 1, column 1: must be an object, not a string") {
			t.Errorf("%q", text)
		}
	}
}
