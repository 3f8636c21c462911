package format

import (
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/cel/layout"
)

// order is the order in which people write the fields of policies and bindings.
// Other fields follow, by name.
var order = []string{
	"apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "spec",
	"policyName", "paramRef", "matchResources",
	"paramKind", "matchConstraints", "matchConditions", "variables", "failurePolicy", "reinvocationPolicy", "mutations",
	"matchPolicy", "resourceRules", "excludeResourceRules", "namespaceSelector", "objectSelector",
	"apiGroups", "apiVersions", "operations", "resources", "resourceNames", "scope",
	"matchLabels", "matchExpressions", "key", "operator", "values",
	"patchType", "jsonPatch", "applyConfiguration", "expression",
}

// Form is how policies and bindings are written.
var Form = manifest.Form{
	Order:  order,
	Free:   []string{"labels", "annotations", "matchLabels", "data"},
	Blocks: []string{"expression", "messageExpression", "valueExpression"},
	List:   80,
	Line:   layout.Width,
}
