package legacy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/lookup"
)

// Unknown returns a note for each field of a mutator that Gatekeeper's definitions lack and
// that an API server drops, sorted by path. The mutator need not be valid.
func Unknown(u *unstructured.Unstructured) []Note {
	gvk := u.GroupVersionKind()
	if !IsMutator(gvk) {
		return nil
	}
	r := &reader{asked: map[string]*asked{}}
	m := &Mutator{Kind: Kind(gvk.Kind), Name: u.GetName()}
	m.read(r, u.Object)
	var list []Note
	for path, a := range r.asked {
		switch {
		case path == "":
			a.names = append(a.names, "apiVersion", "kind")
		case path != "spec" && !strings.HasPrefix(path, "spec."):
			continue // written by the API server
		}
		for name := range a.in {
			if slices.Contains(a.names, name) {
				continue
			}
			n := Note{object{path: path}.at(name), fmt.Sprintf("%s has no such field", m.Kind)}
			if near := lookup.Nearest(name, a.names); near != "" {
				n.Message += "; did you mean " + near + "?"
			} else if spec := r.asked["spec"]; path == "" && spec != nil && slices.Contains(spec.names, name) {
				n.Message += "; did you mean spec." + name + "?"
			}
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b Note) int { return strings.Compare(a.Field, b.Field) })
	return list
}
