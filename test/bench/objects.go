package bench

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/test/bench/pods"
	"github.com/mapd-project/mapd/test/cases"
)

// An Object is the object of a request.
type Object struct {
	Name     string
	kind     schema.GroupVersionKind
	resource string
	podSpec  []string // where the Pod's spec is
	tree     *unstructured.Unstructured
}

// Objects are the small and the big ones of the project's goals: with 3 containers, and with 20
// that have 40 environment variables each. All have managedFields, as a server sends them.
var Objects = []*Object{
	object("small", "pods", pods.New(3, 0), "spec"),
	object("big", "pods", pods.New(20, 40), "spec"),
	object("deployment", "deployments", pods.Deployment(3, 0), "spec", "template", "spec"),
}

func object(name, resource string, tree map[string]any, podSpec ...string) *Object {
	u, err := cases.Normal(&unstructured.Unstructured{Object: tree}, nil)
	if err != nil {
		panic(err) // a built-in kind that is valid
	}
	return &Object{Name: name, kind: u.GroupVersionKind(), resource: resource, podSpec: podSpec, tree: u}
}

// Size returns the size of the object as JSON, in bytes.
func (o *Object) Size() int {
	data, err := o.tree.MarshalJSON()
	if err != nil {
		panic(err) // it came from JSON data
	}
	return len(data)
}

// Containers returns the number of containers.
func (o *Object) Containers() int { return len(o.containers(o.tree.Object)) }

func (o *Object) spec(tree map[string]any) map[string]any {
	for _, field := range o.podSpec {
		tree = tree[field].(map[string]any)
	}
	return tree
}

func (o *Object) containers(tree map[string]any) []any {
	return o.spec(tree)["containers"].([]any)
}

// typeName returns the CEL type of the Pod's spec, such as Object.spec.
func (o *Object) typeName() string { return "Object." + dots(o.podSpec) }

// applied wraps fields of the Pod's spec into the object around it.
func (o *Object) applied(fields string) string {
	text := o.typeName() + "{" + fields + "}"
	for i := len(o.podSpec) - 1; i >= 0; i-- {
		text = strings.Join(append([]string{"Object"}, o.podSpec[:i]...), ".") + "{" + o.podSpec[i] + ": " + text + "}"
	}
	return text
}
