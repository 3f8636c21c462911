package openapi

import (
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/openapi/internal/compact"
)

// What the generator wrote is what is written of the schema that was read.
func TestCompactSchemas(t *testing.T) {
	for _, d := range builtin().index.Documents {
		data, err := readSchema(strings.TrimSuffix(d.File, ".json.zst")+".schema", d.Size)
		if err != nil {
			t.Fatal(err)
		}
		s, err := compact.Decode(data)
		if err != nil {
			t.Fatalf("%s: %v", d.File, err)
		}
		again, err := compact.Encode(s)
		if err != nil || string(again) != string(data) {
			t.Errorf("%s: Encode after Decode gives other bytes (error %v)", d.File, err)
		}
	}
}

func TestCompactRefusesWhatEndsEarly(t *testing.T) {
	data, err := readSchema("policy_v1.schema", 1<<15)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compact.Decode(data); err != nil {
		t.Fatal(err)
	}
	for n := range data {
		if _, err := compact.Decode(data[:n]); err == nil {
			t.Fatalf("Decode of the first %d of %d bytes succeeded", n, len(data))
		}
	}
	if _, err := compact.Decode(append(data, 0)); err == nil {
		t.Error("Decode with a byte too many succeeded")
	}
}
