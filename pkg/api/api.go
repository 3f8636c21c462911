// Package api defines policies and bindings as they are written: their groups, kinds and
// resources, how the apiVersions of each kind are decoded, the defaults of each version, and
// the validation of their form. It also has the names of Gatekeeper's objects.
//
// It does not evaluate anything: package policy compiles expressions, package binding matches
// requests. Errors have the order and the texts of the server (k8s.io/kubernetes
// pkg/apis/admissionregistration).
package api

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Groups in which policies and bindings are written: Kubernetes' own, and the
// one of mapd's CustomResourceDefinitions, whose spec is that of native v1.
const (
	NativeGroup = admissionregistrationv1.GroupName
	OwnGroup    = "admissionregistration.mapd.dev"
)

// Kinds and resources of policies and bindings in both groups.
const (
	PolicyKind      = "MutatingAdmissionPolicy"
	PolicyResource  = "mutatingadmissionpolicies"
	BindingKind     = "MutatingAdmissionPolicyBinding"
	BindingResource = "mutatingadmissionpolicybindings"
)

// Policies and bindings in version v1 of both groups.
var (
	OwnPolicies    = schema.GroupVersionResource{Group: OwnGroup, Version: "v1", Resource: PolicyResource}
	OwnBindings    = schema.GroupVersionResource{Group: OwnGroup, Version: "v1", Resource: BindingResource}
	NativePolicies = schema.GroupVersionResource{Group: NativeGroup, Version: "v1", Resource: PolicyResource}
	NativeBindings = schema.GroupVersionResource{Group: NativeGroup, Version: "v1", Resource: BindingResource}
)

// Names of other groups and kinds that mapd reads.
const (
	DefinitionGroup = "apiextensions.k8s.io"
	DefinitionKind  = "CustomResourceDefinition"
	RBACGroup       = "rbac.authorization.k8s.io"
)

// Names of Gatekeeper (Gatekeeper spec §9).
const (
	// GatekeeperNamespace is where Gatekeeper is installed by default.
	GatekeeperNamespace = "gatekeeper-system"
	// GatekeeperProcess is what Gatekeeper's Config calls the mutating webhook.
	GatekeeperProcess = "mutation-webhook"
	// IgnoreLabel marks a Namespace in which Gatekeeper mutates nothing, whatever
	// the label's value.
	IgnoreLabel = "admission.gatekeeper.sh/ignore"

	MutationsGroup    = "mutations.gatekeeper.sh"
	ConfigGroup       = "config.gatekeeper.sh"
	ExternalDataGroup = "externaldata.gatekeeper.sh"
	ExpansionGroup    = "expansion.gatekeeper.sh"
)

// GatekeeperGroups are the groups whose objects Gatekeeper never mutates.
var GatekeeperGroups = []string{
	"templates.gatekeeper.sh", "constraints.gatekeeper.sh", MutationsGroup, ConfigGroup,
	ExternalDataGroup, ExpansionGroup, "status.gatekeeper.sh",
}

// IsAdmission reports whether policies and bindings are written in group.
func IsAdmission(group string) bool { return group == NativeGroup || group == OwnGroup }

// IsGatekeepers reports whether Gatekeeper never mutates the objects of group.
func IsGatekeepers(group string) bool { return slices.Contains(GatekeeperGroups, group) }
