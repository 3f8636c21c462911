package validating

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Source is the part of a server that has a Finding.
type Source string

// The sources of Findings.
const (
	Policy      Source = "ValidatingAdmissionPolicy"
	PodSecurity Source = "PodSecurity"
	// Server is the API server itself.
	Server Source = "API server"
)

// Finding is one thing that a server would say of an object.
type Finding struct {
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
func (f Finding) String() string {
	switch {
	case f.Source != Policy:
		return f.Message
	case f.Action != admissionregistrationv1.Deny:
		return fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", f.Policy, f.Binding, f.Message)
	case f.Binding == "":
		return fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", f.Policy, f.Message)
	default:
		return fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", f.Policy, f.Binding, f.Message)
	}
}

// Annotation is an entry that a policy would add to the server's audit log.
type Annotation struct{ Policy, Key, Value string }

// Result is what a server's validation would say of one object.
type Result struct {
	// Findings are the server's own warnings, those of the policies, by policy, binding, parameter and
	// validation, and then those of Pod Security.
	Findings []Finding
	// Annotations are in the same order.
	Annotations []Annotation
}
