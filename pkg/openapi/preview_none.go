//go:build mapd_stable

package openapi

import (
	"embed"

	"k8s.io/apimachinery/pkg/runtime"
)

var (
	previews  []func(*runtime.Scheme) error
	moreFiles embed.FS
)
