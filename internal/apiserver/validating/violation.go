package validating

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Source is the part of a server that states a Violation.
type Source string

// The sources of Violations.
const (
	Policy      Source = "ValidatingAdmissionPolicy"
	PodSecurity Source = "PodSecurity"
	// Server is the API server itself.
	Server Source = "API server"
)

// Violation is one reason for which a server would refuse an object, or would warn of it or note it in
// its audit log: a validation that fails, a level of Pod Security, or a warning of the server itself.
type Violation struct {
	Source Source
	// Policy, Binding and Param name the policy, its binding and the parameter, as
	// "namespace/name" or "name". Binding is empty if the policy itself is at fault.
	Policy, Binding, Param string
	// Action is what the server would do: Deny, Warn or Audit.
	Action admissionregistrationv1.ValidationAction
	// Reason is that of the server's answer, such as Invalid; empty for a warning of
	// Pod Security or of the server itself.
	Reason metav1.StatusReason
	// Message is the message of the validation, or of the error that took its place,
	// without the words that the server puts before it; String has these.
	Message string
}

// String returns the server's words.
func (v Violation) String() string {
	switch {
	case v.Source != Policy:
		return v.Message
	case v.Action != admissionregistrationv1.Deny:
		return fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", v.Policy, v.Binding, v.Message)
	case v.Binding == "":
		return fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", v.Policy, v.Message)
	default:
		return fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", v.Policy, v.Binding, v.Message)
	}
}

// Annotation is an entry that a policy would add to the server's audit log.
type Annotation struct{ Policy, Key, Value string }

// Result is what a server's validation would say of one object.
type Result struct {
	// Violations are the server's own warnings, those of the policies, by policy, binding, parameter and
	// validation, and then those of Pod Security.
	Violations []Violation
	// Annotations are in the same order.
	Annotations []Annotation
}
