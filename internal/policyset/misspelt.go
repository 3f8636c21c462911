package policyset

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/lookup"
)

// kindsOf are the kinds of the groups that have policies.
var kindsOf = map[string][]string{
	api.NativeGroup: {
		api.PolicyKind, api.BindingKind, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
	},
	api.OwnGroup: {api.PolicyKind, api.BindingKind},
}

func init() {
	for _, f := range features {
		maps.Copy(kindsOf, f.kinds())
	}
}

// Misspelt returns an error text for a kind that looks like a misspelt kind of policy, "" for all
// others.
func Misspelt(gvk schema.GroupVersionKind) string {
	if _, ok := kindsOf[gvk.Version]; ok && gvk.Group == "" {
		return fmt.Sprintf("apiVersion %s has no version, as in %s/v1", gvk.Version, gvk.Version)
	}
	kinds := kindsOf[gvk.Group]
	if len(kinds) == 0 && (gvk.Kind == api.PolicyKind || gvk.Kind == api.BindingKind) {
		return fmt.Sprintf("group %q has no kind %s; write %s or %s", gvk.Group, gvk.Kind, api.NativeGroup, api.OwnGroup)
	}
	if len(kinds) == 0 || slices.Contains(kinds, strings.TrimSuffix(gvk.Kind, "List")) {
		return ""
	}
	text := fmt.Sprintf("%s has no kind %s", gvk.Group, gvk.Kind)
	if near := lookup.Nearest(gvk.Kind, kinds); near != "" {
		text += "; did you mean " + near + "?"
	}
	return text
}
