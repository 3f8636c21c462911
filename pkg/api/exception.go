package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Names of exceptions, which only mapd reads.
const (
	ExceptionGroup    = "mapd.dev"
	ExceptionVersion  = "v1alpha1"
	ExceptionKind     = "PolicyException"
	ExceptionResource = "policyexceptions"
	// ExceptVerb is the RBAC verb on a policy, in the namespace of the exception, that a user
	// needs to write an exception from that policy.
	ExceptVerb = "except"
	// ExceptionActive is the condition that says whether an exception is in effect, and
	// ExceptionInvalid its reason for an exception that mapd does not apply.
	ExceptionActive  = "Active"
	ExceptionInvalid = "Invalid"
	// Installation is the namespace that mapd is installed in by default.
	Installation = "mapd-system"
)

// Exceptions is the resource of PolicyExceptions.
var Exceptions = schema.GroupVersionResource{Group: ExceptionGroup, Version: ExceptionVersion, Resource: ExceptionResource}

// IsException reports whether objects of a kind are PolicyExceptions.
func IsException(gvk schema.GroupVersionKind) bool {
	return gvk.Group == ExceptionGroup && gvk.Kind == ExceptionKind
}

// exceptable are the policies besides mapd's own that mapd runs in a cluster, by kind: an
// exception names them as Kind/name.
var exceptable = map[string]schema.GroupVersionResource{
	"Assign":                 {Group: MutationsGroup, Version: "v1", Resource: "assign"},
	"AssignImage":            {Group: MutationsGroup, Version: "v1", Resource: "assignimage"},
	"AssignMetadata":         {Group: MutationsGroup, Version: "v1", Resource: "assignmetadata"},
	"ModifySet":              {Group: MutationsGroup, Version: "v1", Resource: "modifyset"},
	"AdmissionPolicy":        {Group: "policies.kubewarden.io", Version: "v1", Resource: "admissionpolicies"},
	"ClusterAdmissionPolicy": {Group: "policies.kubewarden.io", Version: "v1", Resource: "clusteradmissionpolicies"},
}

// ExceptionName returns the name of a policy in exceptions: its own name for policies of mapd
// and of the API server, Kind/name for others, and "" for a kind that is not a policy that mapd
// runs in a cluster.
func ExceptionName(gvk schema.GroupVersionKind, name string) string {
	if IsAdmission(gvk.Group) && gvk.Kind == PolicyKind {
		return name
	}
	if exceptable[gvk.Kind].Group != gvk.Group || gvk.Group == "" {
		return ""
	}
	return gvk.Kind + "/" + name
}

// ExceptionTarget is the inverse of ExceptionName: it returns the resource on which a user
// needs ExceptVerb, and the name. policy must be the name in a valid exception.
func ExceptionTarget(policy string) (schema.GroupVersionResource, string) {
	if kind, name, ok := strings.Cut(policy, "/"); ok {
		return exceptable[kind], name
	}
	return OwnPolicies, policy
}

// exceptionTarget returns what is wrong with the name of a policy in an exception.
func exceptionTarget(policy string) []string {
	kind, name, ok := strings.Cut(policy, "/")
	if !ok {
		return subdomain(policy)
	}
	if _, ok := exceptable[kind]; ok {
		return subdomain(name)
	}
	switch kind {
	case "ClusterPolicy", "Policy", "MutatingPolicy", "NamespacedMutatingPolicy":
		return []string{"Kyverno runs its policies itself, and reads only the PolicyExceptions of kyverno.io and policies.kyverno.io"}
	}
	return []string{"must be the name of a policy of " + OwnGroup + ", or Kind/name of one of these kinds: " + strings.Join(slices.Sorted(maps.Keys(exceptable)), ", ")}
}

// PolicyException says that policies leave objects alone for a time: those of its own
// namespace or, in mapd's own namespace, those of all.
type PolicyException struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ExceptionSpec  `json:"spec"`
	Status map[string]any `json:"status,omitempty"` // written by mapd
}

