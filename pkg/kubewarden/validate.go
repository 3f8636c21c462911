package kubewarden

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mapd-project/mapd/pkg/api"
)

const (
	minTimeout, maxTimeout = 2, 30
	// maxContextAware bounds the kinds that one policy may read, since in a cluster each is
	// watched.
	maxContextAware = 32
)

// validate checks a document and returns the location of its module (Kubewarden spec §6.1).
// matchConditions are checked when they are compiled.
func (d *document) validate() (Source, api.Faults) {
	s, spec := &d.Spec, field.NewPath("spec")
	errs := apivalidation.ValidateObjectMeta(&d.ObjectMeta, d.Kind == PolicyKind, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	source, err := ParseSource(s.Module)
	switch {
	case s.Module == "":
		errs = append(errs, field.Required(spec.Child("module"), "where the policy's WebAssembly module is"))
	case err != nil:
		errs = append(errs, field.Invalid(spec.Child("module"), s.Module, err.Error()))
	}
	if s.Mutating == nil {
		errs = append(errs, field.Required(spec.Child("mutating"), "whether the policy may change objects"))
	}
	if s.Settings != nil {
		if _, ok := (*s.Settings).(map[string]any); !ok && *s.Settings != nil {
			errs = append(errs, field.TypeInvalid(spec.Child("settings"), *s.Settings, "must be an object"))
		}
	}
	if len(s.Rules) == 0 {
		errs = append(errs, field.Required(spec.Child("rules"), "a policy without rules meets no request"))
	}
	for i := range s.Rules {
		rule := admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: s.Rules[i]}
		errs = append(errs, api.ValidateRule(&rule, spec.Child("rules").Index(i))...)
	}
	if s.Mode != "" {
		errs = append(errs, api.OneOf(spec.Child("mode"), s.Mode, []string{"monitor", "protect"})...)
	}
	if s.FailurePolicy != nil {
		errs = append(errs, api.OneOf(spec.Child("failurePolicy"), *s.FailurePolicy, []admissionregistrationv1.FailurePolicyType{"Fail", "Ignore"})...)
	}
	if s.MatchPolicy != nil {
		errs = append(errs, api.OneOf(spec.Child("matchPolicy"), *s.MatchPolicy, []admissionregistrationv1.MatchPolicyType{"Equivalent", "Exact"})...)
	}
	if s.SideEffects != nil {
		errs = append(errs, api.OneOf(spec.Child("sideEffects"), *s.SideEffects, []admissionregistrationv1.SideEffectClass{"None", "NoneOnDryRun", "Some", "Unknown"})...)
	}
	errs = append(errs, s.validateTimeouts(spec)...)
	if s.ObjectSelector != nil {
		errs = append(errs, api.ValidateSelector(s.ObjectSelector, spec.Child("objectSelector"))...)
	}
	if s.NamespaceSelector != nil {
		errs = append(errs, api.ValidateSelector(s.NamespaceSelector, spec.Child("namespaceSelector"))...)
	}
	if n := len(s.ContextAwareResources); n > maxContextAware {
		errs = append(errs, field.TooMany(spec.Child("contextAwareResources"), n, maxContextAware))
	}
	for i, r := range s.ContextAwareResources {
		at := spec.Child("contextAwareResources").Index(i)
		if _, err := schema.ParseGroupVersion(r.APIVersion); err != nil || r.APIVersion == "" {
			errs = append(errs, field.Invalid(at.Child("apiVersion"), r.APIVersion, "must be version or group/version"))
		}
		if r.Kind == "" {
			errs = append(errs, field.Required(at.Child("kind"), ""))
		}
	}
	if d.Kind == PolicyKind {
		errs = append(errs, s.validateNamespaced(spec)...)
	}
	return source, api.FormFaults(errs...)
}

func (s *spec) validateTimeouts(path *field.Path) (errs field.ErrorList) {
	within := func(name string, value *int32) {
		if value != nil && (*value < minTimeout || *value > maxTimeout) {
			errs = append(errs, field.Invalid(path.Child(name), *value, fmt.Sprintf("must be from %d to %d", minTimeout, maxTimeout)))
		}
	}
	within("timeoutSeconds", s.TimeoutSeconds)
	within("timeoutEvalSeconds", s.TimeoutEvalSeconds)
	whole := int32(10)
	if s.TimeoutSeconds != nil {
		whole = *s.TimeoutSeconds
	}
	if s.TimeoutEvalSeconds != nil && *s.TimeoutEvalSeconds > whole && len(errs) == 0 {
		errs = append(errs, field.Invalid(path.Child("timeoutEvalSeconds"), *s.TimeoutEvalSeconds, fmt.Sprintf("must not be above timeoutSeconds, which is %d", whole)))
	}
	return errs
}

// validateNamespaced returns errors for fields that only a ClusterAdmissionPolicy may have.
func (s *spec) validateNamespaced(path *field.Path) (errs field.ErrorList) {
	const only = "only a ClusterAdmissionPolicy has it"
	if s.NamespaceSelector != nil {
		errs = append(errs, field.Forbidden(path.Child("namespaceSelector"), only+"; an AdmissionPolicy is about its own namespace"))
	}
	if len(s.ContextAwareResources) > 0 {
		errs = append(errs, field.Forbidden(path.Child("contextAwareResources"), only))
	}
	if s.AllowInsideAdmissionControllerNamespace {
		errs = append(errs, field.Forbidden(path.Child("allowInsideAdmissionControllerNamespace"), only))
	}
	for i, r := range s.Rules {
		if slices.Contains(r.APIGroups, "*") && slices.ContainsFunc(r.Resources, func(s string) bool { return s == "*" || s == "*/*" }) {
			errs = append(errs, field.Forbidden(path.Child("rules").Index(i), "an AdmissionPolicy cannot select all resources of all groups"))
		}
		if r.Scope != nil && *r.Scope == admissionregistrationv1.ClusterScope {
			errs = append(errs, field.Invalid(path.Child("rules").Index(i).Child("scope"), *r.Scope, "an AdmissionPolicy selects namespaced objects only"))
		}
	}
	return errs
}
