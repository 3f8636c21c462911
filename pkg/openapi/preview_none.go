//go:build mapd_stable

package openapi

import (
	"k8s.io/apimachinery/pkg/runtime"
)

var previews []func(*runtime.Scheme) error
