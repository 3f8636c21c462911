// Package manifests answers "what is applied to a cluster to run mapd?".
//
// Its folders are for people: base and overlays for kustomize, chart for Helm,
// install.yaml for kubectl alone. The package carries install.yaml inside the
// binary, so that `mapd install` applies what the release documents, without a
// network, and what overlays add, so that `mapd uninstall` finds it.
//
// base is where an object is written; install.yaml and the definitions in the
// chart are made from it by `go generate`, and a test fails when they are stale.
package manifests

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:generate go test . -run ^TestGenerated$ -update

//go:embed install.yaml
var install []byte

//go:embed overlays/*/*.yaml
var overlays embed.FS

// Image is the image that the Deployment in Install runs, without its tag.
const Image = "ghcr.io/mapd-project/mapd"

// Install returns install.yaml: the objects of base as one stream of YAML
// documents, in the order in which they must be applied. The caller may modify
// it.
func Install() []byte {
	return slices.Clone(install)
}

// Additions returns what the overlays add to base, as one stream of YAML documents: the
// files that their kustomizations name, and so none of their patches.
func Additions() ([]byte, error) {
	var all []byte
	dirs, err := overlays.ReadDir("overlays")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		in := "overlays/" + dir.Name() + "/"
		text, err := overlays.ReadFile(in + "kustomization.yaml")
		if err != nil {
			return nil, err
		}
		var k struct {
			Resources []string `json:"resources"`
		}
		if err := yaml.Unmarshal(text, &k); err != nil {
			return nil, fmt.Errorf("%skustomization.yaml: %w", in, err)
		}
		for _, name := range k.Resources {
			if strings.HasPrefix(name, "../") { // base, or another overlay
				continue
			}
			text, err := overlays.ReadFile(in + name)
			if err != nil {
				return nil, err
			}
			all = append(append(all, "---\n"...), text...)
		}
	}
	return all, nil
}
