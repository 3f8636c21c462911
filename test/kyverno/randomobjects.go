package kyverno

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	author "github.com/mapd-project/mapd/internal/author/kyverno"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

// Objects makes the requests that a policy is tried on: those of mapd migrate kyverno --verify.
type Objects struct{ *author.Objects }

// ObjectsOf returns what makes requests for a policy.
func ObjectsOf(p *policy.Policy, kinds []schema.GroupVersionKind) Objects {
	return Objects{author.NewObjects(p, types, kinds, "team/app:v2", "nginx:1@sha256:"+strings.Repeat("0", 64), "Host/a/b")}
}

// Request returns the request at i, the same one for the same seed; nil if a server would not take its
// object, or if the object has {{, which Kyverno evaluates (row kyverno-templates of compat.md).
func (o Objects) Request(seed uint64, i int) *Request {
	made := o.Object(seed, i)
	if made.Object == nil || strings.Contains(text(made.Object), "{{") {
		return nil
	}
	u := &unstructured.Unstructured{Object: made.Object}
	kind, err := types.Kind(u.GroupVersionKind())
	if err != nil {
		return nil
	}
	object, err := kind.Normalize(plain(made.Object))
	if err != nil {
		return nil
	}
	r := &Request{Operation: made.Operation, Object: plain(object), User: made.User, Groups: made.Groups, NamespaceLabels: map[string]string{}}
	if r.User == "" {
		r.User, r.Groups = "alice", append(r.Groups, "dev")
	}
	if i%5 == 4 {
		r.User = "system:serviceaccount:shop:deployer"
	}
	r.Groups = append(r.Groups, "system:authenticated")
	if made.Namespace != nil {
		for k, v := range (&unstructured.Unstructured{Object: made.Namespace}).GetLabels() {
			r.NamespaceLabels[k] = v
		}
		r.NamespaceLabels["kubernetes.io/metadata.name"] = u.GetNamespace()
	}
	if i%20 != 19 {
		r.ConfigMaps = o.ConfigMaps
	}
	if made.Operation == "UPDATE" {
		if u.GetName() == "" {
			r.Operation = "CREATE" // what is updated has a name
		} else {
			r.OldObject = plain(object)
		}
	}
	return r
}
