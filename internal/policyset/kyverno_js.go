package policyset

import (
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/policy"
)

// convertsKyverno is false, because the size of the playground's program is limited and the
// converter would enlarge it. There, Kyverno's policies count like any other objects.
const convertsKyverno = false

func convertKyverno(*manifest.Document, policy.Deps) *converted { return &converted{} }
