package convert

import (
	"regexp"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
)

// paramsRoot is the first step of a path into the policy's parameter.
const paramsRoot = "\x00params"

// configMap is a ConfigMap that a rule's context reads. It becomes the parameter of the policy.
type configMap struct {
	name string
	// namespace is the ConfigMap's; "" stands for the namespace of the request.
	namespace string
}

var requestNamespace = regexp.MustCompile(`^\{\{\s*request\.(object\.metadata\.)?namespace\s*\}\}$`)

// parameter returns the ConfigMap of a context entry, or the reason why it cannot be a parameter.
func (k *compiler) parameter(entry string, c *policy.ConfigMap) (configMap, string) {
	out := configMap{c.Name, c.Namespace}
	if hasVariable(c.Name) {
		return out, "the context " + entry + " reads a ConfigMap whose name has a variable"
	}
	switch {
	case requestNamespace.MatchString(c.Namespace):
		if !k.namespaced {
			return out, "the context " + entry + " reads a ConfigMap in the namespace of objects that have none"
		}
		out.namespace = ""
	case hasVariable(c.Namespace):
		return out, "the context " + entry + " reads a ConfigMap whose namespace has a variable"
	case c.Namespace == "" && k.policyNamespace != "":
		out.namespace = k.policyNamespace
	case c.Namespace == "":
		out.namespace = "default"
	}
	if k.policyNamespace != "" && out.namespace != k.policyNamespace {
		return out, "the context " + entry + " reads a ConfigMap of another namespace, which Kyverno refuses in a namespaced policy"
	}
	return out, ""
}

// ref returns the binding's reference to the ConfigMap. If it is missing, Kyverno fails, and so
// does the API server with this reference.
func (c configMap) ref() *admissionregistrationv1.ParamRef {
	deny := admissionregistrationv1.DenyAction
	return &admissionregistrationv1.ParamRef{Name: c.name, Namespace: c.namespace, ParameterNotFoundAction: &deny}
}
