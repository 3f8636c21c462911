// Package manifests answers "what is applied to a cluster to run mapd?".
//
// Its folders are for people: base and overlays for kustomize, chart for Helm,
// install.yaml for kubectl alone. The package carries install.yaml inside the
// binary, so that `mapd install` applies what the release documents, without a
// network.
//
// base is where an object is written; install.yaml and the definitions in the
// chart are made from it by `go generate`, and a test fails when they are stale.
package manifests

import (
	_ "embed"
	"slices"
)

//go:generate go test . -run ^TestGenerated$ -update

//go:embed install.yaml
var install []byte

// Image is the image that the Deployment in Install runs, without its tag.
const Image = "ghcr.io/mapd-project/mapd"

// Install returns install.yaml: the objects of base as one stream of YAML
// documents, in the order in which they must be applied. The caller may modify
// it.
func Install() []byte {
	return slices.Clone(install)
}
