package binding

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"
)

// validateRow is one document of testdata/validate: a merge patch on the first
// one and what a server says to the result.
type validateRow struct {
	Name  string          `json:"name"`
	Patch json.RawMessage `json:"patch"`
	Want  []string        `json:"want"`
}

func readRows(t testing.TB) (base []byte, rows []validateRow) {
	t.Helper()
	data, err := os.ReadFile("testdata/validate/bindings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, doc := range strings.Split(string(data), "\n---\n") {
		var r validateRow
		if err := yaml.UnmarshalStrict([]byte(doc), &r); err != nil {
			t.Fatalf("document %d: %v", i+1, err)
		}
		rows = append(rows, r)
	}
	return rows[0].Patch, rows[1:]
}

// TestValidate compares the whole answer with the one observed on a server.
func TestValidate(t *testing.T) {
	base, rows := readRows(t)
	for _, r := range rows {
		t.Run(r.Name, func(t *testing.T) {
			data, err := jsonpatch.MergePatch(base, r.Patch)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(r.Want, complaints(data)); diff != "" {
				t.Errorf("%s\n-server +mapd\n%s", data, diff)
			}
		})
	}
}

func complaints(data []byte) []string {
	obj, err := DecodeJSON(data)
	if err != nil {
		return []string{"decode: " + err.Error()}
	}
	var texts []string
	for _, err := range Validate(obj) {
		texts = append(texts, err.Error())
	}
	return texts
}
