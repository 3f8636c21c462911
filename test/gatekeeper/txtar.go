package gatekeeper

import (
	"fmt"
	"strings"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Txtar writes a case as a file for test/cases/gatekeeper, without what is
// wanted. A float without a fraction becomes an integer there.
func (c Case) Txtar(headline string) string {
	a := &txtar.Archive{Comment: []byte(headline + "\n\n")}
	section := func(name string, docs ...any) {
		var texts []string
		for _, doc := range docs {
			data, err := yaml.Marshal(doc)
			if err != nil {
				data = fmt.Appendf(nil, "%v\n", err)
			}
			texts = append(texts, string(data))
		}
		a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(strings.Join(texts, "---\n"))})
	}
	var mutators, crds []any
	for _, m := range c.Mutators {
		mutators = append(mutators, m.Object)
	}
	for _, d := range definitions {
		if kind, _, _ := unstructured.NestedString(d.Object, "spec", "names", "kind"); kind == c.Request.Object["kind"] {
			crds = append(crds, d.Object)
		}
	}
	section("mutators.yaml", mutators...)
	if crds != nil {
		section("crds.yaml", crds...)
	}
	if c.Request.NamespaceObject != nil {
		section("namespaces.yaml", c.Request.NamespaceObject)
	}
	section("request.yaml", map[string]any{"operation": c.Request.Operation, "namespace": c.Request.Namespace, "object": c.Request.Object})
	return string(txtar.Format(a))
}
