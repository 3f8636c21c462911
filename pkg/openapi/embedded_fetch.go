//go:build mapd_fetch

package openapi

import (
	"encoding/json"
	"errors"
	"reflect"
	"sync"
)

// ReadSchema returns the merge schema of a built-in group-version by the name of its file, such
// as core_v1.schema. With the build tag mapd_fetch the program embeds none, and has to set
// ReadSchema before it uses this package; internal/site writes the files. It is called when a
// kind of the group-version is first needed, and again at the next use if it failed. The
// function that needs the schema then panics with the error.
var ReadSchema = func(string) ([]byte, error) { return nil, errors.New("ReadSchema is not set") }

func readSchema(file string, _ int) ([]byte, error) { return ReadSchema(file) }

// ReadDescriptions returns the descriptions of the fields of a Go package's types by the name
// of its file, such as k8s.io_api_core_v1.descriptions. It is like ReadSchema, but if it fails,
// Describe returns "".
var ReadDescriptions = func(string) ([]byte, error) { return nil, errors.New("ReadDescriptions is not set") }

var described struct {
	sync.Mutex
	files map[string]map[string]map[string]string // by file, type and field
}

// descriptions returns the descriptions of a type's fields.
func descriptions(t reflect.Type) map[string]string {
	described.Lock()
	defer described.Unlock()
	file := descriptionsFile(t)
	if _, ok := described.files[file]; !ok {
		data, err := ReadDescriptions(file)
		if err != nil {
			return nil
		}
		var types map[string]map[string]string
		if err := json.Unmarshal(data, &types); err != nil {
			return nil
		}
		if described.files == nil {
			described.files = map[string]map[string]map[string]string{}
		}
		described.files[file] = types
	}
	return described.files[file][t.Name()]
}
