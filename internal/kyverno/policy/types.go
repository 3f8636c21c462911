package policy

import (
	"cmp"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Groups of Kyverno's policies.
const (
	Group    = "kyverno.io"
	CELGroup = "policies.kyverno.io"
)

// IsNamespaced reports whether policies of a kind are in a namespace.
func IsNamespaced(kind string) bool { return kind == "Policy" || kind == "NamespacedMutatingPolicy" }

// Policy is one policy: Rules or CEL is set, whichever its kind has.
type Policy struct {
	APIVersion, Kind, Name string
	// Namespace is that of a Policy or a NamespacedMutatingPolicy.
	Namespace   string
	Annotations map[string]string

	Rules *Spec
	CEL   *CELSpec
}

// ID names the policy in messages: "ClusterPolicy/add-labels".
func (p *Policy) ID() string { return id(p.Kind, p.Namespace, p.Name) }

// IDOf is the ID of the policy in an object.
func IDOf(u *unstructured.Unstructured) string {
	namespace := ""
	if IsNamespaced(u.GetKind()) {
		namespace = cmp.Or(u.GetNamespace(), metav1.NamespaceDefault)
	}
	return id(u.GetKind(), namespace, u.GetName())
}

func id(kind, namespace, name string) string {
	if namespace != "" {
		return kind + "/" + namespace + "/" + name
	}
	return kind + "/" + name
}

// Spec is that of a ClusterPolicy or a Policy.
type Spec struct {
	Rules      []Rule  `json:"rules,omitempty"`
	ApplyRules *string `json:"applyRules,omitempty"`

	FailurePolicy        *string               `json:"failurePolicy,omitempty"`
	Admission            *bool                 `json:"admission,omitempty"`
	WebhookConfiguration *WebhookConfiguration `json:"webhookConfiguration,omitempty"`

	// These have no part in what a mutation does to a request.
	ValidationFailureAction          string `json:"validationFailureAction,omitempty"`
	ValidationFailureActionOverrides []any  `json:"validationFailureActionOverrides,omitempty"`
	EmitWarning                      *bool  `json:"emitWarning,omitempty"`
	Background                       *bool  `json:"background,omitempty"`
	SchemaValidation                 *bool  `json:"schemaValidation,omitempty"`
	WebhookTimeoutSeconds            *int32 `json:"webhookTimeoutSeconds,omitempty"`
	MutateExistingOnPolicyUpdate     bool   `json:"mutateExistingOnPolicyUpdate,omitempty"`
	GenerateExistingOnPolicyUpdate   *bool  `json:"generateExistingOnPolicyUpdate,omitempty"`
	GenerateExisting                 bool   `json:"generateExisting,omitempty"`
	UseServerSideApply               bool   `json:"useServerSideApply,omitempty"`
}

// WebhookConfiguration says when Kyverno's webhook is called for a policy.
type WebhookConfiguration struct {
	FailurePolicy   *string                                  `json:"failurePolicy,omitempty"`
	TimeoutSeconds  *int32                                   `json:"timeoutSeconds,omitempty"`
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
}

// Rule is one rule. The content of what does not mutate is not read.
type Rule struct {
	Name             string                                   `json:"name"`
	Context          []Context                                `json:"context,omitempty"`
	ReportProperties map[string]string                        `json:"reportProperties,omitempty"`
	Match            Match                                    `json:"match"`
	Exclude          *Match                                   `json:"exclude,omitempty"`
	ImageExtractors  map[string][]any                         `json:"imageExtractors,omitempty"`
	RawPreconditions any                                      `json:"preconditions,omitempty"`
	CELPreconditions []admissionregistrationv1.MatchCondition `json:"celPreconditions,omitempty"`

	Mutate       *Mutate        `json:"mutate,omitempty"`
	Validate     map[string]any `json:"validate,omitempty"`
	Generate     map[string]any `json:"generate,omitempty"`
	VerifyImages []any          `json:"verifyImages,omitempty"`

	SkipBackgroundRequests *bool `json:"skipBackgroundRequests,omitempty"`

	// Preconditions are RawPreconditions, which have two forms.
	Preconditions *Conditions `json:"-"`
}

// Does says what the rule is for: mutate, validate, generate, verifyImages, or nothing.
func (r *Rule) Does() string {
	switch {
	case r.Mutate != nil:
		return "mutate"
	case r.Validate != nil:
		return "validate"
	case r.Generate != nil:
		return "generate"
	case r.VerifyImages != nil:
		return "verifyImages"
	}
	return "nothing"
}

// Match is a match or exclude block. Kyverno reads Any, else All, else the rest.
type Match struct {
	Any []Filter `json:"any,omitempty"`
	All []Filter `json:"all,omitempty"`
	Filter
}

// Filter is one filter of resources and users.
type Filter struct {
	Users
	Resources Resources `json:"resources,omitempty"`
}

// Users selects by who makes the request.
type Users struct {
	Roles        []string         `json:"roles,omitempty"`
	ClusterRoles []string         `json:"clusterRoles,omitempty"`
	Subjects     []rbacv1.Subject `json:"subjects,omitempty"`
}

// Empty reports whether all users are selected.
func (u Users) Empty() bool {
	return len(u.Roles) == 0 && len(u.ClusterRoles) == 0 && len(u.Subjects) == 0
}

// Resources selects by the object of the request.
type Resources struct {
	Kinds             []string              `json:"kinds,omitempty"`
	Name              string                `json:"name,omitempty"`
	Names             []string              `json:"names,omitempty"`
	Namespaces        []string              `json:"namespaces,omitempty"`
	Annotations       map[string]string     `json:"annotations,omitempty"`
	Selector          *metav1.LabelSelector `json:"selector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	Operations        []string              `json:"operations,omitempty"`
}

// Conditions are preconditions: at least one of Any, if there are any, and all of All.
type Conditions struct {
	Any []Condition `json:"any,omitempty"`
	All []Condition `json:"all,omitempty"`
}

// Condition compares two values, either of which may hold variables.
type Condition struct {
	Key      any    `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    any    `json:"value,omitempty"`
	Message  string `json:"message,omitempty"`
}

// Context is a named value that variables can use.
type Context struct {
	Name            string         `json:"name"`
	ConfigMap       *ConfigMap     `json:"configMap,omitempty"`
	APICall         *APICall       `json:"apiCall,omitempty"`
	ImageRegistry   *ImageRegistry `json:"imageRegistry,omitempty"`
	Variable        *Variable      `json:"variable,omitempty"`
	GlobalReference *Global        `json:"globalReference,omitempty"`
}

// ConfigMap is the content of a ConfigMap.
type ConfigMap struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// APICall is the answer of an API server or a service.
type APICall struct {
	URLPath  string         `json:"urlPath"`
	Method   string         `json:"method,omitempty"`
	Data     []any          `json:"data,omitempty"`
	Service  map[string]any `json:"service,omitempty"`
	Default  any            `json:"default,omitempty"`
	JMESPath string         `json:"jmesPath,omitempty"`
}

// ImageRegistry is what a registry says of an image.
type ImageRegistry struct {
	Reference                string         `json:"reference"`
	JMESPath                 string         `json:"jmesPath,omitempty"`
	ImageRegistryCredentials map[string]any `json:"imageRegistryCredentials,omitempty"`
}

// Variable is a value, an expression, or a value to which the expression is applied.
type Variable struct {
	Value    any    `json:"value,omitempty"`
	JMESPath string `json:"jmesPath,omitempty"`
	Default  any    `json:"default,omitempty"`
}

// Global is an entry of a GlobalContextEntry.
type Global struct {
	Name     string `json:"name"`
	JMESPath string `json:"jmesPath,omitempty"`
}

// Mutate is what a rule does.
type Mutate struct {
	MutateExistingOnPolicyUpdate *bool     `json:"mutateExistingOnPolicyUpdate,omitempty"`
	Targets                      []Target  `json:"targets,omitempty"`
	PatchStrategicMerge          any       `json:"patchStrategicMerge,omitempty"`
	PatchesJSON6902              string    `json:"patchesJson6902,omitempty"`
	ForEach                      []ForEach `json:"foreach,omitempty"`
}

// Target selects existing objects to mutate.
type Target struct {
	APIVersion       string                `json:"apiVersion,omitempty"`
	Kind             string                `json:"kind,omitempty"`
	Namespace        string                `json:"namespace,omitempty"`
	Name             string                `json:"name,omitempty"`
	UID              string                `json:"uid,omitempty"`
	Selector         *metav1.LabelSelector `json:"selector,omitempty"`
	Context          []Context             `json:"context,omitempty"`
	RawPreconditions any                   `json:"preconditions,omitempty"`
}

// ForEach mutates once for each element of a list.
type ForEach struct {
	List                string      `json:"list,omitempty"`
	Order               *string     `json:"order,omitempty"`
	Context             []Context   `json:"context,omitempty"`
	Preconditions       *Conditions `json:"preconditions,omitempty"`
	PatchStrategicMerge any         `json:"patchStrategicMerge,omitempty"`
	PatchesJSON6902     string      `json:"patchesJson6902,omitempty"`
	ForEach             []ForEach   `json:"foreach,omitempty"`
}

// CELSpec is that of a MutatingPolicy or a NamespacedMutatingPolicy.
type CELSpec struct {
	MatchConstraints       *admissionregistrationv1.MatchResources         `json:"matchConstraints,omitempty"`
	FailurePolicy          *admissionregistrationv1.FailurePolicyType      `json:"failurePolicy,omitempty"`
	MatchConditions        []admissionregistrationv1.MatchCondition        `json:"matchConditions,omitempty"`
	Variables              []admissionregistrationv1.Variable              `json:"variables,omitempty"`
	Autogen                *Autogen                                        `json:"autogen,omitempty"`
	TargetMatchConstraints map[string]any                                  `json:"targetMatchConstraints,omitempty"`
	TargetMatchConditions  []admissionregistrationv1.MatchCondition        `json:"targetMatchConditions,omitempty"`
	Mutations              []admissionregistrationv1.Mutation              `json:"mutations,omitempty"`
	AuditAnnotations       []admissionregistrationv1.AuditAnnotation       `json:"auditAnnotations,omitempty"`
	WebhookConfiguration   *CELWebhook                                     `json:"webhookConfiguration,omitempty"`
	Evaluation             *Evaluation                                     `json:"evaluation,omitempty"`
	ReinvocationPolicy     *admissionregistrationv1.ReinvocationPolicyType `json:"reinvocationPolicy,omitempty"`
}

// Expressions returns those of conditions, variables and mutations, as they are written.
func (s *CELSpec) Expressions() (texts []string) {
	for _, c := range s.MatchConditions {
		texts = append(texts, c.Expression)
	}
	for _, v := range s.Variables {
		texts = append(texts, v.Expression)
	}
	for _, m := range s.Mutations {
		if m.JSONPatch != nil {
			texts = append(texts, m.JSONPatch.Expression)
		}
		if m.ApplyConfiguration != nil {
			texts = append(texts, m.ApplyConfiguration.Expression)
		}
	}
	return texts
}

// Autogen says for which controllers of Pods Kyverno makes more policies.
type Autogen struct {
	PodControllers *struct {
		Controllers []string `json:"controllers,omitempty"`
	} `json:"podControllers,omitempty"`
	MutatingAdmissionPolicy *Switch `json:"mutatingAdmissionPolicy,omitempty"`
}

// Switch turns something on or off.
type Switch struct {
	Enabled *bool `json:"enabled,omitempty"`
}

// CELWebhook is the webhookConfiguration of a CELSpec.
type CELWebhook struct {
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// Evaluation says where Kyverno evaluates a policy.
type Evaluation struct {
	Mode                   string  `json:"mode,omitempty"`
	Admission              *Switch `json:"admission,omitempty"`
	Background             *Switch `json:"background,omitempty"`
	MutateExisting         *Switch `json:"mutateExisting,omitempty"`
	SkipBackgroundRequests *bool   `json:"skipBackgroundRequests,omitempty"`
	UseServerSideApply     bool    `json:"useServerSideApply,omitempty"`
}
