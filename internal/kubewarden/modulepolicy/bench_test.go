package modulepolicy_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/kubewarden/download"
	"github.com/mapd-project/mapd/internal/kubewarden/modulepolicy"
	"github.com/mapd-project/mapd/pkg/mapd"
)

const dropByCEL = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [0, 1, 2, 3].filter(i, i < size(object.spec.containers)).map(i, JSONPatch{op: "add", path: "/spec/containers/" + string(i) + "/securityContext",
        value: Object.spec.containers.securityContext{capabilities: Object.spec.containers.securityContext.capabilities{drop: ["BPF"]}}})
`

// BenchmarkDrop drops a capability from a Pod, by a policy in CEL and by the example's
// guest: from a request to a decision, one after the other. The instance of a guest
// is made ahead, on another core if there is one.
func BenchmarkDrop(b *testing.B) {
	module := filepath.Join(b.TempDir(), "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", module, ".")
	cmd.Dir = "../../../examples/kubewarden/drop-capabilities/guest"
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	fetcher, err := download.New(download.Options{})
	if err != nil {
		b.Fatal(err)
	}
	l, err := modulepolicy.New(context.Background(), modulepolicy.Options{Modules: fetcher})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ name, text string }{
		{"cel", dropByCEL},
		{"guest", strings.ReplaceAll(policyText, "MODULE", module) + "  settings: {drop: [BPF]}\n"},
	} {
		p, err := mapd.Load(mapd.Options{Modules: l, Unbound: true}, mapd.File{Name: "policies.yaml", Data: []byte(c.text)})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			r := request(b)
			b.ReportAllocs()
			for b.Loop() {
				d := p.Engine().Admit(b.Context(), r)
				list, _, _ := unstructured.NestedSlice(d.Object.Object, "spec", "containers")
				drop, _, _ := unstructured.NestedStringSlice(list[0].(map[string]any), "securityContext", "capabilities", "drop")
				if len(drop) != 1 || drop[0] != "BPF" {
					b.Fatalf("decision %+v", d)
				}
			}
		})
	}
}
