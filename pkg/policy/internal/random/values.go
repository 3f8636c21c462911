package random

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/pkg/cel"
)

// Places lists the pointers into a value and what is there.
func Places(v any, at string, visit func(at string, v any)) {
	visit(at, v)
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			Places(e, at+"/"+k, visit)
		}
	case []any:
		for i, e := range v {
			Places(e, fmt.Sprintf("%s/%d", at, i), visit)
		}
	}
}

// Copies are ops whose values share nothing with anything.
func Copies(ops []cel.PatchOp) []cel.PatchOp {
	out := make([]cel.PatchOp, len(ops))
	for i, op := range ops {
		op.Value = runtime.DeepCopyJSONValue(op.Value)
		out[i] = op
	}
	return out
}