// ExceptionSpec is the spec of a PolicyException.
type ExceptionSpec struct {
	// Policies are names of policies of mapd's group, and Kind/name of other policies.
	Policies []string `json:"policies"`
	// Bindings restricts the exception to some bindings of the policies; empty means all.
	Bindings []string `json:"bindings,omitempty"`
	// Match has the form of a binding's matchResources. Without it all objects match.
	Match *admissionregistrationv1.MatchResources `json:"match,omitempty"`
	// Names and Namespaces restrict the exception to objects with these names and in these
	// namespaces; empty means all. Only exceptions in mapd's own namespace may have Namespaces
	// and a namespaceSelector.
	Names      []string `json:"names,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Reason     string   `json:"reason"`
	Owner      string   `json:"owner,omitempty"`
	// From and Until are times of RFC 3339. The exception is in effect from From on, until
	// right before Until.
	From  string `json:"from,omitempty"`
	Until string `json:"until,omitempty"`
}

// Digest returns a hash that identifies the spec of an exception that DecodeException returned.
func (s *ExceptionSpec) Digest() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // the types are plain
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Times returns From and Until, zero if they are empty. Both must be valid.
func (s *ExceptionSpec) Times() (from, until time.Time) {
	from, _ = time.Parse(time.RFC3339, s.From)
	until, _ = time.Parse(time.RFC3339, s.Until)
	return from, until
}

// Bounds of an exception, since tenants may write it and requests are matched against it.
const (
	maxExceptionNames  = 64 // of each list of names
	maxExceptionRules  = 16
	maxExceptionList   = 32 // of each list of a rule, and requirements of a selector
	maxExceptionValues = 64 // of a requirement
	maxExceptionReason = 1024
	maxExceptionOwner  = 128
)

// ExceptionRules say which exceptions an installation allows.
type ExceptionRules struct {
	// Own is the namespace of mapd; empty means Installation.
	Own string
	// Endless allows exceptions without an end.
	Endless bool
}

// Whole reports whether exceptions in namespace apply to objects of all namespaces.
func (r ExceptionRules) Whole(namespace string) bool {
	if r.Own == "" {
		r.Own = Installation
	}
	return namespace == r.Own
}

// DecodeException decodes an exception strictly and fills in the defaults of its match.
// namespace is used if the exception names none.
func DecodeException(data []byte, namespace string) (*PolicyException, error) {
	obj := new(PolicyException)
	_, err := DecodeSpelling(data, ExceptionKind, Spellings{
		ExceptionGroup + "/" + ExceptionVersion: func() any { return new(PolicyException) },
	}, obj)
	if err != nil {
		return nil, err
	}
	if obj.Namespace == "" {
		obj.Namespace = namespace
	}
	SetMatchDefaults(obj.Spec.Match)
	return obj, nil
}

// ValidateException returns all reasons why mapd does not apply an exception.
func ValidateException(e *PolicyException, rules ExceptionRules) Faults {
	errs := sorted(apivalidation.ValidateObjectMeta(&e.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata")))
	s, path := &e.Spec, field.NewPath("spec")
	if len(s.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "the names of policies"))
	}
	errs = append(errs, validateNames(s.Policies, path.Child("policies"), exceptionTarget)...)
	errs = append(errs, validateNames(s.Bindings, path.Child("bindings"), subdomain)...)
	if i := slices.IndexFunc(s.Policies, func(name string) bool { return strings.Contains(name, "/") }); i >= 0 && len(s.Bindings) > 0 {
		errs = append(errs, field.Forbidden(path.Child("bindings"), cut(s.Policies[i])+" has no bindings: write an exception of its own for it"))
	}
	if s.Match != nil {
		at := path.Child("match")
		errs = append(errs, ValidateMatchResources(s.Match, at)...)
		errs = append(errs, boundMatch(s.Match, at)...)
	}
	errs = append(errs, validateNames(s.Names, path.Child("names"), func(name string) []string {
		if len(ValidatePathSegment(name, nil)) > 0 || name == "" || len(name) > 253 {
			return []string{"must be the name of an object"}
		}
		return nil
	})...)
	errs = append(errs, validateNames(s.Namespaces, path.Child("namespaces"), func(name string) []string { return apivalidation.ValidateNamespaceName(name, false) })...)
	if !rules.Whole(e.Namespace) {
		if slices.ContainsFunc(s.Namespaces, func(name string) bool { return name != e.Namespace }) {
			errs = append(errs, field.Forbidden(path.Child("namespaces"), fmt.Sprintf("an exception in namespace %s is for objects of that namespace only", e.Namespace)))
		}
		if m := s.Match; m != nil && !SelectsAll(m.NamespaceSelector) {
			errs = append(errs, field.Forbidden(path.Child("match", "namespaceSelector"), fmt.Sprintf("an exception in namespace %s is for objects of that namespace only", e.Namespace)))
		}
	}
	if strings.TrimSpace(s.Reason) == "" {
		errs = append(errs, field.Required(path.Child("reason"), "why there is the exception"))
	}
	errs = append(errs, validateText(s.Reason, maxExceptionReason, path.Child("reason"))...)
	errs = append(errs, validateText(s.Owner, maxExceptionOwner, path.Child("owner"))...)
	return FormFaults(append(errs, validateTimes(s, rules, path)...)...)
}

func subdomain(name string) []string { return apivalidation.NameIsDNSSubdomain(name, false) }

func validateTimes(s *ExceptionSpec, rules ExceptionRules, path *field.Path) (errs field.ErrorList) {
	read := func(text string, at *field.Path) (t time.Time) {
		if text == "" {
			return t
		}
		t, err := time.Parse(time.RFC3339, text)
		if err != nil || t.IsZero() || len(text) > len("2006-01-02T15:04:05.999999999+07:00") { // the zero time would mean no time
			errs = append(errs, field.Invalid(at, cut(text), "must be a time with a zone, such as 2027-01-31T00:00:00Z or 2027-01-31T18:00:00+01:00"))
			return time.Time{}
		}
		return t
	}
	from, until := read(s.From, path.Child("from")), read(s.Until, path.Child("until"))
	switch {
	case s.Until == "" && !rules.Endless:
		errs = append(errs, field.Required(path.Child("until"), "when the exception ends"))
	case !from.IsZero() && !until.IsZero() && !from.Before(until):
		errs = append(errs, field.Invalid(path.Child("until"), s.Until, "must be after from"))
	}
	return errs
}

// cut shortens a text that an error quotes.
func cut(text string) string {
	if len(text) > 64 {
		return strings.ToValidUTF8(text[:64], "") + "…"
	}
	return text
}

func validateText(text string, most int, path *field.Path) field.ErrorList {
	if len(text) > most {
		return field.ErrorList{field.TooLong(path, "", most)}
	}
	return nil
}

func validateNames(names []string, path *field.Path, check func(string) []string) (errs field.ErrorList) {
	if len(names) > maxExceptionNames {
		return field.ErrorList{field.TooMany(path, len(names), maxExceptionNames)}
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(path.Index(i), cut(name)))
		}
		for _, message := range check(name) {
			errs = append(errs, field.Invalid(path.Index(i), cut(name), message))
		}
	}
	return errs
}

// boundMatch returns errors for a match that would take long to evaluate.
func boundMatch(m *admissionregistrationv1.MatchResources, path *field.Path) (errs field.ErrorList) {
	most := func(n, most int, at *field.Path) {
		if n > most {
			errs = append(errs, field.TooMany(at, n, most))
		}
	}
	rules := func(list []admissionregistrationv1.NamedRuleWithOperations, at *field.Path) {
		most(len(list), maxExceptionRules, at)
		for i := range list {
			r := &list[i]
			most(len(r.ResourceNames), maxExceptionNames, at.Index(i).Child("resourceNames"))
			most(len(r.Operations), maxExceptionList, at.Index(i).Child("operations"))
			most(len(r.APIGroups), maxExceptionList, at.Index(i).Child("apiGroups"))
			most(len(r.APIVersions), maxExceptionList, at.Index(i).Child("apiVersions"))
			most(len(r.Resources), maxExceptionList, at.Index(i).Child("resources"))
		}
	}
	rules(m.ResourceRules, path.Child("resourceRules"))
	rules(m.ExcludeResourceRules, path.Child("excludeResourceRules"))
	selector := func(s *metav1.LabelSelector, at *field.Path) {
		if s == nil {
			return
		}
		most(len(s.MatchLabels)+len(s.MatchExpressions), maxExceptionList, at)
		for i := range s.MatchExpressions {
			most(len(s.MatchExpressions[i].Values), maxExceptionValues, at.Child("matchExpressions").Index(i).Child("values"))
		}
	}
	selector(m.NamespaceSelector, path.Child("namespaceSelector"))
	selector(m.ObjectSelector, path.Child("objectSelector"))
	return errs
}

// ErrNotAllowed is why a stored exception that was never checked is not in effect. mapd records
// in the status for which spec the writer was allowed to except the policies.
var ErrNotAllowed = errors.New("nobody has checked whether its writer may except the policies; write it again while mapd runs")

// Allowed returns ErrNotAllowed unless the status says that the writer of the present spec was
// allowed to write it. by is that writer.
func (e *PolicyException) Allowed() (by string, err error) {
	allowed, _ := e.Status["allowed"].(map[string]any)
	if digest, _ := allowed["digest"].(string); digest != e.Spec.Digest() {
		return "", ErrNotAllowed
	}
	by, _ = allowed["user"].(string)
	return by, nil
}
