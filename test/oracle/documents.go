package oracle

import (
	"go/build"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// document returns the OpenAPI v3 document of a built-in group-version.
func document(gv schema.GroupVersion) ([]byte, bool) {
	name := "apis__" + gv.Group + "__" + gv.Version
	if gv.Group == "" {
		name = "api__" + gv.Version
	}
	dir := os.Getenv("GOMODCACHE")
	if dir == "" {
		dir = filepath.Join(strings.Split(build.Default.GOPATH, ":")[0], "pkg", "mod")
	}
	data, err := os.ReadFile(filepath.Join(dir, "k8s.io", "kubernetes@v1.37.1", "api", "openapi-spec", "v3", name+"_openapi.json"))
	return data, err == nil
}
