package openapi

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPlace(t *testing.T) {
	tests := map[string]struct {
		path   string // "*" is an element
		gone   bool
		scalar string
		keys   string
		atomic bool
	}{
		"scalar":                      {path: "spec.containers.*.image", scalar: "string"},
		"number":                      {path: "spec.securityContext.fsGroup", scalar: "numeric"},
		"quantity":                    {path: "spec.containers.*.resources.limits.cpu", scalar: "untyped"},
		"list with a key":             {path: "spec.containers", keys: "name"},
		"list with two keys":          {path: "spec.containers.*.ports", keys: "containerPort,protocol"},
		"atomic list":                 {path: "spec.containers.*.args", atomic: true},
		"atomic struct":               {path: "spec.containers.*.env.*.valueFrom.secretKeyRef", atomic: true},
		"value of a map":              {path: "metadata.labels.anything", scalar: "string"},
		"undeclared":                  {path: "spec.foo", gone: true},
		"below a scalar":              {path: "spec.containers.*.image.x", gone: true},
		"element of what is no list":  {path: "spec.*", gone: true},
		"field of what is an element": {path: "spec.containers.name", gone: true},
	}
	kind, err := New(Builtin()).Kind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, ok := kind.Root()
			for step := range strings.SplitSeq(tt.path, ".") {
				if !ok {
					break
				}
				if step == "*" {
					p, ok = p.Element()
				} else {
					p, ok = p.Field(step)
				}
			}
			if ok == tt.gone {
				t.Fatalf("%s is there: %v, want %v", tt.path, ok, !tt.gone)
			}
			if !ok {
				return
			}
			if p.Scalar() != tt.scalar || strings.Join(p.Keys(), ",") != tt.keys || p.Atomic() != tt.atomic {
				t.Errorf("%s: scalar %q, keys %q, atomic %v, want %q, %q, %v",
					tt.path, p.Scalar(), p.Keys(), p.Atomic(), tt.scalar, tt.keys, tt.atomic)
			}
		})
	}
	if root, _ := kind.Root(); !root.Declares("spec") || root.Declares("foo") {
		t.Errorf("Declares(spec), Declares(foo) = %v, %v, want true, false", root.Declares("spec"), root.Declares("foo"))
	}
	scale, _ := New(Builtin()).Kind(schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"})
	if _, ok := scale.Root(); ok {
		t.Error("a kind without a schema has a root")
	}
}
